"""What in a table is probably not as it seems; `fit` warns of most of it.

Each check is a function of a `Table` that returns sentences, which name columns, rows
or levels, and what to do.  Columns of text that no model can use, identifiers and free
text, are passed through: left out of the model, and returned as they were.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtrc, gammaln
from scipy.stats import mode, rankdata

from skvnce._core.numbers import LEAST_CELLS, MOST_CODES
from skvnce._core.warnings import warn_user
from skvnce._tables.cells import Cells, cells_of_columns, is_missing, item
from skvnce._tables.schema import (
    FROM_DTYPE,
    PASSED,
    Column,
    Schema,
    Table,
    asked_kinds,
    if_any,
    in_order,
    listed,
    read_columns,
)
from skvnce._tables.values import observed_cells
from skvnce.exceptions import TableWarning

# ----------------------------------------
# Numbers that are text: "12", and "1,5" with a decimal comma.

_FORM = r"\s*[-+]?(\d+[.,]?\d*|[.,]\d+)(e[-+]?\d+)?\s*"


def number_in(text: str) -> float | None:
    """Return the number that a text is, or None."""
    if re.fullmatch(_FORM, text, re.IGNORECASE | re.ASCII):
        return float(text.replace(",", "."))
    return None


def is_measurement(text: str) -> bool:
    """Return whether a text is a number, and no code, which begins with zeros."""
    return number_in(text) is not None and not re.match(r"\s*0\d", text)


def numbers_as_text(table: Table) -> list[str]:
    """Find nominal columns whose levels are numbers as text."""
    places = [place for place, column in enumerate(table.columns) if _is_text(column)]
    return if_any(
        [f"{table.names[k]} ({table.columns[k].levels[0]!r}, ...)" for k in places],
        "Numbers that are text: {}. Each is a level of a nominal column, and the "
        "model knows nothing of their order. Make them numbers before fit, by "
        "pandas.to_numeric(df[column]), or, if they have a decimal comma, by "
        'pandas.read_csv(..., decimal=","). If they are codes, begin them with '
        "letters.",
    )


def _is_text(column: Column) -> bool:
    """Return whether all levels are numbers as text, and are no codes or classes.

    Of few whole numbers, users have often made text because they are classes, and
    codes such as those of areas begin with zeros.
    """
    levels = column.levels or ()
    if column.kind != "nominal" or not all(isinstance(level, str) for level in levels):
        return False
    if any(re.match(r"\s*0\d", level) for level in levels):
        return False
    numbers = [number_in(level) for level in levels]
    if None in numbers or len(numbers) < 2:
        return False
    return len(numbers) > MOST_CODES or any(level % 1 for level in numbers)


# ----------------------------------------
# Cells that probably mark missing values: "?" in text, -999 in numbers.

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
_NEGATIVE = -7.0  # largest code that is one among numbers of at least zero


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
    use = "The model takes them as values. " if modelled else ""
    return if_any(
        modelled + passed,
        f"Levels that usually mark missing values: {{}}. {use}"
        "Make such cells missing before fit, by "
        'df.replace("?", np.nan) with the mark, or, in a column of numbers, by '
        'pandas.to_numeric(df[column], errors="coerce"). If it is no mark, rename it.',
    )


def marks_among(levels: tuple) -> list[str]:
    """List the levels that mark missing values."""
    texts = [level for level in levels if isinstance(level, str)]
    others = [text for text in texts if not _is_mark(text)]
    marks = [text for text in texts if _is_mark(text)]
    if "+" in others:  # "-" means negative
        marks = [mark for mark in marks if mark != "-"]
    are_codes = all(re.fullmatch("[A-Z]{2}", text) for text in others)
    if len(others) > 1 and are_codes:  # one of which "NA" may be, such as Namibia
        marks = [mark for mark in marks if mark != "NA"]
    no_numbers = [text for text in others if number_in(text) is None]
    if len(no_numbers) == 1 and len(others) > MOST_CODES:
        # "136A" names a part of 136, as in numbers of houses and of families
        marks += [text for text in no_numbers if not re.fullmatch(r"\d+[a-zA-Z]", text)]
    return marks


def _is_mark(text: str) -> bool:
    return text.strip() in _EXACT_MARKS or text.strip().lower() in _MARKS


def _count(table: Table, place: int, level: object) -> int:
    return int((table.cells[:, place] == table.columns[place].code(level)).sum())


def codes_of_missing(table: Table) -> list[str]:
    """Find numbers that mark missing values, such as -999, far from all others."""
    lines = [
        f"{table.names[place]} has {', '.join(f'{code:g}' for code in codes)} in "
        f"{number} cells, the others are {low:g} to {high:g}"
        for place, column in enumerate(table.columns)
        if column.kind != PASSED
        for codes, number, low, high in _codes_among(_numbers(table, place))
    ]
    return if_any(
        lines,
        "Numbers that usually mark missing values: {}. The model takes them as values. "
        "Make such cells missing before fit, by "
        "df.replace({column: {number: np.nan}}).",
    )


def _numbers(table: Table, place: int) -> np.ndarray:
    """Return the observed numbers of a column (n,), none if its ends are no codes."""
    levels = _levels(table.columns[place])
    ends = levels or table.ends[:, place]
    if not table.n_observed[place] or not len(ends):
        return np.zeros(0)
    if not _are_codes(np.array([np.nanmin(ends), np.nanmax(ends)], dtype=float)).any():
        return np.zeros(0)
    observed = table.observed(place).astype(float)
    if not levels:
        return observed
    numbers = np.array(levels, float)[observed.astype(int)]
    return numbers[~np.isnan(numbers)]


def _levels(column: Column) -> Sequence[float] | None:
    """Return levels as numbers, NaN for marks; None without levels, [] of answers."""
    if column.is_number or column.levels is None:
        return column.levels
    texts = [level for level in column.levels if isinstance(level, str)]
    numbers = [number_in(level) for level in texts if not _is_mark(level)]
    if len(texts) < len(column.levels) or None in numbers:
        return []
    return [np.nan if _is_mark(level) else number_in(level) for level in texts]


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
    runs, in_runs = [], set()
    places = np.flatnonzero(_are_codes(values))
    # the largest first, so that 99 takes 98 and 97 with it
    for place in places[np.argsort(-np.abs(values[places]), kind="stable")].tolist():
        if place not in in_runs:
            run = _run_to(values, place)
            # most of the cells are no marks
            is_rare = 2 * counts[run].sum() <= counts.sum()
            runs.append(run if is_rare and in_runs.isdisjoint(run) else [place])
            in_runs.update(runs[-1])
    return sorted(runs)


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

    Names have fewer than `LEAST_CELLS` cells for each level on average. Most
    missing cells then have a level that no row has, and nothing can be learned from
    a level that occurs once. If most levels occur twice, they are subjects with two
    rows, some of which have lost their name. `cells_of`: observed cells of each
    level.
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
    `cells_of` int (n_levels,): perhaps in a sample of rows; `n_observed`: of all
    rows.
    """
    if column.kind != "nominal" or not len(cells_of):
        return False
    n_levels = len(column.levels)
    if n_levels <= _FEWEST_NAMES or n_levels * _ROWS_OF_NAME <= n_observed:
        return False
    return cells_of.max() <= _MOST_OF_NAME * max(cells_of.sum() / n_levels, 1.0)


def _are_sentences(levels: Collection) -> bool:
    return np.mean([len(str(level).split()) for level in levels]) >= _WORDS


def passed_through(counted: Sequence[Counted], named: Collection[int]) -> list[Column]:
    """Pass through identifiers and free text that the user has not named."""
    return [
        _passed(counts.column)
        if place not in named and is_identifier(*counts)
        else counts.column
        for place, counts in enumerate(counted)
    ]


def _passed(column: Column) -> Column:
    passed, marks = Column(PASSED, dtype=column.dtype), marks_among(column.levels)
    return passed._replace(n_levels=len(column.levels), marks=tuple(marks))


def modelled_columns(
    X: ArrayLike, categorical_features: object = FROM_DTYPE, groups: object = None
) -> list[Column] | None:
    """Determine columns as `read_columns` does, and which are passed through."""
    columns = read_columns(X, categorical_features, groups)
    if not any(column.kind == "nominal" for column in columns or ()):
        return columns
    cells = cells_of_columns(X)
    counted = [
        Counted(column, count_levels(source).values())
        if column.kind == "nominal"
        else Counted(column)
        for source, column in zip(cells, columns, strict=True)
    ]
    return passed_through(counted, asked_kinds(X, len(cells), categorical_features))


def codes_of_passed(X: ArrayLike, columns: Sequence[Column]) -> dict[int, np.ndarray]:
    """Determine codes (n_samples,) of the names in columns that are passed through."""
    codes, kinds = {}, ("level", "number", "integer")
    are_passed = [column.kind == PASSED and column.dtype in kinds for column in columns]
    cells = cells_of_columns(X) if any(are_passed) else []
    for place in np.flatnonzero(are_passed):
        if not cells[place].are_levels():  # such as dicts
            continue
        levels = in_order(cells[place].levels())
        if levels and not _are_sentences(levels):
            codes[int(place)] = cells[place].codes(levels)
    return codes


# ----------------------------------------
# Detection of columns whose squared errors are dominated by a few cells.

_CELLS, _SHARE = 10, 0.02  # limits of the effective number of cells, and of its share
_LARGE = 10.0  # limit of the root mean square of the distances over their median
_FAR = 100.0  # the same limit, with weights proportional to the squares
_FEWEST = 3  # minimum number of cells that differ from the median


def heavy_tailed(X: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Find columns whose squared errors are dominated by a few cells.

    Let d be the distances of the observed cells from their median, without zeros.
    Then ``(sum d^2)^2 / sum d^4`` is the effective number of cells that contribute
    to ``sum d^2``, and the relative standard error of a variance is one over its
    root. A column is heavy-tailed if this number is below 10 or below 2 % of the
    observed cells, ``mean d^2`` exceeds the square of 10 medians of d, and the mean
    of d^2 with weights d^2, ``sum d^4 / sum d^2``, the square of 100 medians.

    In simulations with 20 to 10,000 cells the function finds less than 1 % of
    columns that are normal, exponential, of Student's t with 3 degrees of freedom
    or lognormal (standard deviation of the logarithm 1), and 98 % of lognormal
    columns with standard deviation 2 and 1000 cells. It does not find indicators
    and counts of rare events, as their nonzero cells are equally far from 0. The
    result depends neither on the units nor on the sign of a column.
    """
    places = [j for j in columns if _is_heavy_tailed(observed_cells(X[:, j]))]
    return np.array(places, dtype=int)


def _is_heavy_tailed(values: np.ndarray) -> bool:
    values = values.astype(np.float64)
    largest = abs(values).max(initial=0.0)
    if not largest:
        return False
    values = values / largest  # avoids overflow of squares
    distance = abs(values - np.median(values))
    distance = distance[distance > 0]
    if len(distance) < _FEWEST:
        return False
    # so that fourth powers neither overflow nor vanish
    distance = distance / distance.max()
    typical, square = np.median(distance), np.square(distance)
    total, fourth = square.sum(), np.square(square).sum()
    few = total**2 < fourth * max(_CELLS, _SHARE * len(values))
    large = total > len(square) * (_LARGE * typical) ** 2
    return bool(few and large and fourth > total * (_FAR * typical) ** 2)


# ----------------------------------------
# Rows that belong together, and columns that are empty in the rows of a level.

NEVER_OBSERVED = "Never observed at a level of another column"  # begins the warning
_LEVEL = 1e-3  # probability of a false report in a table, at most
_ROWS = 1000, 20_000  # least and most rows that are used, if there are more
_WORK = 5e8  # cells times levels that are counted: about a second
_GROUPS = 20  # levels of a column whose rows may belong together, at least
_LEAST_ROWS = 1.5  # of a group on average: pairs of rows, some of which lack the name
_ROWS_OF_GROUP = 30  # on average, at most: more estimate the mean of their level
_UNEQUAL = 3.0  # most rows of a numbered subject, in averages
_MOST_GROUPS = 5  # columns of groups; of more, most are something else
_JUMPS = 0.4  # variance of neighbours' differences, over that of independent means
_OF_DIFFERENCES = 2 / 3  # degrees of freedom of a squared difference of neighbours
# of fewer, most ranks are tied, and the ratio of variances has no F distribution
_OTHERS = 0.5  # cells apart from the most frequent value, for each group, at least
_EXPLAINED = 0.2  # intra-class correlation from which draws without it mislead


def never_observed(table: Table) -> list[str]:
    """Find columns that are never observed at a level, by chance at most `_LEVEL`."""
    lines = []
    for skip in skips(table):
        names = listed([table.names[place] for place in skip.places])
        gate = table.names[skip.gate]
        lines.append(f"{names} where {gate} is {skip.level!r} ({skip.n_rows} rows)")
    return if_any(
        lines,
        f"{NEVER_OBSERVED}: {{}}. If there is no value, as of a question that was "
        "skipped, say so by where= of transform and sample (user guide, "
        '"What is known of a cell"); otherwise such cells are filled.',
        "; ",
    )


class Skip(NamedTuple):
    """Columns (n,) that are never observed in the rows of a level."""

    gate: int
    level: object
    n_rows: int
    places: np.ndarray


def skips(table: Table) -> list[Skip]:
    """List the levels at which columns are never observed, as `never_observed`."""
    n = len(table.cells)
    partly = np.flatnonzero((table.n_observed > 0) & (table.n_observed < n))
    gates = [(place, len(levels)) for place, levels in table.with_levels()]
    n_tests = len(partly) * sum(n_levels for _, n_levels in gates)
    # a systematic sample of rows, so that many tests do not take long
    step = -(-n // int(np.clip(_WORK / max(n_tests, 1), *_ROWS)))
    observed, skips = ~np.isnan(table.cells[::step][:, partly]), []
    for gate, n_levels in gates if n_tests else ():
        codes = table.cells[::step, gate]
        for code, never in _never_observed(codes, n_levels, observed, n_tests):
            # a row outside of the sample may have an observed cell
            skip = _in_all_rows(table, gate, code, partly[never])
            if skip.places.size:
                skips.append(skip)
    return skips


def _in_all_rows(table: Table, gate: int, code: int, places: np.ndarray) -> Skip:
    """Describe the columns (n,) that are never observed at a level in any row."""
    rows = np.flatnonzero(table.cells[:, gate] == code)
    never = np.isnan(table.cells[np.ix_(rows, places)]).all(0)
    level = table.columns[gate].levels[code]
    return Skip(gate, level, len(rows), places[never])


def _never_observed(
    codes: np.ndarray, n_levels: int, observed: np.ndarray, n_tests: int
) -> Iterator[tuple]:
    """Yield the levels where columns are never observed, and which columns, bool."""
    is_observed = ~np.isnan(codes)
    codes, observed = codes[is_observed].astype(int), observed[is_observed]
    n_rows = np.bincount(codes, minlength=n_levels)
    frequent = np.flatnonzero((n_rows >= FEWEST) & (n_rows < len(codes)))
    # products of integers do not use BLAS; float32 counts up to 2**24 exactly
    counts = (codes == frequent[:, None]).astype(np.float32) @ observed.astype(
        np.float32
    )
    chance = _chance_of_none(len(codes), observed.sum(0), n_rows[frequent, None])
    never = (counts == 0) & (observed.sum(0) > 0) & (chance * n_tests <= _LEVEL)
    for place in np.flatnonzero(never.any(1)):
        yield int(frequent[place]), never[place]


def _chance_of_none(n: int, n_seen: np.ndarray, n_level: np.ndarray) -> np.ndarray:
    """Compute the hypergeometric probability of no observed cell in n_level rows."""
    free = n - n_level
    with np.errstate(invalid="ignore"):
        # negative numbers have no factorial; below, their probability is 0
        log = gammaln(free + 1) - gammaln(np.maximum(free - n_seen, 0) + 1)
        log -= gammaln(n + 1) - gammaln(n - n_seen + 1)
    return np.where(free >= n_seen, np.exp(log), 0.0)


def repeated_rows(table: Table) -> list[str]:
    """Find columns whose levels have few rows each, which are alike in other columns.

    The intra-class correlation of the ranks of a column with missing cells is at least
    `_EXPLAINED`, and an F test rejects at `_LEVEL`, divided by the number of tests.
    """
    lines = [
        f"{table.names[a.place]} by {table.names[a.group]} ({a.correlation:.2f})"
        for a in repeated(table)
    ]
    return if_any(
        lines,
        "Rows of the same level are alike, as repeated measurements of a subject are "
        "(intra-class correlation): {}. This model has no random effects of them: "
        "imputed values are less alike than observed ones, and analyses that compare "
        "levels are biased. GaussianImputer(groups=column) has such effects; or "
        "impute a table with one row for each level (wide format).",
    )


class Repeated(NamedTuple):
    """A column (place) whose rows are alike within the levels of another (group)."""

    place: int
    group: int
    correlation: float


def repeated(table: Table) -> list[Repeated]:
    """List the columns whose cells are correlated within groups of rows."""
    explained = _incomplete(table)
    groups = _groups(table) if explained else []
    groups = [group for group in groups if not table.columns[group.place].is_group]
    tests = [(group, j) for group in groups for j in explained if j != group.place]
    named = {group.place for group in groups}
    return [
        Repeated(place, group.place, alike.correlation)
        for group, place in tests
        for alike in [group.alike(table.cells[:, place])]
        if alike.correlation >= _EXPLAINED and alike.p * len(tests) <= _LEVEL
        if place not in named or alike.correlation < 1  # else a second name
    ]


class Alike(NamedTuple):
    """How alike the rows of a group are, and the p-value of the F test."""

    correlation: float
    p: float


class Groups(NamedTuple):
    """Groups of rows."""

    place: int  # the column of the groups
    # (n_samples,), the group of each row, from 0; NaN where it is missing
    codes: np.ndarray
    # whether the groups are numbers. Then only differences between neighbours count,
    # and only if they are nearly those of independent subjects: a column that changes
    # slowly with a number, as with an hour or an age, is no sign of a group, nor is a
    # function of the number, as the decade is of the year
    is_number: bool

    def alike(self, cells: np.ndarray) -> Alike:
        """Compare the variances between and within groups of a column (n_samples,)."""
        both = ~np.isnan(self.codes) & ~np.isnan(cells)
        _, codes = np.unique(self.codes[both], return_inverse=True)
        ranks, sizes = rankdata(cells[both]), np.bincount(codes)
        n, n_groups = len(ranks), len(sizes)
        if n_groups < _GROUPS or n - n_groups < n_groups // 4:
            return Alike(0.0, 1.0)
        if n - mode(ranks).count < _OTHERS * n_groups:
            return Alike(0.0, 1.0)
        means = np.bincount(codes, ranks) / sizes
        within = ((ranks - means[codes]) ** 2).sum() / (n - n_groups)
        # what stands for the group size in the analysis of variance of unequal groups
        size = (n - (sizes**2).sum() / n) / (n_groups - 1)
        if self.is_number:
            # the harmonic mean, because the variance of a mean is inverse to its size
            free, size = (n_groups - 1) * _OF_DIFFERENCES, 1 / (1 / sizes).mean()
            between = size * (np.diff(means) ** 2).mean() / 2
        else:
            free = n_groups - 1
            between = (sizes * (means - ranks.mean()) ** 2).sum() / free
        # means differ about as much between neighbours
        jump = (np.diff(means) ** 2).mean() / 2 >= _JUMPS * means.var(ddof=1)
        if not between or (self.is_number and not (within and jump)):
            return Alike(0.0, 1.0)
        correlation = (between - within) / (between + (size - 1) * within)
        ratio = between / within if within else np.inf
        return Alike(correlation, float(fdtrc(free, n - n_groups, ratio)))


def _groups(table: Table) -> list[Groups]:
    """List the columns whose levels have few rows each."""
    groups = []
    for place, column in enumerate(table.columns):
        if place in table.passed:
            cells, is_number = table.passed[place], column.is_number
            ends = np.nanmin(cells), np.nanmax(cells)
        elif column.kind == "nominal" or column.is_plain:
            cells, is_number = table.cells[:, place], column.is_plain
            ends = table.ends[:, place]
        else:
            continue
        n_groups, n = np.ptp(ends) + 1, table.n_observed[place]
        if n_groups < _GROUPS or not _LEAST_ROWS <= n / n_groups <= _ROWS_OF_GROUP:
            continue
        observed = cells[~np.isnan(cells)]
        if not is_number or _are_running(observed):
            groups.append(Groups(place, _first_groups(cells, observed), is_number))
    return groups[:_MOST_GROUPS]


def _are_running(numbers: np.ndarray) -> bool:
    """Return whether numbers count subjects: whole, none left out, none frequent."""
    if not (numbers == np.round(numbers)).all():
        return False
    counts = np.bincount((numbers - numbers.min()).astype(int))
    return bool(counts.min() > 0 and counts.max() <= _UNEQUAL * counts.mean())


def _first_groups(codes: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Replace the codes of all but the first `_ROWS` rows, ordered by code, by NaN."""
    if len(observed) <= _ROWS[1]:
        return codes
    last = np.partition(observed, _ROWS[1])[_ROWS[1]]
    return np.where(codes < last, codes, np.nan)


def _incomplete(table: Table) -> list[int]:
    """List the columns of ordered values that have missing cells."""
    return [
        place
        for place, column in enumerate(table.columns)
        if (column.kind in ("numeric", "ordinal") or len(column.levels or ()) == 2)
        and 0 < table.n_observed[place] < len(table.cells)
    ]


def findings(table: Table) -> list[str]:
    """List what is probably not as it seems in the cells of a table."""
    checks = (
        marks_of_missing,
        codes_of_missing,
        numbers_as_text,
        numbers_of_rows,
        never_observed,
    )
    with np.errstate(over="ignore"):  # an infinite range is far from all rules
        return [message for check in checks for message in check(table)]


def warn_of_table(table: Table, n_observed: ArrayLike | None = None) -> None:
    """Warn of what is probably not as it seems in a table, or in a sample of it."""
    counts = table.n_observed if n_observed is None else n_observed
    messages = many_levels(table, counts) + names_of_groups(table, counts)
    for message in messages + findings(table):
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
    return if_any(
        [table.names[place] for place in places_of_numbers(table)],
        "Whole numbers that are all different: {}. If they name or number rows, "
        "imputed values are made up: leave the columns out by "
        'categorical_features={column: "passthrough"}, or drop them.',
    )


def places_of_names(table: Table, n_observed: np.ndarray) -> list[int]:
    """Find columns with missing cells whose levels seem to name groups of rows."""
    places = []
    for place in _partly_missing(table):
        column, n = table.columns[place], n_observed[place]
        if column.kind != "nominal":
            continue
        is_passed = is_identifier(column, _cells_of_levels(table, place, n))
        cells_of = np.bincount(table.observed(place).astype(int))
        if not is_passed and are_names_of_groups(column, cells_of, n):
            places.append(place)
    return places


def many_levels(table: Table, n_observed: np.ndarray) -> list[str]:
    """Find columns of names or free text: passed through, or modelled as asked for."""
    triples = list(zip(table.names, table.columns, n_observed, strict=True))
    passed = [f"{a} ({b.n_levels} in {n} cells)" for a, b, n in triples if b.n_levels]
    modelled = [
        f"{name} ({len(column.levels)} in {n} cells)"
        for place, (name, column, n) in enumerate(triples)
        if is_identifier(column, _cells_of_levels(table, place, n))
    ]
    return if_any(
        passed,
        "Identifiers or free text, which have too many levels to learn from: {}. They "
        "are not in the model, and their missing cells stay missing. If they are "
        "numbers or dates, convert them by pandas.to_numeric or pandas.to_datetime. "
        'categorical_features={column: "nominal"} of the imputer, or of its '
        "model=GaussianImputer(...), models them, and "
        '{column: "passthrough"} leaves them out without this warning.',
    ) + if_any(
        modelled,
        "Nominal columns with more levels than half of their observed cells: {}. "
        "Nothing can be learned from levels that occur once, and they take time. Drop "
        "the columns if they are identifiers; convert them if they are numbers or "
        "dates.",
    )


def names_of_groups(table: Table, n_observed: np.ndarray) -> list[str]:
    """Find levels that name groups of rows, some of which would be imputed."""
    lines = [
        f"{table.names[j]} ({len(table.columns[j].levels)} in {n_observed[j]} cells)"
        for j in places_of_names(table, n_observed)
    ]
    return if_any(
        lines,
        "Nominal columns of many levels, each in few cells: {}. If they name groups "
        "of rows, such as patients, imputed names are made up: leave the columns out "
        'by categorical_features={column: "passthrough"}, or drop the rows without a '
        "name and use groups=column of GaussianImputer.",
    )


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
