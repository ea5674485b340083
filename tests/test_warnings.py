"""Every warning points at the user's line, through whatever calls `fit` for it."""

import functools
import threading
import warnings

import numpy as np
import pytest
import torch
from energies import Bell
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skvnce
from skvnce._core.distributions.normal import cholesky
from skvnce._core.warnings import warn_user
from skvnce.options import IncompleteDensity

pytestmark = pytest.mark.usefixtures("short_training")

SHORT = {"max_iter": 1, "tol": 1e-12}
VAE = skvnce.VariationalAutoencoder(max_iter=1, hidden_layer_sizes=(8,))
UNSETTLED = [  # which stop before they converge
    skvnce.GaussianImputer(marginals="normal", n_parameter_draws=0, **SHORT),
    skvnce.IncompleteFactorAnalysis(1, **SHORT),
    skvnce.TruncatedGaussianGraphLearner(max_iter=2, tol=1e-12),
    skvnce.TruncatedGaussianGraphLearnerCV(
        skvnce.TruncatedGaussianGraphLearner(max_iter=2, tol=1e-12), alphas=2
    ),
    skvnce.CopulaGraphLearner(max_iter=2, tol=1e-12),
    skvnce.CopulaGraphLearnerCV(
        skvnce.CopulaGraphLearner(max_iter=2, tol=1e-12), alphas=2
    ),
    skvnce.VNCEEstimator(Bell, max_iter=1),
]
ESTIMATORS = [
    *UNSETTLED,
    VAE,
    skvnce.LAIRImputer(VAE, n_estimators=2, n_steps=1, n_draws=2),
    skvnce.VGIImputer(
        IncompleteDensity("vae", max_iter=1, n_training_draws=1),
        n_estimators=2,
        n_steps=1,
        n_draws=2,
    ),
    skvnce.VGIImputer(
        IncompleteDensity("factor-analysis", max_iter=1, n_training_draws=1),
        n_steps=1,
        n_draws=2,
    ),
    skvnce.NoisyOr(2, binarize=10.0, max_iter=2),
    skvnce.TableImputer(n_estimators=2),
]


@pytest.fixture
def X(rng):
    X = 10 + rng.normal(size=(60, 1)) + rng.normal(size=(60, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:, 3] = np.nan
    return np.insert(X, 4, 10.0, axis=1)


def through_fit(estimator, X):
    estimator.fit(X)


def through_fit_transform(estimator, X):
    estimator.fit_transform(X)


def through_pipeline(estimator, X):
    make_pipeline(FunctionTransformer(), estimator).fit_transform(X)


WAYS = [through_fit, through_fit_transform, through_pipeline]


def recorded(function, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*args)
    return caught


CASES = [
    pytest.param(estimator, way, id=f"{type(estimator).__name__}-{way.__name__}")
    for estimator in ESTIMATORS
    for way in (WAYS if hasattr(estimator, "transform") else WAYS[:1])
]


@pytest.mark.quick(4)
@pytest.mark.parametrize(("estimator", "way"), CASES)
def test_fit_warns_at_the_line_of_the_user(estimator, way, X):
    caught = recorded(way, clone(estimator), X)
    texts = [str(one.message) for one in caught]
    assert sum("Entirely missing: column 3;" in text for text in texts) == 1
    of_constants = sum("Constant where observed: column 4." in text for text in texts)
    assert of_constants == (not isinstance(estimator, skvnce.NoisyOr))
    if estimator in UNSETTLED:
        assert any(issubclass(one.category, ConvergenceWarning) for one in caught)
    assert {one.filename for one in caught} == {__file__}


def test_algorithms_warn_at_the_line_of_the_user():
    with pytest.warns(RuntimeWarning, match="singular") as caught:
        cholesky(torch.ones(2, 2, dtype=torch.float64))
    assert {one.filename for one in caught} == {__file__}


def called_from(module, function):
    """Put a frame of a module, in a file of that name, around a function."""
    space = {"__name__": module, "function": function}
    exec(compile("def call(): return function()", module, "exec"), space)
    return space["call"]


@pytest.mark.parametrize(
    "module", ["skvnce", "skvnce.gaussian.em", "sklearn.pipeline", "functools"]
)
def test_frames_of_packages_are_passed(module):
    call = called_from("skvnce._one", functools.partial(warn_user, "found"))
    for name in ("contextlib", module, "skvnce_of_mine", "sklearn.base"):
        call = called_from(name, call)
    assert [one.filename for one in recorded(call)] == ["skvnce_of_mine"]


def test_a_pool_of_one_job_is_passed():
    warn = called_from("skvnce.one", functools.partial(warn_user, "found"))
    caught = recorded(lambda: Parallel(n_jobs=1)(delayed(warn)() for _ in range(2)))
    assert [one.filename for one in caught] == [__file__] * 2


def test_a_thread_without_a_line_of_the_user_warns_too():
    def in_thread():
        code = "warn_user('lonely')"
        space = {"__name__": "skvnce", "warn_user": warn_user}
        thread = threading.Thread(target=exec, args=(code, space))
        thread.start()
        thread.join()

    assert [str(one.message) for one in recorded(in_thread)] == ["lonely"]
