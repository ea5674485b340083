"""Options: objects with parameters that are passed to estimators as one parameter."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import (
    StrOptions,
    validate_parameter_constraints,
)

from skvnce._core.runtime import DEVICES
from skvnce._imputer.validation import AUTO, Number, integer_from


class Option(BaseEstimator):
    """Base class of options.

    An option has `get_params` and `set_params`, and no `fit`.  The estimator that uses
    it checks its fields by `check_parameters`.
    """


class Adam(Option):
    """Settings of the optimiser Adam, for the parameter `solver` of estimators.

    ``"auto"`` is the value that the estimator documents.

    Parameters
    ----------
    batch_size : "auto" or int, default="auto"
        Number of rows in a step.
    learning_rate_init : "auto" or float, default="auto"
        Initial learning rate.
    weight_decay : "auto" or float, default="auto"
        Weight decay of the networks; only for `VariationalAutoencoder`.
    n_iter_no_change : "auto" or int, default="auto"
        Training stops after this number of rounds without a better prediction of
        held-out cells; not for `VNCEEstimator` and `NoisyOr`.
    validation_fraction : "auto" or float, default="auto"
        Share of the observed cells that are held out to choose the number of rounds;
        not for `VNCEEstimator` and `NoisyOr`.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where torch trains, and where the fitted model is used.  ``"auto"`` is CUDA
        where there is a device, else the CPU.  Random numbers are the same on each
        device, and fitted attributes are on the CPU: where torch finds no CUDA device,
        a fitted model uses the CPU.

    Examples
    --------
    >>> from skvnce import VariationalAutoencoder
    >>> from skvnce.options import Adam
    >>> Adam(batch_size=64)
    Adam(batch_size=64)
    """

    _parameter_constraints = {
        "batch_size": [AUTO, integer_from(1)],
        "learning_rate_init": [AUTO, Number(Real, 0, None, closed="neither")],
        "weight_decay": [AUTO, Number(Real, 0, None, closed="left")],
        "n_iter_no_change": [AUTO, integer_from(1)],
        "validation_fraction": [AUTO, Number(Real, 0, 1, closed="left")],
        "device": [StrOptions(set(DEVICES))],
    }

    def __init__(
        self,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate_init: float | Literal["auto"] = "auto",
        weight_decay: float | Literal["auto"] = "auto",
        n_iter_no_change: int | Literal["auto"] = "auto",
        validation_fraction: float | Literal["auto"] = "auto",
        device: Literal["cpu", "cuda", "auto"] = "cpu",
    ) -> None:
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.weight_decay = weight_decay
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.device = device


class LBFGS(Option):
    """Settings of the optimiser L-BFGS, for the parameter `solver` of `VNCEEstimator`.

    Parameters
    ----------
    n_iter : int, default=5
        Number of iterations of L-BFGS in each update of model or posterior.  Many
        iterations overfit the current draws.
    tol : float, default=1e-5
        Training stops if the objective changes by less than `tol` in each of five
        rounds.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where torch computes the objective, and where the fitted model is used, see
        `Adam`.

    Examples
    --------
    >>> from skvnce.options import LBFGS
    >>> LBFGS(n_iter=10)
    LBFGS(n_iter=10)
    """

    _parameter_constraints = {
        "n_iter": [integer_from(1)],
        "tol": [Number(Real, 0, None, closed="left")],
        "device": [StrOptions(set(DEVICES))],
    }

    def __init__(
        self,
        n_iter: int = 5,
        tol: float = 1e-5,
        device: Literal["cpu", "cuda", "auto"] = "cpu",
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.device = device


def check_parameters(estimator: BaseEstimator) -> None:
    """Check each parameter by `_parameter_constraints`, and the fields of options.

    Conditions on several parameters are for `_check_parameters` of the estimator.

    Raises `InvalidParameterError`: a ValueError and TypeError of scikit-learn, which
    names the parameter; a field of an option as in ``solver.batch_size``. Raises
    `TypeError`: if a parameter is a class of options or estimators instead of an
    instance.
    """
    _check_fields(estimator, type(estimator).__name__, "")


def _check_fields(holder: BaseEstimator, caller: str, prefix: str) -> None:
    """Check the parameters of an estimator, or of the option that `prefix` names."""
    values = holder.get_params(deep=False)
    constraints = holder._parameter_constraints
    validate_parameter_constraints(
        {prefix + name: allowed for name, allowed in constraints.items()},
        {prefix + name: value for name, value in values.items()},
        caller,
    )
    for name, value in values.items():
        if isinstance(value, type) and issubclass(value, BaseEstimator):
            raise TypeError(  # where the parameter may also be a function
                f"{prefix}{name} of {caller} must be an instance: pass "
                f"{value.__name__}(), not the class."
            )
        if isinstance(value, Option):
            _check_fields(value, caller, f"{prefix}{name}.")


def fields_of(
    option: Option | str, slot: str, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Get the fields of an option, with defaults of the estimator for what is not set.

    `option`: a string, such as "auto", stands for the defaults; `slot`: the name of the
    parameter whose value the option is, for messages; `defaults`: values by field.
    Fields that are not among them are not used. Raises `ValueError`: if a field that is
    not used is set.
    """
    given = {} if isinstance(option, str) else option.get_params(deep=False)
    usual = {} if isinstance(option, str) else type(option)().get_params(deep=False)
    set_ = {
        name: value
        for name, value in given.items()
        if not (isinstance(value, str) and value == usual[name])
    }
    for name in set_:
        if name not in defaults:
            raise ValueError(
                f"{slot}.{name}={set_[name]!r} is not used here: leave it at "
                f"{usual[name]!r}."
            )
    return {**defaults, **set_}
