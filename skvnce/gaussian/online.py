"""Online EM for a stream of rows (Cappe and Moulines 2009).

With s(y; t) the expected moments of a row given its observed cells and parameters t,
online EM averages moments instead of parameters: for chunk k with w_k rows,

    S_k = (1 - g_k) S_{k-1} + g_k mean of s(y; t) over the chunk,                  (1)
    t_k = M-step of S_k,        g_k = (w_k / (w_1 + ... + w_k)) ** 0.7,            (2)

with t = t_{k-1} first, and then once more with the t_k that results.  With chunks of
equal size ``g_k = k ** -0.7``.  The exponent has to be above 1/2 and at most 1; near 1,
moments from early parameters are forgotten slowly if much is missing.  The shares of
rows below the knots of the marginals are averaged likewise.

Cappe and Moulines (2009), On-line expectation-maximization algorithm for latent data
models, Journal of the Royal Statistical Society B 71, 593-613.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal, prepare
from skvnce._core.distributions.patterns import Rows
from skvnce.gaussian import em
from skvnce.gaussian.em import Moments
from skvnce.gaussian.marginals import (
    PiecewiseLinear,
    choose,
    expected_below,
    nonlinear_columns,
    observed_below,
    scores_of,
    with_tails,
)

POWER = 0.7  # of eq. (2)
N_STEPS = 2  # number of steps of EM for each chunk


class Online(NamedTuple):
    """What online EM knows after some chunks."""

    normal: Normal  # of scores
    marginals: PiecewiseLinear | None  # None if cells are scores
    moments: Moments  # s of eq. (1), relative to 0 and for rows of total weight 1
    total: Tensor  # (), weight of all rows so far


def started(fit: em.Fit, marginals: PiecewiseLinear | None, total: Tensor) -> Online:
    """Begin with a fit to rows of weight `total`."""
    sums = fit.moments.shifted(fit.point.mean, total)
    average = Moments(*(part / total for part in sums))
    return Online(fit.normal, marginals, average, total)


def updated(state: Online, rows: Rows, strength: float) -> tuple[Online, Tensor]:
    """Learn from a chunk of rows.

    Returns `log_likelihood` (): of the scores of the chunk, before it was learned.
    """
    total = state.total + rows.total
    size = (rows.total / total) ** POWER
    scores, marginals, normal = rows, state.marginals, state.normal
    if marginals is not None:
        scores = Rows(scores_of(marginals, rows.data), rows.weights)
        marginals = _moved(marginals, normal, rows, scores, size)
    first = None
    for _ in range(N_STEPS):
        sums, log_likelihood = em.e_step(prepare(normal), scores)
        first = log_likelihood if first is None else first
        sums = sums.shifted(normal.mean, rows.total)
        pairs = zip(state.moments, sums, strict=True)
        moments = Moments(*(torch.lerp(a, b / rows.total, size) for a, b in pairs))
        normal = _maximised(moments, total, strength)
    return Online(normal, marginals, moments, total), first


def _maximised(moments: Moments, total: Tensor, strength: float) -> Normal:
    """Compute mean and covariance from average moments around 0."""
    zero = Normal(torch.zeros_like(moments.first), moments.second)
    sums = Moments(*(total * part for part in moments))
    return em.maximise(zero, sums, total, strength)


def _moved(
    marginals: PiecewiseLinear, normal: Normal, rows: Rows, scores: Rows, size: Tensor
) -> PiecewiseLinear:
    """Average the shares of rows below each knot."""
    knots, inner = marginals.knots[:, 1:-1], marginals.scores[:, 1:-1]
    below = observed_below(knots, rows) + expected_below(inner, normal, scores)
    share = torch.lerp(torch.special.ndtr(inner), below / rows.total, size)
    moved = with_tails(knots, torch.special.ndtri(share))
    moved = choose(nonlinear_columns(marginals), moved)
    return moved._replace(low=marginals.low, high=marginals.high)


# ----------------------------------------
# Online EM of `GaussianImputer.partial_fit`, from what a fit stores.


def state_of(model, stored):
    """Make the state of online EM from a `CopulaModel` and what `stored` returned."""
    first, second, total = map(torch.from_numpy, stored)
    moments = Moments(first, second)
    return Online(model.normal, model.model.marginals, moments, total)


def stored(state):
    """Convert the moments of a state and its weight to arrays, for skops."""
    return tuple(part.numpy() for part in (*state.moments, state.total))


def learned(model, state, nodes, weights, strength):
    """Learn from rows.

    `model` (CopulaModel), `state` (online.Online).  `nodes` (n, n_model_columns): rows
    with an observed cell.  `weights` (n,): positive.  `strength`: of the prior, in
    rows.  Returns `model` (CopulaModel); `state` (online.Online); `loss`, negative
    log-likelihood of a row, before it was learned; `rows` (Rows).
    """
    rows = Rows(model.units.scaled(nodes), torch.from_numpy(weights))
    state, log_likelihood = updated(state, rows, strength)
    changed = model.model._replace(normal=state.normal, marginals=state.marginals)
    loss = -float(log_likelihood / rows.total)
    return model._replace(model=changed), state, loss, rows


def for_draws(state, rows, strength, most):
    """Select the rows of a table by which the parameters are drawn, at most `most`."""
    some = slice(most)
    part = Rows(rows.data.take(some), rows.weights[some])
    if state.marginals is not None:
        part = part.mapped(partial(scores_of, state.marginals))
    return part.data, part.weights, strength, float(state.total)


def check_can_continue(is_mixed, has_state):
    """Raise an error if `partial_fit` cannot go on from a fit."""
    if is_mixed:
        raise ValueError(
            "partial_fit cannot learn from categories. Use fit with all rows, or "
            "categorical_features=None if the categories are whole numbers."
        )
    if not has_state:
        raise ValueError(
            "partial_fit cannot go on from a fit to limits of cells or to constant "
            "columns alone. Use fit with all rows."
        )
