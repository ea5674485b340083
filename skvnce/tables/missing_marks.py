"""Cells that probably mark missing values: "?" in text, -999 in numbers."""

import re
from collections.abc import Sequence

import numpy as np

from skvnce._grids import LEAST_CELLS, MOST_CODES
from skvnce.tables.column_kinds import PASSED, Column
from skvnce.tables.table import Table, listed
from skvnce.tables.text_numbers import number_in

_MARKS = {  # of missing values, in lower case; "unknown" and "none" may be answers
    *("", "?", "-", "--", ".", "..", "...", "n/a", "n.a.", "#n/a", "<na>", "#na"),
    *("nan", "-nan", "nat", "null", "(null)", "#null!", "missing", "(missing)"),
    *("#n/a n/a", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
}
_EXACT_MARKS = {"NA", "na", "None"}  # "Na" may be sodium, and "none" an answer
_CODES = np.array(  # of missing values, in numbers
    [-float(digit * k) for digit in "789" for k in (1, 2, 3, 4, 5)]
    # not 7, 8 and 9 alone, which are ordinary numbers
    + [float(digit * k) for digit in "789" for k in (2, 3, 4, 5)]
    + [sign * value for sign in (-1, 1) for value in (1e20, 1e30, 1e31, 1e37, 1e38)]
    + [sign * value for sign in (-1, 1) for value in (99.9, 999.9, 9999.9, 99.99)]
    # netCDF's value of missing floats, and the ends of integers of 16 and 32 bits
    + [-200.0, 9.96921e36, -32768.0, 32767.0, -2147483648.0, 2147483647.0]
)
_REPEATED = 3  # cells with a code, at least
_REACH = 2.0  # ranges of the others by which a code is outside of them
_LONGEST = 5  # run of codes, such as 97, 98 and 99
_NEGATIVE = -77.0  # largest code that is one among numbers of at least zero


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
    no_numbers = [text for text in others if number_in(text) is None]
    if len(no_numbers) == 1 and len(others) > MOST_CODES:
        # "136A" names a part of 136, as in numbers of houses and of families
        marks += [text for text in no_numbers if not re.fullmatch(r"\d+[a-zA-Z]", text)]
    return marks


def _is_mark(text: str) -> bool:
    return text.strip() in _EXACT_MARKS or text.strip().lower() in _MARKS


def _are_signs(texts: list[str]) -> bool:
    """Return whether "-" means negative."""
    return "+" in texts


def _are_codes_of_two_letters(texts: list[str]) -> bool:
    """Return whether "NA" may be one of the codes, such as Namibia."""
    return len(texts) > 1 and all(re.fullmatch("[A-Z]{2}", text) for text in texts)


def _count(table: Table, place: int, level: object) -> int:
    return int((table.cells[:, place] == table.columns[place].code(level)).sum())


def codes_of_missing(table: Table) -> list[str]:
    """Find numbers that mark missing values, such as -999, far from all others."""
    found = [
        f"{table.names[place]} has {_joined(codes)} in {number} cells, the others are "
        f"{low:g} to {high:g}"
        for place, column in enumerate(table.columns)
        if column.kind != PASSED
        for codes, number, low, high in _codes_among(_numbers(table, place))
    ]
    if not found:
        return []
    return [
        f"Numbers that usually mark missing values: {listed(found)}. The model takes "
        "them as values. Make such cells missing before fit, by "
        "df.replace({column: {number: np.nan}})."
    ]


def _joined(codes: np.ndarray) -> str:
    return ", ".join(f"{code:g}" for code in codes)


def _numbers(table: Table, place: int) -> np.ndarray:
    """Return the observed numbers of a column (n,), none if its ends are no codes."""
    levels = _levels(table.columns[place])
    ends = levels or table.ends[:, place]
    if not table.n_observed[place] or not len(ends):
        return np.zeros(0)
    if not _are_codes(np.array([np.nanmin(ends), np.nanmax(ends)], dtype=float)).any():
        return np.zeros(0)
    seen = table.observed(place).astype(float)
    if not levels:
        return seen
    numbers = np.array(levels, float)[seen.astype(int)]
    return numbers[~np.isnan(numbers)]


def _levels(column: Column) -> Sequence[float] | None:
    """Return levels as numbers, NaN for marks; None without levels, [] of answers."""
    if column.is_number or column.levels is None:
        return column.levels
    texts = [one for one in column.levels if isinstance(one, str)]
    numbers = [number_in(one) for one in texts if not _is_mark(one)]
    if len(texts) < len(column.levels) or None in numbers:
        return []
    return [np.nan if _is_mark(one) else number_in(one) for one in texts]


def _are_codes(values: np.ndarray) -> np.ndarray:
    """Return which numbers are codes of missing values, up to single precision."""
    near = np.abs(values[..., None] - _CODES) <= 1e-6 * np.abs(_CODES)
    return near.any(-1)


def _codes_among(numbers: np.ndarray) -> list[tuple]:
    """List repeated codes that are far outside of the range of the other numbers."""
    values, counts = np.unique(numbers, return_counts=True)
    runs = _runs(values, counts)
    is_other = np.ones(len(values), dtype=bool)
    is_other[[place for run in runs for place in run]] = False
    others = values[is_other]
    if len(others) < LEAST_CELLS:
        return []
    return [
        (values[run], number, others[0], others[-1])
        for run in runs
        if (number := int(counts[run].sum())) >= _REPEATED
        and _are_far(values[run], others)
    ]


def _are_far(codes: np.ndarray, others: np.ndarray) -> bool:
    """Return whether codes are far from others, or the only negative numbers."""
    low, high = others[0], others[-1]
    alone = codes[-1] <= _NEGATIVE and low >= 0 and len(others) > MOST_CODES
    return alone or max(low - codes[-1], codes[0] - high) > _REACH * (high - low)


def _runs(values: np.ndarray, counts: np.ndarray) -> list[list[int]]:
    """List the places of codes, with those of a run of numbers that ends at one."""
    found, taken = [], set()
    places = np.flatnonzero(_are_codes(values))
    # the largest first, so that 99 takes 98 and 97 with it
    for place in places[np.argsort(-np.abs(values[places]), kind="stable")].tolist():
        if place not in taken:
            run = _run_to(values, place)
            # most of the cells are no marks
            is_rare = 2 * counts[run].sum() <= counts.sum()
            found.append(run if is_rare and taken.isdisjoint(run) else [place])
            taken.update(found[-1])
    return sorted(found)


def _run_to(values: np.ndarray, code: int) -> list[int]:
    """List the places of the short run of consecutive numbers that ends at a code."""
    step = -1 if values[code] > 0 else 1
    run = [code]
    while 0 <= run[-1] + step < len(values) and len(run) <= _LONGEST:
        if abs(values[run[-1] + step] - values[run[-1]]) != 1:
            return sorted(run)
        run.append(run[-1] + step)
    # a longer run belongs to the values, such as ages up to 99
    return sorted(run) if len(run) <= _LONGEST else [code]
