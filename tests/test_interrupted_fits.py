"""A fit that fails or is interrupted anywhere leaves the estimator as it was.

Functions of the package are interrupted at their calls, at places chosen at random.
Those that hold locks and restore settings of the process are not: no function of Python
can release a lock if it is interrupted at its beginning.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from cases import ESTIMATORS, PREDICTORS
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import skvnce
from skvnce import GaussianImputer
from skvnce._core.progress import listener
from skvnce._core.runtime import PROCESS
from skvnce.testing._requirements import incomplete_table

ROOT = Path(skvnce.__file__).parent
FILES = {str(path) for path in ROOT.rglob("*/*.py")}  # in folders, unlike the locks
PLACES = 22  # for each class and method, of which there are 19
CLASSES = {type(one).__name__: one for one in [*ESTIMATORS, *PREDICTORS][::-1]}
QUICK = {"GaussianImputer", "IncompleteFactorAnalysis"}
CASES = [
    pytest.param(one, method, id=f"{name}-{method}", marks=marks)
    for name, one in CLASSES.items()
    for method in ("fit", "partial_fit")
    for marks in [() if name in QUICK else pytest.mark.slow]
    if hasattr(one, method)
]


class Stop(BaseException):
    """An interrupt."""


def run(call, stop=None):
    """Call a function, and interrupt it at a call of ours; return their number."""
    number = 0

    def count(frame, event, argument):
        nonlocal number
        if event == "call" and frame.f_code.co_filename in FILES:
            number += 1
            if number == stop:
                raise Stop

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return number


def arrays(state):
    """Select the numerical arrays of a state."""
    return {
        name: value
        for name, value in state.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
    }


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "method"), CASES)
def test_an_interrupt_changes_nothing(estimator, method, rng):
    X, y = incomplete_table(estimator), np.arange(80) % 3
    target = hasattr(estimator, "predict")
    first, more = ((X[:n], y[:n]) if target else (X[:n],) for n in (60, 80))

    def learn(one):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(one, method)(*more)

    estimator = clone(estimator)
    if "random_state" in estimator.get_params():  # the same calls in each fit
        estimator.set_params(random_state=0)
    fitted, other = (clone(estimator).fit(*first) for _ in range(2))
    # the first call fills caches, and what is measured or printed depends on the clock
    total = int(0.95 * min(run(lambda: learn(other)) for _ in range(2)))
    before = dict(vars(fitted))
    copies = {name: value.copy() for name, value in arrays(before).items()}
    for stop in rng.integers(1, total, size=PLACES, endpoint=True):
        with pytest.raises(Stop):
            run(lambda: learn(fitted), stop)
        assert not PROCESS._is_owned() and listener() is None
        assert vars(fitted).keys() == before.keys()
        assert all(vars(fitted)[name] is value for name, value in before.items())
        for name, value in copies.items():
            np.testing.assert_array_equal(vars(fitted)[name], value)
    learn(fitted)  # control: without an interrupt the estimator changes
    after = vars(fitted)
    assert any(after.get(name) is not value for name, value in before.items())


class Scaled(GaussianImputer):
    """What users write: a subclass that sets attributes of its own."""

    def fit(self, X, y=None):
        self.scaler_ = StandardScaler().fit(X)
        return super().fit(self.scaler_.transform(X))


def test_attributes_of_subclasses_are_kept():
    X = incomplete_table(GaussianImputer())
    imputer = Scaled(n_parameter_draws=0)
    imputer._note = "mine"
    for table in (X, X + 5):
        imputer.fit(table)
        assert imputer._note == "mine"
        np.testing.assert_allclose(imputer.scaler_.mean_, np.nanmean(table, 0))
    names = imputer.fit(X[:, :3]).feature_indices_  # what an earlier fit set has gone
    assert len(names) == 3 and not hasattr(imputer, "trace_")
