"""Cells that probably mark missing values: "?" in text, -999 in numbers."""

import re

import numpy as np

from skvnce._columns import LEAST_CELLS, MOST_LEVELS, PASSED
from skvnce._fit_table import Table, listed

_MARKS = {  # of missing values, in lower case; "unknown" and "none" may be answers
    *("", "?", "-", "--", ".", "..", "...", "n/a", "n.a.", "#n/a", "<na>"),
    *("nan", "nat", "null", "#null!"),
}
_EXACT_MARKS = {"NA", "na", "None"}  # "Na" may be sodium, and "none" an answer
_CODES = np.array(  # of missing values, in numbers
    [-float(digit * k) for digit in "789" for k in (1, 2, 3, 4, 5)]
    + [float(digit * k) for digit in "789" for k in (2, 3, 4, 5)]
    + [sign * value for sign in (-1, 1) for value in (1e20, 1e30, 1e31, 1e37, 1e38)]
    + [-32768.0, 32767.0, -2147483648.0, 2147483647.0]
)
_REPEATED = 3  # cells with a code, at least
_REACH = 2.0  # ranges of the others by which a code is outside of them


def marks_of_missing(table: Table) -> list[str]:
    """Find levels that mark missing values, such as "?"."""
    modelled = [
        f"{table.names[place]} has {level!r} in {_count(table, place, level)} cells"
        for place, levels in table.with_levels()
        for level in marks_among(levels)
    ]
    passed = [
        f"{name} has {mark!r}"
        for name, column in zip(table.names, table.columns, strict=True)
        for mark in column.marks
    ]
    if not modelled + passed:
        return []
    use = "The model takes them as values. " if modelled else ""
    return [
        f"Levels that usually mark missing values: {listed(modelled + passed)}. {use}"
        "Make such cells missing before fit, by "
        'df.replace("?", np.nan) with the mark, or, in a column of numbers, by '
        'pandas.to_numeric(df[column], errors="coerce"). If it is no mark, rename it.'
    ]


def marks_among(levels: tuple) -> list[str]:
    """List the levels that mark missing values."""
    texts = [level for level in levels if isinstance(level, str)]
    others = [text for text in texts if not _is_mark(text)]
    marks = [text for text in texts if _is_mark(text)]
    if _are_signs(others):
        marks = [mark for mark in marks if mark != "-"]
    if _are_codes_of_two_letters(others):
        marks = [mark for mark in marks if mark != "NA"]
    no_numbers = [text for text in others if not _is_number(text)]
    if len(no_numbers) == 1 and len(others) > MOST_LEVELS:
        marks += no_numbers
    return marks


def _is_mark(text: str) -> bool:
    return text.strip() in _EXACT_MARKS or text.strip().lower() in _MARKS


def _are_signs(texts: list[str]) -> bool:
    """Return whether "-" means negative."""
    return "+" in texts


def _are_codes_of_two_letters(texts: list[str]) -> bool:
    """Return whether "NA" may be one of the codes, such as Namibia."""
    return len(texts) > 1 and all(re.fullmatch("[A-Z]{2}", text) for text in texts)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _count(table: Table, place: int, level: object) -> int:
    return int((table.cells[:, place] == table.columns[place].code(level)).sum())


def codes_of_missing(table: Table) -> list[str]:
    """Find numbers that mark missing values, such as -999, far from all others."""
    found = [
        f"{table.names[place]} has {value:g} in {number} cells, the others are "
        f"{low:g} to {high:g}"
        for place, column in enumerate(table.columns)
        if column.is_number and column.kind != PASSED
        for value, number, low, high in _codes_among(_numbers(table, place))
    ]
    if not found:
        return []
    return [
        f"Numbers that usually mark missing values: {listed(found)}. The model takes "
        "them as values. Make such cells missing before fit, by "
        "df.replace({column: {number: np.nan}})."
    ]


def _numbers(table: Table, place: int) -> np.ndarray:
    """Return the observed numbers of a column (n,), none if its ends are no codes."""
    if not table.n_observed[place]:
        return np.zeros(0)
    column = table.columns[place]
    ends = column.levels or table.ends[:, place]
    if not _are_codes(np.array([min(ends), max(ends)], dtype=float)).any():
        return np.zeros(0)
    seen = table.observed(place).astype(float)
    levels = column.levels
    return np.array(levels, float)[seen.astype(int)] if levels else seen


def _are_codes(values: np.ndarray) -> np.ndarray:
    """Return which numbers are codes of missing values, up to single precision."""
    near = np.abs(values[..., None] - _CODES) <= 1e-6 * np.abs(_CODES)
    return near.any(-1)


def _codes_among(numbers: np.ndarray) -> list[tuple]:
    """List repeated codes that are far outside of the range of the other numbers."""
    values, counts = np.unique(numbers, return_counts=True)
    coded = _are_codes(values)
    others = values[~coded]
    if len(others) < LEAST_CELLS:
        return []
    low, high = others[0], others[-1]
    reach = _REACH * (high - low)
    return [
        (value, int(number), low, high)
        for value, number in zip(values[coded], counts[coded], strict=True)
        if number >= _REPEATED and max(low - value, value - high) > reach
    ]
