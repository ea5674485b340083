"""Continue the fit of marginals and normal distribution to a sample with all rows.

The fit to the sample is near, so that a round updates both by one pass over the table:
an E-step of EM and the shares of cells below the knots, at the same parameters.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._progress import tell
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.gaussian.marginals import (
    PiecewiseLinear,
    add_expected,
    choose,
    nonlinear_columns,
    observed_below,
    scores_of,
    with_tails,
)
from skvnce.algorithms.gaussian.rows import Rows, Table
from skvnce.distributions.normal import FactoredNormal, Normal, prepare

_ROUNDS = 50  # maximum number of rounds


class _Sums(NamedTuple):
    """Sums over rows."""

    moments: em.Moments  # of scores
    # (features, n_knots), expected weights of missing cells below the knots
    below: Tensor


def _sums(marginals: PiecewiseLinear, factored: FactoredNormal, rows: Rows) -> _Sums:
    inner = marginals.scores[:, 1:-1]
    below = torch.zeros_like(inner)
    add = partial(add_expected, below, inner, factored)
    scores = rows.mapped(partial(scores_of, marginals))
    moments, _ = em.expected_moments(factored, scores.groups, rows.weights, add)
    return _Sums(moments, below)


def _first_sums(
    marginals: PiecewiseLinear, factored: FactoredNormal, rows: Rows
) -> tuple[_Sums, Tensor]:
    observed = observed_below(marginals.knots[:, 1:-1], rows)
    return _sums(marginals, factored, rows), observed


def continue_marginals(
    table: Table,
    strength: float,
    marginals: PiecewiseLinear,
    normal: Normal,
    *,
    tol: float,
) -> tuple[PiecewiseLinear, Normal]:
    """Update marginals and normal distribution, each from the same pass over a table.

    Parameters and results are those of `marginals.fit_marginals`.
    """
    use, total, observed = nonlinear_columns(marginals), table.total, None
    for n_round in range(1, _ROUNDS + 1):
        tell("round of marginals", n_round, _ROUNDS)
        given = marginals, prepare(normal)
        # counts of observed cells do not change with the parameters
        if observed is None:
            found, observed = table.summed(partial(_first_sums, *given))
        else:
            found = table.summed(partial(_sums, *given))
        share = torch.special.ndtri((observed + found.below) / total)
        moved = choose(use, with_tails(marginals.knots[:, 1:-1], share))
        change = float((moved.scores - marginals.scores).abs().max())
        normal = em.maximise(normal, found.moments, total, strength)
        marginals = moved
        if change < tol:
            break
    return marginals, normal
