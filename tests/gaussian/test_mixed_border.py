"""Frames of categories, dates and integers, in and out of imputers."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import quick_columns, quick_gaussian, quick_lair, quick_vgi
from sklearn.base import clone

from skvnce import (
    ColumnImputer,
    IncompleteFactorAnalysis,
    TruncatedGaussianGraphLearner,
    VGIImputer,
)

N = 60
pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings(
        "ignore:Constant where observed",
        "ignore:Entirely missing",
        "ignore:The number of unique classes",  # of a few rows
        "ignore:X does not have valid feature names",
        "ignore:pandas.DataFrame with sparse columns",
        "ignore::skvnce.exceptions.TableWarning",  # the level "" looks like no value
    ),
]


def whole(n=N):
    """Make a frame of all kinds without missing cells."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    days = pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    grade = pd.cut(x, [-9, -0.5, 0.5, 9], labels=["lo", "mid", "hi"])
    return pd.DataFrame(
        {
            "x": x,
            "port": pd.Categorical(rng.choice(["S", "C", "Q"], n), list("QCSU")),
            "name": rng.choice(["", "10", "9"], n),
            "grade": grade,
            "yes": pd.array(x + rng.normal(size=n) > 0, dtype="boolean"),
            "count": pd.array(rng.integers(0, 5, n), dtype="Int8"),
            "id": pd.array(rng.permutation(n) + 100, dtype="Int64"),
            "day": pd.Timestamp("2020-03-01", tz="Europe/Berlin") + days,
        },
        index=[f"row {place}" for place in range(n)],
    )


def incomplete():
    X = whole()
    hidden = np.random.default_rng(1).random(X.shape) < 0.2
    return X.mask(hidden)


NAMES = ["GaussianImputer", "ColumnImputer", "LAIRImputer", "VGIImputer"]
MAKE = quick_gaussian, quick_columns, quick_lair, quick_vgi
MADE = dict(zip(NAMES, MAKE, strict=True))


FIRST, *OTHERS = MADE
PARAMS = [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


@pytest.fixture(scope="module", params=PARAMS)
def make(request):
    """Give a function that makes an imputer which reads categories."""
    return MADE[request.param]


@pytest.fixture(scope="module")
def imputer(make):
    return make().fit(incomplete())


def reading(model, **options):
    """Set parameters that say how tables are read, which may be those of `model`."""
    prefix = "model__" if isinstance(model, ColumnImputer) else ""
    return model.set_params(**{prefix + name: value for name, value in options.items()})


def drawn_rows(model, n_rows):
    """Draw rows; LAIRImputer draws them from its autoencoder.

    VGIImputer and ColumnImputer fill rows that miss all cells.
    """
    if isinstance(model, VGIImputer | ColumnImputer):
        empty = incomplete().iloc[:n_rows]
        empty = empty.mask(np.ones(empty.shape, dtype=bool))
        return model.sample(empty, random_state=0, as_array=True)[0]
    [model] = getattr(model, "estimators_", [model])
    return model.sample_rows(n_rows, random_state=0)


def assert_observed_cells_kept(found, X):
    for name in X.columns:
        seen = X[name].notna().to_numpy()
        assert found[name].notna().all() and (found[name][seen] == X[name][seen]).all()


def assert_possible(found):
    assert set(found["port"]) <= set("SCQ") and set(found["name"]) <= {"", "10", "9"}
    assert set(found["grade"]) <= {"lo", "mid", "hi"}
    assert set(found["count"]) <= set(range(5))


def test_arrays_of_values_come_out(imputer):
    """Frames are in the contract of all imputers."""
    X = incomplete()
    draws = imputer.sample(X, 2, random_state=0, as_array=True)
    assert draws.shape == (2, *X.shape) and draws.dtype == object
    for table in (imputer.transform(X), *draws):
        assert table.dtype == object
        table = pd.DataFrame(table, X.index, X.columns)
        assert_observed_cells_kept(table, X)
        assert_possible(table)


def test_levels_that_polars_does_not_hold_are_refused(make):
    X = pd.DataFrame({"age": pd.cut(np.arange(N), [-1, 20, N]), "x": whole()["x"]})
    X.loc[::5, "age"] = None
    model = make().set_output(transform="polars").fit(X)
    with pytest.raises(TypeError, match="'age' has the level Interval.*to text"):
        model.transform(X)
    text = X.assign(age=X["age"].astype(str).where(X["age"].notna()))
    assert set(model.fit(text).transform(text)["age"]) == set(text["age"].dropna())


def test_data_types_of_polars_become_those_of_pandas(make):
    n = N // 3
    X = pl.DataFrame(
        {
            "id": [*range(100, 100 + 2 * n), *[None] * n],
            "yes": [True, None, False] * n,
            "day": [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1)] * n,
            "port": ["S", "C", None] * n,
        }
    )
    model = make().set_output(transform="pandas").fit(X)
    for found in (model.transform(X), *model.sample(X, random_state=0)):
        kinds = [dtype.kind for dtype in found.dtypes[:3]]
        assert kinds == ["i", "b", "M"] and not found.isna().any(axis=None)
        assert found["id"][: 2 * n].tolist() == X["id"].to_list()[: 2 * n]
        assert set(found["yes"]) == {True, False}
        assert (found["day"] == found["day"].dt.normalize()).all()
        assert found["port"][::3].tolist() == ["S"] * n


def test_levels_are_attributes(imputer):
    found = {name: levels.tolist() for name, levels in imputer.categories_.items()}
    of_text = {"port": ["C", "Q", "S"], "name": ["", "10", "9"]}
    of_text["grade"] = ["lo", "mid", "hi"]
    assert found == of_text | {"yes": [False, True], "count": [0, 1, 2, 3, 4]}
    numbers = clone(imputer).fit(whole()[["x", "id"]])
    assert not hasattr(numbers, "categories_")
    again = clone(imputer).fit(incomplete()).fit(whole()[["x", "id"]])
    assert not hasattr(again, "categories_")


def test_arrays_of_objects_and_of_numbers(make):
    X = incomplete()[["x", "port", "count"]].to_numpy(object)
    model = make(categorical_features=[1]).fit(X)
    found = model.transform(X)
    seen = ~pd.isna(X)
    assert (found[seen] == X[seen]).all() and not pd.isna(found).any()
    assert model.categories_[1].tolist() == ["C", "Q", "S"]
    frame = model.set_output(transform="pandas").transform(X)
    assert frame.dtypes.astype(str).tolist()[0] == "float64"
    assert set(frame["x1"]) <= set("SCQ")
    codes = np.random.default_rng(0).integers(0, 3, (N, 3)).astype(float) * 10
    codes[:5, 0] = np.nan
    model = make(categorical_features=[0]).fit(codes)
    found = model.transform(codes)
    assert found.dtype == float and set(found[:5, 0]) <= {0, 10, 20}
    np.testing.assert_array_equal(found[5:], codes[5:])


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_numbers_keep_their_precision(make, dtype):
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(dtype)
    X[:, 2] = X[:, 0] > 0
    X[::7, 2] = X[1::7, 0] = np.nan
    model = reading(make(), categorical_features=[2]).fit(X)
    for found in (model.transform(X), *model.sample(X, random_state=0)):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found[~np.isnan(X)], X[~np.isnan(X)])


def test_numbers_as_levels_come_out_as_floats(make):
    X = incomplete()[["x", "yes", "count"]]
    found = make().fit(X).transform(X)
    assert found.dtype == float and not np.isnan(found).any()
    assert set(found[:, 1]) == {0, 1} and set(found[:, 2]) == set(range(5))
    new = X.assign(count=pd.array([100] * N, dtype="Int8"))
    assert (make().fit(X).transform(new)[:, 2] == 100).all()


def test_unknown_levels(imputer):
    new = incomplete()
    new["port"] = new["port"].cat.set_categories(list("QCSU"))
    new.loc["row 7", "port"] = "U"
    with pytest.raises(ValueError, match="'U' in column 'port', row 7.*handle_unknown"):
        imputer.transform(new)
    model = reading(clone(imputer), handle_unknown="missing").fit(incomplete())
    found = model.set_output(transform="pandas").transform(new)
    assert found.loc["row 7", "port"] in set("SCQ")
    assert found["port"].dtype == new["port"].dtype


@pytest.mark.quick
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("output", ["default", "pandas"])
def test_constants_and_empty_columns(make, keeps, output):
    X = incomplete().assign(
        port=pd.Categorical(["S", None] * (N // 2), list("QCSU")),
        yes=pd.array([True, None] * (N // 2), dtype="boolean"),
        name=pd.array([None] * N, dtype="str"),
        grade=pd.array([None] * N, dtype="Int64"),
        count=pd.array([None] * N, dtype="boolean"),
    )
    with pytest.warns(UserWarning, match="Entirely missing") as caught:
        model = make(keep_empty_features=keeps).fit(X)
    said = [str(one.message) for one in caught if "Entirely" in str(one.message)]
    assert ("filled by 0; categories stay missing" in said[0]) == keeps
    assert model.constants_ == {1: "S", 4: True}
    found = model.set_output(transform=output).transform(X)
    names = model.get_feature_names_out()
    empty = ("name", "grade", "count")
    assert list(names) == [name for name in X if keeps or name not in empty]
    probabilities = model.category_probabilities(X)
    assert set(probabilities) == {"port", "yes"}
    for name in probabilities:  # also where the cell is missing
        value = model.constants_[X.columns.get_loc(name)]
        expected = (model.categories_[name] == value).astype(float)
        assert (np.asarray(probabilities[name]) == expected).all()
    found = pd.DataFrame(np.asarray(found, dtype=object), columns=names)
    assert (found["port"] == "S").all() and (found["yes"] == True).all()  # noqa: E712
    if keeps:
        assert found["name"].isna().all()  # there is no level to fill
        assert (found["grade"] == 0).all()
    if not isinstance(model, VGIImputer | ColumnImputer):  # which draw no rows
        rows = pd.DataFrame(drawn_rows(model, 5), columns=X.columns)
        assert set(rows["port"]) == {"S"} and rows["name"].isna().all()


def test_indicators_follow(imputer):
    X = incomplete()
    model = reading(clone(imputer), add_indicator=True).fit(X)
    found = model.transform(X)
    assert found.shape == (N, 16)
    np.testing.assert_array_equal(found[:, 8:].astype(float), X.isna().to_numpy())
    for output, columns in (("pandas", X.columns), ("polars", None)):
        frame = model.set_output(transform=output).transform(X)
        assert list(frame.columns) == list(model.get_feature_names_out())
        assert frame.shape == (N, 16)
        if columns is not None:
            pd.testing.assert_series_equal(frame.dtypes[:8], X.dtypes)
            assert frame.index.equals(X.index)


def test_bounds_are_for_numbers(make):
    X = incomplete()[["x", "count", "port"]]
    X["x"] += 100
    free = make().fit(X)
    bound = make(min_value=50, max_value={"x": 1e3}).fit(X)  # all counts are below 50
    assert (free.transform(X)[:, 1:] == bound.transform(X)[:, 1:]).all()
    assert bound.feature_ranges_[:, 1].tolist() == [0, 4]


def test_rows_are_drawn_as_values(imputer):
    found = pd.DataFrame(drawn_rows(imputer, 30), columns=whole().columns)
    assert_possible(found)
    assert all(isinstance(one, int) for one in found["id"])
    assert {one.tzname() for one in found["day"]} == {"UTC"}
    assert found["day"].between("2010", "2030").all()


@pytest.mark.parametrize(
    "estimator",
    [IncompleteFactorAnalysis(1), TruncatedGaussianGraphLearner(random_state=0)],
    ids=lambda one: type(one).__name__,
)
def test_other_estimators_name_the_column_and_the_imputer(estimator):
    X = incomplete()
    with pytest.raises(ValueError, match="categories in column 'port'.*TableImputer"):
        estimator.fit(X[["x", "port"]])
    codes = X[["x"]].assign(code=pd.Categorical([1, 2] * (N // 2)))
    with pytest.raises(ValueError, match="categories in column 'code'.*TableImputer"):
        estimator.fit(codes)
    with pytest.raises(ValueError, match="column 'name', row .*TableImputer"):
        estimator.fit(whole()[["x", "name"]])
