"""What a table in parts is like: sums over its rows, and a sample of them.

A table of up to `rows_in_memory` rows is gathered, and a larger one is sampled: the row
i is chosen if a hash of i is below a limit.  So the sample depends on the order of the
rows, and not on their division into parts.
"""

from typing import NamedTuple

import numpy as np
import torch

from skvnce._keyed import numbered

MOST_ROWS = 100_000  # rows from which shrinkage, marginals and calibration are chosen
MOST_CELLS = 2**25  # cells of these rows: 256 MiB
_ROUNDING = 1e-9  # relative difference of sums of the same cells


def rows_in_memory(n_features):
    """Return the number of rows up to which a table in parts is gathered."""
    return min(MOST_ROWS, max(1, MOST_CELLS // n_features))


class Count(NamedTuple):
    """What a part must have each time that it is read."""

    n_rows: int  # rows, and observed cells
    n_observed: int
    # (n_features,), sums of the observed cells and of their absolute values
    total: np.ndarray
    size: np.ndarray  # (n_features,)

    @classmethod
    def of(cls, X):
        """Count the rows and cells of a part (n, n_features); NaN where missing."""
        cells = _tensor(X)
        size = cells.abs().nansum(0, dtype=torch.float64)
        return cls(len(X), *_counted(cells), size.numpy())


def _tensor(X):
    """Share the memory of an array with torch, if torch can read it."""
    # torch warns of read-only arrays and raises an error for negative strides
    shared = X.flags.writeable and min(X.strides) >= 0
    return torch.from_numpy(X if shared else X.copy())


def _counted(cells):
    n_missing = int(cells.isnan().sum())
    return cells.numel() - n_missing, cells.nansum(0, dtype=torch.float64).numpy()


class FirstReading(NamedTuple):
    """What the parts of a table were when they were first read."""

    counts: tuple  # tuple of Count: one for each part
    # int (n_parts + 1,), the numbers of the first rows of the parts in the table, and
    # of all rows
    firsts: np.ndarray
    names: np.ndarray  # (n_features,)

    @classmethod
    def of(cls, summary, names):
        """Keep what later readings are compared with."""
        firsts = np.cumsum([0, *(count.n_rows for count in summary.parts)])
        return cls(summary.parts, firsts, names)

    def check(self, number, X):
        """Raise an error if a part (n, n_features) differs from what was first read.

        Sums may differ by rounding: a cluster may compute a part on another machine.
        """
        before = self.counts[number]
        if len(X) != before.n_rows:
            _reject_change(number, f"{before.n_rows} rows", len(X))
        n_observed, total = _counted(_tensor(X))
        if n_observed != before.n_observed:
            _reject_change(number, f"{before.n_observed} observed cells", n_observed)
        # infinite sums, whose difference is NaN
        with np.errstate(invalid="ignore"):
            changed = abs(total - before.total) > _ROUNDING * before.size
        if changed.any():
            place = np.flatnonzero(changed)[0]
            had = f"sum {before.total[place]:.9g} in column {self.names[place]!r}"
            _reject_change(number, had, f"{total[place]:.9g}")


def _reject_change(number, had, has):
    raise ValueError(
        f"Part {number} of X had {had} when it was first read, and now {has}. Parts "
        "must be the same each time; a function that draws random numbers needs a "
        "fixed seed."
    )


class Summary(NamedTuple):
    """Sums over rows, or over those of some parts."""

    # tuple of Count: one for each part; none for slices of a part, which are counted as
    # a whole
    parts: tuple
    # (n_features,), sum of the weights of the observed cells of each column
    weight: np.ndarray
    # int (n_features,), in rows of positive weight, as in what follows
    n_observed: np.ndarray
    # (n_features,), weighted means of observed cells, and sums of squared deviations
    # from them
    mean: np.ndarray
    square: np.ndarray  # (n_features,)
    # (n_features,), smallest and largest observed cells; NaN without one
    low: np.ndarray
    high: np.ndarray  # (n_features,)
    # bool (n_features,), whether all observed cells are integers, and whether a cell is
    # missing
    integers: np.ndarray
    missing: np.ndarray  # bool (n_features,)
    is_single: bool  # whether the table is of single precision

    @property
    def n_rows(self):
        """Number of rows of all parts."""
        return sum(part.n_rows for part in self.parts)

    @property
    def ends(self):
        """Smallest and largest observed cells; (2, n_features)."""
        return np.stack([self.low, self.high]).astype(np.float64)

    def merged(self, other):
        """Merge with the summary of the next parts (Chan, Golub and LeVeque 1983)."""
        weight = self.weight + other.weight
        # columns without an observed cell so far have weight 0
        safe = np.where(weight > 0, weight, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = other.mean - self.mean
            mean = self.mean + gap * other.weight / safe
            # exactly, so that a column that begins with empty parts is not rounded
            mean = np.where(self.weight > 0, mean, other.mean)
            between = gap**2 * self.weight * other.weight / safe
        return Summary(
            self.parts + other.parts,
            weight,
            self.n_observed + other.n_observed,
            mean,
            self.square + other.square + between,
            np.fmin(self.low, other.low),
            np.fmax(self.high, other.high),
            self.integers & other.integers,
            self.missing | other.missing,
            self.is_single and other.is_single,
        )


def summarised(X, weights):
    """Summarise the rows of a part.

    `X` (n, n_features); `weights` (n,).
    """
    counted = X[weights > 0]
    weights = weights[weights > 0]
    seen = ~np.isnan(counted)
    weight = weights @ seen
    known = np.where(seen, counted, 0.0).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = weights @ known / np.where(weight > 0, weight, 1.0)
        square = weights @ np.where(seen, known - mean, 0.0) ** 2
    none = np.full((1, X.shape[1]), np.nan)  # for parts without rows
    low, high = (
        ufunc.reduce(np.concatenate([counted, none])) for ufunc in (np.fmin, np.fmax)
    )
    return Summary(
        (),
        weight,
        seen.sum(0),
        mean,
        square,
        low,
        high,
        (known == np.round(known)).all(0),
        (~seen).any(0),
        X.dtype == np.float32,
    )


class Gathered(NamedTuple):
    """Rows in memory, and sums over all rows."""

    X: np.ndarray  # (n, n_features)
    weights: np.ndarray  # (n,)
    total: float  # weight of the rows that have an observed cell of the model
    # (4, n_features), sums of the first to fourth powers of standardised observed cells
    powers: np.ndarray

    def merged(self, other):
        """Merge with what the next parts gave."""
        rows = np.concatenate([self.X, other.X])
        weights = np.concatenate([self.weights, other.weights])
        powers = self.powers + other.powers
        return Gathered(rows, weights, self.total + other.total, powers)


def gathered(X, weights, first, share, columns, location, scale):
    """Choose rows of a part, and compute sums over all of them.

    `X` (n, n_features); `weights` (n,); `first` int: the number of the first of these
    rows in the table; `share` float: share of the rows to choose; 1 chooses all;
    `columns` int (n_nodes,): those of the model; `location`, `scale` (n_nodes,).
    """
    # numbers in the whole table, so that its division into parts does not matter
    numbers = np.arange(first, first + len(X))
    chosen = np.ones(len(X), dtype=bool) if share >= 1 else numbered(numbers) < share
    nodes = X[:, columns]
    counted = weights > 0
    known = counted & ~np.isnan(nodes).all(1) if len(columns) else counted & False
    powers = np.zeros((4, len(columns)))
    if share < 1:
        z = np.nan_to_num((nodes[counted].astype(np.float64) - location) / scale)
        power = z.copy()
        for k in range(4):
            powers[k] = power.sum(0)
            # in place, one power after the other, without further copies
            power *= z
    return Gathered(X[chosen], weights[chosen], weights[known].sum(), powers)
