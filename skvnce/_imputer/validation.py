"""Validation of input; errors name the row, the column and a remedy."""

import functools
import inspect
import numbers

import numpy as np
from sklearn.utils._param_validation import (
    Interval,
    MissingValues,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.validation import check_array, validate_data

from skvnce._core.numbers import check_bool, check_count, is_finite
from skvnce._core.warnings import warn_user
from skvnce._imputer.fill import STRATEGIES
from skvnce._imputer.related import deduced, with_relations
from skvnce._tables.cells import names_of, read_marked
from skvnce._tables.column_kinds import FROM_DTYPE, encode, reject_categories
from skvnce._tables.findings.checks import check_deviations, warn_of_table
from skvnce._tables.findings.columns import modelled_columns
from skvnce._tables.frames import TEXT_REMEDY, cell_errors_named, check_exact, readable
from skvnce._tables.limits import NO_LIMITS
from skvnce._tables.memory import check_fit, needs_memory
from skvnce._tables.model_columns import (
    ModelCells,
    observed_columns,
    warn_of_empty,
    without_constants,
    without_dropped,
)
from skvnce._tables.schema import Encoded, Schema, Table
from skvnce._tables.values import column_moments, ends_of, valid_values
from skvnce._tables.weights import checked_weights, rows_with_data
from skvnce._types import Method

_OF_READERS = (  # what to do about text in an array, if the estimator models categories
    "List columns of categories in categorical_features, or turn numbers with marks of "
    'missing values into numbers by pandas.to_numeric(column, errors="coerce").'
)
_FAR = 1e50  # widths of a column whose square and fourth power do not overflow


class Number(Interval):
    """A constraint of parameters: an interval of numbers.

    Unlike scikit-learn's intervals it contains no bool and no number that is not finite
    in float64.
    """

    def is_satisfied_by(self, val):
        """Return whether a value is in the interval."""
        if isinstance(val, bool) or not isinstance(val, self.type):
            return False
        return is_finite(val) and val in self


class Marker(MissingValues):
    """A constraint of parameters: what can mark missing cells.

    Unlike that of scikit-learn it contains no bool, and no infinite number.
    """

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
ON_MISFIT = [StrOptions({"warn", "raise", "ignore"})]  # constraints of `on_misfit`
STRATEGY = [StrOptions(set(STRATEGIES))]  # constraints of `strategy`
OF_CATEGORIES = {  # constraints of the parameters of estimators that read categories
    "categorical_features": [StrOptions({FROM_DTYPE}), "array-like", dict, None],
    "handle_unknown": [StrOptions({"error", "missing"})],
}
MISSING_VALUES = [Marker()]  # constraints of `missing_values`
RELATIONS = [AUTO, None, list, tuple]  # constraints of `relations`
OF_IMPUTERS = {  # constraints of the parameters of imputers of numbers and categories
    "strategy": STRATEGY,
    "relations": RELATIONS,
    "missing_values": MISSING_VALUES,
    "keep_empty_features": ["boolean"],
    "add_indicator": ["boolean"],
    **OF_CATEGORIES,
}
RANDOM_STATE = ["random_state", np.random.Generator]  # constraints of `random_state`


def attributes_of(schema):
    """List the public attributes of an estimator that describe columns of a table."""
    found = {"n_features_in_": schema.n_columns}
    if schema.names is not None:
        found["feature_names_in_"] = schema.names
    names = schema.keys or range(schema.n_columns)
    categories = {
        names[j]: np.array(column.levels, dtype=None if column.is_number else object)
        for j, column in enumerate(schema.columns or ())
        if column.levels is not None
    }
    return found | ({"categories_": categories} if categories else {})


def read_table(estimator, X, *, like=None, asked=None, weights=None):
    """Validate the table of a fit, in which `missing_values` marks missing cells.

    Estimators with the parameter `categorical_features`, or whose `model` has it, read
    categories and dates: the table that is returned has codes of levels, and
    microseconds.

    `estimator` estimator: its parameters say how the table is read; it does not change;
    `X` (n, features); `like` estimator: a fitted estimator whose levels are used;
    `asked` "from_dtype", array-like or dict: replaces `categorical_features`; `weights`
    (n,): rows of weight zero do not tell which relations there are. Returns
    `table` (n, features): may share memory with X: do not write to it, and has cells
    that follow by `relations`; `schema` Schema. Raises `ValueError`: for infinite
    values, text, integers that float64 cannot represent (the message names row and
    column), and if no cell is observed. Raises `TypeError`: for dates and durations
    (the message names row and column) where they are not read, for tables in parts, and
    for containers that cannot be read, see `readable`.
    """
    if isinstance(X, Encoded):
        return X.table, X.schema.as_read
    needs_memory(type(estimator), X, reset=True)
    settings, columns = _settings(estimator), None
    X = read_marked(X, getattr(settings, "missing_values", np.nan))
    if not hasattr(settings, "categorical_features"):
        reject_categories(X)
    else:
        asked = settings.categorical_features if asked is None else asked
        columns = like._schema.columns if hasattr(like, "_schema") else None
        groups = getattr(settings, "groups", None)
        columns = columns or modelled_columns(X, asked, groups)
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
    return _with_cells_that_follow(estimator, schema, table, weights)


def _with_cells_that_follow(estimator, schema, table, weights):
    """Find relations, if an estimator uses them, and compute cells that follow."""
    relations = getattr(estimator, "relations", None)
    if schema.group_columns:
        reject_listed_relations(estimator, "a table with groups")
    if relations is None or schema.group_columns:
        return table, schema
    kept, counted = estimator._kept_columns(schema), checked_weights(weights, table) > 0
    rows = table[counted]
    schema = with_relations(schema, rows, relations, kept)
    if schema.relations is None:
        return table, schema
    values = valid_values(schema, rows, *estimator._bounds())  # which win
    table = table.copy()
    table[counted] = deduced(schema._replace(values=values), rows)[0]
    return table, schema


def reject_listed_relations(estimator, where):
    """Raise an error if an estimator has a list of relations, which has no effect."""
    if isinstance(getattr(estimator, "relations", None), list | tuple):
        raise ValueError(
            f"relations is a list, but relations are not kept in {where}. Pass "
            "relations=None, or a table in memory without groups."
        )


def incomplete_array(estimator, X):
    """Validate new rows of a fitted estimator, as `read_table` reads those of its fit.

    `X` (n, features). Returns (n, features): may share memory with X: do not write to
    it. Raises `ValueError, TypeError`: as `read_table` does, and for values too far
    from those of the fit, for a wrong number of columns, and for unknown levels.
    """
    if isinstance(X, Encoded):
        return X.table
    needs_memory(type(estimator), X, reset=False)
    schema = estimator._schema
    _check_order(schema, X)
    X = read_marked(without_dropped(schema, X), schema.marker)
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
    names, known = names_of(X), schema.other_names
    if known and names != known and set(names) == set(known):
        raise ValueError(
            f"X has the columns {names}, in another order than at fit: {known}. Pass "
            f"X[{known}]."
        )


def with_model_columns(schema, handling, X, impossible=None):
    """Choose the columns of the model by training rows, and warn of the others.

    See `without_constants`.
    """
    warn_of_empty(schema, X, handling)
    schema = schema._replace(model_columns=observed_columns(schema, X))
    return without_constants(schema, X, handling, impossible)


def read_cells(schema, handling, X, weights=None, impossible=None, limits=NO_LIMITS):
    """Choose the columns of a model and its training rows.

    `handling` Handling: for messages; `X` (n_samples, n_features); `weights`
    (n_samples,): of the rows; they are checked; `impossible` str: see
    `without_constants`; `limits` Limits: of the missing cells of X. A row that only
    has limits is kept. Returns `cells` ModelCells; `schema` Schema: with the columns of
    the model, and constants.
    """
    known = ~np.isnan(X) | limits.known
    weights, kept = rows_with_data(X, weights, known)
    table = X[kept]
    schema = with_model_columns(schema, handling, table, impossible)
    columns = schema.model_columns
    nodes = table[:, columns].astype(np.float64)
    seen = known[kept][:, columns].any(1)
    nodes, kept_weights = nodes[seen], weights[kept][seen]
    limits = limits.of(np.flatnonzero(kept)[seen], columns)
    moments = column_moments(nodes, kept_weights)
    check_deviations(schema, columns, moments[1])
    groups = next((table[seen, j] for j in schema.group_columns), None)
    cells = ModelCells(
        table, nodes, kept_weights, *moments, weights > 0, limits, groups
    )
    return cells, schema


def _settings(estimator):
    """Return what has the parameters of an estimator: itself, or its `model`."""
    return estimator._settings() if hasattr(estimator, "_settings") else estimator


def _numbers(estimator, X, reset):
    """Validate a table of numbers."""
    cells = readable(X)
    _check_two_dimensional(cells)
    reads = hasattr(_settings(estimator), "categorical_features")
    of_others = getattr(estimator, "text_remedy", None) or TEXT_REMEDY
    remedy = _OF_READERS if reads else of_others
    # scikit-learn adds all cells, which may overflow in both directions
    with cell_errors_named(X, remedy), np.errstate(invalid="ignore"):
        table = validate_data(
            estimator,
            cells,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=2 if reset else 1,
        )
    check_exact(X, table)
    return table


def _check_two_dimensional(X):
    """Raise an error for text that is no table; scikit-learn says so of numbers."""
    shape = getattr(X, "shape", (0, 0))
    if len(shape) != 2 and getattr(getattr(X, "dtype", None), "kind", "") not in "biuf":
        raise ValueError(
            f"Expected a table of rows and columns, got {len(shape)} dimensions. "
            "Pass X[[name]] of a data frame, or reshape X, for a single column."
        )


def _codes(estimator, X, columns, reset):
    """Validate a table, and convert it to codes and numbers."""
    if not hasattr(X, "shape"):
        X = np.asarray(readable(X), dtype=object)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    table = encode(X, columns, handle_unknown=_settings(estimator).handle_unknown)
    with cell_errors_named(X):
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
    Z = check_array(readable(Z, "Z"), dtype=[np.float64, np.float32], input_name="Z")
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


_OF_LIMITS = (
    " Limits of cells are for GaussianImputer, MixtureImputer and CopulaGraphLearner."
)
_HINTS = {"lower": _OF_LIMITS, "upper": _OF_LIMITS}


def names_table(method: Method) -> Method:
    """Decorate a method that requires X: a call without it names the estimator.

    Python would name the base class that has the method.
    """
    known = inspect.signature(method).parameters
    if "X" not in known or known["X"].default is not inspect.Parameter.empty:
        return method
    name = method.__name__
    takes_all = any(one.kind == one.VAR_KEYWORD for one in known.values())

    @functools.wraps(method)
    def named(self, *args, **kwargs):
        whose = f"{type(self).__name__}.{name}"
        if not args and "X" not in kwargs:
            raise TypeError(f"{whose} needs {_what(self, name)}")
        for other in () if takes_all else kwargs.keys() - known.keys():
            raise TypeError(f"{whose} takes no {other}.{_HINTS.get(other, '')}")
        return method(self, *args, **kwargs)

    return named


def _what(owner, name):
    """Say what a method needs, and which other one does not."""
    if name != "sample" or not hasattr(owner, "sample_rows"):
        return "X, a table of rows and columns."
    return "X, the table whose missing cells it draws. sample_rows draws new rows."


# ----------------------------------------
# Parameters that have no effect beside other parameters, or on a kind of table.


def warn_of_unused(estimator, reasons):
    """Warn of parameters that are not at their default, and have no effect.

    `reasons` dict of str to str: why parameters have no effect, and what has.
    """
    known = inspect.signature(type(estimator)).parameters
    for name, reason in reasons.items():
        value, default = getattr(estimator, name), known[name].default
        # a comparison of arrays has no truth value
        same = isinstance(value, numbers.Number | str | tuple) and value == default
        if value is not default and not same:
            warn_user(f"{name}={value!r} has no effect: {reason}.")


def warn_of_unused_by_levels(estimator, schema):
    """Warn of parameters of numbers without effect on columns of categories.

    These are bounds of such columns, or of some that are passed through, and `strategy`
    if there are no others.
    """
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
    if no_numbers:
        reason = "no column has numbers, and levels are filled by probability"
        warn_of_unused(estimator, {"strategy": reason})
    for name in ("min_value", "max_value"):
        given = getattr(estimator, name, None)
        if no_numbers and given is not None:
            warn_of_unused(estimator, {name: next(iter(reasons))})
        elif hasattr(given, "items"):  # a dict, or a Series
            places = [schema.index_of(key, name) for key in given.keys()]
            for reason, unfit in reasons.items():
                named = [schema.label(j) for j in places if j in unfit]
                if named:
                    warn_user(f"{name} of {', '.join(named)} has no effect: {reason}.")
