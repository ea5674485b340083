"""What all imputers do with frames of all kinds, and all estimators if a fit fails."""

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import skops.io
from cases import PREDICTORS, SMALL
from errors import refused
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skvnce.testing._requirements import draws_cells, incomplete_table

N = 60
OF_CATEGORIES = ["GaussianImputer", "ColumnImputer", "MixtureImputer", "TableImputer"]
OF_CATEGORIES += ["LAIRImputer", "CopulaGraphLearner"]
LEARNERS = [SMALL[name] for name in OF_CATEGORIES]
LEARNERS.append(pytest.param(SMALL["VGIImputer"], marks=pytest.mark.slow))
GRAPHS = [one for name, one in SMALL.items() if "Graph" in name]
pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings(
        "ignore::sklearn.exceptions.ConvergenceWarning",
        "ignore::skvnce.exceptions.MisfitWarning",
        "ignore:Constant where observed",
        "ignore:Entirely missing",
        "ignore:.* of the draws of column",
    ),
]


def frame():
    """Make columns of all kinds that depend on the first, with missing cells."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    days = pd.to_timedelta(rng.integers(0, 900, N), unit="D")
    X = pd.DataFrame(
        {
            "x": x,
            "y": x + rng.normal(size=N),
            "grade": pd.cut(x, [-9, -0.5, 0.5, 9], labels=["lo", "mid", "hi"]),
            "town": pd.Categorical(rng.choice(["S", "C", "Q"], N), list("QCS")),
            "yes": pd.array(x + rng.normal(size=N) > 0, dtype="boolean"),
            "count": pd.array(rng.integers(0, 5, N), dtype="Int8"),
            "day": pd.Timestamp("2020-03-01") + days,
        },
        index=[f"row {place}" for place in range(N)],
    )
    return X.mask(np.random.default_rng(1).random(X.shape) < 0.2)


def named(estimators):
    return {"params": estimators, "ids": lambda one: type(one).__name__}


@pytest.fixture(scope="module", **named(LEARNERS))
def fitted(request):
    with warnings.catch_warnings(action="ignore"):
        return clone(request.param).set_output(transform="pandas").fit(frame())


@pytest.fixture(scope="module")
def answered(fitted):
    """What a model fills and draws of the table to which it was fitted."""
    return answers(fitted, frame())


def equal(first, second):
    for one, other in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(one, other)


def answers(model, X):
    return [model.transform(X), *model.sample(X, 2, random_state=0)]


def test_frames_keep_their_data_types_and_observed_cells(answered):
    X = frame()
    for table in answered:
        assert list(table.dtypes) == list(X.dtypes) and table.index.equals(X.index)
        assert not table.isna().any().any()
        pd.testing.assert_frame_equal(table.where(X.notna()), X.where(X.notna()))


def test_rows_are_filled_and_scored_alone(fitted, answered):
    X = frame()
    some = X.iloc[[17, 3, 40]]
    equal([answered[0].loc[some.index]], [fitted.transform(some)])
    levels = [fitted.category_probabilities(one) for one in (X, some)]
    for name, shares in levels[0].items():
        pd.testing.assert_frame_equal(shares.loc[some.index], levels[1][name])
    if hasattr(fitted, "score_samples"):
        scores = fitted.score_samples(X)[[17, 3, 40]]
        np.testing.assert_allclose(fitted.score_samples(some), scores)


def test_new_rows_are_filled(fitted):
    rows = frame()[::-1].iloc[:7].set_axis(list("abcdefg"))
    rows.iloc[3] = None
    assert not fitted.transform(rows).isna().any().any()


def test_probabilities_are_those_of_the_filled_levels(fitted, answered):
    X = frame()
    filled, found = answered[0], fitted.category_probabilities(X)
    assert list(found) == ["grade", "town", "yes", "count"]
    for name, shares in found.items():
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        assert list(shares) == fitted.categories_[name].tolist()
        seen, most = X[name].notna(), shares.max(axis=1)
        assert (most[seen] == 1).all() and most[~seen].min() < 1
    for name in ("grade", "town", "yes"):
        best = np.asarray(found[name].idxmax(axis=1))
        assert (np.asarray(filled[name]) == best).all()


@pytest.mark.parametrize("way", ["pickle", "skops"])
def test_stored_models_fill_and_draw_the_same(fitted, answered, way):
    if way == "pickle":
        other = pickle.loads(pickle.dumps(fitted))
    else:
        stored = skops.io.dumps(fitted)
        trusted = skops.io.get_untrusted_types(data=stored)
        assert all(one.startswith(("skvnce.", "sklearn.")) for one in trusted)
        other = skops.io.loads(stored, trusted=trusted)
    equal(answers(other, frame()), answered)


def test_draws_repeat_by_seed_and_else_differ(fitted, answered):
    X = frame()
    lost = X["y"].isna()
    _, first, second = answered
    equal(fitted.sample(X, 2, random_state=0), [first, second])
    others = [second, *fitted.sample(X, 1, random_state=1), *fitted.sample(X, 1)]
    for other in others:
        assert (other["y"] != first["y"])[lost].any()


@pytest.mark.filterwarnings("ignore:.* has no effect")
def test_a_failed_fit_to_a_frame_changes_nothing(fitted, answered):
    """Nor does one that fails because of its parameters."""
    model, X = pickle.loads(pickle.dumps(fitted)), frame()
    asked = ["from_dtype", ["no"], {"town": "count"}]
    asked = [{"categorical_features": one} for one in asked]
    broken = X.assign(town=X["town"].astype(object))
    broken.loc["row 3", "town"] = 7
    for params in asked if "categorical_features" in model.get_params() else [{}]:
        model.set_params(**params)
        before = dict(vars(model))
        refused(ValueError, "town|no column", model.fit, broken)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[key] is value for key, value in before.items())
    equal([model.transform(X)], answered[:1])


EACH = [*SMALL.values(), *PREDICTORS[:2]]


@pytest.mark.parametrize("estimator", EACH, ids=lambda one: type(one).__name__)
def test_a_failed_fit_leaves_everything_as_it_was(estimator):
    estimator = clone(estimator)
    X, y = incomplete_table(estimator), np.arange(80) % 3
    given, broken = pd.DataFrame(X, columns=list("abcd")), X[:, :3].copy()
    broken[7, 1] = np.inf
    for one in (estimator, clone(estimator).fit(given.copy(), y)):
        before = dict(vars(one))
        refused(ValueError, "(?i)infinity|infinite|inf in", one.fit, broken, y)
        assert vars(one).keys() == before.keys()
        assert all(vars(one)[key] is value for key, value in before.items())
    one.fit(X, y)  # what an earlier fit has set is replaced
    assert not hasattr(one, "feature_names_in_")


@pytest.mark.parametrize("estimator", [*LEARNERS, *GRAPHS, SMALL["VNCEEstimator"]])
def test_tables_of_constants_are_filled(estimator):
    """As a fold of a search may be one."""
    X = np.tile([2.0, 1.0, np.nan], (8, 1))
    X[0, 0] = X[3, 1] = np.nan
    with pytest.warns(UserWarning, match="Entirely missing: column 2"):
        model = clone(estimator).fit(X)
    expected = np.tile([2.0, 1.0], (8, 1))
    for table in (model.transform(X), *model.sample(X, n_draws=2, random_state=0)):
        np.testing.assert_array_equal(table, expected)
    assert model.constants_ == {0: 2.0, 1: 1.0} and not model.feature_indices_.size
    moved = model.transform(np.array([[5.0, np.nan, 7.0]]))
    assert moved.tolist() == [[5.0, 1.0]]
    if hasattr(model, "score_samples"):
        assert model.score_samples(X).tolist() == [0.0] * 8
    assert np.isnan(getattr(model, "held_out_gain_", np.nan))
    assert len(getattr(model, "marginal_columns_", [])) == 0


# numbers: the smallest estimator of each class, as small as possible


ALL = {name: one for name, one in SMALL.items() if name != "NoisyOr"}
DRAWING = [name for name, one in ALL.items() if draws_cells(one)]
SCORING = [name for name, one in ALL.items() if hasattr(one, "score")]
WEIGHING = [
    name
    for name, one in ALL.items()
    if "sample_weight" in inspect.signature(one.fit).parameters
]


def positive(n=60):
    """Make four positive columns that depend on each other, with missing cells."""
    rng = np.random.default_rng(3)
    X = rng.gamma(4.0, size=(n, 1)) + rng.gamma(2.0, size=(n, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.parametrize("name", DRAWING)
def test_constant_columns_are_left_out_and_filled(name):
    """A new value in such a column says nothing of the others."""
    alone, values = positive(), [0.0, 3.7]
    X = np.insert(alone, [1, 2], values, axis=1)  # at places 1 and 3
    X[::4, 1] = X[1::4, 3] = np.nan
    message = "Constant where observed: column 1, column 3. "
    with pytest.warns(UserWarning, match=message):
        model = clone(ALL[name]).fit(X)
    assert model.constants_ == {1: 0.0, 3: 3.7}
    assert model.feature_indices_.tolist() == [0, 2, 4, 5]
    changed = X.copy()
    changed[:, [1, 3]] = [1.0, 4.7]
    pairs = zip(*(answers(model, one) for one in (X, changed)), strict=True)
    for one, other in pairs:
        assert (one[:, [1, 3]] == values).all() and not np.isnan(one).any()
        varying = [0, 2, 4, 5]
        np.testing.assert_array_equal(one[:, varying], other[:, varying])
    if hasattr(model, "score_samples"):
        scores = clone(ALL[name]).fit(alone).score_samples(alone)
        np.testing.assert_allclose(model.score_samples(X), scores, rtol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", DRAWING)
def test_empty_columns_are_dropped_or_kept(name, keep):
    """Values that are seen there later are kept, and say nothing of the others."""
    frame = pd.DataFrame(positive(), columns=list("abcd"))
    frame.insert(1, "empty", np.nan)
    model = clone(ALL[name])
    [asked] = [
        one for one in model.get_params() if one.endswith("keep_empty_features")
    ][:1]
    with pytest.warns(UserWarning, match="'empty'.*keep_empty_features"):
        model.set_params(**{asked: keep}).fit(frame)
    names = ["a", "empty", "b", "c", "d"] if keep else list("abcd")
    assert list(model.get_feature_names_out()) == names
    later = frame.assign(empty=np.where(frame.index == 0, 5.0, np.nan))
    for one, other in zip(answers(model, frame), answers(model, later), strict=True):
        assert one.shape == (len(frame), len(names)) and not np.isnan(one).any()
        if keep:
            assert (one[:, 1] == 0).all()
            assert other[0, 1] == 5 and (other[1:, 1] == 0).all()
            one, other = (np.delete(table, 1, axis=1) for table in (one, other))
        np.testing.assert_array_equal(one, other)
    if hasattr(model, "score_samples"):
        scores = model.score_samples(frame)
        np.testing.assert_allclose(model.score_samples(later), scores, rtol=1e-12)


@pytest.mark.parametrize("name", SCORING)
def test_a_constant_fold_does_not_stop_a_search(name):
    """Nor a fold in which one column is constant."""
    X = positive()
    X[:20, 2], X[20:40] = 1.0, 3.0
    folds = [(np.arange(first, first + 20), np.arange(40, 60)) for first in (0, 20)]
    if name in ("IncompleteFactorAnalysis", "VariationalAutoencoder"):
        folds = folds[:1]  # those need a column that varies
    with warnings.catch_warnings(action="ignore"):
        search = GridSearchCV(
            ALL[name], {}, cv=folds, error_score="raise", refit=False
        ).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


WRONG_CELLS = [
    (np.inf, "column 'b', row 3"),
    (-np.inf, "column 'b', row 3"),
    ("x", "'x' in column 'b', row 3"),
    (1e300, "column 'b' has values whose squares|column 'b', row 3"),
]


@pytest.mark.parametrize(("cell", "words"), WRONG_CELLS)
@pytest.mark.parametrize("name", ALL)
def test_cells_that_are_no_finite_numbers_are_named(name, cell, words):
    frame = pd.DataFrame(positive(), columns=list("abcd"))
    frame = frame.astype(object) if isinstance(cell, str) else frame
    frame.loc[3, "b"] = cell
    with warnings.catch_warnings(), pytest.raises(ValueError, match=words):
        if name in ("LAIRImputer", "VGIImputer"):  # whose sums overflow before
            warnings.simplefilter("ignore", RuntimeWarning)
        clone(ALL[name]).fit(frame)


WEIGHTS = [
    (np.r_[1.0, np.zeros(59)], "No row of X has an observed cell and"),
    (np.full(60, -1.0), "Negative values in data passed to"),
]


@pytest.mark.parametrize(("weights", "words"), WEIGHTS)
@pytest.mark.parametrize("name", WEIGHING)
def test_weights_without_a_row_to_learn_from_are_errors(name, weights, words):
    X = positive()
    X[0] = np.nan
    refused(ValueError, words, clone(ALL[name]).fit, X, sample_weight=weights)


@pytest.mark.parametrize("name", WEIGHING)
def test_weights_in_another_order_are_errors(name):
    frame = pd.DataFrame(positive(), columns=list("abcd"))
    weights = pd.Series(np.tile([1.0, 2.0], 30))
    message = "sample_weight has the rows of X in another order"
    refused(ValueError, message, clone(ALL[name]).fit, frame, None, weights[::-1])


@pytest.mark.parametrize("name", ["IncompleteFactorAnalysis", "VariationalAutoencoder"])
def test_models_of_latents_need_a_column_that_varies(name):
    with pytest.raises(ValueError, match="All columns of X are constant"):
        clone(ALL[name]).fit([[1.0, np.nan], [1.0, 2.0], [1.0, 2.0]])


@pytest.mark.parametrize("name", DRAWING)
def test_fills_and_draws_are_possible(name):
    """Not negative, and of a few values or whole numbers where observed cells are."""
    rng, X = np.random.default_rng(4), positive(120)
    X[:, 2], X[:, 3] = np.round(3 * X[:, 2]), rng.integers(1, 5, 120)
    X[::5, 3] = np.nan
    model = clone(ALL[name]).fit(X)
    low, high = model.feature_ranges_
    assert (low >= 0).all()
    tables = answers(model, X)
    for table in tables:
        assert ((low <= table) & (table <= high)).all()
    for draw in tables[1:]:
        np.testing.assert_array_equal(draw[:, 2], np.round(draw[:, 2]))
        assert np.isin(draw[:, 3], [1, 2, 3, 4]).all()


@pytest.mark.filterwarnings("ignore:.*ll-conditioned matrix")  # of a linear model
@pytest.mark.parametrize("estimator", LEARNERS, ids=lambda one: type(one).__name__)
def test_frames_of_polars_keep_their_schema(estimator):
    X = pl.from_pandas(frame().reset_index(drop=True))
    X = X.with_columns(grade=pl.col("grade").cast(pl.Enum(["lo", "mid", "hi"])))
    model = clone(estimator).set_output(transform="polars").fit(X)
    for found in answers(model, X):
        assert found.schema == X.schema
        assert found.null_count().sum_horizontal()[0] == 0
        for name in X.columns:
            seen = X[name].is_not_null()
            assert (found[name].filter(seen) == X[name].filter(seen)).all()
    assert model.categories_["grade"].tolist() == ["lo", "mid", "hi"]
