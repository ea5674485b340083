"""An imputer that draws missing cells from variational autoencoders."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._core.models import Sampler
from skvnce._core.progress import steps
from skvnce._core.random import seed_from, seeded
from skvnce._core.runtime import one_thread
from skvnce._core.warnings import warn_user
from skvnce._imputer import validation
from skvnce._imputer.callbacks import CallbackSupportMixin, report_rounds, reports_fit
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.held_out import HELD_OUT, hold_out
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.validation import Adam, Option
from skvnce._tables import model_columns
from skvnce._tables.values import constant_columns
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.autoencoder import samplers
from skvnce.autoencoder.estimator import VariationalAutoencoder
from skvnce.autoencoder.model import (
    EncoderMember,
    Ensemble,
    WithoutCells,
    bounds_of_nodes,
)
from skvnce.autoencoder.options import (
    ACMWG,
    LAIR,
    MWG,
    TorchMember,
    TorchVAE,
    sampler_of,
)
from skvnce.gaussian.latent.columns import NUMERIC

OF_MEMBERS = {  # constraints of the parameters that the imputers share
    **validation.OF_IMPUTERS,
    "strategy": validation.STRATEGY,
    "n_steps": [validation.integer_from(1)],
    "n_draws": [validation.integer_from(1)],
    **validation.OF_LIMITS,
    **validation.OF_FITS,
}
_SEVERAL, _ENOUGH = 4, 40  # maximum number of members; rows per column where 1 suffices
_REMEDY = "GaussianImputer may fill them better; logarithms of skewed columns may help."


class DrawnByMembers(CallbackSupportMixin, Imputer):
    """Base class of imputers whose members are in `estimators_`.

    The imputers have the parameters `n_draws`, `strategy`, `min_value`, `max_value` and
    `on_misfit`.
    """

    # parameters of members count as known in draws
    _has_density = _is_for_filling = True
    _network = "decoder"  # of a member, in messages

    @reports_fit
    def fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train the models, unless they are trained already.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies: a row of weight k counts as k equal rows, up to the random
            numbers of the training, which draws rows in proportion to their weights.
            Divide the sampling weights of a survey by their mean.

        Returns
        -------
        self : object
            The fitted imputer.

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no cell is observed, if observed
            cells are outside the bounds, if X has categories and the model is one of
            numbers, if a frozen model was fitted on another number of columns, if
            `log_prob` of a density returns a wrong shape, or if a parameter is out of
            range.
        DivergenceError
            If training diverges.
        TypeError
            If a parameter has a wrong type, or if a density has no `log_prob`.
        """
        self._check_parameters()
        X, schema = self._read_for_fit(X, sample_weight)
        X, weights = model_columns.weighted_rows(X, sample_weight)
        _, finish = report_rounds(self, None, X=X)
        trained = self._untrained(schema, X) or self._train(schema, X, weights)
        schema, members, unseen = trained
        fitted = self._checked_members(schema, members, X, unseen, weights)
        finish()
        return self._publish(fitted)

    def to_torch(self) -> Any:
        """Return the fitted model of the first member.

        Returns
        -------
        torch.nn.Module
            A copy on the CPU, in double precision and without gradients, of scores of
            the columns in `feature_indices_`.  A decoder, as
            `VariationalAutoencoder.to_torch` returns it, has ``prior()`` and
            ``likelihood(z)``; that of a `TorchVAE` is its `model`.  A density has
            ``log_prob(x)``, that of an autoencoder a bound by 16 draws.  Its input are
            ``(X - location_) / scale_`` of ``estimators_[0]``, mapped nonlinearly where
            its `nonlinear_columns_` is True, and codes of levels; it is your own module
            if you passed one.
        """
        check_is_fitted(self)
        if not self.estimators_:
            raise ValueError(
                f"All columns were constant at fit: there is no {self._network}."
            )
        return self.estimators_[0].to_torch()

    def _read_for_fit(self, X, sample_weight):
        """Validate the table of a fit, and return its schema."""
        return validation.read_table(self, X, weights=sample_weight)

    def _untrained(self, schema, X):
        """Return what `_train` does, of a model that is trained already; else None."""

    def _train(self, schema, X, weights):
        """Train a first member, then the others for as many rounds.

        Weights (n_samples,) are those of the rows in EM and in training.  Returns the
        schema with valid values, the members, and a list of a `WithoutCells` of the
        first if it is checked.
        """
        schema = self._with_bounded_values(schema, X)
        self._report_columns(schema, X)
        base, fitted, unseen = self._base(), [], []
        if is_constant(X):
            return schema, fitted, unseen
        on_chosen = None if self.on_misfit == "ignore" else unseen.append
        read = schema.as_read._replace(values=schema.values)
        count = count_members(self.n_estimators, X, weights)
        members = seeds_and_weights(count, len(X), self.random_state, weights)
        with warnings.catch_warnings():  # the imputer has given this warning already
            warnings.filterwarnings("ignore", "Entirely missing|Constant where")
            for seed, row_weights in steps("member", members, count, has_parts=True):
                first = fitted[0] if fitted else None
                if "random_state" in base.get_params(deep=False):
                    base.set_params(random_state=seed)
                member = clone(base)
                member._publish(
                    member._fit_table(read, X, seed, row_weights, on_chosen, first)
                )
                self._warn_of_divergence(schema, member)
                fitted.append(member)
                # the first member has chosen the number of rounds for all
                solver = Adam(**member._solver() | {"validation_fraction": 0})
                base.set_params(max_iter=member.best_iter_, solver=solver)
        return schema, fitted, unseen

    def _base(self):
        """Make the unfitted member that is cloned."""
        raise NotImplementedError

    def _warn_of_divergence(self, schema, member):
        """Warn of columns whose chains have left the observed range."""

    def _cell_model(self):
        schema = self._schema
        members = self._drawing_models(self.n_draws)
        return Ensemble(members, int(self.n_draws), schema.values, schema.model_columns)

    def _drawing_models(self, n_draws, rows=None):
        models = [member._row_model() for member in self.estimators_]
        return [self._member_model(model, self._schema) for model in models]

    def _marginal_columns(self):
        levels = self._schema.is_categorical
        return {
            j: marginal if levels[j] else marginal._replace(best=marginal.values.mean())
            for j, marginal in super()._marginal_columns().items()
        }

    def _member_model(self, model, schema):
        """Make a `Member` of the result of `_row_model`."""
        raise NotImplementedError

    def _with_one_draw(self):
        members = [[member] for member in self.estimators_]
        return self._copies_with("estimators_", members) or [self]

    def _report_columns(self, schema, X):
        """Warn of empty columns, and of those with cells far from the others."""
        model_columns.warn_of_empty(schema, X, self._handling(schema))
        columns, observed = schema.columns, model_columns.observed_columns(schema, X)
        numbers = [j for j in observed if not columns or columns[j].kind == NUMERIC]
        self._report_tails(schema, X, numbers)

    def _with_members(self, schema, members, X):
        """Choose the columns of members; without members all are constant."""
        handling = self._handling(schema)
        if members:
            chosen = members[0].feature_indices_, members[0].constants_
            schema = schema._replace(model_columns=chosen[0], constants=chosen[1])
            model_columns.warn_of_constants(schema, X, handling)
            return schema
        schema = schema._replace(
            model_columns=model_columns.observed_columns(schema, X)
        )
        return model_columns.without_constants(schema, X, handling)

    def _checked_members(self, schema, members, X, unseen, weights=None):
        """Check predictions of cells that the fit of the first member has not used.

        `unseen` lists a `WithoutCells` of the first member, none if no cells were held
        out.  Weights (n_samples,) are positive; None means 1 for each.  Returns
        `Fitted`, whose models are those of `estimators_`.
        """
        schema = self._with_members(schema, members, X)
        columns = schema.model_columns
        if unseen:
            model, nodes, hidden = unseen[0]
            if weights is not None and len(nodes) < len(X):  # without empty rows
                observed = ~np.isnan(X[:, columns].astype(np.float64))
                weights = weights[observed.any(1)]
        else:
            model, nodes = None, X[:, columns].astype(np.float64)
            hidden = np.zeros(nodes.shape, dtype=bool)

        def predict(visible, rows):
            # a sampler may draw from torch's stream
            with one_thread(), seeded(0):
                member = self._member_model(model, schema)
                cells, probabilities = member.mean(visible[rows])
            return schema.values.clipped(cells, columns), probabilities

        options = {"weights": weights, "hidden": hidden}
        checked, result = self._held_out(schema, nodes, predict, **options)
        self._report_misfit(checked, result, _REMEDY)
        # rows of a call of `fit` itself are not kept
        report = {"estimators_": members, **result.report()}
        return Fitted(checked, None, report | self._report_of_missing(checked, X))

    def _with_bounded_values(self, schema, X, frozen=None):
        """Determine the valid values of each column.

        If the only member was frozen, they are those of its training table, except for
        bounds that the user passes.
        """
        # members check the scale of each column, and raise an error
        with np.errstate(over="ignore", invalid="ignore"):
            schema = self._with_values(schema, X)
        validation.warn_of_unused_by_levels(self, schema)
        if frozen is None:
            return schema
        values, trained = schema.values, frozen._schema.values
        low, high = np.where(values.by_user, values.ranges, trained.ranges)
        # the user's min_value may be above all that the frozen model has seen
        ends = {"low": low, "high": np.maximum(low, high), "by_user": values.by_user}
        return schema._replace(values=trained._replace(**ends))

    def _checked(self, X):
        X = super()._checked(X)
        for member in self.estimators_:
            if not np.array_equal(member.feature_indices_, self.feature_indices_):
                raise ValueError(
                    "model was refitted to other columns after this imputer was "
                    "fitted. Fit the imputer again."
                )
        return X


def reject_categories(schema, reason):
    """Raise an error that names the columns of categories, if there are any."""
    names = [
        schema.label(place)
        for place, column in enumerate(schema.columns or ())
        if column.kind != NUMERIC
    ]
    if names:
        have = "has" if len(names) == 1 else "have"
        raise ValueError(f"{', '.join(names)} {have} categories, and {reason}")


def count_members(n_members, X, weights=None):
    """Return the number of members; "auto" depends on the table of training rows."""
    if isinstance(n_members, str):
        n = len(X) if weights is None else weights.sum()
        return min(_SEVERAL, ceil(_ENOUGH * X.shape[1] / n))
    return int(n_members)


def seeds_and_weights(count, n, random_state, weights=None):
    """Yield a seed and random weights of n rows for each member; one has `weights`."""
    rng = np.random.default_rng(seed_from(random_state))
    for _ in range(count):
        seed = int(rng.integers(2**31))
        if count > 1:
            yield seed, model_columns.random_weights(rng, n, weights)
        else:
            yield seed, weights


def is_constant(X):
    """Return whether no column of a table has two different observed values."""
    observed = X[:, ~np.isnan(X).all(0)].astype(np.float64)
    return bool(constant_columns(observed).all())


# ----------------------------------------
# An imputer that draws missing cells from variational autoencoders.


class LAIRImputer(DrawnByMembers):
    """Impute by draws from variational autoencoders given the observed cells.

    Autoencoders are trained on rows with missing values, and missing cells (NaN) are
    drawn from ``p(x_mis | x_obs)`` of the model by latent-adaptive importance
    resampling (LAIR).  LAIR proposes latents from the encoder, both at current
    imputations and at the row with missing values, and weights them by the likelihood
    of the observed cells.  `transform` fills in means of draws, `sample` returns draws,
    and `category_probabilities` probabilities of levels.

    Parameters
    ----------
    model : VariationalAutoencoder, FrozenEstimator of one, TorchVAE or None, \
            default=None
        The autoencoder to train; None is ``VariationalAutoencoder()``.  A fitted one in
        a `sklearn.frozen.FrozenEstimator` is not trained, only sampled, and neither is
        a `skvnce.options.TorchVAE`, your own autoencoder in torch.
    sampler : str, LAIR, ACMWG, MWG or callable, default="lair"
        ``"lair"``, or a `LAIR` with other proposals; ``"ac-mwg"`` or `ACMWG`, adaptive
        collapsed-Metropolis-within-Gibbs; ``"mwg"`` or `MWG`, Metropolis-within-Gibbs;
        ``"pseudo-gibbs"``; or a function that maps (model, posterior) to a
        `skvnce._core.models.Sampler`.  The classes are in `skvnce.options`.  Except
        with LAIR, each draw is the last state of a chain.  `score` is the density of
        observed cells, the same for all samplers: compare samplers by hidden cells
        (`skvnce.evaluation.imputation_report`).
    n_estimators : "auto" or int, default="auto"
        Number of autoencoders to train.  Several get random weights of the rows, whose
        variance is an eighth of that of the Bayesian bootstrap (Rubin 1981), and as
        many rounds as held-out cells choose for the first one.  Draws come from each in
        turn, and vary less than parameters of a posterior would.  ``"auto"`` is 40
        columns / rows, rounded up, and at most 4.  A frozen model counts as one.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` summarises the draws of a number.  Categories always get their
        most probable level.
    n_steps : int, default=20
        Number of iterations of LAIR, of which `transform` needs fewer (8, or as many as
        make 1.5 proposals for each draw), or of moves of each chain of other samplers.
    n_draws : int, default=128
        Number of draws that `transform` summarises, by LAIR evenly spread ones.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Bounds of imputed cells, see `GaussianImputer`.  With None, draws follow the
        model, but keep the sign of columns of one sign, and codes stay codes.
    relations : None, "auto" or list, default=None
        The exact relations between columns that filled tables obey; see `TableImputer`.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, see `GaussianImputer`.
    keep_empty_features : bool, default=False
        Whether to keep columns that were entirely missing at `fit`, see
        `GaussianImputer`.
    add_indicator : bool, default=False
        Whether `transform` appends columns that mark missing cells.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate a column's squared errors, or if
        held-out cells are predicted significantly worse than by its mean
        (`held_out_gain_`).
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, see `GaussianImputer`.  It replaces that of
        `model`; the levels of a frozen model stay as they are.
    handle_unknown : {"error", "missing"}, default="error"
        What a level that `fit` has not observed is: an error, or missing.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training; replaces the `random_state` of `model`.
    verbose : int, default=0
        If 1, print a line for each round and each step of more than a second; 2, all.

    Attributes
    ----------
    estimators_ : list of VariationalAutoencoder
        The fitted members; empty if all columns of X are constant.
    relations_ : list of `skvnce.relations.search.Relation`
        The relations that are used.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of the model: those with at least two different values.
    categories_ : dict of str to ndarray
        The levels of columns of categories, see `GaussianImputer`.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of the column
        means (of log-losses for categories), on held-out cells of at most 1000 rows, or
        cells of X for a frozen model.  NaN with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns predicted worse than by means, and imputed from observed values.
    indicator_ : MissingIndicator or None
        The indicator that `add_indicator` appends; None if it is False.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    Draws are for filling, and `sample` warns: they ignore much of the uncertainty of
    the parameters, so that pooled intervals are too narrow; see the page of
    validity.  There is no `n_jobs`: members are trained one after the other.

    Bounds apply to draws, not to the training or to `score_samples`.  `transform` fills
    a row by the same values in any table, unless `sampler` is a function without the
    parameter ``uniforms``.

    References
    ----------
    Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
    iterated approximate ancestral sampling, eqs. (2)-(6), algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import LAIRImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) * [1.0, 2.0] + 0.1 * rng.normal(size=(100, 2))
    >>> X[0, 1] = np.nan
    >>> imputer = LAIRImputer(random_state=0).fit(X)
    >>> bool(abs(imputer.transform(X)[0, 1] - 2 * X[0, 0]) < 0.5)
    True
    >>> [table.shape for table in imputer.sample(X, n_draws=2, random_state=0)]
    [(100, 2), (100, 2)]
    """

    _parameter_constraints = {
        "model": [None, VariationalAutoencoder, FrozenEstimator, TorchVAE],
        "sampler": [StrOptions(set(samplers.SAMPLERS)), LAIR, ACMWG, MWG, callable],
        "n_estimators": [validation.AUTO, validation.integer_from(1)],
        **OF_MEMBERS,
    }

    def __init__(
        self,
        model: Any = None,
        *,
        sampler: str | LAIR | ACMWG | MWG | Callable[..., Any] = "lair",
        n_estimators: int | Literal["auto"] = "auto",
        strategy: Literal["mean", "median", "mode"] = "mean",
        n_steps: int = 20,
        n_draws: int = 128,
        min_value: ByColumn | None = None,
        max_value: ByColumn | None = None,
        relations: Sequence[Any] | Literal["auto"] | None = None,
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.sampler = sampler
        self.n_estimators = n_estimators
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.min_value = min_value
        self.max_value = max_value
        self.relations = relations
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.on_misfit = on_misfit
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    _parts = {"model": lambda _: VariationalAutoencoder(), "sampler": sampler_of}

    def _read_for_fit(self, X, sample_weight):
        if sample_weight is not None and not self._trains_model():
            warn_user(
                f"sample_weight has no effect: model={self.model!r} is not trained. "
                "Leave it out, or pass a VariationalAutoencoder that is not frozen."
            )
        frozen = isinstance(self.model, FrozenEstimator)
        like = self.model.estimator if frozen else None
        return validation.read_table(self, X, like=like, weights=sample_weight)

    def _check_parameters(self):
        super()._check_parameters()
        if self._trains_model():
            self._base()._check_parameters()

    def _untrained(self, schema, X):
        if self._trains_model():
            return None
        if isinstance(self.model, FrozenEstimator):
            member = self._thaw(schema)
            schema = self._with_bounded_values(schema, X, frozen=member)
        else:
            reject_categories(
                schema,
                "TorchVAE models numbers. Encode the column, or pass a "
                "VariationalAutoencoder.",
            )
            schema = self._with_bounded_values(schema, X)
            member = TorchMember(self.model, schema.n_columns)
        return schema, [member], self._hide_cells(member, X)

    def _trains_model(self):
        return not isinstance(self.model, FrozenEstimator | TorchVAE)

    def _thaw(self, schema):
        """Check that a frozen model fits the table."""
        inside = self.model.estimator
        if not isinstance(inside, VariationalAutoencoder):
            raise ValueError(
                f"model must be a FrozenEstimator of a VariationalAutoencoder, got one "
                f"of {inside!r}."
            )
        try:
            check_is_fitted(inside)
        except NotFittedError as error:
            raise ValueError(
                "model is frozen but not fitted. Fit the VariationalAutoencoder "
                "first, or pass it without FrozenEstimator."
            ) from error
        if inside.n_features_in_ != schema.n_columns:
            raise ValueError(
                f"model was fitted on {inside.n_features_in_} columns, and X has "
                f"{schema.n_columns}. Pass the columns that it was fitted on."
            )
        names, mine = getattr(inside, "feature_names_in_", None), schema.names
        if names is not None and mine is not None and list(names) != list(mine):
            wrong = next(
                j for j, (a, b) in enumerate(zip(names, mine, strict=True)) if a != b
            )
            raise ValueError(
                f"model was fitted on column {names[wrong]!r} where X has "
                f"{mine[wrong]!r}. Pass the columns that it was fitted on, in order."
            )
        return inside

    def _hide_cells(self, member, X):
        """Hide cells from a frozen model; list at most one `WithoutCells`."""
        nodes = X[:, member.feature_indices_].astype(np.float64)
        columns = [column[~np.isnan(column)] for column in nodes.T]
        # a column of one value has no scale for its errors
        if any(len(np.unique(cells)) < 2 for cells in columns):
            return []
        _, hidden = hold_out(nodes, torch.ones(len(nodes)).double(), HELD_OUT)
        return [WithoutCells(member._row_model(), nodes, hidden.numpy())]

    def _base(self):
        return VariationalAutoencoder() if self.model is None else clone(self.model)

    def _member_model(self, model, schema):
        bounds = bounds_of_nodes(schema)
        return EncoderMember(model, self._rule(), int(self.n_steps), bounds)

    def _rule(self):
        """Get the rule of drawing that `sampler` stands for."""
        if isinstance(self.sampler, str):
            return samplers.SAMPLERS[self.sampler]()
        if isinstance(self.sampler, Option):
            return self.sampler._rule()
        keyed = "uniforms" in inspect.signature(self.sampler).parameters

        def make(model, posterior, uniforms):
            options = {"uniforms": uniforms} if keyed else {}
            sampler = self.sampler(model, posterior, **options)
            if not isinstance(sampler, Sampler):
                raise ValueError(
                    "sampler must return a skvnce._core.models.Sampler of (model, "
                    f"posterior), got {sampler!r}."
                )
            return sampler

        return samplers.by_chains(make)
