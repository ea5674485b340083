"""An imputer that draws missing cells from variational autoencoders."""

import inspect
from functools import partial

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._core.samplers import Sampler
from skvnce._core.warnings import warn_user
from skvnce._imputer.callbacks import shows_progress
from skvnce._imputer.held_out import HELD_OUT, hold_out
from skvnce._imputer.options import Option
from skvnce._imputer.parts.stream import check_can_stream
from skvnce._imputer.validation import (
    AUTO,
    OF_CATEGORIES,
    integer_from,
    names_table,
    read_table,
)
from skvnce.autoencoder import sampling
from skvnce.autoencoder.estimator import VariationalAutoencoder
from skvnce.autoencoder.members import (
    OF_MEMBERS,
    DrawnByMembers,
    EncoderMember,
    bounds_of_nodes,
    reject_categories,
)
from skvnce.autoencoder.model import WithoutCells
from skvnce.autoencoder.options import ACMWG, LAIR, MWG, TorchMember, TorchVAE


class LAIRImputer(DrawnByMembers):
    """Impute by draws from variational autoencoders given the observed cells.

    Autoencoders are trained on rows with missing values, and missing cells (NaN) are
    drawn from ``p(x_mis | x_obs)`` of the model by latent-adaptive importance
    resampling (LAIR).  LAIR proposes latents from the encoder, both at current
    imputations and at the row with missing values, and weights them by the likelihood
    of the observed cells.  `transform` fills missing cells by the mean of draws, and
    `sample` returns draws.  Data frames may have categories, whose most probable levels
    `transform` fills in; `category_probabilities` returns the probabilities of all.

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
        `skvnce._core.samplers.Sampler`.  The classes are in `skvnce.options`.  Except
        with LAIR, each draw is the last state of a chain.
    n_estimators : "auto" or int, default="auto"
        Number of autoencoders to train.  If there are several, each gets random weights
        of the rows whose variance is an eighth of that of the Bayesian bootstrap (Rubin
        1981), and all are trained for the number of rounds that held-out cells choose
        for the first one.  Draws come from each in turn, so that they include the
        uncertainty of the parameters.  ``"auto"`` is 40 columns / rows, rounded up, and
        at most 4; it is 1 from 40 rows a column on.  A frozen model counts as one.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` summarises the draws of a number.  Medians have the smallest
        mean absolute error.  Categories always get their most probable level.
    n_steps : int, default=20
        Number of iterations of LAIR, or of moves of each chain of the other samplers.
        `transform` by LAIR needs fewer: 8, or as many as make 1.5 proposals for each
        draw.
    n_draws : int, default=128
        Number of draws that `transform` summarises.  By LAIR they are spread evenly
        over the distribution: their means have smaller errors than those of independent
        draws.  If it is smaller than the number of members, some members are not used.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Bounds of imputed cells: a number for all columns, one bound for each column, or
        a dict by column name.  Missing cells are drawn conditionally on lying within
        these bounds.  ``"observed"`` is the smallest or the largest observed value, and
        -inf and inf mean no bound.  With None, draws follow the model beyond the
        observed range, but keep the sign of columns of one sign, and are observed
        values in columns of at most ten values that repeat.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, as in scikit-learn's imputers.  ``np.nan``, None
        and pandas.NA are one marker: cells of each of them, and NaT, are missing.  Of
        other markers a number marks numbers that equal it, and a text equal text; NaN
        is then an error, and cells that stay missing keep the marker.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, filled by
        0 or by the value within the bounds that is nearest to 0, or drops them.  Kept
        columns of categories stay missing: they have no level.
    add_indicator : bool, default=False
        Whether `transform` appends a binary column for each column with missing cells
        at `fit`, which is 1 where the cell is missing.  `sample` does not append them.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column, or if
        the model predicts held-out cells of a column significantly worse than the mean
        of the column does (`held_out_gain_`): it warns
        (`skvnce.exceptions.MisfitWarning`) or raises a ValueError.  ``"ignore"`` skips
        these checks.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, see `GaussianImputer`.  It replaces that of
        `model`; the levels of a frozen model stay as they are.
    handle_unknown : {"error", "missing"}, default="error"
        What a level that `fit` has not observed is: an error, or a missing value.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training; replaces the `random_state` of `model`.
    verbose : int, default=0
        If 1, print a line for each round of each member, and for each other step of
        `fit`, `transform` and `sample` that takes longer than a second.  If 2, print
        all steps.

    Attributes
    ----------
    estimators_ : list of VariationalAutoencoder
        The fitted members; empty if all columns of X are constant.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    categories_ : dict of str to ndarray
        The levels of columns of categories, see `GaussianImputer`.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.  They fill missing cells.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X, in codes of levels and
        in microseconds for dates.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of the column
        means, on the cells of at most 1000 rows that the first member held out to
        choose the number of rounds; all columns have the same weight.  In columns of
        categories log-losses take the place of squared errors, and shares of levels
        that of means.  Negative if the means predict better.  NaN if no cells were held
        out (the model's ``solver=Adam(validation_fraction=0)``, too few rows), and with
        ``on_misfit="ignore"``.  For a frozen model a tenth of the cells of X is used,
        so the value is too large if these were training data.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts significantly worse than their means, and
        heavy-tailed columns that it does not predict better.  They are imputed from
        their observed values: `transform` fills in the mean (median, mode) or the most
        frequent level, and `sample` draws from them.
    indicator_ : MissingIndicator or None
        The indicator that `add_indicator` appends; None if it is False.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    Draws are for filling, and `sample` warns: the parameters count as known, so that
    intervals of estimates that are pooled over draws are too narrow.  See the page of
    validity for their coverage.

    Draws of columns with repeated values are observed values, and draws of integer
    columns are integers; means are in data frames, and need not be in arrays.  Bounds
    apply to draws, not to the training or to `score_samples`.  The random numbers of
    `transform` are functions of the row, so that a row is filled by the same values in
    any table.  If `sampler` is a function without the parameter ``uniforms``, this
    holds only within the same table.  Probabilities of levels are averaged over the
    latents that `sampler` draws, and over the members.

    There is no `n_jobs`: members are trained one after the other.

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
        "sampler": [StrOptions(set(sampling.SAMPLERS)), LAIR, ACMWG, MWG, callable],
        "n_estimators": [AUTO, integer_from(1)],
        **OF_MEMBERS,
        **OF_CATEGORIES,
    }

    def __init__(
        self,
        model=None,
        *,
        sampler="lair",
        n_estimators="auto",
        strategy="mean",
        n_steps=20,
        n_draws=128,
        min_value=None,
        max_value=None,
        missing_values=np.nan,
        keep_empty_features=False,
        add_indicator=False,
        on_misfit="warn",
        categorical_features="from_dtype",
        handle_unknown="error",
        random_state=None,
        verbose=0,
    ):
        self.model = model
        self.sampler = sampler
        self.n_estimators = n_estimators
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.min_value = min_value
        self.max_value = max_value
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.on_misfit = on_misfit
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _read_for_fit(self, X, sample_weight):
        if sample_weight is not None and not self._trains_model():
            warn_user(
                f"sample_weight has no effect: model={self.model!r} is not trained. "
                "Leave it out, or pass a VariationalAutoencoder that is not frozen."
            )
        frozen = isinstance(self.model, FrozenEstimator)
        return read_table(self, X, like=self.model.estimator if frozen else None)

    def _members(self, schema, X, weights):
        if self._trains_model():
            return super()._members(schema, X, weights)
        if isinstance(self.model, FrozenEstimator):
            member = self._thawed(schema)
            schema = self._with_bounded_values(schema, X, frozen=member)
        else:
            reject_categories(
                schema,
                "TorchVAE models numbers. Encode the column, or pass a "
                "VariationalAutoencoder.",
            )
            schema = self._with_bounded_values(schema, X)
            member = TorchMember(self.model, schema.n_columns)
        return schema, [member], self._in_view_of(member, X)

    @names_table
    def partial_fit(self, X, y=None):
        """Go on learning from more rows.

        The first call is `fit`.  All members learn by the schedule of
        `VariationalAutoencoder.partial_fit`: the fit is repeated when the number of
        rows has doubled, up to 20,000 rows, and every other call goes on training.  The
        first member chooses the number of rounds.  Several members get new random
        weights of the rows in each call.  Ranges grow with the observed cells.
        `held_out_gain_` and `marginal_columns_` are those of the last fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None
            Ignored.

        Returns
        -------
        self : LAIRImputer

        Raises
        ------
        ValueError, TypeError, DivergenceError
            As in `fit`; ValueError also if the number of columns changed, if `model` is
            frozen or a `TorchVAE`, which nothing trains, or if its `algorithm` is
            ``"vbgi-vae"``.
        """
        return self._set(self._copy()._partial_fit(X))

    @shows_progress
    def _partial_fit(self, X):
        """Do what `partial_fit` does, on a copy that has no other user."""
        self._check_parameters()
        if not self._trains_model():
            raise ValueError(
                f"This imputer does not train model={self.model!r}. Call partial_fit "
                "of the VariationalAutoencoder, or pass it without FrozenEstimator."
            )
        if self.model is not None:
            check_can_stream(self.model.algorithm)
        if not hasattr(self, "estimators_"):
            return self._start_stream(X)
        keep = partial(setattr, self, "estimators_")
        return self._train_further(self.estimators_, keep, X)

    def _trains_model(self):
        return not isinstance(self.model, FrozenEstimator | TorchVAE)

    def _thawed(self, schema):
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

    def _in_view_of(self, member, X):
        """Hide cells from a frozen model; list at most one `WithoutCells`."""
        nodes = X[:, member.feature_indices_].astype(np.float64)
        seen = [column[~np.isnan(column)] for column in nodes.T]
        # a column of one value has no scale for its errors
        if any(len(np.unique(cells)) < 2 for cells in seen):
            return []
        _, hidden = hold_out(nodes, torch.ones(len(nodes)).double(), HELD_OUT)
        return [WithoutCells(member, nodes, hidden.numpy())]

    def _base(self):
        return VariationalAutoencoder() if self.model is None else clone(self.model)

    def _member_model(self, member, schema):
        how = self._rule(), int(self.n_steps), bounds_of_nodes(schema)
        return EncoderMember(member._encoder_model(), *how, member._n_scored())

    def _rule(self):
        """Get the rule of `vae.sampling` that `sampler` stands for."""
        if isinstance(self.sampler, str):
            return sampling.SAMPLERS[self.sampler]()
        if isinstance(self.sampler, Option):
            return self.sampler._rule()
        keyed = "uniforms" in inspect.signature(self.sampler).parameters

        def make(model, posterior, uniforms):
            options = {"uniforms": uniforms} if keyed else {}
            found = self.sampler(model, posterior, **options)
            if not isinstance(found, Sampler):
                raise ValueError(
                    "sampler must return a skvnce._core.samplers.Sampler of (model, "
                    f"posterior), got {found!r}."
                )
            return found

        return sampling.by_chains(make)
