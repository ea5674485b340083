"""Random forests that predict each column of a table from the others.

All cells are replaced by the ranks of their values among the observed ones, so that a
forest does not depend on units or on increasing transformations of the other columns.
Each leaf keeps the cells that it was grown on.  A draw selects a tree and one of the
cells of the leaf (Meinshausen 2006, Quantile regression forests).
"""

from typing import NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor


class Ranks(NamedTuple):
    """The order of the observed values of columns.

    Attributes
    ----------
    values : list of ndarray
        The different observed values of each column, increasing.
    """

    values: list

    @classmethod
    def of(cls, nodes):
        """Find the values of rows (n, n_nodes); NaN marks missing cells."""
        return cls([np.unique(column[~np.isnan(column)]) for column in nodes.T])

    def encoded(self, cells):
        """Convert cells (..., n_nodes) to ranks; halves lie between two values."""
        found = np.empty(cells.shape, dtype=np.float32)
        for j, values in enumerate(self.values):
            column = cells[..., j]
            left = np.searchsorted(values, column)
            right = np.searchsorted(values, column, side="right")
            found[..., j] = (left + right - 1) / 2
        return found


class Leaves(NamedTuple):
    """The cells of a column by the leaf of a tree that was grown on them.

    Attributes
    ----------
    ranks : ndarray of float32, of shape (n,)
    first : ndarray of int32, of shape (n_tree_nodes + 1,)
        The cells of a leaf are ``ranks[first[leaf] : first[leaf + 1]]``.
    """

    ranks: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, tree, others, ranks):
        """Sort cells by their leaves."""
        leaf = tree.apply(others)
        order = leaf.argsort(kind="stable")
        first = np.searchsorted(leaf[order], np.arange(tree.node_count + 1))
        return cls(ranks[order], first.astype(np.int32))

    def at(self, leaf, uniform):
        """Select a cell of each leaf (n,) by a uniform number (n,)."""
        first, last = self.first[leaf], self.first[leaf + 1]
        return self.ranks[first + (uniform * (last - first)).astype(int)]


class Growth(NamedTuple):
    """How forests are grown: the parameters of `ForestImputer` and of scikit-learn."""

    n_estimators: int
    min_samples_leaf: int
    max_features: float
    max_samples: int
    n_jobs: int | None


class ColumnForest(NamedTuple):
    """A forest that predicts a column from the others.

    Attributes
    ----------
    column : int
        Its place among the columns of the model.
    forests : list of RandomForestClassifier or RandomForestRegressor
        One for each completed table.
    leaves : list of Leaves
        One for each tree.
    levels : ndarray of int or None
        The levels whose shares the trees predict; None if they predict a mean.
    width : int
        Number of levels of the column, or 1.
    moments : tuple of float
        Location and scale of the cells that the trees were fitted to.
    """

    column: int
    forests: list
    leaves: list
    levels: np.ndarray | None
    width: int
    moments: tuple

    @property
    def trees(self):
        """The trees of all forests."""
        return [one.tree_ for forest in self.forests for one in forest.estimators_]

    def plain(self):
        """Convert to tuples, which skops can store."""
        return tuple(self._replace(leaves=[tuple(one) for one in self.leaves]))

    @classmethod
    def of_plain(cls, stored):
        """Make a forest of what `plain` returned."""
        found = cls(*stored)
        return found._replace(leaves=[Leaves(*one) for one in found.leaves])

    def predict(self, ranks, trees=None):
        """Predict means, or probabilities of levels, of rows.

        Parameters
        ----------
        ranks : ndarray of float32, of shape (n, n_nodes)
        trees : ndarray of bool, of shape (n_trees, n), default=None
            The trees that predict each row; None means all.

        Returns
        -------
        ndarray of shape (n, width)
        """
        others = self._others(ranks)
        trees = np.ones((len(self.leaves), len(ranks))) if trees is None else trees
        shares = trees / trees.sum(0)
        total = sum(
            tree.predict(others) * share[:, None]
            for tree, share in zip(self.trees, shares, strict=True)
        )
        if self.levels is None:
            location, scale = self.moments
            return location + scale * total.reshape(-1, 1)
        found = np.zeros((len(ranks), self.width))
        found[:, self.levels] = total
        return found

    def draw(self, ranks, uniform, trees=None):
        """Draw ranks of cells (n,) by uniform numbers (n,); see `predict`."""
        others, found = self._others(ranks), np.empty(len(ranks), dtype=np.float32)
        if trees is None:
            which, inner = np.divmod(uniform * len(self.leaves), 1)
        else:
            number, inner = np.divmod(uniform * trees.sum(0), 1)
            which = (trees.cumsum(0) <= number).sum(0)
        order = which.argsort(kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(self.leaves) + 1))
        for place, (tree, leaves) in enumerate(
            zip(self.trees, self.leaves, strict=True)
        ):
            rows = order[ends[place] : ends[place + 1]]
            if len(rows):
                found[rows] = leaves.at(tree.apply(others[rows]), inner[rows])
        return found

    def _others(self, ranks):
        return np.ascontiguousarray(np.delete(ranks, self.column, axis=1))


def grow(column, completed, ranks, cells, n_levels, growth, rng):
    """Grow the forest of a column on completed tables.

    Parameters
    ----------
    column : int
    completed : ndarray of float32, of shape (n_tables, n, n_nodes)
        Ranks; an equal number of trees is grown on each table.
    ranks, cells : ndarray of shape (n,)
        The column, as ranks and as values; NaN marks missing cells.
    n_levels : int or None
        None for numbers.
    growth : Growth
    rng : numpy.random.Generator

    Returns
    -------
    forest : ColumnForest
    unseen : ndarray of bool, of shape (n_trees, n)
        The rows that a tree was not grown on; all trees for a row without such a tree.
    """
    rows = np.flatnonzero(~np.isnan(cells))
    if len(rows) > growth.max_samples:
        rows = np.sort(rng.choice(rows, growth.max_samples, replace=False))
    target, moments = cells[rows], (0.0, 1.0)
    kind = RandomForestClassifier
    if n_levels is None:
        kind, moments = RandomForestRegressor, (target.mean(), target.std() or 1.0)
        target = (target - moments[0]) / moments[1]
    forests, leaves, levels, unseen = [], [], None, []
    shares = np.array_split(np.arange(growth.n_estimators), len(completed))
    for table, share in zip(completed, shares, strict=True):
        others = np.ascontiguousarray(np.delete(table[rows], column, axis=1))
        forest = kind(
            max(1, len(share)),
            min_samples_leaf=growth.min_samples_leaf,
            max_features=growth.max_features,
            n_jobs=growth.n_jobs,
            random_state=int(rng.integers(2**31 - 1)),
        ).fit(others, target)
        forests.append(forest)
        levels = forest.classes_.astype(int) if n_levels else None
        for one, bag in zip(
            forest.estimators_, forest.estimators_samples_, strict=True
        ):
            leaves.append(Leaves.of(one.tree_, others[bag], ranks[rows[bag]]))
            unseen.append(~np.isin(np.arange(len(cells)), rows[bag]))
    forest = ColumnForest(column, forests, leaves, levels, n_levels or 1, moments)
    unseen = np.array(unseen)
    return forest, unseen | ~unseen.any(0)


class Chains(NamedTuple):
    """Lengths of the Gibbs chains that draw the other missing cells of a row.

    Attributes
    ----------
    n_chains : int
    n_burn_in, n_sweeps : int
        Sweeps before those that count, and those that count.
    """

    n_chains: int
    n_burn_in: int
    n_sweeps: int


def predict(forests, start, missing, chains, uniforms, trees=None):
    """Average the predictions of forests over draws of the other missing cells.

    Parameters
    ----------
    forests : list of ColumnForest
        In the order of a sweep.
    start : ndarray of float32, of shape (n, n_nodes)
        Filled rows, as ranks, where the chains start.
    missing : ndarray of bool, of shape (n, n_nodes)
    chains : Chains
    uniforms : callable
        Maps the number of a sweep and a shape (n_chains, n, n_nodes) to uniform
        numbers.
    trees : dict of int to ndarray of bool, of shape (n_trees, n), default=None
        For each column, the trees that may predict the rows; None means all.

    Returns
    -------
    dict of int to ndarray of shape (n_missing, width)
        For each column, the means or probabilities in the rows that miss it.
    """
    state = np.repeat(start[None], chains.n_chains, axis=0)
    found = {}
    for number in range(chains.n_burn_in + chains.n_sweeps):
        uniform = uniforms(number, state.shape)
        for forest in forests:
            j = forest.column
            rows = np.flatnonzero(missing[:, j])
            if not len(rows):
                continue
            ranks = state[:, rows].reshape(-1, state.shape[-1])
            own = trees and np.tile(trees[j][:, rows], chains.n_chains)
            if number >= chains.n_burn_in:
                cells = forest.predict(ranks, own)
                cells = cells.reshape(chains.n_chains, len(rows), -1).mean(0)
                found[j] = found.get(j, 0.0) + cells / chains.n_sweeps
            drawn = forest.draw(ranks, uniform[:, rows, j].ravel(), own)
            state[:, rows, j] = drawn.reshape(chains.n_chains, -1)
    return found


def redraw(forests, ranks, missing, weights, n_sweeps, rng):
    """Draw missing cells again, some of them from the forests given the others.

    Parameters
    ----------
    forests : list of ColumnForest
    ranks : ndarray of float32, of shape (n_draws, n, n_nodes)
        Completed tables; changed in place.
    missing : ndarray of bool, of shape (n, n_nodes)
    weights : ndarray of shape (n_nodes,)
        Probabilities with which a cell is drawn in a sweep.
    n_sweeps : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of bool, of shape (n_draws, n, n_nodes)
        The cells that were drawn.
    """
    changed = np.zeros(ranks.shape, dtype=bool)
    for _ in range(n_sweeps):
        chosen = missing & (rng.random(ranks.shape) < weights)
        changed |= chosen
        for forest in forests:
            tables, rows = chosen[..., forest.column].nonzero()
            if len(rows):
                own = forest.draw(ranks[tables, rows], rng.random(len(rows)))
                ranks[tables, rows, forest.column] = own
    return changed
