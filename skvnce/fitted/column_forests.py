"""Random forests that predict each column of a table from the others.

All cells are replaced by the ranks of their values among the observed ones, so that a
forest does not depend on units or on increasing transformations of the other columns.
Trees of categories predict the indicators of the levels: their sum of variances is the
Gini impurity.  Each leaf keeps the cells that it was grown on.  A draw selects a tree
and one of the cells of the leaf (Meinshausen 2006, Quantile regression forests).
"""

from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.parallel import Parallel, delayed


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
        # the data type of scikit-learn's trees, which check_input=False requires
        found = np.empty(cells.shape, dtype=np.float32)
        for j, values in enumerate(self.values):
            column = cells[..., j]
            left = np.searchsorted(values, column)
            right = np.searchsorted(values, column, side="right")
            found[..., j] = (left + right - 1) / 2
        return found


class Leaves(NamedTuple):
    """The cells of a column by the leaves of the trees that were grown on them.

    Attributes
    ----------
    ranks : ndarray of float32, of shape (n_trees * n,)
    first : ndarray of int, of shape (n_tree_nodes + 1,)
        The cells of a leaf are ``ranks[first[leaf] : first[leaf + 1]]``, where the
        nodes of all trees are numbered one after the other.
    nodes : ndarray of int, of shape (n_trees,)
        The number of the first node of each tree.
    """

    ranks: np.ndarray
    first: np.ndarray
    nodes: np.ndarray

    @classmethod
    def of(cls, trees, leaves, ranks):
        """Sort the cells (n,) of each tree by their leaves (n,)."""
        ranks = [
            own[_order(leaf, tree.node_count)]
            for tree, leaf, own in zip(trees, leaves, ranks, strict=True)
        ]
        counts = [
            np.bincount(leaf, minlength=tree.node_count)
            for tree, leaf in zip(trees, leaves, strict=True)
        ]
        nodes = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
        first = np.cumsum(np.concatenate([[0], *counts]))
        return cls(np.concatenate(ranks), first, nodes)

    def at(self, leaf, uniform):
        """Select a cell of each leaf (n,) by a uniform number (n,)."""
        first, last = self.first[leaf], self.first[leaf + 1]
        return self.ranks[first + (uniform * (last - first)).astype(int)]


def _order(places, n_places):
    """Sort integers (n,) below n_places; numpy sorts those of 16 bits faster."""
    small = n_places <= np.iinfo(np.uint16).max
    return places.astype(np.uint16 if small else int).argsort(kind="stable")


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
    models : list of DecisionTreeRegressor
    leaves : Leaves
    width : int
        Number of levels of the column, whose shares the trees predict, or 1.
    moments : tuple of float
        Location and scale of the cells that the trees were fitted to.
    """

    column: int
    models: list
    leaves: Leaves
    width: int
    moments: tuple

    @property
    def trees(self):
        """The structures of the trees."""
        return [one.tree_ for one in self.models]

    def plain(self):
        """Convert to tuples, which skops can store."""
        return tuple(self._replace(leaves=tuple(self.leaves)))

    @classmethod
    def of_plain(cls, stored):
        """Make a forest of what `plain` returned."""
        found = cls(*stored)
        return found._replace(leaves=Leaves(*found.leaves))

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
        others, n_trees = self._others(ranks), len(self.models)
        total = np.zeros((len(ranks), self.width))
        if trees is None:
            for tree in self.trees:
                total += tree.predict(others).reshape(total.shape) * (1 / n_trees)
        else:
            share = 1 / trees.sum(0)
            for tree, own in zip(self.trees, trees, strict=True):
                rows = np.flatnonzero(own)
                cells = tree.predict(others[rows]).reshape(-1, self.width)
                total[rows] += cells * share[rows, None]
        location, scale = self.moments
        return location + scale * total

    def draw(self, ranks, uniform, trees=None):
        """Draw ranks of cells (n,) by uniform numbers (n,); see `predict`."""
        others, n_trees = self._others(ranks), len(self.models)
        if trees is None:
            # the fraction is uniform again: one number selects the tree and the cell
            which, inner = np.divmod(uniform * n_trees, 1)
        else:
            number, inner = np.divmod(uniform * trees.sum(0), 1)
            which = (trees.cumsum(0) <= number).sum(0)
        order = _order(which, n_trees)
        others, leaf = others[order], np.empty(len(ranks), dtype=int)
        ends = np.searchsorted(which[order], np.arange(n_trees + 1)).tolist()
        for tree, node, start, end in zip(
            self.trees, self.leaves.nodes.tolist(), ends[:-1], ends[1:], strict=True
        ):
            if start < end:
                leaf[order[start:end]] = tree.apply(others[start:end]) + node
        return self.leaves.at(leaf, inner)

    def _others(self, ranks):
        return np.ascontiguousarray(np.delete(ranks, self.column, axis=1))


def grow(column, completed, ranks, cells, n_levels, growth, rng, weights=None):
    """Grow the forest of a column on completed tables.

    Parameters
    ----------
    column : int
    completed : ndarray of float32, of shape (n_tables, n, n_nodes)
        Ranks; an equal number of trees is grown on each table.
    ranks, cells : ndarray of shape (n,)
        The column, as ranks and as values; NaN marks missing cells.
    n_levels : int
        0 for numbers.
    growth : Growth
    rng : numpy.random.Generator
    weights : ndarray of shape (n,), default=None
        Of the rows, which trees draw in proportion to them; None means equal ones.

    Returns
    -------
    forest : ColumnForest
    unseen : ndarray of bool, of shape (n_trees, n)
        The rows that a tree was not grown on; all trees for a row without such a tree.
    """
    rows = np.flatnonzero(~np.isnan(cells))
    if len(rows) > growth.max_samples:
        rows = np.sort(rng.choice(rows, growth.max_samples, replace=False))
    target, moments = cells[rows, None], (0.0, 1.0)
    if not n_levels:
        # scikit-learn subtracts squares for a variance, which loses digits of large
        # numbers
        moments = (target.mean(), target.std() or 1.0)
        target = (target - moments[0]) / moments[1]
    else:
        target = np.eye(n_levels)[cells[rows].astype(int)]
    others = np.ascontiguousarray(np.delete(completed[:, rows], column, axis=2))
    tables = np.sort(np.arange(growth.n_estimators) % len(completed))
    sizes = len(tables), len(rows)
    if weights is None:
        bags = rng.integers(len(rows), size=sizes)
    else:
        bags = rng.choice(len(rows), sizes, p=weights[rows] / weights[rows].sum())
    seeds = rng.integers(2**31 - 1, size=len(tables)).tolist()
    parts = np.array_split(np.arange(len(tables)), effective_n_jobs(growth.n_jobs))
    # for many small trees, checks take a large share of the time
    with config_context(skip_parameter_validation=True, assume_finite=True):
        # scikit-learn grows trees without the GIL, and threads share the tables
        grown = Parallel(n_jobs=growth.n_jobs, prefer="threads")(
            delayed(_trees)(
                [(others[tables[k]], target, bags[k], seeds[k]) for k in part], growth
            )
            for part in parts
        )
    models = [one for part in grown for one in part]
    trees = [one.tree_ for one in models]
    leaf = [
        tree.apply(others[table])[bag]
        for tree, table, bag in zip(trees, tables, bags, strict=True)
    ]
    leaves = Leaves.of(trees, leaf, ranks[rows[bags]])
    unseen = np.ones((len(models), len(cells)), dtype=bool)
    np.put_along_axis(unseen, rows[bags], False, axis=1)
    forest = ColumnForest(column, models, leaves, n_levels or 1, moments)
    # a row that all trees have seen would have no prediction
    return forest, unseen | ~unseen.any(0)


def _trees(samples, growth):
    """Grow a tree on each bootstrap sample: other columns, target, rows and seed."""
    state = np.random.RandomState(0)  # to make one takes as long as a small tree
    return [_tree(*sample, growth, state) for sample in samples]


def _tree(others, target, bag, seed, growth, state):
    """Grow a tree on the rows of `bag`, with a random state that is seeded again."""
    counts = np.bincount(bag)
    used = np.flatnonzero(counts)
    state.seed(seed)
    tree = DecisionTreeRegressor(
        min_samples_leaf=growth.min_samples_leaf,
        max_features=growth.max_features,
        random_state=state,
    )
    # a row once, with its count as weight, as scikit-learn's forests do
    weights = counts[used].astype(np.float64)
    tree.fit(others[used], target[used], weights, check_input=False)
    # plain, because each pickled tree would have a copy of the shared state
    tree.random_state = seed
    return tree


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
    """Draw some of the missing cells again, from the forests given the others.

    The other missing cells keep the draws of another imputer, so that a draw is one of
    the mixture of both.

    Parameters
    ----------
    forests : list of ColumnForest
    ranks : ndarray of float32, of shape (n_draws, n, n_nodes)
        Completed tables; changed in place.
    missing : ndarray of bool, of shape (n, n_nodes)
    weights : ndarray of shape (n_nodes,)
        Probabilities with which a cell is drawn again, in all sweeps.
    n_sweeps : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of bool, of shape (n_draws, n, n_nodes)
        The cells that were drawn.
    """
    chosen = missing & (rng.random(ranks.shape) < weights)
    for _ in range(n_sweeps):
        for forest in forests:
            tables, rows = chosen[..., forest.column].nonzero()
            if len(rows):
                own = forest.draw(ranks[tables, rows], rng.random(len(rows)))
                ranks[tables, rows, forest.column] = own
    return chosen
