"""Groups of rows, and columns that are constant within them."""

from collections.abc import Hashable, Iterable

import numpy as np

_FEWEST = 3  # groups with two equal cells, from which a column is one of groups


def numbered(keys: Iterable[Hashable]) -> list[int]:
    """Give equal keys a number, in the order in which they appear."""
    found: dict = {}
    return [found.setdefault(key, len(found)) for key in keys]


def by_group(most: np.ufunc, cells: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Reduce the rows of each group; (n_groups, n_columns).

    `most`: `np.fmin` and `np.fmax` return NaN for columns without an observed cell;
    `cells` (n, n_columns); `numbers` (n,): of the groups.
    """
    order = numbers.argsort(kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return most.reduceat(cells[order], starts, axis=0)


def columns_of_groups(cells: np.ndarray, numbers: np.ndarray) -> list[int]:
    """Find columns that are constant within all groups.

    A column is one of groups if three groups or more have two observed cells of it, or
    half of the groups; of others nothing is known.  Parameters are those of `by_group`.
    """
    low, high = (by_group(most, cells, numbers) for most in (np.fmin, np.fmax))
    counts = by_group(np.add, ~np.isnan(cells) * 1, numbers)
    with np.errstate(invalid="ignore"):
        constant = ~(high > low).any(0)
    enough = (counts > 1).sum(0) >= min(_FEWEST, -(-len(counts) // 2))
    return np.flatnonzero(constant & enough).tolist()
