"""Parts that differ between two readings are an error, and rounding is not."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from cases import quick_gaussian
from sklearn.base import clone

from _imputer.parts.test_large import most_rows, table  # noqa: F401
from skvnce import CopulaGraphLearner, GaussianImputer, IncompleteFactorAnalysis
from skvnce._imputer.parts import summary as large
from skvnce.options import Chunks

pytestmark = pytest.mark.usefixtures("short_training")
NORMAL = GaussianImputer(n_parameter_draws=0, random_state=0)
GRAPH = CopulaGraphLearner(random_state=0)
X = table()


def changing(change, first=1, start=X):
    """Make a part that is another one from the reading of number `first` on."""
    readings = iter(range(1000))
    return lambda: change() if next(readings) >= first else start


def noisy(scale):
    return X + scale * np.random.default_rng(0).normal(size=X.shape)


def with_fewer_cells():
    return np.where(np.arange(X.size).reshape(X.shape) == 77, np.nan, X)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("learner", "first"), [(NORMAL, 1), (NORMAL, 2), (NORMAL, 3), (GRAPH, 1)]
)
def test_changes_are_noticed_in_each_reading(learner, first, monkeypatch):
    """The second reading gathers rows; later ones are those of marginals and EM."""
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 1000)
    with pytest.raises(ValueError, match="Part 1 of X had 1500 rows .* and now 1499"):
        clone(learner).fit(Chunks([X, changing(lambda: X[1:], first)]))
    with pytest.raises(ValueError, match="Part 1 .* observed cells when .*fixed seed"):
        clone(learner).fit(Chunks([X, changing(with_fewer_cells, first)]))
    part = changing(partial(noisy, 1e-3), first)
    with pytest.raises(ValueError, match="Part 1 of X had sum .* in column 'x0' when"):
        clone(learner).fit(Chunks([X, part]))


def test_growing_parts_are_noticed():
    counter = iter(range(1000, 1500, 100))
    growing = Chunks([X[:500], lambda: X[: next(counter)]])
    with pytest.raises(ValueError, match="had 1[01]00 rows when it was first read"):
        GaussianImputer().fit(growing)


def test_rows_that_are_lost_in_a_round_are_noticed(most_rows):  # noqa: F811
    sizes = iter([1500, 1500] + [1400] * 100)
    with pytest.raises(ValueError, match="had 1500 rows .* now 1400"):
        GaussianImputer().fit(Chunks([lambda: X[: next(sizes)]]))


@pytest.mark.parametrize("learner", [NORMAL, GRAPH])
def test_rounding_is_no_change(learner, rng_0):
    part = changing(lambda: X * (1 + 1e-15 * rng_0.normal(size=X.shape)))
    assert clone(learner).fit(Chunks([X, part])).n_iter_


def test_columns_are_compared_one_by_one():
    """Large numbers in a column do not hide changes in others."""
    days = pd.date_range("2020-01-01", periods=len(X))

    def frame(cells):
        return pd.DataFrame(cells[:, 2:], columns=list("abc")).assign(day=days)

    part = changing(lambda: frame(noisy(1e-3)), first=2, start=frame(X))
    with pytest.raises(ValueError, match="in column 'a'"):  # levels are read first
        GaussianImputer(max_iter=10).fit(Chunks([frame(X), part]))
    swapped = changing(lambda: X[:, [1, 0, 2, 3, 4]])
    with pytest.raises(ValueError, match="in column 'x0'"):
        GaussianImputer().fit(Chunks([X, swapped]))


def test_rows_of_weight_zero_may_be_large(rng_0):
    cells, weights = rng_0.normal(size=(20_000, 3)), np.ones(20_000)
    cells[::2], weights[::2] = cells[::2] * 1e30, 0.0
    orders = iter([np.ascontiguousarray, np.asfortranarray] * 100)
    part = Chunks([lambda: next(orders)(cells)])
    weight = Chunks([weights])
    found = GaussianImputer(max_iter=5, tol=1e9).fit(part, sample_weight=weight)
    assert abs(found.mean_).max() < 0.1


def test_slices_of_a_large_part_are_compared_as_a_whole(monkeypatch):
    for name in ("_CELLS_AT_ONCE", "_SUMMARISED"):
        monkeypatch.setattr(large, name, 700)
    one, other = (quick_gaussian() for _ in range(2))
    one.fit(Chunks([X, X[:200]]))
    other.fit(np.concatenate([X, X[:200]]))
    np.testing.assert_allclose(one.covariance_, other.covariance_, rtol=1e-10)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "learner", [NORMAL, GRAPH, IncompleteFactorAnalysis(1, max_iter=50)]
)
@pytest.mark.filterwarnings("ignore:EM stopped")
def test_any_view_is_a_part(learner):
    frozen = X.copy()
    frozen.flags.writeable = False
    found = [
        clone(learner).fit(Chunks([view])).score(X)
        for view in (X, X[::-1][::-1], frozen, np.asfortranarray(X))
    ]
    np.testing.assert_allclose(found, found[0], rtol=1e-8)
    assert np.isfinite(clone(learner).fit(Chunks([X[::-1]])).score(X))
