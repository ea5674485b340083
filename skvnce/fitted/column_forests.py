"""Random forests that predict each column of a table from the others.

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

from skvnce.fitted.trees import Ranks, Trees


class Growth(NamedTuple):
    """How forests are grown: the parameters of `ForestImputer` and of scikit-learn."""

    n_estimators: int
    splitter: str
    min_samples_leaf: int
    max_features: float
    max_samples: int
    n_jobs: int | None


class ColumnForest(NamedTuple):
    """A forest that predicts a column from the others; see `ColumnModel`.

    Attributes
    ----------
    column : int
        Its place among the columns of the model.
    trees : Trees
    first : ndarray of int, of shape (n_tree_nodes + 1,)
        The cells of a leaf are ``values[ranks[first[leaf] : first[leaf + 1]]]``.
    ranks : ndarray of int, of shape (n_trees * n,)
    values : ndarray of shape (n_values,)
        The observed values of the column, increasing.
    width : int
        Number of levels of the column, whose shares the trees predict, or 1.
    """

    column: int
    trees: Trees
    first: np.ndarray
    ranks: np.ndarray
    values: np.ndarray
    width: int

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw cells of the leaves of a row; see `ColumnModel`."""
        places = self.trees.picks(rows, self.first, uniform)
        return self.values[self.ranks[places]], self.means(rows) if with_means else None

    def means(self, rows: np.ndarray) -> np.ndarray:
        """Predict means, or probabilities of levels, of rows; (n, width)."""
        return self.trees.means(rows)


class Sample(NamedTuple):
    """What the trees of a column are grown on.

    Attributes
    ----------
    others : ndarray of float32, of shape (n_tables, n, n_predictors)
        Ranks of the cells of the predictors in completed tables.
    target : ndarray of shape (n, width)
        Scaled numbers, or indicators of levels.
    bags : ndarray of int, of shape (n_trees, n)
        The rows of the bootstrap sample of each tree.
    """

    others: np.ndarray
    target: np.ndarray
    bags: np.ndarray


def grow(
    column: int,
    completed: np.ndarray,
    cells: np.ndarray,
    n_levels: int,
    growth: Growth,
    rng: np.random.Generator,
    predictors: np.ndarray,
    weights: np.ndarray | None = None,
) -> ColumnForest:
    """Grow the forest of a column on completed tables.

    Parameters
    ----------
    column : int
    completed : ndarray of shape (n_tables, n, n_nodes)
        An equal number of trees is grown on each table.
    cells : ndarray of shape (n,)
        The column; NaN marks missing cells.
    n_levels : int
        0 for numbers.
    growth : Growth
    rng : numpy.random.Generator
    predictors : ndarray of int
        The other columns that splits may use.
    weights : ndarray of shape (n,), default=None
        Of the rows, which trees draw in proportion to them; None means equal ones.

    Returns
    -------
    ColumnForest
    """
    rows = np.flatnonzero(~np.isnan(cells))
    if len(rows) > growth.max_samples:
        rows = np.sort(rng.choice(rows, growth.max_samples, replace=False))
    own, completed = cells[rows], completed[:, rows]
    order = Ranks.of(completed.reshape(-1, completed.shape[-1]))
    others = Ranks([order.values[j] for j in predictors])
    others = np.ascontiguousarray(others.encoded(completed[..., predictors]))
    location, scale = 0.0, 1.0
    if n_levels:
        target = np.eye(n_levels)[own.astype(int)]
    else:
        # scikit-learn subtracts squares for a variance, which loses digits of large
        # numbers
        location, scale = own.mean(), own.std() or 1.0
        target = (own[:, None] - location) / scale
    sizes = growth.n_estimators, len(rows)
    if weights is None:
        bags = rng.integers(len(rows), size=sizes)
    else:
        bags = rng.choice(len(rows), sizes, p=weights[rows] / weights[rows].sum())
    models, leaf = _grown(Sample(others, target, bags), growth, rng)
    trees = Trees.of(models, np.asarray(predictors), order)
    trees = trees._replace(values=location + scale * trees.values)
    values, ranks = np.unique(own, return_inverse=True)
    leaf = (leaf + trees.roots[:, None]).ravel()
    counts = np.bincount(leaf, minlength=len(trees.feature))
    first = np.concatenate([[0], np.cumsum(counts)])
    sorted_ranks = ranks[bags.ravel()[np.argsort(leaf, kind="stable")]].astype(np.int32)
    return ColumnForest(column, trees, first, sorted_ranks, values, n_levels or 1)


def _grown(sample, growth, rng):
    """Grow all trees, in threads; return them and the leaves of their own rows."""
    n_trees = len(sample.bags)
    tables = np.sort(np.arange(n_trees) % len(sample.others))
    seeds = rng.integers(2**31 - 1, size=n_trees).tolist()
    parts = np.array_split(np.arange(n_trees), effective_n_jobs(growth.n_jobs))
    # for many small trees, checks take a large share of the time
    with config_context(skip_parameter_validation=True, assume_finite=True):
        # scikit-learn grows trees without the GIL, and threads share the tables
        grown = Parallel(n_jobs=growth.n_jobs, prefer="threads")(
            delayed(_trees)(sample, [(k, tables[k], seeds[k]) for k in part], growth)
            for part in parts
        )
    models = [one for part in grown for one in part]
    leaf = [
        model.tree_.apply(sample.others[table])[bag]
        for model, table, bag in zip(models, tables, sample.bags, strict=True)
    ]
    return models, np.array(leaf)


def _trees(sample, wanted, growth):
    """Grow some trees: their numbers, tables and seeds."""
    state = np.random.RandomState(0)  # to make one takes as long as a small tree
    return [
        _tree(sample.others[table], sample.target, sample.bags[k], seed, growth, state)
        for k, table, seed in wanted
    ]


def _tree(others, target, bag, seed, growth, state):
    """Grow a tree on the rows of `bag`, with a random state that is seeded again."""
    counts = np.bincount(bag)
    used = np.flatnonzero(counts)
    state.seed(seed)
    tree = DecisionTreeRegressor(
        splitter=growth.splitter,
        min_samples_leaf=growth.min_samples_leaf,
        max_features=growth.max_features,
        random_state=state,
    )
    # a row once, with its count as weight, as scikit-learn's forests do
    weights = counts[used].astype(np.float64)
    return tree.fit(others[used], target[used], weights, check_input=False)
