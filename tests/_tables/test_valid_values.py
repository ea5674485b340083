"""What the values of each column can be."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from skvnce import GaussianImputer
from skvnce._tables.schema import Schema
from skvnce._tables.values import valid_values, within


def learnt(X, *bounds):
    estimator = BaseEstimator()
    X = validate_data(estimator, X, ensure_all_finite="allow-nan", dtype=np.float64)
    names = getattr(estimator, "feature_names_in_", None)
    return valid_values(Schema(X.shape[1], names), X, *bounds)


@pytest.fixture
def frame(rng):
    frame = pd.DataFrame(
        {
            "continuous": rng.normal(size=200),
            "positive": rng.exponential(size=200),
            "grade": rng.integers(5, size=200).astype(float),
            "count": 1000 + rng.permutation(200).astype(float),
            "empty": np.nan,
        }
    )
    frame.iloc[::7, :4] = np.nan
    return frame


def test_ranges_of_the_rule(frame):
    found = learnt(frame)
    expected = [[-np.inf, 0.0, 0.0, 0.0, 0.0], [np.inf, np.inf, 4.0, np.inf, 0.0]]
    np.testing.assert_array_equal(found.ranges, expected)
    assert not found.by_user.any()
    assert found.integers.tolist() == [False, False, True, True, False]
    assert found.codes.tolist() == [False, False, True, False, False]
    np.testing.assert_array_equal(found.values[2], np.arange(5.0))
    assert list(found.values) == [2]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_that_many_cells_have_is_an_end(seed, sign):
    x = sign * np.random.default_rng(seed).normal(50, 20, size=300)
    many, few = x.copy(), x.copy()
    order = np.argsort(sign * x)
    many[order[-20:]] = few[order[-3:]] = sign * 101.0
    ends = [learnt(one[:, None]).ranges[int(sign > 0), 0] for one in (many, few)]
    assert ends[0] == sign * 101.0
    assert np.isinf(ends[1])


def grid(n_values, step, n=400):
    """Return all of some multiples of a step, which repeat."""
    return np.resize(np.arange(n_values) - 3, n)[:, None] * step


@pytest.mark.parametrize("step", [1.0, 0.1, 0.2, 0.25, 0.5, 5.0])
def test_repeated_values_stay_on_their_grid_beyond_all(step):
    found = learnt(np.round(grid(30, step), 6))
    cells = step * np.array([[-40.3], [2.6], [31.4], [99.0]])
    moved = found.rounded(cells, [0])[:, 0]
    expected = np.round(step * np.array([-40.0, 3.0, 31.0, 99.0]), 6)
    np.testing.assert_array_equal(moved, expected)


@pytest.mark.parametrize(
    "step, offset", [(10.0, 3.0), (7.0, 0.0), (0.7, 0.2), (1, 0.7)]
)
def test_grids_have_any_step_and_offset(step, offset):
    found = learnt(np.round(grid(30, step) + offset, 6))
    cells = offset + step * np.array([[-40.3], [2.6], [31.4], [99.0]])
    expected = np.round(offset + step * np.array([-40.0, 3.0, 31.0, 99.0]), 6)
    np.testing.assert_array_equal(found.rounded(cells, [0])[:, 0], expected)
    bounded = learnt(np.round(grid(30, step) + offset, 6), -10 * step, 40 * step)
    ends = bounded.rounded(1000 * step * np.array([[-1.0], [1.0]]), [0])[:, 0]
    first, last = np.ceil(-10 - offset / step), np.floor(40 - offset / step)
    np.testing.assert_allclose(ends, offset + step * np.array([first, last]))


def test_grids_of_thirds_keep_their_digits():
    found = learnt(grid(30, 1.0) / 3)
    cells = found.rounded(np.array([[-40.3], [200.2]]) / 3, [0])[:, 0]
    np.testing.assert_array_equal(cells, np.array([-40.0, 200.0]) / 3)


@pytest.mark.parametrize("step", [1.0, 0.1])
def test_few_repeated_values_are_codes(step):
    X = np.round(grid(10, step), 6)
    assert learnt(X).codes[0] and not learnt(np.round(grid(11, step), 6)).codes[0]
    moved = learnt(X).rounded(np.array([[-99.0], [2.2 * step], [99.0]]), [0])
    expected = np.round(step * np.array([-3.0, 2.0, 6.0]), 6)
    np.testing.assert_array_equal(moved[:, 0], expected)


def test_bounds_of_codes_are_obeyed_but_for_two_values():
    X = np.column_stack([grid(5, 1.0)[:, 0], np.resize([0.0, 1.0], 400)])
    found = learnt(X, -10.0, 400.0)
    cells = np.array([[-12.0, -9.0], [5.3, 3.0], [500.0, 0.6]])
    moved = found.rounded(cells, [0, 1])
    np.testing.assert_array_equal(moved, [[-10.0, 0.0], [5.0, 1.0], [400.0, 1.0]])
    above = learnt(X, None, 400.0).rounded(cells, [0, 1])[:, 0]
    np.testing.assert_array_equal(above, [-3.0, 5.0, 400.0])


def test_values_without_a_grid_are_left_alone_beyond_all(seed):
    x = np.random.default_rng(seed).exponential(size=(400, 1))
    x[::2] = 0.7  # in the middle, and repeated
    found = learnt(x)
    assert not found.grid[0] and 0 in found.values
    far, near = x.max() + 1.2345, np.sort(x[:, 0])[[3, 4]].mean()
    moved = found.rounded(np.array([[far], [near]]), [0])[:, 0]
    assert moved[0] == far
    assert moved[1] in x


@pytest.mark.parametrize(("n_shared", "repeated"), [(48, False), (50, True)])
def test_half_of_the_cells_share_their_value(n_shared, repeated):
    x = np.arange(100) / 7
    x[:n_shared] = np.repeat(x[: n_shared // 2], 2)
    found = learnt(x[:, None])
    assert list(found.values) == ([0] if repeated else [])
    assert found.high[0] == np.inf


@pytest.mark.parametrize(
    ("bounds", "end"), [((2.0, 5.0), 2.0), ((-9.0, -3.0), -3.0), ((-1.0, 1.0), 0.0)]
)
def test_an_empty_column_has_the_possible_value_next_to_zero(bounds, end):
    X = np.column_stack([np.arange(5.0), np.full(5, np.nan)])
    found = learnt(X, {1: bounds[0]}, {1: bounds[1]})
    assert found.ranges[:, 1].tolist() == [end, end]
    assert found.rounded(np.full((1, 1), 7.0), [1]) == end


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_are_compared_in_the_precision_of_the_cells(sign):
    """0.1 in single precision is above 0.1 in double precision."""
    X = sign * np.array([[0.01], [0.04], [0.1]], dtype=np.float32)
    bounds = (None, 0.1) if sign > 0 else (-0.1, None)
    found = valid_values(Schema(1), X, *bounds)
    assert found.ranges[int(sign > 0), 0] == sign * 0.1
    with pytest.raises(ValueError, match="below its min_value|above its max_value"):
        valid_values(Schema(1), 1.001 * X, *bounds)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_error_quotes_only_the_bound_that_was_given(sign):
    X = sign * np.array([[1.0], [2.0], [-0.5]])
    bounds = (0, None) if sign > 0 else (None, 0)
    with pytest.raises(ValueError) as caught:
        valid_values(Schema(1), X, *bounds)
    given, other = ("min_value", "max_value")[::sign]
    assert f"its {given} 0.0. Correct {given}" in str(caught.value)
    assert other not in str(caught.value)
    assert "2.0" not in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ((0.5, 9), 0.5, 9),
        ((None, "observed"), 0.0, 4.0),
        (({"a": -3}, {"b": 1e9}), -3.0, np.inf),
        (([-1, None], [5, 99]), -1.0, 5.0),
        ((-np.inf, np.inf), -np.inf, np.inf),
        ((np.array(0.5), np.float32(9)), 0.5, 9),
        (({"a": np.array(-1)}, [np.array(5.0), np.array(None)]), -1.0, 5.0),
        ((np.array(0), np.array("observed")), 0.0, 4.0),
    ],
)
def test_vocabulary_of_bounds(bounds, low, high):
    table = pd.DataFrame({"a": [1.0, 2.5, 4.0, np.nan], "b": [7.0, 8.0, 9.0, 3.0]})
    found = learnt(table, *bounds)
    assert (found.low[0], found.high[0]) == (low, high)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        (({"c": 1}, None), ValueError, "min_value has the key 'c'"),
        ((None, {"a": "seen"}), ValueError, r"max_value\['a'\] must be a number"),
        (([1, 2, 3], None), ValueError, "min_value must be a number or 2 numbers"),
        ((np.nan, None), ValueError, "min_value must not be NaN"),
        ((True, None), TypeError, "min_value must be a number"),
        ((np.array(True), None), TypeError, "min_value must be a number"),
        ((np.array(0j), None), TypeError, "min_value must be a number"),
        ((np.array(np.nan), None), ValueError, "min_value must not be NaN"),
        ((None, object()), TypeError, "max_value must be a number"),
        ((2, 1), ValueError, "min_value must be below max_value, got 2.0 and 1.0"),
        ((2, None), ValueError, "X has 1.0 in column 'a', row 0, below its min"),
        ((None, [[9] * 2]), ValueError, "max_value must be a number or 2 numbers"),
        (("observed", {"a": -9}), ValueError, "below max_value, got .* for column 'a'"),
        ((None, {"a": -np.inf}), ValueError, "above its max_value -inf"),
    ],
)
def test_bad_bounds_are_named(bounds, error, message):
    table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [7.0, 8.0, 9.0]})
    with pytest.raises(error, match=message):
        learnt(table, *bounds)


def test_possible_moves_to_values_integers_and_ranges():
    table = np.array([[0.0, 1.0, 0.1], [0.0, 5.0, 0.2], [1.0, 9.0, 0.3]])
    found = learnt(table, None, "observed")
    cells = np.array([[0.4, 3.4, 7.0], [0.6, 99.0, 0.25]])
    expected = [[0.0, 3.0, 0.3], [1.0, 9.0, 0.25]]
    np.testing.assert_array_equal(found.rounded(cells, [0, 1, 2]), expected)
    assert cells[0, 0] == 0.4


def test_integers_are_not_rounded_out_of_the_range():
    found = learnt(np.array([[1.0], [5.0], [9.0], [12.0]]), 0.6, 12.7)
    moved = found.rounded(np.array([[-3.0], [0.7], [12.6], [99.0]]), [0])
    np.testing.assert_array_equal(moved[:, 0], [1.0, 1.0, 12.0, 12.0])


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 20), st.integers(1, 4)),
        elements=st.floats(allow_nan=True, allow_infinity=False, width=64),
    )
)
def test_observed_cells_are_possible(X):
    found = learnt(X)
    inside = np.isnan(X) | ((found.low <= X) & (found.high >= X))
    assert inside.all()
    moved = found.rounded(np.nan_to_num(X), range(X.shape[1]))
    same = (moved == X) | np.isnan(X)
    assert same.all()


def test_bounds_of_a_series_go_by_its_labels():
    X = pd.DataFrame({"a": [0.0, 1.0, np.nan], "b": [5.0, np.nan, 7.0]})
    lower = pd.Series({"b": -100.0, "a": -6.0})
    found = GaussianImputer(min_value=lower).fit(X).feature_ranges_
    np.testing.assert_array_equal(found[0], [-6.0, -100.0])
    with pytest.raises(ValueError, match=r"min_value has the key 'c', no column of X"):
        GaussianImputer(min_value=pd.Series({"c": 1.0})).fit(X)


@pytest.mark.filterwarnings("ignore:Entirely missing")
def test_bounds_of_empty_columns_are_in_order():
    X = np.column_stack([np.arange(5.0), np.full(5, np.nan)])
    imputer = GaussianImputer(min_value={1: 5.0}, max_value={1: 1.0})
    with pytest.raises(ValueError, match="min_value must be below max_value, got 5"):
        imputer.fit(X)


@pytest.mark.parametrize("offset", [1e15, -1e15])
def test_columns_without_digits_to_learn_from_are_named(offset):
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[:, 0] += offset
    X[0, 0] = np.nan
    with pytest.warns(UserWarning, match="column 0 varies by less .* Subtract"):
        imputer = GaussianImputer().fit(X)
    filled = imputer.transform(X)[0, 0]
    below = (X[1:, 0] < filled).mean()
    assert filled in X[1:, 0] and 0.3 <= below <= 0.5


def test_rows_twice_count_once_whatever_their_bits():
    X = np.random.default_rng(0).normal(size=(20, 2))
    X[0, 0], X[5, 1] = 0.0, np.nan
    again = X.copy()
    again[0, 0], again[5, 1] = -0.0, -again[5, 1]
    once, twice = learnt(X), learnt(np.vstack([X, again]))
    np.testing.assert_array_equal(once.ranges, twice.ranges)
    assert once.values == twice.values == {}


def test_cells_of_single_precision_stay_within_the_range():
    X = np.random.default_rng(0).uniform(size=(9, 40))
    found = learnt(X, "observed", "observed")
    moved = found.converted(found.ranges, np.arange(40), np.float32)
    assert moved.dtype == np.float32
    assert (moved >= found.low).all() and (moved <= found.high).all()
    assert (found.ranges.astype(np.float32) < found.low).any()  # control
    low, high = within(np.full((2, 1), 0.1), np.float32)  # no number is inside
    assert low == high == np.float32(0.1)
