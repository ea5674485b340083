"""Trees of scikit-learn as arrays, whose splits compare values with observed ones.

Trees are grown on ranks of the observed values, so that they do not depend on units or
on increasing transformations of a column.  A split at a rank becomes one at the next
observed value: cells between two observed values go with the smaller one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.tree import BaseDecisionTree

from skvnce.algorithms.forest import kernels


class Ranks(NamedTuple):
    """The order of the observed values of columns.

    Attributes
    ----------
    values : list of ndarray
        The different observed values of each column, increasing.
    """

    values: list

    @classmethod
    def of(cls, nodes: np.ndarray) -> "Ranks":
        """Find the values of rows (n, n_nodes); NaN marks missing cells."""
        return cls([np.unique(column[~np.isnan(column)]) for column in nodes.T])

    def encoded(self, cells: np.ndarray) -> np.ndarray:
        """Convert cells (..., n_nodes) to ranks; halves lie between two values."""
        # the data type of scikit-learn's trees, which check_input=False requires
        found = np.empty(cells.shape, dtype=np.float32)
        for j, values in enumerate(self.values):
            column = cells[..., j]
            left = np.searchsorted(values, column)
            right = np.searchsorted(values, column, side="right")
            found[..., j] = (left + right - 1) / 2
        return found


class Trees(NamedTuple):
    """Trees whose nodes are numbered one after the other; see `kernels`.

    Attributes
    ----------
    roots : ndarray of int, of shape (n_trees,)
    feature : ndarray of int, of shape (n_tree_nodes,)
        The column of a split; -1 in leaves.
    bound : ndarray of shape (n_tree_nodes,)
    left, right : ndarray of int, of shape (n_tree_nodes,)
    values : ndarray of shape (n_tree_nodes, width)
        The mean, or the shares of levels, of the cells in a node.
    """

    roots: np.ndarray
    feature: np.ndarray
    bound: np.ndarray
    left: np.ndarray
    right: np.ndarray
    values: np.ndarray

    @classmethod
    def of(
        cls, models: Sequence[BaseDecisionTree], columns: np.ndarray, ranks: Ranks
    ) -> "Trees":
        """Convert trees that were grown on ranks of some columns."""
        trees = [one.tree_ for one in models]
        roots = np.cumsum([0, *(one.node_count for one in trees[:-1])])
        inner = np.concatenate([one.feature for one in trees]) >= 0
        place = np.concatenate([one.feature for one in trees])[inner]
        feature = np.full(len(inner), -1, dtype=np.int32)
        feature[inner] = columns[place]
        after = np.concatenate([one.threshold for one in trees])[inner].astype(int) + 1
        bound, starts = np.zeros(len(inner)), np.cumsum([0, *map(len, ranks.values)])
        bound[inner] = np.concatenate(ranks.values)[starts[feature[inner]] + after]
        shifts = np.repeat(roots, [one.node_count for one in trees])
        left = np.concatenate([one.children_left for one in trees]) + shifts
        right = np.concatenate([one.children_right for one in trees]) + shifts
        values = np.concatenate([one.value[:, :, 0] for one in trees])
        ends = left.astype(np.int32), right.astype(np.int32)
        return cls(roots, feature, bound, *ends, np.ascontiguousarray(values))

    @property
    def arrays(self) -> tuple:
        """The arrays that lead a row to its leaf."""
        return self.roots, self.feature, self.bound, self.left, self.right

    def means(self, rows: np.ndarray) -> np.ndarray:
        """Average the values of the leaves of rows (n, n_nodes); (n, width)."""
        return kernels.means(rows, *self.arrays, self.values)

    def picks(self, rows: np.ndarray, first: np.ndarray, uniform: np.ndarray):
        """Select a tree and a cell of its leaf by uniform numbers; places (n,)."""
        return kernels.picks(rows, *self.arrays, first, uniform)
