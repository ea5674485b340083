"""A sparse graph of columns of any kind: a latent normal model, fitted in three steps.

Each column is a function of one latent variable or of several, which are jointly normal
with a precision matrix K (`mixed.columns`).

1. Stochastic EM estimates the moments of the latent variables.  The E-step draws them
   given the cells by Gibbs sweeps (`mixed.gibbs`), and averages their moments over the
   rounds.  The M-step is the graphical lasso for blocks (`graphical_lasso`), with the
   weights

       w_ij = a sqrt(v_i v_j),   v_j = tr Cov(E[z_j | x_j])                          (1)

   The level of a nominal column depends only on differences of its latent variables,
   so their mean is independent of all others and has a fixed variance.
   Near independence the gradient of the log-likelihood in the block K_ij is the
   covariance of E[z_i | x_i] and E[z_j | x_j], whose norm has the mean square
   v_i v_j / n if the columns are independent.  The factor a is below the usual size
   ``sqrt(log(columns) / n)``, so that most edges remain.  `graphs.copula` has the start
   of EM, and reduces the weights of strong edges.

2. The graphical lasso of these moments chooses the edges, with the weights

       w_ij = alpha sqrt(f_i f_j) mean_k(v_k / f_k)                                  (2)

   where f_j is the number of free latent variables: one less than that of nominal
   levels.  The moments are estimates of those of the latent variables, and the less a
   cell says the more they vary, which makes up for the smaller gradient.  So the
   weights depend on v only by its average.

3. The maximum of the likelihood given the edges (`graphs.graphical_lasso`) replaces the
   shrunken estimate, on the same moments (Meinshausen 2007, Relaxed lasso, with
   phi = 0).
"""

from collections.abc import Callable
from functools import partial
from math import inf, log, pi, sqrt
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.truncated_normal import interval_mean
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import step
from skvnce._core.random import normal_cdf
from skvnce.gaussian.latent.columns import Latents, Limits, Marginal
from skvnce.gaussian.latent.gibbs import Factors, Rows, set_scales
from skvnce.gaussian.latent.population import Population
from skvnce.graphs import em, graphical_lasso
from skvnce.graphs.em import ROWS_A_NEIGHBOUR, EStep, Family, Method, MStep, Solution
from skvnce.graphs.graphical_lasso import Blocks, fit_to_edges

# ----------------------------------------
# The M-step of graphs of columns of any kind: a graphical lasso for blocks.
#
# See `copula`; the latent variables of a nominal column are a block.

# a power of two, by which division and multiplication are exact
_GRID = 2.0**-22  # of moments and starts of correlations: 2.4e-7
TOL = (1e-3, 1e-6)  # duality gaps of the rounds and of the last solution


class Theta(NamedTuple):
    """Parameters of the latent variables."""

    precision: Tensor  # (latents, latents)
    mean: Tensor  # (latents,)

    @classmethod
    def independent(cls, size: int) -> Self:
        """Make the parameters of independent standard normal variables."""
        mean = torch.zeros(size, dtype=torch.float64)
        return cls(torch.eye(size, dtype=torch.float64), mean)

    def normal(self) -> Normal:
        """Return the normal distribution."""
        root = torch.linalg.cholesky(self.precision)
        return Normal(self.mean, torch.cholesky_inverse(root))


class Penalty(NamedTuple):
    """sum weight |K_ij|_F over blocks off the diagonal, counting both triangles."""

    weight: Tensor  # (columns, columns), infinite for excluded edges
    unit: Tensor  # (columns, columns), the weight if alpha is 1, eq. (1)

    def with_alpha(self, alpha: float) -> "Penalty":
        """Make a penalty of the same strength for all edges."""
        return self._replace(weight=alpha * self.unit)


def m_step(blocks: Blocks, n_rows: int) -> MStep:
    """Build the M-step, the graphical lasso of the correlations."""

    def summarise(normal: Normal) -> Normal:
        covariance = contrasts(normal.covariance, blocks)
        return normal._replace(covariance=temper(covariance, blocks, n_rows))

    def merge(old: Normal, new: Normal, weight: float) -> Normal:
        return Normal(*(a + weight * (b - a) for a, b in zip(old, new, strict=True)))

    def solve(normal: Normal, start: Theta, penalty: Penalty, tol: float) -> Solution:
        scaled, product = correlations(normal, blocks)
        solution = graphical_lasso.solve(
            round_to_grid(scaled),
            round_to_grid(start.precision * product),
            penalty.weight,
            blocks,
            tol=tol * len(scaled),
        )
        return in_units(solution, normal, product)

    return MStep(summarise, merge, solve, TOL)


def round_to_grid(matrix: Tensor) -> Tensor:
    """Round to multiples of a number far below the errors of moments of draws.

    The graphical lasso amplifies rounding errors. So sums over rows in another
    order, as of other parts, give the same solution.
    """
    return (matrix / _GRID).round_().mul_(_GRID)


def contrasts(covariance: Tensor, blocks: Blocks) -> Tensor:
    """Keep the covariance of differences of the latent variables of a nominal column.

    Their mean, of which no cell says anything, becomes independent of all others,
    with the variance of the mean of independent standard normal variables. What the
    draws say about it is noise, in K + L - 1 of the K L entries of a block.
    """
    if blocks.are_single:
        return covariance
    places, sizes = blocks.places, blocks.sizes
    several = (places[:, None] == places) & (sizes > 1)[places]
    common = several / sizes[places].to(covariance)
    # a projection, so that the matrix stays positive definite
    differences = torch.eye(len(common)).to(common) - common
    return differences @ covariance @ differences + common


def temper(covariance: Tensor, blocks: Blocks, n_rows: int) -> Tensor:
    """Move the covariance of the latent variables of a nominal column towards I.

    By as many rows of independent ones as are free.  The levels say next to nothing
    about it: draws of few rows a level wander to singular matrices.  Variables are
    rescaled along its eigenvectors, so that canonical correlations stay.
    """
    tempered, ends = covariance.clone(), blocks.sizes.cumsum(0).tolist()
    each = zip(blocks.sizes.tolist(), blocks.free.tolist(), ends, strict=True)
    for size, free, end in each:
        if size == 1:
            continue
        part, share = slice(end - size, end), free / (n_rows + free)
        values, vectors = torch.linalg.eigh(tempered[part, part])
        target = (1 - share) * values.clamp(min=0) + share
        # directions that no row has are filled and not stretched
        scale = (target / values.clamp(min=share)).sqrt()
        rest = target - scale.square() * values
        turn = (vectors * scale) @ vectors.T
        tempered[part] = turn @ tempered[part]
        tempered[:, part] = tempered[:, part] @ turn
        tempered[part, part] += (vectors * rest) @ vectors.T
    return tempered


def correlations(normal: Normal, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Divide the covariance by products of standard deviations, and return these.

    Latent variables of nominal columns are not divided: their common unit is set
    (`set_scales`), and dividing each by its own would mix their mean and differences.
    """
    several = (blocks.sizes > 1)[blocks.places]
    scale = torch.where(several, 1.0, normal.covariance.diagonal().sqrt())
    product = torch.outer(scale, scale)
    return normal.covariance / product, product


def in_units(
    solution: graphical_lasso.Solution, normal: Normal, product: Tensor
) -> Solution:
    """Map the solution for correlations to the units of the latent variables."""
    theta = Theta(solution.precision / product, normal.mean)
    loss = solution.objective + float(product.diagonal().log().sum())
    return Solution(theta, loss, solution.gap)


def associations(precision: Tensor, blocks: Blocks) -> Tensor:
    """Compute the signed strengths of edges; (columns, columns), zero on the diagonal.

    For columns of one latent variable it is the partial correlation.  Otherwise it is
    ``sqrt(sum_k r_k**2 / m)`` with the partial canonical correlations r_k of the latent
    variables of both columns, of which m can differ from zero: one less than the number
    of levels, for the column that has fewer (Cramér's V of the latent variables).
    """
    if blocks.are_single:
        return em.associations(precision)
    canonical = whitened(precision, precision, blocks)
    most = torch.minimum(blocks.free[:, None], blocks.free)
    strengths = blocks.norms(canonical) / most.sqrt()
    single = blocks.sizes == 1
    signs = -blocks.sums(canonical).sign()
    strengths = torch.where(single[:, None] & single, signs * strengths, strengths)
    strengths = (strengths + strengths.T) / 2  # equal up to rounding
    return strengths.clamp(-1, 1).fill_diagonal_(0.0)


def whitened(matrix: Tensor, precision: Tensor, blocks: Blocks) -> Tensor:
    """Divide a matrix by the roots of the diagonal blocks of a precision matrix."""
    white = precision.new_zeros(precision.shape)
    ends = blocks.sizes.cumsum(0).tolist()
    for size, end in zip(blocks.sizes.tolist(), ends, strict=True):
        part = slice(end - size, end)
        root = torch.linalg.cholesky(precision[part, part])
        inverse = torch.linalg.solve_triangular(
            root, torch.eye(size).to(root), upper=False
        )
        white[part, part] = inverse
    return white @ matrix @ white.T


# ----------------------------------------
# Scores of edges of the latent normal model: standard normal where there is no edge.
#
# Let K be the estimate of EM, with its light penalty, S the second moments of the
# latent variables given the cells under K, and v_i the information of a column per
# free latent variable (`copula`, eq. 1).  ``G = S - K^-1`` is the gradient of the
# log-likelihood of the observed cells, and near independence v_i v_j is the share of
# the information about K_ij that the cells have.  So one step of Fisher scoring,
#
#   T_ij = K_ij - (K G K)_ij / (v_i v_j)                       (1)
#
# removes what the penalty has shrunk (Jankova and van de Geer 2015, Confidence
# intervals for high-dimensional inverse covariance estimation, with v = 1).  Without
# an edge, ``T_ij / sqrt(K_ii K_jj)`` has the variance ``1 / (n v_i v_j)``.

_ROUNDS = 30  # whose moments are averaged, with K held fixed


def edge_scores(problem: NamedTuple, fit: em.Fit) -> Tensor:
    """Compute scores of all pairs; (columns, columns), zero on the diagonal.

    Those of columns with one latent variable are signed. The squares of the others,
    sums of f squares, are transformed as by Wilson and Hilferty (1931).
    """
    blocks, theta = problem.blocks, fit.theta
    share = (problem.information / blocks.free).clamp(max=1)
    information = torch.outer(share, share)
    moments, n_rounds = _moments_at(problem, fit)
    slope = moments.covariance - theta.normal().covariance
    step = theta.precision @ slope @ theta.precision / blocks.spread(information)
    canonical = whitened(theta.precision - step, theta.precision, blocks)
    # the draws of n_rounds rounds add to the variance v_i v_j / n of the moments
    unit = (
        problem.n_rows * information / (1 + (1 / information - 1) / n_rounds)
    ).sqrt()
    f = torch.outer(blocks.free, blocks.free)
    chi = blocks.sums(canonical.square()) * unit.square()
    score = ((chi / f).pow(1 / 3) - 1 + 2 / (9 * f)) / (2 / (9 * f)).sqrt()
    signed = -blocks.sums(canonical) * unit
    return torch.where(f > 1, score, signed).fill_diagonal_(0.0)


def _moments_at(problem: NamedTuple, fit: em.Fit) -> tuple[Normal, float]:
    """Average the moments of further rounds; return them and the number of rounds."""
    e_step, m_step, family = problem.method
    if e_step.once:
        return fit.summary, torch.inf
    state, average = fit.state, None
    for number in range(1, _ROUNDS + 1):
        state, normal = e_step.step(state, family.model(fit.theta))
        new = m_step.summarise(normal)
        average = new if average is None else m_step.merge(average, new, 1 / number)
    return average, _ROUNDS


# ----------------------------------------
# The start of EM for a graph of columns of any kind, and its penalty.
#
# EM approaches the maximum of the likelihood at the rate of the share of the
# information that is missing (Dempster, Laird and Rubin 1977): 0.9 for two binary
# columns of which half of the cells are missing.  So it starts where pairs of
# columns, each on its own, put it (`mixed.pairs`), and not at independence.
#
# A penalty w moves a partial correlation r by about ``t = w / (s_i s_j)`` near
# independence, where s_i s_j is the share of the information about it that the cells
# have.  Since t is larger than the standard error, that of strong edges is reduced,
# as in the adaptive lasso (Zou 2006):
#
#     w'_ij = w_ij t_ij / (t_ij + |u_ij|),   u = r / (1 - r**2)                      (1)
#
# The standard error of u is about that of r near independence, whatever r is.

# correlations of pairs, each on its own, may have negative eigenvalues
_LEAST_EIGENVALUE = 1e-4  # eigenvalue of the correlations of a start
_SOLVES = 2  # of which the first has the whole penalty
_SETTLE = 5  # sweeps that forget where latent variables start


class Start(NamedTuple):
    """Parameters at which EM starts, and its penalty."""

    theta: Theta
    penalty: Penalty


def start_of(normal: Normal, penalty: Penalty, share: Tensor, method: Method) -> Start:
    """Solve the M-step for correlations of pairs, with weights in the unit of t.

    `share` (columns,): s, the information of a column in that of an observed
    number.
    """
    information, tol = torch.outer(share, share), method.m_step.tol[0]
    start = Start(Theta.independent(len(normal.mean)), penalty)
    for _ in range(_SOLVES):
        scaled = penalty._replace(weight=start.penalty.weight / information)
        theta = method.m_step.solve(normal, start.theta, scaled, tol).theta
        strengths = method.family.strengths(theta)
        start = Start(
            theta, reduce_strong(penalty, penalty.weight / information, strengths)
        )
    return start


def reduce_strong(penalty: Penalty, moved: Tensor, strengths: Tensor) -> Penalty:
    """Reduce the weights of strong edges, eq. (1); `moved` is t."""
    # u is infinite at r = 1
    r = strengths.abs().clamp(max=1 - _LEAST_EIGENVALUE)
    share = moved / (moved + r / (1 - r.square())).clamp(min=_LEAST_EIGENVALUE)
    return penalty._replace(weight=penalty.weight * share)


def positive(correlations: Tensor) -> Tensor:
    """Return a correlation matrix with positive eigenvalues near to a symmetric one."""
    values, vectors = torch.linalg.eigh(correlations)
    product = (vectors * values.clamp(min=_LEAST_EIGENVALUE)) @ vectors.T
    scale = product.diagonal().rsqrt()
    return product * torch.outer(scale, scale)


def settle(e_step: EStep, theta: Theta) -> object:
    """Make the state of an E-step after some sweeps at these parameters."""
    state = e_step.init()
    for _ in range(0 if e_step.once else _SETTLE):
        state, _normal = e_step.step(state, theta)
    return state


# ----------------------------------------
# Correlations of latent variables, from the rows that observe both of two columns.
#
# Let ``m_j = E[z_j | x_j]`` for a standard normal z_j, an increasing function of z_j
# with the coefficients ``a_jk = E[m_j h_k(z_j)]`` of normalised Hermite polynomials.
# If two latent variables have the correlation r (Mehler 1866),
#
#     Cov(m_i, m_j) = sum_{k >= 1} a_ik a_jk r**k                                    (1)
#
# which increases with r.  The solution for the covariance of the rows that observe
# both columns is the tetrachoric correlation of two binary columns, the correlation
# of the normal scores of two numbers, and for other columns has nearly the standard
# error of the polychoric or polyserial correlation.  It needs no iterations over the
# rows.

_DEGREE = 40  # of the polynomials: 0.9 ** 40 is 0.015
_STEPS = 12  # of Newton's method or bisection; one suffices for numbers
_FAR = 38.0  # beyond which the normal density is zero
# variances are divisors
_LEAST_VARIANCE = 1e-12  # variance below which a column counts as constant


class Means(NamedTuple):
    """E[z | cell] of standard normal z, and which cells are observed; (latents, n).

    Both are zero for the latent variables of nominal columns.
    """

    values: Tensor
    bounded: Tensor  # 1 where an end of the cell is finite, else 0

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Compute those of some rows."""
        low, high = torch.from_numpy(rows.low), torch.from_numpy(rows.high)
        bounded = ~(low.isneginf() & high.isposinf())
        inside = bounded & (low < high)
        values = low.where(bounded, 0.0)
        values[inside] = mean_between(low[inside], high[inside])
        return cls(values, bounded.to(values))


class Sums(NamedTuple):
    """Sums over the rows that observe both of two columns; (latents, latents)."""

    number: Tensor  # number of rows
    first: Tensor  # of the mean of the first column of a pair, and of its square
    squares: Tensor
    products: Tensor

    @classmethod
    def of(cls, means: Means) -> Self:
        """Compute those of some rows."""
        m, bounded = means
        return cls(bounded @ bounded.T, m @ bounded.T, m.square() @ bounded.T, m @ m.T)

    def correlations(self) -> Tensor:
        """Compute the correlations of the means; zero without variance or rows."""
        n = self.number.clamp(min=1)
        covariance = self.products / n - (self.first / n) * (self.first.T / n)
        variance = self.squares / n - (self.first / n).square()
        scale = variance * variance.T
        ratios = covariance / scale.clamp(min=_LEAST_VARIANCE).sqrt()
        return ratios.where(scale > _LEAST_VARIANCE, 0.0).clamp(-1, 1)


def explained(rows: list[Rows]) -> Tensor:
    """Average the squares of E[z | cell], zero where it is missing; (latents,)."""
    totals = [Means.of(part).values.square().sum(1) for part in rows]
    return sum(totals) / sum(part.low.shape[1] for part in rows)


def pairwise_correlations(latents: Latents, rows: list[Rows]) -> Tensor:
    """Estimate the correlations of latent variables, each pair on its own.

    Those of nominal columns of more than two levels are zero; the matrix need not
    be positive definite.
    """
    each = [Sums.of(Means.of(part)) for part in rows]
    sums = Sums(*(sum(parts) for parts in zip(*each, strict=True)))
    places = [latent for _, latent, _ in latents.ordered]
    inner = torch.meshgrid(
        *[torch.tensor(places, dtype=torch.int64)] * 2, indexing="ij"
    )
    correlations = torch.eye(latents.size, dtype=torch.float64)
    if places:
        shapes = [coefficients(marginal) for _, _, marginal in latents.ordered]
        estimates = solved(sums.correlations()[inner], torch.stack(shapes))
        correlations[inner] = estimates.fill_diagonal_(1.0)
    return correlations


def mean_between(low: Tensor, high: Tensor) -> Tensor:
    """Compute E[z | low < z < high] of a standard normal z."""
    flipped = low + high < 0
    ends = torch.where(flipped, -high, low), torch.where(flipped, -low, high)
    mean = interval_mean(*ends)
    return torch.where(flipped, -mean, mean)


def coefficients(marginal: Marginal) -> Tensor:
    """Compute a_k / sqrt(Var(m)) of eq. (1), for k = 1, 2, ...; (degree,).

    m is z but for the intervals of values, so that a_k is that of z, 1 if k = 1 and
    else 0, plus ``E[(m - z) h_k(z)]`` over the intervals.
    """
    wide = marginal.low < marginal.high
    low, high = marginal.low[wide], marginal.high[wide]
    mean, over = mean_between(low, high), _integrals(low, high)
    order = torch.arange(len(over)).to(over)[:, None].sqrt()
    times_z = order[2:] * over[2:] + order[1:-1] * over[:-2]  # of z h_k, k = 1, 2, ...
    covariances = (mean * over[1:-1] - times_z).sum(1)
    covariances[0] += 1
    variance = covariances[0]  # Var(m) = Cov(m, z)
    return covariances / variance.clamp(min=_LEAST_VARIANCE).sqrt()


def _integrals(low: Tensor, high: Tensor) -> Tensor:
    """Compute the integrals of h_k phi over intervals; (degree + 2, n_intervals)."""
    # infinite ends times a density of 0 would be NaN
    ends = torch.stack([low, high]).clamp(-_FAR, _FAR)
    density = torch.exp(-ends.square() / 2) / sqrt(2 * pi)
    each = [density, ends * density]  # h_k phi at the ends
    for k in range(2, _DEGREE + 1):
        each.append((ends * each[-1] - sqrt(k - 1) * each[-2]) / sqrt(k))
    mass = normal_cdf(high) - normal_cdf(low)
    inner = [(values[0] - values[1]) / sqrt(k) for k, values in enumerate(each, 1)]
    return torch.stack([mass, *inner])


def solved(target: Tensor, shapes: Tensor) -> Tensor:
    """Solve eq. (1) for all pairs, by Newton's method or, if it leaves, bisection."""
    low, high = -torch.ones_like(target), torch.ones_like(target)
    r = (target / torch.outer(shapes[:, 0], shapes[:, 0])).clamp(-1, 1)
    for _ in range(_STEPS):
        value, slope = series(r, shapes)
        # the series increases with r, so that the solution stays between both
        low, high = low.where(value > target, r), high.where(value < target, r)
        moved = r - (value - target) / slope
        within = (moved >= low) & (moved <= high)
        r = moved.where(within, (low + high) / 2)
    return r


def series(r: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the right-hand side of eq. (1) and its derivative, by Horner's rule."""
    value, slope = torch.zeros_like(r), torch.zeros_like(r)
    for coefficient in shapes.T.flip(0):
        value = value + torch.outer(coefficient, coefficient)
        slope = slope * r + value
        value = value * r
    return value, slope


# rounds before the moments are averaged, and after; the noise of the former remains
_WARM_UP, _AVERAGED = 4, 66
_APART, _PAIRS = 3, 10  # sweeps between draws whose covariance estimates v, and pairs
# penalties of the start are divided by it
_LEAST = 1e-3  # v of a column that says nothing
_LIGHT = 0.75  # a of eq. (1), in sqrt(log(columns) / n)
# in tables of few rows the likelihood would have no maximum
_PRIOR = 0.01  # rows of independent columns, for each latent variable


def sweep(
    rows: list[Rows], z: list[np.ndarray], theta: Theta, latents: Latents
) -> None:
    """Make a sweep over all rows, in place."""
    factors = Factors.of(theta.normal(), latents)
    for part, latent in zip(rows, z, strict=True):
        part.redraw(latent, factors)


def moments(z: list[np.ndarray]) -> Normal:
    """Compute mean and covariance of latent variables (latents, n) in parts."""
    every = torch.from_numpy(np.concatenate(z, 1))
    return Normal(every.mean(1), torch.atleast_2d(every.cov(correction=0)))


def e_step(latents: Latents, rows: list[Rows]) -> EStep:
    """Build the E-step, whose state are the latent variables, in parts of the rows."""
    sweeps_needed = bool(latents.nominal) or any(
        len(column.missing) or len(column.bounded)
        for part in rows
        for column in part.ordered
    )

    def init() -> list[np.ndarray]:
        return [part.start(Theta.independent(latents.size).mean) for part in rows]

    def step(z: list[np.ndarray], theta: Theta) -> tuple[list[np.ndarray], Normal]:
        # copies, because the caller may keep the old state
        z = [latent.copy() for latent in z]
        sweep(rows, z, theta, latents)
        return z, set_scales(latents, z, moments(z))

    return EStep(init, step, once=not sweeps_needed)


def information(latents: Latents, rows: list[Rows]) -> Tensor:
    """Estimate v_j of eq. (1), the information of the cells of a column."""
    places = Blocks.of(torch.tensor(latents.n_levels)).places
    each = explained(rows)
    if latents.nominal:
        each = each + of_nominal(latents, rows)
    sums = each.new_zeros(len(latents.n_levels)).index_add_(0, places, each)
    return sums.clamp(min=_LEAST)


def of_nominal(latents: Latents, rows: list[Rows]) -> Tensor:
    """Estimate the variances of E[z_j | x_j], zero of columns of one latent variable.

    The covariance of two independent draws of z_j given x_j is that of their means.
    """
    nominal = torch.zeros(latents.size, dtype=torch.bool)
    for _, block in latents.nominal:
        nominal[block] = True
    # other columns have closed forms (`explained`)
    draws = e_step(latents, [part._replace(ordered=[]) for part in rows])
    theta = Theta.independent(latents.size)
    z, total = draws.init(), torch.zeros_like(theta.mean)
    for _ in range(_PAIRS):
        before = np.concatenate(z, 1)
        for _ in range(_APART):
            z, moments = draws.step(z, theta)
            variances = moments.covariance.diagonal().where(nominal, 1.0)
            theta = Theta(variances.reciprocal().diag(), moments.mean)
        after = np.concatenate(z, 1)
        pair = [draw - draw.mean(1, keepdims=True) for draw in (before, after)]
        total += torch.from_numpy((pair[0] * pair[1]).mean(1))
    return (total / _PAIRS).where(nominal, 0.0)


class Problem(NamedTuple):
    """The parts of a fit that do not depend on alpha."""

    latents: Latents
    blocks: Blocks
    method: Method
    start: Start  # of EM, with its penalty
    information: Tensor  # (columns,), v of eq. (1)
    n_rows: int

    def penalty(self, alpha: float) -> Penalty:
        """Make the penalty that chooses edges, eq. (2)."""
        free = self.blocks.free.sqrt()
        information = (self.information / self.blocks.free).mean()
        unit = information * torch.outer(free, free) * em.off_diagonal(len(free))
        return Penalty(alpha * unit, unit)

    def first(self, **stopping: object) -> em.Fit:
        """Estimate the moments by EM; see `em.learn_graph` for the stopping options."""
        rounds = {"warm_up": _WARM_UP, "averaged": _AVERAGED}
        state = settle(self.method.e_step, self.start.theta)
        return em.learn_graph(
            self.method, *self.start, state=state, **rounds, **stopping
        )

    def fit(self, alpha: float, **stopping: object) -> tuple[em.Fit, em.Fit]:
        """Learn the graph; returns the fit without, and with, the choice of edges."""
        first = self.first(**stopping)
        return first, self.choose(first, first.theta, alpha)

    def choose(self, first: em.Fit, theta: Theta, alpha: float) -> em.Fit:
        """Choose edges by moments of the first fit, whatever theta, and fit to them."""
        fit = em.conclude(self.method, first, self.penalty(alpha))
        theta = self.estimate(first, fit.theta)
        return fit._replace(theta=theta, losses=first.losses)

    def estimate(self, first: em.Fit, theta: Theta) -> Theta:
        """Compute the maximum of the likelihood given the edges of theta."""
        edges = self.method.family.strengths(theta) != 0
        return self.refit(first.summary, theta, edges, TOL[1]).theta

    def refit(
        self, normal: Normal, start: Theta, edges: Tensor, tol: float
    ) -> Solution:
        """Maximise the likelihood of these moments and of a few independent rows."""
        scaled, product = correlations(normal, self.blocks)
        share = _PRIOR * len(scaled) / (self.n_rows + _PRIOR * len(scaled))
        scaled = (1 - share) * scaled + share * torch.eye(len(scaled)).to(scaled)
        solution = fit_to_edges(
            round_to_grid(scaled),
            round_to_grid(start.precision * product),
            edges,
            self.blocks,
            tol=tol * len(scaled),
        )
        return in_units(solution, normal, product)

    def continue_fit(
        self,
        data: Incomplete,
        theta: Theta,
        alpha: float,
        n_rounds: int,
        limits: Limits = (),
    ) -> Theta:
        """Go on for some rounds with another table; see `make_problem`."""
        e_of_data = e_step(self.latents, Rows.parts(self.latents, data, limits))
        first = em.learn_graph(
            self.method._replace(e_step=e_of_data),
            theta,
            self.start.penalty,
            max_iter=n_rounds,
            tol=0.0,
            warm_up=n_rounds // 2,
        )
        return self.choose(first, theta, alpha).theta

    def criterion(self, fit: em.Fit) -> Callable[[Theta, float], float]:
        """Return the extended BIC of graphs, given the moments of a fit."""
        return partial(self._criterion, fit.summary)

    def _criterion(self, normal: Normal, theta: Theta, gamma: float) -> float:
        """Compute ``n D + p (log n + 4 gamma log d)`` (Foygel and Drton 2010).

        D is the deviance per row with the edges of theta refitted without a penalty, p
        the number of their parameters, ``(k_i - 1) (k_j - 1)`` for nominal columns of
        k_i and k_j levels.  Parameters of edges about which the cells say less than
        half of the average count more (`edge_weights`).  It is infinite if columns have
        on average more than one neighbour for each ten rows' worth of information.
        """
        n, free, d = self.n_rows, self.blocks.free, len(self.blocks.free)
        edges = self.method.family.strengths(theta) != 0
        share = (self.information / free).clamp(max=1)
        effective = n * float(share.mean()) ** 2
        if float(edges.sum()) / d > effective / ROWS_A_NEIGHBOUR:
            return inf
        # for each latent variable, so that n times the loss is exact to 0.1
        accuracy = 0.1 / (n * len(theta.mean))
        loss = self.refit(normal, theta, edges, accuracy).loss
        each = torch.outer(free, free) * edge_weights(share)
        parameters = float((each * edges).sum()) / 2
        price = log(n) + 4 * gamma * log(d)
        return n * loss + parameters * price


def edge_weights(share: Tensor) -> Tensor:
    """Weigh the parameters of edges in the criterion, ``max(1, m^2 / (2 s_i s_j))``.

    The deviance counts all rows.  If few rows observe a column, its edges are estimated
    from these, and change the deviance by about ``1 / (s_i s_j)`` without an edge.
    `share`: (columns,), s, the information of a column in that of an observed number; m
    is its mean.
    """
    return (share.mean() ** 2 / (2 * torch.outer(share, share))).clamp(min=1)


def make_problem(
    data: Incomplete,  # without rows or columns that are entirely missing
    kinds: list[str],  # see `Latents.of`
    n_levels: list[int],
    limits: Limits = (),  # (n, columns)
    marginals: dict | None = None,  # marginals of columns with limits
) -> Problem:
    """Determine the marginals, weigh columns by observed cells, build the method."""
    weights = torch.ones(len(data.x), dtype=torch.float64)
    marginals = marginals or {}
    latents = Latents.of(data, weights, kinds, n_levels, marginals)
    with step("estimating the marginals"):
        latents, mean = Population.of(latents, data, weights, limits, marginals)
    latents = latents.opened(data, kinds, marginals)
    rows, within = (Rows.parts(latents, data, ends) for ends in ((), limits))
    n_rows, blocks = len(data.x), Blocks.of(torch.tensor(latents.n_levels))
    family = Family(
        lambda theta: theta,
        lambda theta: theta,
        lambda theta: associations(theta.precision, blocks),
    )
    method = Method(e_step(latents, within), m_step(blocks, n_rows), family)
    with step("weighing the columns"):
        counts = information(latents, rows)
    penalty, share = light_penalty(counts, n_rows), (counts / blocks.free).clamp(max=1)
    with step("correlating pairs of columns"):
        normal = Normal(mean, positive(pairwise_correlations(latents, rows)))
        first = start_of(normal, penalty, share, method)
    return Problem(latents, blocks, method, first, counts, n_rows)


def light_penalty(information: Tensor, n_rows: int) -> Penalty:
    """Make the penalty of EM, eq. (1), as it is without strong edges."""
    d, root = len(information), information.sqrt()
    unit = torch.outer(root, root) * em.off_diagonal(d)
    # the logarithm of a single column would be 0
    return Penalty(unit, unit).with_alpha(_LIGHT * (log(max(d, 2)) / n_rows) ** 0.5)
