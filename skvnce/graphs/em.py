"""Learn a truncated Gaussian graph from a table with missing values by stochastic EM.

A method is an E-step, which completes the table given the current model, and an M-step,
which fits the model to the completed table.  A new method is a file that builds a
`Method`.  Most methods share one E-step, `completed_by_gibbs`.  Columns are scaled to
unit standard deviation, and ``theta = (K, b)`` refers to deviations from a centre,
``-z'Kz/2 + b'z`` with ``z = (x - centre) / scale``; `to_model` maps it back.
"""

from collections.abc import Callable
from math import ceil, isfinite, log, nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.truncated_normal import TruncatedNormal, fit_moments
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import State
from skvnce._core.progress import OnRound, step, steps, tell_round
from skvnce._core.random import global_stream
from skvnce._core.training import lbfgs
from skvnce._core.training.adam import NotFinite
from skvnce._core.training.proximal import Quadratic, minimise
from skvnce.graphs.samplers import antithetic, block_gibbs, missing_of
from skvnce.graphs.truncated_gaussian import TruncatedGaussian, safe_on_orthant

_LEAST_TOLERANCE = 2e-3
_FEWEST, _MOST = 2, 10  # rounds of `rounds_to_settle`


def lagged_products(before: Tensor, after: Tensor, missing: Tensor) -> Tensor:
    """Multiply deviations of draws with those of the next round; (2, features)."""
    # the difference of two chains of a row has mean 0, for any mean of the row
    first, second = ((x[0] - x[1]).where(missing, 0.0) for x in (before, after))
    square = (first.square() + second.square()) / 2
    return torch.stack([(first * second).sum(0), square.sum(0)])


def largest_autocorrelation(products: Tensor) -> float:
    """Divide the products of `lagged_products`, summed over rounds."""
    return float((products[0] / products[1].clamp(min=1e-300)).max().clamp(0, 1))


def tolerance(observed: Tensor) -> float:  # observed (n, features), bool
    """Compute a tenth of the standard error of a weak edge strength, at least 0.002."""
    mask = observed.double()
    pairs = float((mask.T @ mask).mean())  # rows that observe both of two columns
    return max(_LEAST_TOLERANCE, 0.1 / max(pairs, 1.0) ** 0.5)


def rounds_needed(autocorrelation: float) -> float:
    """Compute the rounds to average over, for draws of this autocorrelation.

    This is twice the integrated autocorrelation time ``(1 + r) / (1 - r)``. Steps
    of averages become small whether or not the chains have moved, and indicate
    nothing.
    """
    return 2 * (1 + autocorrelation) / max(1 - autocorrelation, 1e-9)


def rounds_to_settle(observed: Tensor, share: float) -> int:
    """Compute the rounds that reduce the distance of a start to a share of it.

    The share of the missing information of a covariance is at most about that of
    the pairs of cells that are not both observed, and so is the rate of EM
    (Dempster, Laird and Rubin 1977).
    """
    mask = observed.double()
    rate = 1 - float((mask.T @ mask).mean()) / len(mask)
    # the logarithms of 0 and of 1 are no divisors
    n_rounds = ceil(log(share) / log(min(max(rate, 0.1), 0.99)))
    return min(max(n_rounds, _FEWEST), _MOST)


# conditional deviations before truncation are at most twice that of the column; 0.05
# gives false edges of strength 2, and loses 0.6 nats a row, on the bundled table
DIAGONAL_FLOOR = 0.25  # minimum K_jj, for columns of unit standard deviation


class Theta(NamedTuple):
    """Natural parameters around a centre, for scaled columns."""

    precision: Tensor  # (features, features)
    linear: Tensor  # (features,)
    log_scale: Tensor  # (), zero if the method does not estimate it


class Solution(NamedTuple):
    """The result of an M-step: parameters, loss, and certified or estimated error.

    `curvature` is that of `proximal.minimise`, NaN of other solvers.
    """

    theta: Theta
    loss: float
    gap: float
    curvature: float = nan


class Penalty(NamedTuple):
    """sum weight |K| + ridge |K|^2 / 2 + ridge_linear |b|^2 / 2.

    K off the diagonal, counting both triangles; b of the columns before centring.
    """

    # (features, features), strengths of the L1 term, zero on the diagonal; infinite for
    # excluded edges
    weight: Tensor
    ridge: float
    ridge_linear: float = 0.0

    def with_alpha(self, alpha: float) -> "Penalty":
        """Make a penalty of the same strength for all edges."""
        return self._replace(weight=alpha * off_diagonal(len(self.weight)))

    def smooth(self, theta: Theta, centre: Tensor) -> Tensor:
        """Compute the quadratic terms."""
        off = theta.precision - theta.precision.diagonal().diag()
        linear = theta.linear + theta.precision @ centre
        return (
            self.ridge * off.square().sum() + self.ridge_linear * linear.square().sum()
        ) / 2


class EStep(NamedTuple):
    """How a table is completed given the current model."""

    init: Callable[[], Any]  # () -> state
    # (state, model) -> (state, completed); the M-step summarises `completed`
    step: Callable[[Any, TruncatedGaussian], tuple[Any, Any]]
    # whether one round suffices, as completion uses neither the model nor chance
    once: bool
    # (state before, state after a round) -> products of deviations of the draws, (2,
    # features): of those before with those after, and the mean square of both.  Their
    # ratio is the autocorrelation of the chains.  None if draws are independent
    products: Callable[[Any, Any], Tensor] | None = None


class MStep(NamedTuple):
    """How completed tables are summarised, and how the loss is minimised."""

    summarise: Callable[[Any], Any]  # what the E-step completed -> summary
    # (old summary, new summary, weight of the new) -> summary
    merge: Callable[[Any, Any, float], Any]
    # (summary, start, penalty, tolerance) -> Solution, converged
    solve: Callable[[Any, Theta, Penalty, float], Solution]
    # the tolerance in the rounds, which only has to be far below the noise of the
    # draws, and that of the last solution
    tol: tuple[float, float]
    # what the E-step completed -> a summary that is faster to make, for rounds that are
    # not averaged; `solve` takes it, too
    sketch: Callable[[Any], Any] | None = None


class Family(NamedTuple):
    """What EM has to know about the parameters theta of a family of models."""

    model: Callable[[Any], Any]  # theta -> the model from which the E-step draws
    # theta -> the parameters that are kept, those of a density; see `safe`
    safe: Callable[[Any], Any]
    # theta -> the signed strengths of all edges, (nodes, nodes); zero where there is no
    # edge
    strengths: Callable[[Any], Tensor]


class Method(NamedTuple):
    """An E-step, the M-step that belongs to it, and the family of their models."""

    e_step: EStep
    m_step: MStep
    family: Family


class Units(NamedTuple):
    """Centre (in units of the scale) and scale of each column."""

    centre: Tensor
    scale: Tensor


class Fit(NamedTuple):
    """The result of `learn_graph`, in the scaled units."""

    theta: Theta
    # of the M-step, averaged over the rounds; sufficient to solve a path of penalties
    summary: Any
    state: Any  # of the E-step after the last round
    completed: Any  # the completed table of the last round
    losses: list[float]  # loss of each round
    gap: float  # inexactness of the last M-step, see the method
    change: float  # largest change of an edge strength in the last round
    # largest share by which an edge of the last solution was shrunk; see `safe`
    cut: float
    # largest over columns, of the draws of missing cells between successive rounds,
    # over the averaged rounds; 0 if draws are independent
    autocorrelation: float = 0.0


def off_diagonal(d: int) -> Tensor:
    """Return ones off the diagonal, zeros on it."""
    return 1 - torch.eye(d, dtype=torch.float64)


def units_of(data: Incomplete, fit_linear: bool) -> Units:
    """Centre and scale columns by their observed cells.

    With the linear term by mean and standard deviation. Without it the centre of
    the model is zero, and the scale is the root mean square.
    """
    mean = observed_mean(data.x, data.observed)
    centre = mean if fit_linear else torch.zeros_like(mean)
    scale = observed_mean((data.x - centre).square(), data.observed).sqrt()
    return Units(centre / scale, scale)


def observed_mean(values: Tensor, observed: Tensor) -> Tensor:
    """Average the observed cells of each column; (n, features) -> (features,)."""
    return values.where(observed, 0.0).sum(0) / observed.sum(0)


def uncentre(theta: Theta, centre: Tensor) -> Theta:
    """Transform theta to columns that are scaled but not centred."""
    shift = theta.precision @ centre
    constant = theta.linear @ centre + centre @ shift / 2
    return Theta(theta.precision, theta.linear + shift, theta.log_scale + constant)


def to_model(theta: Theta, centre: Tensor) -> TruncatedGaussian:
    """Make the model of columns that are scaled but not centred."""
    return TruncatedGaussian(*uncentre(theta, centre))


def marginals(data: Incomplete) -> TruncatedNormal:
    """Fit a truncated normal to the observed cells of each column by moments."""
    mean = observed_mean(data.x, data.observed)
    return fit_moments(mean, units_of(data, fit_linear=True).scale.square())


def independence(data: Incomplete, centre: Tensor, fit_linear: bool) -> Theta:
    """Start from independent columns: truncated normals, or half-normals if b = 0."""
    diagonal, linear = torch.ones_like(centre), torch.zeros_like(centre)
    if fit_linear:
        dist = marginals(data)
        diagonal = dist.scale.square().reciprocal()
        linear = (dist.loc - centre) * diagonal
    return Theta(diagonal.diag(), linear, linear.new_zeros(()))


def completed_by_gibbs(data: Incomplete, n_chains: int = 2) -> EStep:
    """Build the E-step that draws the missing cells from the model's conditionals.

    It has one chain for each row, or two antithetic ones, which start at the means
    of the columns and continue over the rounds; it returns the rows of all chains.
    """
    complete = bool(data.observed.all())
    shape = (1 if complete else n_chains, *data.x.shape)
    missing = missing_of(data.observed.expand(shape))
    uniforms = antithetic() if n_chains > 1 else global_stream

    def init() -> State:
        mean = observed_mean(data.x, data.observed)
        return State(data.x.where(data.observed, mean).expand(shape).clone())

    def step(state: State, model: TruncatedGaussian) -> tuple[State, Tensor]:
        if not complete:
            state, _ = block_gibbs(model, missing, uniforms).step(state, data)
        return state, state.x.flatten(0, 1)

    def products(before: State, after: State) -> Tensor:
        return lagged_products(before.x, after.x, ~data.observed)

    has_no_noise = complete or n_chains == 1
    return EStep(init, step, complete, None if has_no_noise else products)


def learn_graph(
    method: Method,
    start: object,
    penalty: object,  # what the M-step takes, a `Penalty`
    *,
    max_iter: int,
    tol: float,
    warm_up: int = 10,
    averaged: int | None = None,
    state: object = None,  # of the E-step, at which it starts; None means its own
    on_round: OnRound = tell_round,
) -> Fit:
    """Alternate E-steps and M-steps.

    After `warm_up` rounds the summaries are averaged with weights 1, 1/2, 1/3, ...,
    so that the noise of the draws vanishes (stochastic approximation EM; Delyon,
    Lavielle and Moulines 1999). `averaged`: the least number of averaged rounds,
    `warm_up` if None. `tol`: the loop stops if no edge strength changes by more in
    a round, or if `on_round` returns True. Raises Diverged.
    """
    e_step, m_step, family = method
    least = warm_up if averaged is None else averaged
    state = e_step.init() if state is None else state
    theta, summary, losses = start, None, []
    strengths = family.strengths(start)
    products, memory = 0.0, 0.0
    for n_round in range(1, max_iter + 1):
        last = state
        state, completed = e_step.step(state, family.model(theta))
        age = n_round - warm_up
        # summaries of these rounds are replaced and not averaged
        brief = m_step.sketch is not None and age < 1 and not e_step.once
        new = (m_step.sketch if brief else m_step.summarise)(completed)
        # the first averaged round replaces the last one of the warm-up
        summary = new if age <= 1 else m_step.merge(summary, new, 1 / age)
        solution = m_step.solve(summary, theta, penalty, m_step.tol[0])
        if not isfinite(solution.loss):
            raise NotFinite(f"the loss is {solution.loss} in round {n_round}")
        theta, before = solution.theta, strengths
        strengths = family.strengths(theta)
        change = float((strengths - before).abs().max())
        losses.append(solution.loss)
        stop = on_round(n_round, solution.loss, change)
        if e_step.products is not None and (age > 0 or n_round == max_iter):
            products = products + e_step.products(last, state)
            memory = largest_autocorrelation(products)
        enough = age >= max(least, rounds_needed(memory))
        if e_step.once or stop or (enough and change < tol):
            break
    if e_step.once:
        change = 0.0
    if brief:  # all rounds were
        summary = m_step.summarise(completed)
    fit = Fit(theta, summary, state, completed, losses, 0.0, change, 0.0, memory)
    return conclude(method, fit, penalty)


def coarse(method: Method) -> Method:
    """Solve the last M-step as coarsely as the others, for an initial estimate."""
    tol = method.m_step.tol[0]
    return method._replace(m_step=method.m_step._replace(tol=(tol, tol)))


def conclude(method: Method, fit: Fit, penalty: object) -> Fit:
    """Solve the last M-step precisely, possibly with a new penalty."""
    _, m_step, family = method
    with step("solving the last M-step"):
        solution = m_step.solve(fit.summary, fit.theta, penalty, m_step.tol[1])
    theta = family.safe(solution.theta)
    return fit._replace(
        theta=theta,
        losses=[*fit.losses[:-1], solution.loss],
        gap=solution.gap,
        cut=largest_cut(solution.theta, theta),
    )


def truncated_normals(centre: Tensor) -> Family:
    """Make the family of truncated normals of columns with this centre."""
    return Family(
        lambda theta: to_model(safe(theta), centre),
        safe,
        lambda theta: associations(theta.precision),
    )


def safe(theta: Theta) -> Theta:
    """Make theta a density from which one can sample; see `safe_on_orthant`."""
    return theta._replace(precision=safe_on_orthant(theta.precision))


def largest_cut(before: Theta, after: Theta) -> float:
    """Compute the largest share by which an entry of K shrank."""
    # entries of zero are divisors
    size = before.precision.abs().clamp(min=torch.finfo(torch.float64).tiny)
    return float(((before.precision - after.precision).abs() / size).max())


def edge_strengths(precision: Tensor) -> Tensor:
    """Compute K_ij / sqrt(K_ii K_jj), without units."""
    scale = precision.diagonal().rsqrt()
    return precision * torch.outer(scale, scale)


def associations(precision: Tensor) -> Tensor:
    """Compute -K_ij / sqrt(K_ii K_jj): positive for a positive association."""
    strengths = edge_strengths(precision)
    # 0.0 minus the matrix, because minus zero would be -0.0
    return 0.0 - (strengths - strengths.diagonal().diag())


# ----------------------------------------
# The M-step of any smooth loss of (K, b, c): L-BFGS with exact zeros and a bound.
#
# The L1 term gives exact zeros, and `DIAGONAL_FLOOR` keeps the conditionals proper.


def minimise_loss(
    loss: Callable[[Theta], Tensor],
    start: Theta,
    centre: Tensor,  # (features,)
    penalty: Penalty,  # edges of infinite weight are left out
    *,
    fit_linear: bool,
    fit_scale: bool,
    tol: float,  # largest entry of the (sub)gradient at the solution
    max_iter: int = 1000,
) -> Solution:
    """Minimise a differentiable loss of theta plus the penalty."""
    d = len(centre)
    lower = torch.tril_indices(d, d)
    lower = lower[:, penalty.weight[tuple(lower)].isfinite()]
    n_links, linear_end = lower.shape[1], lower.shape[1] + d * fit_linear

    def theta_of(vector: Tensor) -> Theta:
        half = vector.new_zeros(d, d).index_put(tuple(lower), vector[:n_links])
        precision = half + half.T - half.diagonal().diag()
        linear = vector[n_links:linear_end] if fit_linear else start.linear
        return Theta(precision, linear, vector[-1] if fit_scale else start.log_scale)

    def value(vector: Tensor) -> Tensor:
        theta = theta_of(vector)
        return loss(theta) + penalty.smooth(theta, centre)

    parts = [start.precision[tuple(lower)]]
    parts += [start.linear] * fit_linear + [start.log_scale[None]] * fit_scale
    vector = torch.cat(parts).detach()
    weight, bound = torch.zeros_like(vector), torch.full_like(vector, -torch.inf)
    # the penalty counts both triangles, of which the vector has one
    weight[:n_links] = 2 * penalty.weight[tuple(lower)]
    bound[:n_links][lower[0] == lower[1]] = DIAGONAL_FLOOR
    solution = lbfgs.minimise(value, vector, weight, bound, tol=tol, max_iter=max_iter)
    return Solution(theta_of(solution.point), solution.objective, solution.gap)


# ----------------------------------------
# M-steps whose loss is a quadratic in (K, b): exact zeros and a certified gap.
#
# A point is the matrix (K, b) of shape (features, width), with symmetric K; width is
# features + 1 with the linear term and features without.


def symmetric(matrix: Tensor) -> Tensor:
    """Make K symmetric: the projection on the space of the points."""
    d = len(matrix)
    square = matrix[:, :d]
    return matrix.index_copy(1, torch.arange(d), (square + square.T) / 2)


def as_point(theta: Theta, width: int) -> Tensor:
    """Write theta as a matrix."""
    return torch.cat([theta.precision, theta.linear[:, None]], 1)[:, :width]


def origin(centre: Tensor, width: int) -> Tensor:
    """Return the vector that maps (K, b) to b of the columns before centring."""
    return torch.cat([centre, centre.new_ones(width - len(centre))])


def ridges(penalty: Penalty, width: int) -> Tensor:
    """Return the ridge of each entry of K, zero for b; (features, width)."""
    d = len(penalty.weight)
    strength = penalty.weight.new_zeros(d, width)
    strength[:, :d] = penalty.ridge * off_diagonal(d)
    return strength


def add_penalties(quadratic: Quadratic, penalty: Penalty, centre: Tensor) -> Quadratic:
    """Add the quadratic penalties; the bound of the inverse remains valid."""
    width = quadratic.target.shape[1]
    ridge, to_linear = ridges(penalty, width), origin(centre, width)
    strength = penalty.ridge_linear * (width > len(centre))

    def product(point: Tensor) -> Tensor:
        shrunk = strength * torch.outer(point @ to_linear, to_linear)
        return quadratic.product(point) + ridge * point + symmetric(shrunk)

    along = symmetric(strength * to_linear.square().expand_as(ridge))
    return quadratic._replace(
        product=product, diagonal=quadratic.diagonal + ridge + along
    )


def minimise_quadratic(
    quadratic: Quadratic,
    start: Theta,  # in the same centre and scale
    penalty: Penalty,  # the function adds its L1 term
    tol: float,  # certified duality gap at which to stop, relative to the loss
    ceiling: Tensor | None = None,  # (features,), upper bounds of K_jj
    **options: object,  # further ones of `proximal.minimise`
) -> Solution:
    """Minimise a quadratic over (K, b) of scaled columns plus the L1 term."""
    d, width = quadratic.target.shape
    weight = torch.zeros_like(quadratic.target)
    weight[:, :d] = penalty.weight
    lower = torch.full_like(weight, -torch.inf)
    lower.diagonal().fill_(DIAGONAL_FLOOR)
    upper = torch.full_like(weight, torch.inf)
    if ceiling is not None:
        upper.diagonal().copy_(ceiling)
    limits = weight, lower, upper
    solution = minimise(quadratic, as_point(start, width), *limits, tol=tol, **options)
    linear = solution.point[:, d] if width > d else torch.zeros_like(start.linear)
    theta = Theta(solution.point[:, :d].contiguous(), linear, start.log_scale)
    return Solution(theta, solution.objective, solution.gap, solution.curvature)


# ----------------------------------------
# A path of L1 penalties on the statistics that one fit has averaged.
#
# The draws of the E-step are most of the cost of a fit.  A path solves only the
# M-step, from the sparsest graph to the densest, each starting at the previous one.

ROWS_A_NEIGHBOUR = 10  # fewer rows for each neighbour make a refit unreliable
# as in scikit-learn's GraphicalLassoCV
_RATIO = 100  # ratio of the largest to the smallest alpha of an automatic path


class Path(NamedTuple):
    """Penalties in decreasing order, and the minimiser of each."""

    alphas: list[float]
    thetas: list[Any]


def n_links(matrix: Tensor) -> int:
    """Count the pairs of columns whose entry of a symmetric matrix is not zero."""
    return int(torch.count_nonzero(matrix.triu(1)))


def empty_graph(method: Method, fit: Fit, penalty: NamedTuple) -> NamedTuple:
    """Solve without edges, at which paths start."""
    m_step, off = method.m_step, off_diagonal(len(penalty.weight))
    never = torch.zeros_like(off).masked_fill(off > 0, torch.inf)
    excluded = penalty._replace(weight=never)
    return m_step.solve(fit.summary, fit.theta, excluded, m_step.tol[0]).theta


def largest_alpha(method: Method, fit: Fit, penalty: NamedTuple) -> float:
    """Find the smallest alpha that gives an empty graph, up to 5 % too large."""
    m_step, empty = method.m_step, empty_graph(method, fit, penalty)

    def links(alpha: float) -> int:
        weighted, tol = penalty.with_alpha(alpha), m_step.tol[0]
        theta = m_step.solve(fit.summary, empty, weighted, tol).theta
        return n_links(method.family.strengths(theta))

    if len(penalty.weight) < 2:
        return 1.0
    high = 1.0
    while links(high):
        high *= 2
    low = high / 2
    # without any dependence no alpha gives an edge
    while low > 1e-8 and not links(low):
        low, high = low / 2, low
    while high > 1.05 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if links(middle) else (low, middle)
    return high


def solve_path(
    method: Method, fit: Fit, penalty: NamedTuple, alphas: list[float]
) -> Path:
    """Solve for each alpha in decreasing order; thetas are those of densities."""
    theta, thetas = empty_graph(method, fit, penalty), []
    tol = between(method.m_step.tol)
    for alpha in steps("solving for alpha", alphas, len(alphas)):
        weighted = penalty.with_alpha(alpha)
        theta = method.m_step.solve(fit.summary, theta, weighted, tol).theta
        thetas.append(method.family.safe(theta))
    return Path(alphas, thetas)


def learn_path(
    problem: NamedTuple,  # of `problem` or of `copula`
    alphas: int | list[float],
    **stopping: object,  # max_iter, tol and on_round of `learn_graph`
) -> tuple[Fit, Path]:
    """Average the statistics (`problem.first`), and solve the path of penalties."""
    first = problem.first(**stopping)
    method, penalty = problem.method, problem.penalty(0.0)
    if isinstance(alphas, int):
        with step("finding the largest alpha"):
            top = largest_alpha(method, first, penalty)
        alphas = np.geomspace(top, top / _RATIO, alphas).tolist()
    return first, solve_path(method, first, penalty, alphas)


def between(tol: tuple[float, float]) -> float:
    """Use a tolerance between that of the rounds and that of the last solution."""
    return (tol[0] * tol[1]) ** 0.5
