"""Cells as scores and back: exact, monotone, and with the slopes of a density."""

import numpy as np
import pytest
import torch

from skvnce._core.distributions.cells import Cells, Families
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import nearest
from skvnce.gaussian import marginals
from skvnce.gaussian.marginals import CellScores, repeated_values

N, NONE = 300, torch.zeros(0, dtype=torch.long)
COUNTS = np.array([0, 1, 2, 3, 5, 8, 13])  # of column 1
GRADES = np.array([0.1, 0.7, 1.0]) * 3  # of column 2
PAIR = np.array([-7.3, 1e3])  # of column 3


@pytest.fixture
def X(rng):
    """Make a skewed column, and three whose values repeat; some cells are missing."""
    columns = [np.exp(rng.normal(3, 0.8, N))]
    columns += [rng.permutation(np.resize(v, N)) for v in (COUNTS, GRADES, PAIR)]
    X = np.stack(columns, 1)
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    return X


def made(X, bend):
    raw = Incomplete.from_array(X)
    location, scale = (torch.tensor(f(X, 0)) for f in (np.nanmean, np.nanstd))
    scaled = Incomplete.from_array((X - location.numpy()) / scale.numpy())
    bent = marginals.start(scaled, torch.ones(len(X)).double()) if bend else None
    return CellScores(location, scale, bent, *repeated_values(raw)), raw


@pytest.fixture(params=[False, True], ids=["straight", "bent"])
def scores(request, X):
    return made(X, request.param)[0]


@pytest.fixture
def data(X):
    return Incomplete.from_array(X)


def test_columns_whose_values_repeat_are_found(data, seed):
    rounded, values = repeated_values(data)
    assert rounded.tolist() == [1, 2, 3]
    for row, known in zip(values.numpy(), (COUNTS, GRADES, PAIR), strict=True):
        padded = np.pad(known, (0, len(COUNTS) - len(known)), mode="edge")
        np.testing.assert_array_equal(row, padded)


def test_half_of_the_cells_must_share_their_value():
    x = torch.arange(10.0)[:, None].repeat(1, 4).double()
    x[:4, 0] = 0.5  # 4 of 10
    x[:5, 1] = 0.5  # 5 of 10
    x[:, 2] = 3.0  # one value is none
    x[:3, 3], x[3:6, 3] = 0.5, 7.0  # 7 of 10 with the one that is 7 already
    seen = torch.ones(10, 4).bool()
    rounded, values = repeated_values(Incomplete(x, seen))
    assert rounded.tolist() == [1, 3]
    assert values.tolist() == [[0.5, 5, 6, 7, 8, 9], [0.5, 6, 7, 8, 9, 9]]
    seen[0, 1] = False  # 4 of 9: what is missing does not count
    assert repeated_values(Incomplete(x, seen))[0].tolist() == [3]
    seen[:] = False
    assert repeated_values(Incomplete(x, seen))[0].tolist() == []


def test_cells_come_back(scores, data):
    back = scores.cells(scores.scores(data)[0].x)
    close, exact = (data.observed.clone() for _ in range(2))
    close[:, 1:], exact[:, 0] = False, False
    torch.testing.assert_close(back[close], data.x[close], rtol=1e-10, atol=1e-10)
    assert torch.equal(back[exact], data.x[exact])  # to the last digit


def test_scores_increase_with_cells(scores, data):
    x = torch.linspace(-50, 200, 501).double()[:, None].expand(-1, 4)
    found, _ = scores.scores(Incomplete(x, torch.ones_like(x).bool()))
    rising = found.x.diff(dim=0)
    assert (rising[:, 0] > 0).all()
    assert (rising >= 0).all()  # rounded cells count as the nearest known value
    for j, known in ((1, COUNTS), (2, GRADES), (3, PAIR)):
        assert len(found.x[:, j].unique()) <= len(known)
    grid = torch.linspace(-5, 5, 501).double()[:, None].expand(-1, 4)
    rising = scores.cells(grid).diff(dim=0)
    assert (rising >= 0).all() and (rising[:, 0] > 0).all()


def test_slopes_are_those_of_finite_differences(scores, data):
    found, slopes = scores.scores(data)
    step = 1e-6
    moved, _ = scores.scores(Incomplete(data.x + step, data.observed))
    slope = ((moved.x - found.x) / step).log()
    smooth = (slope[:, 0] * data.observed[:, 0]).nan_to_num()
    close = (slopes - smooth).abs() < 1e-4
    assert close.double().mean() > 0.95  # but next to a knot
    if scores.marginals is None:
        torch.testing.assert_close(slopes, -scores.scale[0].log() * data.observed[:, 0])
    none = data.observed[:, 0].logical_not()  # rounded columns have no slope
    assert (slopes[none] == 0).all() and none.any() and (slopes[~none] != 0).all()


def test_edges_lie_between_values(scores):
    values, edges = scores.values_and_edges()
    assert edges.shape == (3, len(COUNTS) + 1)
    for row, ends, known in zip(values, edges, (COUNTS, GRADES, PAIR), strict=True):
        n = len(known)
        for part in (row[:n], ends[: n + 1]):
            assert (part.diff() > 0).all()
        assert (ends[:n] < row[:n]).all() and (row[:n] < ends[1 : n + 1]).all()
        assert (row[n:] == row[n - 1]).all() and (ends[n + 1 :] == ends[n]).all()
        # the outermost reach as far out as in
        torch.testing.assert_close(row[0] - ends[0], ends[1] - row[0])
        torch.testing.assert_close(ends[n] - row[n - 1], row[n - 1] - ends[n - 1])


def test_edges_are_where_cells_change(scores):
    """In cells they are the midpoints; and the model rounds where the cells do."""
    values, edges = scores.values_and_edges()
    families = Families(NONE, NONE, scores.rounded, torch.zeros(0, 2), values, edges)
    for row, known in enumerate((COUNTS, GRADES, PAIR)):
        for k in range(1, len(known)):
            score = torch.zeros(2, 4).double()
            score[:, row + 1] = edges[row, k] + torch.tensor([-1e-9, 1e-9]).double()
            expected = known[k - 1 : k + 1].tolist()
            assert scores.cells(score)[:, row + 1].tolist() == expected
            near = families.nearest(score[:, 1:])[:, row]
            assert torch.equal(near, values[row, k - 1 : k + 1])


def test_observed_cells_have_the_probability_of_their_value(X, seed):
    """Through scores, edges and the model: columns of two values and of more."""
    scores, data = made(X, bend=True)
    values, edges = scores.values_and_edges()
    families = Families(NONE, NONE, scores.rounded, torch.zeros(0, 2), values, edges)
    found, _ = scores.scores(data)
    place = families.places(found.x[:, 1:])
    seen, cells = data.observed[:, 1:], data.x[:, 1:]
    assert torch.equal(scores.values[torch.arange(3), place][seen], cells[seen])
    cells = Cells(torch.zeros(4).double(), torch.ones(4).double(), families)
    inside = torch.special.ndtr(edges).diff(dim=1).gather(1, place.T).T
    log_prob = cells.log_prob(found.x)[:, 1:]
    torch.testing.assert_close(log_prob.exp(), inside)


def test_the_nearest_value():
    values = torch.tensor([[0.0, 1.0, 5.0], [2.0, 3.0, 3.0]]).double()
    x = torch.tensor([[-9.0, 9.0], [0.49, 2.4], [0.51, 2.6], [4.0, -9.0]]).double()
    expected = torch.tensor([[0.0, 3.0], [0.0, 2.0], [1.0, 3.0], [5.0, 2.0]]).double()
    assert torch.equal(nearest(values, x), expected)
    assert torch.equal(nearest(values, x.expand(2, 4, 2)), expected.expand(2, 4, 2))
