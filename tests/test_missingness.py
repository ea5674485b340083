"""Masks of missing cells, of numbers and of categories."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal
from scipy.optimize import brentq
from scipy.special import expit
from statistical import FAILURE, p_share, standard_errors

from skvnce.missingness import _probability, hide, mar, mcar, mnar

# Missingness mechanisms: fractions, what the masks depend on, input handling


MECHANISMS = [mcar, mar, mnar]
LIMIT = standard_errors(10)  # a test compares with it ten times at most


@pytest.fixture
def X(seed):
    """Correlated columns: the last two are the first plus noise."""
    driver, *noise = np.random.default_rng([seed, 1]).standard_normal((3, 20_000))
    return np.column_stack([driver, driver + noise[0], driver + noise[1]])


def z_fraction(hidden, fraction):
    """Return the excess of hidden cells over its largest standard error."""
    return (hidden.mean() - fraction) / np.sqrt(fraction * (1 - fraction) / hidden.size)


def z_score_test(hidden, value, strength, fraction):
    """Test P(hidden) = expit(a + strength * value) by the derivative in strength."""
    a = brentq(lambda a: expit(a + strength * value).mean() - fraction, -50, 50)
    p = expit(a + strength * value)
    return (value * (hidden - p)).sum() / np.sqrt((value**2 * p * (1 - p)).sum())


# What is hidden, exactly


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_masks_are_nested_over_fractions(mechanism, X):
    masks = [mechanism(X[:500], f, random_state=7) for f in (0.0, 0.1, 0.3, 0.9)]
    assert not masks[0].any()
    for smaller, larger in zip(masks, masks[1:], strict=False):
        assert (smaller <= larger).all()
        assert smaller.sum() < larger.sum()


def test_without_strength_every_mechanism_is_mcar(X):
    expected = mcar(X, 0.3, random_state=7)
    assert_array_equal(mnar(X, 0.3, strength=0, random_state=7), expected)
    expected[:, 0] = False
    assert_array_equal(mar(X, 0.3, strength=0, random_state=7), expected)


def test_mcar_reads_no_value(X):
    found = mcar(X, 0.3, random_state=7)
    assert_array_equal(found, mcar(X * np.inf, 0.3, random_state=7))


def test_mar_reads_only_the_drivers(X):
    other = X.copy()
    other[:, [0, 2]] = 1e6
    expected = mar(X, 0.3, drivers=1, random_state=7)
    assert_array_equal(mar(other, 0.3, drivers=1, random_state=7), expected)
    other[:, 1] *= -1
    assert (mar(other, 0.3, drivers=1, random_state=7) != expected).any()


def test_mnar_reads_each_column_by_itself_and_without_units(X):
    other = X * [1.0, 1e300, 1e-300] + [5.0, 0.0, 0.0]
    expected = mnar(X, 0.3, random_state=7)
    assert_array_equal(mnar(other, 0.3, random_state=7), expected)
    other[:, 0] *= -1
    hidden = mnar(other, 0.3, random_state=7)
    assert (hidden[:, 0] != expected[:, 0]).any()
    assert_array_equal(hidden[:, 1:], expected[:, 1:])


@given(
    score=hnp.arrays(float, (6, 3), elements=st.floats(-1e4, 1e4)),
    observed=hnp.arrays(bool, (6, 3)),
    fractions=hnp.arrays(float, 3, elements=st.floats(0, 1 - 1e-9)),
)
def test_the_intercept_gives_the_fraction_of_observed_cells(score, observed, fractions):
    probability = _probability(score, observed, fractions)
    for p, o, f in zip(probability.T, observed.T, fractions, strict=True):
        if o.any():
            assert p[o].mean() == pytest.approx(f, rel=1e-6, abs=1e-9)


# What is hidden, statistically


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_fraction_of_every_column(mechanism, fraction, X, seed):
    hidden = mechanism(X, fraction, random_state=seed)
    for column in hidden.T[1 if mechanism is mar else 0 :]:
        assert abs(z_fraction(column, fraction)) < LIMIT
        assert abs(z_fraction(column, 0.7 * fraction)) > LIMIT


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_one_fraction_per_column(mechanism, X, seed):
    hidden = mechanism(X, [0.0, 0.2, 0.7], random_state=seed)
    assert not hidden[:, 0].any()
    assert abs(z_fraction(hidden[:, 1], 0.2)) < LIMIT
    assert abs(z_fraction(hidden[:, 2], 0.7)) < LIMIT


@pytest.mark.parametrize("strength", [0.5, 2.0])
def test_mnar_is_the_logistic_model_it_says(X, strength, seed):
    hidden = mnar(X, 0.3, strength=strength, random_state=seed)[:, 1]
    value = (X[:, 1] - X[:, 1].mean()) / X[:, 1].std()
    assert abs(z_score_test(hidden, value, strength, 0.3)) < LIMIT
    assert abs(z_score_test(hidden, value, 1.5 * strength, 0.3)) > LIMIT


def test_mar_is_the_logistic_model_it_says(X, seed):
    hidden = mar(X, 0.3, drivers=[0, 1], random_state=seed)[:, 2]
    z = (X[:, :2] - X[:, :2].mean(axis=0)) / X[:, :2].std(axis=0)
    value = z.sum(axis=1) / np.sqrt(2)
    assert abs(z_score_test(hidden, value, 1.0, 0.3)) < LIMIT
    assert abs(z_score_test(hidden, value, 1.5, 0.3)) > LIMIT


# Randomness


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "source",
    [int, np.random.RandomState, np.random.default_rng],
    ids=lambda source: source.__name__,
)
def test_same_seed_same_mask(mechanism, source, X):
    first, again = (mechanism(X[:99], 0.4, random_state=source(3)) for _ in range(2))
    assert_array_equal(first, again)
    assert (first != mechanism(X[:99], 0.4, random_state=source(4))).any()


@pytest.mark.parametrize("source", [np.random.RandomState, np.random.default_rng])
def test_a_generator_moves_on(source, X):
    rng = source(3)
    assert (
        mcar(X[:99], 0.4, random_state=rng) != mcar(X[:99], 0.4, random_state=rng)
    ).any()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("random_state", [None, 3])
def test_the_global_stream_is_left_alone(mechanism, random_state, X):
    before = np.random.get_state()
    mechanism(X[:9], 0.4, random_state=random_state)
    for old, new in zip(before, np.random.get_state(), strict=True):
        assert_array_equal(old, new)


def test_none_is_fresh_entropy(X):
    assert (mcar(X, 0.5) != mcar(X, 0.5)).any()


# Input handling

CELLS = st.one_of(st.just(np.nan), st.floats(allow_nan=False, allow_infinity=False))
TABLES = hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2), elements=CELLS)


@pytest.mark.parametrize("mechanism", [mcar, mnar])
@given(X=TABLES, fraction=st.floats(0, 0.999), seed=st.integers(0, 2**32))
def test_any_table(mechanism, X, fraction, seed):
    kept = X.copy()
    hidden = mechanism(X, fraction, random_state=seed)
    assert hidden.shape == X.shape and hidden.dtype == bool
    assert not hidden[np.isnan(X)].any()
    assert_array_equal(X, kept)
    out = hide(X, hidden)
    assert_array_equal(np.isnan(out), np.isnan(X) | hidden)
    assert_array_equal(out[~hidden], X[~hidden])
    assert_array_equal(X, kept)


@given(
    X=TABLES, driver=hnp.arrays(float, 10, elements=st.floats(-1e300, 1e300)),
    fraction=st.floats(0, 0.999), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_any_table_with_a_complete_driver(X, driver, fraction, seed):
    X = np.column_stack([X, driver[: len(X)]])
    kept = X.copy()
    hidden = mar(X, fraction, drivers=-1, random_state=seed)
    assert hidden.shape == X.shape and hidden.dtype == bool
    assert not hidden[np.isnan(X)].any() and not hidden[:, -1].any()
    assert_array_equal(X, kept)


@pytest.mark.parametrize("n_features, n_drivers", [(2, 1), (3, 1), (4, 2), (7, 3)])
def test_the_default_drivers_are_the_first_third(n_features, n_drivers, seed):
    X = np.random.default_rng(seed).standard_normal((200, n_features))
    hidden = mar(X, 0.5, random_state=seed)
    assert_array_equal(hidden.any(axis=0), np.arange(n_features) >= n_drivers)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_frames_give_the_masks_of_arrays(mechanism, frame, X):
    table = frame({f"x{j}": column for j, column in enumerate(X[:50].T)})
    hidden = mechanism(table, 0.4, random_state=3)
    assert type(hidden) is np.ndarray
    assert_array_equal(hidden, mechanism(X[:50], 0.4, random_state=3))


@pytest.mark.parametrize(
    "names, drivers",
    [
        ("abc", "b"),
        ("abc", ["b"]),
        ([5, 0, 1], 0),
        ([5, 0, 1], [0]),
        (None, np.array([-2])),
        (None, 1),
    ],
)
def test_drivers_by_name_and_by_index(names, drivers, X):
    table = X[:50] if names is None else pd.DataFrame(X[:50], columns=list(names))
    hidden = mar(table, 0.4, drivers=drivers, random_state=3)
    assert_array_equal(hidden, mar(X[:50], 0.4, drivers=[1], random_state=3))
    if names == "abc":
        with pytest.raises(ValueError, match="the key 1, no column of X: 'a', 'b'"):
            mar(table, 0.4, drivers=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hide_keeps_the_float_type(dtype):
    X = np.ones((2, 2), dtype)
    out = hide(X, np.eye(2, dtype=bool))
    assert out.dtype == dtype
    assert_array_equal(out, [[np.nan, 1], [1, np.nan]])
    assert hide(X, np.zeros((2, 2), bool)) is not X
    assert (X == 1).all()


@pytest.mark.parametrize("X", [np.ones((2, 2), int), [[1, 1], [1, 1]]])
def test_hide_makes_other_types_float64(X):
    assert hide(X, np.eye(2, dtype=bool)).dtype == np.float64


# Errors name the parameter

ONES = np.ones((4, 3))
GAP = np.where(np.eye(4, 3, dtype=bool), np.nan, 1.0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "X, fraction, random_state, error, message",
    [
        (np.ones(4), 0.1, 0, ValueError, r"X must be a table .* got shape \(4,\)"),
        (np.ones((0, 3)), 0.1, 0, ValueError, r"X must .* got shape \(0, 3\)"),
        ([["a", "b"]], 0.1, 0, ValueError, "X must be a dense numeric table"),
        (pd.DataFrame({"a": ["u", 1]}), 0.1, 0, ValueError, "'a' has text and other"),
        (ONES, 1.0, 0, ValueError, r"fraction must lie in \[0, 1\), got 1.0"),
        (ONES, -0.1, 0, ValueError, "fraction must lie"),
        (ONES, np.nan, 0, ValueError, "fraction must lie"),
        (ONES, [0.1, 0.2], 0, ValueError, "fraction must be one number or 3"),
        (ONES, "all", 0, TypeError, "fraction must be a number .* got 'all'"),
        (ONES, None, 0, TypeError, "fraction must be a number .* got None"),
        (ONES, 0.1, -1, ValueError, "random_state must be .* got -1"),
        (ONES, 0.1, "seed", ValueError, "random_state must be .* got 'seed'"),
    ],
)
def test_errors_of_mechanisms(mechanism, X, fraction, random_state, error, message):
    refused(error, message, mechanism, X, fraction, random_state=random_state)


@pytest.mark.parametrize("strength", [np.inf, np.nan, -1e308])
@pytest.mark.parametrize("mechanism", [mar, mnar])
def test_errors_of_scores(mechanism, strength):
    with pytest.raises(TypeError, match="strength must be a number, got 'big'"):
        mechanism(ONES, 0.1, strength="big")
    with pytest.raises(ValueError, match="strength must be at most 1e.06 in size, got"):
        mechanism(ONES, 0.1, strength=strength)
    refused(ValueError, "X must be finite", mechanism, ONES * np.inf, 0.1)


@pytest.mark.parametrize(
    "X, fraction, drivers, message",
    [
        (GAP, 0.1, None, r"drivers must be complete columns, got columns \[0\]"),
        (ONES, 0.1, [0, 1, 2], "drivers must be some but not all of the 3"),
        (ONES, 0.1, [], "drivers must be some .* got 0"),
        (ONES[:, :1], 0.1, None, "drivers must be some but not all of the 1"),
        (ONES, 0.1, 3, "drivers has the key 3, no column of X"),
        (ONES, 0.1, "age", "drivers has the key 'age', no column of X"),
        (ONES, 0.1, [True, False, False], "drivers has the key True, no column of X"),
        (ONES, [0.1, 0.1, 0.1], None, "fraction must be 0 for the drivers"),
    ],
)
def test_errors_of_drivers(X, fraction, drivers, message):
    refused(ValueError, message, mar, X, fraction, drivers=drivers)


def test_errors_of_hide():
    with pytest.raises(TypeError, match="hidden must be boolean, got dtype int"):
        hide(ONES, np.zeros((4, 3), int))
    with pytest.raises(ValueError, match=r"hidden must .* \(4, 3\), got \(3, 4\)"):
        hide(ONES, np.zeros((3, 4), bool))
    refused(ValueError, "X must be a dense numeric table", hide, [["a"]], [[True]])


def test_labels_in_another_order_are_refused():
    X = pd.DataFrame({"b": [1.0, 2], "a": [3.0, 4]}, index=["s", "r"])
    hidden = pd.DataFrame({"b": [True, False], "a": [False, False]}, index=X.index)
    assert hide(X, hidden).isna().equals(hidden)
    message = "hidden has the columns of X in another order"
    refused(ValueError, message, hide, X, hidden[["a", "b"]])
    message = "hidden has the rows of X in another order"
    refused(ValueError, message, hide, X, hidden.sort_index())
    for mechanism in (mcar, mnar):
        assert not mechanism(X, pd.Series({"b": 0.0, "a": 0.9}))[:, 0].any()
        message = "fraction has the columns of X in another order"
        refused(ValueError, message, mechanism, X, pd.Series({"a": 0.9, "b": 0.0}))


# Missingness mechanisms of data frames with categories, and what `hide` keeps


GRADES = ["low", "middle", "high", "highest"]


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


@settings(max_examples=8)
@given(masks)
def test_hide_keeps_a_frame_of_pandas(hidden):
    X = mixed()
    kept = X.copy()
    out = hide(X, hidden)
    assert_array_equal(missing(out), hidden)
    changed = {"n_children": "float64", "smokes": "boolean"}
    assert out.dtypes.to_dict() == X.astype(changed).dtypes.to_dict()
    assert list(out["grade"].cat.categories) == GRADES
    assert_frame_equal(out.where(~hidden, X.astype(changed)), X.astype(changed))
    assert_frame_equal(X, kept)


@settings(max_examples=8)
@given(masks)
def test_hide_keeps_a_frame_of_polars(hidden):
    X = in_polars(mixed())
    out = hide(X, hidden)
    assert isinstance(out, pl.DataFrame)
    assert out.schema == X.schema
    assert_array_equal(missing(out), hidden)
    for name in X.columns:
        seen = out[name].is_not_null()
        assert out[name].filter(seen).to_list() == X[name].filter(seen).to_list()


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
    assert_array_equal(found, expected)
    assert expected.any()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_missing_categories_are_never_marked(mechanism):
    X = mixed(60)
    X.loc[X.index[:30], ["cars", "insured", "town", "street", "wait"]] = None
    arguments = {} if mechanism is not mar else {"drivers": ["grade", "age"]}
    hidden = mechanism(X, 0.9, random_state=0, **arguments)
    assert not hidden[missing(X)].any()
    assert hidden[~missing(X)].mean() > 0.5


def test_higher_levels_of_ordinal_columns_are_hidden_more_often():
    X = mixed(60)[["grade", "smokes"]]
    hidden = mnar(X, [1 / 3, 2 / 3], strength=1e6, random_state=0)
    assert_array_equal(hidden[:, 0], X["grade"] == "high")
    assert_array_equal(hidden[:, 1], X["smokes"])
    hidden = mar(X, 1 / 3, drivers="grade", strength=1e6, random_state=0)
    assert_array_equal(hidden[:, 1], X["grade"] == "high")


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
    assert_array_equal(turned, hidden[::-1])


@settings(max_examples=10)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_any_number_of_levels(n_levels, seed):
    X = pd.DataFrame({"a": [f"level {i}" for i in range(n_levels)]})
    hidden = mnar(X, 0.5, random_state=seed)
    assert_array_equal(missing(hide(X, hidden)), hidden)


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
        refused((ValueError, TypeError), message, call)


def test_drivers_that_are_categories_must_be_complete():
    X = mixed()
    X.loc["row 3", "town"] = None
    with pytest.raises(ValueError, match=r"columns \[6\] of X with missing cells"):
        mar(X, 0.1, drivers="town")
