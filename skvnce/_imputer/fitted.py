"""The value that a fit returns, and its plain form for pickles and skops."""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.base import BaseEstimator

from skvnce._tables.schema import Schema
from skvnce._tables.values import NO_LIMITS, Limits

# ----------------------------------------
# What a fitted model of cells can do.
#
# A model knows the columns in `feature_indices_` of an estimator, as float64 with NaN
# for missing cells and codes for categories, and nothing else of a table: constant
# and empty columns, data types, bounds, `where` and the rest are the same for all
# models, see `skvnce._imputer.fill` and the base class of imputers.


_REPEATED = 8  # estimates of the score of a row of which its error is computed


Filled = tuple[np.ndarray, dict]  # cells, and probabilities of levels by column
# log-densities of rows, and their standard errors; each (n,)
Densities = tuple[np.ndarray, np.ndarray]


class CellModel(Protocol):
    """A fitted model that fills and draws the missing cells of rows.

    It may also have ``log_density(nodes, with_errors)``, which returns values (n,) and
    their standard errors (n,), of any value if they are not requested, ``points``, see
    `skvnce._imputer.fill`, and ``n_chains(n_draws)``, the number of copies of the
    rows that are in memory at a time when so many draws are made, or with None when
    means are computed; without it one copy is.
    """

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells by their means, or by their most probable category.

        `nodes` (n, n_model_columns): each row has a missing cell; `limits`: of the
        missing cells.  Returns `filled` (n, n_model_columns): functions of each row
        alone; `probabilities` (n, n_categories): for each column of categories.
        """
        ...

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells with torch's global stream of random numbers.

        Returns (n_draws, n, n_model_columns).
        """
        ...


def n_chains(model: CellModel, n_draws: int | None = None) -> int:
    """Return how many copies of the rows a model has in memory at a time."""
    return model.n_chains(n_draws) if hasattr(model, "n_chains") else 1


def chains_of_model(wrapper: NamedTuple, n_draws: int | None) -> int:
    """Return how many copies of the rows the model of a wrapper has: `n_chains`."""
    return n_chains(wrapper.model, n_draws)


def points_of_model(wrapper: NamedTuple) -> int:
    """Return the number of tables in memory when quantiles are computed."""
    return getattr(wrapper.model, "n_points", 1)


def in_turn(n_models: int, n_draws: int) -> np.ndarray:
    """Choose a model for each draw, with torch's global stream; int, (n_draws,).

    The order is random, or few draws would always use the first parameters.
    """
    return torch.randperm(n_models).repeat(n_draws)[:n_draws].numpy()


def make_in_turn(parameters: Sequence, n_draws: int, make: Callable) -> list:
    """Make a model of each of several parameters, once, and list one for each draw."""
    turns = in_turn(len(parameters), n_draws).tolist()
    results = {turn: make(parameters[turn]) for turn in set(turns)}
    return [results[turn] for turn in turns]


def average_density(densities: Sequence[Densities]) -> Densities:
    """Average densities of several models, pairs of log-density and error (n,)."""
    log_prob, error = np.moveaxis(np.array(densities), 1, 0)
    total = logsumexp(log_prob, axis=0) - np.log(len(densities))
    # differences of logarithms, because densities of long rows underflow
    shares = np.exp(log_prob - total) / len(densities)
    # delta method, for independent errors of the models
    return total, np.sqrt(np.square(shares * error).sum(0))


def repeated(estimate: Callable, *, with_errors: bool) -> tuple[np.ndarray, np.ndarray]:
    """Estimate values of rows; their errors, if requested, by eight more estimates."""
    values = estimate(0)
    if not with_errors:
        return values, np.zeros(len(values))
    estimates = np.array([estimate(1 + i) for i in range(_REPEATED)])
    possible, errors = np.isfinite(estimates).all(0), np.full(len(values), np.inf)
    # the differences of equal numbers are 0, those from their mean are not
    errors[possible] = (estimates - estimates[0])[:, possible].std(0, ddof=1)
    return values, errors


# ----------------------------------------
# The value that a fit returns, and its plain form for pickles and skops.


class Fitted(NamedTuple):
    """What a fit has learned: an estimator stores this one value."""

    schema: Schema
    model: CellModel | None  # None if all columns are constant
    report: dict  # public attributes of the estimator, by name


def number_or_nan(parameter: float | str) -> float:
    """Return the value of a parameter; NaN if a fit chooses it by the data."""
    return np.nan if isinstance(parameter, str) else float(parameter)


def without_columns(
    schema: Schema,
    report: dict,
    vectors: Sequence[str] = (),
    squares: Sequence[str] = (),
    model: object = None,
) -> Fitted:
    """Return the fit to a table in which no column varies."""
    none = np.zeros(0)
    nothing = {"held_out_gain_": np.nan, "marginal_columns_": none.astype(bool)}
    nothing |= {"n_iter_": 0, "loss_curve_": []} | dict.fromkeys(vectors, none)
    nothing |= dict.fromkeys(squares, np.zeros((0, 0)))
    return Fitted(schema, model, nothing | report)


def relations_listed(schema: Schema) -> list:
    """List the relations that an imputer uses, its `relations_`."""
    return [] if schema.relations is None else list(schema.relations.relations)


_KIND = "of"  # the key of the name of a class
_TENSOR = "Tensor"
_NOT_STORED = ("cache",)
_OF_SCHEMA = "relations_"  # the attribute that the schema stores, too


def plain(value: object) -> object:
    """Convert a value of tuples and tensors to dicts, lists and arrays, recursively."""
    if isinstance(value, torch.Tensor):
        return {_KIND: _TENSOR, "array": value.numpy()}
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", range(len(value)))
        items = {
            str(name): {} if name in _NOT_STORED else plain(item)
            for name, item in zip(fields, value, strict=True)
        }
        cls = type(value)
        kind = cls.__name__ if cls is tuple else f"{cls.__module__}:{cls.__name__}"
        return {_KIND: kind, **items}
    if isinstance(value, dict):
        return {"keys": list(value), "values": [plain(item) for item in value.values()]}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def of_plain(value: object) -> object:
    """Restore a value from its plain form; the inverse of `plain`."""
    if isinstance(value, list):
        return [of_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        values = map(of_plain, value.get("values", ()))
        return dict(zip(value.get("keys", ()), values, strict=True))
    name, items = value[_KIND], [of_plain(v) for k, v in value.items() if k != _KIND]
    if name == _TENSOR:
        return torch.from_numpy(*items)
    return tuple(items) if name == tuple.__name__ else _class_of(name)(*items)


def _class_of(name: str) -> type:
    """Find the named tuple of a value, in a module that its estimator has imported."""
    home, _, name = name.partition(":")
    cls = getattr(sys.modules[home], name)
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        raise TypeError(f"{cls!r} is no value of a fitted model.")
    return cls


def without_fit(attributes: dict) -> dict:
    """Select the attributes that no fit has set, such as parameters."""
    fitted = attributes.get("_fitted")
    ours = set() if fitted is None else {"_fitted", *fitted.report}
    return {name: value for name, value in attributes.items() if name not in ours}


def get_state(estimator: BaseEstimator) -> dict:
    """Return the state of an estimator with plain values, which skops can store.

    Modules are left out, and are rebuilt on first use.
    """
    state = BaseEstimator.__getstate__(estimator)
    fitted = state.get("_fitted")
    if not isinstance(fitted, Fitted):
        return state
    others = {name: value for name, value in state.items() if name != _OF_SCHEMA}
    return {**others, "_fitted": plain(fitted._replace(report=list(fitted.report)))}


def set_state(estimator: BaseEstimator, state: dict) -> None:
    """Set the state of an estimator that `get_state` has returned."""
    fitted = state.get("_fitted")
    if isinstance(fitted, dict):
        fitted = of_plain(fitted)
        if _OF_SCHEMA in fitted.report:
            state = {**state, _OF_SCHEMA: relations_listed(fitted.schema)}
        report = {name: state[name] for name in fitted.report}
        state = {**state, "_fitted": fitted._replace(report=report)}
    BaseEstimator.__setstate__(estimator, state)
