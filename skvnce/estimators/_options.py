"""Options: objects with parameters that are passed to estimators as one parameter."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import (
    StrOptions,
    validate_parameter_constraints,
)

from skvnce._device import DEVICES
from skvnce.algorithms.vae import sampling
from skvnce.estimators._validation import AUTO, Number, integer_from


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
        batch_size="auto",
        learning_rate_init="auto",
        weight_decay="auto",
        n_iter_no_change="auto",
        validation_fraction="auto",
        device="cpu",
    ):
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

    def __init__(self, n_iter=5, tol=1e-5, device="cpu"):
        self.n_iter = n_iter
        self.tol = tol
        self.device = device


class LAIR(Option):
    """Latent-adaptive importance resampling, for the `sampler` of `LAIRImputer`.

    Parameters
    ----------
    n_particles : int, default=4
        K, the number of imputations from whose encodings an iteration proposes.
    n_replenish : int, default=20
        R, the number of additional proposals in an iteration.
    replenish : {"encoder", "prior"}, default="encoder"
        Distribution of the additional proposals: the encoding of the row with missing
        values, or the prior, as in the paper.  The encoder is better if there are many
        latents.

    References
    ----------
    Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
    iterated approximate ancestral sampling, algorithm 2, eqs. (5) and (6).

    Examples
    --------
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import LAIR
    >>> LAIRImputer(sampler=LAIR(n_particles=8))
    LAIRImputer(sampler=LAIR(n_particles=8))
    """

    _parameter_constraints = {
        "n_particles": [integer_from(1)],
        "n_replenish": [integer_from(0)],
        "replenish": [StrOptions(set(sampling.REPLENISH))],
    }

    def __init__(self, n_particles=4, n_replenish=20, replenish="encoder"):
        self.n_particles = n_particles
        self.n_replenish = n_replenish
        self.replenish = replenish

    def _rule(self):
        sizes = int(self.n_particles), int(self.n_replenish)
        return sampling.by_lair(*sizes, self.replenish)


class ACMWG(Option):
    """Adaptive collapsed-Metropolis-within-Gibbs, for `sampler` of `LAIRImputer`.

    Parameters
    ----------
    epsilon : float, default=0.05
        Share of proposals from the prior, from 0 to 1.
    n_warm_up : int, default=0
        Number of iterations of LAIR before each chain starts; the paper uses 100.

    References
    ----------
    Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
    iterated approximate ancestral sampling, algorithm 1, eqs. (3) and (4).

    Examples
    --------
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import ACMWG
    >>> LAIRImputer(sampler=ACMWG(epsilon=0.3, n_warm_up=100))
    LAIRImputer(sampler=ACMWG(epsilon=0.3, n_warm_up=100))
    """

    _parameter_constraints = {
        "epsilon": [Number(Real, 0, 1, closed="both")],
        "n_warm_up": [integer_from(0)],
    }

    def __init__(self, epsilon=0.05, n_warm_up=0):
        self.epsilon = epsilon
        self.n_warm_up = n_warm_up

    def _rule(self):
        return sampling.SAMPLERS["ac-mwg"](float(self.epsilon), int(self.n_warm_up))


class MWG(Option):
    """Metropolis-within-Gibbs, for the parameter `sampler` of `LAIRImputer`.

    Parameters
    ----------
    n_warm_up : int, default=0
        Number of iterations of LAIR before each chain starts; the paper uses 100.

    References
    ----------
    Mattei and Frellsen (2018), Leveraging the exact likelihood of deep latent variable
    models; Simkus and Gutmann (2023), eq. (2).

    Examples
    --------
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import MWG
    >>> LAIRImputer(sampler=MWG(n_warm_up=100))
    LAIRImputer(sampler=MWG(n_warm_up=100))
    """

    _parameter_constraints = {"n_warm_up": [integer_from(0)]}

    def __init__(self, n_warm_up=0):
        self.n_warm_up = n_warm_up

    def _rule(self):
        return sampling.SAMPLERS["mwg"](int(self.n_warm_up))


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
