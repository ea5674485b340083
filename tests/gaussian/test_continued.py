"""Marginals that are continued with all rows against those fitted to all rows."""

import numpy as np
import pytest
import torch

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.patterns import Parts, Rows, grouped
from skvnce._core.incomplete import Incomplete
from skvnce.gaussian import em, marginals
from skvnce.gaussian.copula import continue_marginals

N, D = 1500, 3


@pytest.fixture
def data(seed):
    """Make a table of which the first column is skewed, and the third rounded."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 1)) + rng.normal(size=(N, D))
    X[:, 0], X[:, 2] = np.exp(X[:, 0] / 2), np.round(X[:, 2])
    X[rng.random(X.shape) < 0.3] = np.nan
    return Incomplete.from_array((X - np.nanmean(X, 0)) / np.nanstd(X, 0))


def rows_of(data, some=slice(None)):
    part = data.take(some)
    return Rows(part, torch.linspace(0.5, 1.5, N).double()[some])


def begin(data):
    """Fit to some of the rows."""
    few = rows_of(data, slice(300))
    lines = marginals.start(few.data, few.weights)
    normal = Normal(torch.zeros(D).double(), torch.eye(D).double())
    return marginals.fit_marginals(few, 0.3, lines, normal, tol=1e-2)


def in_parts(data):
    def reduce(of, merge):
        one, *others = (of(rows_of(data, s)) for s in (slice(400), slice(400, N)))
        return merge(one, *others)

    return Parts(reduce, rows_of(data).total)


def test_it_ends_where_a_fit_to_all_rows_ends(data):
    lines, normal = begin(data)
    whole = rows_of(data)
    wanted = marginals.fit_marginals(whole, 0.3, lines, normal, tol=1e-9)
    for table in (whole, in_parts(data)):
        found = continue_marginals(table, 0.3, lines, normal, tol=1e-9)
        torch.testing.assert_close(found[0].scores, wanted[0].scores, atol=1e-6, rtol=0)
        torch.testing.assert_close(found[1].mean, wanted[1].mean, atol=1e-4, rtol=0)
    assert (lines.scores - wanted[0].scores).abs().max() > 0.01  # negative control


def test_parts_give_what_rows_give(data):
    lines, normal = begin(data)
    one = continue_marginals(rows_of(data), 0.3, lines, normal, tol=1e-2)
    other = continue_marginals(in_parts(data), 0.3, lines, normal, tol=1e-2)
    for part, same in zip(
        (*one[0][:2], *one[1]), (*other[0][:2], *other[1]), strict=True
    ):
        torch.testing.assert_close(part, same, atol=1e-12, rtol=1e-12)


def test_scores_by_ramps_are_those_by_pieces(data):
    lines, _ = begin(data)
    found = marginals.scores_of(lines, data).x
    torch.testing.assert_close(found, marginals.scored(lines, data)[0].x)
    assert (found - data.x).abs().max() > 0.1  # negative control


def test_shares_below_knots(data):
    """By definition, and the missing cells by the moments of each row."""
    lines, normal = begin(data)
    knots, inner = lines.knots[:, 1:-1].clone(), lines.scores[:, 1:-1]
    knots[2, 4] = data.x[data.observed[:, 2], 2][0]  # upon cells
    rows = rows_of(data)
    seen = (data.observed * rows.weights[:, None])[:, :, None]
    below = (data.x[:, :, None] < knots) + 0.5 * (data.x[:, :, None] == knots)
    found = marginals.observed_below(knots, rows)
    torch.testing.assert_close(found, (seen * below).sum(0))
    mean, deviation = em.conditional_moments(normal, data)
    lost = (~data.observed * rows.weights[:, None])[:, :, None]
    t = (inner - mean[:, :, None]) / deviation.clamp(min=em.LEAST_DEVIATION)[:, :, None]
    wanted = (lost * torch.special.ndtr(t)).sum(0)
    torch.testing.assert_close(marginals.expected_below(inner, normal, rows), wanted)
    assert {group.by_observed for group in grouped(*data)} == {True, False}
