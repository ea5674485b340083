"""A variational autoencoder of tables with missing values."""

from collections.abc import Sequence
from copy import deepcopy
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._core.incomplete import Incomplete
from skvnce._core.numbers import check_count
from skvnce._core.random import seeded
from skvnce._core.runtime import one_thread, state_of, torch_defaults
from skvnce._core.training.rounds import COOLING
from skvnce._imputer import callbacks, validation
from skvnce._imputer.base import IncompleteTransformer
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.held_out import hold_out, tail_messages, warn_or_raise
from skvnce._imputer.parts.tables import by_parts
from skvnce._imputer.validation import Adam
from skvnce._tables.model_columns import Handling
from skvnce._tables.output import decode
from skvnce._tables.values import into_dtype
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.autoencoder import column_scores, vae
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.autoencoder.losses import ALGORITHMS, Rounds, encoder_loss
from skvnce.autoencoder.model import WithoutCells, moved, turned_like

SOLVER = {  # the values of the fields that are "auto"
    "batch_size": 128,
    "learning_rate_init": 4e-3,
    "weight_decay": 0.05,
    "n_iter_no_change": 5,
    "validation_fraction": 0.1,
    "device": "cpu",
}
_MIXED = 5  # number of posterior components for objectives with mixtures


class AutoencoderFit(NamedTuple):
    """What `VariationalAutoencoder` needs to rebuild its networks and to go on."""

    columns: column_scores.ColumnScores
    sizes: vae.Architecture
    algorithm: str  # to whose posterior the encoder belongs
    cache: dict


def check_draws(likelihood):
    """Raise an error if draws of missing cells would have no gradient."""
    for family in ("bernoulli", column_scores.UNIT):
        if family in np.ravel(likelihood):
            raise ValueError(
                "algorithm='vbgi-vae' draws missing cells from normal "
                f"distributions, which likelihood={family!r} does not accept. Use "
                "'normal' or 'rounded' for these columns, or "
                "algorithm='vbgi-vae-m'."
            )


class VariationalAutoencoder(
    ClassNamePrefixFeaturesOutMixin,
    callbacks.CallbackSupportMixin,
    column_scores.NodeScores,
    IncompleteTransformer,
):
    """A variational autoencoder fitted to tables with missing values.

    The latents are ``z ~ N(0, I)``, and the columns are independent given z.  The mean
    of a column is a linear function of z plus the output of a network, which also gives
    the scale of its noise.  Training starts at a factor analysis fitted by EM, with
    networks whose output is zero, and continues as long as held-out observed cells are
    predicted better.  The likelihood of observed cells is valid for values missing at
    random (MAR).

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of latents.  ``"auto"``: one less than the number of columns, at most 20;
        a nominal column counts as many times as it has levels.
    algorithm : {"miwae", "mvae", "miss-vae", "miss-svae", "miss-iwae", "miss-siwae", \
            "demiss-vae", "cvi-vae", "mvb-vae", "vbgi-vae", "vbgi-vae-m"}, \
            default="miwae"
        Lower bound of the log-likelihood to maximise: MVAE (eq. 4 of the first
        reference) is the classical one; MIWAE (7) tightens it by importance sampling;
        the four Miss objectives have a mixture as posterior (4, 5, 7, 8).  The last
        five complete rows by a sampler: DeMissVAE trains the model by (10) and the
        encoder by (12), CVI-VAE and MVB-VAE both by one; VBGI-VAE, not for binary
        columns, and VBGI-VAE-M are variational block-Gibbs inference (section 5.3 of
        the second reference).
    n_posterior_components : "auto" or int, default="auto"
        Number of components of posterior mixtures.  ``"auto"``: 5, or 1 without
        mixtures.
    n_training_draws : int, default=5
        Number of draws of the latents of each row, or component, or of its imputations.
    likelihood : str or list of str, default="auto"
        Distribution of the columns given the latents, one for all columns of numbers or
        one for each column of X: ``"normal"``, ``"student"`` (4 degrees of freedom),
        ``"bernoulli"`` (two values), ``"continuous-bernoulli"`` (between 0 and 1,
        without nonlinear marginals), ``"rounded"`` (a normal rounded to the values of
        the column).  ``"auto"``: rounded if at least half of the observed cells share
        their value with another cell, else normal; ``"auto"`` for categories.
    marginals : {"auto", "normal"}, default="auto"
        ``"auto"`` models columns as increasing functions of normal scores if that
        improves the prediction of held-out cells, see `GaussianImputer`.
    hidden_layer_sizes : tuple of int, default=(64,)
        Widths of the residual blocks of encoder and decoder.
    dropout : float, default=0.1
        Dropout rate in the residual blocks.
    solver : "auto" or Adam, default="auto"
        AdamW, with averages of the parameters over about the last 200 steps.  Fields of
        `skvnce.options.Adam` that are ``"auto"`` are ``batch_size=128``;
        ``learning_rate_init=4e-3``, and 0.3 times that for the linear part;
        ``weight_decay=0.05``; ``n_iter_no_change=5`` rounds without a better prediction
        of held-out cells; ``validation_fraction=0.1``.  Afterwards as many rounds, at
        most six, use all cells with a decreasing rate.
    max_iter : int, default=18
        Maximum number of rounds of 50 steps of the optimiser; 0 keeps the linear model.
    n_importance_samples : int, default=256
        Number of draws of the latents in `transform` and `score_samples`.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, see `GaussianImputer`.
    handle_unknown : {"error", "missing"}, default="error"
        What a level that `fit` has not observed is: an error, or missing.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        If 1, print a line for each round and each step of more than a second; 2, all.

    Attributes
    ----------
    n_components_ : int
        Number of latents.
    model_state_, posterior_state_ : dict of str to ndarray
        Parameters of model and encoder, which refer to scores.
    location_, scale_ : ndarray of shape (n_nodes,)
        Mean and standard deviation of the observed cells; 0 and 1 for categories.
    nonlinear_columns_ : ndarray of bool, of shape (n_nodes,)
        Which columns are nonlinear functions of their normal scores.
    shrinkage_ : float
        Shrinkage of the initial normal distribution; see `GaussianImputer`.
    families_ : list of str, of length n_nodes
        The `likelihood` of each column; ``"ordinal"`` or ``"nominal"`` for categories.
    categories_ : dict of str to ndarray
        The levels of columns of categories, see `GaussianImputer`.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of the model: those with at least two different values.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.
    best_iter_ : int
        Number of rounds that held-out cells chose; 0 means the linear model.
    n_iter_, n_tuning_iter_ : int
        Number of rounds of the training, and of EM before it.
    loss_curve_ : list of float
        Mean loss of each round, in nats a row.
    validation_scores_ : list of float
        Gains in the log-density of held-out cells, in nats a row.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    A nominal column has a logit for each level, and an ordinal column is an interval of
    a normal variable.  Training is one sequence of rounds, and has no `n_jobs`.  For
    probabilities of levels given the other cells, use `LAIRImputer`.

    References
    ----------
    Simkus and Gutmann (2024), Improving variational autoencoder estimation from
    incomplete data with mixture variational families; Simkus, Rhodes and Gutmann
    (2023), Variational Gibbs inference; Mattei and Frellsen (2019), MIWAE.

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
        "n_components": [validation.AUTO, validation.integer_from(1)],
        "algorithm": [StrOptions(set(ALGORITHMS))],
        "n_posterior_components": [validation.AUTO, validation.integer_from(1)],
        "n_training_draws": [validation.integer_from(1)],
        "likelihood": [StrOptions(set(column_scores.FAMILIES)), "array-like"],
        "marginals": [StrOptions({"auto", "normal"})],
        "hidden_layer_sizes": ["array-like"],
        "dropout": [validation.Number(Real, 0, 1, closed="left")],
        "solver": [validation.AUTO, Adam],
        "max_iter": [validation.integer_from(0)],
        "n_importance_samples": [validation.integer_from(1)],
        **validation.OF_CATEGORIES,
        **validation.OF_FITS,
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        algorithm: Literal[
            "miwae",
            "mvae",
            "miss-vae",
            "miss-svae",
            "miss-iwae",
            "miss-siwae",
            "demiss-vae",
            "cvi-vae",
            "mvb-vae",
            "vbgi-vae",
            "vbgi-vae-m",
        ] = "miwae",
        n_posterior_components: int | Literal["auto"] = "auto",
        n_training_draws: int = 5,
        likelihood: str | Sequence[str] = "auto",
        marginals: Literal["auto", "normal"] = "auto",
        hidden_layer_sizes: Sequence[int] = (64,),
        dropout: float = 0.1,
        solver: Adam | Literal["auto"] = "auto",
        max_iter: int = 18,
        n_importance_samples: int = 256,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
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

    def fit(self, X: TableLike, y: object = None) -> Self:
        """Fit the model and the encoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
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
        self._check_parameters()
        X, schema = validation.read_table(self, X)
        fitted = self._fit_table(schema, X, self.random_state)
        schema = fitted.schema
        levels, columns = schema.is_categorical, schema.model_columns
        if levels.all() and columns.size:
            names = "likelihood", "marginals"
            validation.warn_of_unused(
                self, dict.fromkeys(names, "no column has numbers")
            )
        if self.on_misfit != "ignore":
            messages = tail_messages(schema, X, columns[~levels])
            warn_or_raise(messages, self.on_misfit)
        return self._publish(fitted)

    def fit_posterior(self, X: TableLike, y: object = None) -> Self:
        """Train the encoder on other rows, with the model held fixed.

        The estimates of `score_samples` and `transform` for such rows become more
        accurate, while the density that they estimate does not change.  Training
        maximises the bound of `algorithm`, or that of MIWAE if the algorithm completes
        rows, for `max_iter` rounds and up to six with decreasing learning rates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
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
        report = {"posterior_state_": self._trained_encoder(self._checked(X))}
        return self._publish(self._with_report(report))

    @callbacks.reports_fit
    def _trained_encoder(self, X):
        """Train the encoder on validated rows; return its parameters."""
        nodes = self._nodes_of_training(X)
        self._check_algorithm()
        n_cooling = min(COOLING, self.max_iter)
        on_round, finish = callbacks.report_rounds(self, self.max_iter + n_cooling, X=X)
        fitted, data = self._modules(), self._fitted.model.columns.scores_of(nodes)
        with self._trains(self.random_state, nodes.shape[1]):
            device = self._device(self._schema)
            auto = vae.Autoencoder(*(deepcopy(part).float() for part in fitted))
            auto = auto.on(device)
            auto.posterior.requires_grad_().train()
            data = Incomplete(data.x.float(), data.observed).on(device)
            training = self._training()
            vae.train(
                auto,
                encoder_loss(self.algorithm, auto, data, training),
                torch.ones(len(nodes)),
                training,
                n_rounds=self.max_iter,
                n_cooling=n_cooling,
                on_round=lambda n, loss: (
                    n <= self.max_iter and on_round(n, loss, np.nan)
                ),
            )
        finish()
        return state_of(auto.posterior)

    @by_parts
    @callbacks.shows_progress
    def transform(self, X: TableLike) -> Any:
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
        nodes = X[:, self.feature_indices_].astype(np.float64)
        with one_thread():
            means, _ = self._row_model().mapped(nodes, vae.latent_mean)
        return into_dtype(means, X.dtype)

    @torch_defaults()
    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.float64]:
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
        Z = validation.latent_array(Z, self.n_components_)
        table = self._among_all_columns(self._row_model().mean_given(Z))
        return table if table.dtype == object else table.astype(Z.dtype)

    @by_parts
    @callbacks.shows_progress
    def score_samples(self, X: TableLike, return_std: bool = False) -> Any:
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
        nodes = self._checked(X)[:, self.feature_indices_].astype(np.float64)
        with one_thread():
            log_prob, error = self._row_model().log_density(nodes)
        return (log_prob, error) if return_std else log_prob

    def sample_rows(
        self, n_rows: int = 1, random_state: Seed = None
    ) -> NDArray[np.float64]:
        """Draw new rows from the model.

        Parameters
        ----------
        n_rows : int, default=1
            Number of rows.
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
            rows = self._row_model().rows(n_rows, self.n_components_)
            return self._among_all_columns(rows)

    def to_torch(self) -> Any:
        """Return the fitted decoder of the scores of the columns in `feature_indices_`.

        Returns
        -------
        torch.nn.Module
            A copy on the CPU, with ``prior()`` and ``likelihood(z)``.
        """
        check_is_fitted(self)
        return deepcopy(self._modules().model).cpu()

    _parts = {"solver": lambda _: Adam()}
    _states = "model_state_", "posterior_state_"
    _consequence = "no latents can be learned."

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
        validation.check_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")

    def _remedy(self, n_columns):
        fields = self._solver()
        return (
            f"Lower learning_rate_init={fields['learning_rate_init']!r} of the "
            f"solver, or raise its weight_decay={fields['weight_decay']!r}: pass "
            "solver=Adam(...)."
        )

    def _check_algorithm(self):
        """Raise an error if `algorithm` has changed since `fit`."""
        before = self._fitted.model.algorithm
        if self.algorithm != before:
            raise ValueError(
                f"algorithm={self.algorithm!r} is not that of fit, {before!r}, to "
                "which the encoder belongs. Set it back, or call fit."
            )

    def _fit_nodes(self, schema, cells, on_round, on_chosen, first):
        """Fit the initial model, choose the number of rounds, and train."""
        validation.check_rank(self.n_components, column_scores.count_outputs(schema))
        column_scores.check_models_levels(self.algorithm, schema)
        requested = column_scores.requested_families(self.likelihood, schema.n_columns)
        requested = requested[schema.model_columns]
        if isinstance(self.likelihood, str):  # for numbers
            requested[schema.is_categorical] = "auto"
        nonlinear = self.marginals == "auto" and column_scores.UNIT not in requested
        start = column_scores.fit_normal(schema, cells, requested, nonlinear=nonlinear)
        columns, rank = start.columns, self.n_components
        if isinstance(rank, str):
            rank = column_scores.auto_rank(len(start.normal.mean))
        linear = column_scores.linear_start(start.normal, rank)
        sizes = self._architecture()
        auto = _build(linear, columns, sizes)
        device = self._device(schema)
        rounds = Rounds(
            auto.on(device),
            Incomplete(start.data.x.float(), start.data.observed).on(device),
            start.weights,
            ALGORITHMS[self.algorithm],
            self._training(),
            sizes,
        )
        solver = self._solver()
        share = solver["validation_fraction"]

        def while_better(report):
            _, hidden = hold_out(cells.nodes, start.weights, share)
            n_rounds = rounds.while_better(
                hidden.to(device),
                max_rounds=self.max_iter,
                patience=solver["n_iter_no_change"],
                on_round=report,
            )
            if on_chosen is not None and hidden.any():
                unseen = _without(hidden, auto, start, linear, sizes)
                unseen = unseen.on(self._device_in_use(schema))
                model = columns.encoder_model(unseen, self.n_importance_samples)
                on_chosen(WithoutCells(model, cells.nodes, hidden.numpy()))
            return n_rounds

        losses, gains, best = callbacks.train_in_rounds(
            self.max_iter, share, while_better, rounds.on_all, on_round
        )
        report = self._report_of(losses, auto, n_components_=rank)
        report |= {"validation_scores_": gains, "best_iter_": best}
        model = AutoencoderFit(columns, sizes, self.algorithm, {})
        return Fitted(schema, model, report | start.report())

    def _solver(self):
        """Return the fields of the solver."""
        return validation.fields_of(self.solver, self._slot, SOLVER)

    def _training(self):
        fields = self._solver()
        return vae.Training(
            int(self.n_training_draws),
            int(fields["batch_size"]),
            fields["learning_rate_init"],
            fields["weight_decay"],
        )

    def _architecture(self):
        mixed = self.n_posterior_components
        if isinstance(mixed, str):
            mixed = _MIXED if ALGORITHMS[self.algorithm].mixture else 1
        hidden = tuple(map(int, self.hidden_layer_sizes))
        return vae.Architecture(hidden, self.dropout, int(mixed))

    def _row_model(self):
        """Return the fitted autoencoder and its scores as a value."""
        columns, auto = self._fitted.model.columns, self._modules()
        return columns.encoder_model(auto, int(self.n_importance_samples))

    def _rebuild(self):
        """Make model and encoder in double precision, with their parameters."""
        columns, sizes, *_ = self._fitted.model
        families = columns.distributions()
        d, k = len(columns.scale), self.n_components_
        d += sum(family.n_more for family in families.levels)
        # the state replaces what is drawn here; the seed keeps the caller's stream
        with seeded(0):
            auto = vae.build(FactorModel.blank(d, k), families, sizes)
        auto = self._loaded(vae.Autoencoder(*(part.double() for part in auto)))
        return auto.evaluated()

    def _among_all_columns(self, nodes):
        """Insert the columns of the model among all columns."""
        table = np.full((len(nodes), self.n_features_in_), np.nan)
        table[:, list(self.constants_)] = self._schema.constant_cells
        table[:, self.feature_indices_] = nodes
        columns = self._schema.columns
        return decode(columns, table) if columns else table


def _build(linear, columns, sizes):
    """Make model and encoder in single precision; weights from torch's stream."""
    auto = vae.build(linear, columns.distributions(), sizes)
    return vae.Autoencoder(*(part.float() for part in auto))


def _without(hidden, auto, start, linear, sizes):
    """Make the autoencoder as if its fit had not used the held-out cells."""
    rank = linear.loadings.shape[1]
    other = turned_like(column_scores.linear_start(start.without(hidden), rank), linear)
    starts = []
    for initial in (linear, other):
        with seeded(0):  # the same initial networks
            starts.append(_build(initial, start.columns, sizes))
    # a copy, because training goes on
    here = deepcopy(auto).on(start.data.x.device)
    return vae.Autoencoder(*map(moved, here, *starts))
