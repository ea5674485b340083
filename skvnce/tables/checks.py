"""What in a table is probably not as it seems; `fit` warns of most of it.

Each check is a function of a `Table` that returns sentences, which name columns, rows
or levels, and what to do.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from skvnce._warnings import warn_user
from skvnce.exceptions import TableWarning
from skvnce.tables.identifiers import (
    are_names_of_groups,
    are_numbers_of_rows,
    is_identifier,
)
from skvnce.tables.missing_marks import codes_of_missing, marks_of_missing
from skvnce.tables.products import products
from skvnce.tables.row_checks import never_observed, repeated_rows
from skvnce.tables.schema import Schema
from skvnce.tables.table import Table, listed
from skvnce.tables.text_numbers import numbers_as_text


def findings(table: Table) -> list[str]:
    """List what is probably not as it seems in a table."""
    return findings_of_cells(table) + _found(table, (repeated_rows, products))


def findings_of_cells(table: Table) -> list[str]:
    """List what is probably not as it seems in cells, of which `fit` warns."""
    of_cells = (marks_of_missing, codes_of_missing, numbers_as_text)
    return _found(table, (*of_cells, numbers_of_rows, never_observed))


def _found(table: Table, checks: Iterable[Callable]) -> list[str]:
    with np.errstate(over="ignore"):  # an infinite range is far from all rules
        return [message for check in checks for message in check(table)]


def warn_of_table(table: Table, n_observed: ArrayLike | None = None) -> None:
    """Warn of what is probably not as it seems in a table.

    `n_observed` int (n_features,) is of all rows, if the table is a sample of them.
    """
    counts = table.n_observed if n_observed is None else n_observed
    messages = many_levels(table, counts) + names_of_groups(table, counts)
    for message in messages + findings_of_cells(table):
        warn_user(message, TableWarning)


def places_of_numbers(table: Table) -> list[int]:
    """Find columns with missing cells whose numbers seem to name rows."""
    return [
        place
        for place in _partly_missing(table)
        if table.columns[place].is_plain and are_numbers_of_rows(table.observed(place))
    ]


def _partly_missing(table: Table) -> list[int]:
    return np.flatnonzero(table.n_observed < len(table.cells)).tolist()


def made_up(table: Table) -> list[int]:
    """Find columns that seem to name rows, or groups of rows, and would be imputed."""
    return sorted(places_of_numbers(table) + places_of_names(table, table.n_observed))


def numbers_of_rows(table: Table) -> list[str]:
    """Find numbers that name rows, some of which are missing and would be imputed."""
    found = [table.names[place] for place in places_of_numbers(table)]
    if not found:
        return []
    return [
        f"Whole numbers that are all different: {listed(found)}. If they name or "
        "number rows, imputed values are made up: leave the columns out by "
        'categorical_features={column: "passthrough"}, or drop them.'
    ]


def places_of_names(table: Table, n_observed: np.ndarray) -> list[int]:
    """Find columns with missing cells whose levels seem to name groups of rows.

    `n_observed` int (n_features,): of all rows, if the table is a sample of them.
    """
    found = []
    for place in _partly_missing(table):
        column, n = table.columns[place], n_observed[place]
        if column.kind != "nominal":
            continue
        is_passed = is_identifier(column, _cells_of_levels(table, place, n))
        cells_of = np.bincount(table.observed(place).astype(int))
        if not is_passed and are_names_of_groups(column, cells_of, n):
            found.append(place)
    return found


def many_levels(table: Table, n_observed: np.ndarray) -> list[str]:
    """Find columns of names or free text: passed through, or modelled as asked for.

    `n_observed` int (n_features,): of all rows, if the table is a sample of them.
    """
    triples = list(zip(table.names, table.columns, n_observed, strict=True))
    passed = [f"{a} ({b.n_levels} in {n} cells)" for a, b, n in triples if b.n_levels]
    asked = [
        f"{name} ({len(column.levels)} in {n} cells)"
        for place, (name, column, n) in enumerate(triples)
        if is_identifier(column, _cells_of_levels(table, place, n))
    ]
    messages = []
    if passed:
        messages.append(
            "Identifiers or free text, which have too many levels to learn from: "
            f"{listed(passed)}. They are not in the model, and their missing cells "
            "stay missing. If they are numbers or dates, convert them by "
            "pandas.to_numeric or pandas.to_datetime. "
            'categorical_features={column: "nominal"} of the imputer, or of its '
            "model=GaussianImputer(...), models them, and "
            '{column: "passthrough"} leaves them out without this warning.'
        )
    if asked:
        messages.append(
            "Nominal columns with more levels than half of their observed cells: "
            f"{listed(asked)}. Nothing can be learned from levels that occur once, "
            "and they take time. Drop the columns if they are identifiers; convert "
            "them if they are numbers or dates."
        )
    return messages


def names_of_groups(table: Table, n_observed: np.ndarray) -> list[str]:
    """Find levels that name groups of rows, some of which would be imputed.

    Parameters are those of `many_levels`.
    """
    found = [
        f"{table.names[j]} ({len(table.columns[j].levels)} in {n_observed[j]} cells)"
        for j in places_of_names(table, n_observed)
    ]
    if not found:
        return []
    return [
        f"Nominal columns of many levels, each in few cells: {listed(found)}. If they "
        "name groups of rows, such as patients, imputed names are made up: leave the "
        'columns out by categorical_features={column: "passthrough"}, or drop the rows '
        "without a name and use groups=column of GaussianImputer."
    ]


def _cells_of_levels(table: Table, place: int, n_observed: int) -> np.ndarray:
    """Count the cells of each level of a column; all together in a sample of rows."""
    if table.columns[place].kind != "nominal":
        return np.zeros(0, int)
    if n_observed > table.n_observed[place]:
        return np.array([n_observed])
    return np.bincount(table.observed(place).astype(int))


def check_deviations(
    schema: Schema, columns: np.ndarray, deviation: np.ndarray
) -> None:
    """Check that standard deviations (n_columns,) have finite, positive squares."""
    # 1e-300 is above 2.2e-308, below which float64 loses digits
    check_squares(schema, columns, np.isfinite(deviation**2) & (deviation**2 > 1e-300))


def check_squares(schema: Schema, columns: np.ndarray, fit: np.ndarray) -> None:
    """Raise an error for the first column whose squares do not fit into float64."""
    if not fit.all():
        name = schema.label(columns[np.flatnonzero(~fit)[0]])
        raise ValueError(
            f"{name} has values whose squares leave the range of float64. Rescale it."
        )


def check_non_negative(schema: Schema, X: np.ndarray, name: str) -> None:
    """Reject negative cells; scikit-learn's helper misses them in columns with NaN."""
    negative = X < 0
    if negative.any():
        row, column = np.argwhere(negative)[0]
        raise ValueError(
            f"Negative values in data passed to {name}: "
            f"{X[row, column]} in {schema.label(column)}, row {row}. The "
            "model is for non-negative columns; drop or shift columns that are not. "
            "CopulaGraphLearner learns a graph of columns of any distribution."
        )
