"""Missingness mechanisms of data frames with categories, and what `hide` keeps."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from statistical import FAILURE, p_share

from skvnce.missingness import hide, mar, mcar, mnar

GRADES = ["low", "middle", "high", "highest"]
MECHANISMS = [mcar, mar, mnar]


def mixed(n=12):
    """Return a frame with a column of each data type, the levels in no order."""
    places = np.arange(n) % 3
    grade = pd.Categorical(np.take(GRADES, places), GRADES, ordered=True)
    return pd.DataFrame(
        {
            "grade": grade,
            "age": np.linspace(20, 60, n),
            "n_children": places,
            "cars": pd.array(places, dtype="Int64"),
            "smokes": places > 0,
            "insured": pd.array(places > 1, dtype="boolean"),
            "town": pd.Categorical(np.take(["S", "C", "Q"], places), ["S", "Q", "C"]),
            "street": np.take(["b", "a", "c"], places).astype(object),
            "day": pd.date_range("2024-01-01", periods=n),
            "wait": pd.to_timedelta(np.arange(n), unit="h"),
        },
        index=[f"row {i}" for i in range(n)],
    )


def in_polars(frame):
    """Convert the frame, with an Enum of the grades."""
    grade = pl.Series("grade", frame["grade"].tolist(), dtype=pl.Enum(GRADES))
    return pl.from_pandas(frame).with_columns(grade)


def missing(X):
    """Return which cells of a frame are missing."""
    if isinstance(X, pl.DataFrame):
        return np.column_stack([column.is_null().to_numpy() for column in X])
    return X.isna().to_numpy()


masks = hnp.arrays(bool, (12, 10))


@settings(max_examples=15)
@given(masks)
def test_hide_keeps_a_frame_of_pandas(hidden):
    X = mixed()
    kept = X.copy()
    out = hide(X, hidden)
    np.testing.assert_array_equal(missing(out), hidden)
    changed = {"n_children": "float64", "smokes": "boolean"}
    assert out.dtypes.to_dict() == X.astype(changed).dtypes.to_dict()
    assert list(out["grade"].cat.categories) == GRADES
    pd.testing.assert_frame_equal(
        out.where(~hidden, X.astype(changed)), X.astype(changed)
    )
    pd.testing.assert_frame_equal(X, kept)


@settings(max_examples=15)
@given(masks)
def test_hide_keeps_a_frame_of_polars(hidden):
    X = in_polars(mixed())
    out = hide(X, hidden)
    assert isinstance(out, pl.DataFrame)
    assert out.schema == X.schema
    np.testing.assert_array_equal(missing(out), hidden)
    for name in X.columns:
        seen = out[name].is_not_null()
        assert out[name].filter(seen).to_list() == X[name].filter(seen).to_list()


def test_hide_keeps_what_is_missing():
    X = mixed().astype({"n_children": float, "smokes": "boolean"})
    X.iloc[0] = None
    out = hide(X, np.eye(12, 10, 1, dtype=bool))
    expected = np.eye(12, 10, 1, dtype=bool)
    expected[0] = True
    np.testing.assert_array_equal(missing(out), expected)


def test_hide_keeps_what_is_missing_in_a_dictionary_of_pyarrow():
    cells = ["a", "b", None, "a"]
    dtype = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    X = pd.DataFrame({"x": range(4), "town": pd.Series(cells, dtype=dtype)})
    out = hide(X, np.array([[False, True], [True, False], *[[False, False]] * 2]))
    assert out["town"].isna().tolist() == [True, False, True, False]
    assert out["town"][[1, 3]].tolist() == ["b", "a"] and out["town"].dtype == dtype
    assert X["town"].isna().tolist() == [False, False, True, False]


def test_hide_of_an_array_of_objects():
    X = np.array([["a", 1], [None, 2]], dtype=object)
    out = hide(X, [[False, True], [False, False]])
    assert out.dtype == object and out[0, 0] == "a" and np.isnan(out[0, 1])
    assert out[1].tolist() == [None, 2]
    assert X[0, 1] == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_pandas_and_polars_have_the_same_masks(mechanism):
    X = mixed()
    arguments = {} if mechanism is not mar else {"drivers": ["grade", "town", "day"]}
    expected = mechanism(X, 0.4, random_state=5, **arguments)
    found = mechanism(in_polars(X), 0.4, random_state=5, **arguments)
    np.testing.assert_array_equal(found, expected)
    assert expected.any()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_missing_categories_are_never_marked(mechanism):
    X = mixed(60)
    X.loc[X.index[:30], ["cars", "insured", "town", "street", "wait"]] = None
    arguments = {} if mechanism is not mar else {"drivers": ["grade", "age"]}
    hidden = mechanism(X, 0.9, random_state=0, **arguments)
    assert not hidden[missing(X)].any()
    assert hidden[~missing(X)].mean() > 0.5


def test_without_strength_categories_are_hidden_at_random():
    X = mixed(60)
    expected = mcar(X, 0.3, random_state=7)
    np.testing.assert_array_equal(mnar(X, 0.3, strength=0, random_state=7), expected)
    expected[:, 6] = False
    found = mar(X, 0.3, drivers="town", strength=0, random_state=7)
    np.testing.assert_array_equal(found, expected)


def test_higher_levels_of_ordinal_columns_are_hidden_more_often():
    X = mixed(60)[["grade", "smokes"]]
    hidden = mnar(X, [1 / 3, 2 / 3], strength=1e6, random_state=0)
    np.testing.assert_array_equal(hidden[:, 0], X["grade"] == "high")
    np.testing.assert_array_equal(hidden[:, 1], X["smokes"])
    hidden = mar(X, 1 / 3, drivers="grade", strength=1e6, random_state=0)
    np.testing.assert_array_equal(hidden[:, 1], X["grade"] == "high")


def test_the_seed_orders_the_levels_of_nominal_columns():
    # A threshold hides one level of three; each one at a third of the seeds.
    X = mixed(30)[["town", "street"]]
    counts = dict.fromkeys("SCQ", 0)
    for seed in range(120):
        hidden = mnar(X, 1 / 3, strength=1e6, random_state=seed)
        (level,) = set(X["town"][hidden[:, 0]])
        assert (hidden[:, 0] == (X["town"] == level)).all()
        counts[level] += 1
    assert p_share(list(counts.values()), 120, 1 / 3) > FAILURE
    # the order of the rows does not matter
    hidden = mnar(X, 1 / 3, strength=1e6, random_state=3)
    turned = mnar(X[::-1], 1 / 3, strength=1e6, random_state=3)
    np.testing.assert_array_equal(turned, hidden[::-1])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_any_number_of_levels(n_levels, seed):
    X = pd.DataFrame({"a": [f"level {i}" for i in range(n_levels)]})
    hidden = mnar(X, 0.5, random_state=seed)
    np.testing.assert_array_equal(missing(hide(X, hidden)), hidden)


@pytest.mark.parametrize(
    "X, message",
    [
        (pd.DataFrame({"a": ["x", 1]}), "Column 'a' has text and other objects: 'x'"),
        (pd.DataFrame([["x", 1]], columns=["a", "a"]), "2 columns named 'a'. Rename"),
        (mixed()[:0], r"X must have at least one row, got shape \(0, 10\)"),
        (pd.DataFrame({"a": [["x"], ["y"]]}), "in column 'a', row 0"),
        (mixed()[["town"]].assign(day=pd.Period("2024-01")), "in column 'day', row 0"),
    ],
)
def test_errors_name_the_column(X, message):
    for call in (lambda: mcar(X, 0.1), lambda: hide(X, np.zeros(X.shape, dtype=bool))):
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_drivers_that_are_categories_must_be_complete():
    X = mixed()
    X.loc["row 3", "town"] = None
    with pytest.raises(ValueError, match=r"columns \[6\] of X with missing cells"):
        mar(X, 0.1, drivers="town")
