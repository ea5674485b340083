"""Variational noise-contrastive estimation of any model of rows."""

from numbers import Real

import numpy as np
import torch
from sklearn.utils._param_validation import HasMethods, StrOptions
from torch import nn

from skvnce._core.progress import step, tell_round
from skvnce._core.random import seeded
from skvnce._core.runtime import one_thread, state_of
from skvnce._core.training.adam import NotFinite
from skvnce._imputer.callbacks import (
    CallbackSupportMixin,
    failures_named,
    report_rounds,
    reports_fit,
)
from skvnce._imputer.fitted import Fitted, number_or_nan, without_columns
from skvnce._imputer.held_out import HELD_OUT, hold_out
from skvnce._imputer.options import LBFGS, Adam
from skvnce._imputer.validation import (
    AUTO,
    MISSING_VALUES,
    ON_MISFIT,
    RANDOM_STATE,
    STRATEGY,
    Number,
    integer_from,
    read_table,
    warn_of_unused,
)
from skvnce._tables.values import column_moments
from skvnce.contrast.fit import PER_ROUND
from skvnce.contrast.model import (
    DensityArrays,
    FittedDensity,
    ScaledDensity,
    errors_named,
    settings_of,
    solver_fields,
    warn_of_bound,
    warn_of_gap,
    warn_of_rounds,
)
from skvnce.contrast.models import FreeGaussian
from skvnce.contrast.modules import initial_normal
from skvnce.contrast.table import fit_table, fit_with_enough_draws

_REMEDY = (
    "Use a model that suits the shape of these columns, logarithms of skewed columns, "
    "a larger ridge, or noise closer to the data."
)
_DIVERGED = (
    "The log_density of model overflows, or is NaN, near the data or the noise: bound "
    "its parameters, raise ridge, or lower the learning rate of solver=Adam(...)."
)
_NOISES = {"auto", "marginal", "gaussian", "conditional"}
_COUNT = integer_from(1)


class VNCEEstimator(CallbackSupportMixin, FittedDensity):
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
    n_training_draws : "auto" or int, default="auto"
        Number of draws of the unobserved variables of each row.  ``"auto"`` is 5 if no
        cell is missing, else 16, or 64 if 16 are too few and 64 suffice
        (`bound_gap_`).  Draws of missing cells are weighted, so that more of them make
        the fit more accurate.  A power of two is best.
    solver : {"auto", "lbfgs", "adam"}, Adam or LBFGS, default="auto"
        ``"lbfgs"`` alternates between updates of posterior and model (variational EM)
        with common random numbers.  ``"adam"`` optimises both together on mini-batches
        and also supports posteriors of discrete draws.  ``"auto"`` is ``"lbfgs"``
        whenever it is possible.  You can also pass `skvnce.options.LBFGS`, or
        `skvnce.options.Adam`, of which only `batch_size` (``"auto"`` is 200),
        `learning_rate_init` (``"auto"`` is 0.03, and the rate decreases to zero) and
        `device` are used.
    ridge : "auto" or float, default="auto"
        Strength of the penalty ``ridge |theta|^2 / (2 n)`` of the model's parameters.
        ``"auto"`` is 0 for your own models.  For the default model it is the number of
        parameters, which are zero at the normal distribution that EM fits: with few
        rows per column the fit stays close to that of EM, whose shrinkage held-out
        cells choose.
    n_init : int, default=1
        Number of random starts; the one with the best objective is kept.  Densities of
        several modes, such as mixtures, have local optima: use several starts.
    max_iter : int, default=200
        Maximum number of rounds of ``"lbfgs"``; number of epochs of ``"adam"``.  If
        there are no draws, a round is 20 iterations of L-BFGS.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` fills numbers: by their conditional means, medians (of smallest
        mean absolute error) or modes.  All are the mean for the default model, which is
        normal.  Not for models with latents.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column, or if
        the model, fitted without them, predicts held-out cells of a column
        significantly worse than its mean (`held_out_gain_`): it warns
        (`skvnce.exceptions.MisfitWarning`) or raises a ValueError.  ``"ignore"`` skips
        both.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, as in scikit-learn's imputers.  ``np.nan``, None
        and pandas.NA are one marker: cells of each of them, and NaT, are missing.  Of
        other markers a number marks numbers that equal it, and a text equal text; NaN
        is then an error, and cells that stay missing keep the marker.
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
        noise, minus `log_scale_`: near 0 if the estimate is reliable.
    bound_gap_ : float
        Mean log-density of incomplete rows by 1024 draws of their missing cells minus
        that by the draws of the fit, in nats; 0 without draws.  If it is above 0.1,
        `fit` warns: conditional distributions may be too broad.
    ridge_ : float
        The `ridge` that the fit used.  NaN if it is ``"auto"`` and all columns are
        constant.
    objective_ : float
        The objective J_VNCE per row of training data (for ``"conditional"`` noise, that
        of conditional NCE).
    accuracy_ : float
        Accuracy with which the fitted model classifies rows as data or noise (or as a
        row or its neighbour): 0.5 if they have the same distribution.  Near 1, the
        noise is too far from the data.
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
        Indices of the columns with at least two different observed values.
    constants_ : dict
        Values of the constant columns, by column index.  If all columns are constant
        there is no model: `n_components_` is 0, `objective_` NaN.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of the column
        means, on a tenth of the observed cells, by a fit without them.  Negative if the
        means predict better; NaN for models with latents, without missing cells, with
        too few cells, and with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts significantly worse than their means, or that
        are heavy-tailed and not predicted better.  `transform` fills them by their
        means, and `sample` draws observed values.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X; infinite without a law.
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

    A fit is one sequence of rounds, and has no `n_jobs`.  Columns are numbers, and have
    no probabilities of levels.  Each row counts once: the contrast with noise has no
    weights.

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

    _parameter_constraints = {
        "model": [None, callable],
        "posterior": [None, StrOptions({"normal", "bernoulli"}), callable],
        "noise": [StrOptions(_NOISES), HasMethods(["sample", "log_prob"]), nn.Module],
        "noise_ratio": [_COUNT],
        "n_components": [None, _COUNT],
        "n_training_draws": [AUTO, _COUNT],
        "solver": [StrOptions({"auto", "lbfgs", "adam"}), Adam, LBFGS],
        "ridge": [AUTO, Number(Real, 0, None, closed="left")],
        "n_init": [_COUNT],
        "max_iter": [_COUNT],
        "strategy": STRATEGY,
        "on_misfit": ON_MISFIT,
        "missing_values": MISSING_VALUES,
        "keep_empty_features": ["boolean"],
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model=None,
        posterior=None,
        *,
        noise="auto",
        noise_ratio=10,
        n_components=None,
        n_training_draws="auto",
        solver="auto",
        ridge="auto",
        n_init=1,
        max_iter=200,
        strategy="mean",
        on_misfit="warn",
        missing_values=np.nan,
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
        self.max_iter = max_iter
        self.strategy = strategy
        self.on_misfit = on_misfit
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state
        self.verbose = verbose

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
        if self.model is None:
            reason = "the default model has no latent variables; pass a model with some"
            warn_of_unused(self, {"n_components": reason})
        cells, schema = read_table(self, X)
        table = self._chosen(schema, cells, is_whole=False)
        columns = table.schema.model_columns
        self._report_tails(table.schema, table.cells.table, columns)
        on_round, finish = report_rounds(self, self._most_rounds(), X=cells)
        # the caller may have disabled gradients
        with one_thread(), torch.enable_grad(), seeded(self.random_state) as seed:
            fitted = self._fit_model(table, seed, on_round)
        if fitted.report["n_components_"]:
            reason = "transform returns means of the latents"
            warn_of_unused(self, {"strategy": reason})
        finish()
        return self._publish(fitted)

    def _fit_model(self, table, seed, on_round):
        """Fit the model and check it; returns `Fitted`."""
        cells = table.cells
        if not len(table.schema.model_columns):
            return self._no_model(table.schema)
        with errors_named(), failures_named(_DIVERGED):
            settings = settings_of(self.get_params(deep=False), seed, cells.nodes)
            moments = cells.location, cells.scale
            rest = cells.nodes, *moments, _initial_normal, on_round
            found, settings = fit_with_enough_draws(
                lambda asked: fit_table(asked, *rest), settings
            )
            report = _report_of(found)
            if not found.outcome.converged:
                warn_of_rounds(report["n_iter_"], self.max_iter, settings.tol)
            with step("checking the scale by fresh noise"):
                report["log_scale_gap_"] = found.scale_gap(settings)
            warn_of_gap(report["log_scale_gap_"], self.noise_ratio)
            with step("checking the draws of missing cells by more draws"):
                report["bound_gap_"] = found.bound_gap(settings.n_draws)
            warn_of_bound(report["bound_gap_"], settings.n_draws)
            known = table, settings, report["n_components_"]
            schema, checked = self._check_predictions(*known)
            model = DensityArrays.of(found, (self.model, self.posterior))
            return Fitted(schema, model, report | checked.report())

    def _no_model(self, schema):
        """Make the fit to a table whose columns are all constant."""
        report = {"ridge_": number_or_nan(self.ridge), "n_components_": 0}
        report |= {"objective_": np.nan, "accuracy_": 0.5}
        report |= {k: {} for k in ("noise_", "model_state_", "posterior_state_")}
        report |= dict.fromkeys(["log_scale_", "log_scale_gap_", "bound_gap_"], 0.0)
        arrays = (["mean_"], ["covariance_"]) if self.model is None else ()
        return without_columns(schema, report, *arrays)

    def _most_rounds(self):
        return self.n_init * self.max_iter * PER_ROUND

    def _check_parameters(self):
        super()._check_parameters()
        solver_fields(self.solver)
        if isinstance(self.model, nn.Module):
            raise TypeError(
                "model must be a callable that makes a torch.nn.Module, not a module: "
                "each fit needs a new one. Pass lambda n_features: ..., or the class."
            )

    def _check_predictions(self, table, settings, n_components):
        """Predict cells that a fit has not seen; returns what `_held_out` does."""
        schema, cells, nodes = table.schema, table.cells, table.cells.nodes
        hidden = None  # select a tenth, from which `transform` is checked
        if n_components or not np.isnan(nodes).any():
            hidden = np.zeros(nodes.shape, dtype=bool)

        def predict(kept, rows):
            some = kept[~np.isnan(kept).all(1)]
            rest = *_moments(some), _initial_normal, tell_round
            try:
                found = fit_table(settings, some, *rest)
            except (NotFinite, torch.linalg.LinAlgError):
                # cells without a prediction count as predicted infinitely badly
                return None, {}
            with one_thread():
                model = ScaledDensity(found.outcome.fitted, found.units)
                filled, _ = model.fill(kept[rows])
            return schema.values.clipped(filled, schema.model_columns), {}

        options = {"hidden": hidden, "scale": cells.scale}
        checked, found = self._held_out(schema, nodes, predict, **options)
        self._report_misfit(checked, found, _REMEDY)
        return checked, found


def _report_of(found):
    """List what `VNCEEstimator` says of a fit."""
    best, fitted = found.outcome, found.outcome.fitted
    model_state, posterior_state = map(state_of, fitted[:2])
    losses = [float(loss) for loss in best.losses]
    report = {
        "loss_curve_": losses,
        "n_iter_": len(losses),
        "n_components_": fitted.n_components,
        "ridge_": best.ridge,
        "objective_": float(best.evaluation.values.mean()),
        "accuracy_": found.accuracy(),
        "noise_": found.noise.parameters,
        "model_state_": model_state,
        "posterior_state_": posterior_state,
        "log_scale_": float(fitted.model.log_scale),
    }
    if isinstance(fitted.model.model, FreeGaussian):
        normal = fitted.model.model.free.normal()
        report["mean_"], report["covariance_"] = found.units.moments(normal)
    return report


def _moments(nodes):
    return column_moments(nodes, np.ones(len(nodes)))


def _initial_normal(data):
    """Fit a normal distribution of rows, with the shrinkage by held-out cells."""
    weights = torch.ones(len(data.x)).double()
    held_out = hold_out(data.to_array(), weights, HELD_OUT)
    return initial_normal(data, held_out)
