"""The M-step by generalised score matching: a quadratic in (K, b), with exact zeros.

For the truncated Gaussian the loss of `graphs.score_matching` is
``sum_j theta_j' Gamma_j theta_j / 2 - g_j' theta_j`` with ``theta_j = (K_j, b_j)``,
``u = (x, -1)``, ``Gamma_j = E[h(x_j) u u']`` and ``g_j = E[h'(x_j) u] + E[h(x_j)] e_j``
(Yu, Drton and Shojaie 2019, section 3).  The columns are centred because this improves
the condition of the quadratic; without a penalty of b the minimum does not depend on
the centre.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.training.proximal import Quadratic
from skvnce.graphs import em

# ----------------------------------------
# The weight of generalised score matching for densities on x >= 0.
#
# Hyvarinen (2007); Yu, Drton and Shojaie (2019), eq. (6).


def saturating_weight(x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the boundary weight h(x) = 1 - exp(-x) and its slope.

    It is 0 at the bound, as boundary terms are then, and bounded, which limits the
    influence of large values. For columns of unit standard deviation it finds more
    edges than min(x, cap) or x**2 (table in the user guide).
    """
    decay = (-x).exp()
    return 1 - decay, decay


_DRAWN = torch.float32  # of sums over draws, whose noise is far above its rounding
# they are d^3 numbers, 8 MiB with 100 features
_DENSE = 100  # maximum number of features for which the statistics are formed
_BRIEF = 30  # number of features above which products with rows are faster in a round
_TABLES = 4  # number of tables whose rows are stored with more features


class Statistics(NamedTuple):
    """Averages over rows, and over draws of the missing cells."""

    # (features, width, width), E[h(x_j) u u'] for each j; width is features + 1 with
    # the linear term
    gamma: Tensor
    target: Tensor  # (features, width), E[h'(x_j) u] + E[h(x_j)] e_j


def statistics(
    x: Tensor, centre: Tensor, fit_linear: bool, dtype: torch.dtype = torch.float64
) -> Statistics:
    """Compute the statistics of completed rows; `gamma` has this `dtype`."""
    h, slope = saturating_weight(x)
    u = extend(x - centre, fit_linear)
    gamma = weighted_products(u.to(dtype), h.to(dtype))
    rounding = 8 * torch.finfo(dtype).eps  # must not make gamma indefinite
    gamma.diagonal(dim1=1, dim2=2).mul_(1 + rounding)
    return Statistics(gamma, target_of(u, h, slope))


def weighted_products(u: Tensor, h: Tensor) -> Tensor:  # (features, width, width)
    """Compute E[h_j u u'] of all j, each product of two entries of u once."""
    columns, width = u.T.contiguous(), u.shape[1]
    products = h.new_empty(width, width, h.shape[1])
    for k in range(width):
        # products of two entries are symmetric, so that half of them suffice
        products[k, k:] = products[k:, k] = (columns[k:] * columns[k]) @ h
    return products.div_(len(u)).permute(2, 0, 1).contiguous()


def extend(z: Tensor, fit_linear: bool) -> Tensor:
    """Return u = (z, -1), or z without the linear term."""
    return torch.cat([z, -z.new_ones(len(z), 1)], 1) if fit_linear else z


def target_of(u: Tensor, h: Tensor, slope: Tensor) -> Tensor:
    """Compute g_j of all j; (features, width)."""
    target = slope.T @ u / len(u)
    target.diagonal().add_(h.mean(0))
    return target


def running_mean(old: Statistics, new: Statistics, weight: float) -> Statistics:
    """Move the statistics a fraction `weight` of the way to the new ones."""
    # in place, because the statistics are d^3 numbers
    return Statistics(*(a.lerp_(b, weight) for a, b in zip(old, new, strict=True)))


def quadratic_of(stats: Statistics, penalty: em.Penalty, centre: Tensor) -> Quadratic:
    """Make the loss a quadratic over (K, b), including the smooth penalties."""
    width = stats.target.shape[1]
    to_linear = penalty.ridge_linear**0.5 * em.origin(centre, width)
    # the inverse of a compression is at most the compression of the inverse, so the
    # separate problems of the rows bound the symmetric problem
    dtype = stats.gamma.dtype
    rows = stats.gamma + em.ridges(penalty, width).to(dtype).diag_embed()
    if width > len(centre):
        rows = rows + torch.outer(to_linear, to_linear).to(dtype)
    # factorised once for all certificates
    factor, failed = torch.linalg.cholesky_ex(rows)

    def product(point: Tensor) -> Tensor:
        image = torch.bmm(rows, point[:, :, None].to(dtype)).squeeze(-1)
        return em.symmetric(image.to(point.dtype))

    def inverse_form(residual: Tensor) -> Tensor:
        if failed.any():  # without ridge and with few rows there is no certificate
            return residual.new_tensor(torch.inf)
        right = residual[:, :, None].to(dtype)
        half = torch.linalg.solve_triangular(factor, right, upper=False)
        return half.square().sum().to(residual.dtype)

    diagonal = em.symmetric(rows.diagonal(dim1=1, dim2=2)).to(centre.dtype)
    return Quadratic(product, em.symmetric(stats.target), inverse_form, diagonal)


def approximate_quadratic(
    stats: Statistics, penalty: em.Penalty, centre: Tensor
) -> Quadratic:
    """Make the same quadratic, with the inverse form of its diagonal, for rounds."""

    def product(point: Tensor) -> Tensor:
        right = point[:, :, None].to(stats.gamma.dtype)
        image = torch.bmm(stats.gamma, right).squeeze(-1)
        return em.symmetric(image.to(point.dtype))

    diagonal = em.symmetric(stats.gamma.diagonal(dim1=1, dim2=2)).to(centre.dtype)
    return over_diagonal(product, em.symmetric(stats.target), diagonal, penalty, centre)


def over_diagonal(
    product: Callable[[Tensor], Tensor],
    target: Tensor,
    diagonal: Tensor,
    penalty: em.Penalty,
    centre: Tensor,
) -> Quadratic:
    """Make a penalised quadratic, whose inverse form is that of its diagonal."""
    free = Quadratic(product, target, form_over(diagonal), diagonal)
    quadratic_form = em.add_penalties(free, penalty, centre)
    return quadratic_form._replace(inverse_form=form_over(quadratic_form.diagonal))


class Tables(NamedTuple):
    """Completed rows, for tables in which the statistics would be too large."""

    u: Tensor  # (n, width)
    h: Tensor  # (n, features), h and h' of the rows
    slope: Tensor  # (n, features)


def table_of(
    x: Tensor, centre: Tensor, fit_linear: bool, dtype: torch.dtype = torch.float64
) -> Tables:
    """Prepare completed rows; (n, features) -> Tables of a data type."""
    parts = extend(x - centre, fit_linear), *saturating_weight(x)
    return Tables(*(part.to(dtype) for part in parts))


def pool_rows(old: Tables, new: Tables, weight: float) -> Tables:
    """Add new rows to the pool, in place of as many old ones once it is full.

    Then every round has about the same share of the rows, and a round replaces fewer
    and fewer of them, as in a running mean.
    """
    n, room = len(new.u), _TABLES * len(new.u)
    if len(old.u) + n <= room:
        return Tables(*(torch.cat(parts) for parts in zip(old, new, strict=True)))
    n_replaced = min(n, round(weight * len(old.u)))
    coming = torch.randperm(n)[:n_replaced]
    going = torch.randperm(len(old.u))[:n_replaced]
    return Tables(
        *(a.index_copy(0, going, b[coming]) for a, b in zip(old, new, strict=True))
    )


def free_quadratic(tables: Tables, penalty: em.Penalty, centre: Tensor) -> Quadratic:
    """Make the loss a quadratic whose products take n d^2 operations; see `Tables`."""
    u, h, n = tables.u, tables.h, len(tables.u)

    def product(point: Tensor) -> Tensor:
        image = (h * (u @ point.T.to(u.dtype))).T @ u / n
        return em.symmetric(image.to(point.dtype))

    target = em.symmetric(target_of(u, h, tables.slope).to(centre.dtype))
    diagonal = em.symmetric((h.T @ u.square() / n).to(centre.dtype))
    return over_diagonal(product, target, diagonal, penalty, centre)


def form_over(diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """Make the inverse form of a diagonal quadratic."""
    return lambda residual: (residual.square() / diagonal).sum()


def ceiling_of(data: Incomplete) -> Tensor:
    """Bound K_jj: conditional deviations are at least step / sqrt(12), as in rounding.

    The step is the smallest difference of two values. In a column of zeros, which
    have no weight, and mostly ones the loss would decrease without limit.
    """
    steps = []
    for x, observed in zip(data.x.T, data.observed.T, strict=True):
        values = x[observed].unique()
        steps.append(values.diff().min() if len(values) > 1 else values.new_ones(()))
    return (12 / torch.stack(steps).square()).clamp(min=2 * em.DIAGONAL_FLOOR)


def score_matching(data: Incomplete, centre: Tensor, *, fit_linear: bool) -> em.Method:
    """Build the method.

    With more than `_DENSE` features the M-step keeps completed rows of several
    rounds.
    """
    dense = len(centre) <= _DENSE
    # without draws there is no noise
    dtype = torch.float64 if data.observed.all() else _DRAWN
    options = centre, fit_linear, dtype
    summarise, merge, tol = (
        (statistics, running_mean, (1e-3, 1e-8))
        if dense
        else (table_of, pool_rows, (1e-2, 1e-5))
    )
    last = {"curvature": None}  # of the last solution

    def solve(
        summary: Statistics | Tables, start: em.Theta, penalty: em.Penalty, tol: float
    ) -> em.Solution:
        precise = tol < coarse
        if precise:  # rounding would limit the accuracy
            summary = type(summary)(*(part.to(centre.dtype) for part in summary))
        make = quadratic_of if precise else approximate_quadratic
        make = make if isinstance(summary, Statistics) else free_quadratic
        quadratic_form, interval = make(summary, penalty, centre), 10 if precise else 5
        solution = em.minimise_quadratic(
            quadratic_form, start, penalty, tol, ceiling, interval=interval, **last
        )
        last["curvature"] = solution.curvature
        return solution

    ceiling, coarse = ceiling_of(data), tol[0]
    m_step = em.MStep(
        lambda x: summarise(x, *options),
        merge,
        solve,
        tol,
        (lambda x: table_of(x, *options)) if _BRIEF < len(centre) <= _DENSE else None,
    )
    return em.Method(em.completed_by_gibbs(data), m_step, em.truncated_normals(centre))


# ----------------------------------------
# Scores of edges of a truncated Gaussian: standard normal where there is no edge.
#
# Score matching without an L1 penalty is a regression for each column: in the
# notation of `score_matching`, ``theta_j = Gamma_j^-1 g_j`` estimates row j of (K,
# b), and its error is the average over rows r of
#
#   q_rj = Gamma_j^-1 (g_rj - Gamma_rj theta_j) / (1 - l_rj)             (1)
#
# with leverages l_rj (MacKinnon and White 1985, Some heteroskedasticity-consistent
# covariance matrix estimators with improved finite sample properties).  T_ij, the
# mean of both estimates of K_ij, has at most the mean of both standard errors; near
# independence it has this mean.  Losses and penalties of the fit do not enter, so
# that the scores are the same for all algorithms.
#
# Missing cells are drawn given the observed ones, from the fit with its K.  Draws
# repeat K, so that one step of Fisher scoring is ``K_ij + (T_ij - K_ij) / s_ij``, as
# in `graphs.copula`, with the share s_ij of the rows that observe both columns.

_BURN_IN = 10  # sweeps over the missing cells
_KEPT, _ROWS = 10, 50_000  # sweeps whose rows are used, in total about as many rows
_RIDGE = 1e-9  # share of the mean diagonal of Gamma_j; equal columns make it singular
_LEVERAGE = 0.9  # the largest, of rows that determine a parameter alone


def edge_scores(
    data: Incomplete, fit: em.Fit, centre: Tensor, ridge: float, *, fit_linear: bool
) -> Tensor:
    """Compute signed scores of all pairs; (features, features), zero on the diagonal.

    `ridge`: of the off-diagonal entries of K, used where columns outnumber rows.
    """
    n, d = data.x.shape
    rows, precision = complete_rows(data, fit, centre), fit.theta.precision
    ridge = ridge if n <= 2 * d else 0.0
    estimate, error = regressions(rows, centre, ridge, fit_linear=fit_linear)
    observed = data.observed.to(rows)
    share = (observed.T @ observed / n).clamp(min=1 / n)
    unpenalised = precision + (estimate - precision) / share
    # draws add to the variance of the moments, see `graphs.copula`
    unit = (n * share / (1 + (1 / share - 1) * n / len(rows))).sqrt()
    # without variation both are zero
    tiny = torch.finfo(error.dtype).tiny
    return (-unpenalised * unit / error.clamp(min=tiny)).fill_diagonal_(0.0)


def complete_rows(data: Incomplete, fit: em.Fit, centre: Tensor) -> Tensor:
    """Draw the missing cells some times; (n_draws n, features)."""
    e_step = em.completed_by_gibbs(data)
    state, model = e_step.init(), em.to_model(fit.theta, centre)
    if e_step.once:
        return e_step.step(state, model)[1]
    for _ in range(_BURN_IN):
        state, rows = e_step.step(state, model)
    tables = [rows]
    while len(tables) < min(_KEPT, _ROWS // len(rows)):
        state, rows = e_step.step(state, model)
        tables.append(rows)
    return torch.cat(tables)


def regressions(
    x: Tensor, centre: Tensor, ridge: float, *, fit_linear: bool
) -> tuple[Tensor, Tensor]:
    """Compute T and the root mean square of its errors, (features, features) each.

    The rows of K are estimated one by one, with the size of the terms of eq. (1).
    """
    (h, slope), u = saturating_weight(x), extend(x - centre, fit_linear)
    (n, d), rows = x.shape, []
    for j in range(d):
        weighted = u * h[:, j, None]
        gamma = weighted.T @ u / n
        strength = torch.full_like(gamma[0], _RIDGE * float(gamma.diagonal().mean()))
        strength[:d] += ridge
        strength[j] -= ridge
        inverse = torch.linalg.pinv(gamma + strength.diag(), hermitian=True)
        target = slope[:, j] @ u / n
        target[j] += h[:, j].mean()
        theta, along = inverse @ target, u @ inverse
        error = along * (slope[:, j] - weighted @ theta)[:, None]
        error += torch.outer(h[:, j], inverse[j])
        leverage = (along * weighted).sum(1) / n
        error /= 1 - leverage.clamp(max=_LEVERAGE)[:, None]
        rows.append((theta[:d], error[:, :d].square().mean(0).sqrt()))
    each = (torch.stack(part) for part in zip(*rows, strict=True))
    return tuple((matrix + matrix.T) / 2 for matrix in each)


# ----------------------------------------
# Probabilities of edges, from scores that are standard normal without an edge.
#
# The score of a pair is N(0, 1) without an edge and N(t, 1) with one.  The share of
# edges pi is zero with probability `_NO_EDGE`, and otherwise has a beta distribution.
# An edge is positive with probability rho, and the size |t| has a gamma distribution:
#
#   p(w) = (1 - pi) N(w; 0, 1) + pi [rho f(w) + (1 - rho) f(-w)],          (1)
#   f(w) = integral of N(w; t, 1) Gamma(t; shape k, mean m) over t > 0.        (2)
#
# The null is the one of theory and has no free mean, width or share: a maximum of the
# likelihood may put a free slab on the null, and call all pairs of a small table
# edges. For the same reason pi, rho, k and m are integrated over and not estimated
# (Scott and Berger 2010, Bayes and empirical-Bayes multiplicity adjustment in the
# variable-selection problem): 28 pairs of 8 columns with two edges say little about
# them.  Scores without a sign have rho = 1, and their own k and m; all pairs of a
# table share pi.

_FAR = 25.0  # larger scores are edges in any case, with the same probability as this
_STEP = 0.05
_SCORES = np.arange(-_FAR, _FAR + _STEP / 2, _STEP)  # at which densities are computed
_SIZES = np.arange(0.1, 40.0, 0.2)  # t of eq. (2), of the midpoint rule
_SHAPES = 2.0, 4.0, 8.0  # few edges of size near 0, which look like the null
_MEANS = np.geomspace(2**0.5, 16, 8)
_POSITIVE = 0.0, 0.2, 0.5, 0.8, 1.0  # rho
_SHARES = 1 / (1 + np.exp(-np.linspace(-5.5, 4.0, 16)))  # pi, if there are edges
_SPARSE = 1.0, 3.0  # of the beta distribution: a quarter of all pairs on average
_NO_EDGE = 0.5  # noise gives a pair above one half in 1 to 3 tables of 100
_RARE = 1e-7  # weight of values of the parameters that are left out


class Group(NamedTuple):
    """Scores with signs, or without, on the grid of scores."""

    counts: np.ndarray  # (n_scores,), numbers of pairs
    # (n_scores, n_parameters), densities with an edge, for equally probable values of
    # rho, k and m
    edge: np.ndarray


def probabilities_of_scores(scores: Tensor, unsigned: Tensor) -> Tensor:
    """Compute the posterior probability that each pair has an edge.

    `scores` are N(0, 1) without an edge; `unsigned` (bool): pairs whose scores are
    positive with an edge.
    """
    edges, (i, j) = torch.zeros_like(scores), torch.triu_indices(*scores.shape, 1)
    w, is_unsigned = scores[i, j].clamp(-_FAR, _FAR).numpy(), unsigned[i, j].numpy()
    members = [where for where in (~is_unsigned, is_unsigned) if where.any()]
    groups = [_group(w[where], not is_unsigned[where][0]) for where in members]
    each = np.zeros(len(w))
    for where, curve in zip(members, _curves(groups), strict=True):
        each[where] = np.interp(w[where], _SCORES, curve)
    edges[i, j] = edges[j, i] = torch.from_numpy(each).to(scores)
    return edges


def _group(w: np.ndarray, signed: bool) -> Group:
    """Count scores on the grid."""
    # scores on a grid need one evaluation of the densities for all pairs
    places = np.rint((w + _FAR) / _STEP).astype(int)
    densities = _signed_densities() if signed else _densities()
    return Group(np.bincount(places, minlength=len(_SCORES)), densities)


@cache
def _densities() -> np.ndarray:
    """Compute f of eq. (2) for all k and m; (n_scores, n_parameters)."""
    rates = [(k, k / mean) for k in _SHAPES for mean in _MEANS]
    weights = np.stack([_SIZES ** (k - 1) * np.exp(-_SIZES * r) for k, r in rates])
    weights /= weights.sum(1, keepdims=True)
    return _normal(_SCORES[:, None] - _SIZES) @ weights.T


def _normal(w: np.ndarray) -> np.ndarray:
    """Compute the standard normal density, but for a factor that cancels."""
    return np.exp(-w * w / 2)


@cache
def _signed_densities() -> np.ndarray:
    """Compute the bracket of eq. (1) for all rho, k and m."""
    positive = _densities()
    negative = positive[::-1]
    return np.concatenate([r * positive + (1 - r) * negative for r in _POSITIVE], 1)


def _mixed(share: float, edge: np.ndarray, where: slice | np.ndarray) -> np.ndarray:
    """Compute eq. (1) at some scores; (n_scores, n_parameters)."""
    return (1 - share) * _normal(_SCORES[where])[:, None] + share * edge[where]


def _log_likelihoods(group: Group) -> np.ndarray:
    """Compute log-likelihoods; (1 + n_shares, n_parameters).

    The other parameters are equally probable, and their prior is included.
    """
    there = np.flatnonzero(group.counts)
    counts, prior = group.counts[there], -np.log(group.edge.shape[1])
    shares = 0.0, *_SHARES
    return prior + np.stack(
        [counts @ np.log(_mixed(share, group.edge, there)) for share in shares]
    )


def _log_prior() -> np.ndarray:
    """Compute log-probabilities of shares: 0, then some of equally spaced log-odds."""
    a, b = _SPARSE
    density = _SHARES**a * (1 - _SHARES) ** b
    return np.log([_NO_EDGE, *(1 - _NO_EDGE) * density / density.sum()])


def _curves(groups: list[Group]) -> list[np.ndarray]:
    """Compute the probabilities of edges at all scores, for each group."""
    fits = [_log_likelihoods(group) for group in groups]
    totals = [np.logaddexp.reduce(fit, axis=1) for fit in fits]
    share = _log_prior() + sum(totals)
    share -= np.logaddexp.reduce(share)
    return [
        _curve(group, np.exp(fit + (share - total)[:, None]))
        for group, fit, total in zip(groups, fits, totals, strict=True)
    ]


def _curve(group: Group, weights: np.ndarray) -> np.ndarray:
    """Average the probabilities over the parameters; (n_scores,)."""
    curve = np.zeros(len(_SCORES))
    for share, weight in zip(_SHARES, weights[1:], strict=True):
        frequent = weight > _RARE
        edge = group.edge[:, frequent]
        curve += share * edge / _mixed(share, edge, slice(None)) @ weight[frequent]
    return curve
