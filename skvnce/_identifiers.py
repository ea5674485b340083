"""Columns of text that no model can use: names of rows, and free text.

They are passed through: left out of the model, and returned as they were.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvnce._cells import Cells, cells_of_columns
from skvnce._columns import (
    FROM_DTYPE,
    LEAST_CELLS,
    PASSED,
    Column,
    asked_kinds,
    read_columns,
)
from skvnce._marks import marks_among

FEWEST = 20  # observed cells; of fewer the number of levels says little
_WORDS = 5  # of a level on average, from which levels are sentences
_CELLS_OF_SENTENCE = 10  # for each level on average; answers of a form are repeated


class Counted(NamedTuple):
    """A column, and the number of its observed cells."""

    column: Column
    n_observed: int


def n_observed(cells: Cells) -> int:
    """Count the observed cells of a column."""
    return len(cells) - int(cells.missing().sum())


def is_identifier(column: Column, n_observed: int) -> bool:
    """Return whether the levels of a nominal column are names of rows or free text.

    Names have fewer than `LEAST_CELLS` cells for each level on average, as whole
    numbers that are no levels.  Most missing cells then have a level that no row has,
    and nothing can be learned from a level that occurs once.

    Parameters
    ----------
    column : Column
    n_observed : int
        Number of its observed cells.
    """
    if column.kind != "nominal" or n_observed < FEWEST:
        return False
    n_levels = len(column.levels)
    if n_levels * LEAST_CELLS > n_observed:
        return True
    return n_levels * _CELLS_OF_SENTENCE > n_observed and _are_sentences(column.levels)


def _are_sentences(levels: Collection) -> bool:
    return np.mean([len(str(level).split()) for level in levels]) >= _WORDS


def passed_through(counted: Sequence[Counted], asked: Collection[int]) -> list[Column]:
    """Replace identifiers and free text by columns that are passed through.

    Parameters
    ----------
    counted : sequence of n_features Counted
    asked : collection of int
        Columns that the user has named: they are what the user says.

    Returns
    -------
    list of n_features Column
    """
    return [
        _passed(one.column)
        if place not in asked and is_identifier(*one)
        else one.column
        for place, one in enumerate(counted)
    ]


def _passed(column: Column) -> Column:
    found, marks = Column(PASSED, dtype=column.dtype), marks_among(column.levels)
    return found._replace(n_levels=len(column.levels), marks=tuple(marks))


def modelled_columns(
    X: ArrayLike, categorical_features: object = FROM_DTYPE
) -> list[Column] | None:
    """Determine the columns of a table in memory, and which are passed through.

    Parameters, returns and errors are those of `read_columns`.
    """
    columns = read_columns(X, categorical_features)
    if not any(column.kind == "nominal" for column in columns or ()):
        return columns
    cells = cells_of_columns(X)
    counted = [
        Counted(column, n_observed(one) if column.kind == "nominal" else 0)
        for one, column in zip(cells, columns, strict=True)
    ]
    return passed_through(counted, asked_kinds(X, len(cells), categorical_features))
