"""Variational noise-contrastive estimation of any model of incomplete rows."""

import copy
from functools import cache, partial
from math import log

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce._progress import step, steps, tell_round
from skvnce._random import row_keyed, row_lattice, seeded
from skvnce._threads import one_thread
from skvnce._warnings import warn_user
from skvnce.algorithms.vnce import em
from skvnce.estimators import _vnce_fit as fitting
from skvnce.estimators import _vnce_parts as parts
from skvnce.estimators._base import ConstantColumns, IncompleteTransformer
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
    shows_progress,
)
from skvnce.estimators._misfit import HeldOutCheck
from skvnce.estimators._modules import CachedModules, filled_once, load_state, state_of
from skvnce.estimators._tables import column_moments, into_dtype, rows_that_count
from skvnce.estimators._validation import (
    check_auto_or_number,
    check_bool,
    check_choice,
    check_number,
    check_spread,
    incomplete_array,
    keeps_state_on_failure,
)
from skvnce.models.free_gaussian import FreeGaussian
from skvnce.models.noise import GaussianNoise, Marginals, Rescaled, given
from skvnce.objectives.vnce import (
    Contrast,
    Rows,
    log_marginal,
    log_ratio,
    variational_values,
)
from skvnce.training.adam import NotFinite

_EVALUATED = 64  # draws for means, scores and densities
_CANDIDATES = 20  # of which `sample` chooses one
_POOL = 10_000  # rows of the reference noise that `score` takes its noise from
_GAP = 1.0  # between scale parameter and fresh noise that is worth a warning
_CHECKED = 2000  # rows whose fresh noise checks the scale parameter
_RATIO = 10  # reference noise rows a data row in `score`
_CHANCE = _RATIO * log(_RATIO) - (1 + _RATIO) * log(1 + _RATIO)  # score of a guess
_SHARES = (10.0, 1.0, 0.1, 0.01)  # rows a column, of which the pilot's shrinkage is one
_REMEDY = (
    "Take a model of the shape of these columns, logarithms of skewed ones, a larger "
    "alpha or a noise closer to the data."
)
_NOISES = ["auto", "marginal", "gaussian", "conditional"]


class VNCEEstimator(
    CallbackSupportMixin,
    HeldOutCheck,
    CachedModules,
    ConstantColumns,
    IncompleteTransformer,
):
    """Fit any model, normalised or not, to incomplete rows by telling them from noise.

    Noise-contrastive estimation needs the log-density of a model up to a constant
    only; the constant is fitted with the rest.  What a row hides, missing cells and
    latent variables, is handled by a variational posterior (VNCE), or integrated out
    where the model can do so.

    Parameters
    ----------
    model : callable or None, default=None
        Maps the number of features (columns with two different values) to a
        `torch.nn.Module` with a method
        ``log_density(x)`` or ``log_density(x, z)``: the logarithm of the model for
        rows x of shape (n, n_features) and latents z of shape (n, n_latents), up to a
        constant, as a tensor of shape (n,).  None is a Gaussian with free mean and
        precision.  See Notes for what else the module may offer.
    posterior : None, "normal", "bernoulli" or callable, default=None
        How latents are drawn given a row.  None is exact where the module offers it,
        else ``"normal"``: a network gives mean and spread of each latent.
        ``"bernoulli"``: a network gives the probability that a latent is 1.  A callable
        maps (n_features, n_latents) to a module whose ``forward(x, observed)`` returns
        a `torch.distributions.Distribution` of batch shape (n, n_latents).  Any value
        but None samples what the module could integrate out.
    noise : str, Distribution or zuko flow, default="auto"
        What rows are told from.  ``"marginal"``: a product of marginals fitted to the
        columns, Bernoulli for columns of zeros and ones, truncated normal for columns
        without negative values, else normal.  ``"gaussian"``: a normal distribution of
        whole rows, fitted by EM.  ``"conditional"``: random steps around each row
        (conditional NCE), which need no density.  ``"auto"``: ``"gaussian"`` for the
        default model, else ``"marginal"``.  Or a distribution of rows with ``sample``
        and ``log_prob``, independent columns or a `MultivariateNormal` if cells are
        missing.  The closer it is to the data the better.
    noise_ratio : int, default=10
        nu, rows of noise for each row of data.
    n_latents : int or None, default=None
        Number of latents; None takes it from the module.
    n_draws : int, default=5
        Draws of what each row hides.
    solver : {"auto", "lbfgs", "adam"}, default="auto"
        ``"lbfgs"`` alternates steps in posterior and model (variational EM) with common
        random numbers; ``"adam"`` climbs in both at once, on mini-batches, also with
        posteriors of discrete draws.  ``"auto"`` is ``"lbfgs"`` where that is possible.
    alpha : "auto" or float, default="auto"
        Penalty ``alpha |theta|^2 / (2 n)`` of the model's parameters.  ``"auto"`` is 0
        for models of your own.  For the default model, whose parameters are zero at the
        normal distribution that EM finds, it is their number: with few rows a column
        the fit stays near that of EM, whose shrinkage held-out cells choose.
    n_init : int, default=1
        Number of starts; the one of the best objective is kept.
    n_steps : int, default=5
        Iterations of L-BFGS in each step.  Long steps fit the draws at hand too well.
    batch_size : int, default=200
        Rows in a mini-batch of ``"adam"``.
    learning_rate_init : float, default=0.03
        Of ``"adam"``; it falls to zero.
    max_iter : int, default=200
        Rounds of ``"lbfgs"``, epochs of ``"adam"``, which runs them all.  Where nothing
        is drawn, a round is 20 iterations of L-BFGS.
    tol : float, default=1e-5
        Change of the objective in each of five rounds at which ``"lbfgs"`` stops.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        Whether `fit` warns (`skvnce.exceptions.MisfitWarning`) or raises a ValueError
        where a few cells decide the squared errors of columns, and where held-out cells
        of columns are predicted worse than by their means (`held_out_gain_`), beyond
        chance, which takes a second fit, without these cells.  ``"ignore"`` skips both.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, as 0.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of noise, draws and starts.
    verbose : int, default=0
        1 prints a line for each round, and for each other step that takes a second.
        2 prints all steps.

    Attributes
    ----------
    log_scale_ : float
        c, the estimate of the logarithm of the model's integral.  0 where the module
        has a `log_scale` of its own.
    log_scale_gap_ : float
        The logarithm of the integral by importance sampling from fresh noise, less
        `log_scale_`: near 0 where the estimate can be trusted.
    objective_ : float
        The objective, J_VNCE a row of training data (that of conditional NCE with
        such noise).
    accuracy_ : float
        How often the fitted model tells a row of data from one of noise (with
        ``"conditional"`` noise, from its neighbour): 0.5 where they are alike.  Near 1
        the noise is too far from the data to teach much, and estimates are poor: take a
        closer one.
    loss_curve_ : list of float
        Minus the objective, plus the penalty, in each iteration.
    n_iter_ : int
        Their number.  Where `n_init` is above 1, both are those of the best start.
    mean_, covariance_ : ndarray
        Of the default model, in the units of X; (n_nodes,) and (n_nodes, n_nodes).
    n_latents_ : int
        Number of latents; 0 without.
    noise_ : dict
        Parameters of the fitted noise, as arrays, in the units of X.
    model_state_, posterior_state_ : dict
        The fitted modules, as arrays.
    node_indices_ : ndarray of shape (n_nodes,)
        Places in X of the columns of the model: those with two different values.
    constants_ : dict
        Values of the columns of one value, by their places; `fit` warns of them.  Where
        all columns are constant there is no model: `n_latents_` is 0, `objective_` NaN.
    held_out_gain_ : float
        One minus the ratio of the mean squared errors of the model and of column means,
        on a tenth of the observed cells, by a fit without them; columns count alike.
        Negative where means predict better.  NaN with latents, where no cell of X is
        missing or columns have too few cells, and with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts worse than their means do, beyond chance, and
        those with heavy tails that it does not predict better.  `transform` fills
        them by their means and `sample` by their observed values.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Least and largest value of imputed cells: the observed range, widened by three
        times the mean excess of the outermost values in columns whose values do not
        repeat.  Draws of columns whose values repeat are observed values, and those of
        columns of integers are integers.
    n_features_in_ : int
        Number of columns seen at `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has names that are strings.

    Notes
    -----
    A module may have: ``n_latents``; ``states``, a tensor (n_states, n_latents) of all
    values that z can take, for an exact posterior; ``log_marginal(x, observed)``, the
    log-density of the observed cells with latents and missing cells integrated out;
    ``conditional_mean(x, observed)``, the filled rows; ``log_scale``, if its
    log-density has a scale parameter of its own, or is normalised (a constant then).

    A module is made anew when a pickle is loaded, with torch's random numbers as they
    were: what it holds beside its state must follow from these.

    The module sees the columns as they are.  Put a `StandardScaler`, which keeps NaN,
    before the estimator where units matter; the default model needs none.

    How good is `log_scale_`?  Its standard error falls with n and nu, and grows with
    the distance between noise and data: `log_scale_gap_` compares it with a second
    estimate.  With flexible models and few rows it is too low.

    References
    ----------
    Gutmann and Hyvarinen (2012), Noise-contrastive estimation of unnormalized
    statistical models; Rhodes and Gutmann (2019), Variational noise-contrastive
    estimation; Ceylan and Gutmann (2018), Conditional noise-contrastive estimation of
    unnormalised models.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import VNCEEstimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 3))
    >>> X[rng.random(X.shape) < 0.3] = np.nan
    >>> estimator = VNCEEstimator(random_state=0).fit(X)
    >>> estimator.covariance_.shape
    (3, 3)
    >>> bool(np.isnan(estimator.transform(X)).any())
    False
    """

    def __init__(
        self,
        model=None,
        posterior=None,
        *,
        noise="auto",
        noise_ratio=10,
        n_latents=None,
        n_draws=5,
        solver="auto",
        alpha="auto",
        n_init=1,
        n_steps=5,
        batch_size=200,
        learning_rate_init=0.03,
        max_iter=200,
        tol=1e-5,
        on_misfit="warn",
        keep_empty_features=False,
        random_state=None,
        verbose=0,
    ):
        self.model = model
        self.posterior = posterior
        self.noise = noise
        self.noise_ratio = noise_ratio
        self.n_latents = n_latents
        self.n_draws = n_draws
        self.solver = solver
        self.alpha = alpha
        self.n_init = n_init
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.tol = tol
        self.on_misfit = on_misfit
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state
        self.verbose = verbose

    @keeps_state_on_failure
    @reports_fit
    def fit(self, X, y=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing say nothing and are
            left out.
        y : None
            Ignored.

        Returns
        -------
        self : VNCEEstimator

        Raises
        ------
        ValueError
            For infinite or textual cells, a table without an observed cell, parameters
            outside their range, a model whose log-density has the wrong shape or is
            NaN, and noise without a density of observed cells.
        TypeError
            For parameters of a wrong type.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        _, kept = rows_that_count(X, None)
        self.node_indices_ = self._observed_columns(X[kept])
        table = X[kept].astype(np.float64)
        self._split_constants(table)
        self._warn_of_constants("the model")
        self._keep_possible(X[kept])
        nodes = table[:, self.node_indices_]
        nodes = nodes[~np.isnan(nodes).all(1)]
        _, spread = column_moments(nodes, np.ones(len(nodes)))
        check_spread(self, self.node_indices_, spread)
        self._announce_tails(table, self.node_indices_)
        on_round, finish = report_rounds(self, self._most_rounds(), X=X)
        with one_thread(), torch.enable_grad(), seeded(self.random_state) as seed:
            self._seed = seed
            if self.node_indices_.size:
                self._fit_model(nodes, on_round)
            else:
                self._keep_no_model()
        finish()
        return self

    def _fit_model(self, nodes, on_round):
        """Fit, check and judge the model."""
        try:
            converged, noise = self._fit_nodes(nodes, on_round)
            self._warn_unless_converged(converged)
            with step("checking the scale by fresh noise"):
                self._check_scale(self._scaled(nodes), noise)
            self._judge(nodes)
        except NotFinite as error:
            raise ValueError(
                f"The objective cannot be followed: {error}. The log_density of model "
                "overflows, or is NaN, near the data or the noise; bound its "
                "parameters, or lower learning_rate_init."
            ) from error
        except torch.linalg.LinAlgError as error:
            raise ValueError(
                "A covariance matrix is not positive definite: columns of X repeat "
                "others. Drop them, or raise alpha."
            ) from error

    def _keep_no_model(self):
        """Keep what a fit sets where all columns are constant."""
        none, square = np.zeros(0), np.zeros((0, 0))
        self._forget()
        if self.model is None:
            self.mean_, self.covariance_ = none, square
        self.noise_, self.model_state_, self.posterior_state_ = {}, {}, {}
        self.log_scale_ = self.log_scale_gap_ = 0.0
        self.objective_, self.accuracy_ = np.nan, 0.5
        self.loss_curve_, self.n_iter_, self.n_latents_ = [], 0, 0
        self._location = self._scale = none
        self._cache = []
        self._check_held_out(square, None)

    def _forget(self):
        """Leave out the attributes of an earlier fit of another model."""
        for name in ("mean_", "covariance_"):
            vars(self).pop(name, None)

    @shows_progress
    def transform(self, X):
        """Compute the posterior means of what rows hide.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_latents_) or (n_samples, n_features_out)
            Means of the latents where the model has some; else, or where all columns
            were constant at `fit`, the completed table.
            Means over weighted draws, with random numbers that are functions of the
            row, where they are not known in closed form.
        """
        X = self._checked(X)
        if self.n_latents_:
            found = [
                self._latent_mean(nodes)
                for _, nodes in self._parts(X, n_chains=self._chains(_EVALUATED))
            ]
            return into_dtype(np.concatenate(found), X.dtype)
        filled = self._constants_filled(X)
        for cells, nodes in self._parts(X, only_incomplete=True, n_chains=_EVALUATED):
            completed = self._fill_marginal(self._filled(nodes))
            filled[cells] = into_dtype(completed, X.dtype)
        return self._columns_out(filled, X)

    @shows_progress
    def sample(self, X, n_draws=1, random_state=None):
        """Draw what rows hide from the posterior of the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        n_draws : int, default=1
            Number of draws.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; None gives others at every call.

        Returns
        -------
        ndarray of shape (n_draws, n_samples, n_latents_ or n_features_out)
            Latents where the model has some; else completed tables.  Each is chosen
            among candidates from the fitted posterior, by their weights.
        """
        check_number(n_draws, "n_draws", low=1, integer=True)
        X = self._checked(X)
        place = 1 if self.n_latents_ else 0
        tiled = np.tile(X, (n_draws, 1))
        if place:
            out = np.empty((len(tiled), self.n_latents_), X.dtype)
        else:
            out = self._constants_filled(tiled)
        with one_thread(), seeded(random_state), torch.no_grad():
            for (rows, columns), nodes in self._parts(
                tiled, only_incomplete=not place, n_chains=self._chains(_CANDIDATES)
            ):
                chosen = self._choose(self._scaled(nodes), place)
                if place:
                    out[rows[:, 0]] = into_dtype(chosen, X.dtype)
                else:
                    cells = self._draw_marginal(self._in_units(chosen))
                    cells = self._made_possible(cells)
                    out[rows, columns] = into_dtype(cells, X.dtype)
        out = out.reshape(n_draws, len(X), -1)
        return out if place else self._columns_out(out, X)

    @shows_progress
    def score_samples(self, X):
        """Compute the log-density of the observed cells of each row, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
            0 where all columns were constant at `fit`.
            Normalised by the fitted scale parameter: as good as that estimate is.
            Where hidden parts are drawn, an average over weighted draws, which is too
            low on average in the logarithm.
        """
        X = self._checked(X)
        scores = np.zeros(len(X))
        for (rows, _), nodes in self._parts(X, n_chains=self._chains(_EVALUATED)):
            units = np.where(np.isnan(nodes), 0.0, np.log(self._scale)).sum(1)
            data = self._scaled(nodes)
            with one_thread(), torch.no_grad():
                evaluated = self._evaluated(data.observed)
                draws, ratio = self._drawn(*evaluated, data, row_lattice(nodes, 0))
                found = log_marginal(ratio, draws.log_weight)
            scores[rows[:, 0]] = found.numpy() - units
        return scores

    @shows_progress
    def score(self, X, y=None):
        """Compute the objective J_VNCE at rows of X; larger is better.

        The noise is a reference that depends on the training data alone, the product
        of the columns' marginals with ten rows of noise for each row, so that
        candidates that differ in any parameter can be compared, as by `GridSearchCV`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.

        Returns
        -------
        float
            Where all columns were constant at `fit`, that of a guess at random.
        """
        X = self._checked(X)
        if not self.node_indices_.size:
            return _CHANCE
        empty = np.isnan(X[:, self.node_indices_]).all(1)
        rows = X if empty.all() else X[~empty]
        with one_thread(), seeded(0), torch.no_grad():
            noise = self._reference()
            pool = noise.sample(_POOL)
            n_chains = self._chains(_EVALUATED * (1 + _RATIO))
            found = [
                self._reference_values(noise, pool, nodes).numpy()
                for _, nodes in self._parts(rows, n_chains=n_chains)
            ]
        return float(np.concatenate(found).mean())

    def to_torch(self):
        """Return the fitted module.

        Returns
        -------
        torch.nn.Module
            Its ``log_density`` subtracts the fitted scale parameter; the module that
            ``model`` made is its attribute ``model``.  The default model sees columns
            less their means, divided by their standard deviations.

        Raises
        ------
        ValueError
            If all columns were constant at `fit`.
        """
        check_is_fitted(self)
        if not self.node_indices_.size:
            raise ValueError("All columns were constant at fit: there is no model.")
        return self._modules()[0]

    def _check_parameters(self):
        if self.model is not None and not callable(self.model):
            raise TypeError(
                "model must be None or a callable that maps the number of features to "
                f"a torch.nn.Module, got {type(self.model).__name__}."
            )
        if isinstance(self.model, nn.Module):
            raise TypeError(
                "model must be a callable that makes a torch.nn.Module, not a module: "
                "each fit needs a new one. Pass lambda n_features: ..., or the class."
            )
        if self.posterior is not None and not callable(self.posterior):
            check_choice(self.posterior, "posterior", ["normal", "bernoulli"])
        if isinstance(self.noise, str):
            check_choice(self.noise, "noise", _NOISES)
        elif not isinstance(self.noise, Distribution | nn.Module):
            self._check_density(self.noise)
        check_number(self.noise_ratio, "noise_ratio", low=1, integer=True)
        if self.n_latents is not None:
            check_number(self.n_latents, "n_latents", low=1, integer=True)
        check_number(self.n_draws, "n_draws", low=1, integer=True)
        check_choice(self.solver, "solver", ["auto", "lbfgs", "adam"])
        check_auto_or_number(self.alpha, "alpha", low=0)
        for name in ("n_init", "n_steps", "batch_size", "max_iter"):
            check_number(getattr(self, name), name, low=1, integer=True)
        check_number(self.learning_rate_init, "learning_rate_init", low=0, above=True)
        check_number(self.tol, "tol", low=0)
        self._check_on_misfit()
        check_bool(self.keep_empty_features, "keep_empty_features")

    @staticmethod
    def _check_density(noise):
        for method in ("sample", "log_prob"):
            if not callable(getattr(noise, method, None)):
                raise TypeError(
                    f"noise must have a density: {type(noise).__name__} has no method "
                    f"{method}. Pass one of {_NOISES}, a torch Distribution or a zuko "
                    "flow."
                )

    def _fit_nodes(self, nodes, on_round):
        """Fit from every start, keep the best, and tell whether it converged.

        Returns
        -------
        converged : bool
        noise : object
            With a density, see `_fit_noise`; where the noise has none, the reference.
        """
        mean, spread = column_moments(nodes, np.ones(len(nodes)))
        own = self.model is not None
        self._location = np.zeros_like(mean) if own else mean
        self._scale = np.ones_like(spread) if own else spread
        data = self._scaled(nodes)
        self._summarise(nodes, mean, spread)
        pilot = cache(partial(parts.pilot_normal, data, _SHARES))
        noise = self._fit_noise(data, pilot)
        summary = parts.Summary(*map(torch.tensor, self._summary))
        if noise is None:
            contrast = parts.contrast_around(data, summary, self.noise_ratio)
        else:
            contrast = parts.contrast_with(noise, data, self.noise_ratio)
        training = fitting.Training(
            data, contrast, summary, noise is not None, self._seed, pilot
        )
        best = self._best(training, on_round)
        self._keep(data, best)
        return best.converged, noise or self._reference()

    def _judge(self, nodes):
        """Fit to the cells that are not held out, and predict the others."""
        hidden = None  # a tenth, where `transform` imputes
        if self.n_latents_ or not np.isnan(nodes).any():
            hidden = np.zeros(nodes.shape, dtype=bool)

        def predict(kept, rows):
            twin = copy.copy(self)
            try:
                twin._fit_nodes(kept[~np.isnan(kept).all(1)], tell_round)
            except (NotFinite, torch.linalg.LinAlgError):
                return None
            return twin._filled(kept[rows])

        self._check_held_out(nodes, predict, hidden=hidden)
        self._announce_misfit(_REMEDY)

    def _most_rounds(self):
        return self.n_init * self.max_iter * fitting.PER_ROUND

    def _best(self, training, on_round):
        """Fit from every start; those that fail count only if all do."""
        found, failure = [], None
        for _ in steps("start", range(self.n_init), self.n_init, has_parts=True):
            try:
                one = fitting.from_one_start(self, training, on_round)
            except NotFinite as error:
                failure = error
                continue
            if one.evaluation.values.mean().isfinite():
                found.append(one)
            else:
                failure = NotFinite("the objective is not finite at the end")
        if not found:
            raise failure
        return max(found, key=lambda one: float(one.evaluation.values.mean()))

    def _summarise(self, nodes, mean, spread):
        """Describe the columns: marginals in the units of X, the rest as scaled."""
        found = parts.Summary.of(nodes, mean, spread)
        count = torch.from_numpy((~np.isnan(nodes)).sum(0)).double()
        marginals = Marginals.fit(found.kind, found.mean, found.spread.square(), count)
        self._marginals = tuple(part.numpy() for part in marginals)
        if self.model is None:  # columns are standardised: of no kind
            zero, one = torch.zeros_like(found.mean), torch.ones_like(found.mean)
            found = parts.Summary(torch.zeros_like(found.kind), zero, one, one)
        self._summary = tuple(part.numpy() for part in found)

    def _reference(self):
        """Return the product of the marginals, for rows as the model sees them."""
        units = map(torch.tensor, (self._location, self._scale))
        return Rescaled(Marginals(*map(torch.tensor, self._marginals)), *units)

    def _fit_noise(self, data, pilot):
        """Fit the noise; None for the conditional one, which has no density."""
        kind = self.noise
        if isinstance(kind, str) and kind == "auto":
            kind = "gaussian" if self.model is None else "marginal"
        if not isinstance(kind, str):
            self.noise_ = {}
            joint = kind() if isinstance(kind, nn.Module) else kind
            self._check_density(joint)
            units = map(torch.tensor, (self._location, self._scale))
            return Rescaled(given(joint, data.x.shape[1]), *units)
        if kind == "gaussian":
            normal = pilot()
            square = np.outer(self._scale, self._scale)
            self.noise_ = {
                "mean": self._location + normal.mean.numpy() * self._scale,
                "covariance": normal.covariance.numpy() * square,
            }
            return GaussianNoise(normal)
        names = ("kind", "location", "spread")
        self.noise_ = dict(zip(names, self._marginals, strict=True))
        if kind == "conditional":
            self.noise_ = {}
            return None
        return self._reference()

    def _keep(self, data, best):
        """Write a fit into attributes."""
        model, steps = best.model.requires_grad_(False), best.steps
        self.loss_curve_ = [float(loss) for loss in best.losses]
        self.n_iter_ = len(self.loss_curve_)
        self.n_latents_ = best.n_latents
        self.objective_ = float(best.evaluation.values.mean())
        self.accuracy_ = float(self._accuracy(best.evaluation))
        self._forget()
        if isinstance(model.model, FreeGaussian):
            normal = model.model.free.normal()
            self.mean_ = self._location + normal.mean.numpy() * self._scale
            square = np.outer(self._scale, self._scale)
            self.covariance_ = normal.covariance.numpy() * square
            steps = [parts.exact_cells(normal)]
        self._factories, self._stream = (self.model, self.posterior), best.stream
        self._cache = [model, nn.ModuleList(steps).requires_grad_(False)]
        if self._is_conditional() and not hasattr(model.model, "log_scale"):
            model.rescale(self._integral(data))
        self.model_state_, self.posterior_state_ = map(state_of, self._cache)
        self.log_scale_ = float(model.log_scale)

    def _warn_unless_converged(self, converged):
        if not converged:
            warn_user(
                f"The objective still moved after {self.n_iter_} iterations. Raise "
                f"max_iter={self.max_iter} (or tol={self.tol:g}, which acts where what "
                "rows hide is drawn or enumerated).",
                ConvergenceWarning,
            )

    def _check_scale(self, data, noise):
        """Compare the scale parameter with importance sampling from fresh noise."""
        some = data.take(slice(_CHECKED))
        found = self._against(noise, some, self.noise_ratio)
        self.log_scale_gap_ = float(em.log_mean(found.noise))
        if self.log_scale_gap_ > _GAP:
            warn_user(
                f"Fresh noise finds an integral exp({self.log_scale_gap_:.2g}) times "
                "that of log_scale_: the model has mass where neither data nor noise "
                f"were, and nothing held it down. Raise noise_ratio={self.noise_ratio} "
                "or alpha, or take a noise closer to the data.",
                ConvergenceWarning,
            )

    def _is_conditional(self):
        return isinstance(self.noise, str) and self.noise == "conditional"

    def _accuracy(self, found):
        """Compute how often data are told from as much noise, or from neighbours."""
        if self._is_conditional():
            return (found.data > found.noise).double().mean()
        return found.accuracy()

    def _integral(self, data):
        """Fit the scale parameter alone, against the reference noise."""
        found = self._against(self._reference(), data, _RATIO)
        return em.fit_scale(found.data, found.noise)

    def _against(self, noise, data, noise_ratio):
        """Evaluate the fitted model at rows and fresh noise."""
        contrast = parts.contrast_with(noise, data, noise_ratio)
        log_density, posterior = self._evaluated(data.observed, self.n_draws)
        width = data.x.shape[1] + self.n_latents_
        size = fitting.rows_at_once(posterior, width, noise_ratio)
        problem = em.Problem(log_density, posterior, contrast, size=size)
        return em.evaluate(problem)

    @filled_once
    def _modules(self):
        """Return the fitted modules, rebuilt after a pickle: model and posterior."""
        if not self._cache:
            model, posterior = self._factories
            d = len(self.node_indices_)
            normal = parts.some_normal(d)
            with seeded(0):
                torch.set_rng_state(torch.tensor(self._stream))
                module = parts.build_model(model, lambda: normal, d)
                steps = parts.build_posterior(
                    posterior,
                    module,
                    self.n_latents_,
                    parts.Summary(*map(torch.tensor, self._summary)),
                    lambda positive: normal,
                )
                if model is None:
                    steps = [parts.exact_cells(normal)]
            load_state(module, self.model_state_)
            steps = load_state(nn.ModuleList(steps), self.posterior_state_)
            built = module, steps
            self._cache = [part.eval().requires_grad_(False) for part in built]
        return self._cache

    def _evaluated(self, observed, n_draws=_EVALUATED):
        """Return log phi and the posterior that evaluates it at rows."""
        model, steps = self._modules()
        if parts.is_integrated(self._factories[1], model):
            return model.log_marginal, em.integrated
        return model.log_density, parts.joined(steps, n_draws, observed)

    def _drawn(self, log_density, posterior, data, uniforms):
        """Draw what rows hide, and compute log phi less log q."""
        draws = posterior(data.x, data.observed, uniforms)
        return draws, log_ratio(log_density, draws, data.x.new_zeros(len(data.x)))

    def _weighted(self, data, uniforms, n_draws=_EVALUATED):
        """Draw what rows hide; return values and log weights."""
        model, steps = self._modules()
        posterior = parts.joined(steps, n_draws, data.observed)
        draws, ratio = self._drawn(model.log_density, posterior, data, uniforms)
        return draws.values, (ratio + draws.log_weight).log_softmax(0)

    def _latent_mean(self, nodes):
        with one_thread(), torch.no_grad():
            values, weight = self._weighted(self._scaled(nodes), row_lattice(nodes, 0))
            return (weight.exp()[..., None] * values[1]).sum(0).numpy()

    def _completed(self, nodes):
        data = self._scaled(nodes)
        model, _ = self._modules()
        with one_thread(), torch.no_grad():
            if hasattr(model.model, "conditional_mean"):
                return model.model.conditional_mean(data.x, data.observed)
            (x,), weight = self._weighted(data, row_lattice(nodes, 0))
            return (weight.exp()[..., None] * x).sum(0)

    def _filled(self, nodes):
        """Fill nodes, in the units of X, by means within the ranges."""
        return self._clipped(self._in_units(self._completed(nodes)))

    def _choose(self, data, place):
        """Draw once from the posterior, by choice among weighted candidates."""
        model, _ = self._modules()
        exact = isinstance(model.model, FreeGaussian)
        values, weight = self._weighted(
            data, em.global_stream, 1 if exact else _CANDIDATES
        )
        chosen = torch.multinomial(weight.exp().T, 1).T[..., None]
        chosen = chosen.expand(1, -1, values[place].shape[-1])
        return values[place].gather(0, chosen)[0]

    def _reference_values(self, noise, pool, nodes):
        """Compute J_VNCE of rows, with reference noise that is keyed by the row."""
        data = self._scaled(nodes)
        template = data.x.new_empty(_RATIO, len(nodes), 1)
        places = (row_keyed(nodes, 1)(0, template) * len(pool)).long().squeeze(-1)
        rows = (data.x, pool[places])
        contrast = Contrast(
            *(Rows(x, data.observed, noise.log_prob(x, data.observed)) for x in rows)
        )
        numbers = row_lattice(nodes, 2), row_lattice(nodes, 3)
        return variational_values(*self._evaluated(data.observed), contrast, numbers)

    def _chains(self, n_draws):
        """Count the tables of numbers that evaluating rows holds at a time."""
        if not self.node_indices_.size:
            return n_draws
        _, steps = self._modules()
        return n_draws * parts.n_states(steps)

    def _names_out(self, names):
        if not self.n_latents_:
            return super()._names_out(names)
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{i}" for i in range(self.n_latents_)], dtype=object)

    def _in_units(self, scaled):
        return self._location + scaled.numpy() * self._scale

    def _scaled(self, nodes):
        return Incomplete.from_array((nodes - self._location) / self._scale)
