"""A variational autoencoder of tables with missing values."""

from copy import copy, deepcopy

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._random import row_lattice, seeded
from skvnce._threads import one_thread
from skvnce.algorithms.vae import autoencoder
from skvnce.distributions.quantiles import at_quantiles, midpoint_levels
from skvnce.estimators._base import ConstantColumns, IncompleteTransformer
from skvnce.estimators._blind import Blind, moved, normal_without, turned_like
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
    shows_progress,
)
from skvnce.estimators._misfit import announce, tail_messages
from skvnce.estimators._modules import CachedModules, filled_once, load_state, state_of
from skvnce.estimators._rounds import TrainedInRounds, failures_named
from skvnce.estimators._scores import NodeScores, auto_rank, linear_start
from skvnce.estimators._tables import hold_out, into_dtype
from skvnce.estimators._validation import (
    check_auto_or_number,
    check_choice,
    check_number,
    check_rank,
    check_share,
    check_sizes,
    incomplete_array,
    keeps_state_on_failure,
    latent_array,
)
from skvnce.models.factor_analysis import FactorModel
from skvnce.objectives.bounds import BOUNDS

_MIXED = 5  # number of posterior components for objectives with mixtures
_LEVELS = 32  # number of quantiles that represent a cell
_FAMILIES = ["auto", "normal", "student", "bernoulli", "rounded"]
_COMPLETING = ["demiss-vae", "vbgi-vae", "vbgi-vae-m"]  # use completed rows
_SINGLE = ["mvae", "miwae", *_COMPLETING]  # their posterior is a single normal


class VariationalAutoencoder(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    CachedModules,
    TrainedInRounds,
    NodeScores,
    ConstantColumns,
    IncompleteTransformer,
):
    """A variational autoencoder fitted to tables with missing values.

    The latents are ``z ~ N(0, I)``, and the columns are independent given z.  The mean
    of a column is a linear function of z plus the output of a network, and a network
    also gives the scale of its noise.  Training starts at the linear model, a factor
    analysis fitted by EM, with networks whose output is zero, and continues as long as
    held-out observed cells are predicted better.  The likelihood is that of the
    observed cells, which is valid for values missing at random (MAR).

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of latents.  ``"auto"``: one less than the number of columns, at most 20.
    algorithm : {"miwae", "mvae", "miss-vae", "miss-svae", "miss-iwae", "miss-siwae", \
            "demiss-vae", "vbgi-vae", "vbgi-vae-m"}, default="miwae"
        Lower bound of the log-likelihood to maximise.  MVAE (eq. 4 of the reference) is
        the classical bound; MIWAE (7) tightens it by importance sampling; the four Miss
        objectives use a mixture as posterior (4, 5, 7, 8).  For the last three a
        sampler completes the rows; the encoder is trained on rows with missing values,
        too.  DeMissVAE (10 and 12) uses completed rows only for the encoder, VBGI-VAE
        uses them for model and encoder, and VBGI-VAE-M leaves the missing cells out of
        the likelihood (variational block-Gibbs inference, see
        `skvnce.objectives.vbgi`).
    n_posterior_components : "auto" or int, default="auto"
        Number of components of the posterior mixture.  ``"auto"``: 5 for the objectives
        with mixtures, else 1.
    n_training_draws : int, default=5
        Number of draws of the latents of each row in a step; of each component in the
        stratified objectives (MissSVAE, MissSIWAE); number of imputations of each row
        in the last three objectives.
    likelihood : str or list of str, default="auto"
        Distribution of the columns given the latents, one for all or one for each
        column of X: ``"normal"``, ``"student"`` (heavy tails, 4 degrees of freedom),
        ``"bernoulli"`` (two values), ``"rounded"`` (a normal rounded to the nearest of
        the values of the column).  ``"auto"``: rounded if at least half of the observed
        cells share their value with another cell, else normal.
    marginals : {"auto", "normal"}, default="auto"
        ``"auto"`` models columns as increasing functions of normal scores if that
        improves the prediction of held-out cells, see `GaussianImputer`; ``"normal"``
        does not.
    hidden_layer_sizes : tuple of int, default=(64,)
        Widths of the residual blocks of encoder and decoder.
    alpha : float, default=0.05
        Weight decay of the networks.
    dropout : float, default=0.1
        Dropout rate in the residual blocks.
    batch_size : int, default=128
        Number of rows in a step.
    learning_rate_init : float, default=1e-3
        Learning rate of AdamW for the networks; it is 0.3 times as large for the linear
        part.
    max_iter : int, default=40
        Maximum number of rounds of 50 steps; 0 keeps the linear model.
    n_iter_no_change : int, default=6
        Training stops after this number of rounds without a better prediction of
        held-out cells.  Predictions use averages of the parameters over about the last
        200 steps, and training returns to the best of these averages.
    validation_fraction : float, default=0.1
        Share of the observed cells that are held out to choose the number of rounds.
        Afterwards the same number of rounds, at most six, uses all cells with a
        decreasing learning rate.  With 0, `max_iter` rounds on all cells precede them.
    n_importance_samples : int, default=256
        Number of draws of the latents in `transform` and `score_samples`; the lower
        bound of the log-likelihood increases with it.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        If 1, print a line for each round until the number of rounds is chosen (loss in
        nats a row, and as "change" the last of `validation_scores_`), and for each
        other step that takes longer than a second.  If 2, print all steps.

    Attributes
    ----------
    n_components_ : int
        Number of latents.
    model_state_, posterior_state_ : dict of str to ndarray
        Parameters of model and encoder, which refer to scores.
    location_, scale_ : ndarray of shape (n_nodes,)
        Mean and standard deviation of the observed cells.  The networks use columns
        that are standardised by them, and then possibly mapped nonlinearly.
    nonlinear_columns_ : ndarray of bool, of shape (n_nodes,)
        Which columns are nonlinear functions of their normal scores.
    shrinkage_ : float
        Shrinkage of the initial normal distribution; see `GaussianImputer`.
    families_ : list of str, of length n_nodes
        The `likelihood` used for each column.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict of int to float
        Values of the constant columns, by column index.
    best_iter_ : int
        Number of rounds that held-out cells chose; 0 means the linear model, also if
        there are too few rows to hold out cells.  With ``validation_fraction=0`` it is
        `max_iter`.
    n_iter_ : int
        Number of rounds, including the last ones with decreasing learning rates.
    n_tuning_iter_ : int
        Number of rounds of EM to fit the initial linear model.
    loss_curve_ : list of float
        Mean loss of each round, in nats a row; only the last ones include held-out
        cells.
    validation_scores_ : list of float
        Gains in the log-density of held-out cells over the linear model, in nats a row.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    The initial linear model is the factor analysis of the covariance that EM estimates.
    Held-out cells choose its shrinkage: 10, or a value of `GaussianImputer`.  If the
    number of latents is one less than the number of columns, the linear model equals
    that normal distribution except for a lower bound of the noise.

    References
    ----------
    Simkus and Gutmann (2024), Improving variational autoencoder estimation from
    incomplete data with mixture variational families; Mattei and Frellsen (2019),
    MIWAE: deep generative modelling and imputation of incomplete data sets.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import VariationalAutoencoder
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) * [1.0, 2.0, -3.0] + rng.normal(size=(200, 3))
    >>> X[rng.random(X.shape) < 0.3] = np.nan
    >>> vae = VariationalAutoencoder(n_components=1, random_state=0).fit(X)
    >>> vae.transform(X).shape
    (200, 1)
    >>> vae.sample_rows(4, random_state=0).shape
    (4, 3)
    """

    def __init__(
        self,
        n_components="auto",
        *,
        algorithm="miwae",
        n_posterior_components="auto",
        n_training_draws=5,
        likelihood="auto",
        marginals="auto",
        hidden_layer_sizes=(64,),
        alpha=0.05,
        dropout=0.1,
        batch_size=128,
        learning_rate_init=1e-3,
        max_iter=40,
        n_iter_no_change=6,
        validation_fraction=0.1,
        n_importance_samples=256,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.algorithm = algorithm
        self.n_posterior_components = n_posterior_components
        self.n_training_draws = n_training_draws
        self.likelihood = likelihood
        self.marginals = marginals
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.dropout = dropout
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.n_importance_samples = n_importance_samples
        self.random_state = random_state
        self.verbose = verbose

    @keeps_state_on_failure
    def fit(self, X, y=None):
        """Fit the model and the encoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None
            Ignored.

        Returns
        -------
        self : VariationalAutoencoder

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no column has two different
            observed values, or if a parameter is out of range.
        DivergenceError
            If training diverges.
        TypeError
            If a parameter has a wrong type.

        Warns
        -----
        MisfitWarning
            If a few cells dominate the squared errors of a column.
        """
        X = self._validated(X)
        self._fit_table(X)
        announce(tail_messages(self, X, self.feature_indices_), "warn")
        return self

    @shows_progress
    def transform(self, X):
        """Compute the posterior means of the latents given the observed cells.

        Uses importance sampling, with random numbers that are functions of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
        """
        X = self._checked(X)
        found, _ = self._rowwise(X, autoencoder.latent_mean)
        return into_dtype(found, X.dtype)

    def inverse_transform(self, Z):
        """Compute the means of rows given their latents, from 32 quantiles a cell.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components_)
            Latents.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            In the units of X; NaN in columns that were entirely missing at `fit`.
        """
        check_is_fitted(self)
        Z = latent_array(Z, self.n_components_)
        cells = self._autoencoder().model.likelihood(torch.tensor(Z).double())
        levels = midpoint_levels(_LEVELS, cells.loc)
        drawn = (cells.icdf(level.expand(cells.loc.shape)) for level in levels)
        mean = sum(map(self._cell_scores().cells, drawn)) / _LEVELS
        return self._widened(mean.numpy()).astype(Z.dtype)

    @shows_progress
    def score_samples(self, X, return_std=False):
        """Estimate the log-density of the observed cells of each row, in nats.

        The estimate is on average a lower bound, which increases with
        `n_importance_samples`.  Rounded and binary columns contribute
        log-probabilities of their values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return standard errors, estimated from the variance of the
            importance weights.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            In the units of X; 0 for a row that is entirely missing.
        std : ndarray of shape (n_samples,)
            Standard errors; only if `return_std` is True.
        """
        log_prob, error = self._scored(self._checked(X))
        return (log_prob, error) if return_std else log_prob

    def sample_rows(self, n_rows=1, random_state=None):
        """Draw new rows from the model.

        Parameters
        ----------
        n_rows : int, default=1
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.

        Returns
        -------
        ndarray of shape (n_rows, n_features_in_)
            NaN in columns that were entirely missing at `fit`.
        """
        check_is_fitted(self)
        check_number(n_rows, "n_rows", low=1, integer=True)
        model = self._autoencoder().model
        with one_thread(), seeded(random_state):
            z = torch.randn(n_rows, self.n_components_, dtype=torch.float64)
            cells = model.likelihood(z)
            scores = at_quantiles(cells, torch.rand_like(cells.loc))
        return self._widened(self._cell_scores().cells(scores).numpy())

    def to_torch(self):
        """Return the fitted decoder of the scores of the columns in `feature_indices_`.

        Returns
        -------
        torch.nn.Module
            A copy, with ``prior()`` and ``likelihood(z)``.
        """
        check_is_fitted(self)
        return deepcopy(self._autoencoder().model)

    @property
    def _n_features_out(self):
        return self.n_components_

    def _fate_of_empty(self):
        return "given no latents"

    def _checked(self, X):
        """Validate new rows, and parameters that are used after the fit."""
        check_is_fitted(self)
        self._check_parameters()
        return incomplete_array(self, X, reset=False)

    def _scored(self, X):
        """Estimate the log-densities of rows and their standard errors."""
        found, log_slopes = self._rowwise(X, autoencoder.scored)
        empty = np.isnan(X[:, self.feature_indices_]).all(1)
        log_prob, error = found[:, 0] + log_slopes, found[:, 1]
        return np.where(empty, 0.0, log_prob), np.where(empty, 0.0, error)

    def _fit(self, X, weights=None, on_chosen=None):
        """Fit; `weights` (n_samples,) weight EM, and training draws rows by them.

        Weights are not public: training draws rows at random, so a weight of two is
        equivalent to two equal rows only on average.  `on_chosen` gets a `Blind` of the
        estimator when held-out cells have chosen the number of rounds.
        """
        return self._fit_table(self._validated(X), weights, on_chosen)

    def _validated(self, X):
        """Validate the parameters and the table of a fit."""
        self._check_parameters()
        return incomplete_array(self, X, reset=True)

    @reports_fit
    def _fit_table(self, X, weights=None, on_chosen=None):
        """Fit to a validated table; see `_fit`."""
        consequence = "no latents can be learned."
        nodes, weights = self._keep_nodes(X, weights, consequence)
        check_rank(self.n_components, len(self.feature_indices_))
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        with one_thread(), seeded(self.random_state):
            remedy = (
                f"Lower learning_rate_init={self.learning_rate_init!r}, or raise "
                f"alpha={self.alpha!r}."
            )
            with failures_named(remedy):
                self._fit_nodes(nodes, weights, on_round, on_chosen)
        finish()
        return self

    def _check_parameters(self):
        check_auto_or_number(self.n_components, "n_components", low=1, integer=True)
        check_choice(self.algorithm, "algorithm", list(BOUNDS))
        mixed = self.n_posterior_components
        check_auto_or_number(mixed, "n_posterior_components", low=1, integer=True)
        if self.algorithm in _SINGLE and mixed not in ("auto", 1):
            raise ValueError(
                f"algorithm={self.algorithm!r} requires n_posterior_components=1, got "
                f"{mixed!r}. MissVAE, MissSVAE, MissIWAE and MissSIWAE use mixtures."
            )
        check_choice(self.marginals, "marginals", ["normal", "auto"])
        check_number(self.max_iter, "max_iter", low=0, integer=True)
        for name in ("n_training_draws", "batch_size", "n_iter_no_change"):
            check_number(getattr(self, name), name, low=1, integer=True)
        number = self.n_importance_samples
        check_number(number, "n_importance_samples", low=1, integer=True)
        check_number(self.alpha, "alpha", low=0)
        check_number(self.learning_rate_init, "learning_rate_init", low=0, above=True)
        for name in ("dropout", "validation_fraction"):
            check_share(getattr(self, name), name)
        check_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")

    def _fit_nodes(self, nodes, weights, on_round, on_chosen):
        """Fit the initial model, choose the number of rounds, and train."""
        data, normal = self._fit_normal(
            nodes,
            weights,
            nonlinear=self.marginals == "auto",
            asked=self._asked_families(),
        )
        rank = self.n_components
        rank = auto_rank(nodes.shape[1]) if isinstance(rank, str) else rank
        self.n_components_ = rank
        linear = linear_start(normal, rank)
        auto = self._built(linear)

        def show(hidden):
            if on_chosen is not None and hidden.any():
                found = self._without(hidden, auto, data, weights, normal, linear)
                on_chosen(Blind(found, nodes, hidden.numpy()))

        self._train(auto, data, nodes, weights, on_round, show)
        self.model_state_, self.posterior_state_ = map(state_of, auto)
        self._cache = []

    def _without(self, hidden, auto, data, weights, normal, linear):
        """Copy the estimator, with modules that have not used some cells."""
        strength, rank = self.shrinkage_ * len(self.scale_), self.n_components_
        other = normal_without(data, hidden, weights, strength, normal)
        starts = []
        for one in (linear, turned_like(linear_start(other, rank), linear)):
            with seeded(0):  # the same initial networks
                starts.append(self._built(one))
        blind = copy(self)
        blind._cache = [autoencoder.Autoencoder(*map(moved, auto, *starts))]
        return blind

    def _train(self, auto, data, nodes, weights, on_round, on_chosen):
        """Train in rounds."""
        single, training = _single(data), self._training()

        def while_better(judged):
            _, hidden = hold_out(nodes, weights, self.validation_fraction)
            kept = Incomplete(single.x, single.observed & ~hidden)
            n_rounds = autoencoder.train_while_better(
                auto,
                self._loss(auto, kept),
                single,
                hidden,
                weights,
                training,
                max_rounds=self.max_iter,
                patience=self.n_iter_no_change,
                on_round=judged,
            )
            on_chosen(hidden)
            return n_rounds

        def on_all(n_rounds, n_cooling, report):
            return autoencoder.train(
                auto,
                self._loss(auto, single),
                weights,
                training,
                n_rounds=n_rounds,
                n_cooling=n_cooling,
                on_round=report,
            )

        self._in_rounds(while_better, on_all, on_round)
        self.n_iter_ = len(self.loss_curve_)

    def _training(self):
        return autoencoder.Training(
            BOUNDS[self.algorithm],
            int(self.n_training_draws),
            int(self.batch_size),
            self.learning_rate_init,
            self.alpha,
        )

    def _architecture(self):
        mixed = self.n_posterior_components
        if isinstance(mixed, str):
            mixed = 1 if self.algorithm in _SINGLE else _MIXED
        hidden = tuple(map(int, self.hidden_layer_sizes))
        return autoencoder.Architecture(hidden, self.dropout, int(mixed))

    def _built(self, linear):
        """Make model and encoder in single precision; weights from torch's stream."""
        sizes = self._architecture()
        self._sizes = tuple(sizes)  # a plain tuple, which skops can store
        auto = autoencoder.build(linear, self._families(), sizes)
        return autoencoder.Autoencoder(*(part.float() for part in auto))

    def _loss(self, auto, data):
        training = self._training()
        if self.algorithm not in _COMPLETING:
            return autoencoder.bound_loss(auto, data, training)
        sampler = autoencoder.completing(auto, training.n_draws)
        return autoencoder.completed_loss(auto, data, training, sampler)

    def _asked_families(self):
        asked = self.likelihood
        if not isinstance(asked, tuple | list | np.ndarray):
            asked = [asked] * self.n_features_in_
        if len(asked) != self.n_features_in_:
            raise ValueError(
                f"likelihood must be a string or {self.n_features_in_} strings, one a "
                f"column of X, got {len(asked)}."
            )
        for family in asked:
            check_choice(family, "likelihood", _FAMILIES)
        return np.array(asked, dtype=object)[self.feature_indices_]

    @filled_once
    def _autoencoder(self):
        """Return model and encoder in double precision, rebuilt on first use."""
        if not self._cache:
            d, k = len(self.scale_), self.n_components_
            ones = torch.ones(d, dtype=torch.float64)
            blank = FactorModel(0 * ones, ones[:, None].repeat(1, k), ones)
            with seeded(0):
                sizes = autoencoder.Architecture(*self._sizes)
                auto = autoencoder.build(blank, self._families(), sizes)
            states = self.model_state_, self.posterior_state_
            for part, state in zip(auto, states, strict=True):
                load_state(part.double(), state)
            self._cache.append(auto.evaluated())
        return self._cache[0]

    def _rowwise(self, X, function):
        """Apply a function of the autoencoder and the rows, in chunks of rows.

        Returns its values, and the sums of log-slopes of the scores over each row.
        """
        auto, scores = self._autoencoder(), self._cell_scores()
        nodes = X[:, self.feature_indices_].astype(np.float64)
        number, found, slopes = int(self.n_importance_samples), [], []
        with one_thread(), torch.no_grad():
            for rows in autoencoder.chunks(auto, len(nodes), number):
                part = nodes[rows]
                data, log_slopes = scores.scores(Incomplete.from_array(part))
                found.append(function(auto, data, row_lattice(part, 0), number))
                slopes.append(log_slopes)
        return torch.cat(found).numpy(), torch.cat(slopes).numpy()


def _single(data):
    return Incomplete(data.x.float(), data.observed)
