"""Checks of parameters, options, memory and tables; errors name a remedy."""

import inspect
import math
import numbers
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import (
    Interval,
    MissingValues,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.validation import check_array, validate_data

from skvnce._core.numbers import check_bool, check_count, is_finite
from skvnce._core.runtime import DEVICES
from skvnce._core.warnings import warn_user
from skvnce._imputer.fill import STRATEGIES
from skvnce._imputer.parts.chunks import Chunks
from skvnce._imputer.related import (
    deduce,
    exact_columns,
    warn_of_sets,
    with_relations,
)
from skvnce._tables import frames, model_columns
from skvnce._tables.cells import names_of, read_marked
from skvnce._tables.findings import check_deviations, modelled_columns, warn_of_table
from skvnce._tables.mixed import check_rows
from skvnce._tables.schema import (
    FROM_DTYPE,
    Encoded,
    Schema,
    Table,
    asked_kinds,
    encode,
    ends_of,
    reject_categories,
)
from skvnce._tables.values import NO_LIMITS, column_moments, valid_values

# ----------------------------------------
# Errors for fits that do not fit in memory, and for tables in parts.

# of versions 2 and 1 of control groups
_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

_READERS_OF_PARTS = (
    "GaussianImputer, CopulaGraphLearner, IncompleteFactorAnalysis and, to a sample of "
    "their rows, TableImputer and MixtureImputer"
)
_SMALLER = (
    "Fit to a sample of the rows; transform takes all of them in parts. "
    f"{_READERS_OF_PARTS} are also fitted to tables in parts, such as "
    "skvnce.options.Chunks.from_array(X) or a data frame of dask."
)


def memory_limit() -> float:
    """Return the memory, free or not, of machine or container; inf if unknown."""
    try:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on all systems
        limit = math.inf
    for path in _CGROUPS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        # version 2 says "max" if there is no limit
        if text.isdigit():
            limit = min(limit, int(text))
    return limit


def check_fit(cls: type, shape: tuple, itemsize: int = 8) -> None:
    """Raise a MemoryError if a table of X is larger than the memory."""
    n, d = shape
    what = f"The {n:,.0f} rows and {d:,} columns that {cls.__name__}.fit reads"
    check_memory(float(itemsize) * n * d, what, _SMALLER)


def check_memory(n_bytes: float, what: str, remedy: str) -> None:
    """Raise a MemoryError if arrays, named in plural, are larger than the memory."""
    limit = memory_limit()
    if n_bytes > limit:
        raise MemoryError(
            f"{what} need {n_bytes / 2**30:,.1f} GiB, and the memory is "
            f"{limit / 2**30:,.1f} GiB. {remedy}"
        )


def needs_memory(cls: type, X: object, *, reset: bool, name: str = "X") -> None:
    """Raise an error if a method that reads all rows at once gets a table in parts."""
    owner = cls.__name__
    if not reset:
        reader = f"This method of {owner}"
        remedy = "call it for each part, such as {part}"
    elif hasattr(cls, "transform"):
        reader = f"{owner}.fit"
        remedy = (
            "fit to a sample of its rows, and call transform, which takes tables in "
            f"parts, for all of them. {_READERS_OF_PARTS} are fitted to tables in parts"
        )
    else:
        reader = f"{owner}.fit"
        remedy = "fit to a sample of its rows, and predict each part"
    frames.reject_parts(X, name, reader, remedy)
    if getattr(X, "ndim", 2) > 2:  # here, so that it is not another that says so
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required by {owner}."
        )
    shape = getattr(X, "shape", ())  # of lists it is known once they have been read
    # the shape of a sparse table says little about its memory
    if reset and name == "X" and len(shape) == 2 and not sparse.issparse(X):
        check_fit(cls, shape, getattr(getattr(X, "dtype", None), "itemsize", 8))


def check_draws(n_draws: int, X: np.ndarray) -> None:
    """Raise an error if completed tables do not fit in memory: twice, at the end."""
    n, d = X.shape
    check_memory(
        2.0 * n_draws * X.nbytes,
        f"{n_draws:,} completed tables of {n:,} rows and {d:,} columns",
        "Call sample for parts of the rows or with a smaller n_draws, and use each "
        "before the next call.",
    )


# ----------------------------------------
# Validation of input; errors name the row, the column and a remedy.

_OF_READERS = (  # what to do about text in an array, if the estimator models categories
    "List columns of categories in categorical_features, or turn numbers with marks of "
    'missing values into numbers by pandas.to_numeric(column, errors="coerce").'
)
_FAR = 1e50  # widths of a column whose square and fourth power do not overflow


class Number(Interval):
    """An interval of numbers, without bools and numbers that overflow float64."""

    def is_satisfied_by(self, val):
        """Return whether a value is in the interval."""
        if isinstance(val, bool) or not isinstance(val, self.type):
            return False
        return is_finite(val) and val in self


class Marker(MissingValues):
    """What can mark missing cells: no bool, and no infinite number."""

    def is_satisfied_by(self, val):
        """Return whether a value is NaN, None, NA, text or a finite number."""
        if isinstance(val, bool | np.bool_) or not super().is_satisfied_by(val):
            return False
        return not isinstance(val, numbers.Real) or val != val or is_finite(val)


def integer_from(low):
    """Make the constraint of integers of at least `low`."""
    return Number(numbers.Integral, low, None, closed="left")


AUTO = StrOptions({"auto"})
N_JOBS = [None, Number(numbers.Integral, None, -1, closed="right"), integer_from(1)]
BOUND = [  # constraints of `min_value` and `max_value`
    None,
    StrOptions({"observed"}),
    Interval(numbers.Real, None, None, closed="both"),
    "array-like",
    np.ndarray,  # without a dimension, too
    dict,
]
STRATEGY = [StrOptions(set(STRATEGIES))]  # constraints of `strategy`
OF_CATEGORIES = {  # constraints of the parameters of estimators that read categories
    "categorical_features": [StrOptions({FROM_DTYPE}), "array-like", dict, None],
    "handle_unknown": [StrOptions({"error", "missing"})],
}
RELATIONS = [AUTO, None, list, tuple]  # constraints of `relations`
OF_TABLES = {  # constraints of the parameters that say how to read a table
    "missing_values": [Marker()],
    "keep_empty_features": ["boolean"],
}
OF_IMPUTERS = {  # constraints of the parameters of imputers of numbers and categories
    "relations": RELATIONS,
    **OF_TABLES,
    "add_indicator": ["boolean"],
    **OF_CATEGORIES,
}
RANDOM_STATE = ["random_state", np.random.Generator]  # constraints of `random_state`
OF_FITS = {  # constraints of the parameters of models whose fit to the data is checked
    "on_misfit": [StrOptions({"warn", "raise", "ignore"})],
    "random_state": RANDOM_STATE,
    "verbose": ["verbose"],
}
OF_LIMITS = {"min_value": BOUND, "max_value": BOUND}


def attributes_of(schema):
    """List the public attributes of an estimator that describe columns of a table."""
    attributes = {"n_features_in_": schema.n_columns}
    if schema.names is not None:
        attributes["feature_names_in_"] = schema.names
    names = schema.keys or range(schema.n_columns)
    categories = {
        names[j]: np.array(column.levels, dtype=None if column.is_number else object)
        for j, column in enumerate(schema.columns or ())
        if column.levels is not None
    }
    return attributes | ({"categories_": categories} if categories else {})


def read_table(estimator, X, *, like=None, kinds=None, weights=None):
    """Validate the table of a fit, in which `missing_values` marks missing cells.

    Of estimators with `categorical_features` the table has codes of levels, and
    microseconds.  `like`: a fitted estimator whose levels are used; `kinds` replaces
    `categorical_features`; rows of weight zero are not searched for relations.
    The table may share memory with X, and has cells that follow by `relations`.

    Raises ValueError for infinite values, text, integers that float64 cannot represent,
    and if no cell is observed; TypeError for dates and durations where they are not
    read, for tables in parts, and for what `readable` cannot read.
    """
    if isinstance(X, Encoded):
        return X.table, X.schema.as_read
    needs_memory(type(estimator), X, reset=True)
    check_rows(X, weights, "sample_weight", "X")
    settings, columns = _settings(estimator), None
    X = read_marked(X, getattr(settings, "missing_values", np.nan))
    if not hasattr(settings, "categorical_features"):
        reject_categories(X)
    else:
        kinds = settings.categorical_features if kinds is None else kinds
        columns = None
        if hasattr(like, "_schema"):
            columns = like._schema.with_exact(()).columns
        groups = getattr(settings, "groups", None)
        columns = columns or modelled_columns(X, kinds, groups)
    reader = estimator._new()  # on which scikit-learn sets what it learns
    if columns is None:
        table = _numbers(reader, X, reset=True)
    else:
        table = _codes(reader, X, columns, reset=True)
    # before arrays of the size of the table are made
    check_fit(type(estimator), table.shape)
    if np.isnan(table).all():
        raise ValueError("All columns of X are entirely missing: nothing to learn.")
    names = getattr(reader, "feature_names_in_", None)
    others = names_of(X) or None if names is None else None
    ends = ends_of(table)
    schema = Schema(reader.n_features_in_, names, columns, ends, other_names=others)
    warn_of_table(Table.of_schema(table, schema))
    named = asked_kinds(X, schema.n_columns, kinds) if columns else ()
    return _with_cells_that_follow(estimator, schema, table, weights, named)


def _with_cells_that_follow(estimator, schema, table, weights, named):
    """Find relations, if an estimator uses them, and compute cells that follow."""
    relations = getattr(estimator, "relations", None)
    if schema.group_columns:
        reject_listed_relations(estimator, "a table with groups")
        return table, schema
    if relations is None:
        parameters = inspect.signature(type(estimator)).parameters
        # where None is the default, and nobody has chosen it
        if "relations" in parameters and parameters["relations"].default is None:
            warn_of_sets(schema, table)
        return table, schema
    in_model = estimator._kept_columns(schema)
    counted = model_columns.checked_weights(weights, table) > 0
    rows = table[counted]
    schema = with_relations(schema, table, counted, relations, in_model)
    if schema.relations is None:
        return table, schema
    values = valid_values(schema, rows, *estimator._bounds())  # which win
    table = table.copy()
    table[counted] = deduce(schema._replace(values=values), rows)[0]
    # now that the model has a table of levels; the user's categories stay these alone
    return table, schema.with_exact(exact_columns(schema, rows), named)


def reject_listed_relations(estimator, where):
    """Raise an error if an estimator has a list of relations, which has no effect."""
    if isinstance(getattr(estimator, "relations", None), list | tuple):
        raise ValueError(
            f"relations is a list, but relations are not kept in {where}. Pass "
            "relations=None, or a table in memory without groups."
        )


def in_parts(X):
    """Return a table in parts, `Chunks` or of dask, and None for a table in memory."""
    if isinstance(X, Chunks):
        return X
    if frames.is_of_dask(X):
        from skvnce._imputer.parts.dask_tables import DaskTable

        return DaskTable(X)
    return None


def incomplete_array(estimator, X):
    """Validate new rows of a fitted estimator, as `read_table` reads those of its fit.

    The result may share memory with X.  Raises ValueError, too, for values too far from
    those of the fit, for a wrong number of columns, and for unknown levels.
    """
    if isinstance(X, Encoded):
        return X.table
    needs_memory(type(estimator), X, reset=False)
    schema = estimator._schema
    _check_order(schema, X)
    X = read_marked(model_columns.without_dropped(schema, X), schema.marker)
    if not hasattr(_settings(estimator), "categorical_features"):
        reject_categories(X)
    if schema.columns is None:
        table = _numbers(estimator, X, reset=False)
    else:
        table = _codes(estimator, X, schema.columns, reset=False)
    _check_not_far(schema, table)
    return table


def _check_order(schema, X):
    """Raise an error for names in another order; scikit-learn does so of text."""
    names, at_fit = names_of(X), schema.other_names
    if at_fit and names != at_fit and set(names) == set(at_fit):
        raise ValueError(
            f"X has the columns {names}, in another order than at fit: {at_fit}. Pass "
            f"X[{at_fit}]."
        )


def with_model_columns(schema, handling, X, impossible=None):
    """Choose the columns of the model by training rows, and warn of the others."""
    model_columns.warn_of_empty(schema, X, handling)
    schema = schema._replace(model_columns=model_columns.observed_columns(schema, X))
    return model_columns.without_constants(schema, X, handling, impossible)


def read_cells(schema, handling, X, weights=None, impossible=None, limits=NO_LIMITS):
    """Choose the columns of a model, and the training rows with cells or limits."""
    has_data = ~np.isnan(X) | limits.has_limit
    weights, in_table = model_columns.rows_with_data(X, weights, has_data)
    table = X[in_table]
    schema = with_model_columns(schema, handling, table, impossible)
    columns = schema.model_columns
    nodes = table[:, columns].astype(np.float64)
    in_nodes = has_data[in_table][:, columns].any(1)
    nodes, node_weights = nodes[in_nodes], weights[in_table][in_nodes]
    limits = limits.of(np.flatnonzero(in_table)[in_nodes], columns)
    moments = column_moments(nodes, node_weights)
    check_deviations(schema, columns, moments[1])
    groups = next((table[in_nodes, j] for j in schema.group_columns), None)
    cells = model_columns.ModelCells(
        table, nodes, node_weights, *moments, weights > 0, limits, groups
    )
    return cells, schema


def _settings(estimator):
    """Return the owner of the parameters of reading: the estimator, or its `model`."""
    return estimator._settings() if hasattr(estimator, "_settings") else estimator


def _numbers(estimator, X, reset):
    """Validate a table of numbers."""
    cells = frames.readable(X)
    check_two_dimensional(cells)
    reads = hasattr(_settings(estimator), "categorical_features")
    of_others = getattr(estimator, "text_remedy", None) or frames.TEXT_REMEDY
    remedy = _OF_READERS if reads else of_others
    # scikit-learn adds all cells, which may overflow in both directions
    with frames.cell_errors_named(X, remedy), np.errstate(invalid="ignore"):
        table = validate_data(
            estimator,
            cells,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=2 if reset else 1,
        )
    frames.check_exact(X, table)
    return table


def check_two_dimensional(X):
    """Raise an error for a single column or row."""
    n_dimensions = len(getattr(X, "shape", (0, 0)))
    if n_dimensions < 2:
        column, row = "X.reshape(-1, 1)", "X.reshape(1, -1)"
        if hasattr(X, "to_frame"):
            column, row = "X.to_frame()", "X.to_frame().T"
        raise ValueError(
            "X must be a table of two dimensions, rows and columns, got "
            f"{n_dimensions}. Reshape your data: {column} is a table of one column, "
            f"{row} of one row."
        )


def _codes(estimator, X, columns, reset):
    """Validate a table, and convert it to codes and numbers."""
    if not hasattr(X, "shape"):
        X = np.asarray(frames.readable(X), dtype=object)
    check_two_dimensional(X)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    table = encode(X, columns, handle_unknown=_settings(estimator).handle_unknown)
    with frames.cell_errors_named(X):
        return check_array(
            table,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=2 if reset else 1,
            estimator=estimator,
            input_name="X",
        )


def _check_not_far(schema, X):
    """Raise an error for cells so far from those of the fit that squares overflow."""
    low, high = schema.ends
    if np.isnan(low).all():  # of parts of a table: nothing is known yet
        return
    with np.errstate(over="ignore"):
        reach = _FAR * (high - low)
        far = (X - high > reach) | (low - X > reach)
    far &= high > low  # constant columns are not in the model
    if far.any():
        row, column = np.argwhere(far)[0]
        raise ValueError(
            f"X has {X[row, column]} in {schema.label(column)}, row {row}: "
            f"{_FAR:g} times as far from the observed values of fit, {low[column]} to "
            f"{high[column]}, as these are from each other. Correct the cell, or mark "
            "it as missing by NaN."
        )


def latent_array(Z, n_components):
    """Validate latents (n, n_components), float64 or float32."""
    Z = check_array(
        frames.readable(Z, "Z"), dtype=[np.float64, np.float32], input_name="Z"
    )
    if Z.shape[1] != n_components:
        raise ValueError(
            f"Z has {Z.shape[1]} columns, but the model has "
            f"n_components_={n_components} latents."
        )
    return Z


def check_verbose(value, name):
    """Check `verbose` of a class with a name; True counts as 1."""
    validate_parameter_constraints({"verbose": ["verbose"]}, {"verbose": value}, name)


def check_rank(n_components, width):
    """Check that there are at most as many latents as columns, unless "auto"."""
    if not isinstance(n_components, str) and n_components > width:
        raise ValueError(
            f"n_components={n_components} must be at most n_features={width}, the "
            "columns of X with two different observed values."
        )


def check_sizes(value, name):
    """Check that a value is a sequence of integers, the sizes of layers."""
    if not isinstance(value, tuple | list | np.ndarray) or not len(value):
        raise ValueError(
            f"{name} must be a tuple of integers, such as (64,), got {value!r}."
        )
    for size in value:
        check_count(size, name)


def check_choice(value, name, choices):
    """Check that a string is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        options = ", ".join(map(repr, sorted(choices)))
        raise ValueError(f"{name} must be one of {options}, got {value!r}.")


def check_sample(n_draws, as_array):
    """Check the parameters of `sample`."""
    check_count(n_draws, "n_draws")
    check_bool(as_array, "as_array")


# ----------------------------------------
# Errors for calls of methods without their table, or with unknown arguments.


def warn_of_unused(estimator, reasons):
    """Warn of parameters off their default that, for some reasons, have no effect."""
    parameters = inspect.signature(type(estimator)).parameters
    for name, reason in reasons.items():
        value, default = getattr(estimator, name), parameters[name].default
        # a comparison of arrays has no truth value
        same = isinstance(value, numbers.Number | str | tuple) and value == default
        if value is not default and not same:
            warn_user(f"{name}={value!r} has no effect: {reason}.")


def warn_of_unused_by_levels(estimator, schema):
    """Warn of bounds and `strategy` without effect on columns of categories."""
    columns = schema.columns
    if not columns:
        return
    passed = schema.passed.tolist()
    levels = [j for j, column in enumerate(columns) if column.levels is not None]
    reasons = {
        "columns of categories have no bounds, but only observed levels": levels,
        "columns that are passed through are not filled": passed,
    }
    no_numbers = len(levels) + len(passed) == len(columns)
    if no_numbers and hasattr(estimator, "strategy"):
        reason = "no column has numbers, and levels are filled by probability"
        warn_of_unused(estimator, {"strategy": reason})
    for name in ("min_value", "max_value"):
        bounds = getattr(estimator, name, None)
        if no_numbers and bounds is not None:
            warn_of_unused(estimator, {name: next(iter(reasons))})
        elif hasattr(bounds, "items"):  # a dict, or a Series
            places = [schema.index_of(key, name) for key in bounds.keys()]
            for reason, unfit in reasons.items():
                named = [schema.label(j) for j in places if j in unfit]
                if named:
                    warn_user(f"{name} of {', '.join(named)} has no effect: {reason}.")


# ----------------------------------------
# Options: objects with parameters that are passed to estimators as one parameter.


def set_nested(self, **params: Any) -> Any:
    """Set parameters, also of parts that a default stands for.

    `_parts` maps names of parameters to functions of values that are no part, which
    make it: ``set_params(solver__batch_size=64)`` with ``solver="auto"`` makes an
    `Adam` first, so that grids of nested settings need no part.

    Parameters
    ----------
    **params : dict
        Values by name; ``<part>__<name>`` is a parameter of a part.

    Returns
    -------
    self : object

    Raises
    ------
    ValueError
        If a parameter is not valid, or the value of a part has no settings.
    """
    for name in {key.partition("__")[0] for key in params if "__" in key}:
        value = params.get(name, getattr(self, name, None))
        if name in self._parts and not hasattr(value, "set_params"):
            if not (value is None or isinstance(value, str) or callable(value)):
                raise ValueError(f"{name}={value!r} has no settings.")
            params[name] = self._parts[name](value)
    return BaseEstimator.set_params(self, **params)


class Option(BaseEstimator):
    """Base class of options, which have parameters and no `fit`."""

    _parts: ClassVar[dict[str, Callable]] = {}
    set_params = set_nested


@dataclass(repr=False, eq=False)
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

    batch_size: int | Literal["auto"] = "auto"
    learning_rate_init: float | Literal["auto"] = "auto"
    weight_decay: float | Literal["auto"] = "auto"
    n_iter_no_change: int | Literal["auto"] = "auto"
    validation_fraction: float | Literal["auto"] = "auto"
    device: Literal["cpu", "cuda", "auto"] = "cpu"


@dataclass(repr=False, eq=False)
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

    n_iter: int = 5
    tol: float = 1e-5
    device: Literal["cpu", "cuda", "auto"] = "cpu"


def check_parameters(estimator: BaseEstimator) -> None:
    """Check each parameter by `_parameter_constraints`, and the fields of options.

    Raises scikit-learn's InvalidParameterError, and TypeError for classes of options or
    estimators instead of instances.
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

    Raises ValueError if a field is set that is not among the defaults.
    """
    fields = {} if isinstance(option, str) else option.get_params(deep=False)
    usual = {} if isinstance(option, str) else type(option)().get_params(deep=False)
    set_ = {
        name: value
        for name, value in fields.items()
        if not (isinstance(value, str) and value == usual[name])
    }
    for name in set_:
        if name not in defaults:
            raise ValueError(
                f"{slot}.{name}={set_[name]!r} is not used here: leave it at "
                f"{usual[name]!r}."
            )
    return {**defaults, **set_}
