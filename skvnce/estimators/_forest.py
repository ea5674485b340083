"""An imputer that averages another imputer with random forests."""

from numbers import Real
from types import SimpleNamespace

import numpy as np
import torch
from sklearn.base import clone

from skvnce._keyed import row_keyed
from skvnce._memory import check_fit, check_trees, needs_memory
from skvnce._progress import steps
from skvnce._random import seed_from
from skvnce._weights import rows_with_data
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._imputer import Imputer
from skvnce.estimators._missing_table import names_table
from skvnce.estimators._validation import (
    AUTO,
    N_JOBS,
    RANDOM_STATE,
    Number,
    integer_from,
)
from skvnce.estimators._wrapper import ByModel
from skvnce.fits import forest_weights
from skvnce.fits.duration import OF_ALL_COLUMNS, warn_of_duration
from skvnce.fitted import column_forests
from skvnce.fitted.column_forests import Chains, ColumnForest, Growth, Ranks
from skvnce.fitted.fill import Predicted, incomplete_chunks
from skvnce.tables.cells import is_missing

_SWEEPS = {"n_burn_in": 1, "n_sweeps": 2}  # of the chains of `transform`
_FIRST = 3  # times as many trees as those whose draws complete the table
_TIMED = 100  # maximum number of trees of a forest whose time is measured
_WEIGHED = 1000  # maximum number of rows that choose the weights


class ForestImputer(CallbackSupportMixin, ByModel):
    """Impute by another imputer averaged with random forests.

    Forests find what smooth models miss, such as bands, steps and interactions of
    columns.  `model` is fitted first and completes the table by a draw.  On the
    completed table one forest for each column learns to predict its observed cells from
    the other columns.  These forests, which are small, complete the table by draws, and
    the final forests learn from what they completed.  Then predictions are averaged:
    means of numbers arithmetically, probabilities of levels geometrically.  In rows
    with several missing cells the forests' predictions are averages over Gibbs chains,
    which start at the fillings of `model` and draw the missing cells in turn.

    Parameters
    ----------
    model : GaussianImputer, LAIRImputer, VGIImputer or None, default=None
        The other imputer.  It decides how columns are read (`categorical_features`),
        which of them are passed through, as names of rows and free text, about what
        marks missing cells, bounds, empty columns and indicators.  None is
        ``GaussianImputer()``.
    n_estimators : int, default=100
        Number of trees for each column.
    weight : "auto" or float, default="auto"
        Weight of the forests, from 0 to 1.  ``"auto"`` chooses one weight for numbers,
        by squared errors, and one for categories, by log-loss: in at most 1000 rows
        one observed cell is hidden and predicted, by a clone of `model` that is fitted
        without these cells and by the trees that were not grown on the row.  The best
        weight of n cells is moved towards 0.5, by a share of 100 / (n + 100).  Columns
        of numbers that nearly repeat another one (a squared correlation above 0.9975)
        are left to `model`, whose draws are narrower there than those of trees.  A
        number saves the second fit of `model`.
    n_completions : int, default=3
        Number of completed tables that the final trees are grown on.
    min_samples_leaf : int, default=2
        Minimum number of rows in a leaf.
    max_features : float, default=0.5
        Share of the columns that a split chooses from.
    max_samples : int, default=10000
        Maximum number of rows, chosen at random, that the forest of a column learns
        from.
    n_draws : int, default=8
        Number of Gibbs chains for each row that `transform` averages over.
    n_steps : int, default=3
        Number of sweeps of `sample`.
    n_jobs : int or None, default=None
        Number of processes or threads that grow trees, as in scikit-learn's forests.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the trees and of the completed tables; replaces the `random_state` of
        `model`.
    verbose : int, default=0
        If 1, print a line for each forest, and for each other step of `fit`,
        `transform` and `sample` that takes longer than a second.  If 2, print all
        steps.

    Attributes
    ----------
    model_ : GaussianImputer, LAIRImputer or VGIImputer
        The fitted imputer.
    weights_ : ndarray of shape (n_nodes,)
        Weight of the forest of each column.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    categories_ : dict of str to ndarray
        The levels of each column of categories.  Only if there are categories.
    indicator_ : MissingIndicator or None
        The indicator of `model_`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    Draws of `sample` are those of `model_`, some cells of which, chosen at random with
    their weights as the probabilities, are then drawn from their forests given the
    other cells, in `n_steps` sweeps.  `model_` and the final forests learn from all
    observed cells, with those that have chosen the weights.  A draw from a forest is an
    observed value.  Probabilities of levels are geometric means of those of `model_`
    and of the forests, which are averaged over the Gibbs chains.  Warnings of `fit` are
    those of `model`: a column that `model` imputes from its marginal distribution is
    still predicted by its forest, and `on_misfit` is a parameter of `model`.  There is
    no density, and so no `score`, and no torch module.

    References
    ----------
    Breiman (2001), Random forests; Meinshausen (2006), Quantile regression forests;
    Stekhoven and Buehlmann (2012), MissForest; Doove, van Buuren and Dusseldorp (2014),
    Recursive partitioning for missing data imputation in the presence of interaction
    effects.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import ForestImputer
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=200)
    >>> X = np.column_stack([x, abs(x)])
    >>> X[:50, 1] = np.nan
    >>> filled = ForestImputer(weight=1.0, random_state=0).fit_transform(X)
    >>> bool(abs(filled[:50, 1] - abs(x[:50])).mean() < 0.05)
    True
    """

    _parameter_constraints = {
        "model": [None, Imputer],
        "n_estimators": [integer_from(1)],
        "weight": [AUTO, Number(Real, 0, 1, closed="both")],
        "n_completions": [integer_from(1)],
        "min_samples_leaf": [integer_from(1)],
        "max_features": [Number(Real, 0, 1, closed="right")],
        "max_samples": [integer_from(2)],
        "n_draws": [integer_from(1)],
        "n_steps": [integer_from(1)],
        "n_jobs": N_JOBS,
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model=None,
        *,
        n_estimators=100,
        weight="auto",
        n_completions=3,
        min_samples_leaf=2,
        max_features=0.5,
        max_samples=10_000,
        n_draws=8,
        n_steps=3,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.model = model
        self.n_estimators = n_estimators
        self.weight = weight
        self.n_completions = n_completions
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.max_samples = max_samples
        self.n_draws = n_draws
        self.n_steps = n_steps
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @names_table
    def fit(self, X, y=None, sample_weight=None):
        """Fit `model`, and grow a forest for each column.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies of the rows, for `fit` of the other imputer; trees are grown on
            rows that are drawn in proportion to them.  `weights_` are chosen by cells
            that count once each.

        Returns
        -------
        self : ForestImputer

        Raises
        ------
        ValueError
            As `fit` of the other imputer does, or if a parameter is out of range.
        TypeError
            If a parameter has a wrong type.

        Warns
        -----
        DurationWarning
            If there are at least 200 columns, and the fit will take more than a minute.
        """
        return self._set(self._new()._fit(X, sample_weight))

    @reports_fit
    def _fit(self, X, sample_weight):
        """Do what `fit` does, on a copy that has no other user."""
        self._check_parameters()
        needs_memory(type(self), X, reset=True)
        has_shape = len(getattr(X, "shape", ())) == 2
        if has_shape:
            # before `model` is fitted, which may take long
            check_fit(type(self), X.shape)
            check_trees(int(self.n_estimators), X.shape)
        is_array = has_shape and getattr(getattr(X, "dtype", None), "kind", "") == "f"
        is_array = is_array and is_missing(self._marker())
        if is_array:
            self._warn_of_duration(X)
        rng = np.random.default_rng(seed_from(self.random_state))
        self._set_fitted_model(self._fitted_model(rng, X, sample_weight))
        cells = self._checked(X)
        if not is_array:  # only now are there codes of levels
            self._warn_of_duration(cells)
        _, finish = report_rounds(self, None, X=cells)
        weights, kept = rows_with_data(cells, sample_weight)
        cells, weights = cells[kept], None if sample_weight is None else weights[kept]
        growth = Growth(
            int(self.n_estimators),
            int(self.min_samples_leaf),
            float(self.max_features),
            int(self.max_samples),
            self.n_jobs,
        )
        first = growth._replace(n_estimators=-(-growth.n_estimators // _FIRST))
        completed = self._completions(self.model_, cells, 1, rng)
        self._grow(cells, weights, completed, first, rng)
        # the first forests alone complete the table
        self.weights_ = np.ones(len(self.feature_indices_))
        completed = self._completions(self, cells, self.n_completions, rng)
        unseen = self._grow(cells, weights, completed, growth, rng)
        self._choose_weights(cells, weights, unseen, rng)
        finish()
        return self

    def _warn_of_duration(self, cells):
        """Warn if the forests of a table of numbers and codes will take minutes."""
        few = min(int(self.n_estimators), _TIMED)
        times = {"factor": self.n_estimators / few, "n_estimators": few}
        if self.model is not None:
            known = self.model.get_params(deep=False)
            asked = {key: OF_ALL_COLUMNS[key] for key in OF_ALL_COLUMNS & known.keys()}
            times["model"] = clone(self.model).set_params(**asked)
        remedy = "Lower n_estimators, leave out columns, or use GaussianImputer."
        warn_of_duration(self, cells, remedy, plain={"model": None}, **times)

    def _grow(self, cells, weights, completed, growth, rng):
        """Grow the forests on completions of the training rows."""
        nodes = cells[:, self.feature_indices_].astype(np.float64)
        ranks = Ranks.of(nodes)
        self._values = list(ranks.values)
        completed = ranks.encoded(completed)
        own = ranks.encoded(nodes)
        width, n_levels = nodes.shape[1], self._schema.n_categories.tolist()
        grown = [
            column_forests.grow(
                j, completed, own[:, j], nodes[:, j], n_levels[j], growth, rng, weights
            )
            # a single column has no others that predict it
            for j in steps("forest", range(width if width > 1 else 0), width)
        ]
        missing = np.isnan(nodes).sum(0)
        in_order = sorted(
            (one for one, _ in grown), key=lambda one: missing[one.column]
        )
        self._forests = [forest.plain() for forest in in_order]
        return [unseen for _, unseen in grown]

    def _choose_weights(self, cells, weights, unseen, rng):
        """Predict a hidden cell of each row, and set the weights.

        Parameters
        ----------
        cells : ndarray of shape (n, n_features_in_)
            The training rows.
        weights : ndarray of shape (n,) or None
            Their frequencies.
        unseen : list of ndarray of bool, of shape (n_trees, n)
            For each column, the rows that a tree was not grown on.
        rng : numpy.random.Generator
        """
        width = len(self.feature_indices_)
        if not isinstance(self.weight, str) or not unseen:
            weight = 0.5 if isinstance(self.weight, str) else float(self.weight)
            self.weights_ = np.full(width, weight)
            return
        nodes, n_levels = cells[:, self.feature_indices_], self._schema.n_categories
        rows, hidden = forest_weights.hide_one(nodes, n_levels, _WEIGHED, rng)
        places, seed = self.feature_indices_[hidden], int(rng.integers(2**31 - 1))
        refitted = forest_weights.fitted_without(
            self.model_, cells, (rows, places), seed, weights
        )
        kept = cells[rows]
        kept[np.arange(len(rows)), places] = np.nan
        own = refitted._predicted(kept)
        trees = {j: one[:, rows] for j, one in enumerate(unseen)}
        other = self._by_forests(kept, own, trees)
        units = {forest.column: forest.moments[1] for forest in self._in_order()}
        chosen = forest_weights.choose(
            cells[rows], hidden, self.feature_indices_, units, own, other
        )
        same = forest_weights.repeated(nodes.astype(np.float64), n_levels)
        self.weights_ = np.where(same, 0.0, chosen)

    def _completions(self, imputer, cells, n_draws, seed):
        """Draw the nodes of rows by an imputer; (n_draws, n, n_nodes)."""
        tables = imputer._drawn_tables(cells, int(n_draws), seed)
        return tables[..., self._nodes_out()].astype(np.float64)

    def _nodes_out(self):
        """Return the places of the columns of the model in filled tables."""
        return np.searchsorted(self._schema.returned, self.feature_indices_)

    def _predicted(self, X, limits=None):
        own = self.model_._predicted(X)
        other = self._by_forests(X, own)
        missing = np.isnan(X)
        for weight, place in zip(self.weights_, self.feature_indices_, strict=True):
            rows = missing[:, place]
            if place in own.probabilities:
                found = own.probabilities[place]
                parts = found[rows], other.probabilities[place][rows]
                found[rows] = forest_weights.pooled(*parts, weight)
                own.filled[rows, place] = found[rows].argmax(1)
            else:
                gap = other.filled[rows, place] - own.filled[rows, place]
                own.filled[rows, place] += weight * gap
        return own

    def _by_forests(self, X, start, trees=None):
        """Predict missing cells of validated rows by the forests alone.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features_in_)
        start : Predicted
            Where the chains start.
        trees : dict
            See `column_forests.predict`.

        Returns
        -------
        Predicted
        """
        chains = Chains(int(self.n_draws), **_SWEEPS)
        forests, ranks = self._in_order(), Ranks(self._values)
        filled = start.filled.copy()
        levels = {place: one.copy() for place, one in start.probabilities.items()}
        parts = incomplete_chunks(self._schema, X, int(self.n_draws))
        for (rows, columns), nodes in parts:
            some = trees and {j: one[:, rows[:, 0]] for j, one in trees.items()}
            missing = np.isnan(nodes)
            first = ranks.encoded(np.where(missing, filled[rows, columns], nodes))
            numbers = _numbers_of(nodes)
            found = column_forests.predict(
                forests, first, missing, chains, numbers, some
            )
            for node, cells in found.items():
                place, part = columns[0, node], rows[missing[:, node], 0]
                if place in levels:
                    levels[place][part] = cells
                else:
                    filled[part, place] = cells[:, 0]
        return Predicted(filled, levels)

    def _in_order(self):
        """List the forests, by increasing numbers of missing cells at `fit`."""
        return [ColumnForest.of_plain(one) for one in self._forests]

    def _models_of_draws(self, n_draws, *, is_joint=True):
        def draw(nodes, number, limits=None):
            table = np.full((len(nodes), self.n_features_in_), np.nan)
            table[:, self.feature_indices_] = nodes
            seed = int(torch.randint(2**31, ()))
            return self._completions(self, table, number, seed)

        return [SimpleNamespace(draw=draw)] * n_draws

    def _drawn_tables(self, X, n_draws, random_state, limits=None):
        rng = np.random.default_rng(seed_from(random_state))
        tables = self.model_._drawn_tables(X, n_draws, rng)
        kept = self._nodes_out()
        rows = np.flatnonzero(np.isnan(X[:, self.feature_indices_]).any(1))
        if not len(rows):
            return tables
        cells = np.ix_(np.arange(n_draws), rows, kept)
        ranks = Ranks(self._values).encoded(tables[cells])
        missing = np.isnan(X[np.ix_(rows, self.feature_indices_)])
        chosen = column_forests.redraw(
            self._in_order(), ranks, missing, self.weights_, int(self.n_steps), rng
        )
        for node, values in enumerate(self._values):
            table, row = chosen[..., node].nonzero()
            drawn = values[ranks[table, row, node].astype(int)]
            tables[table, rows[row], kept[node]] = drawn
        return tables


def _numbers_of(nodes):
    """Make uniform numbers that are functions of the rows of nodes."""
    numbers = row_keyed(nodes, 0)

    def uniforms(number, shape):
        return numbers(number, torch.empty(shape, dtype=torch.float64)).numpy()

    return uniforms
