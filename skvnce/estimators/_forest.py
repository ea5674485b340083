"""An imputer that averages another imputer with random forests."""

from numbers import Real

import numpy as np
from sklearn.base import clone

from skvnce._memory import check_fit, check_trees, needs_memory
from skvnce._random import seed_from
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._imputer import Imputer
from skvnce.estimators._missing_table import names_table
from skvnce.estimators._mixture import MixtureImputer
from skvnce.estimators._validation import (
    AUTO,
    N_JOBS,
    RANDOM_STATE,
    STRATEGY,
    Number,
    integer_from,
)
from skvnce.estimators._wrapper import ByModel
from skvnce.fits.column_learners import ForestLearner
from skvnce.fits.duration import OF_ALL_COLUMNS, warn_of_duration
from skvnce.fitted.column_forests import Growth
from skvnce.tables.schema import Encoded

_MEMBERS = 4  # of the mixture; with eight, errors hardly decrease beside forests
_TIMED = 100  # maximum number of trees of a forest whose time is measured
# kinds of splits and leaves: for relations without noise, and, by extremely randomised
# trees, for noise
_SHAPES = [("best", 1), ("random", 5)]
# of more than 12 columns a part is enough, and the time grows with it
_ALL, _PART = 12, 1 / 3


class ForestImputer(CallbackSupportMixin, ByModel):
    """Impute by another imputer averaged with random forests.

    Forests find what smooth models miss, such as bands, steps and interactions of
    columns.  `model` is fitted first and completes the table by a draw.  On the
    completed table one forest for each column learns to predict its observed cells from
    the other columns.  These forests, which are small, choose how the trees of each
    column grow, and its weight, and complete the table with `model`; the final forests
    learn from what they completed.  Then predictions are averaged: means of numbers
    arithmetically, probabilities of levels geometrically.  In rows with several missing
    cells the forests' predictions are averages over Gibbs chains, which start at the
    fillings of `model` and draw the missing cells in turn.  `ColumnImputer` does the
    same with any regressor or classifier.

    Parameters
    ----------
    model : imputer of this package or None, default=None
        The other imputer, such as `GaussianImputer` or `LAIRImputer`.  It decides how
        columns are read (`categorical_features`), which of them are passed through, as
        identifiers and free text, about what marks missing cells, bounds, empty
        columns and indicators.  None is ``MixtureImputer(n_estimators=4)``.
    n_estimators : int, default=30
        Number of trees for each column.
    weight : "auto" or float, default="auto"
        Weight of the forests, from 0 to 1.  ``"auto"`` chooses it for each column, by
        the continuous ranked probability score (half the Brier score of categories) of
        draws of the cells of a tenth of the rows, by a clone of `model` and by forests
        that have not seen these rows.  A weight is moved towards those of all columns
        of numbers, or of categories, and towards 0.5, the more the fewer cells there
        are.  Columns of numbers that nearly repeat another one (a squared correlation
        above 0.9975) are left to `model`, whose draws are narrower there than those of
        trees.  A number saves the second fit of `model`.
    n_completions : int, default=3
        Number of completed tables that the final trees are grown on.
    min_samples_leaf : "auto" or int, default="auto"
        Minimum number of rows in a leaf.  ``"auto"`` chooses for each column, by the
        cells that choose `weight`, between trees of the best splits with leaves of one
        row, which suit relations without noise, and extremely randomised trees with
        leaves of five rows.  With a number as `weight` it is the former.
    max_features : "auto" or float, default="auto"
        Share of the columns that a split chooses from; ``"auto"`` takes all of up to 12
        columns, 12 of up to 36, and a third of more.
    max_samples : int, default=10000
        Maximum number of rows, chosen at random, that the forest of a column learns
        from.
    n_draws : int, default=8
        Number of Gibbs chains for each row that `transform` averages over.  Medians and
        modes take 63 chains.
    n_steps : int, default=3
        Number of sweeps of `sample`.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` fills numbers: by their conditional means, medians or modes.
        Medians have the smallest mean absolute error.  Categories always get their most
        probable level.
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
    model_ : imputer
        The fitted imputer.
    weights_ : ndarray of shape (n_nodes,)
        Weight of the forest of each column.  Forests of weight 0 are not kept.
    spreads_ : ndarray of shape (n_nodes,)
        Factor, at most 1, by which the deviations of draws of each column from their
        mean are multiplied, as averages of models draw too widely.
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
    observed value, which `spreads_` moves towards the mean of the cell, as an
    average of models draws too widely (Gneiting and Ranjan 2013).  Probabilities of
    levels are geometric means of those of `model_` and of the forests, which are
    averaged over the Gibbs chains.  Warnings of `fit` are those of `model`: a
    column that `model` imputes from its marginal distribution is still predicted by
    its forest, and `on_misfit` is a parameter of `model`.  There is no density, and
    so no `score`, and no torch module.

    References
    ----------
    Breiman (2001), Random forests; Geurts, Ernst and Wehenkel (2006), Extremely
    randomized trees; Meinshausen (2006), Quantile regression forests; Stekhoven and
    Buehlmann (2012), MissForest; Doove, van Buuren and Dusseldorp (2014),
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
        "min_samples_leaf": [AUTO, integer_from(1)],
        "max_features": [AUTO, Number(Real, 0, 1, closed="right")],
        "max_samples": [integer_from(2)],
        "n_draws": [integer_from(1)],
        "n_steps": [integer_from(1)],
        "strategy": STRATEGY,
        "n_jobs": N_JOBS,
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model=None,
        *,
        n_estimators=30,
        weight="auto",
        n_completions=3,
        min_samples_leaf="auto",
        max_features="auto",
        max_samples=10_000,
        n_draws=8,
        n_steps=3,
        strategy="mean",
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
        self.strategy = strategy
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
        self._check_models()
        needs_memory(type(self), X, reset=True)
        if len(getattr(X, "shape", ())) == 2:
            # before `model` is fitted, which may take long
            check_fit(type(self), X.shape)
            check_trees(int(self.n_estimators), X.shape)
        cells = self._read_table(X)
        self._warn_of_duration(cells)
        rng = np.random.default_rng(seed_from(self.random_state))
        table = Encoded(cells, self._schema)
        self._set_fitted_model(self._fitted_model(rng, table, sample_weight))
        _, finish = report_rounds(self, None, X=cells)
        given = cells, sample_weight, self._learners, self.n_completions, rng
        self._fit_columns(*given)
        finish()
        return self

    def _default_model(self):
        return MixtureImputer(n_estimators=_MEMBERS)

    def _learners(self, nodes):
        """List what may grow the forest of each column."""
        n_levels, width = self._schema.n_categories.tolist(), nodes.shape[1]
        return {
            j: [
                ForestLearner(j, np.delete(np.arange(width), j), n_levels[j], one)
                for one in self._growths()
            ]
            for j in range(width)
        }

    def _growths(self):
        """List how forests may be grown."""
        leaf, share = self.min_samples_leaf, self.max_features
        if isinstance(share, str):
            share = min(1.0, max(_PART, _ALL / len(self.feature_indices_)))
        given = float(share), int(self.max_samples), self.n_jobs
        return [
            Growth(
                int(self.n_estimators),
                kind,
                auto if isinstance(leaf, str) else int(leaf),
                *given,
            )
            for kind, auto in _SHAPES
        ]

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
