"""What the fit of an imputer makes of identifiers, whole floats and odd tables."""

import pickle
import uuid
import warnings
from decimal import Decimal
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cases import quick_columns as columns
from cases import quick_gaussian as gaussian
from cases import quick_lair as lair
from errors import refused
from sklearn.linear_model import LogisticRegression

import skvnce
from skvnce.evaluation import missing_report
from skvnce.exceptions import TableWarning
from skvnce.missingness import hide
from skvnce.options import Chunks

pytestmark = pytest.mark.usefixtures("short_training")

N = 120
IGNORED = pytest.mark.filterwarnings("ignore::skvnce.exceptions.TableWarning")


def mixtures(**options):
    settings = {"n_estimators": 2, "on_misfit": "ignore", "random_state": 0}
    return skvnce.MixtureImputer(3, **settings, **options)


def table(**options):
    settings = {"n_estimators": 2, "n_parameter_draws": 2, "random_state": 0}
    return skvnce.TableImputer(**settings, **options)


def consistent(**options):
    return skvnce.ConstrainedImputer(gaussian(**options), random_state=0)


def graph(**options):
    return skvnce.CopulaGraphLearner(0.2, on_misfit="ignore", random_state=0, **options)


MADE = [gaussian, lair, columns, mixtures, consistent, table]
make_any = pytest.mark.parametrize("make", MADE)


def plain():
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    X = pd.DataFrame(
        {
            "x": x,
            "city": np.where(x + rng.normal(size=N) > 0, "Oslo", "Rome"),
            "grade": np.clip(np.round(x + 3), 1, 5),
            "count": rng.poisson(np.exp(x / 2 + 3)).astype(float),
        }
    )
    return X.mask(rng.random(X.shape) < 0.2)


def named():
    """Add identifiers, some of which are missing, and notes."""
    X = plain()
    names = pd.Series([f"p{k}" for k in range(N)], dtype=object).where(X.index % 9 > 0)
    notes = [f"no {k} seen at noon, came late" for k in range(N)]
    return X.assign(id=names, note=notes)[["id", *X.columns, "note"]]


@pytest.mark.quick(2)
@make_any
@IGNORED
def test_names_do_not_change_the_model(make):
    X, Y = plain(), named()
    one = make().set_output(transform="pandas").fit(X)
    two = make().set_output(transform="pandas").fit(Y)
    filled = two.transform(Y)
    assert two.feature_indices_.tolist() == [1, 2, 3, 4]
    pd.testing.assert_frame_equal(filled[X.columns], one.transform(X))
    [draw] = two.sample(Y, random_state=1)
    pd.testing.assert_frame_equal(draw[X.columns], one.sample(X, random_state=1)[0])
    for table in (filled, draw):
        pd.testing.assert_frame_equal(table[["id", "note"]], Y[["id", "note"]])
        assert table.columns.tolist() == Y.columns.tolist()
    assert list(two.get_feature_names_out()) == Y.columns.tolist()


@pytest.mark.quick(2)
@make_any
@IGNORED
def test_names_come_back_in_arrays(make):
    Y = named()
    model = pickle.loads(pickle.dumps(make().fit(Y)))
    filled = model.transform(Y)
    drawn = model.sample(Y, 2, random_state=0, as_array=True)
    for table in (filled, *drawn):
        assert table[1, 0] == "p1"
        assert pd.isna(table[0, 0])
        assert table[:, -1].tolist() == Y["note"].tolist()
        assert not pd.isna(table[:, 1:]).any()
    new = Y.assign(id="somebody else", note="no word of this was there before")
    assert set(model.transform(new)[:, 0]) == {"somebody else"}


@IGNORED
def test_names_in_other_libraries():
    Y = pl.from_pandas(named())
    model = gaussian().set_output(transform="polars").fit(Y)
    filled = model.transform(Y)
    assert filled["id"].equals(Y["id"])
    assert filled["note"].equals(Y["note"])
    assert filled.drop("id").null_count().sum_horizontal().item() == 0
    table = pa.Table.from_pandas(named())
    assert gaussian().fit(table).transform(table)[1, 0] == "p1"


def test_fit_says_what_is_passed_through():
    words = "'id' .* 'note' .*not in the model"
    with pytest.warns(TableWarning, match=words) as caught:
        gaussian().fit(named())
    assert len(caught) == 1
    quiet = dict.fromkeys(["id", "note"], "passthrough")
    with warnings.catch_warnings(action="error"):
        model = gaussian(categorical_features=quiet).fit(named())
    assert model.feature_indices_.tolist() == [1, 2, 3, 4]


def test_names_are_modelled_if_asked():
    modelled = gaussian(categorical_features={"id": "nominal", "note": "passthrough"})
    with pytest.warns(TableWarning, match="Nominal columns with more levels than half"):
        modelled.fit(named())
    filled = modelled.set_output(transform="pandas").transform(named())
    assert set(filled["id"]) <= set(named()["id"].dropna())


def test_numbers_are_passed_through_if_asked():
    X = plain().drop(columns="city").assign(subject=np.repeat(np.arange(N / 2), 2))
    quiet = gaussian(categorical_features={"subject": "passthrough"}).fit(X)
    filled = quiet.transform(X)
    assert filled.dtype == np.float64
    np.testing.assert_array_equal(filled[:, -1], X["subject"])
    rows = quiet.sample_rows(3, random_state=0)
    assert np.isnan(rows[:, -1]).all()
    assert not np.isnan(rows[:, :-1]).any()


def test_columns_that_are_passed_through_may_be_entirely_missing():
    X = plain().assign(note=np.nan)
    with pytest.warns(UserWarning, match="Entirely missing: column 'note'"):
        gaussian().fit(X)
    with warnings.catch_warnings(action="error"):
        quiet = gaussian(categorical_features={"note": "passthrough"}).fit(X)
    assert quiet.feature_indices_.tolist() == [0, 1, 2, 3]


@pytest.mark.quick(1)
@pytest.mark.parametrize("convert", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_repeated_rows_are_found_by_passed_names(convert, rng_0):
    X = plain()[["x", "count"]]
    X["x"] = np.repeat(rng_0.normal(size=N // 4), 4) + 0.3 * rng_0.normal(size=N)
    X.loc[::7, "x"] = np.nan
    X["subject"] = [f"s{k // 4}" for k in range(N)]
    found = missing_report(convert(X), random_state=0).warnings
    assert any("x by subject" in one for one in found)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "cell", [lambda k: 2**53 + 1 + k, lambda k: {"a": k}, lambda k: (k, 1), uuid.UUID]
)
def test_objects_that_are_passed_through_come_back_in_arrays(cell):
    cells = [str(uuid.uuid4()) if cell is uuid.UUID else k for k in range(N)]
    cells = [cell(one) for one in cells]
    X = plain().drop(columns="city").assign(name=cells)
    quiet = gaussian(categorical_features={"name": "passthrough"}).fit(X)
    for table in (quiet.transform(X), *quiet.sample(X, random_state=0, as_array=True)):
        assert table.dtype == object
        assert table[:, -1].tolist() == cells
        assert np.isfinite(table[:, :-1].astype(float)).all()


@pytest.mark.parametrize("cell", [(1, 2), uuid.uuid4()])
def test_errors_about_objects_name_what_passes_them_through(cell):
    X = plain().assign(name=[cell] * N)
    remedy = '{column: "passthrough"} of TableImputer'
    refused((TypeError, ValueError), remedy, gaussian().fit, X)


@IGNORED
def test_shifts_and_bounds_of_names_are_refused():
    Y = named()
    with pytest.raises(ValueError, match="'id', which is passed through"):
        gaussian().fit(Y).sample(Y, shift={"id": 1.0})
    with pytest.warns(UserWarning, match="min_value of column 'id' has no effect"):
        gaussian(min_value={"id": 0}).fit(Y)


@pytest.mark.parametrize("make", [columns, consistent])
def test_remedies_for_names_have_the_inner_parameter(make):
    with pytest.warns(TableWarning, match=r"or of its model=GaussianImputer\(\.\.\.\)"):
        make().fit(named())


def test_errors_about_parts_name_what_unites_frames():
    parts = Chunks([plain()[:60], plain()[60:]])
    refused(TypeError, "pandas.concat of data frames; if not", columns().fit, parts)


@IGNORED
def test_indicators_of_names_follow_what_is_missing():
    Y = named()
    model = gaussian(add_indicator=True).set_output(transform="pandas")
    filled = model.fit_transform(Y)
    missing = filled["missingindicator_id"].to_numpy(dtype=bool)
    np.testing.assert_array_equal(missing, Y["id"].isna())


@IGNORED
def test_graphs_and_predictors_leave_names_out():
    Y = named()
    assert graph().fit(Y).nodes_.tolist() == plain().columns.tolist()
    y = plain()["x"].fillna(0) > 0
    model = skvnce.MultipleImputationClassifier(gaussian(), n_estimators=2, n_draws=2)
    X = Y.drop(columns="city")
    model.set_params(calibration_cv=None, random_state=0)
    found = model.fit(X, y).predict_proba(X)
    Z = X.drop(columns=["id", "note"])
    np.testing.assert_array_equal(found, model.fit(Z, y).predict_proba(Z))
    model.set_params(estimator=LogisticRegression())  # gets all columns
    with pytest.raises(ValueError, match="could not convert string to float: 'p1'"):
        model.fit(X[1:], y[1:])


@pytest.mark.quick
@IGNORED
@pytest.mark.parametrize("make", [gaussian, columns, consistent])
@pytest.mark.parametrize("kind", ["category", "array", "polars"])
def test_predictors_leave_out_names_of_any_data_type(make, kind):
    """400 levels are more than the default model takes."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(hide(x := rng.normal(size=(400, 2)), rng.random(x.shape) < 0.2))
    X = X.rename(columns=str).assign(id=[f"p{k}" for k in range(400)])
    X["id"] = X["id"].astype("category" if kind == "category" else object)
    options = {"categorical_features": {2: "passthrough"}} if kind == "array" else {}
    table = {"array": X.to_numpy(), "polars": pl.from_pandas(X)}.get(kind, X)
    model = skvnce.MultipleImputationRegressor(
        make(**options), n_estimators=1, n_draws=1
    )
    model.set_params(random_state=0).fit(table, x[:, 0])
    assert model.n_features_in_ == 3
    assert model.estimators_[0].n_features_in_ == 2
    assert model.predict(table).std() > 0.5


@IGNORED
def test_a_table_of_names_alone():
    Y = named()[["id", "note"]]
    filled = gaussian().set_output(transform="pandas").fit_transform(Y)
    pd.testing.assert_frame_equal(filled, Y)


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", ["pandas", "Float64", "float32", "arrow", "polars"])
@make_any
def test_whole_floats_are_filled_by_whole_floats(make, kind):
    X = plain().drop(columns="city")
    makers = {
        "pandas": lambda X: X,
        "Float64": lambda X: X.astype("Float64"),
        "float32": lambda X: X.astype("float32"),
        "arrow": lambda X: X.astype(pd.ArrowDtype(pa.float64())),
        "polars": pl.from_pandas,
    }
    X = makers[kind](X)
    library = "polars" if kind == "polars" else "pandas"
    model = make().set_output(transform=library).fit(X)
    grades = np.arange(1.0, 6.0).tolist()
    assert model.categories_["grade"].tolist() == grades
    for table in (model.transform(X), model.sample(X, random_state=0)[0]):
        assert list(table.dtypes) == list(X.dtypes)
        count = np.asarray(table["count"], dtype=float)
        assert (count == count.round()).all()
        assert set(np.asarray(table["grade"], dtype=float)) <= set(grades)
        x = np.asarray(table["x"], dtype=float)
        assert (x != x.round()).any()


@pytest.mark.quick(2)
@make_any
def test_integers_and_whole_floats_are_filled_alike(make):
    X = plain().drop(columns="city")
    Y = X.astype({"grade": "Int64", "count": "Int64"})
    one = make().set_output(transform="pandas").fit(X)
    two = make().set_output(transform="pandas").fit(Y)
    filled = two.transform(Y).astype(dict.fromkeys(["grade", "count"], float))
    pd.testing.assert_frame_equal(one.transform(X), filled)
    found = one.set_output(transform="default").transform(X)
    np.testing.assert_array_equal(found, filled.to_numpy())


@pytest.mark.parametrize("kind", ["arrow", "polars"])
def test_decimals_of_few_whole_values_are_filled(kind):
    X = plain()[["x", "grade"]]
    cells = [None if np.isnan(one) else Decimal(int(one)) for one in X["grade"]]
    if kind == "polars":
        dtype = pl.Decimal(10, 2)
        X = pl.from_pandas(X).with_columns(pl.Series("grade", cells, dtype))
    else:
        dtype = pd.ArrowDtype(pa.decimal128(10, 2))
        X["grade"] = pd.Series(cells, dtype=dtype, index=X.index)
    model = gaussian().set_output(transform="polars" if kind == "polars" else "pandas")
    for table in (model.fit(X).transform(X), model.sample(X, random_state=0)[0]):
        assert table["grade"].dtype == X["grade"].dtype
        assert set(table["grade"].to_list()) == set(range(1, 6))


def test_arrays_of_whole_floats_are_numbers():
    X = plain().drop(columns="city").to_numpy()
    model = gaussian().fit(X)
    assert not hasattr(model, "categories_")
    filled = model.transform(X)[np.isnan(X[:, 2]), 2]
    assert (filled != filled.round()).any()


def test_named_columns_of_floats_keep_their_kind():
    X = plain().drop(columns="city")
    numeric = gaussian(categorical_features={"grade": "numeric"}).fit(X)
    assert not hasattr(numeric, "categories_")
    assert not hasattr(gaussian(categorical_features=None).fit(X), "categories_")


@IGNORED
def test_parts_of_a_table_agree():
    X, Y = plain(), named()
    halves = [Y[: N // 2], Y[N // 2 :]]
    model = gaussian().set_output(transform="pandas").fit(Chunks(halves))
    assert model.feature_indices_.tolist() == [1, 2, 3, 4]
    assert list(model.categories_) == ["city"]  # grades are numbers in parts
    filled = pd.concat([model.transform(part) for part in halves])
    pd.testing.assert_frame_equal(filled[["id", "note"]], Y[["id", "note"]])
    for name in ("grade", "count"):
        assert (filled[name] == filled[name].round()).all()
    broken = X.assign(count=X["count"].where(X.index < N - 1, 0.5))
    halves = [broken[: N // 2], broken[N // 2 :]]
    model = gaussian().set_output(transform="pandas").fit(Chunks(halves))
    count = model.transform(halves[0])["count"]
    assert (count != count.round()).any()
    shared = [X[: N // 2].assign(id="a"), X[N // 2 :].assign(id="b")]
    model = gaussian().fit(Chunks(shared))
    assert model.categories_["id"].tolist() == ["a", "b"]


@IGNORED
@pytest.mark.parametrize("blank", [np.nan, None])
def test_text_can_be_missing_from_the_first_part(blank):
    """pandas.read_csv(chunksize=...) reads such a part as floats."""
    X, half = plain()[["x", "city", "count"]], N // 2
    names = [f"p{k}" for k in range(half, N)]
    parts = [
        X[:half].assign(city=blank, id=blank, count=np.nan),
        X[half:].assign(id=names),
    ]
    one = gaussian().set_output(transform="pandas").fit(Chunks(parts))
    two = gaussian().set_output(transform="pandas").fit(Chunks(parts[::-1]))
    for model in (one, two):
        assert model.feature_indices_.tolist() == [0, 1, 2]
        assert list(model.categories_) == ["city"]
        filled = [model.transform(part) for part in parts]
        assert set(filled[0]["city"]) == {"Oslo", "Rome"}
        assert filled[0]["id"].isna().all()
        assert filled[1]["id"].tolist() == names
    parts.append(X[half:].assign(id=1.0))  # control: numbers are no levels
    with pytest.raises(ValueError, match="numbers in some parts of X, and the levels"):
        gaussian().fit(Chunks(parts))


def test_the_first_part_says_what_its_numbers_are():
    parts = [plain()[["x", "grade"]], plain()[["x", "grade"]].assign(grade="good")]
    with pytest.raises(ValueError, match='"passthrough".*read_csv') as error:
        gaussian().fit(Chunks(parts))
    assert "GaussianImputer" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["GaussianImputer", "VNCEEstimator", "TruncatedGaussianGraphLearner"]
)
def test_codes_of_missing_values_are_reported_by_all(name):
    X = np.abs(np.random.default_rng(0).normal(size=(60, 2)))
    X[:6, 1] = 999
    with warnings.catch_warnings(record=True, action="always") as caught:
        getattr(skvnce, name)().fit(X)
    found = [str(one.message) for one in caught if one.category is TableWarning]
    assert len(found) == 1
    assert "column 1 has 999 in 6 cells" in found[0]


def test_codes_of_missing_values_are_reported_of_parts():
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[:6, 1] = -999
    with pytest.warns(TableWarning, match="column 1 has -999 in 6 cells"):
        gaussian().fit(Chunks.from_array(X, 20))


def test_where_is_the_answer_to_skipped_questions():
    X = plain()
    X.loc[X["city"] == "Rome", "count"] = np.nan
    with pytest.warns(TableWarning, match="'count' where column 'city' is 'Rome'"):
        gaussian().fit(X)
    filled = gaussian().fit_transform(X, where={"count": X["city"] == "Oslo"})
    assert pd.isna(filled[(X["city"] == "Rome").to_numpy(), 3]).all()


def test_errors_about_text_name_a_remedy_that_helps():
    cells = np.array([[1.0, "NA"], [2.0, "3"], [3.0, "4"]], dtype=object)
    with pytest.raises(ValueError, match="'NA' in column 1, row 0") as error:
        gaussian().fit(cells)
    assert "use GaussianImputer" not in str(error.value)
    assert "categorical_features" in str(error.value)
    assert 'pandas.to_numeric(column, errors="coerce")' in str(error.value)
    with pytest.raises(ValueError, match="'NA' in column 'b', row 1") as error:
        gaussian().fit(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1, "NA", 3]}))
    assert "astype(str)" not in str(error.value)
    assert 'pandas.to_numeric(column, errors="coerce")' in str(error.value)


def test_views_of_text_are_filled():
    X = plain()[["x", "city"]]
    views = pd.ArrowDtype(pa.string_view())
    cells = pa.array(X["city"].astype(object).where(X["city"].notna(), None))
    column = pd.arrays.ArrowExtensionArray(cells.cast(pa.string_view()))
    Y = X.assign(city=column)
    filled = gaussian().set_output(transform="pandas").fit_transform(Y)["city"]
    expected = gaussian().set_output(transform="pandas").fit_transform(X)["city"]
    assert filled.dtype == views
    assert filled.tolist() == expected.tolist()


@pytest.mark.parametrize("kept", [["x", "count"], ["x", "city"]])
def test_a_column_or_a_row_is_no_table(kept):
    X = plain()[kept]
    imputer = gaussian().fit(X)
    for part in (X["x"], pl.Series([1.0, 2.0]), X.iloc[0]):
        for method in (imputer.fit, imputer.transform, imputer.sample):
            refused(ValueError, r"two dimensions.*X\.to_frame\(\)", method, part)
    for part in (X["x"].to_numpy(), X[kept[1]].to_numpy()):
        refused(ValueError, r"two dimensions.*X\.reshape\(-1, 1\)", imputer.fit, part)


@pytest.mark.quick
@pytest.mark.parametrize("order", ["abcd", "dbca"])
@pytest.mark.parametrize("make", [table, gaussian])
def test_columns_may_be_named_like_attributes_of_tables(order, make, rng):
    """Pandas offers columns as attributes, of which other tables have some."""
    X = pd.DataFrame(rng.normal(size=(60, 3)).round(2), columns=[*"abc"])
    X["d"] = np.where(X["a"] > 0, "u", "v")
    X = X.mask(rng.random(X.shape) < 0.15)[[*order]]
    for labels in (X, X.assign(d=X["d"].factorize()[0] + 0.0)):
        filled = make().fit(labels).transform(labels)
        # the name is that of numbers, and of levels; filled as a frame and an array
        for old, name in product("ad", ["dtype", "column_names"]):
            named = labels.rename(columns={old: name})
            again = make().fit(named).transform(named)
            np.testing.assert_array_equal(again, filled)
            assert np.asarray(again).dtype == np.asarray(filled).dtype
