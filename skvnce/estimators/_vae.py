"""A variational autoencoder of incomplete rows, with scikit-learn's manners."""

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

_MIXED = 5  # components of the posterior of objectives that take mixtures
_LEVELS = 32  # of quantiles that stand for a cell
_FAMILIES = ["auto", "normal", "student", "bernoulli", "rounded"]
_COMPLETING = ["DeMissVAE", "VBGI-VAE", "VBGI-VAE-M"]  # objectives of completed rows
_SINGLE = ["MVAE", "MIWAE", *_COMPLETING]  # their posterior is one normal


class VariationalAutoencoder(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    CachedModules,
    TrainedInRounds,
    NodeScores,
    ConstantColumns,
    IncompleteTransformer,
):
    """A variational autoencoder fitted to tables with missing cells.

    ``z ~ N(0, I)``, and the columns are independent given z: a linear function of z
    plus a network's, and noise whose spread is a network's too.  Training starts at the
    linear model, factor analysis fitted by EM, where the networks add nothing, and
    leaves it only as far as held-out observed cells are predicted better.  Rows count
    with the cells that they have, right for values missing at random (MAR).

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of latents.  ``"auto"``: one less than columns, at most 20.
    objective : {"MIWAE", "MVAE", "MissVAE", "MissSVAE", "MissIWAE", "MissSIWAE", \
            "DeMissVAE", "VBGI-VAE", "VBGI-VAE-M"}, default="MIWAE"
        The bound of the log-likelihood that is raised.  MVAE (eq. 4 of the reference)
        is the classical one; MIWAE (7) tightens it by importance sampling; the Miss
        ones take a mixture as posterior (4, 5, 7, 8).  The last three take rows that a
        sampler completes, and train the encoder on incomplete ones beside: DeMissVAE
        (10 and 12) for the encoder only, VBGI-VAE for both, VBGI-VAE-M with the missing
        cells left out of the likelihood (variational block-Gibbs inference, see
        `skvnce.objectives.vbgi`).
    n_posterior_components : "auto" or int, default="auto"
        Components of the posterior's mixture; ``"auto"``: 5 for the objectives that
        take a mixture, else 1.
    n_samples : int, default=5
        Draws of the latents of each row in a step, of each component in the stratified
        objectives (MissSVAE, MissSIWAE); imputations of each row in the last three.
    likelihood : str or list of str, default="auto"
        Family of the columns given the latents, one for all or one a column of X:
        ``"normal"``, ``"student"`` (heavy tails, 4 degrees of freedom),
        ``"bernoulli"`` (two values), ``"rounded"`` (a normal rounded to the nearest of
        the column's values).  ``"auto"``: rounded where at least half of the observed
        cells share their value with another, else normal.
    margins : {"auto", "normal"}, default="auto"
        ``"auto"`` lets columns be increasing functions of normal scores if that
        predicts held-out cells better, see `GaussianImputer`; ``"normal"`` does not.
    hidden_layer_sizes : tuple of int, default=(64,)
        Widths of the residual blocks of encoder and decoder.
    alpha : float, default=0.05
        Weight decay of the networks.
    dropout : float, default=0.1
        Share of the numbers inside a block that training leaves out.
    batch_size : int, default=128
        Rows of a step.
    learning_rate_init : float, default=1e-3
        Of AdamW, for the networks; the linear part takes 0.3 of it.
    max_iter : int, default=40
        Rounds of 50 steps at most; 0 keeps the linear model.
    n_iter_no_change : int, default=6
        Rounds without a better prediction of held-out cells after which it stops; they
        are predicted by averages of the parameters over the last 200 steps, roughly,
        which are also what it returns to.
    validation_fraction : float, default=0.1
        Share of the observed cells that are held out to choose the number of rounds;
        as many more, six at most, then take all cells with a falling learning rate.
        0: `max_iter` rounds on all cells come before those.
    n_importance_samples : int, default=256
        Draws of the latents in `transform` and `score_samples`; the bound of the
        log-likelihood rises with their number.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        1 prints a line for each round until the number of rounds is chosen (loss in
        nats a row, and as "change" the last of `validation_scores_`), and for each
        other step that takes a second.  2 prints all steps.

    Attributes
    ----------
    n_components_ : int
        Number of latents.
    model_state_, encoder_state_ : dict of str to ndarray
        Parameters of the two, of scores.
    location_, scale_ : ndarray of shape (n_nodes,)
        Of the observed cells; what the networks see is centred, scaled and bent.
    bent_ : bool
        Whether columns are functions of normal scores.
    shrinkage_ : float
        Of the normal distribution that training starts from; see `GaussianImputer`.
    families_ : list of str, of length n_nodes
        The `likelihood` of each column that was used.
    node_indices_ : ndarray of shape (n_nodes,)
        Places in X of the columns of the model: those with two values or more.
    constants_ : dict of int to float
        Places and values of the other columns that have a value.
    n_rounds_ : int
        Rounds that held-out cells chose; 0 is the linear model.  So it is where there
        are too few rows for cells to be held out.  `max_iter` where none were asked
        for (``validation_fraction=0``).
    n_iter_ : int
        Rounds that were run, the last ones with falling learning rates included.
    n_tuning_iter_ : int
        Rounds of EM before them, which found the linear start.
    loss_curve_ : list of float
        Mean loss of each round, in nats a row; held-out cells have a part in the last
        ones only.
    validation_scores_ : list of float
        Gains in the log-density of held-out cells over the linear model, nats a row.
    n_features_in_ : int
        Number of columns seen at `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has names that are strings.

    Notes
    -----
    The linear start is the factor analysis of the covariance that EM finds with a
    shrinkage that held-out cells choose: 10, or one of those of `GaussianImputer`.
    With as many latents as columns less one it is that normal distribution but for a
    floor of the noise.

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
    >>> vae.sample(4, random_state=0).shape
    (4, 3)
    """

    def __init__(
        self,
        n_components="auto",
        *,
        objective="MIWAE",
        n_posterior_components="auto",
        n_samples=5,
        likelihood="auto",
        margins="auto",
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
        self.objective = objective
        self.n_posterior_components = n_posterior_components
        self.n_samples = n_samples
        self.likelihood = likelihood
        self.margins = margins
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
        """Fit model and encoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing say nothing and are
            left out.
        y : None
            Ignored.

        Returns
        -------
        self : VariationalAutoencoder

        Raises
        ------
        ValueError
            For infinite or textual cells, a table without a column of two values,
            parameters outside their range, and a training that diverges.
        TypeError
            For parameters of a wrong type.

        Warns
        -----
        MisfitWarning
            Where a few cells decide the squared errors of columns; names them.
        """
        self._fit(X)
        announce(tail_messages(self, self._checked(X), self.node_indices_), "warn")
        return self

    @shows_progress
    def transform(self, X):
        """Compute the posterior means of the latents given the observed cells.

        By importance sampling, with random numbers that are functions of the row.

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
        """Compute the means of rows given their latents, by 32 quantiles of each cell.

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
    def score_samples(self, X):
        """Estimate the log-density of the observed cells of each row, in nats.

        A lower bound on average, which rises with `n_importance_samples`.  Rounded and
        two-valued columns count with log-probabilities of their values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of X; 0 for a row that is entirely missing.
        """
        return self._scored(self._checked(X))[0]

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; None gives others at every call.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            NaN in columns that were entirely missing at `fit`.
        """
        check_is_fitted(self)
        check_number(n_samples, "n_samples", low=1, integer=True)
        model = self._autoencoder().model
        with one_thread(), seeded(random_state):
            z = torch.randn(n_samples, self.n_components_, dtype=torch.float64)
            cells = model.likelihood(z)
            scores = at_quantiles(cells, torch.rand_like(cells.loc))
        return self._widened(self._cell_scores().cells(scores).numpy())

    def to_torch(self):
        """Return the fitted decoder, of scores of the columns in `node_indices_`.

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
        return "of no latent"

    def _checked(self, X):
        """Validate new rows, and parameters that act after the fit."""
        check_is_fitted(self)
        self._check_parameters()
        return incomplete_array(self, X, reset=False)

    def _scored(self, X):
        """Estimate log-densities of rows; with standard errors."""
        found, log_slopes = self._rowwise(X, autoencoder.scored)
        empty = np.isnan(X[:, self.node_indices_]).all(1)
        log_prob, error = found[:, 0] + log_slopes, found[:, 1]
        return np.where(empty, 0.0, log_prob), np.where(empty, 0.0, error)

    @reports_fit
    def _fit(self, X, weights=None, on_chosen=None):
        """Fit, with weights (n_samples,): of EM, and with which training draws rows.

        Not open to users: as rows are drawn at random, a weight of two is not twice the
        row but on average.  `on_chosen` is shown a `Blind` of the estimator, once
        held-out cells have chosen the number of rounds.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        consequence = "there is nothing that latents could explain."
        nodes, weights = self._keep_nodes(X, weights, consequence)
        check_rank(self.n_components, len(self.node_indices_))
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
        check_choice(self.objective, "objective", list(BOUNDS))
        mixed = self.n_posterior_components
        check_auto_or_number(mixed, "n_posterior_components", low=1, integer=True)
        if self.objective in _SINGLE and mixed not in ("auto", 1):
            raise ValueError(
                f"objective={self.objective!r} takes n_posterior_components=1, got "
                f"{mixed!r}. MissVAE, MissSVAE, MissIWAE and MissSIWAE take mixtures."
            )
        check_choice(self.margins, "margins", ["normal", "auto"])
        check_number(self.max_iter, "max_iter", low=0, integer=True)
        for name in ("n_samples", "batch_size", "n_iter_no_change"):
            check_number(getattr(self, name), name, low=1, integer=True)
        number = self.n_importance_samples
        check_number(number, "n_importance_samples", low=1, integer=True)
        check_number(self.alpha, "alpha", low=0)
        check_number(self.learning_rate_init, "learning_rate_init", low=0, above=True)
        for name in ("dropout", "validation_fraction"):
            check_share(getattr(self, name), name)
        check_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")

    def _fit_nodes(self, nodes, weights, on_round, on_chosen):
        """Find the start, choose the number of rounds, and train."""
        data, normal = self._fit_normal(
            nodes, weights, bend=self.margins == "auto", asked=self._asked_families()
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
        self.model_state_, self.encoder_state_ = map(state_of, auto)
        self._cache = []

    def _without(self, hidden, auto, data, weights, normal, linear):
        """Copy the estimator, with modules that have not seen some cells."""
        strength, rank = self.shrinkage_ * len(self.scale_), self.n_components_
        other = normal_without(data, hidden, weights, strength, normal)
        starts = []
        for one in (linear, turned_like(linear_start(other, rank), linear)):
            with seeded(0):  # the same networks
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
            BOUNDS[self.objective],
            int(self.n_samples),
            int(self.batch_size),
            self.learning_rate_init,
            self.alpha,
        )

    def _architecture(self):
        mixed = self.n_posterior_components
        if isinstance(mixed, str):
            mixed = 1 if self.objective in _SINGLE else _MIXED
        hidden = tuple(map(int, self.hidden_layer_sizes))
        return autoencoder.Architecture(hidden, self.dropout, int(mixed))

    def _built(self, linear):
        """Make model and encoder in single precision; weights from torch's stream."""
        sizes = self._architecture()
        self._sizes = tuple(sizes)  # a plain one, for skops
        auto = autoencoder.build(linear, self._families(), sizes)
        return autoencoder.Autoencoder(*(part.float() for part in auto))

    def _loss(self, auto, data):
        training = self._training()
        if self.objective not in _COMPLETING:
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
        return np.array(asked, dtype=object)[self.node_indices_]

    @filled_once
    def _autoencoder(self):
        """Return model and encoder in double precision; rebuilt on first use."""
        if not self._cache:
            d, k = len(self.scale_), self.n_components_
            ones = torch.ones(d, dtype=torch.float64)
            blank = FactorModel(0 * ones, ones[:, None].repeat(1, k), ones)
            with seeded(0):
                sizes = autoencoder.Architecture(*self._sizes)
                auto = autoencoder.build(blank, self._families(), sizes)
            states = self.model_state_, self.encoder_state_
            for part, state in zip(auto, states, strict=True):
                load_state(part.double(), state)
            self._cache.append(auto.evaluated())
        return self._cache[0]

    def _rowwise(self, X, function):
        """Apply a function of the autoencoder and the rows, in chunks of rows.

        Gives what it found, and the log-slopes of the scores, summed over each row.
        """
        auto, scores = self._autoencoder(), self._cell_scores()
        nodes = X[:, self.node_indices_].astype(np.float64)
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
