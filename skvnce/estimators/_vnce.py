"""Variational noise-contrastive estimation of any model of rows."""

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
from skvnce.algorithms.vnce import contrasts, em, initial, modules
from skvnce.algorithms.vnce import fit as fitting
from skvnce.algorithms.vnce.columns import ColumnSummary
from skvnce.estimators._base import CellSampler, check_sample
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
    shows_progress,
)
from skvnce.estimators._misfit import HELD_OUT, HeldOutCheck
from skvnce.estimators._modules import CachedModules, filled_once, load_state, state_of
from skvnce.estimators._tables import (
    column_moments,
    hold_out,
    into_dtype,
    rows_with_data,
)
from skvnce.estimators._validation import (
    check_auto_or_number,
    check_bool,
    check_choice,
    check_deviations,
    check_number,
    incomplete_array,
    keeps_state_on_failure,
)
from skvnce.estimators._vnce_checks import refusals_named
from skvnce.models.free_gaussian import FreeGaussian
from skvnce.models.noise import GaussianNoise, Marginals, Rescaled, given
from skvnce.objectives.vnce import (
    Contrast,
    Rows,
    log_marginal,
    log_ratio,
    marginal_error,
    variational_values,
)
from skvnce.training.adam import NotFinite
from skvnce.variational.base import global_stream
from skvnce.variational.sequential import SequentialPosterior, integrated, joined

_EVALUATED = 64  # number of draws for means, scores and densities
_CANDIDATES = 20  # number of draws of which `sample` selects one
_POOL = 10_000  # rows of the reference noise that `score` draws its noise from
_GAP = 1.0  # `log_scale_gap_` above which `fit` warns
_CHECKED = 2000  # maximum number of rows for the check of the scale by fresh noise
_RATIO = 10  # number of reference noise rows for each row of data in `score`
_CHANCE = _RATIO * log(_RATIO) - (1 + _RATIO) * log(1 + _RATIO)  # of a random guess
_REMEDY = (
    "Use a model that suits the shape of these columns, logarithms of skewed columns, "
    "a larger ridge, or noise closer to the data."
)
_NOISES = ["auto", "marginal", "gaussian", "conditional"]


class VNCEEstimator(CallbackSupportMixin, HeldOutCheck, CachedModules, CellSampler):
    """Fit any model, normalised or not, by contrasting rows with noise.

    Noise-contrastive estimation (NCE) needs the log-density of a model only up to a
    constant, and estimates the constant together with the parameters.  Unobserved
    variables, that is missing cells and latents, are integrated out if the model
    supports it, and otherwise follow a variational posterior (VNCE).

    Parameters
    ----------
    model : callable or None, default=None
        Maps the number of features (columns with at least two different values) to a
        `torch.nn.Module` with a method ``log_density(x)`` or ``log_density(x, z)``.  It
        returns the log-density of the model up to a constant, a tensor of shape (n,),
        for rows x of shape (n, n_features) and latents z of shape (n, n_components).
        None is a Gaussian with free mean and precision.  See Notes for optional
        attributes and methods of the module.
    posterior : None, "normal", "bernoulli" or callable, default=None
        Distribution of the latents given a row.  None uses the exact one if the module
        provides it, else ``"normal"``: a network gives mean and standard deviation of
        each latent.  ``"bernoulli"``: a network gives the probability that a latent is
        1.  A callable maps (n_features, n_components) to a module whose ``forward(x,
        observed)`` returns a `torch.distributions.Distribution` of batch shape (n,
        n_components).  With any value except None, unobserved variables are drawn even
        if the module can integrate them out.
    noise : str, Distribution or zuko flow, default="auto"
        Distribution with which rows are contrasted.  ``"marginal"``: a product of
        marginals fitted to the columns, Bernoulli for columns of zeros and ones,
        truncated normal for columns without negative values, else normal.
        ``"gaussian"``: a normal distribution of whole rows, fitted by EM.
        ``"conditional"``: random steps around each row (conditional NCE), which need no
        density.  ``"auto"``: ``"gaussian"`` for the default model, else ``"marginal"``.
        You can also pass a distribution of rows with ``sample`` and ``log_prob``; if
        cells are missing, it must have independent columns or be a
        `MultivariateNormal`.  Estimates are better the closer the noise is to the data.
    noise_ratio : int, default=10
        nu, the number of rows of noise for each row of data.
    n_components : int or None, default=None
        Number of latents; None uses the attribute of the module.
    n_training_draws : int, default=5
        Number of draws of the unobserved variables of each row.
    solver : {"auto", "lbfgs", "adam"}, default="auto"
        ``"lbfgs"`` alternates between updates of posterior and model (variational EM)
        with common random numbers.  ``"adam"`` optimises both together on mini-batches
        and also supports posteriors of discrete draws.  ``"auto"`` is ``"lbfgs"``
        whenever it is possible.
    ridge : "auto" or float, default="auto"
        Strength of the penalty ``ridge |theta|^2 / (2 n)`` of the model's parameters.
        ``"auto"`` is 0 for your own models.  For the default model it is the number of
        parameters, which are zero at the normal distribution that EM fits: with few
        rows per column the fit stays close to that of EM, whose shrinkage held-out
        cells choose.
    n_init : int, default=1
        Number of random starts; the one with the best objective is kept.
    n_steps : int, default=5
        Number of iterations of L-BFGS in each update.  Many iterations overfit the
        current draws.
    batch_size : int, default=200
        Number of rows in a mini-batch of ``"adam"``.
    learning_rate_init : float, default=0.03
        Initial learning rate of ``"adam"``; it decreases to zero.
    max_iter : int, default=200
        Maximum number of rounds of ``"lbfgs"``; number of epochs of ``"adam"``.  If
        there are no draws, a round is 20 iterations of L-BFGS.
    tol : float, default=1e-5
        ``"lbfgs"`` stops if the objective changes by less than `tol` in each of five
        rounds.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column, or if
        the model predicts held-out cells of a column significantly worse than the mean
        of the column does (`held_out_gain_`): it warns
        (`skvnce.exceptions.MisfitWarning`) or raises a ValueError.  The second check
        needs a second fit without these cells.  ``"ignore"`` skips both.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, as 0.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of noise, draws and starts.
    verbose : int, default=0
        If 1, print a line for each round, and for each other step that takes longer
        than a second.  If 2, print all steps.

    Attributes
    ----------
    log_scale_ : float
        c, the estimate of the logarithm of the model's integral.  0 if the module has
        its own `log_scale`.
    log_scale_gap_ : float
        The logarithm of the integral, estimated by importance sampling from fresh
        noise, minus `log_scale_`.  It is near 0 if the estimate is reliable.
    ridge_ : float
        The `ridge` that the fit used.  NaN if it is ``"auto"`` and all columns are
        constant.
    objective_ : float
        The objective J_VNCE per row of training data (for ``"conditional"`` noise, that
        of conditional NCE).
    accuracy_ : float
        Accuracy with which the fitted model classifies rows as data or noise (with
        ``"conditional"`` noise, as a row or its neighbour): 0.5 if they have the same
        distribution.  If it is near 1, the noise is too far from the data and estimates
        are inaccurate: use noise closer to the data.
    loss_curve_ : list of float
        Negative objective plus the penalty in each iteration.
    n_iter_ : int
        Number of iterations.  It and `loss_curve_` are those of the best start.
    mean_, covariance_ : ndarray
        Mean and covariance of the default model, in the units of X; of shapes
        (n_nodes,) and (n_nodes, n_nodes).
    n_components_ : int
        Number of latents; 0 if the model has none.
    noise_ : dict
        Parameters of the fitted noise, as arrays, in the units of X.
    model_state_, posterior_state_ : dict
        Parameters of the fitted modules, as arrays.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict
        Values of the constant columns, by column index; `fit` warns about them.  If all
        columns are constant there is no model: `n_components_` is 0, `objective_` NaN.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of the column
        means, on a tenth of the observed cells, by a fit without them; all columns have
        the same weight.  Negative if the means predict better.  NaN for models with
        latents, if no cell of X is missing, if the columns have too few cells to hold
        some out, and with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts significantly worse than their means, and
        heavy-tailed columns that it does not predict better.  `transform` fills them by
        their means, and `sample` draws from their observed values.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column: the observed range.  In
        columns without repeated values this range is widened by three times the mean
        excess of the outermost values.  Draws of columns with repeated values are
        observed values, and draws of integer columns are integers.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    A module may have the following attributes and methods: ``n_components``;
    ``states``, a tensor (n_states, n_components) of all values of z, for an exact
    posterior;
    ``log_marginal(x, observed)``, the log-density of the observed cells with latents
    and missing cells integrated out; ``conditional_mean(x, observed)``, the filled
    rows; ``log_scale``, if its log-density has its own scale parameter or is normalised
    (a constant in that case).

    When a pickle is loaded, the callable makes the module again, with the same state of
    torch's random numbers.  Everything in the module except its state must be
    reproducible in this way.

    The module gets the columns without scaling.  If units matter, put a
    `StandardScaler`, which keeps NaN, before the estimator; the default model needs
    none.

    The standard error of `log_scale_` decreases with n and nu, and increases with the
    distance between noise and data; `log_scale_gap_` compares it with a second
    estimate.  For flexible models and few rows `log_scale_` is too low.

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
        n_components=None,
        n_training_draws=5,
        solver="auto",
        ridge="auto",
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
        self.n_components = n_components
        self.n_training_draws = n_training_draws
        self.solver = solver
        self.ridge = ridge
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
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None
            Ignored.

        Returns
        -------
        self : VNCEEstimator

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no cell is observed, if a
            parameter is out of range, if the log-density of the model has the wrong
            shape or is NaN, or if the noise has no density of observed cells.
        DivergenceError
            If the objective overflows.
        TypeError
            If a parameter has a wrong type.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        _, kept = rows_with_data(X, None)
        self.feature_indices_ = self._observed_columns(X[kept])
        table = X[kept].astype(np.float64)
        self._split_constants(table)
        self._keep_possible(X[kept])
        nodes = table[:, self.feature_indices_]
        nodes = nodes[~np.isnan(nodes).all(1)]
        _, scale = column_moments(nodes, np.ones(len(nodes)))
        check_deviations(self, self.feature_indices_, scale)
        self._announce_tails(table, self.feature_indices_)
        on_round, finish = report_rounds(self, self._most_rounds(), X=X)
        with one_thread(), torch.enable_grad(), seeded(self.random_state) as seed:
            self._seed = seed
            if self.feature_indices_.size:
                self._fit_model(nodes, on_round)
            else:
                self._keep_no_model()
        finish()
        return self

    @refusals_named
    def _fit_model(self, nodes, on_round):
        """Fit the model and check it."""
        converged, noise = self._fit_nodes(nodes, on_round)
        self._warn_unless_converged(converged)
        with step("checking the scale by fresh noise"):
            self._check_scale(self._scaled(nodes), noise)
        self._judge(nodes)

    def _keep_no_model(self):
        """Set the attributes of a fit in which all columns are constant."""
        none, square = np.zeros(0), np.zeros((0, 0))
        self._forget()
        if self.model is None:
            self.mean_, self.covariance_ = none, square
        self.noise_, self.model_state_, self.posterior_state_ = {}, {}, {}
        self.log_scale_ = self.log_scale_gap_ = 0.0
        self.ridge_ = np.nan if isinstance(self.ridge, str) else float(self.ridge)
        self.objective_, self.accuracy_ = np.nan, 0.5
        self.loss_curve_, self.n_iter_, self.n_components_ = [], 0, 0
        self._location = self._scale = none
        self._cache = []
        self._check_held_out(square, None)

    def _forget(self):
        """Delete the attributes of an earlier fit of another model."""
        for name in ("mean_", "covariance_"):
            vars(self).pop(name, None)

    @shows_progress
    def transform(self, X):
        """Compute the posterior means of the unobserved variables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_components_) or (n_samples, n_features_out)
            Means of the latents if the model has latents.  Otherwise, and if all
            columns were constant at `fit`, the completed table.  Means without a closed
            form are averages over weighted draws, with random numbers that are
            functions of the row.
        """
        X = self._checked(X)
        if self.n_components_:
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
    def sample_latents(self, X, n_draws=1, random_state=None, *, as_array=False):
        """Draw the latents from their posterior given the observed cells.

        Each draw is chosen among candidates from the fitted posterior, by their
        weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        n_draws : int, default=1
            Number of draws.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.
        as_array : bool, default=False
            Whether to return one array of all draws instead of a list.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_components_), or ndarray of \
                shape (n_draws, n_samples, n_components_)
            Those of a list are arrays or data frames, as `transform` returns them.

        Raises
        ------
        ValueError
            If the model has no latents.
        """
        check_sample(n_draws, as_array)
        checked = self._checked(X)
        if not self.n_components_:
            raise ValueError("The model has no latents. sample draws missing cells.")
        drawn = self._posterior_draws(checked, n_draws, random_state, 1)
        names = self.get_feature_names_out()
        return drawn if as_array else self._in_containers(drawn, X, names)

    def _drawn_tables(self, X, n_draws, random_state):
        return self._columns_out(self._posterior_draws(X, n_draws, random_state, 0), X)

    def _posterior_draws(self, X, n_draws, random_state, part):
        """Draw cells (part 0) or latents (part 1); (n_draws, n_samples, n_columns)."""
        tiled = np.tile(X, (n_draws, 1))
        if part:
            out = np.empty((len(tiled), self.n_components_), X.dtype)
        else:
            out = self._constants_filled(tiled)
        with one_thread(), seeded(random_state), torch.no_grad():
            for (rows, columns), nodes in self._parts(
                tiled, only_incomplete=not part, n_chains=self._chains(_CANDIDATES)
            ):
                chosen = self._choose(self._scaled(nodes), part)
                if part:
                    out[rows[:, 0]] = into_dtype(chosen, X.dtype)
                else:
                    cells = self._draw_marginal(self._in_units(chosen))
                    cells = self._made_possible(cells)
                    out[rows, columns] = into_dtype(cells, X.dtype)
        return out.reshape(n_draws, len(X), -1)

    @shows_progress
    def score_samples(self, X, return_std=False):
        """Compute the log-density of the observed cells of each row, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return standard errors, estimated from the variance of the
            draws of unobserved variables.  They do not include the error of
            `log_scale_`.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            0 if all columns were constant at `fit`.  The normalisation uses the fitted
            scale parameter, so it is as accurate as this estimate.  If unobserved
            variables are drawn, it is the logarithm of an average over weighted draws,
            which is on average too low.
        std : ndarray of shape (n_samples,)
            Standard errors, 0 for rows of which nothing is drawn; only if `return_std`
            is True.
        """
        X = self._checked(X)
        scores, errors = np.zeros((2, len(X)))
        for (rows, _), nodes in self._parts(X, n_chains=self._chains(_EVALUATED)):
            units = np.where(np.isnan(nodes), 0.0, np.log(self._scale)).sum(1)
            data = self._scaled(nodes)
            with one_thread(), torch.no_grad():
                evaluated = self._evaluated(data.observed)
                draws, ratio = self._drawn(*evaluated, data, row_lattice(nodes, 0))
                found = log_marginal(ratio, draws.log_weight)
                n_draws = getattr(evaluated[1], "n_draws", 1)
                error = marginal_error(ratio, draws.log_weight, n_draws)
            scores[rows[:, 0]] = found.numpy() - units
            errors[rows[:, 0]] = error.numpy()
        return (scores, errors) if return_std else scores

    @shows_progress
    def objective(self, X, y=None):
        """Compute the objective J_VNCE at rows of X; larger is better.

        The reference noise depends only on the training data: the product of the
        marginals of the columns, with ten rows of noise for each row.  So values can be
        compared between candidates that differ in any parameter, also where their
        log-densities are not normalised well: ``GridSearchCV(..., scoring=lambda
        estimator, X, y=None: estimator.objective(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.

        Returns
        -------
        float
            If all columns were constant at `fit`, the objective of a random guess.
        """
        X = self._checked(X)
        if not self.feature_indices_.size:
            return _CHANCE
        empty = np.isnan(X[:, self.feature_indices_]).all(1)
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
            Its ``log_density`` subtracts the fitted scale parameter.  Its attribute
            ``model`` is the module that the callable ``model`` made.  The default model
            takes standardised columns.

        Raises
        ------
        ValueError
            If all columns were constant at `fit`.
        """
        check_is_fitted(self)
        if not self.feature_indices_.size:
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
        if self.n_components is not None:
            check_number(self.n_components, "n_components", low=1, integer=True)
        check_number(self.n_training_draws, "n_training_draws", low=1, integer=True)
        check_choice(self.solver, "solver", ["auto", "lbfgs", "adam"])
        check_auto_or_number(self.ridge, "ridge", low=0)
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
        """Fit from every start, keep the best, and return whether it converged.

        Returns
        -------
        converged : bool
        noise : object
            With a density, see `_fit_noise`, or else the reference noise.
        """
        mean, scale = column_moments(nodes, np.ones(len(nodes)))
        own = self.model is not None
        self._location = np.zeros_like(mean) if own else mean
        self._scale = np.ones_like(scale) if own else scale
        data = self._scaled(nodes)
        self._summarise(nodes, mean, scale)
        normal = cache(partial(self._initial_normal, data))
        noise = self._fit_noise(data, normal)
        summary = ColumnSummary(*map(torch.tensor, self._summary))
        if noise is None:
            contrast = contrasts.contrast_around(data, summary, self.noise_ratio)
        else:
            contrast = contrasts.contrast_with(noise, data, self.noise_ratio)
        inputs = fitting.Inputs(
            data,
            contrast,
            summary,
            noise is not None,
            self._seed,
            normal,
            lambda positive: initial.normal_of_cells(data, positive, summary.floor),
        )
        best = self._best(inputs, on_round)
        self._keep(data, best)
        return best.converged, noise or self._reference()

    @staticmethod
    def _initial_normal(data):
        """Fit the normal distribution at which the default model starts."""
        weights = torch.ones(len(data.x)).double()
        held_out = hold_out(data.to_array(), weights, HELD_OUT)
        return initial.initial_normal(data, held_out)

    def _settings(self):
        """Collect the parameters that the fit needs."""
        return fitting.Settings(
            self.model,
            self.posterior,
            self.n_components,
            self.noise_ratio,
            self.n_training_draws,
            None if isinstance(self.ridge, str) else float(self.ridge),
            fitting.Solver(
                self.solver,
                self.max_iter,
                self.n_steps,
                self.tol,
                self.batch_size,
                self.learning_rate_init,
            ),
        )

    def _judge(self, nodes):
        """Fit to the cells that are not held out, and predict the others."""
        hidden = None  # select a tenth, from which `transform` is checked
        if self.n_components_ or not np.isnan(nodes).any():
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

    def _best(self, inputs, on_round):
        """Fit from every start; raise an error only if all of them fail."""
        found, failure, settings = [], None, self._settings()
        for _ in steps("start", range(self.n_init), self.n_init, has_parts=True):
            try:
                one = fitting.fit_from_one_start(settings, inputs, on_round)
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

    def _summarise(self, nodes, mean, scale):
        """Compute statistics of columns: marginals in the units of X, others scaled."""
        found = ColumnSummary.of(nodes, mean, scale)
        counts = torch.from_numpy((~np.isnan(nodes)).sum(0)).double()
        self._marginals = tuple(part.numpy() for part in found.marginals(counts))
        if self.model is None:  # its columns are standardised
            found = ColumnSummary.standard(len(mean))
        self._summary = tuple(part.numpy() for part in found)

    def _reference(self):
        """Return the product of the marginals, for rows in the scale of the model."""
        units = map(torch.tensor, (self._location, self._scale))
        return Rescaled(Marginals(*map(torch.tensor, self._marginals)), *units)

    def _fit_noise(self, data, initial_normal):
        """Fit the noise; None for conditional noise, which has no density."""
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
            normal = initial_normal()
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
        """Set the fitted attributes."""
        model, steps = best.model.requires_grad_(False), best.steps
        self.loss_curve_ = [float(loss) for loss in best.losses]
        self.n_iter_ = len(self.loss_curve_)
        self.n_components_ = best.n_components
        self.ridge_ = best.ridge
        self.objective_ = float(best.evaluation.values.mean())
        self.accuracy_ = float(self._accuracy(best.evaluation))
        self._forget()
        if isinstance(model.model, FreeGaussian):
            normal = model.model.free.normal()
            self.mean_ = self._location + normal.mean.numpy() * self._scale
            square = np.outer(self._scale, self._scale)
            self.covariance_ = normal.covariance.numpy() * square
            steps = [modules.exact_cells(normal)]
        self._factories, self._stream = (self.model, self.posterior), best.stream
        self._cache = [model, nn.ModuleList(steps).requires_grad_(False)]
        if self._is_conditional() and not hasattr(model.model, "log_scale"):
            model.rescale(self._integral(data))
        self.model_state_, self.posterior_state_ = map(state_of, self._cache)
        self.log_scale_ = float(model.log_scale)

    def _warn_unless_converged(self, converged):
        if not converged:
            warn_user(
                f"The objective still changed after {self.n_iter_} iterations. Raise "
                f"max_iter={self.max_iter} (or tol={self.tol:g}, which is used only if "
                "unobserved variables are drawn or enumerated).",
                ConvergenceWarning,
            )

    def _check_scale(self, data, noise):
        """Compare the scale parameter with importance sampling from fresh noise."""
        some = data.take(slice(_CHECKED))
        found = self._against(noise, some, self.noise_ratio)
        self.log_scale_gap_ = float(em.log_mean(found.noise))
        if self.log_scale_gap_ > _GAP:
            warn_user(
                f"Fresh noise gives an integral exp({self.log_scale_gap_:.2g}) times "
                "that of log_scale_: the model has mass in regions without data or "
                f"noise in training. Raise noise_ratio={self.noise_ratio} "
                "or ridge, or use noise closer to the data.",
                ConvergenceWarning,
            )

    def _is_conditional(self):
        return isinstance(self.noise, str) and self.noise == "conditional"

    def _accuracy(self, found):
        """Compute the accuracy of classifying data and noise, or neighbours."""
        if self._is_conditional():
            return (found.data > found.noise).double().mean()
        return found.accuracy()

    def _integral(self, data):
        """Fit only the scale parameter, with the reference noise."""
        found = self._against(self._reference(), data, _RATIO)
        return em.fit_scale(found.data, found.noise)

    def _against(self, noise, data, noise_ratio):
        """Evaluate the fitted model at rows and fresh noise."""
        contrast = contrasts.contrast_with(noise, data, noise_ratio)
        log_density, posterior = self._evaluated(data.observed, self.n_training_draws)
        width = data.x.shape[1] + self.n_components_
        size = fitting.rows_at_once(posterior, width, noise_ratio)
        problem = em.Problem(log_density, posterior, contrast, size=size)
        return em.evaluate(problem)

    @filled_once
    def _modules(self):
        """Return the fitted modules, rebuilt after unpickling: model and posterior."""
        if not self._cache:
            model, posterior = self._factories
            d = len(self.feature_indices_)
            normal = initial.standard_normal(d)
            with seeded(0):
                torch.set_rng_state(torch.tensor(self._stream))
                module = modules.build_model(model, lambda: normal, d)
                steps = modules.build_posterior(
                    posterior,
                    module,
                    self.n_components_,
                    ColumnSummary(*map(torch.tensor, self._summary)),
                    lambda positive: normal,
                )
                if model is None:
                    steps = [modules.exact_cells(normal)]
            load_state(module, self.model_state_)
            steps = load_state(nn.ModuleList(steps), self.posterior_state_)
            built = module, steps
            self._cache = [part.eval().requires_grad_(False) for part in built]
        return self._cache

    def _evaluated(self, observed, n_draws=_EVALUATED):
        """Return log phi and the posterior that evaluates it at rows."""
        model, steps = self._modules()
        if modules.is_integrated(self._factories[1], model):
            return model.log_marginal, integrated
        return model.log_density, joined(steps, n_draws, observed)

    def _drawn(self, log_density, posterior, data, uniforms):
        """Draw unobserved variables, and compute log phi minus log q."""
        draws = posterior(data.x, data.observed, uniforms)
        return draws, log_ratio(log_density, draws, data.x.new_zeros(len(data.x)))

    def _weighted(self, data, uniforms, n_draws=_EVALUATED):
        """Draw unobserved variables; return values and log weights."""
        model, steps = self._modules()
        posterior = joined(steps, n_draws, data.observed)
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
        """Draw once from the posterior, by selection among weighted candidates."""
        model, _ = self._modules()
        exact = isinstance(model.model, FreeGaussian)
        values, weight = self._weighted(
            data, global_stream, 1 if exact else _CANDIDATES
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
        """Count the numbers in memory at a time, per cell, when rows are evaluated."""
        if not self.feature_indices_.size:
            return n_draws
        _, steps = self._modules()
        return n_draws * SequentialPosterior(steps, 1).n_states

    def _names_out(self, names):
        if not self.n_components_:
            return super()._names_out(names)
        prefix = type(self).__name__.lower()
        return np.array(
            [f"{prefix}{i}" for i in range(self.n_components_)], dtype=object
        )

    def _in_units(self, scaled):
        return self._location + scaled.numpy() * self._scale

    def _scaled(self, nodes):
        return Incomplete.from_array((nodes - self._location) / self._scale)
