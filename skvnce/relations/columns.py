"""A table as floats, and what the search computes once of each of its columns."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import check_array

from skvnce._tables.cells import TIMES, Cells, cells_of_columns, is_frame, names_of
from skvnce._tables.findings import are_numbers_of_rows
from skvnce._tables.frames import readable, reject_no_table, reject_parts
from skvnce._tables.schema import in_order

_SAMPLE = 800  # rows by which candidates are chosen
TYPOS = 0.005  # share of the rows that may violate a formula
BEYOND = 0.5  # of the observed range: computed cells farther out are refused
_FEWEST = 20  # cells other than the median, of which others are far
_UNBOUNDED = 0.0, 1.0, 0.0, 1.0, np.nan, np.nan, False, np.nan, np.nan  # see `Bounds`
_DIGITS = 7  # after the decimal point, of which the last stored one is sought


class Bounds(NamedTuple):
    """What cells of the columns of a table may be."""

    unit: np.ndarray  # (p,), of the last stored digit; 0 if there is none
    step: np.ndarray  # (p,), in units: all values are a multiple of it apart
    origin: np.ndarray  # (p,), in units: one of the values
    deviation: np.ndarray  # (p,), the standard deviation without gross cells, or 1
    low: np.ndarray  # (p,), the smallest and the largest value
    high: np.ndarray
    is_pair: np.ndarray  # bool (p,), whether there are no other values
    middle: np.ndarray  # (p,), the median
    reach: np.ndarray  # (p,), the distance from it beyond which cells are gross

    @classmethod
    def none(cls, p: int) -> Self:
        """Allow all numbers in p columns."""
        free = np.full(p, np.inf)
        zeros, ones = np.zeros(p), np.ones(p)
        return cls(
            zeros, ones, zeros, ones, -free, free, zeros.astype(bool), zeros, free
        )

    def of(self, places: list[int]) -> Self:
        """Select columns."""
        return Bounds(*(part[places] for part in self))

    @property
    def is_dummy(self) -> np.ndarray:
        """Which columns are of zeros and ones (p,)."""
        return self.is_pair & (self.low == 0) & (self.high == 1)

    def allow(
        self, numbers: np.ndarray, place: int, ranges: float = BEYOND
    ) -> np.ndarray:
        """Return which numbers a column may have, within `ranges` of it (rows,)."""
        low, high = self.low[place], self.high[place]
        if self.is_pair[place]:
            return (numbers == low) | (numbers == high)
        beyond = ranges * (high - low)
        return (numbers >= low - beyond) & (numbers <= high + beyond)

    def snapped(
        self, numbers: np.ndarray, place: int | None = None, *, by_step: bool = False
    ) -> np.ndarray:
        """Round to the last stored digit, and to floats as decimals are read.

        By step: to numbers that are whole steps from the observed ones.
        """
        places = slice(None) if place is None else place
        unit, step, origin = (x[places] for x in (self.unit, self.step, self.origin))
        per_one = np.rint(1 / np.where(unit > 0, unit, 1))
        step, origin = (step, origin) if by_step else (1, 0)
        units = np.rint((numbers * per_one - origin) / step) * step + origin
        return np.where(unit > 0, units / per_one, numbers)

    def gross(self, cells: np.ndarray) -> np.ndarray:
        """Tell which cells are far from all others, perhaps by a typo (rows, p)."""
        return abs(cells - self.middle) > self.reach


class Columns(NamedTuple):
    """The columns of a table; p of them, n rows."""

    names: list[str]
    cells: np.ndarray  # (n, p), codes of levels; NaN where missing
    is_number: np.ndarray  # (p,), whether a column may be in a formula
    names_rows: np.ndarray  # (p,), whether its values are numbers of rows
    codes: np.ndarray  # int (n, p): places among the values, sorted; -1 where missing
    n_values: np.ndarray  # int (p,), numbers of different values
    mode: np.ndarray  # (p,), the most frequent value
    bounds: Bounds
    sample: np.ndarray  # rows by which candidates are chosen
    rng: np.random.Generator  # of samples and shuffles

    @property
    def observed(self) -> np.ndarray:
        """Which cells are observed (n, p)."""
        return self.codes >= 0

    @property
    def numbers(self) -> list[int]:
        """The columns that formulas relate."""
        return np.flatnonzero(self.is_number & (self.n_values >= 2)).tolist()

    @property
    def curved(self) -> list[int]:
        """Those of them of which functions differ from affine maps."""
        return [j for j in self.numbers if self.n_values[j] > 2]

    def sign(self, place: int) -> str:
        """Name the signs of a column: all positive, or 0, or negative, or both."""
        low, high = self.bounds.low[place], self.bounds.high[place]
        return "+" if low > 0 else "0" if low == 0 else "-" if high < 0 else "±"

    def complete(self, places: list[int]) -> np.ndarray:
        """Return the rows that observe all of some columns."""
        return np.flatnonzero((self.codes[:, places] >= 0).all(1))


def read_columns(X: ArrayLike) -> Columns:
    """Read a table; the sample of its rows is the same in each call."""
    reject_no_table(X)
    reject_parts(X, reader="find_relations")
    if issparse(X):
        check_array(X, input_name="X")  # which says so
    X = X if is_frame(X) else readable(X)
    sources = cells_of_columns(X)
    if sources is None:
        raise ValueError(
            "X must be a table of rows and columns. Pass df[[name]] of a data frame, "
            "or X.reshape(-1, 1), for a single column."
        )
    if not sources or not len(sources[0]):
        raise ValueError("X must have at least one row and one column.")
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind and kind in "fiub":
        cells, is_number = np.asarray(X, dtype=float), np.ones(len(sources), bool)
    else:
        read = [_read(source) for source in sources]
        cells = np.stack([column for column, _ in read], 1)
        is_number = np.array([number for _, number in read])
    if np.isinf(cells).any():
        row, place = np.argwhere(np.isinf(cells))[0]
        raise ValueError(
            f"X contains infinity in column {sources[place].label}, row {row}. Replace "
            "it by NaN if it is missing."
        )
    names = names_of(X) or [f"x{j}" for j in range(len(sources))]
    return describe(cells, is_number, [str(name) for name in names])


def describe(cells: np.ndarray, is_number: np.ndarray, names: list[str]) -> Columns:
    """Compute what the search needs to know of columns."""
    n, p = cells.shape
    codes, facts = np.full((n, p), -1, dtype=np.int32), []
    for j in range(p):
        observed = ~np.isnan(cells[:, j])
        codes[observed, j], *others = _facts_of(cells[observed, j], is_number[j])
        facts.append(others)
    n_values, mode, names_rows, *bounds = map(np.array, zip(*facts, strict=True))
    rng = np.random.default_rng(0)
    sample = np.sort(rng.permutation(n)[:_SAMPLE])
    rest = names_rows, codes, n_values, mode, Bounds(*bounds), sample, rng
    return Columns(names, cells, is_number, *rest)


def _facts_of(column: np.ndarray, is_number: bool) -> tuple:
    """Describe observed cells: their codes, and what `describe` takes apart."""
    values, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    if not len(values):
        return codes, 0, np.nan, False, *_UNBOUNDED
    unit, step, origin, middle = 0.0, 1.0, 0.0, _median(np.repeat(values, counts))
    apart = abs(column - middle)
    reach = _reach(apart)
    deviation = column[apart <= reach].std() or 1.0
    if is_number and (unit := _last_digit(values)):
        units = np.rint(values * np.rint(1 / unit))
        step, origin = np.gcd.reduce(np.diff(units).astype(int)) or 1, units[0]
    names_rows = unit >= 1 and are_numbers_of_rows(column)
    bounds = unit, step, origin, deviation, values[0], values[-1], len(values) == 2
    return (
        codes,
        len(values),
        values[counts.argmax()],
        names_rows,
        *bounds,
        middle,
        reach,
    )


def _read(source: Cells) -> tuple[np.ndarray, bool]:
    """Return the cells of a column as floats, and whether they are numbers."""
    if source.dtype == "boolean":
        return source.codes((False, True)), True
    if source.dtype in ("level", "mixed"):
        return source.codes(in_order(source.levels())), False
    # the size of moments since 1970 would hide differences of hours
    is_number = source.dtype not in TIMES
    return source.numbers("number" if is_number else source.dtype), is_number


def blocks(n: int, size: int = 100) -> list[slice]:
    """List all of n rows, and small blocks of them: typos leave some untouched."""
    number = n // size
    return [slice(None), *(slice(k, n, number) for k in range(number) if number > 1)]


def _reach(apart: np.ndarray) -> float:
    """Return the distance from the median beyond which cells are far from all others.

    Distances d (cells,) are gross if arsinh(d / spread), which is like a
    logarithm, is twice that of all others: heavy tails have no such gaps.
    """
    apart = np.sort(apart)
    others = apart[apart > 0]
    if len(others) < _FEWEST:
        return np.inf
    spread = _median(others)
    tail = apart[-1 - max(1, int(TYPOS * len(apart))) :]
    most = 2 * tail * np.sqrt(1 + (tail / spread) ** 2)
    gaps = np.flatnonzero((tail[1:] > most[:-1]) & (tail[:-1] > 0))
    return most[gaps[0] if len(gaps) else -1]


def _median(ordered: np.ndarray) -> float:
    """Return the median of sorted cells."""
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _last_digit(values: np.ndarray) -> float:
    is_single = np.array_equal(values, values.astype(np.float32))
    for digits in range(_DIGITS):
        scaled = values * 10.0**digits
        error = (1e-7 if is_single else 1e-14) * abs(scaled) + 1e-9
        if (error < 0.01).all() and (abs(scaled - np.rint(scaled)) <= error).all():
            return 10.0**-digits
    return 0.0
