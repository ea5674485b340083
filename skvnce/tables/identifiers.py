"""Columns of text that no model can use: identifiers, and free text.

They are passed through: left out of the model, and returned as they were.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvnce._grids import LEAST_CELLS
from skvnce.tables.cells import Cells, cells_of_columns, is_missing, item
from skvnce.tables.column_kinds import (
    FROM_DTYPE,
    PASSED,
    Column,
    asked_kinds,
    in_order,
    read_columns,
)
from skvnce.tables.missing_marks import marks_among

FEWEST = 20  # observed cells; of fewer the number of short levels says little
_WORDS = 5  # of a level on average, from which levels are sentences
_CELLS_OF_SENTENCE = 10  # for each level on average; answers of a form are repeated
_WHOLE = 2.0**51  # measurements in large units are whole in float64 from 2**52 on
_CHANCE = 1e-3  # probability that independent numbers are all different, at most
_DIGITS = 8  # of long numbers that name rows, at least
_ALIKE = 0.8  # of them have the same number of digits, at least
_FEWEST_NAMES = 50  # levels, beyond which they may name groups of rows
_ROWS_OF_NAME = 10  # on average, at most
_MOST_OF_NAME = 5  # times the average; cities and diagnoses have frequent levels


class Counted(NamedTuple):
    """A column, and how many cells have its levels, if it is nominal."""

    column: Column
    cells_of: Collection[int] = ()


def count_levels(cells: Cells) -> Counter:
    """Count the cells of each level of a column."""
    return Counter(item(value) for value in cells.values if not is_missing(value))


def is_identifier(column: Column, cells_of: Collection[int]) -> bool:
    """Return whether the levels of a nominal column are identifiers or free text.

    Names have fewer than `LEAST_CELLS` cells for each level on average, as whole
    numbers that are no levels.  Most missing cells then have a level that no row has,
    and nothing can be learned from a level that occurs once.  If most levels occur
    twice, they are subjects with two rows, some of which have lost their name.

    `cells_of`: numbers of observed cells of its levels.
    """
    if column.kind != "nominal":
        return False
    n_levels, n_observed = len(column.levels), sum(cells_of)
    n_pairs = sum(n_cells == 2 for n_cells in cells_of)
    are_rare = n_levels * LEAST_CELLS > n_observed
    if n_observed < FEWEST:
        return are_rare and _are_sentences(column.levels)
    if are_rare and n_pairs * 2 <= n_levels:
        return True
    return n_levels * _CELLS_OF_SENTENCE > n_observed and _are_sentences(column.levels)


def are_numbers_of_rows(observed: np.ndarray) -> bool:
    """Return whether numbers seem to name rows.

    They are whole and all different.  n independent draws of any distribution of r
    numbers are so with a probability of at most prod_i (1 - i / r) < exp(-n (n - 1) /
    2 r), which the uniform distribution has.  Longer numbers name rows if most of them
    have the same number of digits, as those of telephones have.

    `observed` (n_observed,).
    """
    if len(observed) < FEWEST or (observed != np.round(observed)).any():
        return False
    if abs(observed).max() > _WHOLE or len(np.unique(observed)) < len(observed):
        return False
    n, r = len(observed), observed.max() - observed.min() + 1
    if n * (n - 1) / (2 * r) > -np.log(_CHANCE):
        return True
    if observed.min() < 1:
        return False
    digits = np.floor(np.log10(observed)).astype(int) + 1
    counts = np.bincount(digits)
    return bool(counts.argmax() >= _DIGITS and counts.max() >= _ALIKE * len(observed))


def are_names_of_groups(column: Column, cells_of: np.ndarray, n_observed: int) -> bool:
    """Return whether the levels of a nominal column seem to name groups of rows.

    They are many, each has few cells, and none has many more than the others.

    `cells_of` int (n_levels,): numbers of observed cells of its levels, perhaps in a
    sample of rows; `n_observed`: number of its observed cells in all rows.
    """
    if column.kind != "nominal" or not len(cells_of):
        return False
    n_levels = len(column.levels)
    if n_levels <= _FEWEST_NAMES or n_levels * _ROWS_OF_NAME <= n_observed:
        return False
    return cells_of.max() <= _MOST_OF_NAME * max(cells_of.sum() / n_levels, 1.0)


def _are_sentences(levels: Collection) -> bool:
    return np.mean([len(str(level).split()) for level in levels]) >= _WORDS


def passed_through(counted: Sequence[Counted], asked: Collection[int]) -> list[Column]:
    """Replace identifiers and free text by columns that are passed through.

    `asked`: columns that the user has named: they are what the user says.
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
    X: ArrayLike, categorical_features: object = FROM_DTYPE, groups: object = None
) -> list[Column] | None:
    """Determine the columns of a table in memory, and which are passed through.

    Parameters, returns and errors are those of `read_columns`.
    """
    columns = read_columns(X, categorical_features, groups)
    if not any(column.kind == "nominal" for column in columns or ()):
        return columns
    cells = cells_of_columns(X)
    counted = [
        Counted(column, count_levels(one).values())
        if column.kind == "nominal"
        else Counted(column)
        for one, column in zip(cells, columns, strict=True)
    ]
    return passed_through(counted, asked_kinds(X, len(cells), categorical_features))


def codes_of_passed(X: ArrayLike, columns: Sequence[Column]) -> dict[int, np.ndarray]:
    """Determine the codes of the levels of columns that are passed through.

    Dates and free text are left out: they are no names.

    `X` (n_samples, n_features). Returns arrays (n_samples,) by column; NaN marks
    missing cells.
    """
    found, kinds = {}, ("level", "number", "integer")
    are_passed = [one.kind == PASSED and one.dtype in kinds for one in columns]
    cells = cells_of_columns(X) if any(are_passed) else []
    for place in np.flatnonzero(are_passed):
        if not cells[place].are_levels():  # such as dicts
            continue
        levels = in_order(cells[place].levels())
        if levels and not _are_sentences(levels):
            found[int(place)] = cells[place].codes(levels)
    return found
