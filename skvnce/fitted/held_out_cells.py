"""Splits of tables: cells that are held out, and folds of rows."""

from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._keyed import mixed, numbered

_FEWEST = 10  # minimum number of observed cells of a column from which to hold out
_ROWS = 5000  # approximate number of rows that suffice to choose a parameter
# rows of weight one a value: a row that is drawn with replacement from others of unique
# values occurs 1.6 times, so that a column with more repeats tells no rows apart
_REPEATS = 3


class Keys(NamedTuple):
    """Random integers of rows and columns, which are functions of what these contain.

    They depend neither on units nor on the order of rows or columns.
    """

    # uint64 (n,), equal rows have different ones, unless a value in them is so rare
    # that they are copies of one row, which must not be on both sides of a split
    rows: np.ndarray
    columns: np.ndarray  # uint64 (n_nodes,), all are different

    @classmethod
    def of(cls, nodes: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """Make the keys of the rows of a table (n, n_nodes), of weight 1 by default."""
        weights = np.ones(len(nodes)) if weights is None else weights
        ranks, columns = _ranks(nodes), np.zeros(nodes.shape[1], np.uint64)
        content = np.zeros(len(nodes), np.uint64)
        for _ in range(2):  # columns of equal counts differ by the rows of their values
            columns = _column_keys(ranks, content, weights)
            content = _row_keys(ranks, columns)
        columns = mixed(columns + _occurrences(columns))
        copies = _occurrences(content, weights)
        copies[_are_unique(nodes, weights)] = 0
        return cls(mixed(_row_keys(ranks, columns) + mixed(copies)), columns)

    def uniform(self, step: int) -> np.ndarray:
        """Make uniform numbers in [0, 1) of rows; (n,)."""
        return numbered(self.rows + _salt(step))

    def uniform_cells(self, step: int) -> np.ndarray:
        """Make uniform numbers in [0, 1) of cells; (n, n_nodes)."""
        return numbered(self.rows[:, None] ^ (self.columns + _salt(step)))


def hold_out(nodes, weights, share):
    """Choose rows, and hold out some of their observed cells.

    The choice is random, and a function of the ranks in each row, see `Keys`.

    `nodes` (n, n_nodes); `weights` (n,); `share`, float: share of the observed cells to
    hold out.  Returns `some`, bool (n,): the chosen rows; `hidden`, bool (n, n_nodes):
    the held-out cells.
    """
    keys, observed = Keys.of(nodes, weights.numpy()), torch.from_numpy(~np.isnan(nodes))
    key = torch.from_numpy(keys.uniform(0))
    some = key <= key.unique()[:_ROWS][-1]
    enough = (weights * some) @ observed.double() >= _FEWEST
    return some, torch.from_numpy(keys.uniform_cells(1) < share) & observed & enough


def spare_limited(hidden, limits):
    """Hold out no cell of columns with limits, whose observed cells are not typical."""
    if limits is not None:
        known = limits.known.any(0)
        hidden[:, : len(known)] &= ~known
    return hidden


def row_folds(nodes, n_folds=5):
    """Split rows into folds by their ranks, as `hold_out` does; (n,)."""
    return torch.from_numpy((Keys.of(nodes).uniform(2) * n_folds).astype(np.int64))


def _salt(step):
    return mixed(np.array([step], np.uint64))


def _ranks(nodes):
    """Mix dense ranks, 0 where cells are missing; (n, n_nodes)."""
    ranks = [np.unique(column, return_inverse=True)[1] for column in nodes.T]
    ranks = np.array(ranks, np.uint64).reshape(nodes.shape[::-1]).T
    return np.where(np.isnan(nodes), np.uint64(0), mixed(ranks))


def _column_keys(ranks, content, weights):
    """Sum numbers of weights, over the different observed cells of columns; (n_nodes,).

    Cells differ by their ranks and by the `content` (n,) of their rows.
    """
    keys = []
    for column in ranks.T:
        seen = column > 0
        some = mixed(column[seen] + content[seen])
        cells, place = np.unique(some, return_inverse=True)
        # rounded, as sums of weights depend on their order in the last bits
        total = np.bincount(place, weights[seen]).astype(np.float32).view(np.uint32)
        keys.append(mixed(cells + mixed(total)).sum(dtype=np.uint64))
    return np.array(keys, np.uint64)


def _row_keys(ranks, columns):
    """Sum numbers of the cells of rows, in any order of the columns; (n,)."""
    content = np.zeros(len(ranks), np.uint64)
    for key, column in zip(columns, ranks.T, strict=True):
        content += mixed(key + column)
    return content


def _occurrences(keys, weights=None):
    """Count the earlier items of the same key, of smaller weights first; (n,)."""
    order = np.lexsort((keys,) if weights is None else (weights, keys))
    first = np.flatnonzero(np.diff(keys[order], prepend=~keys[order][:1]))
    counts = np.diff(first, append=len(keys))
    count = np.empty(len(keys), np.uint64)
    count[order] = np.arange(len(keys)) - np.repeat(first, counts)
    return count


def _are_unique(nodes, weights):
    """Return which rows are empty, or have a cell whose column hardly repeats; (n,)."""
    are = np.isnan(nodes).all(1)
    for column in nodes.T:
        seen = ~np.isnan(column)
        n = max(weights[seen].sum(), seen.sum())
        if _REPEATS * len(np.unique(column[seen])) >= n:
            are |= seen
    return are
