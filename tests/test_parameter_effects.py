"""Each parameter changes what a fitted estimator does, or `fit` says that it does not.

For each estimator, kind of table and parameter, the fit with another value is compared
with that of the base.  What has no effect must be announced by a warning or an error,
or be in `NO_EFFECT`, with its reason.
"""

import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import skvnce
from skvnce._core.training import rounds
from skvnce.autoencoder import column_scores as _scores
from skvnce.autoencoder.factor_analysis import fit_covariance
from skvnce.options import Adam, IncompleteDensity
from skvnce.vgi import fit

ROWS = 90


@pytest.fixture(autouse=True)
def short_training(monkeypatch, request):
    """Start less exactly, and train for fewer steps what takes by far the longest."""
    monkeypatch.setattr(_scores, "fit_covariance", partial(fit_covariance, n_rounds=5))
    spec = getattr(request.node, "callspec", None)
    if spec and spec.params.get("case") == "vgi":
        monkeypatch.setattr(rounds, "STEPS", 2)
        monkeypatch.setattr(fit, "_WARM_UP_STEPS", 2)


def complete():
    """Skewed columns, so that marginals and bounds matter."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(ROWS, 1)) + 0.5 * rng.normal(size=(ROWS, 4)))
    return pd.DataFrame(X, columns=list("abcd"))


def numbers():
    hidden = np.random.default_rng(1).random((ROWS, 4)) < 0.2
    return complete().mask(hidden)


def mixed():
    rng, frame = np.random.default_rng(1), numbers()
    high = frame["a"].fillna(1) + rng.normal(size=ROWS) > 1
    frame["level"] = np.where(high, "x", rng.choice(["y", "z"], ROWS))
    frame.loc[rng.random(ROWS) < 0.2, "level"] = None
    return frame.astype({"level": "category"})


def levels():
    frame = numbers() > 1
    return frame.astype("boolean").mask(numbers().isna()).astype("category")


def counts():
    frame = (3 * numbers()).round()
    return frame.astype("Int64")


def empty():
    return numbers().assign(e=np.nan)


TABLES = {
    "numbers": numbers,
    "mixed": mixed,
    "levels": levels,
    "counts": counts,
    "complete": complete,
    "empty column": empty,
}


def found(estimator, table):
    """Fit to a table; return all that it does with its rows, and its warnings."""
    X = TABLES[table]()
    rows = (numbers() if table == "complete" else X)[:40]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if hasattr(estimator, "n_estimators") and hasattr(estimator, "estimator"):
            y = np.arange(ROWS) % 7 + X.isna().sum(axis=1).to_numpy(dtype=float)
            if isinstance(estimator, skvnce.MultipleImputationClassifier):
                y = y > 4
            estimator.fit(X, y)
        else:
            estimator.fit(X)
    return done(estimator, rows), {str(one.message) for one in caught}


def done(estimator, rows):
    """List the results of the methods of a fitted estimator."""
    calls = {
        "transform": (),
        "sample": (2, 0),
        "score_samples": (),
        "predict": (),
        "predict_proba": (),
        "interval": (),
        "edges": None,
    }
    results = {}
    with warnings.catch_warnings(action="ignore"):
        for name, rest in calls.items():
            if name == "interval" and not hasattr(estimator, "predict"):
                continue
            method = getattr(estimator, name, None)
            if method is None:
                continue
            try:
                results[name] = method() if rest is None else method(rows, *rest)
            except (ValueError, TypeError) as error:
                results[name] = type(error).__name__
    fitted = {key: value for key, value in vars(estimator).items() if key[-1] == "_"}
    skipped = {"n_iter_", "loss_curve_", "n_tuning_iter_"}
    results |= {key: value for key, value in fitted.items() if key not in skipped}
    return results


def equal(one, other):
    """Compare results of any type."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if hasattr(one, "get_params"):
        return True  # members, by what they do
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype == object:
        tables = (pd.DataFrame(np.atleast_2d(part)) for part in (one, other))
        return next(tables).equals(next(tables))
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


VAE = skvnce.VariationalAutoencoder(
    max_iter=1, hidden_layer_sizes=(4,), n_importance_samples=8, random_state=0
)
DENSITY = IncompleteDensity(
    "vae", max_iter=1, n_training_draws=1, n_importance_samples=8
)
DRAWN = {"n_estimators": 1, "n_steps": 2, "n_draws": 8, "random_state": 0}
FEW = skvnce.GaussianImputer(max_iter=20, n_parameter_draws=2)
PREDICTED = {"n_estimators": 2, "n_draws": 4, "random_state": 0}

OF_TABLES = {
    "on_misfit": "ignore",
    "missing_values": -7,
    "keep_empty_features": True,
    "add_indicator": True,
    "categorical_features": None,
    "handle_unknown": "missing",
    "random_state": 5,
}
MEDIANS = {"strategy": "median"}
OF_CELLS = {"min_value": -5.0, "max_value": 99.0, **OF_TABLES}
MEMBERS = {"n_estimators": 2, "strategy": "median", "n_steps": 4, "n_draws": 16}
OF_PATH = {"alphas": 4, "gamma": 1.0, "cv": 2, "n_subsamples": 2, "random_state": 1}
OF_GRAPH = {
    "alpha": 0.5,
    "fit_linear": False,
    "ridge": 1.0,
    "ridge_linear": 1.0,
    "noise_ratio": 2,
    "n_steps": 3,
    "max_iter": 1,
    "on_misfit": "ignore",
    "missing_values": -7,
    "keep_empty_features": True,
    "random_state": 1,
}
OF_CAUSES = {
    "n_components": 3,
    "binarize": 4.0,
    "alpha": 0.1,
    "hidden_layer_sizes": (8,),
    "n_training_draws": 2,
    "solver": Adam(learning_rate_init=0.1),
    "max_iter": 1,
    "random_state": 1,
}

# estimators, and other values of their parameters
CASES = {
    "normal": (
        skvnce.GaussianImputer(max_iter=30, n_parameter_draws=3, random_state=0),
        {
            "shrinkage": 30.0,
            "marginals": "normal",
            "n_parameter_draws": 0,
            "max_iter": 2,
            "tol": 5.0,
            **MEDIANS,
            **OF_CELLS,
        },
    ),
    "table": (
        skvnce.TableImputer(n_estimators=3, n_parameter_draws=3, random_state=0),
        {
            "interactions": [("a", "b")],
            "n_estimators": 0,
            "n_parameter_draws": 1,
            **MEDIANS,
            **OF_CELLS,
            "min_value": 2.0,
            "max_value": 2.5,
        },
    ),
    "factors": (
        skvnce.IncompleteFactorAnalysis(1, max_iter=50),
        {"n_components": 2, "max_iter": 2, "tol": 5.0, "on_misfit": "ignore"},
    ),
    "copula graph": (
        skvnce.CopulaGraphLearner(max_iter=20, random_state=0),
        {"alpha": 0.5, "max_iter": 2, "tol": 5.0, **OF_TABLES},
    ),
    "lair": (
        skvnce.LAIRImputer(VAE, **DRAWN),
        {"sampler": "mwg", **MEMBERS, **OF_CELLS},
    ),
    "vgi": (
        skvnce.VGIImputer(DENSITY, **DRAWN),
        {"conditionals": "mixture", "n_chains": 3, **MEMBERS, **OF_CELLS},
    ),
    "mixtures": (
        skvnce.MixtureImputer(2, n_estimators=2, max_iter=4, random_state=0),
        {
            "n_components": 3,
            "n_estimators": 1,
            "marginals": "raw",
            "max_iter": 2,
            "random_state": 1,
            **OF_CELLS,
        },
    ),
    "autoencoder": (
        VAE,
        {
            "n_components": 1,
            "algorithm": "demissvae",
            "n_posterior_components": 2,
            "n_training_draws": 2,
            "likelihood": "student",
            "marginals": "normal",
            "hidden_layer_sizes": (8,),
            "dropout": 0.5,
            "solver": Adam(16),
            "max_iter": 2,
            "n_importance_samples": 16,
            **OF_TABLES,
        },
    ),
    "columns": (
        skvnce.ColumnImputer(
            FEW,
            regressor=LinearRegression(),
            classifier=LogisticRegression(),
            weight=0.9,
            n_draws=2,
            n_steps=1,
            random_state=0,
        ),
        {
            "regressor": Ridge(100.0),
            "classifier": LogisticRegression(C=0.01),
            "estimators": {"a": None},
            "predictors": {"a": ["b"]},
            "weight": "auto",
            "n_completions": 2,
            "max_samples": 20,
            "n_draws": 4,
            "n_steps": 3,
            **OF_TABLES,
            "categorical_features": {"level": "passthrough"},  # None is that of `model`
        },
    ),
    "truncated graph": (
        skvnce.TruncatedGaussianGraphLearner(max_iter=20, random_state=0),
        {"algorithm": "maximum-likelihood", "tol": 1.0, **OF_GRAPH},
    ),
    "truncated graph by VNCE": (
        skvnce.TruncatedGaussianGraphLearner(
            algorithm="vnce", max_iter=3, random_state=0
        ),
        OF_GRAPH,
    ),
    "path": (skvnce.TruncatedGaussianGraphLearnerCV(alphas=3, random_state=0), OF_PATH),
    "path of copulas": (
        skvnce.CopulaGraphLearnerCV(
            skvnce.CopulaGraphLearner(max_iter=5),
            alphas=3,
            selection="cv",
            random_state=0,
        ),
        OF_PATH,
    ),
    "causes": (
        skvnce.NoisyOr(
            2, binarize=1.0, max_iter=3, hidden_layer_sizes=(4,), random_state=0
        ),
        {"algorithm": "svi", "init": "random", **OF_CAUSES},
    ),
    "causes without a network": (
        skvnce.NoisyOr(2, algorithm="svi", binarize=1.0, max_iter=2, random_state=0),
        OF_CAUSES,
    ),
    "VNCE": (
        skvnce.VNCEEstimator(max_iter=2, random_state=0),
        {
            "noise_ratio": 2,
            "n_components": 2,
            "criterion": "vnce",
            "n_training_draws": 2,
            "ridge": 1.0,
            "n_init": 2,
            "max_iter": 1,
            **MEDIANS,
            "on_misfit": "ignore",
            "missing_values": -7,
            "keep_empty_features": True,
            "random_state": 1,
        },
    ),
    "regressor": (
        skvnce.MultipleImputationRegressor(FEW, LinearRegression(), **PREDICTED),
        {"n_estimators": 3, "n_draws": 8, "cv": 3, "random_state": 1},
    ),
    "classifier": (
        skvnce.MultipleImputationClassifier(FEW, LogisticRegression(), **PREDICTED),
        {"n_estimators": 3, "n_draws": 8, "calibration_cv": 2, "random_state": 1},
    ),
}
REFUSED = {  # estimators that do not take categories
    name
    for name in CASES
    if name.startswith(("factors", "truncated", "causes", "VNCE"))
} | {"path"}
CLASSES_OF_TABLES = {
    "mixed": {"regressor", "classifier"} | REFUSED,  # their model takes numbers
    "levels": REFUSED,
}

EVERY = set(TABLES)
GRAPHS = {"copula graph", "truncated graph", "truncated graph by VNCE"}
LINEAR = {"normal", "autoencoder"}
WITHOUT_LEVELS = EVERY - {"mixed", "levels"}
NO_EFFECT = [  # cases, parameters, tables, and the reason
    (set(CASES), {"handle_unknown"}, EVERY, "it is for levels of other rows"),
    (set(CASES), {"keep_empty_features"}, EVERY - {"empty column"}, "no column is"),
    (set(CASES), {"categorical_features"}, WITHOUT_LEVELS, "the table has none"),
    (set(CASES), {"missing_values"}, {"complete"}, "no cell is missing"),
    (set(CASES), {"on_misfit"}, EVERY, "nothing may be misfitted"),
    (LINEAR, {"marginals"}, {"complete"}, "here, 'auto' chooses 'normal'"),
    (LINEAR, {"marginals"}, {"counts"}, "'auto' may choose 'normal'"),
    ({"table"}, {"n_estimators"}, {"levels"}, "forests may have no weight"),
    ({"classifier"}, {"calibration_cv"}, {"complete"}, "nothing is averaged"),
    ({"VNCE"}, {"strategy"}, EVERY, "the default model is normal"),
    ({"VNCE"}, {"max_iter"}, EVERY, "a round suffices for the default model"),
    ({"VNCE"}, {"criterion"}, EVERY, "the default model draws nothing"),
    ({"VNCE"}, {"n_training_draws", "n_init"}, {"complete"}, "nothing is drawn"),
    ({"columns"}, {"n_completions"}, {"complete"}, "all completions are equal"),
    ({"columns", "lair", "vgi"}, {"n_draws"}, {"levels"}, "levels are not averaged"),
    (
        {"lair"},
        {"random_state"},
        {"complete", "counts"},
        "the start is kept: it is not random",
    ),
    (
        {"vgi"},
        {"random_state", "conditionals", "n_chains"},
        {"complete"},
        "the start is kept: it is not random, and has no chains",
    ),
    ({"columns"}, {"regressor"}, {"levels"}, "there are no numbers"),
    ({"columns"}, {"classifier"}, WITHOUT_LEVELS, "there are no categories"),
    (GRAPHS, {"max_iter", "tol"}, {"complete"}, "one round is exact"),
    (GRAPHS, {"tol"}, EVERY, "the least number of rounds may be larger"),
]


@cache
def base(case, table):
    return found(clone(CASES[case][0]), table)


def silent(case, table):
    """List the parameters without effect about which nothing is said."""
    estimator, others = CASES[case]
    results, said = base(case, table)
    for name, value in others.items():
        if name not in estimator.get_params(deep=False):
            continue
        try:
            new, now = found(clone(estimator).set_params(**{name: value}), table)
        except (ValueError, TypeError) as error:
            assert name in str(error) or "numbers" in str(error), error
            continue
        if equal(results, new) and not any(name in one for one in now - said):
            yield name


def excused(case, table):
    """List the parameters that may have no effect on a fit."""
    return {
        name
        for cases, names, tables, _ in NO_EFFECT
        if case in cases and table in tables
        for name in names
    }


QUICKLY = {("normal", "mixed"), ("factors", "numbers")}
COMBINATIONS = [
    pytest.param(
        case, table, marks=[] if (case, table) in QUICKLY else pytest.mark.slow
    )
    for case in CASES
    for table in TABLES
    if case not in CLASSES_OF_TABLES.get(table, ())
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("case", "table"), COMBINATIONS)
def test_parameters_have_an_effect_or_a_warning(case, table):
    assert set(silent(case, table)) <= excused(case, table)


def test_each_parameter_is_varied():
    """Those left out show progress, or take what has tests of its own.

    `ConstrainedImputer` has equations, `random_state`, and those of `ColumnImputer`.
    """
    apart = {"model", "imputer", "estimator", "posterior", "noise", "selection"}
    apart |= {"verbose", "n_jobs", "solver", "groups", "relations"}
    varied = {}
    for estimator, others in CASES.values():
        own = set(estimator.get_params(deep=False)) & set(others)
        varied.setdefault(type(estimator), set()).update(own)
    public = {getattr(skvnce, name) for name in skvnce.__all__}
    estimators = {one for one in public if hasattr(one, "fit")}
    assert estimators - set(varied) == {skvnce.ConstrainedImputer}
    for kind, names in varied.items():
        assert set(kind().get_params(deep=False)) - apart <= names, kind


def test_a_warning_names_the_parameter_and_what_has_an_effect():
    frame, quiet = mixed(), {"max_iter": 4, "on_misfit": "ignore", "random_state": 0}
    imputer = skvnce.GaussianImputer(**quiet)
    with warnings.catch_warnings(action="error"):
        imputer.fit(frame)
        clone(imputer).set_params(min_value=-5.0, max_value={"a": 99.0}).fit(frame)
    for given, message in (
        ({"marginals": "normal"}, "marginals='normal' has no effect: with categories"),
        ({"tol": 1.0}, "tol=1.0 has no effect: Gibbs sampling makes half of max_iter"),
        ({"min_value": {"a": 0, "level": 0}}, "min_value of column 'level' has no"),
    ):
        with pytest.warns(UserWarning, match=message) as caught:
            clone(imputer).set_params(**given).fit(frame)
        assert len(caught) == 1
    with pytest.warns(UserWarning, match="max_value=3 has no effect: columns of cat"):
        clone(imputer).set_params(max_value=3).fit(levels())
    path = skvnce.TruncatedGaussianGraphLearnerCV(
        alphas=3, gamma=1.0, selection="cv", cv=2
    )
    with pytest.warns(UserWarning) as caught:
        path.fit(complete())
    expected = "gamma=1.0 has no effect: selection='cv' does not use it"
    assert [expected in str(one.message) for one in caught].count(True) == 1
