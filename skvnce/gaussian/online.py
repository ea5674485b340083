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
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal, prepare
from skvnce._core.incomplete import Rows
from skvnce._imputer.determined import still_determined
from skvnce._imputer.parts.chunks import rows_in_memory
from skvnce._tables.model_columns import rows_with_data
from skvnce._tables.schema import Encoded, ends_of
from skvnce.gaussian import em, marginals
from skvnce.gaussian.em import Moments
from skvnce.gaussian.marginals import PiecewiseLinear

MOST_KEPT = 20_000  # rows of a stream by which its choices are made
_PART_KEPT = 5  # one of so many of the rows that a table in parts has in memory
POWER = 0.7  # of eq. (2)
N_STEPS = 2  # number of steps of EM for each chunk


class Online(NamedTuple):
    """The state of online EM after the chunks so far."""

    normal: Normal  # of scores
    marginals: PiecewiseLinear | None  # None if cells are scores
    moments: Moments  # s of eq. (1), relative to 0 and for rows of total weight 1
    total: Tensor  # (), weight of all rows so far


def start(fit: em.Fit, lines: PiecewiseLinear | None, total: Tensor) -> Online:
    """Begin with a fit to rows of weight `total`."""
    sums = fit.moments.shifted(fit.point.mean, total)
    average = Moments(*(part / total for part in sums))
    return Online(fit.normal, lines, average, total)


def update(state: Online, rows: Rows, strength: float) -> tuple[Online, Tensor]:
    """Learn from a chunk of rows.

    Returns `log_likelihood` (): of the scores of the chunk, before it was learned.
    """
    total = state.total + rows.total
    size = (rows.total / total) ** POWER
    scores, lines, normal = rows, state.marginals, state.normal
    if lines is not None:
        scores = Rows(marginals.scores_of(lines, rows.data), rows.weights)
        lines = _update_marginals(lines, normal, rows, scores, size)
    first = None
    for _ in range(N_STEPS):
        sums, log_likelihood = em.e_step(prepare(normal), scores)
        first = log_likelihood if first is None else first
        sums = sums.shifted(normal.mean, rows.total)
        pairs = zip(state.moments, sums, strict=True)
        moments = Moments(*(torch.lerp(a, b / rows.total, size) for a, b in pairs))
        normal = _maximise(moments, total, strength)
    return Online(normal, lines, moments, total), first


def _maximise(moments: Moments, total: Tensor, strength: float) -> Normal:
    """Compute mean and covariance from average moments around 0."""
    zero = Normal(torch.zeros_like(moments.first), moments.second)
    sums = Moments(*(total * part for part in moments))
    return em.maximise(zero, sums, total, strength)


def _update_marginals(
    lines: PiecewiseLinear, normal: Normal, rows: Rows, scores: Rows, size: Tensor
) -> PiecewiseLinear:
    """Average the shares of rows below each knot."""
    knots, inner = lines.knots[:, 1:-1], lines.scores[:, 1:-1]
    expected = marginals.expected_below(inner, normal, scores)
    below = marginals.observed_below(knots, rows) + expected
    share = torch.lerp(torch.special.ndtr(inner), below / rows.total, size)
    moved = marginals.with_tails(knots, torch.special.ndtri(share))
    moved = marginals.choose(marginals.nonlinear_columns(lines), moved)
    return moved._replace(low=lines.low, high=lines.high)


# ----------------------------------------
# Rows of a stream that are kept.
#
# A few rows do not show which marginals and how much shrinkage are best.  So the first
# rows of a stream are kept, and the fit is repeated with all rows so far when their
# number has doubled.  Beyond `MOST_KEPT` rows the choices are final.


class Stream(NamedTuple):
    """Rows of a stream, stored in the model of the estimator."""

    # (n_kept, n_features): as `incomplete_array` has returned them; each has an
    # observed cell
    rows: np.ndarray
    weights: np.ndarray  # (n_kept,): positive
    n_rows: int  # number of rows so far, those without a cell included
    n_fitted: int  # that number at the last fit

    @classmethod
    def of(cls, X, sample_weight=None):
        """Begin with a validated table, after a fit to it."""
        weights, has_cell = rows_with_data(X, sample_weight)
        return cls(X[has_cell], weights[has_cell], len(X), len(X))

    def followed_by(self, more: Self) -> Self:
        """Add new rows."""
        pairs = zip(self[:2], more[:2], strict=True)
        rows, weights = (np.concatenate(pair) for pair in pairs)
        return type(self)(rows, weights, self.n_rows + more.n_rows, self.n_fitted)

    @property
    def most(self):
        """The number of rows that are kept."""
        return min(MOST_KEPT, rows_in_memory(self.rows.shape[1]) // _PART_KEPT)

    @property
    def is_due(self):
        """Whether the fit is to be repeated."""
        return 2 * self.n_fitted <= self.n_rows <= self.most

    def refit(self, estimator, **fit_params):
        """Repeat the fit of an estimator; returns the stream after it."""
        # ranges are those of all rows so far, and not those of the first table
        schema = estimator._schema._replace(ends=ends_of(self.rows))
        estimator.fit(Encoded(self.rows, schema), **fit_params)
        return self._replace(n_fitted=self.n_rows)


def extend_ranges(schema, X):
    """Extend ranges and repeated values of columns to the cells of more rows.

    Raises ValueError if new cells are outside the user's bounds.
    """
    old, new = schema.ends, ends_of(X)
    ends = np.stack([np.fmin(old[0], new[0]), np.fmax(old[1], new[1])])
    values = schema.values.extended(schema, X, old, ends)
    schema = schema._replace(values=values, ends=ends)
    return schema._replace(determined=still_determined(schema, X))


# ----------------------------------------
# Online EM of `GaussianImputer.partial_fit`.


def learn(model, state, nodes, weights, strength):
    """Learn from rows.

    `model` (CopulaModel), `state` (online.Online).  `nodes` (n, n_model_columns): rows
    with an observed cell.  `weights` (n,): positive.  `strength`: of the prior, in
    rows.  Returns `model` (CopulaModel); `state` (online.Online); `loss`, negative
    log-likelihood of a row, before it was learned; `rows` (Rows).
    """
    rows = Rows(model.units.scaled(nodes), torch.from_numpy(weights))
    state, log_likelihood = update(state, rows, strength)
    changed = model.model._replace(normal=state.normal, marginals=state.marginals)
    loss = -float(log_likelihood / rows.total)
    return model._replace(model=changed), state, loss, rows


def for_draws(state, rows, strength, most):
    """Select the rows of a table by which the parameters are drawn, at most `most`."""
    part = Rows(rows.data.take(slice(most)), rows.weights[:most])
    if state.marginals is not None:
        part = part.mapped(partial(marginals.scores_of, state.marginals))
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
