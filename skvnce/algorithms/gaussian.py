"""A normal distribution fitted to incomplete rows by EM, and draws of its posterior.

EM (Dempster, Laird and Rubin 1977, section 4.1; Little and Rubin 2019, section 11.2)
maximises ``sum_i w_i log p(x_i,obs) - k (log|S| + tr S^-1) / 2``: the penalty is worth
k rows that say that columns, scaled to unit spread, are independent.  SQUAREM makes it
faster (Varadhan and Roland 2008, Simple and globally convergent methods for
accelerating the convergence of any EM algorithm).  The posterior under the same prior
is explored by data augmentation (Schafer 1997, section 5.4).
"""

from collections.abc import Callable
from math import ceil, log, pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.gaussian import (
    Batch,
    Conditional,
    Normal,
    arrange,
    cholesky,
    condition,
    invert,
    pairs,
)

_LEAST_SPREAD = 1e-12


class Moments(NamedTuple):
    """Sums over completed rows, around the mean that completed them.

    Attributes
    ----------
    first : Tensor of shape (features,)
    second : Tensor of shape (features, features)
    """

    first: Tensor
    second: Tensor

    @classmethod
    def zeros(cls, d: int) -> "Moments":
        """Start the sums."""
        zeros = torch.zeros(d + 1, d, dtype=torch.float64)
        return cls(zeros[0], zeros[1:])

    def add(self, residual: Tensor, weight: Tensor) -> None:
        """Add rows (n, features)."""
        self.first.add_(weight @ residual)
        self.second.addmm_((residual * weight[:, None]).T, residual)

    def add_spread(self, batch: Batch, covariance: Tensor) -> None:
        """Add covariances of the missing cells, (n, width, width)."""
        d = len(self.first)
        size = d + batch.missing.shape[1]
        total = torch.zeros(size**2, dtype=torch.float64)
        total.scatter_add_(0, pairs(batch, d).flatten(), covariance.flatten())
        self.second.add_(total.view(size, size)[:d, :d])

    def centred(self, total: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        """Compute the average less the mean, and the scatter around it plus k I."""
        shift = self.first / total
        scatter = self.second - total * torch.outer(shift, shift)
        prior = strength * torch.eye(len(shift)).to(shift)
        return shift, (scatter + scatter.T) / 2 + prior


class Fit(NamedTuple):
    """The outcome of `fit_normal`.

    Attributes
    ----------
    normal : Normal
    objectives : list of float
        Penalised log-likelihoods.
    change : float
        Largest change of a parameter in the last round.
    n_rounds : int
        Evaluations of the objective, those of jumps that were taken back included.
    """

    normal: Normal
    objectives: list[float]
    change: float
    n_rounds: int


def expected_moments(
    normal: Normal, batches: list[Batch], weights: Tensor
) -> tuple[Moments, Tensor]:
    """Compute expected moments and the log-likelihood of the rows: the E-step."""
    precision, log_det = invert(normal.covariance)
    moments = Moments.zeros(len(normal.mean))
    log_likelihood = -log_det / 2 * weights.sum()
    for batch in batches:
        found, weight = condition(normal.mean, precision, batch), weights[batch.rows]
        log_likelihood += found.log_prob @ weight
        moments.add(batch.complete(found.residual, found.mean()), weight)
        moments.add_spread(batch, found.covariance() * weight[:, None, None])
    return moments, log_likelihood


def maximise(
    normal: Normal, moments: Moments, total: Tensor, strength: float
) -> Normal:
    """Compute mean and covariance from expected moments: the M-step."""
    shift, scatter = moments.centred(total, strength)
    return Normal(normal.mean + shift, scatter / (total + strength))


def penalty(normal: Normal, strength: float) -> Tensor:
    """Compute k (log|S| + tr S^-1) / 2."""
    precision, log_det = invert(normal.covariance)
    return strength / 2 * (log_det + precision.trace())


def fit_normal(
    data: Incomplete,
    weights: Tensor,
    strength: float,
    start: Normal,
    *,
    max_iter: int,
    tol: float,
    on_round: Callable[[int, float, float], bool] = lambda n, loss, change: False,
) -> Fit:
    """Run EM until no entry of mean and covariance changes by more than `tol`.

    After two steps it jumps (`extrapolate`), and takes the jump back where it lowers
    the objective.

    Parameters
    ----------
    data : Incomplete
        Columns scaled to unit spread.
    weights : Tensor of shape (n,)
    strength : float
        k, the prior's worth in rows.
    start : Normal
    max_iter : int
    tol : float
    on_round : callable
        Shown the round, minus the objective per row, and the change; stops EM by
        returning True.
    """
    batches, total = arrange(*data), weights.sum()
    objectives, trail, before_jump = [], [start], None
    for n_round in range(1, max_iter + 1):
        moments, log_likelihood = expected_moments(trail[-1], batches, weights)
        objective = float(log_likelihood - penalty(trail[-1], strength))
        if before_jump is not None and objective < objectives[-1]:
            trail, before_jump = [before_jump], None
            continue
        objectives.append(objective)
        trail.append(maximise(trail[-1], moments, total, strength))
        change = distance(*trail[-2:])
        if on_round(n_round, -objective / float(total), change) or change < tol:
            break
        before_jump = trail[-1] if len(trail) == 3 else None
        if before_jump is not None:
            trail = [extrapolate(*trail)]
    return Fit(trail[-1], objectives, change, n_round)


def distance(one: Normal, other: Normal) -> float:
    """Find the largest difference of a parameter."""
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


def extrapolate(first: Normal, second: Normal, third: Normal) -> Normal:
    """Jump ahead of three points of EM by SQUAREM's third scheme.

    The jump is cut by half until the covariance is positive definite (Varadhan and
    Roland 2008, eqs. 6-9).
    """
    steps = [(b - a, c - b) for a, b, c in zip(first, second, third, strict=True)]
    before = sum(_squares(r) for r, _ in steps)
    bend = sum(_squares(v - r) for r, v in steps)
    length = (before / bend) ** 0.5 if bend else 1.0
    while length > 1.01:
        mean, covariance = (
            a + 2 * length * r + length**2 * (v - r)
            for a, (r, v) in zip(first, steps, strict=True)
        )
        if not torch.linalg.cholesky_ex(covariance).info:
            return Normal(mean, covariance)
        length = (length + 1) / 2
    return third


def rate_of_em(
    normal: Normal, batches: list[Batch], weights: Tensor, strength: float
) -> float:
    """Find the rate at which EM converges, from twenty steps off parameters drawn once.

    Near the maximum it is the largest fraction of missing information.
    """
    precision, total = invert(normal.covariance)[0], weights.sum()
    moments = drawn_moments(normal.mean, precision, batches, weights)
    mean, precision = draw_parameters(normal.mean, moments, total, strength)
    point, sizes = Normal(mean, invert(precision)[0]), []
    for _ in range(20):
        moments, _ = expected_moments(point, batches, weights)
        before, point = point, maximise(point, moments, total, strength)
        sizes.append(sum(_squares(a - b) for a, b in zip(point, before, strict=True)))
    return (sizes[-1] / sizes[-2]) ** 0.5 if sizes[-2] else 0.0


def _squares(x: Tensor) -> float:
    return float(x.square().sum())


def log_prob(normal: Normal, data: Incomplete) -> Tensor:
    """Compute log p(x_obs) of each row; (n,)."""
    precision, log_det = invert(normal.covariance)
    result = data.x.new_zeros(len(data.x))
    for batch in arrange(*data):
        result[batch.rows] = condition(normal.mean, precision, batch).log_prob
    return result - log_det / 2


def conditional_mean(normal: Normal, data: Incomplete) -> Tensor:
    """Fill missing cells by E[x_mis | x_obs]; (n, features)."""
    return data.with_values(_complete(normal, data, lambda found: found.mean()))


def draw(normal: Normal, data: Incomplete, n_draws: int = 1) -> Tensor:
    """Draw the missing cells from p(x_mis | x_obs); (n_draws, n, features)."""

    def values(found: Conditional) -> Tensor:
        return found.draw(torch.randn(n_draws, *found.whitened.shape).to(data.x))

    return data.with_values(_complete(normal, data, values))


def conditional_moments(normal: Normal, data: Incomplete) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of each missing cell; (n, features) each.

    Of observed cells they are their value and 0.
    """
    precision, _ = invert(normal.covariance)
    mean, spread = data.x.clone(), torch.zeros_like(data.x)
    for batch in arrange(*data):
        found = condition(normal.mean, precision, batch)
        mean[batch.rows] = normal.mean + batch.complete(found.residual, found.mean())
        none = torch.zeros_like(found.residual)
        spread[batch.rows] = batch.complete(none, found.variance().sqrt())
    return data.with_values(mean), spread


def _complete(
    normal: Normal, data: Incomplete, values: Callable[[Conditional], Tensor]
) -> Tensor:
    precision, _ = invert(normal.covariance)
    result = None
    for batch in arrange(*data):
        found = condition(normal.mean, precision, batch)
        filled = normal.mean + batch.complete(found.residual, values(found))
        if result is None:
            result = data.x.new_empty(*filled.shape[:-2], *data.x.shape)
        result[..., batch.rows, :] = filled
    return data.x if result is None else result


def drawn_moments(
    mean: Tensor, precision: Tensor, batches: list[Batch], weights: Tensor
) -> Moments:
    """Complete the rows by draws and sum up their moments.

    A weight of w counts as w rows with draws of their own, whose sum has w times the
    mean and the variance of one.  So has ``(w - s) E[xx'] + s xx'`` with one draw x and
    ``s = sqrt(w)``; weights below 1 have no such rows, and ``s = w``.
    """
    moments = Moments.zeros(len(mean))
    share = torch.minimum(weights, weights.sqrt())
    spare = weights - share
    for batch in batches:
        found = condition(mean, precision, batch)
        values = found.draw(torch.randn_like(found.whitened)[None])[0]
        moments.add(batch.complete(found.residual, values), share[batch.rows])
        if spare.any():
            weight = spare[batch.rows]
            moments.add(batch.complete(found.residual, found.mean()), weight)
            moments.add_spread(batch, found.covariance() * weight[:, None, None])
    return moments


def draw_parameters(
    mean: Tensor, moments: Moments, total: Tensor, strength: float
) -> tuple[Tensor, Tensor]:
    """Draw mean and precision from their posterior given moments around `mean`.

    ``P ~ Wishart(n - 1 + k, (scatter + k I)^-1)``, ``mean | P ~ N(average, P^-1 / n)``:
    the prior of the penalty times Jeffreys'.  The degrees of freedom are kept above
    the number of columns, where the covariance has a mean.
    """
    shift, scatter = moments.centred(total, strength)
    freedom = (total - 1 + strength).clamp(min=len(mean) + 1)
    root = draw_wishart_root(freedom, cholesky(scatter))
    noise = torch.linalg.solve(root.T, torch.randn(len(mean)).to(mean))
    return mean + shift + noise / total.sqrt(), root @ root.T


def draw_wishart_root(freedom: Tensor, factor: Tensor) -> Tensor:
    """Draw R with ``R R' ~ Wishart(freedom, (L L')^-1)`` from L: ``R = L^-T A``.

    ``A A'`` is Wishart with unit scale (Bartlett 1933).  (torch 2.13 warns of singular
    Wishart draws where none are.)
    """
    halves = (freedom - torch.arange(len(factor))) / 2
    gamma = torch.distributions.Gamma(halves, torch.ones(()), validate_args=False)
    bartlett = torch.randn_like(factor).tril(-1) + (2 * gamma.sample()).sqrt().diag()
    return torch.linalg.solve_triangular(factor.T, bartlett, upper=True)


def posterior_draws(
    start: Normal, data: Incomplete, weights: Tensor, strength: float, *, n_draws: int
) -> list[Normal]:
    """Draw parameters by data augmentation from the mode on.

    Each step completes the rows by draws, then draws the parameters.  The steps between
    draws follow the rate of EM; twice as many are made first.
    """
    batches, total, found = arrange(*data), weights.sum(), []
    n_steps = steps_between_draws(rate_of_em(start, batches, weights, strength))
    mean, precision = start.mean, invert(start.covariance)[0]
    for n_done in range(1, (2 + n_draws) * n_steps + 1):
        moments = drawn_moments(mean, precision, batches, weights)
        mean, precision = draw_parameters(mean, moments, total, strength)
        if n_done > 2 * n_steps and n_done % n_steps == 0:
            found.append(Normal(mean, invert(precision)[0]))
    return found


def steps_between_draws(rate: float, left: float = 0.3, most: int = 20) -> int:
    """Count the steps after which a share `left` of the dependence remains.

    Data augmentation forgets at the rate at which EM converges, the largest fraction of
    missing information (Schafer 1997, section 3.5).
    """
    if not 0 < rate < 1:
        return 1 if rate <= 0 else most
    return min(most, ceil(log(left) / log(rate)))


def choose_strength(
    data: Incomplete,
    held_out: Tensor,
    weights: Tensor,
    strengths: list[float],
    start: Normal,
    *,
    max_iter: int,
    tol: float,
) -> tuple[float, Normal]:
    """Choose k by the held-out observed cells, see `held_out_loss`.

    Parameters
    ----------
    held_out : Tensor of bool, of shape (n, features)
        Observed cells that EM may not see.
    strengths : list of float
        From strong to weak.  The search begins in the middle and goes on while the
        next predicts better, to the weaker ones first.

    Returns
    -------
    strength : float
    normal : Normal
        Fitted with it to the cells that are not held out.
    """
    kept = Incomplete(data.x.where(~held_out, 0.0), data.observed & ~held_out)

    def tried(place: int, begin: Normal) -> tuple[float, int, Normal]:
        normal = fit_normal(
            kept, weights, strengths[place], begin, max_iter=max_iter, tol=tol
        ).normal
        moments = conditional_moments(normal, kept)
        loss = held_out_loss(data.x, held_out, *moments, weights)
        return float(loss.sum()), place, normal

    middle = len(strengths) // 2
    best = tried(middle, start)
    for side in (range(middle + 1, len(strengths)), range(middle - 1, -1, -1)):
        for place in side:
            other = tried(place, best[2])
            if other[0] >= best[0]:
                break
            best = other
        if best[1] != middle:
            break
    return strengths[best[1]], best[2]


def held_out_loss(
    x: Tensor, held_out: Tensor, mean: Tensor, spread: Tensor, weights: Tensor
) -> Tensor:
    """Sum the CRPS of held-out cells under N(mean, spread**2); (features,).

    The continuous ranked probability score of normal predictions (Gneiting and Raftery
    2007, section 4.2) is proper like the log-density, but grows with the distance, not
    with its square: a few outlying cells do not decide.
    """
    spread = spread.clamp(min=_LEAST_SPREAD)
    z = (x - mean) / spread
    density = torch.exp(-z.square() / 2) / sqrt(2 * pi)
    crps = spread * (z * torch.erf(z / sqrt(2)) + 2 * density - 1 / sqrt(pi))
    return weights @ crps.where(held_out, 0.0)
