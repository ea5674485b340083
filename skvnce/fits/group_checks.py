"""What tables of groups, and the parameters that concern them, must be."""

import numpy as np
from sklearn.utils import _safe_indexing

from skvnce._warnings import warn_user
from skvnce.exceptions import TableWarning
from skvnce.fits.gaussian_mixed import is_numeric
from skvnce.fitted.grouped import GroupedNormal
from skvnce.tables.column_kinds import column_of_groups
from skvnce.tables.groups import by_group
from skvnce.tables.schema import Schema


def reject_stream(groups):
    """Raise an error for `partial_fit`, whose rows come one after the other."""
    if groups is not None:
        raise ValueError(
            "partial_fit is not available with groups, as the rows of a group may come "
            "later. Use fit with all rows."
        )


def check_rows(schema, model, X):
    """Check new rows of groups.

    `model`, CopulaModel, LatentNormal or GroupedNormal; `X` (n_samples, n_features).
    """
    if schema.group is not None and isinstance(model, GroupedNormal):
        check_complete(schema, model.slopes.columns, X[:, schema.model_columns])
        check_constant(schema, schema.model_columns[model.of_groups], X)


def check_shift(schema, model, shift):
    """Raise an error for shifts of columns of groups, and of those with slopes."""
    if not isinstance(model, GroupedNormal):
        return
    of_groups, slopes = model.of_groups, model.slopes.columns
    for columns, why in (
        (of_groups, "constant within groups: all rows of a group have one value"),
        (slopes, "whose slopes differ between groups: none of its cells is missing"),
    ):
        found = [j for j in columns if shift.columns[j]]
        if found:
            names = schema.labels(schema.model_columns[found])
            raise ValueError(f"shift has {names}, {why}. Leave it out.")


def check_where(schema, model, where):
    """Raise an error for masks and rules of columns with random slopes."""
    if not isinstance(where, dict) or not isinstance(model, GroupedNormal):
        return
    slopes = schema.model_columns[model.slopes.columns]
    for key in where:
        place = schema.index_of(key, "where")
        if place in slopes:
            raise ValueError(
                f"where has {schema.label(place)}, whose slopes differ between groups: "
                "none of its cells is missing. Leave it out."
            )


def check_limits(schema, columns, limits, X):
    """Check that limits leave a value to each group in columns of groups.

    `columns`, ndarray of int: indices of columns of the table that are constant within
    groups; `limits`, CellLimits or None; `X` (n_samples, n_features).  Raises
    `ValueError` if limits of a cell contradict another row of its group.
    """
    if limits is None or not len(columns):
        return
    numbers = X[:, schema.group].astype(int)
    known = by_group(np.fmax, X[:, columns], numbers)[numbers]
    low, high = (part[:, columns].astype(X.dtype) for part in limits)
    outside = np.argwhere((known < low) | (known > high))
    if len(outside):
        row, column = outside[0]
        raise ValueError(
            f"The limits [{low[row, column]:g}, {high[row, column]:g}] of "
            f"{schema.label(columns[column])}, row {row}, contradict another row of "
            f"its group, which has {known[row, column]:g}: the column is constant "
            "within groups. Correct the limits or that cell."
        )
    most = by_group(np.maximum, low, numbers)[numbers]
    crossed = np.argwhere(most > high)
    if len(crossed):
        row, column = crossed[0]
        raise ValueError(
            f"upper is {high[row, column]:g} in {schema.label(columns[column])}, row "
            f"{row}, and lower is {most[row, column]:g} in another row of its group: "
            "the column is constant within groups. Correct one of them."
        )


def unless_trivial(schema, cells):
    """Forget groups, and warn, if each is one row, or if there is only one.

    `cells`, ModelCells.  Returns `schema`, Schema; `cells`, ModelCells.
    """
    if cells.groups is None:
        return schema, cells
    n_groups, n = len(np.unique(cells.groups)), len(cells.groups)
    if 1 < n_groups < n:
        return schema, cells
    why = "all rows are of one group" if n_groups == 1 else "each group has one row"
    warn_user(
        f"groups has no effect: {why} in {schema.label(schema.group)}. The model is "
        "that of a table without groups.",
        TableWarning,
    )
    columns = [one._replace(is_group=False) for one in schema.columns]
    return schema._replace(columns=columns), cells._replace(groups=None)


def warn_of_few(schema, model, cells):
    """Warn if there are no more groups than effects of each."""
    n_groups = len(np.unique(cells.groups))
    n_effects = model.levels.n_random + model.levels.groups.size
    if n_groups <= n_effects:
        warn_user(
            f"{schema.label(schema.group)} names {n_groups} groups, and each has "
            f"{n_effects} effects: the prior decides how they are correlated. Use "
            "fewer columns, or the column as a category instead of groups.",
            TableWarning,
        )


def check_constant(schema: Schema, columns, X):
    """Check that columns are constant within the groups of rows.

    `columns`, ndarray of int: indices of columns of the table; `X` (n_samples,
    n_features).  Raises `ValueError` if a group has two values.
    """
    for place in columns:
        rows = _differing(X[:, place], X[:, schema.group])
        if len(rows):
            raise ValueError(
                f"{schema.label(place)} was constant within groups at fit, and has "
                f"another value in row {rows[0]} than in an earlier row of its group. "
                "Correct the cell, or fit to rows in which it varies."
            )


def _differing(cells, numbers):
    """List the rows whose cell differs from the first one of their group."""
    numbers, seen = numbers.astype(int), np.flatnonzero(~np.isnan(cells))
    first = np.full(numbers.max(initial=0) + 1, np.nan)
    first[numbers[seen][::-1]] = cells[seen][::-1]
    return seen[cells[seen] != first[numbers[seen]]]


def slopes_of(schema: Schema, groups, nodes):
    """Find the columns whose slopes are random, and check them.

    `groups`, str, int or dict: see `GaussianImputer`; `nodes` (n, n_model_columns).
    Returns list of int: places among the columns of the model.
    """
    found = []
    for name in column_of_groups(groups).slopes:
        place = schema.index_of(name, "groups")
        label = schema.label(place)
        if found and place in schema.model_columns[found]:
            raise ValueError(f"groups has slopes of {label} twice. Leave one out.")
        if place not in schema.model_columns:
            raise ValueError(
                f"groups has slopes of {label}, which the model does not use: it is "
                "constant, empty, or passed through. Leave it out."
            )
        node = int(np.searchsorted(schema.model_columns, place))
        if not is_numeric(schema)[node]:
            raise ValueError(
                f"groups has slopes of {label}, which has categories, not "
                "numbers: let categorical_features call it 'numeric'."
            )
        found.append(node)
    check_complete(schema, found, nodes)
    design = np.column_stack([np.ones(len(nodes)), nodes[:, found]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise ValueError(
            f"groups has slopes of {schema.labels(schema.model_columns[found])}, which "
            "are linear functions of each other. Leave some out."
        )
    return found


def named_constants(schema: Schema, groups):
    """List the columns of the table that a user calls constant within groups.

    `groups`, str, int or dict: see `GaussianImputer`.  Returns list of int.
    """
    asked = column_of_groups(groups)
    found = [schema.index_of(name, "groups") for name in asked.constant]
    slopes = {schema.index_of(name, "groups") for name in asked.slopes}
    for place in found:
        label = schema.label(place)
        if place in slopes:
            raise ValueError(
                f"groups has both slopes of {label} and calls it constant within "
                "groups. Columns of slopes are not modelled: leave it out of one."
            )
        if place in schema.passed:
            raise ValueError(
                f"groups calls {label} constant, which the model does not use: it is "
                "passed through. Leave it out."
            )
    return found


def check_named(schema: Schema, groups, given, X):
    """Check that columns that a user calls constant are constant within groups.

    `groups`, str, int or dict: see `GaussianImputer`; `given` (n_samples, n_features):
    as given by the user; `X` (n_samples, n_features): as it has been read.
    """
    for place in named_constants(schema, groups):
        rows = _differing(X[:, place], X[:, schema.group])
        if len(rows):
            names = np.asarray(_safe_indexing(given, schema.group, axis=1))
            raise ValueError(
                f"groups calls {schema.label(place)} constant within groups, but it "
                f"varies within the group {names.tolist()[rows[0]]!r}. Correct its "
                "cells, or leave it out of groups."
            )


def check_complete(schema: Schema, slopes, nodes):
    """Check that columns of slopes have no missing cell."""
    for node in slopes:
        rows = np.flatnonzero(np.isnan(nodes[:, node]))
        if len(rows):
            label = schema.label(schema.model_columns[node])
            raise ValueError(
                f"groups has slopes of {label}, which is missing in row {rows[0]}. The "
                "slopes of a column need all of its cells: fill it before, or leave it "
                "out."
            )
