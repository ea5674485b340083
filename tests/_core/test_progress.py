"""Nothing is silent for long: lines by `verbose`, tasks of callbacks, rounds."""

import re

import numpy as np
import pytest
from energies import Bell, Factor
from joblib import parallel_config
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV

import skvnce
from skvnce._core import progress
from skvnce._core.progress import (
    Step,
    heard_by,
    listener,
    step,
    steps,
    tell,
    tell_round,
)
from skvnce._imputer import callbacks
from skvnce.options import MCEM, IncompleteDensity


class Worker(callbacks.CallbackSupportMixin, BaseEstimator):
    """Works in steps, and lets others work."""

    def __init__(self, verbose=0, helper=None, n_helpers=1, fails=False):
        self.verbose = verbose
        self.n_helpers = n_helpers
        self.helper = helper
        self.fails = fails

    @callbacks.reports_fit
    def fit(self, X, y=None):
        on_round, finish = callbacks.report_rounds(self, 3, X=X)
        for n_tried in steps("choosing", range(2), 2):
            tell_round(n_tried)
        if self.fails:
            raise ValueError
        self.n_untold_ = progress.rounds_of_tuning()
        helpers = [self.helper] * self.n_helpers if self.helper else []
        for helper in steps("helper", helpers, self.n_helpers, has_parts=True):
            helper.fit(X)
        self.n_rounds_ = 0
        for n_round in range(1, 4):
            self.n_rounds_ = n_round
            if on_round(n_round, 1 / n_round, np.nan):
                break
        finish()
        return self

    @callbacks.shows_progress
    def transform(self, X):
        with step("filling", 1, 2):
            tell("sweep", 3, 4)


class Recorder:
    """A callback that lists tasks, and stops rounds after some."""

    def __init__(self, most=np.inf):
        self.tasks, self.rounds, self.most = [], [], most

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(f"+{context.task_name}")

    def on_fit_task_end(self, estimator, context, *, metadata=None):
        self.tasks.append(f"-{context.task_name}")
        if context.task_name == "round":
            self.rounds.append(metadata)
            return len(self.rounds) >= self.most
        return False


def lines(capsys):
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def slow(monkeypatch):
    """Every step takes long enough to be shown again."""
    monkeypatch.setattr(callbacks, "_EVERY", 0.0)


def test_steps_are_written_as_a_reader_counts():
    assert str(Step("drawing", 3, 20)) == "drawing 3 of 20"
    assert str(Step("drawing", 3)) == "drawing 3"
    assert str(Step("drawing", 1, 1)) == str(Step("drawing")) == "drawing"


def test_nobody_need_listen():
    with step("alone"):
        tell("sweep")
    assert list(steps("alone", "ab")) == ["a", "b"]
    assert listener() is None
    assert tell_round(1, 2.0, 3.0) is False


def test_quick_work_is_one_line_a_step_and_a_round(capsys):
    Worker(verbose=True).fit([[0.0]])
    rounds = [f"[Worker] round {k}: loss {1 / k:.6g}" for k in (1, 2, 3)]
    assert lines(capsys) == ["[Worker] choosing 1 of 2", *rounds]
    Worker().fit([[0.0]])
    assert lines(capsys) == []


def test_a_second_level_shows_every_step(capsys):
    Worker(verbose=2).fit([[0.0]])
    assert "[Worker] choosing 2 of 2: round 1" in lines(capsys)


def test_one_line_for_work_of_two(capsys):
    Worker(verbose=1, helper=Worker(verbose=1), n_helpers=2).fit([[0.0]])
    result = lines(capsys)
    assert result[1:4] == [
        "[Worker] helper 1 of 2",
        "[Worker] helper 1 of 2: choosing 1 of 2",
        "[Worker] helper 1 of 2: round 1: loss 1",
    ]
    assert len(result) == 1 + 2 * (2 + 3) + 3
    Worker(verbose=1, helper=Worker(verbose=1)).fit([[0.0]])
    expected = ["[Worker] choosing 1 of 2", "[Worker] round 1: loss 1"]
    assert lines(capsys)[1:3] == expected
    Worker(helper=Worker(verbose=1)).fit([[0.0]])
    assert lines(capsys)[0] == "[Worker] choosing 1 of 2"


def test_callbacks_see_a_tree_of_tasks():
    pytest.importorskip("sklearn.callback")
    recorder = Recorder()
    worker = Worker().set_callbacks(recorder).fit([[0.0]])
    chosen = ["+choosing", "+choosing", "-choosing", "+choosing", "-choosing"]
    rounds = ["+fitting", *["+round", "-round"] * 3, "-fitting"]
    between = ["setup", "+fit", *chosen, "-choosing", *rounds, "-fit", "teardown"]
    assert recorder.tasks == between
    assert recorder.rounds[1]["loss"] == 0.5
    assert worker.n_untold_ == 2


@pytest.mark.parametrize("most", [1, 2])
def test_callbacks_stop_rounds(most):
    pytest.importorskip("sklearn.callback")
    assert Worker().set_callbacks(Recorder(most)).fit([[0.0]]).n_rounds_ == most


def test_callbacks_see_and_stop_the_work_of_helpers():
    pytest.importorskip("sklearn.callback")
    recorder, helper = Recorder(2), Worker()
    Worker(helper=helper).set_callbacks(recorder).fit([[0.0]])
    inside = ["+helper", "+helper", "+choosing"]
    place = recorder.tasks.index("+helper")
    assert recorder.tasks[place : place + 3] == inside
    assert helper.n_rounds_ == 2


def test_a_failure_leaves_nobody_listening():
    with pytest.raises(ValueError):
        Worker(verbose=1, fails=True).fit([[0.0]])
    assert listener() is None


def test_a_step_that_was_left_open_is_closed_by_the_next(capsys):
    progress = callbacks.Progress(Worker(verbose=1))
    with heard_by(progress), step("outer"):
        for _ in steps("inner", range(3), 3):
            break
        with step("other"):
            pass
    assert lines(capsys)[-1] == "[Worker] outer: other"


@pytest.mark.parametrize("verbose", [-1, "yes", 1.5, None])
def test_a_wrong_verbose_is_named(verbose):
    with pytest.raises(ValueError, match="'verbose' parameter of GaussianImp"):
        skvnce.GaussianImputer(verbose=verbose).fit([[1.0], [2.0]])


@pytest.fixture
def X(rng):
    X = 10 + rng.normal(size=(60, 1)) + rng.normal(size=(60, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def steps_of(found):
    """Name the steps of lines, without class, numbers and what was measured."""
    names = [re.sub(r"\[\w+\] |:? (loss|change) .*", "", line) for line in found]
    names = [re.sub(r" \d+( of \d+)?", "", name) for name in names]
    return list(dict.fromkeys(names))


def test_gaussian_imputer_counts_its_rounds(X):
    pytest.importorskip("sklearn.callback")
    log = Recorder(2)
    imputer = skvnce.GaussianImputer(tol=1e-9, random_state=0).set_callbacks(log).fit(X)
    assert imputer.n_iter_ == len(imputer.loss_curve_) == len(log.rounds) == 2
    assert imputer.n_tuning_iter_ > 2
    fixed = (
        clone(imputer).set_params(shrinkage=0.1, marginals="normal", tol=5e-3).fit(X)
    )
    assert fixed.n_iter_ == len(fixed.loss_curve_)
    assert fixed.n_tuning_iter_ < imputer.n_tuning_iter_


VAE = skvnce.VariationalAutoencoder(max_iter=2, hidden_layer_sizes=(8,), random_state=0)
VGI = {"n_steps": 2, "n_draws": 4, "random_state": 0}
DENSITY = {"max_iter": 2, "n_training_draws": 1}
TRAINED = [
    VAE,
    skvnce.LAIRImputer(VAE, n_estimators=2, n_steps=2, n_draws=4, random_state=0),
    skvnce.VGIImputer(IncompleteDensity("vae", **DENSITY), n_estimators=2, **VGI),
    skvnce.VGIImputer(IncompleteDensity("factor-analysis", **DENSITY), **VGI),
    skvnce.VGIImputer(
        IncompleteDensity("coupling-flow", algorithm=MCEM(n_steps=3), **DENSITY), **VGI
    ),
]


SHORT = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skvnce.exceptions.MisfitWarning",
)


def name_of(estimator):
    return type(estimator).__name__


@pytest.mark.quick(3)
@SHORT
@pytest.mark.parametrize("estimator", TRAINED, ids=name_of)
def test_training_counts_its_rounds(estimator, X, short_training):
    fitted = clone(estimator).fit(X)
    for one in getattr(fitted, "estimators_", [fitted]):
        assert len(one.validation_scores_) <= len(one.loss_curve_)
        assert one.n_tuning_iter_ > 0
    if hasattr(fitted, "n_iter_"):
        assert fitted.n_iter_ == len(fitted.loss_curve_) >= 2


@pytest.mark.quick(3)
@SHORT
@pytest.mark.parametrize("estimator", TRAINED, ids=name_of)
def test_callbacks_stop_training(estimator, X, short_training):
    pytest.importorskip("sklearn.callback")
    recorder = Recorder(1)
    fitted = clone(estimator).set_callbacks(recorder).fit(X)
    for one in getattr(fitted, "estimators_", [fitted])[:1]:
        assert len(one.validation_scores_) <= 1
    assert {"+choosing the shrinkage", "+fitting", "-fitting"} <= set(recorder.tasks)


GRAPH = {"max_iter": 3, "tol": 1e-9, "n_steps": 4, "random_state": 0}
FOLDS = {"alphas": 3, "selection": "cv", "cv": 2, "random_state": 0}
COPULA = {"max_iter": 3, "tol": 1e-9}
FITTED = [
    skvnce.IncompleteFactorAnalysis(),
    skvnce.TruncatedGaussianGraphLearner(**GRAPH),
    skvnce.TruncatedGaussianGraphLearnerCV(
        skvnce.TruncatedGaussianGraphLearner(**GRAPH), **FOLDS
    ),
    skvnce.CopulaGraphLearner(**COPULA, random_state=0),
    skvnce.CopulaGraphLearnerCV(skvnce.CopulaGraphLearner(**COPULA), **FOLDS),
    skvnce.VNCEEstimator(Bell, noise_ratio=2, max_iter=2, random_state=0),
    skvnce.VNCEEstimator(Factor, noise_ratio=2, max_iter=2, n_init=2, random_state=0),
    skvnce.NoisyOr(2, binarize=10.0, max_iter=3, random_state=0),
]


# those that fill without a choice of a strategy
BY_MEANS = ["ColumnImputer", "CopulaGraphLearner", "TruncatedGaussianGraphLearner"]


@pytest.mark.quick(4)
@pytest.mark.filterwarnings("ignore:selection='cv' chose")  # of three alphas
@SHORT
@pytest.mark.parametrize("estimator", [*TRAINED, *FITTED], ids=name_of)
def test_fits_name_their_steps(estimator, X, capsys, slow, short_training):
    fitted = clone(estimator).set_params(verbose=1).fit(X)
    shown = lines(capsys)
    assert all(line.startswith(f"[{name_of(fitted)}] ") for line in shown)
    assert not re.search(r"\b(nan|inf)\b", "".join(shown))
    steps = steps_of(shown)
    assert any("round" in step for step in steps) and len(steps) > 1
    fills = hasattr(fitted, "strategy") or name_of(fitted) in BY_MEANS
    if fills and not getattr(fitted, "n_components_", 0):
        fitted.transform(X)
        assert any("filling rows" in step for step in steps_of(lines(capsys)))


@pytest.mark.quick(2)
@SHORT
@pytest.mark.filterwarnings("ignore:selection='cv' chose the smallest")
@pytest.mark.parametrize("estimator", FITTED, ids=name_of)
def test_callbacks_stop_fits(estimator, X):
    pytest.importorskip("sklearn.callback")
    recorder = Recorder(1)
    fitted = clone(estimator).set_callbacks(recorder).fit(X)
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 1
    assert "+fitting" in recorder.tasks


@SHORT
def test_tuning_is_counted_apart(X):
    analysis = skvnce.IncompleteFactorAnalysis().fit(X)
    assert analysis.n_tuning_iter_ > 0
    assert skvnce.IncompleteFactorAnalysis(1).fit(X).n_tuning_iter_ == 0
    learner = skvnce.TruncatedGaussianGraphLearner(**GRAPH)
    pilot = clone(learner).fit(X).n_tuning_iter_
    assert pilot > 0
    assert learner.set_params(ridge_linear=0.1).fit(X).n_tuning_iter_ == 0


@SHORT
@pytest.mark.filterwarnings("ignore:selection='cv' chose the smallest")
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_rounds_of_folds_are_counted_wherever_they_run(n_jobs, X):
    one = skvnce.TruncatedGaussianGraphLearnerCV(
        skvnce.TruncatedGaussianGraphLearner(ridge_linear=0.1, **GRAPH),
        alphas=2,
        selection="cv",
        cv=2,
        n_jobs=n_jobs,
        random_state=0,
    )
    with parallel_config("threading"):
        one.fit(X)
    assert one.n_tuning_iter_ == 2 * GRAPH["max_iter"]
    assert one.n_iter_ == len(one.loss_curve_) == GRAPH["max_iter"]


@pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning")  # 30 rows a fold
def test_callbacks_of_a_search_see_the_steps_of_its_fits(X):
    pytest.importorskip("sklearn.callback")
    recorder = Recorder()
    recorder.max_propagation_depth = None  # the mark of those that a search passes on
    grid = {"shrinkage": [0.1, 1.0]}
    search = GridSearchCV(skvnce.GaussianImputer(marginals="normal"), grid, cv=2)
    search.set_callbacks(recorder).fit(X)
    assert recorder.tasks.count("+fitting") == 5
    assert recorder.tasks.count("-fitting") == 5
    assert len(recorder.rounds) >= 5
