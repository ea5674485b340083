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
   ``sqrt(log(columns) / n)``, so that most edges remain.  `copula_start` has the start
   of EM, and reduces the weights of strong edges.

2. The graphical lasso of these moments chooses the edges, with the weights

       w_ij = alpha sqrt(f_i f_j) mean_k(v_k / f_k)                                  (2)

   where f_j is the number of free latent variables: one less than that of nominal
   levels.  The moments are estimates of those of the latent variables, and the less a
   cell says the more they vary, which makes up for the smaller gradient.  So the
   weights depend on v only by its average.

3. The maximum of the likelihood given the edges (`covariance_selection`) replaces the
   shrunken estimate, on the same moments (Meinshausen 2007, Relaxed lasso, with
   phi = 0).
"""

from math import inf, log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import step
from skvnce.algorithms.graph import em
from skvnce.algorithms.graph.copula_m_step import (
    TOL,
    Penalty,
    Theta,
    associations,
    correlations,
    in_units,
    m_step,
    rounded,
)
from skvnce.algorithms.graph.copula_start import Start, positive, settled, started
from skvnce.algorithms.graph.covariance_selection import fit_to_edges
from skvnce.algorithms.graph.em import EStep, Family, Method, Solution
from skvnce.algorithms.graph.graphical_lasso import Blocks
from skvnce.algorithms.graph.penalty_path import ROWS_A_NEIGHBOUR
from skvnce.algorithms.mixed import pairs
from skvnce.algorithms.mixed.columns import Latents, Limits
from skvnce.algorithms.mixed.gibbs import Factors, Rows, set_scales
from skvnce.algorithms.mixed.population import Population
from skvnce.distributions.normal import Normal

# rounds before the moments are averaged, and after; the noise of the former remains
_WARM_UP, _AVERAGED = 4, 66
MOST_ROUNDS = _WARM_UP + _AVERAGED
_APART, _PAIRS = 3, 10  # sweeps between draws whose covariance estimates v, and pairs
# penalties of the start are divided by it
_LEAST = 1e-3  # v of a column that says nothing
_LIGHT = 0.75  # a of eq. (1), in sqrt(log(columns) / n)
# in tables of few rows the likelihood would have no maximum
_PRIOR = 0.01  # rows of independent columns, for each latent variable


def drawn(
    rows: list[Rows], z: list[np.ndarray], theta: Theta, latents: Latents
) -> None:
    """Make a sweep over all rows, in place."""
    factors = Factors.of(theta.normal(), latents)
    for part, one in zip(rows, z, strict=True):
        part.redraw(one, factors)


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
        z = [one.copy() for one in z]
        drawn(rows, z, theta, latents)
        return z, set_scales(latents, z, moments(z))

    return EStep(init, step, once=not sweeps_needed)


def information(latents: Latents, rows: list[Rows]) -> Tensor:
    """Estimate v_j of eq. (1): what the cells of a column say about its latents."""
    places = Blocks.of(torch.tensor(latents.n_levels)).places
    each = pairs.explained(rows)
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
    # other columns have closed forms (`pairs.explained`)
    draws = e_step(latents, [part._replace(ordered=[]) for part in rows])
    theta = Theta.independent(latents.size)
    z, total = draws.init(), torch.zeros_like(theta.mean)
    for _ in range(_PAIRS):
        before = np.concatenate(z, 1)
        for _ in range(_APART):
            z, found = draws.step(z, theta)
            variances = found.covariance.diagonal().where(nominal, 1.0)
            theta = Theta(variances.reciprocal().diag(), found.mean)
        after = np.concatenate(z, 1)
        pair = [one - one.mean(1, keepdims=True) for one in (before, after)]
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
        known = (self.information / self.blocks.free).mean()
        unit = known * torch.outer(free, free) * em.off_diagonal(len(free))
        return Penalty(alpha * unit, unit)

    def first(self, **stopping: object) -> em.Fit:
        """Estimate the moments by EM; see `em.learn_graph` for the stopping options."""
        rounds = {"warm_up": _WARM_UP, "averaged": _AVERAGED}
        state = settled(self.method.e_step, self.start.theta)
        return em.learn_graph(
            self.method, *self.start, state=state, **rounds, **stopping
        )

    def chosen(self, first: em.Fit, theta: Theta, alpha: float) -> em.Fit:
        """Choose edges by moments of the first fit, whatever theta, and fit to them."""
        fit = em.concluded(self.method, first, self.penalty(alpha))
        theta = self.estimate(first, fit.theta)
        return fit._replace(theta=theta, losses=first.losses)

    def estimate(self, first: em.Fit, theta: Theta) -> Theta:
        """Compute the maximum of the likelihood given the edges of theta."""
        edges = self.method.family.strengths(theta) != 0
        return self.fitted(first.summary, theta, edges, TOL[1]).theta

    def fitted(
        self, normal: Normal, start: Theta, edges: Tensor, tol: float
    ) -> Solution:
        """Maximise the likelihood of these moments and of a few independent rows."""
        scaled, product = correlations(normal, self.blocks)
        share = _PRIOR * len(scaled) / (self.n_rows + _PRIOR * len(scaled))
        scaled = (1 - share) * scaled + share * torch.eye(len(scaled)).to(scaled)
        scaled, kept = rounded(scaled), rounded(start.precision * product)
        found = fit_to_edges(scaled, kept, edges, self.blocks, tol=tol * len(scaled))
        return in_units(found, normal, product)

    def continued(
        self,
        data: Incomplete,
        theta: Theta,
        alpha: float,
        n_rounds: int,
        limits: Limits | None = None,
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
        return self.chosen(first, theta, alpha).theta

    def criterion(self, fit: em.Fit) -> "Criterion":
        """Return the extended BIC of graphs, given the moments of a fit."""
        return Criterion(self, fit.summary)


class Criterion(NamedTuple):
    """The extended BIC of a graph (Foygel and Drton 2010)."""

    problem: Problem
    normal: Normal  # moments of the latent variables

    def __call__(self, theta: Theta, gamma: float) -> float:
        """Compute ``n D + p (log n + 4 gamma log d)``.

        D is the deviance per row with the edges of theta refitted without a penalty, p
        the number of their parameters, ``(k_i - 1) (k_j - 1)`` for nominal columns of
        k_i and k_j levels.  Parameters of edges about which the cells say less than
        half of the average count more (`edge_weights`).  It is infinite if columns have
        on average more than one neighbour for each ten rows' worth of information.
        """
        problem, n = self.problem, self.problem.n_rows
        free, d = problem.blocks.free, len(problem.blocks.free)
        edges = problem.method.family.strengths(theta) != 0
        share = (problem.information / free).clamp(max=1)
        known = n * float(share.mean()) ** 2
        if float(edges.sum()) / d > known / ROWS_A_NEIGHBOUR:
            return inf
        # for each latent variable, so that n times the loss is exact to 0.1
        accuracy = 0.1 / (n * len(theta.mean))
        loss = problem.fitted(self.normal, theta, edges, accuracy).loss
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
    limits: Limits | None = None,  # (n, columns)
    given: dict | None = None,  # marginals of columns with limits
) -> Problem:
    """Determine the marginals, weigh columns by observed cells, build the method."""
    weights = torch.ones(len(data.x), dtype=torch.float64)
    given = given or {}
    latents = Latents.of(data, weights, kinds, n_levels, given)
    with step("estimating the marginals"):
        latents, mean = Population.of(latents, data, weights, limits, given)
    latents = latents.opened(data, kinds, given)
    rows = Rows.parts(latents, data)
    within = rows if limits is None else Rows.parts(latents, data, limits)
    return problem_from(latents, rows, e_step(latents, within), len(data.x), mean)


def problem_from(
    latents: Latents, rows: list[Rows], step_of: EStep, n_rows: int, mean: Tensor
) -> Problem:
    """Build the method; `rows` (or some) weigh the columns, and EM starts at `mean`."""
    blocks = Blocks.of(torch.tensor(latents.n_levels))
    family = Family(
        lambda theta: theta,
        lambda theta: theta,
        lambda theta: associations(theta.precision, blocks),
    )
    method = Method(step_of, m_step(blocks, n_rows), family)
    with step("weighing the columns"):
        found = information(latents, rows)
    penalty, share = light_penalty(found, n_rows), (found / blocks.free).clamp(max=1)
    with step("correlating pairs of columns"):
        normal = Normal(mean, positive(pairs.correlations(latents, rows)))
        first = started(normal, penalty, share, method)
    return Problem(latents, blocks, method, first, found, n_rows)


def light_penalty(information: Tensor, n_rows: int) -> Penalty:
    """Make the penalty of EM, eq. (1), as it is without strong edges."""
    d, root = len(information), information.sqrt()
    unit = torch.outer(root, root) * em.off_diagonal(d)
    # the logarithm of a single column would be 0
    return Penalty(unit, unit).with_alpha(_LIGHT * (log(max(d, 2)) / n_rows) ** 0.5)
