"""Factor analysis of rows with missing values, fitted by EM, and choice of its rank.

EM (Rubin and Thayer 1982; with missing values Simkus et al. 2023, appendix J) maximises
``sum_i w_i log p(x_i,obs)``.  Given the moments of the latents, each column is a
regression on (z, 1) over the rows that observe it.  Parameter-expanded EM (Liu, Rubin
and Wu 1998) gives the latents any mean and covariance in the M-step and then rescales
them to N(0, I); it is also monotone, and faster.
"""

from collections.abc import Iterator
from functools import partial
from math import inf, log, pi
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.incomplete import Group, Incomplete, Rows, Table
from skvnce._core.progress import OnRound, step, tell_round

# ----------------------------------------
# Factor analysis of rows with missing values, all patterns at once.
#
# ``x = mean + W z + noise`` with ``z ~ N(0, I)`` and independent noise of variance
# psi_j in column j (Simkus et al. 2023, section 4.1 and appendix J).  With o the
# observed columns of a row and r = x_o - mean_o,
#
#     z | x_o ~ N(A^-1 b, A^-1),  A = I + sum_o w_j w_j' / psi_j,
#                                 b = sum_o w_j r_j / psi_j                          (1)
#     -2 log p(x_o) = sum_o ((r_j - w_j m)^2 / psi_j + log 2 pi psi_j)
#                     + m'm + log|A|,  m = A^-1 b                                    (2)
#
# by the Woodbury identity and the determinant lemma.  All sums over o are products
# with the mask, and only A of size k x k is factorised for each row.  Eq. (2)
# contains no difference of large numbers if the noise is small.


_CELLS_AT_ONCE = 2**20  # maximum size of a table of a batch of rows, 8 MiB


class FactorModel(NamedTuple):
    """Parameters of factor analysis with k latents."""

    mean: Tensor  # (features,)
    loadings: Tensor  # (features, k): W
    noise_variance: Tensor  # (features,): psi

    @classmethod
    def blank(cls, n_features: int, rank: int) -> Self:
        """Make a model whose parameters a stored state will replace."""
        ones = torch.ones(n_features, dtype=torch.float64)
        return cls(0 * ones, ones[:, None].repeat(1, rank), ones)

    def covariance(self) -> Tensor:
        """Compute W W' + diag(psi); (features, features)."""
        return self.loadings @ self.loadings.T + self.noise_variance.diag()

    def precision(self) -> Tensor:
        """Compute the inverse of the covariance, by Woodbury; (features, features)."""
        scaled = self.loadings / self.noise_variance[:, None]
        inner = torch.eye(scaled.shape[1]).to(scaled) + self.loadings.T @ scaled
        root = torch.linalg.solve_triangular(
            torch.linalg.cholesky(inner), scaled.T, upper=False
        )
        return (1 / self.noise_variance).diag() - root.T @ root


class Posterior(NamedTuple):
    """The normal distribution of the latents of each row."""

    mean: Tensor  # (n, k)
    factor: Tensor  # (n, k, k): lower Cholesky factor of A, the precision

    def covariance(self) -> Tensor:
        """Compute A^-1; (n, k, k)."""
        return torch.cholesky_inverse(self.factor)


def precisions(model: FactorModel, mask: Tensor) -> Tensor:
    """Compute A of eq. (1) for masks of ones and zeros (n, features); (n, k, k)."""
    k = model.loadings.shape[1]
    scaled = model.loadings / model.noise_variance[:, None]
    products = (scaled[:, :, None] * model.loadings[:, None, :]).flatten(1)
    precision = (mask @ products).view(-1, k, k)
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return precision


def infer(
    model: FactorModel,
    x: Tensor,  # (n, features): values under the mask are not used
    observed: Tensor,  # bool (n, features)
    # (n, k, k) and (n, k): summands of A and of b
    more: tuple[Tensor, Tensor] | None = None,
) -> Posterior:
    """Compute the posterior of the latents by eq. (1)."""
    precision = precisions(model, observed.to(x.dtype))
    scaled = model.loadings / model.noise_variance[:, None]
    field = (x - model.mean).where(observed, 0.0) @ scaled
    if more is not None:
        precision, field = precision + more[0], field + more[1]
    factor = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve(field[..., None], factor).squeeze(-1)
    return Posterior(mean, factor)


def infer_complete(model: FactorModel, x: Tensor) -> Posterior:
    """Compute the posterior of `infer` for complete rows, which share one A.

    `x` (n, features).  The factor of the result is one matrix, expanded to all rows.
    """
    every = x.new_ones(1, x.shape[1])
    factor = torch.linalg.cholesky(precisions(model, every))
    scaled = model.loadings / model.noise_variance[:, None]
    mean = torch.cholesky_solve(((x - model.mean) @ scaled).T, factor[0]).T
    return Posterior(mean, factor.expand(len(x), -1, -1))


def log_prob_observed(
    model: FactorModel, x: Tensor, observed: Tensor
) -> tuple[Tensor, Posterior]:
    """Compute log p(x_o) of each row by eq. (2), and the posterior that it uses.

    Returns `log_prob` (n,), 0 for a row without observed cells; `posterior`.
    """
    posterior = infer(model, x, observed)
    residual = (x - model.mean - posterior.mean @ model.loadings.T).where(observed, 0.0)
    square = residual.square() @ (1 / model.noise_variance)
    constant = observed.to(x.dtype) @ (model.noise_variance.log() + log(2 * pi))
    log_det = log_det_of(posterior.factor)
    total = square + posterior.mean.square().sum(-1) + constant + log_det
    return -total / 2, posterior


def log_det_of(factor: Tensor) -> Tensor:
    """Compute log|A| from Cholesky factors (n, k, k) of A; (n,)."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def batches(model: FactorModel, data: Incomplete) -> Iterator[Incomplete]:
    """Split rows into batches of bounded memory."""
    d, k = model.loadings.shape
    size = max(1, _CELLS_AT_ONCE // max(d, (k + 1) ** 2))
    for first in range(0, len(data.x), size):
        yield data.take(slice(first, first + size))


# ----------------------------------------
# Factor analysis of rows with missing values, fitted by EM, and choice of its rank.


class Moments(NamedTuple):
    """Expected sums over rows, with u = (z, 1) of length k + 1."""

    latent: Tensor  # (k + 1, k + 1): of uu'
    # (features, k + 1, k + 1): of uu', over the rows that observe the column
    normal: Tensor
    cross: Tensor  # (features, k + 1): of x u, over the same rows
    square: Tensor  # (features,): of x^2, over the same rows


class Fit(NamedTuple):
    """The result of `fit_factors`."""

    model: FactorModel
    objectives: list[float]  # log-likelihoods
    rise: float  # increase of the log-likelihood in the last round


def e_step(model: FactorModel, rows: Rows) -> tuple[Moments, Tensor]:
    """Compute expected moments and the log-likelihood of the rows."""
    d, k = model.loadings.shape
    zeros = partial(torch.zeros, dtype=model.mean.dtype)
    moments = Moments(
        zeros(k + 1, k + 1), zeros(d, k + 1, k + 1), zeros(d, k + 1), zeros(d)
    )
    log_likelihood = zeros(())
    for group in rows.wide_groups:
        weight = rows.weights.index_select(0, group.rows)
        log_likelihood += _add_group(moments, model, group, weight)
    return moments, log_likelihood


def _add_group(
    moments: Moments, model: FactorModel, group: Group, weight: Tensor
) -> Tensor:
    """Add a group of rows to the moments; return its log-likelihood.

    Rows of the same pattern have the same covariance of the latents.
    """
    first = group.first_rows()
    masks, shares = group.observed.index_select(0, first), group.of_patterns(weight)
    factor = torch.linalg.cholesky(precisions(model, masks))
    covariance = torch.cholesky_inverse(factor)
    residual = torch.addcmul(group.x, group.observed, model.mean, value=-1)
    field = residual @ (model.loadings / model.noise_variance[:, None])
    mean = torch.bmm(group.of_rows(covariance), field[:, :, None])[:, :, 0]
    u = torch.nn.functional.pad(mean, (0, 1), value=1.0)
    weighted = u * weight[:, None]
    products = weighted[:, :, None] * u[:, None, :]  # (n, k + 1, k + 1)
    # at the first row of each pattern, whose rows are summed with the same mask
    products[first, :-1, :-1] += covariance * shares[:, None, None]
    moments.latent.add_(products.sum(0))
    normal = group.observed.T @ products.flatten(1)
    moments.normal.add_(normal.view_as(moments.normal))
    moments.cross.add_(group.x.T @ weighted)
    moments.square.add_(weight @ group.x.square())
    residual.sub_(mean @ model.loadings.T).mul_(group.observed)
    square = residual.square() @ (1 / model.noise_variance) + mean.square().sum(1)
    constant = masks @ (model.noise_variance.log() + log(2 * pi)) + log_det_of(factor)
    return -(square @ weight + constant @ shares) / 2


def maximise(moments: Moments, floor: float) -> FactorModel:
    """Regress each column on (z, 1), and rescale z to N(0, I): the M-step.

    A column without an observed cell becomes standard normal noise.
    """
    count = moments.normal[:, -1, -1]
    empty = (count == 0).to(count)
    # regressions on no row are singular
    normal = moments.normal + empty[:, None, None] * torch.eye(
        moments.normal.shape[-1]
    ).to(count)
    factor = torch.linalg.cholesky(normal)
    slopes = torch.cholesky_solve(moments.cross[..., None], factor).squeeze(-1)
    residual = moments.square - (slopes * moments.cross).sum(1)
    noise = ((residual + empty) / (count + empty)).clamp(min=floor)
    average = moments.latent[:-1, -1] / moments.latent[-1, -1]
    second = moments.latent[:-1, :-1] / moments.latent[-1, -1]
    root = torch.linalg.cholesky(second - torch.outer(average, average))
    mean = slopes[:, -1] + slopes[:, :-1] @ average
    return FactorModel(mean, slopes[:, :-1] @ root, noise)


def pair_sums(rows: Rows) -> tuple[Tensor, Tensor]:
    """Sum weights, and products of cells, over rows that observe a pair of columns."""
    data, weighted = rows.data, rows.weights[:, None]
    mask = data.observed.to(data.x.dtype)
    cells = data.x.where(data.observed, 0.0)
    return (mask * weighted).T @ mask, (cells * weighted).T @ cells


def start(table: Table, rank: int, floor: float) -> FactorModel:
    """Compute principal factors of the correlations of pairs of observed cells.

    The variance beyond that of the other directions is signal.  It is at least a
    hundredth, because EM cannot leave loadings of zero.
    """
    pairs, products = table.summed(pair_sums)
    correlation = products / pairs.where(pairs > 0, 1.0)
    values, vectors = torch.linalg.eigh(correlation)
    d = len(values)
    rest = values[: d - rank].clamp(min=0).sum() / max(1, d - rank)
    signal = (values[d - rank :] - rest).clamp(min=0.01)
    loadings = vectors[:, d - rank :] * signal.sqrt()
    noise = (1 - loadings.square().sum(1)).clamp(min=max(floor, 0.05))
    return FactorModel(torch.zeros_like(noise), loadings, noise)


def rotate(model: FactorModel) -> FactorModel:
    """Rotate the latents so that their posterior from complete rows is independent.

    The latents are ordered by decreasing posterior precision, and the largest loading
    of each, relative to the noise, is positive.  So the loadings are functions of the
    covariance.
    """
    scaled = model.loadings / model.noise_variance.sqrt()[:, None]
    vectors = torch.linalg.eigh(scaled.T @ scaled).eigenvectors.flip(1)
    turned = scaled @ vectors
    largest = turned.abs().argmax(0, keepdim=True)
    # the sign of loadings of zero is 0
    signs = turned.gather(0, largest).sign().where(turned.abs().amax(0) > 0, 1.0)
    return model._replace(loadings=model.loadings @ (vectors * signs))


def fit_factors(
    table: Table,  # columns scaled to unit standard deviation
    rank: int,  # number of latents
    *,
    # smallest noise variance.  Without it the likelihood has no maximum if columns are
    # collinear, or if there are few rows
    floor: float,
    max_iter: int,
    tol: float,
    # called with the round, minus the objective per row, and the increase of the
    # objective; stops EM by returning True
    on_round: OnRound = tell_round,
) -> Fit:
    """Run EM until a round increases the log-likelihood by less than `tol` nats."""
    model, total, objectives = start(table, rank, floor), table.total, []
    rise, table = inf, table.condensed()
    for n_round in range(1, max_iter + 1):
        moments, log_likelihood = table.summed(partial(e_step, model))
        if objectives:
            rise = float(log_likelihood) - objectives[-1]
        objectives.append(float(log_likelihood))
        if on_round(n_round, -objectives[-1] / float(total), rise) or rise < tol:
            break
        model = maximise(moments, floor)
    return Fit(model, objectives, rise)


def fit_covariance(
    mean: Tensor, covariance: Tensor, rank: int, *, floor: float, n_rounds: int = 300
) -> FactorModel:
    """Run EM on a covariance, as if from infinitely many complete rows.

    It starts from the principal axes of the covariance minus half of the variance of
    each column given all others (Joreskog 1963, image factor analysis).

    `mean` (features,).  `covariance` (features, features): positive definite.  `floor`:
    smallest noise variance.
    """
    noise = 0.5 / torch.cholesky_inverse(torch.linalg.cholesky(covariance)).diagonal()
    deviation = noise.sqrt()
    values, vectors = torch.linalg.eigh(covariance / torch.outer(deviation, deviation))
    # EM cannot leave loadings of zero
    signal = (values[-rank:] - 1).clamp(min=0.01)
    loadings = vectors[:, -rank:] * signal.sqrt() * deviation[:, None]
    noise = noise.clamp(min=floor)
    for _ in range(n_rounds):
        model = FactorModel(mean, loadings, noise)
        slopes = loadings.T @ model.precision()  # of z on x, (rank, features)
        cross = covariance @ slopes.T
        latent = torch.eye(rank).to(cross) - slopes @ loadings + slopes @ cross
        loadings = torch.linalg.solve(latent, cross.T).T
        noise = (covariance.diagonal() - (loadings * cross).sum(1)).clamp(min=floor)
    return FactorModel(mean, loadings, noise)


def choose_rank(
    data: Incomplete,
    held_out: Tensor,  # bool (n, features): observed cells that EM does not use
    weights: Tensor,
    highest: int,  # maximum rank
    *,
    floor: float,
    max_iter: int,
    tol: float,
) -> int:
    """Choose the number of latents by held-out observed cells.

    The rank increases as long as one of the next two ranks increases their log
    predictive density by more than a standard error over rows.  Without this margin a
    latent would often be added by chance.  Two are tried, because one more latent may
    improve little where two improve much.
    """
    visible = Incomplete(data.x, data.observed & ~held_out)

    def gain(rank: int) -> Tensor:  # (n,)
        with step("choosing the number of latents", rank, highest):
            rows = Rows(visible, weights)
            fit = fit_factors(rows, rank, floor=floor, max_iter=max_iter, tol=tol)
        return log_prob(fit.model, data) - log_prob(fit.model, visible)

    rank, best = 1, gain(1)
    for candidate in range(2, highest + 1):
        if candidate > rank + 2:
            break
        candidate_gain = gain(candidate)
        if rises(candidate_gain - best, weights):
            rank, best = candidate, candidate_gain
    return rank


def rises(differences: Tensor, weights: Tensor) -> bool:
    """Return whether a weighted sum over rows is above its standard error.

    A row contributes at most 5 nats; otherwise one row could decide if tails are heavy.
    """
    bounded = differences.clamp(-5.0, 5.0)
    average = bounded @ weights / weights.sum()
    error = ((bounded - average).square() @ weights).sqrt()
    return bool(bounded @ weights > error)


def log_prob(model: FactorModel, data: Incomplete) -> Tensor:
    """Compute log p(x_obs) of each row; (n,)."""
    parts = batches(model, data)
    return torch.cat([log_prob_observed(model, *part)[0] for part in parts])


def latent_mean(model: FactorModel, data: Incomplete) -> Tensor:
    """Compute E[z | x_obs] of each row; (n, k)."""
    return torch.cat([infer(model, *part).mean for part in batches(model, data)])
