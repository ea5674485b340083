"""Tables in parts: each public estimator reads them part by part, or refuses them.

Nothing may load such a table into memory silently: its blocks are counted.
"""

import inspect
from functools import partial

import numpy as np
import pandas as pd
import pytest
from cases import PREDICTORS, SMALL
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import skvnce
from skvnce import evaluation, inspection, metrics, missingness
from skvnce.options import Chunks

dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.usefixtures("short_training")
FITTED_IN_PARTS = {"GaussianImputer", "IncompleteFactorAnalysis"}
FITTED_IN_PARTS |= {"CopulaGraphLearner", "MixtureImputer", "TableImputer"}
LAZY = {"transform", "score_samples", "score"}
FORMS = ["frame", "Chunks"]
NAMES, PART = list("abc"), 40


CAUSES = clone(SMALL["NoisyOr"]).set_params(binarize=2)
QUICKEST = [*{**SMALL, "NoisyOr": CAUSES}.values(), *PREDICTORS[:2]]


def named(estimator):
    return type(estimator).__name__


def table(n=120):
    """Make a table of positive numbers with missing cells."""
    rng = np.random.default_rng(0)
    X = 2 + np.abs(rng.normal(size=(n, 1)) + rng.normal(size=(n, 3)))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


READ = []  # one entry for each block that is read


def count(block):
    READ.append(len(block))
    return block


class Counted:
    """A table in parts that counts the blocks that are read."""

    def __init__(self, form, X):
        READ.clear()
        self.X = X
        if form == "frame":
            frame = pd.DataFrame(X, columns=NAMES[: X.shape[1]])
            lazy = dd.from_pandas(frame, npartitions=len(X) // PART)
            self.lazy = lazy.map_partitions(count, meta=frame[:0])
        else:
            ends = range(0, len(X), PART)
            self.lazy = Chunks([partial(self.chunk, k) for k in ends])

    @property
    def n_read(self):
        return len(READ)

    def chunk(self, first):
        return count(self.X[first : first + PART])


def read(output):
    """Compute what a method has returned, as one array."""
    if isinstance(output, float):
        return output
    if isinstance(output, Chunks):
        return np.concatenate(list(output))
    return np.asarray(output.compute())


def check_refusal(call, counted, name):
    """Check that a call raises a TypeError that helps, before anything is read."""
    with pytest.raises(TypeError, match="in parts") as caught:
        call()
    assert counted.n_read == 0, "blocks were read before the error"
    assert name in str(caught.value)
    assert counted.lazy is not None
    remedy = "concatenate" if isinstance(counted.lazy, Chunks) else ".compute()"
    assert remedy in str(caught.value)


def methods_of_rows(estimator):
    """List the public methods, other than `fit`, that take a table X."""
    names = []
    for name in dir(estimator):
        method = getattr(estimator, name, None)
        if name.startswith(("_", "fit", "set_", "partial")) or not callable(method):
            continue
        if "X" in inspect.signature(method).parameters:
            names.append(name)
    return names


def lazy_methods(estimator):
    """Return the methods that read a table in parts."""
    if not hasattr(estimator, "transform"):
        return set()
    return LAZY | ({"sample"} if hasattr(estimator, "sample") else set())


@pytest.mark.quick(3)
@pytest.mark.filterwarnings("ignore:EM stopped")  # of short fits
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("estimator", QUICKEST, ids=named)
def test_fit_reads_parts_or_refuses_them(estimator, form):
    counted, new = Counted(form, table()), clone(estimator)
    takes_y = not hasattr(estimator, "transform")
    y = {"y": np.arange(120) % 2} if takes_y else {}
    if named(estimator) in FITTED_IN_PARTS:
        new.fit(counted.lazy, **y)
        assert counted.n_read >= 3
    else:
        check_refusal(lambda: new.fit(counted.lazy, **y), counted, named(estimator))
        assert vars(new) == vars(clone(estimator)) or not hasattr(new, "n_features_in_")
        if hasattr(new, "fit_transform"):
            call = partial(new.fit_transform, counted.lazy)
            check_refusal(call, counted, named(estimator))
    if hasattr(new, "partial_fit") and named(estimator) != "GaussianImputer":
        call = partial(clone(estimator).partial_fit, counted.lazy)
        check_refusal(call, counted, named(estimator))


@pytest.mark.quick(2)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("estimator", QUICKEST, ids=named)
def test_methods_of_rows_read_parts_or_refuse_them(estimator):
    X, fitted = table(), clone(estimator)
    if hasattr(fitted, "random_state"):
        fitted.set_params(random_state=0)
    fitted.fit(X, *[] if hasattr(fitted, "transform") else [np.arange(120) % 2])
    names = methods_of_rows(fitted)
    assert set(names) & {"transform", "predict"}
    for form in FORMS:
        for name in names:
            counted = Counted(form, X)
            call = partial(getattr(fitted, name), counted.lazy)
            if name not in lazy_methods(fitted):
                if name == "score":
                    call = partial(call, np.arange(120) % 2)
                check_refusal(call, counted, named(estimator))
                continue
            output = call(random_state=0)[0] if name == "sample" else call()
            if name == "score":
                assert output == pytest.approx(fitted.score(X))
                continue
            assert counted.n_read == 0, f"{name} is not lazy"
            cells = read(output)
            if name == "sample":
                observed = ~np.isnan(X)
                np.testing.assert_allclose(cells[observed], X[observed])
                assert not np.isnan(cells).any()
            else:
                expected = np.asarray(getattr(fitted, name)(X))
                np.testing.assert_allclose(cells, expected, rtol=1e-6, atol=1e-8)


def test_set_output_holds_for_tables_in_memory_only():
    X, lazy = table(), Counted("frame", table()).lazy
    imputer = skvnce.GaussianImputer(n_parameter_draws=1).set_output(transform="pandas")
    latents = skvnce.IncompleteFactorAnalysis(1).set_output(transform="pandas")
    for output in (
        imputer.fit(pd.DataFrame(X, columns=NAMES)).transform(lazy),
        imputer.fit_transform(lazy),
        latents.fit_transform(lazy),
    ):
        assert type(output) is type(lazy)
    assert isinstance(imputer.fit(X).transform(X), pd.DataFrame)
    parts = imputer.transform(Chunks([X[:40], X[40:]]))
    assert [type(part) for part in parts] == [pd.DataFrame] * 2


def mixed(n=240):
    """Make a frame of numbers, two kinds of categories, booleans and counts."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "number": z + rng.normal(size=n),
            "answer": pd.Categorical(np.where(z > rng.normal(size=n), "yes", "no")),
            "text": pd.Series(rng.choice(list("pqr"), n), dtype="string"),
        }
    ).mask(rng.random((n, 3)) < 0.2)
    return frame.assign(flag=z > 0, count=rng.poisson(2, n))


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("levels", ["known", "unknown"])
@pytest.mark.parametrize(
    "estimator",
    [
        skvnce.GaussianImputer(max_iter=20, n_parameter_draws=2, random_state=0),
        skvnce.CopulaGraphLearner(max_iter=20, random_state=0),
        skvnce.ColumnImputer(regressor=LinearRegression(), random_state=0),
        skvnce.MixtureImputer(n_estimators=2, random_state=0),
        skvnce.TableImputer(n_estimators=3, n_parameter_draws=2, random_state=0),
    ],
    ids=named,
)
def test_categories_are_filled_in_partitions(estimator, levels):
    """Data types, levels and cells are those of the table in memory."""
    frame, fitted = mixed(), clone(estimator)
    fitted.fit(frame)
    lazy = dd.from_pandas(frame, npartitions=3)
    if levels == "unknown":
        lazy["answer"] = lazy["answer"].cat.as_unknown()
    filled = fitted.transform(lazy)
    computed = filled.compute()
    expected = clone(fitted).set_output(transform="pandas").fit(frame).transform(frame)
    pd.testing.assert_frame_equal(computed, expected, check_dtype=False)
    assert (computed.dtypes.astype(str) == filled.dtypes.astype(str)).all()
    assert computed.dtypes["answer"] == "category" and computed.dtypes["flag"] == "bool"
    assert not computed.isna().any(axis=None)
    if hasattr(fitted, "sample"):
        [drawn] = fitted.sample(lazy, random_state=0)
        drawn = drawn.compute()
        observed, cells = frame.notna(), drawn.astype(object)
        same = (cells[observed] == frame.astype(object)[observed])[observed]
        assert same.all(axis=None, skipna=True)
        assert not drawn.isna().any(axis=None)


X = table()
HIDDEN = np.isnan(table())
WHOLE = np.where(HIDDEN, 3.0, X)
DRAWS = [WHOLE] * 20
SHARES = {0: np.ones((len(X), 2)) / 2}

FUNCTIONS = {
    "missingness.mcar": lambda X: missingness.mcar(X, 0.2),
    "missingness.mar": lambda X: missingness.mar(X, 0.2),
    "missingness.mnar": lambda X: missingness.mnar(X, 0.2),
    "missingness.hide": lambda X: missingness.hide(X, HIDDEN),
    "evaluation.energy_i_score": lambda X: evaluation.energy_i_score(IMPUTER, X),
    "evaluation.imputation_report": lambda X: evaluation.imputation_report(
        {"normal": IMPUTER}, X
    ),
    "evaluation.missing_report": evaluation.missing_report,
    "evaluation.own_patterns": lambda X: evaluation.own_patterns(X, 0.1),
    "metrics.brier_score": lambda X: metrics.brier_score(X, SHARES, HIDDEN),
    "metrics.category_log_loss": lambda X: metrics.category_log_loss(X, SHARES, HIDDEN),
    "metrics.expected_calibration_error": lambda X: metrics.expected_calibration_error(
        X, SHARES, HIDDEN
    ),
    "metrics.ranked_probability_score": lambda X: metrics.ranked_probability_score(
        X, SHARES, HIDDEN
    ),
    "metrics.coverage": lambda X: metrics.coverage(X, DRAWS, HIDDEN),
    "metrics.coverage of draws": lambda X: metrics.coverage(WHOLE, [X], HIDDEN),
    "metrics.crps": lambda X: metrics.crps(X, DRAWS, HIDDEN),
    "metrics.edge_auc": lambda X: metrics.edge_auc(X, np.eye(3)),
    "metrics.energy_distance": lambda X: metrics.energy_distance(X, WHOLE),
    "metrics.energy_distance, 2": lambda X: metrics.energy_distance(WHOLE, X),
    "metrics.false_classification_rate": lambda X: metrics.false_classification_rate(
        X, WHOLE, HIDDEN
    ),
    "metrics.imputation_mae": lambda X: metrics.imputation_mae(X, WHOLE, HIDDEN),
    "metrics.imputation_rmse": lambda X: metrics.imputation_rmse(X, WHOLE, HIDDEN),
    "metrics.imputation_rmse, 2": lambda X: metrics.imputation_rmse(WHOLE, X, HIDDEN),
    "metrics.split_r_hat": metrics.split_r_hat,
    "metrics.two_sample_auc": lambda X: metrics.two_sample_auc(X, WHOLE, HIDDEN),
    "metrics.two_sample_auc, 2": lambda X: metrics.two_sample_auc(WHOLE, X, HIDDEN),
    "inspection.ImputationDisplay": lambda X: inspection.ImputationDisplay.from_draws(
        X, DRAWS
    ),
    "inspection.ImputationDisplay of draws": lambda X: (
        inspection.ImputationDisplay.from_draws(X, [X])
    ),
    "inspection.MissingnessDisplay": inspection.MissingnessDisplay.from_frame,
}
IMPUTER = skvnce.GaussianImputer()


def test_all_functions_of_tables_are_tested():
    public = {
        f"{name}.{one}"
        for name in ("missingness", "evaluation", "metrics", "inspection")
        for one in getattr(getattr(skvnce, name), "__all__", ())
    }
    of_estimators = {"ConvergenceDisplay", "EdgePathDisplay"}
    of_estimators |= {"GraphDisplay", "ReportDisplay", "SensitivityDisplay"}
    others = {f"inspection.{name}" for name in of_estimators}
    others |= {"evaluation.EnergyIScore", "evaluation.MissingReport"}  # results
    tested = {name.split(",")[0].split(" ")[0] for name in FUNCTIONS}
    assert public - others - tested == set()
    assert others < public


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_refuse_tables_in_parts(name, form):
    counted = Counted(form, table())
    check_refusal(lambda: FUNCTIONS[name](counted.lazy), counted, "This function")


def test_levels_have_one_order_in_all_parts():
    levels = [["low", "high"], ["high", "low"]]
    orders = [pd.CategoricalDtype(order, ordered=True) for order in levels]
    table = pd.DataFrame({"a": levels[0] * 20, "b": np.arange(40.0)})
    parts = [table.astype({"a": order}) for order in orders]
    with pytest.raises(ValueError, match=r"order \['low', 'high'\] in some parts"):
        skvnce.GaussianImputer().fit(Chunks(parts))
