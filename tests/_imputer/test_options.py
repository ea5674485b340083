"""Options, and parameters checked by `_parameter_constraints`."""

from numbers import Integral, Real

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import InvalidParameterError, StrOptions

from skvnce import LAIRImputer, VGIImputer
from skvnce._imputer.validation import (
    RANDOM_STATE,
    Number,
    Option,
    check_parameters,
    fields_of,
)
from skvnce.options import LBFGS, MWG, Adam, IncompleteDensity


class Inner(Option):
    _parameter_constraints = {"solver": [StrOptions({"auto"}), Adam, LBFGS]}

    def __init__(self, solver="auto"):
        self.solver = solver


class Outer(BaseEstimator):
    _parameter_constraints = {
        "solver": [StrOptions({"auto"}), Adam, LBFGS],
        "model": [None, Inner],
        "random_state": RANDOM_STATE,
    }

    def __init__(self, solver="auto", model=None, random_state=None):
        self.solver = solver
        self.model = model
        self.random_state = random_state


NO_INTEGERS = [True, np.bool_(1), 0, -1, 1.5, np.nan, np.inf, "x", None, [1], 10**400]
NO_NUMBERS = [True, np.bool_(1), 0.0, -1, np.nan, np.inf, "x", None, [1.0], 10**400]


@pytest.mark.parametrize("value", NO_INTEGERS, ids=lambda value: repr(value)[:20])
def test_bad_integers_are_refused(value):
    with pytest.raises(InvalidParameterError, match=r"The 'solver\.batch_size' param"):
        check_parameters(Outer(Adam(batch_size=value)))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:20])
def test_bad_numbers_are_refused(value):
    with pytest.raises(InvalidParameterError, match=r"'solver\.learning_rate_init'"):
        check_parameters(Outer(Adam(learning_rate_init=value)))


@pytest.mark.parametrize("value", [0, 0.0, np.float32(0.5), np.int64(0), 0.999])
def test_numbers_of_all_types_are_accepted(value):
    check_parameters(Outer(Adam(validation_fraction=value, weight_decay=value)))
    assert Number(Real, 0, 1, closed="left").is_satisfied_by(value)


def test_integers_of_all_types_are_accepted():
    for value in (1, np.int8(3), np.uint64(7)):
        assert Number(Integral, 1, None, closed="left").is_satisfied_by(value)


@pytest.mark.parametrize("seed", [None, 0, np.int64(3), np.random.default_rng(0)])
def test_seeds_are_accepted(seed):
    check_parameters(Outer(random_state=seed))


@pytest.mark.parametrize("seed", ["x", -1, 1.5])
def test_other_seeds_are_refused(seed):
    with pytest.raises(InvalidParameterError, match="'random_state' parameter of Ou"):
        check_parameters(Outer(random_state=seed))


def test_messages_name_a_field_as_users_write_it():
    with pytest.raises(InvalidParameterError, match=r"'solver\.tol' .* of Outer must"):
        check_parameters(Outer(LBFGS(tol=-1.0)))
    with pytest.raises(InvalidParameterError, match=r"'model\.solver\.n_iter' "):
        check_parameters(Outer(model=Inner(LBFGS(n_iter=0))))


def test_a_class_is_no_option():
    with pytest.raises(InvalidParameterError, match="'solver' parameter of Outer"):
        check_parameters(Outer(Adam))
    with pytest.raises(TypeError, match=r"sampler of LAIRImputer .* pass MWG\(\), not"):
        check_parameters(LAIRImputer(sampler=MWG))
    with pytest.raises(TypeError, match=r"model of VGI.* IncompleteDensity\(\)"):
        check_parameters(VGIImputer(IncompleteDensity))


def test_options_are_copied_and_searched_like_estimators():
    copy = clone(Outer(Adam(3))).set_params(solver__weight_decay=0.5)
    assert repr(copy) == "Outer(solver=Adam(batch_size=3, weight_decay=0.5))"
    assert copy.get_params()["solver__batch_size"] == 3


def test_auto_is_the_value_of_the_estimator():
    defaults = {"batch_size": 128, "learning_rate_init": 1e-3}
    assert fields_of("auto", "solver", defaults) == defaults
    assert fields_of(Adam(32), "solver", defaults) == defaults | {"batch_size": 32}


def test_fields_that_are_not_used_are_refused():
    with pytest.raises(ValueError, match=r"solver\.weight_decay=0\.1 is not used"):
        fields_of(Adam(weight_decay=0.1), "solver", {"batch_size": 128})
