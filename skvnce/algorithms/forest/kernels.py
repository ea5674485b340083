"""Compiled loops over the rows and trees of a forest.

The nodes of all trees are numbered one after the other.  A row whose cell of the column
`feature` is smaller than `bound` goes to the node `left`, and else to `right`; leaves
have the feature -1.
"""

import numpy as np

from skvnce._compiled import compiled

Array = np.ndarray


@compiled()
def _leaf(
    row: Array, node: int, feature: Array, bound: Array, left: Array, right: Array
) -> int:
    """Find the leaf of a row in the tree whose root is `node`."""
    while feature[node] >= 0:
        node = left[node] if row[feature[node]] < bound[node] else right[node]
    return node


@compiled()
def means(
    rows: Array,
    roots: Array,
    feature: Array,
    bound: Array,
    left: Array,
    right: Array,
    values: Array,
) -> Array:
    """Average the values (n_tree_nodes, width) of the leaves of rows (n, n_columns)."""
    n, width = len(rows), values.shape[1]
    found = np.zeros((n, width))
    # trees outside, so that one tree at a time is in the cache of the processor
    for root in roots:
        for i in range(n):
            leaf = _leaf(rows[i], root, feature, bound, left, right)
            for k in range(width):
                found[i, k] += values[leaf, k]
    return found / len(roots)


@compiled()
def picks(
    rows: Array,
    roots: Array,
    feature: Array,
    bound: Array,
    left: Array,
    right: Array,
    first: Array,
    uniform: Array,
) -> Array:
    """Select a tree for each row, and one of the cells of its leaf.

    The cells of a leaf have the places ``first[leaf]`` to ``first[leaf + 1] - 1``.

    Returns
    -------
    ndarray of int, of shape (n,)
        Places of cells.
    """
    found = np.empty(len(rows), dtype=np.int64)
    for i in range(len(rows)):
        scaled = uniform[i] * len(roots)
        tree = min(int(scaled), len(roots) - 1)
        leaf = _leaf(rows[i], roots[tree], feature, bound, left, right)
        start, size = first[leaf], first[leaf + 1] - first[leaf]
        # below 1 in exact arithmetic, but the difference may be rounded up to it
        found[i] = start + min(int((scaled - tree) * size), size - 1)
    return found
