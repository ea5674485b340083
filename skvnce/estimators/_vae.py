"""A variational autoencoder of tables with missing values."""

from copy import deepcopy
from numbers import Real

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._arguments import check_count
from skvnce._memory import check_fit
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce._torch_defaults import torch_defaults
from skvnce.algorithms.vae import autoencoder
from skvnce.algorithms.vae.losses import ALGORITHMS
from skvnce.estimators._autoencoder import TrainedAutoencoder, check_draws
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._column_scores import FAMILIES
from skvnce.estimators._missing_table import names_table
from skvnce.estimators._options import Adam
from skvnce.estimators._tables_in_parts import by_parts
from skvnce.estimators._unused_parameters import warn_of_unused
from skvnce.estimators._validation import (
    AUTO,
    OF_CATEGORIES,
    ON_MISFIT,
    RANDOM_STATE,
    Number,
    check_sizes,
    integer_from,
    latent_array,
)
from skvnce.fits.stream import (
    check_can_stream,
)
from skvnce.fitted.held_out_check import tail_messages, warn_or_raise
from skvnce.tables.model_columns import Handling
from skvnce.tables.statistics import into_dtype


class VariationalAutoencoder(ClassNamePrefixFeaturesOutMixin, TrainedAutoencoder):
    """A variational autoencoder fitted to tables with missing values.

    The latents are ``z ~ N(0, I)``, and the columns are independent given z.  The mean
    of a column is a linear function of z plus the output of a network, and a network
    also gives the scale of its noise.  Training starts at the linear model, a factor
    analysis fitted by EM, with networks whose output is zero, and continues as long as
    held-out observed cells are predicted better.  The likelihood is that of observed
    cells, which is valid for values missing at random (MAR).  X may have categories.

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of latents.  ``"auto"``: one less than the number of columns, at most 20;
        a nominal column counts as many times as it has levels.
    algorithm : {"miwae", "mvae", "miss-vae", "miss-svae", "miss-iwae", "miss-siwae", \
            "demiss-vae", "cvi-vae", "mvb-vae", "vbgi-vae", "vbgi-vae-m"}, \
            default="miwae"
        Lower bound of the log-likelihood to maximise.  MVAE (eq. 4 of the first
        reference) is the classical bound; MIWAE (7) tightens it by importance sampling;
        the four Miss objectives use a mixture as posterior (4, 5, 7, 8).  The last five
        complete the rows by a sampler; they also train the encoder on rows with missing
        values, which has no gradient in the model.  DeMissVAE trains the model by (10)
        and the encoder by (12); its controls CVI-VAE and MVB-VAE train both by (10) or
        both by (12).  VBGI-VAE and VBGI-VAE-M are variational block-Gibbs inference
        (section 5.3 of the second reference): VBGI-VAE also trains a network for the
        missing cells given latents and observed cells; VBGI-VAE-M leaves the missing
        cells out of the likelihood.  VBGI-VAE does not accept
        ``likelihood="bernoulli"`` and ``"continuous-bernoulli"``.
    n_posterior_components : "auto" or int, default="auto"
        Number of components of the posterior mixture.  ``"auto"``: 5 for the objectives
        with mixtures, else 1.
    n_training_draws : int, default=5
        Number of draws of the latents of each row in a step; of each component in the
        stratified objectives (MissSVAE, MissSIWAE); number of imputations of each row
        in the last five objectives.
    likelihood : str or list of str, default="auto"
        Distribution of the columns given the latents, one for all or one for each
        column of X: ``"normal"``, ``"student"`` (heavy tails, 4 degrees of freedom),
        ``"bernoulli"`` (two values), ``"continuous-bernoulli"`` (values between 0 and
        1; all columns are then without nonlinear marginals), ``"rounded"`` (a normal
        rounded to the nearest of the values of the column).  ``"auto"``: rounded if at
        least half of the observed cells share their value with another cell, else
        normal.  A string is for the columns of numbers, and a list has ``"auto"`` for
        columns of categories.
    marginals : {"auto", "normal"}, default="auto"
        ``"auto"`` models columns as increasing functions of normal scores if that
        improves the prediction of held-out cells, see `GaussianImputer`; ``"normal"``
        does not.
    hidden_layer_sizes : tuple of int, default=(64,)
        Widths of the residual blocks of encoder and decoder.
    dropout : float, default=0.1
        Dropout rate in the residual blocks.
    solver : "auto" or Adam, default="auto"
        AdamW, with averages of the parameters over about the last 200 steps.  The
        fields of `skvnce.options.Adam` that are ``"auto"`` have these values:
        ``batch_size=128``; ``learning_rate_init=4e-3`` for the networks, and 0.3 times
        as large for the linear part; ``weight_decay=0.05``; ``n_iter_no_change=5``:
        training stops after this number of rounds without a better prediction of
        held-out cells, and returns to the best round; ``validation_fraction=0.1``: the
        share of the observed cells that are held out to choose the number of rounds.
        Afterwards the same number of rounds, at most six, uses all cells with a
        decreasing learning rate.  With 0, `max_iter` rounds on all cells precede them.
    max_iter : int, default=18
        Maximum number of rounds of 50 steps of the optimiser; 0 keeps the linear model.
    n_importance_samples : int, default=256
        Number of draws of the latents in `transform` and `score_samples`; the lower
        bound of the log-likelihood increases with it.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column: it warns
        (`skvnce.exceptions.MisfitWarning`), raises a ValueError, or does not check.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, see `GaussianImputer`.
    handle_unknown : {"error", "missing"}, default="error"
        What a level that `fit` has not observed is: an error, or a missing value.
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
        Mean and standard deviation of the observed cells; 0 and 1 for categories.  The
        networks use columns that are standardised by them, and then possibly mapped
        nonlinearly.
    nonlinear_columns_ : ndarray of bool, of shape (n_nodes,)
        Which columns are nonlinear functions of their normal scores.
    shrinkage_ : float
        Shrinkage of the initial normal distribution; see `GaussianImputer`.
    families_ : list of str, of length n_nodes
        The `likelihood` used for each column; ``"ordinal"`` (also for categories of two
        levels) or ``"nominal"`` for categories.
    categories_ : dict of str to ndarray
        The levels of columns of categories, see `GaussianImputer`.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.
    best_iter_ : int
        Number of rounds that held-out cells chose; 0 means the linear model, also if
        there are too few rows to hold out cells.  If no cells are held out
        (``solver=Adam(validation_fraction=0)``) it is `max_iter`.
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

    A nominal column has a logit for each level, and an ordinal column is an interval of
    a normal variable.  With categories the linear model has the factors of a latent
    normal model that 100 sweeps of Gibbs sampling estimate, with a shrinkage of 0.5.

    Training is one sequence of rounds, and has no `n_jobs`.  For probabilities of
    levels given the other cells, pass the estimator to `LAIRImputer`.

    References
    ----------
    Simkus and Gutmann (2024), Improving variational autoencoder estimation from
    incomplete data with mixture variational families; Simkus, Rhodes and Gutmann
    (2023), Variational Gibbs inference for statistical model estimation from incomplete
    data; Mattei and Frellsen (2019), MIWAE: deep generative modelling and imputation of
    incomplete data sets.

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

    _parameter_constraints = {
        "n_components": [AUTO, integer_from(1)],
        "algorithm": [StrOptions(set(ALGORITHMS))],
        "n_posterior_components": [AUTO, integer_from(1)],
        "n_training_draws": [integer_from(1)],
        "likelihood": [StrOptions(set(FAMILIES)), "array-like"],
        "marginals": [StrOptions({"auto", "normal"})],
        "hidden_layer_sizes": ["array-like"],
        "dropout": [Number(Real, 0, 1, closed="left")],
        "solver": [AUTO, Adam],
        "max_iter": [integer_from(0)],
        "n_importance_samples": [integer_from(1)],
        "on_misfit": ON_MISFIT,
        **OF_CATEGORIES,
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

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
        dropout=0.1,
        solver="auto",
        max_iter=18,
        n_importance_samples=256,
        on_misfit="warn",
        categorical_features="from_dtype",
        handle_unknown="error",
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
        self.dropout = dropout
        self.solver = solver
        self.max_iter = max_iter
        self.n_importance_samples = n_importance_samples
        self.on_misfit = on_misfit
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    @names_table
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
            If X contains infinite values or text among numbers, if no column has two
            different observed values, or if a parameter is out of range.
        DivergenceError
            If training diverges.
        TypeError
            If a parameter has a wrong type.

        Warns
        -----
        MisfitWarning
            If a few cells dominate the squared errors of a column.
        """
        return self._set(self._new()._fit(X))

    def _fit(self, X):
        """Do what `fit` does, on a copy that has no other user."""
        self._check_parameters()
        X = self._read_table(X)
        check_fit(type(self), X.shape)
        self._fit_table(X, self.random_state)
        # rows of a call of `fit` itself are not kept
        self._stream = None
        if self._schema.is_categorical.all() and self.feature_indices_.size:
            names = "likelihood", "marginals"
            warn_of_unused(self, dict.fromkeys(names, "no column has numbers"))
        if self.on_misfit != "ignore":
            numbers = self.feature_indices_[~self._schema.is_categorical]
            warn_or_raise(tail_messages(self._schema, X, numbers), self.on_misfit)
        return self

    @names_table
    def partial_fit(self, X, y=None):
        """Go on learning from more rows.

        The first call is `fit`.  Up to 20,000 rows are kept (fewer if there are more
        than 335 columns), and when their number has doubled since the last fit, the fit
        is repeated with all rows so far.  Every other call goes on training on batches
        of the kept rows and of these.  If there are more rows than can be kept, those
        kept are a random sample, and count for all rows so far.  A share
        `validation_fraction` of the cells of the new rows is held out and chooses the
        number of rounds; if these are less than 100 cells, the rows wait for the next
        call.
        Columns, scores and `n_components_` are those of the last fit.  After a call of
        `fit` itself, whose rows are not kept, its choices are final.

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
        ValueError, TypeError, DivergenceError
            As in `fit`; ValueError also if the number of columns or `algorithm`
            changed, and for ``algorithm="vbgi-vae"``.
        """
        return self._set(self._copy()._partial_fit(X))

    @shows_progress
    def _partial_fit(self, X):
        """Do what `partial_fit` does, on a copy that has no other user."""
        self._check_parameters()
        check_can_stream(self.algorithm)
        if not hasattr(self, "model_state_"):
            return self._start_stream(X)
        return self._train_further([self], lambda one: vars(self).update(vars(*one)), X)

    @names_table
    def fit_posterior(self, X, y=None):
        """Train the encoder on other rows, with the model held fixed.

        The estimates of `score_samples` and `transform` for such rows become more
        accurate, while the density that they estimate does not change.  Training
        maximises the bound of `algorithm`, or that of MIWAE if the algorithm completes
        rows, for `max_iter` rounds and up to six with decreasing learning rates.

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
            If no row of X has an observed value, or if `algorithm` has changed since
            `fit`.
        DivergenceError
            If training diverges.
        """
        return self._set(self._copy()._fit_posterior(X))

    def _fit_posterior(self, X):
        """Do what `fit_posterior` does, on a copy that has no other user."""
        return self._fit_encoder(self._checked(X))

    @by_parts
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
        number = int(self.n_importance_samples)
        nodes = X[:, self.feature_indices_].astype(np.float64)
        with one_thread():
            model = self._encoder_model()
            found, _ = model.mapped(nodes, number, autoencoder.latent_mean)
        return into_dtype(found, X.dtype)

    @torch_defaults()
    def inverse_transform(self, Z):
        """Compute the means of rows given their latents, from 32 quantiles a cell.

        Columns of categories get their most probable level.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components_)
            Latents.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            In the units of X; NaN in columns that were entirely missing at `fit`.  An
            array of objects if there are categories that are no numbers.
        """
        check_is_fitted(self)
        Z = latent_array(Z, self.n_components_)
        found = self._among_all_columns(self._encoder_model().mean_given(Z))
        return found if found.dtype == object else found.astype(Z.dtype)

    @by_parts
    @shows_progress
    def score_samples(self, X, return_std=False):
        """Estimate the log-density of the observed cells of each row, in nats.

        The estimate is on average a lower bound, which increases with
        `n_importance_samples`.  Rounded and binary columns and categories contribute
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
        check_count(n_rows, "n_rows")
        with one_thread(), seeded(random_state):
            rows = self._encoder_model().rows(n_rows, self.n_components_)
            return self._among_all_columns(rows)

    def to_torch(self):
        """Return the fitted decoder of the scores of the columns in `feature_indices_`.

        Returns
        -------
        torch.nn.Module
            A copy on the CPU, with ``prior()`` and ``likelihood(z)``.
        """
        check_is_fitted(self)
        return deepcopy(self._autoencoder().model).cpu()

    @property
    def _n_features_out(self):
        return self.n_components_

    def _handling(self, schema):
        constant = "`inverse_transform` gives the constant"
        return Handling("given no latents", constant)

    def _check_parameters(self):
        super()._check_parameters()
        mixed = self.n_posterior_components
        if not ALGORITHMS[self.algorithm].mixture and mixed not in ("auto", 1):
            raise ValueError(
                f"algorithm={self.algorithm!r} requires n_posterior_components=1, got "
                f"{mixed!r}. MissVAE, MissSVAE, MissIWAE and MissSIWAE use mixtures."
            )
        if self.algorithm == "vbgi-vae":
            check_draws(self.likelihood)
        check_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
