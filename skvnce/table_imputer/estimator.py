"""The recommended imputer, for a filled table and for inference."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.random import seed_from
from skvnce._core.warnings import warn_user
from skvnce._imputer.callbacks import CallbackSupportMixin, report_rounds, reports_fit
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.related import places_of_sets, with_codes
from skvnce._imputer.validation import (
    AUTO,
    BOUND,
    OF_IMPUTERS,
    RANDOM_STATE,
    STRATEGY,
    integer_from,
    warn_of_unused_by_levels,
)
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.relations.lookups import Lookup
from skvnce.table_imputer.expansion import MOST_INDICATORS
from skvnce.table_imputer.fit import Problem, fit_table
from skvnce.table_imputer.model import Settings, explain_singular

_PRIOR = 0.05  # rows of the prior of a covariance, for each of its columns


class TableImputer(CallbackSupportMixin, Imputer):
    """Impute tables of any kind: one class for a filled table and for inference.

    One normal distribution is fitted to an expanded table: numbers and their normal
    scores, indicators of levels, and selected squares and products.  Forests predict
    its residuals, with weights that are chosen on held-out cells.  `transform` fills
    means and most probable levels, and `sample` draws cells for pooled analyses.

    Parameters
    ----------
    interactions : "auto", None or list of (name, name), default="auto"
        The squares and products of columns in the model.  ``"auto"`` tests them on
        held-out residuals, and draws use each with its posterior probability.
        A list has pairs of columns, by name or as the first two of an entry of
        `interactions_`; a pair of equal columns is a square; a column of unordered
        levels has a product for each level but the most frequent one.
    relations : "auto", None or list, default="auto"
        The exact relations between columns (totals, logarithms, products, sets of
        dummies, codes and their names) that filled tables satisfy.  ``"auto"`` uses
        what `find_relations` finds; a list has some of these, or their texts.  A
        missing cell that follows from observed ones is computed.  `transform` satisfies
        formulas and sets; `sample` sums, sets and functions of one column, not
        products (von Hippel 2009).  Not for tables in parts.
    n_estimators : "auto" or int, default="auto"
        Number of trees of each forest.  ``"auto"`` is 21 to 80; 0 grows none.
    n_parameter_draws : int, default=20
        Number of draws of the parameters, of which `sample` takes one after the other;
        for more tables than that, raise it to their number.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` fills numbers: by conditional means, medians or modes.
        Categories always get their most probable level.  Whole numbers of at most ten
        values in data frames are ordered categories, unless ``categorical_features=
        {"rooms": "numeric"}``, for example, names them.
    min_value, max_value : None, "observed", float, array-like of shape \
            (n_features,) or dict, default=None
        Bounds of imputed values.  None bounds columns of non-negative, or of
        non-positive, numbers by 0, and others, and dates, not at all; ``-np.inf``, or
        ``np.inf``, says that they may be beyond 0.  ``"observed"`` is the smallest or
        the largest observed cell.  Those of columns of dates are dates.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, as in scikit-learn's imputers.  ``np.nan``, None
        and pandas.NA are one marker, as is NaT; beside another marker NaN is an error.
    keep_empty_features : bool, default=False
        Whether columns that are entirely missing at `fit` are filled with 0 (the bound
        nearest to 0) instead of dropped.
    add_indicator : bool, default=False
        Whether `transform` appends a `sklearn.impute.MissingIndicator`.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns have categories; see `GaussianImputer`.
    handle_unknown : {"error", "missing"}, default="error"
        Whether a category that `fit` has not seen raises a ValueError, or is missing.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the folds, of the trees and of the draws of parameters.
    verbose : int, default=0
        If 1, print the steps that take longer than a second.  If 2, print all.

    Attributes
    ----------
    interactions_ : list of tuple
        The products in the model: two columns, the target that their product predicts,
        and the posterior probability of the product, the largest of its levels.
    relations_ : list of `skvnce.relations.search.Relation`
        The relations that are used.
    n_iter_ : int
        Number of rounds of EM; 0 if all columns are constant.
    feature_indices_ : ndarray of shape (n_model_columns,)
        Indices of the columns of X that are not constant, which the model uses.
    constants_ : dict of int to float or category
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest valid value of each column.
    categories_ : dict of str to ndarray
        The categories of each column, if there are any.
    indicator_ : MissingIndicator or None
        The indicator of missing cells; None without `add_indicator`.
    n_features_in_, feature_names_in_ : int, and ndarray of shape (n_features_in_,)
        Number of features, and their names if they are strings.

    See Also
    --------
    GaussianImputer : Random effects of groups, limits of single cells, densities.
    skvnce.pooling.fit_each : Analyse each of several completed tables.

    Notes
    -----
    The steps; the user guide has the details:

    1. Cells that follow by `relations` are computed, and columns that are functions of
       others leave the model.  Each other column becomes one or several standardised
       columns, which are missing together.
    2. EM (Dempster, Laird and Rubin 1977), extrapolated where it is slow (Varadhan and
       Roland 2008), fits a normal distribution, with a weak prior, to all rows and
       without each of five folds.
    3. Products are chosen by the residuals of held-out cells.
    4. Extremely randomised trees (Geurts, Ernst and Wehenkel 2006) are fitted to these
       residuals, or levels, and weighted by held-out cells.
    5. Parameters are drawn by data augmentation (Tanner and Wong 1987), numbers, their
       logarithms or roots as predictions and residuals of similar rows, by a Bayesian
       bootstrap (Rubin 1981); point masses, signs and grids are kept.

    `GaussianImputer` has `groups`, `lower` and `upper` of cells, `score_samples`,
    `sample_rows` and `partial_fit`.  There is no `n_jobs` (one thread), no `on_misfit`
    (see 4) and no torch module.  Of a table in parts a sample of rows is used.  numba
    compiles loops at the first use, for some ten seconds.

    References
    ----------
    Schafer (1997), Analysis of incomplete multivariate data; von Hippel (2009), How to
    impute interactions, squares, and other transformed variables; Bartlett, Seaman,
    White and Carpenter (2015), Multiple imputation of covariates by fully conditional
    specification: accommodating the substantive model; Geurts, Ernst and Wehenkel
    (2006), Extremely randomized trees.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import TableImputer
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=300)
    >>> X = np.column_stack([x, x**2])
    >>> X[:60, 1] = np.nan
    >>> imputer = TableImputer(random_state=0).fit(X)
    >>> bool(abs(imputer.transform(X)[:60, 1] - x[:60] ** 2).mean() < 0.1)
    True
    >>> [first, second] = imputer.sample(X, n_draws=2, random_state=0)
    """

    _parameter_constraints = {
        "interactions": [AUTO, None, list, tuple],
        "n_estimators": [AUTO, integer_from(0)],
        "n_parameter_draws": [integer_from(1)],
        "min_value": BOUND,
        "max_value": BOUND,
        "strategy": STRATEGY,
        **OF_IMPUTERS,
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        interactions: Sequence[Any] | Literal["auto"] | None = "auto",
        *,
        relations: Sequence[Any] | Literal["auto"] | None = "auto",
        n_estimators: int | Literal["auto"] = "auto",
        n_parameter_draws: int = 20,
        strategy: Literal["mean", "median", "mode"] = "mean",
        min_value: ByColumn | None = None,
        max_value: ByColumn | None = None,
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.interactions = interactions
        self.relations = relations
        self.n_estimators = n_estimators
        self.n_parameter_draws = n_parameter_draws
        self.strategy = strategy
        self.min_value = min_value
        self.max_value = max_value
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    @reports_fit
    def fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the model to the observed cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.  Of a
            table in parts (`skvnce.options.Chunks`, or dask) a sample of the rows is
            used.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies of the rows: for the normal distribution a row of weight k
            counts as k equal rows.  Forests and folds take it as one row of this
            weight, so that fills agree on average over `random_state` only.

        Returns
        -------
        self : TableImputer

        Raises
        ------
        ValueError
            If X has infinite cells or no observed cell, if a parameter is out of range,
            if `interactions` names no column, or one of more than 20 unordered levels,
            if a relation of `relations` does not hold, or if a covariance is singular,
            as with a few rows of weights near 1e9.
        TypeError
            If a parameter has a wrong type.
        """
        table = self._read(X, sample_weight)
        # models of columns draw codes and grids
        schema = table.schema._replace(values=table.schema.values.ranges_alone())
        _, finish = report_rounds(self, None, X=table.cells.table)
        try:
            with self._threads():
                model = self._fitted_model(schema, table.cells)
        except np.linalg.LinAlgError as error:
            raise ValueError(explain_singular(table.cells.weights)) from error
        report = table.report | _report_of(schema, model)
        finish()
        self._warn_of_unused(schema, report["interactions_"])
        if model is not None:
            _warn_of_signs(schema, model)
        return self._publish(Fitted(schema, model, report))

    def _kept_columns(self, schema):
        pairs = self.interactions if isinstance(self.interactions, list | tuple) else ()
        pairs = [pair for pair in pairs if isinstance(pair, list | tuple)]
        return [_place_of(schema, key) for pair in pairs for key in pair]

    def _rows_of_indicator(self, table, cells):
        return table

    def _fitted_model(self, schema, cells):
        if not len(schema.model_columns):
            return None
        columns = schema.columns or [None] * schema.n_columns
        values = [_level_values(columns[j]) for j in schema.model_columns]
        sets = places_of_sets(schema)
        low, high = schema.values.ranges[:, schema.model_columns]
        problem = Problem(
            with_codes(cells.nodes, sets),
            cells.weights,
            np.append(schema.n_categories, [len(members) for members in sets]).astype(
                int
            ),
            values + [None] * len(sets),
            *_related_columns(schema),
            np.flatnonzero((low < 0) & (high > 0)),
        )
        seed = int(np.random.default_rng(seed_from(self.random_state)).integers(2**31))
        trees = None if self.n_estimators == "auto" else int(self.n_estimators)
        settings = Settings(trees, int(self.n_parameter_draws), _PRIOR, seed)
        return fit_table(problem, _pairs_of(schema, self.interactions), settings)

    def _warn_of_unused(self, schema, products):
        """Warn of parameters that have no effect on this table."""
        warn_of_unused_by_levels(self, schema)
        if not isinstance(self.interactions, list | tuple):
            return
        pairs = {tuple(sorted(pair)) for pair in _pairs_of(schema, self.interactions)}
        n_unused = len(pairs) - len({tuple(sorted(pair)) for *pair, _, _ in products})
        if n_unused:
            warn_user(
                f"{n_unused} of the {len(pairs)} pairs in interactions have no effect; "
                "interactions_ lists the others. A product needs a column of numbers, "
                "or of three ordered levels or more, that may depend on it, is in no "
                "other pair, and is observed with both columns in ten rows."
            )

    def _drawing_models(self, n_draws, rows=None):
        model = self._fitted.model
        return [model] if rows is None else model.with_one_draw()


def _warn_of_signs(schema, model):
    """Warn of cells that are cut at 0 where only observed cells have one sign."""
    for q, share in model.negative_shares().items():
        j, sign = schema.model_columns[q], model.source.signs[q]
        of_cut, of_observed = ("negative", "positive")[:: int(sign)]
        bound = "min_value={column: -np.inf}"
        if sign < 0:
            bound = "max_value={column: np.inf}"
        warn_user(
            f"{share:.0%} of the missing cells of {schema.label(j)} seem to be {of_cut}"
            f" by the other columns, and are imputed as {of_observed}, as all observed "
            f"ones are. If they can be {of_cut}, pass {bound}."
        )


def _related_columns(schema):
    """List the places of columns that follow from others, by relations.

    Returns those of columns that are in no model, and of each relation the column that
    it solves for, and those from which that follows.
    """
    if schema.relations is None:
        return (), ()
    related = schema.relations
    place = {int(j): q for q, j in enumerate(schema.model_columns)}
    dropped = [place[j] for j in related.dropped]
    for follower in related.followers:  # of which parents come first
        place[follower.column] = place[follower.source]
    for k, columns in enumerate(related.sets, len(place)):
        place |= dict.fromkeys(columns, k)
    pairs = set()
    for relation in related.checked:
        is_lookup = isinstance(relation.rule, Lookup)
        for column in set(relation.solves).difference(related.dropped):
            others = {place[j] for j in relation.rule.columns} - {place[column]}
            if others:
                pairs.add((place[column], tuple(sorted(others)), is_lookup))
    return dropped, sorted(pairs)


def _level_values(column):
    """Return the values of levels that have an order, else None."""
    if column is None or column.levels is None or column.kind == "nominal":
        return None
    if column.is_count:
        return np.array(column.levels, dtype=float)
    return np.arange(float(len(column.levels)))


def _pairs_of(schema, interactions):
    """Convert pairs of columns to places among the columns of the model."""
    if interactions is None or isinstance(interactions, str):
        return interactions
    places = {int(j): q for q, j in enumerate(schema.model_columns)}
    columns, pairs = schema.columns or [None] * schema.n_columns, []
    for pair in interactions:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"interactions must be pairs of columns, such as ('age', 'bmi'), got "
                f"{pair!r}."
            )
        factors = [_place_of(schema, key) for key in pair]
        for j in factors:
            column = columns[j]
            levels = () if column is None else column.levels or ()
            if len(levels) > MOST_INDICATORS and column.kind == "nominal":
                raise ValueError(
                    f"interactions has {schema.label(j)}, whose {len(levels)} levels "
                    f"have no order; at most {MOST_INDICATORS} may. Leave it out, join "
                    "its levels, or list them in their order in categorical_features."
                )
            if j not in places:
                raise ValueError(
                    f"interactions has {schema.label(j)}, which is constant or not in "
                    "the model. Leave it out."
                )
        pairs.append(tuple(places[j] for j in factors))
    return pairs


def _place_of(schema, key):
    """Find a column by its key, or by its name in `interactions_`."""
    names = schema.all_names.tolist()
    if key not in schema.keys and key in names:
        return names.index(key)
    return schema.index_of(key, "interactions")


def _named(schema, model):
    """List the products of a model: two factors, targets, and a probability."""
    names, expansion, columns = schema.all_names, model.expansion, schema.model_columns
    first = [of_set[0] for of_set in places_of_sets(schema)]
    places = np.append(columns, columns[first])[model.source.order]

    def name(column):
        return str(names[places[expansion.owners[column]]])

    # products of several levels of a column are one
    probabilities = {}
    for p in expansion.products:
        columns = name(p.first), name(p.second), name(p.target)
        probabilities[columns] = max(p.probability, probabilities.get(columns, 0.0))
    return [(*columns, p) for columns, p in probabilities.items()]


def _report_of(schema, model):
    """List what `TableImputer` says of a fitted model."""
    if model is None:
        return {"interactions_": [], "n_iter_": 0}
    n_rounds = 0 if model.normal is None else model.normal.n_rounds
    return {"interactions_": _named(schema, model), "n_iter_": n_rounds}
