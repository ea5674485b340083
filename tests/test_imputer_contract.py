"""What all imputers do with frames of all kinds, and all estimators if a fit fails."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import skops.io
from cases import ESTIMATORS, PREDICTORS, SMALL_IMPUTERS
from sklearn.base import clone

from skvnce import CopulaGraphLearner
from skvnce.testing._requirements import incomplete_table

N = 60
LEARNERS = [*SMALL_IMPUTERS, CopulaGraphLearner(0.1, max_iter=20, random_state=0)]
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


def equal(first, second):
    for one, other in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(one, other)


def answers(model, X):
    return [model.transform(X), *model.sample(X, 2, random_state=0)]


def test_frames_keep_their_data_types_and_observed_cells(fitted):
    X = frame()
    for table in answers(fitted, X):
        assert list(table.dtypes) == list(X.dtypes) and table.index.equals(X.index)
        assert not table.isna().any().any()
        pd.testing.assert_frame_equal(table.where(X.notna()), X.where(X.notna()))


def test_rows_are_filled_and_scored_alone(fitted):
    X = frame()
    some = X.iloc[[17, 3, 40]]
    equal([fitted.transform(X).loc[some.index]], [fitted.transform(some)])
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


def test_probabilities_are_those_of_the_filled_levels(fitted):
    X = frame()
    filled, found = fitted.transform(X), fitted.category_probabilities(X)
    assert list(found) == ["grade", "town", "yes", "count"]
    for shares in found.values():
        np.testing.assert_allclose(shares.sum(axis=1), 1)
    for name in ("grade", "town", "yes"):
        best = np.asarray(found[name].idxmax(axis=1))
        assert (np.asarray(filled[name]) == best).all()


@pytest.mark.parametrize("way", ["pickle", "skops"])
def test_stored_models_fill_and_draw_the_same(fitted, way):
    X = frame()
    if way == "pickle":
        other = pickle.loads(pickle.dumps(fitted))
    else:
        stored = skops.io.dumps(fitted)
        trusted = skops.io.get_untrusted_types(data=stored)
        assert all(one.startswith(("skvnce.", "sklearn.")) for one in trusted)
        other = skops.io.loads(stored, trusted=trusted)
    equal(answers(other, X), answers(fitted, X))


def test_draws_repeat_by_seed_and_else_differ(fitted):
    X = frame()
    lost = X["y"].isna()
    first, second = fitted.sample(X, 2, random_state=0)
    equal(fitted.sample(X, 2, random_state=0), [first, second])
    others = [second, *fitted.sample(X, 1, random_state=1), *fitted.sample(X, 1)]
    for other in others:
        assert (other["y"] != first["y"])[lost].any()


@pytest.mark.filterwarnings("ignore:.* has no effect")
def test_a_failed_fit_to_a_frame_changes_nothing(fitted):
    """Nor does one that fails because of its parameters."""
    model, X = pickle.loads(pickle.dumps(fitted)), frame()
    asked = ["from_dtype", ["no"], {"town": "count"}]
    asked = [{"categorical_features": one} for one in asked]
    broken = X.assign(town=X["town"].astype(object))
    broken.loc["row 3", "town"] = 7
    for params in asked if "categorical_features" in model.get_params() else [{}]:
        model.set_params(**params)
        before = dict(vars(model))
        with pytest.raises(ValueError, match="town|no column"):
            model.fit(broken)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[key] is value for key, value in before.items())
    equal([model.transform(X)], [fitted.transform(X)])


FIRST = {type(one).__name__: one for one in [*ESTIMATORS, *PREDICTORS][::-1]}


@pytest.mark.parametrize("name", FIRST)
def test_a_failed_fit_leaves_everything_as_it_was(name):
    estimator = clone(FIRST[name])
    X, y = incomplete_table(estimator), np.arange(80) % 3
    given, broken = pd.DataFrame(X, columns=list("abcd")), X[:, :3].copy()
    broken[7, 1] = np.inf
    for one in (estimator, clone(estimator).fit(given.copy(), y)):
        before = dict(vars(one))
        with pytest.raises(ValueError, match="(?i)infinity|infinite|inf in"):
            one.fit(broken, y)
        assert vars(one).keys() == before.keys()
        assert all(vars(one)[key] is value for key, value in before.items())
    one.fit(X, y)  # what an earlier fit has set is replaced
    assert not hasattr(one, "feature_names_in_")


@pytest.mark.parametrize("estimator", LEARNERS, ids=lambda one: type(one).__name__)
def test_tables_of_constants_are_filled(estimator):
    """As a fold of a search may be one."""
    X = np.tile([2.0, -1.0, np.nan], (8, 1))
    X[0, 0] = X[3, 1] = np.nan
    with pytest.warns(UserWarning, match="Entirely missing: column 2"):
        model = clone(estimator).fit(X)
    expected = np.tile([2.0, -1.0], (8, 1))
    for table in (model.transform(X), *model.sample(X, n_draws=2, random_state=0)):
        np.testing.assert_array_equal(table, expected)
    assert model.constants_ == {0: 2.0, 1: -1.0} and not model.feature_indices_.size
    moved = model.transform(np.array([[5.0, np.nan, 7.0]]))
    assert moved.tolist() == [[5.0, -1.0]]
    if hasattr(model, "score_samples"):
        assert model.score_samples(X).tolist() == [0.0] * 8
    assert np.isnan(getattr(model, "held_out_gain_", np.nan))
    assert len(getattr(model, "marginal_columns_", [])) == 0
