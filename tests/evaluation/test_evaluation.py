"""Reports of imputers on hidden cells, and scores without truth."""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import quick_gaussian
from errors import refused
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge

from skvnce import ColumnImputer, ConstrainedImputer, GaussianImputer, metrics
from skvnce.evaluation import energy_i_score, imputation_report, own_patterns
from skvnce.evaluation._report import MECHANISMS, _predictors
from skvnce.exceptions import TableWarning
from skvnce.inspection import ReportDisplay
from skvnce.missingness import hide, mcar

pytestmark = pytest.mark.usefixtures("short_training")
FEW = {"n_repeats": 1, "n_draws": 19, "random_state": 0}
MODE = SimpleImputer(strategy="most_frequent")
NUMBERS, LEVELS = ["rmse", "crps", "coverage"], ["pfc", "brier"]


class Constant(TransformerMixin, BaseEstimator):
    """Fills all missing cells by one number, and draws it and its negative in turn."""

    def __init__(self, value=1.0):
        self.value = value

    def fit(self, X, y=None):
        self.rows_ = len(X)
        return self

    def transform(self, X):
        return np.where(np.isnan(X), self.value, X)

    def sample(self, X, n_draws=1, random_state=None):
        values = [self.value * (-1) ** k for k in range(n_draws)]
        return [np.where(np.isnan(X), value, X) for value in values]


def normal(rng, n=200, d=3, rho=0.8):
    covariance = np.full((d, d), rho) + (1 - rho) * np.eye(d)
    return rng.multivariate_normal(np.zeros(d), covariance, size=n)


def mixed(rng, n=150):
    age = rng.normal(50, 10, n)
    smoker = np.where(rng.uniform(size=n) < 1 / (1 + np.exp((age - 50) / 5)), "y", "n")
    frame = pd.DataFrame(
        {
            "age": age,
            "pressure": 80 + age + rng.normal(0, 5, n),
            "smoker": pd.Categorical(smoker),
            "happy": rng.uniform(size=n) < 0.5,
        }
    )
    return hide(frame, np.array([0, 1, 1, 0]) * (rng.uniform(size=(n, 1)) < 0.2) > 0)


def test_scores_are_those_of_the_metrics():
    X = normal(np.random.default_rng(0), 40)
    report = imputation_report({"one": Constant()}, X, n_repeats=2, random_state=3)
    assert list(report["repeat"]) == [0, 1] and set(report["mechanism"]) == {"mcar"}
    rng = np.random.default_rng(3)
    for _, row in report.iterrows():
        hidden = mcar(X, 0.2, random_state=int(rng.integers(2**31)))
        table, sd = hide(X, hidden), X.std(0)
        draws = Constant().sample(table, 20)
        filled = np.where(hidden, 1.0, X)
        expected = {
            "rmse": metrics.imputation_rmse(X, filled, hidden, scale=sd),
            "crps": metrics.crps(X, draws, hidden, scale=sd),
            "coverage": metrics.coverage(X, draws, hidden, ties="shared"),
        }
        assert {key: row[key] for key in expected} == pytest.approx(expected)
        assert np.isnan(row["pfc"]) and np.isnan(row["brier"]) and row["seconds"] > 0


def test_rows_are_hidden_as_a_whole_but_for_groups(rng_0):
    X = rng_0.normal(size=(300, 3))
    X[rng_0.random(X.shape) < 0.1] = np.nan
    hidden = MECHANISMS["rows"](X, 0.2, random_state=0)
    rows = hidden.any(1)
    assert 30 < rows.sum() < 90
    np.testing.assert_array_equal(hidden[rows], ~np.isnan(X[rows]))
    group = np.repeat(np.arange(60), 5)
    frame = pd.DataFrame(X + rng_0.normal(size=(60, 1))[group], columns=list("abc"))
    frame["group"] = [f"g{k}" for k in group]
    imputer = GaussianImputer(groups="group", random_state=0, max_iter=20)
    options = {"mechanism": "rows", "n_repeats": 1, "random_state": 0}
    report = imputation_report({"groups": imputer}, frame, **options)
    flat, alone = quick_gaussian(), frame.drop(columns="group")
    flat = imputation_report({"flat": flat}, alone, **options)
    assert report["rmse"][0] < 0.9 * flat["rmse"][0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_columns_with_random_slopes_are_not_hidden(rng_0):
    frame = pd.DataFrame(rng_0.normal(size=(120, 3)), columns=["time", "a", "b"])
    frame["group"] = np.repeat(np.arange(24), 5)
    frame.loc[::7, "a"] = np.nan
    quick = {"max_iter": 20, "on_misfit": "ignore", "random_state": 0}
    kinds = {"group": ["time"]}, "group"
    imputers = [GaussianImputer(groups=groups, **quick) for groups in kinds]
    imputers = dict(zip(["slopes", "intercepts"], imputers, strict=True))
    for mechanism in ("mcar", "rows"):
        options = {"mechanism": mechanism, "n_repeats": 1, "random_state": 0}
        report = imputation_report(imputers, frame, **options)
        assert report["rmse"].between(0.5, 1.5).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("mechanism", ["mcar", "mar", "patterns"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_mixed_frames(mechanism, library):
    frame = mixed(np.random.default_rng(1))
    frame = frame if library == "pandas" else pl.from_pandas(frame)
    imputer = quick_gaussian()
    imputers = {"gaussian": imputer}
    if library == "pandas":
        imputers["mode"] = ColumnTransformer(
            [
                ("numbers", SimpleImputer(), ["age", "pressure"]),
                ("smoker", MODE, ["smoker"]),
                ("happy", MODE, ["happy"]),
            ],
            verbose_feature_names_out=False,
        )
    options = {"mechanism": mechanism, "n_repeats": 2, "random_state": 0}
    report = imputation_report(imputers, frame, **options)
    assert len(report) == 2 * len(imputers) and not hasattr(imputer, "n_iter_")
    found = report.set_index("imputer").groupby(level=0).mean(numeric_only=True)
    ours = found.loc["gaussian"]
    assert ours[NUMBERS + LEVELS].notna().all() and 0 < ours["rmse"] < 0.9
    if library == "pandas":
        assert found.loc["mode", ["crps", "coverage", "brier"]].isna().all()
        assert ours["rmse"] < found.loc["mode", "rmse"]


@pytest.mark.parametrize("library", ["pandas", "polars", "array"])
def test_levels_that_are_hidden_everywhere_count_as_impossible(library, rng):
    """The cell of a level that no other row has is predicted as one of the others."""
    levels = np.array(["yes", "no"] * 20 + ["rare"], dtype=object)
    frame = pd.DataFrame({"x": rng.normal(size=41), "level": levels})
    X = {"pandas": frame, "polars": pl.from_pandas(frame), "array": frame.to_numpy()}
    imputer = GaussianImputer(n_parameter_draws=2, max_iter=20, random_state=0)
    if library == "array":
        imputer.set_params(categorical_features=[1])
    scores = []
    for rows in ([40], [0], [0, 40]):
        hidden = np.zeros((41, 2), bool)
        hidden[rows, 1] = True
        options = {
            "mechanism": lambda *_, cells=hidden, **__: cells,
            "n_repeats": 1,
            "n_draws": 19,
        }
        report = imputation_report({"one": imputer}, X[library], **options)
        scores.append(float(report["brier"][0]))
    rare, other, both = scores
    assert 1.5 <= rare <= 2 and 0 < other < 1  # 1 plus the sum of squared shares
    assert other < both < rare


@pytest.mark.filterwarnings("ignore:Entirely missing")
def test_empty_columns_and_indicators_change_no_score(rng):
    X = normal(rng, 60, 2)
    imputers = {
        "normal": quick_gaussian(),
        "mean": SimpleImputer(),
        "parts": ConstrainedImputer(quick_gaussian()),
    }
    with_indicators = {
        name: clone(one).set_params(add_indicator=True)
        for name, one in imputers.items()
    }
    hidden = np.zeros((60, 4), bool)
    hidden[:20, :2] = True
    rare = np.full(60, np.nan)
    rare[:2] = 0, 1
    hidden[:2, 2] = True  # all of its observed cells, none of which is scored
    wide = np.column_stack([X, rare, np.full(60, np.nan)])
    reports = [
        imputation_report(
            used, table, mechanism=lambda X, *_, **__: hidden[:, : X.shape[1]], **FEW
        )
        for used, table in ((imputers, X), (with_indicators, wide))
    ]
    first, other = (one.drop(columns="seconds") for one in reports)
    means = first["imputer"] == "mean"
    pd.testing.assert_frame_equal(other[means], first[means])
    assert np.isfinite(other.loc[~means, "rmse"]).all()


def test_a_report_depends_on_its_seed_only():
    X = mixed(np.random.default_rng(2))
    imputers = {"normal": quick_gaussian()}
    settings = [{"n_repeats": 1, "random_state": seed} for seed in (0, 0, 1)]
    reports = [imputation_report(imputers, X, **one) for one in settings]
    scores = [report.drop(columns="seconds") for report in reports]
    pd.testing.assert_frame_equal(scores[0], scores[1])
    assert not scores[0].equals(scores[2])


def test_cells_are_hidden_by_functions():
    X = normal(np.random.default_rng(0), 50)

    def first_column(table, fraction, random_state):
        hidden = np.zeros(table.shape, dtype=bool)
        hidden[: int(fraction * len(table)), 0] = True
        return hidden

    options = {"mechanism": [first_column, "mcar"], "n_repeats": 1}
    report = imputation_report({"one": Constant(0.0)}, X, **options)
    assert list(report["mechanism"]) == ["first_column", "mcar"]
    expected = np.sqrt(np.mean(X[:10, 0] ** 2)) / X[:, 0].std()
    assert report["rmse"][0] == pytest.approx(expected)


def test_own_patterns_are_patterns_of_the_table(seed, rng):
    X = normal(rng, 4000, 4)
    X[:400, [0, 1]] = np.nan
    X[400:600, 3] = np.nan
    hidden = own_patterns(X, 0.1, random_state=seed)
    assert not hidden[np.isnan(X)].any()
    complete = hidden[600:]
    found = {tuple(np.flatnonzero(row)) for row in np.unique(complete, axis=0)}
    assert found == {(), (0, 1), (3,)}
    share = (complete[:, 0].sum()) / complete.any(1).sum()
    assert abs(share - 2 / 3) < 5 * np.sqrt(2 / 9 / complete.any(1).sum())
    observed = ~np.isnan(X)
    assert abs(hidden.sum() / observed.sum() - 0.1) < 0.02
    most = own_patterns(X, 0.9, random_state=0)[600:]
    assert abs(most[:, 0].mean() - 0.5) < 5 * np.sqrt(0.25 / len(most))
    with pytest.raises(ValueError, match="rows with missing and observed cells"):
        own_patterns(X[600:], 0.1)


def test_the_imputer_that_fails_is_named():
    frame = mixed(np.random.default_rng(0))
    with pytest.raises(ValueError) as error:
        imputation_report({"means": SimpleImputer()}, frame)
    assert error.value.__notes__ == ["Raised by the imputer 'means'."]


ROWS = normal(np.random.default_rng(0), 30)
HALF = hide(ROWS, mcar(ROWS, 0.5, random_state=0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mechanism": "mnar"}, "mechanism must be some of"),
        ({"mechanism": []}, "mechanism must be some of"),
        ({"mechanism": None}, "mechanism must be some of"),
        ({"mechanism": ["mcar", "mcar"]}, "of different names"),
        ({"mechanism": [lambda X: X, lambda X: -X]}, "of different names"),
        ({"n_draws": 10}, "n_draws must be at least 19"),
        ({"n_repeats": 0}, "n_repeats must be"),
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"fraction": 0.0}, "raise fraction"),
        ({"X": HALF, "mechanism": "mar"}, "column of X without missing cells"),
        ({"X": ROWS[:, :1], "mechanism": "mar"}, "two columns or more"),
    ],
)
def test_errors_of_reports(options, words):
    with pytest.raises(ValueError, match=words):
        imputation_report(**{"imputers": {"one": Constant()}, "X": ROWS, **options})
    with pytest.raises(TypeError, match="must be an estimator with fit"):
        imputation_report({"mean": SimpleImputer}, ROWS)
    for imputers in ([Constant()], ROWS, Constant()):
        with pytest.raises(TypeError, match="must be a dict .*, got [A-Za-z]+\\. The"):
            imputation_report(imputers, ROWS)
    refused(ValueError, "imputers must hold at least one", imputation_report, {}, ROWS)


def test_energy_i_scores_of_constants():
    """Draws of 1 and -1 in turn, and of one number, whose scores are sums by hand."""
    X = np.array([[0.5, 1.0], [2.0, np.nan], [np.nan, 3.0], [4.0, 5.0], [0.0, np.nan]])
    found = energy_i_score(Constant(), X, n_draws=2)
    first, second = X[[0, 1, 3, 4], 0], X[[0, 2, 3], 1]
    rows = {"0": X[[0, 3], 0], "1": X[[0, 3], 1]}  # the other column is observed, too
    for key, scale in (("0", first.std()), ("1", second.std())):
        distances = (np.abs(rows[key] - 1) + np.abs(rows[key] + 1)) / 2
        assert found.columns[key] == pytest.approx((distances - 1).mean() / scale)
    assert found.weights == pytest.approx({"0": 4 / 25, "1": 6 / 25})
    expected = 0.4 * found.columns["0"] + 0.6 * found.columns["1"]
    assert found.score == pytest.approx(expected)
    X[:, 0] = 0.5
    point = energy_i_score(SimpleImputer(strategy="constant", fill_value=2.0), X)
    distances = np.abs(X[[0, 2, 3], 1] - 2).mean() / second.std()
    assert point.score == pytest.approx(distances) and list(point.columns) == ["1"]


def test_energy_i_scores_of_categories():
    """Levels drawn in halves: the Brier score of one half for each level, unbiased."""
    frame = pd.DataFrame({"x": np.arange(9.0), "level": list("abababab") + [None]})
    frame["level"] = frame["level"].astype("category")
    found = energy_i_score(_Alternating(), frame, n_draws=4)
    expected = (0.5 - 0.5 / 3) / np.sqrt(2)  # eq. (4) of the Brier score
    assert found.columns == pytest.approx({"level": expected})


@pytest.mark.slow
def test_energy_i_scores_of_mixed_frames():
    """No column is observed wherever another is; rows are chosen by position."""
    frame = mixed(np.random.default_rng(1))
    frame.loc[::3, "happy"] = pd.NA
    frame.loc[1::4, "age"] = np.nan
    frame.index = np.arange(len(frame))[::-1]
    imputer = quick_gaussian()
    found = energy_i_score(imputer, frame, random_state=0)
    other = energy_i_score(imputer, pl.from_pandas(frame), random_state=0)
    assert found == other and list(found.columns) == list(frame.columns)
    assert all(type(one) is float and one > 0 for one in found.columns.values())


class _Alternating(Constant):
    def set_output(self, transform=None):
        return self

    def sample(self, X, n_draws=1, random_state=None):
        return [X.fillna({"level": "ab"[k % 2]}) for k in range(n_draws)]


def test_errors_of_energy_i_scores():
    X = normal(np.random.default_rng(0), 30)
    with pytest.raises(ValueError, match="got none; use imputation_report"):
        energy_i_score(Constant(), X)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="n_draws must be at least 2"):
        energy_i_score(Constant(), X, n_draws=1)
    refused(TypeError, "imputer must be an estimator", energy_i_score, "mean", X)
    with pytest.raises(ValueError, match="must complete all columns of X"):
        energy_i_score(SimpleImputer(add_indicator=True), X)
    dates = pd.DataFrame({"x": [1.0, 2.0, 3.0], "day": ["2020-01-01", None, None]})
    dates["day"] = pd.to_datetime(dates["day"])
    with pytest.raises(ValueError, match="Column 'day' has dates"):
        energy_i_score(GaussianImputer(), dates)


def test_a_report_is_drawn():
    X = normal(np.random.default_rng(0), 40)
    X[::5, 1] = np.nan
    imputers = {"$one": Constant(), "zero": Constant(0.0)}
    report = imputation_report(imputers, X, mechanism=["mcar", "patterns"])
    display = ReportDisplay.from_report(report)
    assert display.axes_.shape == (2, 4)
    labels = [ax.get_xlabel() for ax in display.axes_[-1]]
    assert labels == ["RMSE", "CRPS", "coverage", "seconds"]
    dots = display.axes_[0, 0].lines[0].get_xdata()
    chosen = report[(report["mechanism"] == "mcar") & (report["imputer"] == "$one")]
    np.testing.assert_array_equal(dots, chosen["rmse"])
    display.figure_.canvas.draw()
    plt.close(display.figure_)
    with pytest.raises(ValueError, match="must be a data frame of imputation_report"):
        ReportDisplay(pd.DataFrame({"rmse": [1.0]}))
    with pytest.raises(ValueError, match="at least one score"):
        ReportDisplay(report[["mechanism", "imputer"]])


def test_the_predictor_is_the_column_observed_most_often_with_the_scored_one():
    observed = np.ones((10, 3), dtype=bool)
    observed[4:, 0] = observed[0, 1] = observed[:2, 2] = False
    observed[5:8, 1] = False  # outside of the rows of column 0, where 1 is ahead of 2
    used = np.ones(3, dtype=bool)
    assert _predictors(observed, 0, used) == [1]
    observed[0, 1] = True
    assert _predictors(observed, 0, used) == [1]
    observed[0, 2] = observed[1, 2] = True
    assert _predictors(observed, 0, used) == [1, 2]
    used[1] = False
    assert _predictors(observed, 0, used) == [2]
    used[2] = False
    assert _predictors(observed, 0, used) == []


def incomplete(rng, n=200):
    X = normal(rng, n)
    return pd.DataFrame(hide(X, mcar(X, 0.2, random_state=0)), columns=list("abc"))


@pytest.mark.slow
@pytest.mark.parametrize("blanks", [0, 30])
def test_energy_i_scores_leave_names_out(blanks):
    X, imputer = incomplete(np.random.default_rng(0)), quick_gaussian()
    without = energy_i_score(imputer, X, random_state=0)
    names = pd.Series([f"q{k}" for k in range(len(X))], dtype=object)
    Y = X.assign(id=names.where(names.index >= blanks))
    with pytest.warns(TableWarning, match="Identifiers") as caught:
        assert energy_i_score(imputer, Y, random_state=0) == without
    assert len(caught) == 1
    Y = X.assign(id=names.index.to_series().where(names.index >= blanks))
    passing = imputer.set_params(categorical_features={"id": "passthrough"})
    assert energy_i_score(passing, Y, random_state=0) == without
    with pytest.raises(ValueError, match="columns with missing and observed cells"):
        energy_i_score(passing, X.fillna(0).assign(id=Y["id"]))


def test_categories_of_few_remaining_cells_have_an_energy_i_score(rng_0):
    """40 levels in 180 cells are categories, and in the 20 others identifiers."""
    x = rng_0.normal(size=200)
    level = pd.Series([f"level{k % 40}" for k in range(200)], dtype=object)
    X = pd.DataFrame({"x": x, "level": level.where(np.arange(200) % 9 > 0)})
    assert 0 < energy_i_score(quick_gaussian(), X, n_draws=2).columns["level"] < 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("order", [1, -1])
def test_reports_score_no_column_that_an_imputer_passes_through(order):
    X = incomplete(np.random.default_rng(0)).assign(pid=np.arange(200))
    kinds = {"pid": "passthrough"}
    passing = quick_gaussian(categorical_features=kinds)
    imputers = {"asked": passing, "mean": SimpleImputer()}
    imputers |= {"columns": ColumnImputer(passing, regressor=Ridge(), random_state=0)}
    imputers = dict([*imputers.items()][::order])
    report = imputation_report(imputers, X, n_repeats=1, random_state=0)
    assert (report["rmse"] > 0).all()


def test_reports_hide_no_categories_that_look_like_names_without_hidden_cells():
    """100 levels in 200 cells are categories, and names where a half is hidden."""
    level = pd.Series([f"level{k % 100}" for k in range(200)], dtype=object)
    X = incomplete(np.random.default_rng(0)).assign(level=level)
    imputer = quick_gaussian()
    options = {"fraction": 0.5, "n_repeats": 1, "random_state": 0}
    report = imputation_report({"one": imputer}, X, **options)
    assert report["rmse"].notna().all() and report["pfc"].isna().all()


class Recorder(Constant):
    """Remembers which cells were missing in its fits."""

    seen = []

    def fit(self, X, y=None):
        self.seen.append(np.isnan(X))
        return super().fit(X)


@pytest.mark.parametrize("mechanism", ["mcar", "mar"])
def test_columns_that_follow_from_each_other_are_hidden_together(mechanism):
    X = np.random.default_rng(0).gamma(3, size=(200, 5))
    X[:, 1], X[:, 2] = np.log(X[:, 0]), X[:, 0] * X[:, 3]
    X[1, :3] = np.nan
    Recorder.seen.clear()
    options = {"n_repeats": 1, "n_draws": 20, "random_state": 0}
    imputation_report({"one": Recorder()}, X, mechanism=mechanism, **options)
    hidden = Recorder.seen[0] & ~np.isnan(X)
    rows = np.arange(200) != 1
    for j in (1, 2):
        np.testing.assert_array_equal(hidden[rows, j], hidden[rows, 0])
    assert (hidden[:, 4] != hidden[:, 0]).any()  # the control
    assert 10 < hidden[:, 0].sum() < 90


def test_energy_i_score_agrees_with_that_of_r():
    """R's Iscores has no score of column 1, and columns are not scaled there."""
    file = Path(__file__).parents[1] / "reference" / "iscores.json"
    recorded = json.loads(file.read_text())
    X = np.array(recorded["table"], dtype=float)
    found = energy_i_score(SimpleImputer(), X, random_state=0)
    pairs = dict(zip(recorded["places"], recorded["scores"], strict=True))
    assert {place for place, score in pairs.items() if score} == {2, 3}
    for place in (2, 3):
        score = found.columns[str(place)] * np.nanstd(X[:, place])
        np.testing.assert_allclose(score, pairs[place], rtol=1e-12)
    weights = dict(zip(recorded["places"], recorded["weights"], strict=True))
    for place, weight in weights.items():
        np.testing.assert_allclose(found.weights[str(place)], weight)


def test_imputers_that_move_columns_are_refused():
    frame = pd.DataFrame(
        np.random.default_rng(0).normal(size=(30, 2)), columns=["b", "a"]
    )
    frame.loc[:4, "b"] = np.nan
    mover = ColumnTransformer(
        [("a", SimpleImputer(), ["a"]), ("b", SimpleImputer(), ["b"])],
        verbose_feature_names_out=False,
    )
    message = "another order, ['a', 'b']"
    refused(ValueError, re.escape(message), energy_i_score, mover, frame)
    with pytest.raises(ValueError, match=re.escape(message)):
        imputation_report({"mover": mover}, frame, **FEW)
