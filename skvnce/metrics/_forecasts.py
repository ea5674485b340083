"""Predictive distributions of hidden cells of categories, in one form."""

import numbers
from typing import NamedTuple

import narwhals as nw
import numpy as np

from skvnce._tables.cells import (
    Cells,
    cells_of_columns,
    is_frame,
    is_missing,
    is_text,
    item,
    names_of,
)
from skvnce._tables.frames import column_label, readable, reject_parts
from skvnce._tables.mixed import check_order, check_rows, columns_by_dtype
from skvnce._tables.schema import place_of, read_columns
from skvnce.missingness import _check_hidden

_ROUNDING = 1e-4  # of the sum of probabilities, which may be of single precision


class Forecast(NamedTuple):
    """The probabilities of the hidden cells of one column."""

    probabilities: np.ndarray  # (n_hidden, n_levels)
    outcomes: np.ndarray  # int (n_hidden,), places of the true levels
    # of which the probabilities are frequencies; None if they are none
    n_draws: int | None


class HiddenCells(NamedTuple):
    """The hidden cells of one column of the true table."""

    place: int
    label: str
    rows: np.ndarray
    values: list


def cells_of(X, name):
    """List the columns of a table, as `Cells`."""
    reject_parts(X, name)
    if type(X) is np.ndarray and X.dtype == object and X.ndim == 2:
        cells = [Cells(X, j, None) for j in range(X.shape[1])]
    else:
        cells = cells_of_columns(X)
    if not cells or not len(cells[0]):
        raise ValueError(
            f"{name} must be a table of at least one row and one column, got shape "
            f"{np.shape(X)}; a single column is X.reshape(-1, 1)"
        )
    return cells


def hidden_cells(X_true, hidden, places):
    """List the hidden cells (`HiddenCells`) of columns that have some."""
    cells = cells_of(X_true, "X_true")
    hidden = _check_hidden(hidden, (len(cells[0]), len(cells)), X_true)
    listed = []
    for place in places:
        rows = np.flatnonzero(hidden[:, place])
        if len(rows):
            label = column_label(X_true, place)
            values = observed_values(cells[place], label, rows, "X_true")
            listed.append(HiddenCells(place, label, rows, values))
    if not listed:
        raise ValueError(
            "hidden must mark at least one cell of the columns to score, "
            f"{[column_label(X_true, place) for place in places]}, got none; hide some"
        )
    return listed


def observed_values(cells, label, rows, name):
    """Return the values of cells of a column, none of which may be missing."""
    values = [item(value) for value in cells.at(rows)]
    for row, value in zip(rows, values, strict=True):
        if is_missing(value):
            raise ValueError(
                f"{name} has a missing value in a hidden cell: column {label}, row "
                f"{row}; impute it, or set hidden to False there"
            )
    return values


def positions(X, columns, parameter="columns"):
    """Return the indices of columns of a frame by their names, or of an array."""
    names, width = names_of(X), len(cells_of(X, "X_true"))
    if isinstance(columns, str | numbers.Integral):
        columns = [columns]
    places = (place_of(name, names, width, parameter) for name in columns)
    return list(dict.fromkeys(places))


def category_places(X_true):
    """Return the indices of the columns of categories by their data types."""
    columns = columns_by_dtype(X_true) or []
    return [j for j, column in enumerate(columns) if column.levels is not None]


def ordinal_places(X_true):
    """Return the indices of ordinal columns, with integers of few values."""
    columns = (read_columns(X_true) or []) if is_frame(X_true) else []
    return [j for j, column in enumerate(columns) if column.kind == "ordinal"]


def select_places(X_true, columns, places):
    """Return the indices of named columns, or those of the default."""
    reject_parts(X_true, "X_true")
    places = places if columns is None else positions(X_true, columns)
    if not places:
        raise ValueError(
            "X_true has no columns to score by their data types; name or index some "
            "in columns"
        )
    return places


def forecasts(X_true, draws, hidden, columns, categories, n_draws, *, ordinal=False):
    """Return a `Forecast` of each column that is scored.

    `draws`: dict of probabilities, or sequence of completed tables; `ordinal`:
    whether the score needs levels in their order.
    """
    categories = {
        positions(X_true, [key], "categories")[0]: [item(level) for level in levels]
        for key, levels in (categories or {}).items()
    }
    if not isinstance(draws, dict):
        return _of_tables(X_true, draws, hidden, columns, categories, ordinal)
    draws = {
        positions(X_true, [key], "probabilities")[0]: table
        for key, table in draws.items()
    }
    for place, table in draws.items():
        name = f"probabilities[{column_label(X_true, place)}]"
        check_rows(X_true, table, name, "X_true")
    places = list(draws)
    if ordinal and columns is None:
        places = [place for place in ordinal_places(X_true) if place in draws]
    _check_n_draws(n_draws)
    results = []
    for cells in hidden_cells(X_true, hidden, select_places(X_true, columns, places)):
        if cells.place not in draws:
            raise ValueError(
                f"probabilities have no column {cells.label}; leave it out of columns"
            )
        results.append(
            _of_probabilities(
                cells, draws[cells.place], categories, np.shape(hidden)[0], n_draws
            )
        )
    return results


def _check_n_draws(n_draws):
    if n_draws is None:
        return
    if not isinstance(n_draws, numbers.Integral) or n_draws < 2:
        raise ValueError(
            f"n_draws must be an integer of at least 2, got {n_draws!r}; pass None for "
            "probabilities that are no frequencies of draws"
        )


def _of_probabilities(cells, table_of_shares, categories, n_samples, n_draws):
    """Return the forecast of a column from its probabilities."""
    levels = categories.get(cells.place)
    if levels is None:
        levels = _levels_of_frame(cells, table_of_shares)
    table = np.asarray(readable(table_of_shares, "probabilities"), dtype=np.float64)
    if table.shape != (n_samples, len(levels)):
        raise ValueError(
            f"probabilities of column {cells.label} must have shape (n_samples, "
            f"n_levels), {(n_samples, len(levels))}, got {table.shape}; pass one row "
            f"per row of X_true and the levels {levels}"
        )
    table = table[cells.rows]
    # negated, so that NaN is wrong
    wrong = ~((table >= 0).all(axis=1) & (abs(table.sum(axis=1) - 1) < _ROUNDING))
    for row, values in zip(cells.rows[wrong], table[wrong], strict=True):
        raise ValueError(
            f"probabilities of column {cells.label} must not be negative and have sum "
            f"1, got {values.tolist()} in row {row}; divide them by their sum"
        )
    outcomes = _places_among(levels, cells, cells.values, "X_true")
    return Forecast(table, outcomes, n_draws)


def _levels_of_frame(cells, frame):
    """Return the names of the columns of a data frame of probabilities, as levels."""
    if not is_frame(frame):
        raise ValueError(
            f"the levels of column {cells.label} are unknown, since its probabilities "
            "are no data frame; pass categories=imputer.categories_"
        )
    names = list(map(item, names_of(frame)))
    # in some data frames all names are text, those of numeric levels included
    if all(map(is_text, names)) and not any(map(is_text, cells.values)):
        texts = {str(value): value for value in cells.values}
        return [texts.get(name, name) for name in names]
    return names


def _places_among(levels, cells, values, name):
    """Return the places of values of the hidden cells among levels."""
    places = {level: place for place, level in enumerate(levels)}
    for row, value in zip(cells.rows, values, strict=True):
        if value not in places:
            raise ValueError(
                f"{name} has the level {value!r} in column {cells.label}, row {row}, "
                f"which is not among {levels}; add it to probabilities, with "
                "probability 0, or to categories, or set hidden to False there"
            )
    return np.array([places[value] for value in values])


def tables_of(X_true, draws, shape):
    """Return the columns (`Cells`) of completed tables of one shape."""
    if is_frame(draws) or not np.iterable(draws) or not len(draws):
        raise ValueError(
            "draws must be a sequence of completed tables, as sample returns them; a "
            "single table is [table]"
        )
    tables = [cells_of(draw, f"draw {i}") for i, draw in enumerate(draws)]
    for i, cells in enumerate(tables):
        check_order(X_true, draws[i], f"draws[{i}]", "X_true")
        check_shape(cells, shape, f"draw {i}")
    return tables


def check_shape(cells, shape, name):
    """Raise an error for a completed table of another shape."""
    size = (len(cells[0]), len(cells))
    if size != shape:
        raise ValueError(
            f"{name} must have the shape of X_true, {shape}, got {size}; pass the same "
            "rows and columns"
        )


def _of_tables(X_true, draws, hidden, columns, categories, ordinal):
    """Return the forecasts that are the frequencies of levels in draws."""
    default = category_places(X_true)
    if ordinal:
        default = [place for place in ordinal_places(X_true) if place in default]
    places = select_places(X_true, columns, default)
    true = cells_of(X_true, "X_true")
    draws = tables_of(X_true, draws, (len(true[0]), len(true)))
    results = []
    for cells in hidden_cells(X_true, hidden, places):
        drawn = [
            observed_values(draw[cells.place], cells.label, cells.rows, f"draw {i}")
            for i, draw in enumerate(draws)
        ]
        for values in drawn:
            check_alike(cells, values)
        levels = categories.get(cells.place)
        if levels is None:
            levels = _levels(true[cells.place], cells.label, drawn, ordinal)
        results.append(_frequencies(cells, levels, drawn))
    return results


def check_alike(cells, values):
    """Raise an error for text where the true levels are numbers, or vice versa."""
    example = cells.values[0]
    for row, value in zip(cells.rows, values, strict=True):
        if is_text(value) != is_text(example):
            raise TypeError(
                f"column {cells.label} has levels such as {example!r} in X_true, but "
                f"{value!r} in the completed table, row {row}; pass levels, not codes"
            )


def _levels(true, label, drawn, ordinal):
    """Return the levels of the true column and of its draws, in their order."""
    levels = true.levels().union(*map(set, drawn))
    if true.series is not None and true.series.dtype == nw.Enum:
        categories = [item(level) for level in true.series.dtype.categories]
        used = [level for level in categories if level in levels]
        return used + sorted(levels - {*categories})
    if ordinal and any(map(is_text, levels)):
        raise ValueError(
            f"the order of the levels of column {label} is unknown; pass them in their "
            f"order in categories, for example {{{label}: {sorted(levels)}}}"
        )
    # numbers cannot be compared with text
    return sorted(levels, key=lambda level: (is_text(level), level))


def _frequencies(cells, levels, drawn):
    """Return the forecast that is the frequencies of the levels in draws."""
    counts = np.zeros((len(cells.rows), len(levels)))
    for values in drawn:
        counts += np.eye(len(levels))[_places_among(levels, cells, values, "a draw")]
    outcomes = _places_among(levels, cells, cells.values, "X_true")
    return Forecast(counts / len(drawn), outcomes, len(drawn))
