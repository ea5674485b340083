"""EM for a normal distribution of rows with missing values, and its posterior.

EM (Dempster, Laird and Rubin 1977, section 4.1; Little and Rubin 2019, section 11.2)
maximises ``sum_i w_i log p(x_i,obs) - k (log|S| + tr S^-1) / 2``.  The penalty is
equivalent to k rows under which columns, scaled to unit standard deviation, are
independent.  SQUAREM accelerates it.  Data
augmentation draws from the posterior under the same prior (Schafer 1997, section 5.4).
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from math import ceil, log, pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.distributions.normal import (
    Batch,
    Covariances,
    FactoredNormal,
    Normal,
    arrange,
    cholesky,
    prepare,
)
from skvnce._core.incomplete import Conditioned, Group, Incomplete, Rows, Table, grouped
from skvnce._core.progress import OnRound, step, steps, tell, tell_round
from skvnce._core.random import standard_gamma
from skvnce._core.squarem import extrapolate

# ----------------------------------------
# EM for a normal distribution of rows with missing values, and its posterior.


LEAST_DEVIATION = 1e-12  # minimum standard deviation of a prediction, as a divisor
_CONVERGED = 1e-10  # ratio of a step of EM to the first one


class Moments(NamedTuple):
    """Sums over completed rows, relative to the mean that completed them."""

    first: Tensor  # (features,)
    second: Tensor  # (features, features)

    @classmethod
    def zeros(cls, d: int) -> Self:
        """Make sums of zero."""
        zeros = torch.zeros(d + 1, d, dtype=torch.float64)
        return cls(zeros[0], zeros[1:])

    def add(self, residual: Tensor, weight: Tensor) -> None:
        """Add rows (n, features)."""
        self.first.add_(weight @ residual)
        self.second.addmm_((residual * weight[:, None]).T, residual)

    def shifted(self, by: Tensor, total: Tensor) -> Self:
        """Make the sums relative to the mean minus `by`, for rows of weight `total`."""
        # half of the last product, because the transpose is added, too
        cross = torch.outer(self.first, by) + total / 2 * torch.outer(by, by)
        return type(self)(self.first + total * by, self.second + cross + cross.T)

    def centred(self, total: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        """Compute the average minus the mean, and the scatter around it plus k I."""
        shift = self.first / total
        scatter = self.second - total * torch.outer(shift, shift)
        prior = strength * torch.eye(len(shift)).to(shift)
        # exactly symmetric in spite of rounding
        return shift, (scatter + scatter.T) / 2 + prior


class Fit(NamedTuple):
    """The result of `fit_table`."""

    normal: Normal
    # penalised log-likelihood of each round; for a round that rejects a jump, that of
    # the previous round
    objectives: list[float]
    change: float  # largest change of a parameter in the last round
    # number of evaluations of the objective, including those of rejected jumps
    n_rounds: int
    point: Normal  # where the moments of the last round were computed
    moments: Moments  # relative to its mean


def e_step(factored: FactoredNormal, rows: Rows) -> tuple[Moments, Tensor]:
    """Compute expected moments and the log-likelihood of the rows."""
    return expected_moments(factored, rows.groups, rows.weights)


def expected_moments(
    factored: FactoredNormal,
    groups: Iterable[Group],
    weights: Tensor,
    on_group: Callable[[Conditioned, Tensor], None] | None = None,
) -> tuple[Moments, Tensor]:
    """Compute expected moments and the log-likelihood of the rows: the E-step.

    `on_group` is called with each group given its observed cells, and its weights.
    """
    moments = Moments.zeros(len(factored.mean))
    covariances = Covariances.of(factored.covariance)
    log_likelihood = torch.zeros((), dtype=torch.float64)
    for group in groups:
        conditioned = group.condition(factored)
        weight = weights.index_select(0, group.rows)
        log_likelihood += conditioned.constants() @ weight
        moments.add(conditioned.completed, weight)
        conditioned.add_covariances(covariances, weight)
        if on_group is not None:
            on_group(conditioned, weight)
    # the sum of the quadratic forms, see `patterns`
    log_likelihood -= (factored.precision * moments.second).sum() / 2
    moments.second.add_(covariances.total(factored))
    return moments, log_likelihood


def maximise(
    normal: Normal, moments: Moments, total: Tensor, strength: float
) -> Normal:
    """Compute mean and covariance from expected moments: the M-step."""
    shift, scatter = moments.centred(total, strength)
    return Normal(normal.mean + shift, scatter / (total + strength))


def penalty(factored: FactoredNormal, strength: float) -> Tensor:
    """Compute k (log|S| + tr S^-1) / 2."""
    return strength / 2 * (factored.log_det + factored.precision.trace())


def fit_normal(
    data: Incomplete,
    weights: Tensor,
    strength: float,
    start: Normal,
    **stopping: float,  # max_iter and tol
) -> Fit:
    """Run `fit_table` on as few rows as have the same sums: data (n, features)."""
    rows = Rows(data, weights).condensed()
    return fit_table(rows, strength, start, **stopping)


def fit_table(
    table: Table,  # columns scaled to unit standard deviation
    strength: float,  # k, the weight of the prior in rows
    start: Normal,
    *,
    max_iter: int,
    tol: float,
    on_round: OnRound = tell_round,
) -> Fit:
    """Run EM until no entry of mean and covariance changes by more than `tol`.

    After two steps it extrapolates (`extrapolate`), and rejects the jump if it lowers
    the objective.

    `on_round`: called with the round, minus the objective per row, and the change;
    stops EM by returning True.
    """
    total = table.total
    objectives, trail, before_jump = [], [start], None
    for n_round in range(1, max_iter + 1):
        factored = prepare(trail[-1])
        moments, log_likelihood = table.summed(partial(e_step, factored))
        objective = float(log_likelihood - penalty(factored, strength))
        if before_jump is not None and objective < objectives[-1]:
            trail, before_jump = [before_jump], None
            objectives.append(objectives[-1])
            continue
        before_jump = None
        objectives.append(objective)
        trail.append(maximise(trail[-1], moments, total, strength))
        change = distance(*trail[-2:])
        if on_round(n_round, -objective / float(total), change) or change < tol:
            break
        if len(trail) == 3:
            jump = extrapolate(*trail, is_definite)
            before_jump, trail = trail[-1], [Normal(*jump)]
    if before_jump is not None:  # the last jump has not been checked
        trail = [before_jump]
    point = Normal(*factored[:2])
    return Fit(trail[-1], objectives, change, n_round, point, moments)


def is_definite(mean: Tensor, covariance: Tensor) -> bool:
    """Say whether a covariance is positive definite."""
    return not torch.linalg.cholesky_ex(covariance).info


def distance(first: Normal, second: Normal) -> float:
    """Find the largest difference of a parameter."""
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def rate_of_em(
    normal: Normal, data: Incomplete, weights: Tensor, strength: float
) -> float:
    """Find the rate at which EM converges, from twenty steps after a random deviation.

    Near the maximum it is the largest fraction of missing information.  Fewer steps are
    made if little is missing: after convergence, steps are rounding errors.
    """
    total, rows, sizes = weights.sum(), Rows(data, weights).condensed(), []
    moments = drawn_moments(normal, arrange(*data), weights)
    point = draw_parameters(normal.mean, moments, total, strength)
    for n_round in range(1, 21):
        tell("round", n_round, 20)
        moments, _ = e_step(prepare(point), rows)
        before, point = point, maximise(point, moments, total, strength)
        moves = (a - b for a, b in zip(point, before, strict=True))
        sizes.append(sum(float(move.square().sum()) for move in moves))
        if n_round > 1 and sizes[-1] <= _CONVERGED**2 * sizes[0]:
            break
    return (sizes[-1] / sizes[-2]) ** 0.5 if sizes[-2] else 0.0


def log_prob(normal: Normal, data: Incomplete) -> Tensor:
    """Compute log p(x_obs) of each row; (n,)."""
    factored, result = prepare(normal), data.x.new_zeros(len(data.x))
    for group in grouped(*data):
        result[group.rows] = group.condition(factored).log_prob(factored)
    return result


def conditional_mean(normal: Normal, data: Incomplete) -> Tensor:
    """Fill missing cells by E[x_mis | x_obs]; (n, features)."""
    factored, mean = prepare(normal), torch.zeros_like(data.x)
    for group in grouped(*data):
        mean[group.rows] = normal.mean + group.condition(factored).completed
    return data.with_values(mean)


def conditional_moments(normal: Normal, data: Incomplete) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of each missing cell; (n, features) each.

    For observed cells these are their value and 0.
    """
    factored = prepare(normal)
    mean, deviation = torch.zeros_like(data.x), torch.zeros_like(data.x)
    # variances of missing cells are the diagonal of the inverse of P_mm
    for group in grouped(*data, kinds=1):
        conditioned = group.condition(factored)
        mean[group.rows] = normal.mean + conditioned.completed
        deviation[group.rows] = conditioned.variance(factored).sqrt()
    return data.with_values(mean), deviation


def draw(normal: Normal, data: Incomplete, n_draws: int = 1) -> Tensor:
    """Draw the missing cells from p(x_mis | x_obs); (n_draws, n, features)."""
    factored, cells = prepare(normal), data.x.new_zeros(n_draws, *data.x.shape)
    for batch in arrange(*data):
        cells[:, batch.rows] = normal.mean + batch.condition(factored).draw(n_draws)
    return data.with_values(cells)


def drawn_moments(normal: Normal, batches: list[Batch], weights: Tensor) -> Moments:
    """Complete the rows by draws and sum their moments.

    A weight of w is equivalent to w rows with separate draws, whose sum has w times the
    mean and the variance of one.  So has ``(w - s) E[xx'] + s xx'`` with one draw x and
    ``s = sqrt(w)``; for weights below 1 there are no such rows, and ``s = w``.
    """
    factored, moments = prepare(normal), Moments.zeros(len(normal.mean))
    share = torch.minimum(weights, weights.sqrt())
    spare, covariances = weights - share, Covariances.of(normal.covariance)
    for batch in batches:
        conditioned = batch.condition(factored)
        moments.add(conditioned.draw(1)[0], share[batch.rows])
        if spare.any():
            weight = spare[batch.rows]
            moments.add(conditioned.completed(), weight)
            covariances.added(conditioned, weight)
    moments.second.add_(covariances.total(factored))
    return moments


def draw_parameters(
    mean: Tensor, moments: Moments, total: Tensor, strength: float, more: int = 0
) -> Normal:
    """Draw mean and covariance from their posterior given moments around `mean`.

    ``S ~ inverse Wishart(n - 1 + k, scatter + k I)``, ``mean | S ~ N(average, S / n)``:
    the prior of the penalty times Jeffreys'.  `more` degrees of freedom are added.
    """
    shift, scatter = moments.centred(total, strength)
    freedom = degrees_of_freedom(total, strength, len(mean)) + more
    root = draw_inverse_wishart_root(freedom, cholesky(scatter))
    shift = shift + root @ torch.randn(len(mean)).to(mean) / total.sqrt()
    return Normal(mean + shift, root @ root.T)


def degrees_of_freedom(total: Tensor, strength: float, d: int) -> Tensor:
    """Compute those of `draw_parameters`: at least d + 2, so that S has a mean."""
    return (total - 1 + strength).clamp(min=d + 2)


def draw_inverse_wishart_root(freedom: Tensor, factor: Tensor) -> Tensor:
    """Draw R with ``R R' ~ inverse Wishart(freedom, L L')`` from L: ``R = L A^-T``.

    ``A A'`` is Wishart with unit scale (Bartlett 1933).  (torch 2.13 wrongly warns of
    singular Wishart draws.)
    """
    halves = (freedom - torch.arange(len(factor))) / 2
    bartlett = torch.randn_like(factor).tril(-1)
    bartlett += (2 * standard_gamma(halves)).sqrt().diag()
    return torch.linalg.solve_triangular(bartlett, factor.T, upper=False).T


def posterior_draws(
    start: Normal, data: Incomplete, weights: Tensor, strength: float, *, n_draws: int
) -> list[Normal]:
    """Draw parameters by data augmentation, a Markov chain that starts at the mode.

    The number of steps between draws depends on the rate of EM; burn-in takes twice as
    many.
    """
    with step("estimating the autocorrelation of parameter draws"):
        n_steps = steps_between_draws(rate_of_em(start, data, weights, strength))
    batches, total = arrange(*data), weights.sum()

    def moved(normal: Normal, times: int) -> Normal:
        for n_done in range(1, times + 1):
            tell("step", n_done, times)
            moments = drawn_moments(normal, batches, weights)
            normal = draw_parameters(normal.mean, moments, total, strength)
        return normal

    draws = []
    with step("burning in the draws of parameters"):
        normal = moved(start, 2 * n_steps)
    for _ in steps("drawing parameters", range(n_draws), n_draws):
        normal = moved(normal, n_steps)
        draws.append(normal)
    return draws


_LEFT, _MOST_STEPS = 0.3, 20


def steps_between_draws(rate: float) -> int:
    """Count the steps after which a share `_LEFT` of the dependence remains.

    The dependence decreases at the rate at which EM converges, the largest fraction of
    missing information (Schafer 1997, section 3.5).
    """
    if not 0 < rate < 1:
        return 1 if rate <= 0 else _MOST_STEPS
    return min(_MOST_STEPS, ceil(log(_LEFT) / log(rate)))


def choose_strength(
    data: Incomplete,
    held_out: Tensor,  # bool (n, features), observed cells that EM does not use
    weights: Tensor,
    strengths: list[float],
    start: Normal,
    **stopping: float,  # max_iter and tol
) -> tuple[float, Normal]:
    """Choose k by the held-out observed cells, see `held_out_loss`.

    `strengths`: in decreasing order.  The search begins in the middle and continues as
    long as the next one predicts better, first towards weaker ones.  Returns
    `strength`; `normal`: fitted with `strength` to the cells that are not held out.
    """
    visible = Incomplete(data.x.where(~held_out, 0.0), data.observed & ~held_out)
    rows, number = Rows(visible, weights).condensed(), count(1)
    work = "choosing the shrinkage" if len(strengths) > 1 else "fitting a start"

    def tried(place: int, begin: Normal) -> tuple[float, int, Normal]:
        with step(work, next(number), len(strengths)):
            normal = fit_table(rows, strengths[place], begin, **stopping).normal
            moments = conditional_moments(normal, visible)
            loss = held_out_loss(data.x, held_out, *moments, weights)
        return loss, place, normal

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
    x: Tensor, held_out: Tensor, mean: Tensor, deviation: Tensor, weights: Tensor
) -> float:
    """Sum the CRPS of held-out cells under N(mean, deviation**2).

    The continuous ranked probability score of normal predictions (Gneiting and Raftery
    2007, section 4.2) is proper like the log-density.  It is proportional to the
    distance and not to its square, so a few outlying cells do not dominate.
    """
    deviation = deviation.clamp(min=LEAST_DEVIATION)
    z = (x - mean) / deviation
    density = torch.exp(-z.square() / 2) / sqrt(2 * pi)
    crps = deviation * (z * torch.erf(z / sqrt(2)) + 2 * density - 1 / sqrt(pi))
    return float((weights @ crps.where(held_out, 0.0)).sum())
