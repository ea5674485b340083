"""Results do not depend on the data type and the device that torch uses by default."""

import pickle
from threading import Barrier, Thread

import numpy as np
import pytest
import torch
from cases import ESTIMATORS, PREDICTORS, quick_gaussian
from sklearn.base import clone

from skvnce import GaussianImputer
from skvnce._core.runtime import torch_defaults

pytestmark = pytest.mark.usefixtures("short_training")
CALLS = {
    "transform": lambda one, X: one.transform(X),
    "sample": lambda one, X: one.sample(X, 2, random_state=0, as_array=True),
    "sample_rows": lambda one, X: one.sample_rows(3, random_state=0),
    "sample_latents": lambda one, X: one.sample_latents(X, random_state=0),
    "sample_parameters": lambda one, X: one.sample_parameters(),
    "score_samples": lambda one, X: one.score_samples(X),
    "objective": lambda one, X: one.objective(X),
    "inverse_transform": lambda one, X: one.inverse_transform(one.transform(X)),
    "get_covariance": lambda one, X: one.get_covariance(),
    "predict": lambda one, X: one.predict(X),
    "predict_proba": lambda one, X: one.predict_proba(X),
    "to_torch": lambda one, X: numbers_of(one.to_torch()),
}
NEEDED = {"sample_latents": "n_components_", "inverse_transform": "n_components_"}


@pytest.fixture
def changed():
    """Set another data type, and a device on which nothing can be computed."""
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


def defaults():
    tensor = torch.empty(0)
    return tensor.dtype, tensor.device


def numbers_of(modules):
    modules = modules if isinstance(modules, tuple) else (modules,)
    states = [one.state_dict() for one in modules]
    return [part.numpy().copy() for state in states for part in state.values()]


def table():
    r = np.random.default_rng(0)
    X = np.abs(2 + r.normal(size=(16, 3)) @ r.normal(size=(3, 3)))
    y = (X[:, 0] > np.median(X[:, 0])).astype(int)
    X[r.random(X.shape) < 0.2] = np.nan
    return X, y


def listed():
    """List one estimator of each class, and the others with the slow tests."""
    visited = set()
    for one in ESTIMATORS + PREDICTORS:
        name = type(one).__name__
        yield pytest.param(one, id=name, marks=[pytest.mark.slow] * (name in visited))
        visited.add(name)


def fitted(estimator):
    seeds = {"random_state": 0} if hasattr(estimator, "random_state") else {}
    return clone(estimator).set_params(**seeds).fit(*table())


def results(fitted):
    """Call the methods of a fitted estimator, and return the bits of the results."""
    X, found = table()[0], {}
    for name, call in CALLS.items():
        if hasattr(fitted, name) and getattr(fitted, NEEDED.get(name, "fit"), 0) != 0:
            result = call(fitted, X)
            parts = result if isinstance(result, list | tuple) else [result]
            found[name] = [np.asarray(part).tobytes() for part in parts]
    return found


@pytest.mark.quick(2)
@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skvnce.exceptions.MisfitWarning",
    "ignore:.* of the draws of column:UserWarning",
)
@pytest.mark.parametrize("estimator", list(listed()))
def test_results_are_bit_equal(estimator, request):
    expected = results(fitted(estimator))
    request.getfixturevalue("changed")
    before = defaults()
    one = fitted(estimator)
    stored = pickle.loads(pickle.dumps(one))  # unused, so that it rebuilds its model
    assert results(stored) == expected
    assert results(one) == expected
    assert defaults() == before


@pytest.mark.filterwarnings("ignore:.* of the draws of column:UserWarning")
@pytest.mark.quick(2)
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_default_alone(device, dtype, changed):
    X, _ = table()
    torch.set_default_device(device)
    torch.set_default_dtype(dtype)
    imputer = GaussianImputer(n_parameter_draws=1, random_state=0).fit(X)
    draws = imputer.sample(X, random_state=0, as_array=True)
    assert defaults() == (dtype, torch.device(device))
    with torch_defaults():
        again = clone(imputer).fit(X).sample(X, random_state=0, as_array=True)
    assert draws.tobytes() == again.tobytes()


def test_a_device_of_a_context():
    X, _ = table()
    with torch.device("meta"):
        mean = quick_gaussian().fit(X).mean_
    assert mean.tobytes() == quick_gaussian().fit(X).mean_.tobytes()


def test_an_error_restores_the_defaults(changed):
    before = defaults()
    with pytest.raises(ValueError, match="infin"):
        GaussianImputer().fit([[1.0, np.inf], [2.0, 3.0]])
    assert defaults() == before


def test_the_last_of_several_threads_restores(changed):
    entered, leaving = Barrier(2, timeout=60), Barrier(2, timeout=60)
    dtypes = []

    def other():
        with torch_defaults():
            entered.wait()
            leaving.wait()
            dtypes.append(torch.get_default_dtype())

    thread = Thread(target=other)
    with torch_defaults():
        thread.start()
        entered.wait()
    leaving.wait()
    thread.join()
    assert dtypes == [torch.float32]
    assert torch.get_default_dtype() == torch.float64
