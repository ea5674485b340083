"""Variational noise-contrastive estimation of any model of rows."""

import copy
from collections.abc import Callable
from functools import partial
from math import log
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skvnce._core import runtime
from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.progress import step, tell_round
from skvnce._core.random import row_keyed, row_lattice, seeded
from skvnce._core.training.adam import NotFinite
from skvnce._core.warnings import warn_user
from skvnce._imputer import callbacks, validation
from skvnce._imputer.fill import chunks
from skvnce._imputer.fitted import (
    Densities,
    Filled,
    Fitted,
    n_chains,
    number_or_nan,
    without_columns,
)
from skvnce._imputer.held_out import HELD_OUT, hold_out
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.parts.tables import by_parts
from skvnce._imputer.validation import LBFGS, Adam
from skvnce._tables.values import NO_LIMITS, Limits, column_moments, into_dtype
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.contrast import fit, models
from skvnce.contrast.models import FreeGaussian, initial_normal
from skvnce.contrast.noise import ColumnSummary, Marginals, Rescaled

# ----------------------------------------
# Parameters of VNCEEstimator as the settings of its fit, and warnings of a fit.


# instead of "auto", and of a second fit; missing cells have a power of two, because
# their draws are a lattice
_DRAWS_OF_CELLS, _DRAWS_OF_LATENTS = (16, 64), (5, None)
_ADAM = {"batch_size": 200, "learning_rate_init": 0.03, "device": "cpu"}
# parameters of the estimator that are those of a fit
_OF_FIT = "model", "posterior", "n_components", "criterion", "n_init", "max_iter"


def solver_fields(solver):
    """Return the fields of `Settings` that the solver sets."""
    name = solver
    if not isinstance(solver, str):
        name = "adam" if isinstance(solver, Adam) else "lbfgs"
    adam = validation.fields_of(
        solver if isinstance(solver, Adam) else "auto", "solver", _ADAM
    )
    lbfgs = solver if isinstance(solver, LBFGS) else LBFGS()
    return {
        "solver": name,
        "n_steps": lbfgs.n_iter,
        "tol": lbfgs.tol,
        "batch_size": adam["batch_size"],
        "learning_rate": adam["learning_rate_init"],
    }


def device_name(solver):
    """Return the field ``device`` of the solver."""
    return getattr(solver, "device", "cpu")


def settings_of(parameters, seed, nodes):
    """Make the settings of a fit to nodes from the parameters of the estimator."""
    noise, ridge, solver = (parameters[name] for name in ("noise", "ridge", "solver"))
    if isinstance(noise, str) and noise == "auto":
        noise = "gaussian" if parameters["model"] is None else "marginal"
    n_draws, more_draws = parameters["n_training_draws"], None
    if isinstance(n_draws, str):
        criterion = parameters["criterion"]
        averages = criterion == "importance-weighted" or np.isnan(nodes).any()
        n_draws, more_draws = _DRAWS_OF_CELLS if averages else _DRAWS_OF_LATENTS
    return fit.Settings(
        **{name: parameters[name] for name in _OF_FIT},
        **solver_fields(solver),
        noise=noise,
        noise_ratio=int(parameters["noise_ratio"]),  # torch takes no integers of numpy
        n_draws=n_draws,
        more_draws=more_draws,
        seed=seed,
        ridge=None if isinstance(ridge, str) else float(ridge),
        device=runtime.resolve_device(device_name(solver), "solver.device"),
    )


_GAP = 1.0  # `log_scale_gap_` above which `fit` warns


def warn_of_rounds(n_iter, max_iter, tol, more=""):
    """Warn that the objective still changed by more than `tol` at the end."""
    warn_user(
        f"The objective still changed after {n_iter} iterations. Raise "
        f"max_iter={max_iter} (or solver=LBFGS(tol={tol:g}), which is used only if "
        f"unobserved variables are drawn or enumerated). {more}".strip(),
        ConvergenceWarning,
    )


def warn_of_gap(log_scale_gap, noise_ratio):
    """Warn if fresh noise gives another scale."""
    if log_scale_gap > _GAP:
        warn_user(
            f"Fresh noise gives an integral exp({log_scale_gap:.2g}) times that of "
            "log_scale_: the model has mass in regions without data or noise in "
            f"training. Raise noise_ratio={noise_ratio} or ridge, or use noise closer "
            "to the data.",
            ConvergenceWarning,
        )


def warn_of_bound(bound_gap, n_draws):
    """Warn if more draws of missing cells give rows another log-density."""
    if bound_gap > fit.MAX_BOUND_GAP:
        more = _more(n_draws)
        warn_user(
            f"The {n_draws} draws of missing cells of each row miss "
            f"{bound_gap:.2g} nats of its log-density, on average over incomplete "
            "rows: the fitted conditional distributions may be too broad. Pass "
            f"n_training_draws={more}, fit complete rows alone, or give the "
            "model a method log_marginal(x, observed).",
            ConvergenceWarning,
        )


def bias_of_latents(gap, table_fit, n_draws):
    """Say that the posterior of the latents may bias the parameters, or nothing."""
    if gap.mean <= fit.MAX_BOUND_GAP:
        return ""
    remedy = ""
    if table_fit.outcome.averages:
        remedy = f"n_training_draws={_more(n_draws)} or "
    elif not table_fit.is_discrete:
        remedy = "criterion='importance-weighted' or "
    return (
        f"The bound on the log-density of rows is {gap.mean:.2g} nats too low, on "
        "average (bound_gap_), because the posterior of the latents is not that of the "
        f"model: the fitted parameters may be biased. Pass {remedy}a closer "
        "posterior, or give the model states, or a method log_marginal(x, observed)."
    )


def _more(n_draws):
    """Return a number of draws that is a power of two, at least four times as large."""
    return 2 ** (4 * n_draws - 1).bit_length()


# ----------------------------------------
# A fitted density with a scale parameter: means, draws and scores of rows.


_CELLS, _LATENTS = 0, 1  # arguments of `FittedModel.resample`


class ScaledDensity(NamedTuple):
    """A density of scaled columns, perhaps with latent variables."""

    fitted: fit.FittedModel
    units: Units

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many numbers a cell are in memory at a time."""
        number = (
            fit.N_IMPORTANCE_SAMPLES if n_draws is None else fit.N_CANDIDATES * n_draws
        )
        return number * self.fitted.n_states

    @torch.no_grad()
    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells by their means; see `CellModel`."""
        filled = self.fitted.filled(self._scaled(nodes), row_lattice(nodes, 0))
        return self.units.restored(filled.cpu()), {}

    @torch.no_grad()
    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        numbers, levels = row_lattice(nodes, 0), torch.tensor(levels)
        quantiles = self.fitted.quantiles(self._scaled(nodes), numbers, levels)
        return self.units.restored(quantiles.cpu()), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        return self.units.restored(self._draw(nodes, n_draws, _CELLS))

    def latent_mean(self, nodes: np.ndarray) -> np.ndarray:
        """Compute posterior means of the latents; (n, n_components)."""
        with torch.no_grad():
            numbers = row_lattice(nodes, 0)
            return self.fitted.latent_mean(self._scaled(nodes), numbers).cpu().numpy()

    def draw_latents(self, nodes: np.ndarray, n_draws: int) -> np.ndarray:
        """Draw the latents with torch's global stream; (n_draws, n, n_components)."""
        return self._draw(nodes, n_draws, _LATENTS).numpy()

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = True) -> Densities:
        """Compute log-densities of rows and their standard errors; each (n,)."""
        with torch.no_grad():
            log_prob, error = self.fitted.log_prob(
                self._scaled(nodes), row_lattice(nodes, 0)
            )
        density = log_prob.cpu().numpy() - self.units.log_scales(nodes)
        return density, error.cpu().numpy()

    def _scaled(self, nodes: np.ndarray) -> Incomplete:
        return self.units.scaled(nodes).on(self.fitted.device)

    @torch.no_grad()
    def _draw(self, nodes: np.ndarray, n_draws: int, place: int) -> torch.Tensor:
        rows = self._scaled(np.tile(nodes, (n_draws, 1)))
        draws = self.fitted.resample(rows, place).cpu()
        return draws.reshape(n_draws, len(nodes), -1)


# ----------------------------------------
# A fitted density, and the objective of a random guess.


_POOL = 10_000  # rows of the reference noise from which that of each row is chosen
_NU = fit.DEFAULT_NOISE_RATIO
_CHANCE = _NU * log(_NU) - (1 + _NU) * log(1 + _NU)  # the objective of a random guess


class DensityArrays(NamedTuple):
    """A fitted density as arrays, from which its modules are rebuilt."""

    factories: tuple  # make the model and the posterior
    stream: np.ndarray  # state of torch's stream before they made them
    units: Units
    marginals: tuple  # of the reference noise
    summary: tuple  # of columns, for the posterior
    cache: dict  # the modules, by name; not stored

    @classmethod
    def of(cls, table_fit, factories):
        """Store a fit, with its modules as the cache."""
        arrays = (
            tuple(part.numpy() for part in values)
            for values in (table_fit.marginals, table_fit.summary)
        )
        cache = {"fitted": table_fit.outcome.fitted}
        return cls(factories, table_fit.outcome.stream, table_fit.units, *arrays, cache)


# ----------------------------------------
# Variational noise-contrastive estimation of any model of rows.


_REMEDY = (
    "Use a model that suits the shape of these columns, logarithms of skewed columns, "
    "a larger ridge, or noise closer to the data."
)
_DIVERGED = (
    "The log_density of model overflows, or is NaN, near the data or the noise: bound "
    "its parameters, raise ridge, or lower the learning rate of solver=Adam(...)."
)
_NOISES = {"auto", "marginal", "gaussian"}
_COUNT = validation.integer_from(1)
_SCALARS = "log_scale_", "log_scale_gap_", "bound_gap_", "bound_gap_error_"


class VNCEEstimator(callbacks.CallbackSupportMixin, Imputer):
    """Fit any model, normalised or not, by contrasting rows with noise.

    Noise-contrastive estimation (NCE) needs the log-density of a model only up to a
    constant, and estimates the constant together with the parameters.  Unobserved
    variables, that is missing cells and latents, are integrated out if the model
    supports it, and otherwise follow a variational posterior (VNCE).

    Parameters
    ----------
    model : callable or None, default=None
        Maps the number of features to a `torch.nn.Module` with ``log_density(x)`` or
        ``log_density(x, z)``: the log-density (n,), up to a constant, of rows (n,
        n_features) and latents (n, n_components).  None is a Gaussian.  The user guide
        lists optional attributes and methods of the module.
    posterior : None, "normal", "bernoulli" or callable, default=None
        Distribution of the latents given a row.  None uses the exact one if the module
        provides it, else ``"normal"``.  A callable maps (n_features, n_components) to a
        module ``q(x, observed)`` that returns a distribution of batch shape (n,
        n_components).  Except with None, unobserved variables are always drawn.
    noise : str, Distribution or zuko flow, default="auto"
        Distribution with which rows are contrasted: a product of marginals of the
        columns, ``"marginal"``; a normal distribution of rows, ``"gaussian"``
        (``"auto"`` for the default model); or your own with ``sample(shape)`` and
        ``log_prob(rows)``.
    noise_ratio : int, default=10
        nu, the number of rows of noise for each row of data.
    n_components : int or None, default=None
        Number of latents; None uses the attribute of the module.
    n_training_draws : "auto" or int, default="auto"
        Number of draws of the unobserved variables of each row.  ``"auto"`` is 5 for
        ``"vnce"`` of complete rows, else 16, or 64 if 16 are too few (`bound_gap_`).
    criterion : {"auto", "vnce", "importance-weighted"}, default="auto"
        What is maximised: J_VNCE of the paper, or the tighter bound of an average of
        draws in its logarithm: ``"auto"`` if cells are missing, but for binary ones.
    solver : {"auto", "lbfgs", "adam"}, Adam or LBFGS, default="auto"
        ``"lbfgs"`` alternates between posterior and model (variational EM); ``"adam"``
        optimises both, also for discrete draws; ``"auto"`` is ``"lbfgs"`` whenever it
        is possible.  Or `skvnce.options.LBFGS` or `skvnce.options.Adam`, of which
        `batch_size` (200), `learning_rate_init` (0.03) and `device` are used.
    ridge : "auto" or float, default="auto"
        Strength of the penalty ``ridge |theta|^2 / (2 n)``.  ``"auto"`` is the number
        of parameters for the default model, and 0 for others.
    n_init : int, default=1
        Number of random starts; the one with the best objective is kept.
    max_iter : int, default=200
        Maximum number of rounds of ``"lbfgs"``; number of epochs of ``"adam"``.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` fills numbers.  Not for models with latents.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if few cells dominate a column's squared errors, or if held-out
        cells are predicted significantly worse than by its mean (`held_out_gain_`).
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, see `GaussianImputer`.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, as 0.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of noise, draws and starts.
    verbose : int, default=0
        If 1, print a line for each round and each step of more than a second; 2, all.

    Attributes
    ----------
    log_scale_ : float
        c, the estimated logarithm of the model's integral; 0 if the module has its own.
    log_scale_gap_ : float
        The same by fresh noise minus `log_scale_`: near 0 if the estimate is reliable.
    bound_gap_, bound_gap_error_ : float
        Mean log-density of rows with drawn cells or latents, minus its bound in
        training: above 0.1, parameters may be biased.  Its standard error.
    criterion_, objective_ : str, float
        What was maximised (``"nce"`` if nothing is drawn), and its value per row.
    accuracy_ : float
        Accuracy of classifying rows of data and noise: 0.5 is ideal, near 1 is bad.
    loss_curve_ : list of float
        Minus the objective, plus the penalty, in each iteration of the best start.
    n_iter_, n_components_ : int
        Number of iterations of the best start, and of latents.
    ridge_ : float
        The `ridge` that the fit used.
    mean_, covariance_ : ndarray
        Those of the default model, in the units of X.
    noise_, model_state_, posterior_state_ : dict
        Parameters of the fitted noise, in the units of X, and modules, as arrays.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of the model: those with at least two different values.
    constants_ : dict
        Values of the constant columns, by column index.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of column
        means on cells that a second fit does not use; NaN for models with latents.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns predicted worse than by means, and imputed from marginals.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    Columns are numbers, and not scaled, except for the default model.  Each row counts
    once.  There is no `n_jobs`.  Draws of `sample` are for filling, and it warns: they
    ignore the uncertainty of the parameters.

    References
    ----------
    Gutmann and Hyvarinen (2012), Noise-contrastive estimation; Rhodes and Gutmann
    (2019), Variational NCE.

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
    """

    _has_density = _is_for_filling = True  # parameters count as known
    _parts = {"solver": lambda name: Adam() if name == "adam" else LBFGS()}
    _parameter_constraints = {
        "model": [None, callable],
        "posterior": [None, StrOptions({"normal", "bernoulli"}), callable],
        "noise": [StrOptions(_NOISES), HasMethods(["sample", "log_prob"]), nn.Module],
        "noise_ratio": [_COUNT],
        "n_components": [None, _COUNT],
        "n_training_draws": [validation.AUTO, _COUNT],
        "criterion": [StrOptions({"auto", "vnce", "importance-weighted"})],
        "solver": [StrOptions({"auto", "lbfgs", "adam"}), Adam, LBFGS],
        "ridge": [validation.AUTO, validation.Number(Real, 0, None, closed="left")],
        "n_init": [_COUNT],
        "max_iter": [_COUNT],
        "strategy": validation.STRATEGY,
        **validation.OF_TABLES,
        **validation.OF_FITS,
    }

    def __init__(
        self,
        model: Callable[..., Any] | None = None,
        posterior: Callable[..., Any] | Literal["normal", "bernoulli"] | None = None,
        *,
        noise: Any = "auto",
        noise_ratio: int = 10,
        n_components: int | None = None,
        n_training_draws: int | Literal["auto"] = "auto",
        criterion: Literal["auto", "vnce", "importance-weighted"] = "auto",
        solver: Adam | LBFGS | Literal["auto", "lbfgs", "adam"] = "auto",
        ridge: float | Literal["auto"] = "auto",
        n_init: int = 1,
        max_iter: int = 200,
        strategy: Literal["mean", "median", "mode"] = "mean",
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.posterior = posterior
        self.noise = noise
        self.noise_ratio = noise_ratio
        self.n_components = n_components
        self.n_training_draws = n_training_draws
        self.criterion = criterion
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

    @callbacks.reports_fit
    def fit(self, X: TableLike, y: object = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
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
            validation.warn_of_unused(self, {"n_components": reason})
        cells, schema = validation.read_table(self, X)
        table = self._chosen(schema, cells, is_whole=False)
        columns = table.schema.model_columns
        self._report_tails(table.schema, table.cells.table, columns)
        most = self.n_init * self.max_iter * fit.ITER_PER_ROUND
        on_round, finish = callbacks.report_rounds(self, most, X=cells)
        # the caller may have disabled gradients
        with (
            runtime.one_thread(),
            torch.enable_grad(),
            seeded(self.random_state) as seed,
        ):
            fitted = self._fit_model(table, seed, on_round)
        if fitted.report["n_components_"]:
            reason = "transform returns means of the latents"
            validation.warn_of_unused(self, {"strategy": reason})
        finish()
        return self._publish(fitted)

    @by_parts
    @callbacks.shows_progress
    def transform(
        self,
        X: TableLike,
        *,
        where: ByColumn | Callable[..., Any] | None = None,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Any:
        """Compute the posterior means of the unobserved variables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        where, lower, upper : default=None
            See `skvnce.GaussianImputer.transform`; not for models with latents, nor are
            there limits.

        Returns
        -------
        ndarray of shape (n_samples, n_components_) or (n_samples, n_features_out)
            Means of the latents if the model has latents.  Otherwise, and if all
            columns were constant at `fit`, the completed table.  Means without a closed
            form are averages over weighted draws, with random numbers that are
            functions of the row.
        """
        check_is_fitted(self)
        if not self.n_components_:
            return self._transformed(X, where, lower, upper)
        if any(option is not None for option in (where, lower, upper)):
            raise ValueError(
                "The model has latents, whose means transform returns: where, lower "
                "and upper are of tables. sample draws missing cells, and takes where."
            )
        checked = self._checked(X)
        with runtime.one_thread():
            model = self._cell_model()
            means = [
                model.latent_mean(nodes)
                for _, nodes in chunks(self._schema, checked, n_chains(model))
            ]
        return into_dtype(np.concatenate(means), checked.dtype)

    @callbacks.shows_progress
    def sample_latents(
        self,
        X: TableLike,
        n_draws: int = 1,
        random_state: Seed = None,
        *,
        as_array: bool = False,
    ) -> Any:
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
        validation.check_sample(n_draws, as_array)
        checked = self._checked(X)
        if not self.n_components_:
            raise ValueError("The model has no latents. sample draws missing cells.")
        drawn = self._draw_latents(checked, n_draws, random_state)
        names = self.get_feature_names_out()
        if as_array:
            return drawn
        adapter = self._container()
        if adapter is None:
            return list(drawn)
        return [adapter.create_container(table, X, names) for table in drawn]

    def _draw_latents(self, X, n_draws, random_state):
        """Draw the latents of validated rows; (n_draws, n_samples, n_components)."""
        drawn = np.empty((n_draws, len(X), self.n_components_), X.dtype)
        with runtime.one_thread(), seeded(random_state):
            model = self._cell_model()
            parts = chunks(self._schema, X, n_chains(model, n_draws))
            for (rows, _), nodes in parts:
                latents = model.draw_latents(nodes, n_draws)
                drawn[:, rows[:, 0]] = into_dtype(latents, X.dtype)
        return drawn

    @callbacks.shows_progress
    def objective(self, X: TableLike, y: object = None) -> float:
        """Compute the importance-weighted objective at rows of X; larger is better.

        It is J_VNCE, but the draws of a row are averaged inside the logarithm,
        whatever `criterion` is.
        The reference noise depends only on the training data: the product of the
        marginals of the columns, with ten rows of noise for each row.  So values can be
        compared between candidates that differ in any parameter, also where their
        log-densities are not normalised well: ``GridSearchCV(..., scoring=lambda
        estimator, X, y=None: estimator.objective(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None, default=None
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
        with runtime.one_thread(), seeded(0), torch.no_grad():
            noise = self._reference()
            pool = noise.sample(_POOL)
            n_chains = fit.N_IMPORTANCE_SAMPLES * (1 + _NU) * self._modules().n_states
            values = [
                self._objective_values(noise, pool, nodes).numpy()
                for _, nodes in chunks(self._schema, rows, n_chains)
            ]
        return float(np.concatenate(values).mean())

    def _objective_values(self, noise, pool, nodes):
        """Compute the objective of rows; all random numbers are keyed by the row."""
        # 0 is the key of means and log-densities
        contrast = fit.contrast_from_pool(
            noise, pool, self._units().scaled(nodes), _NU, row_keyed(nodes, 1)
        )
        numbers, model = (row_lattice(nodes, 2), row_lattice(nodes, 3)), self._modules()
        return model.objective(contrast.on(model.device), numbers).cpu()

    def to_torch(self) -> Any:
        """Return a copy of the fitted module on the CPU, without gradients.

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
        return copy.deepcopy(self._modules().model).cpu()

    def _names_out(self, names):
        if not self.n_components_:
            return super()._names_out(names)
        prefix = type(self).__name__.lower()
        return np.array(
            [f"{prefix}{i}" for i in range(self.n_components_)], dtype=object
        )

    def _cell_model(self):
        return ScaledDensity(self._modules(), self._units())

    def _units(self):
        return self._fitted.model.units

    def _reference(self):
        """Return the product of the marginals, for rows in the scale of the model."""
        marginals = Marginals(*map(torch.tensor, self._fitted.model.marginals))
        return Rescaled(marginals, *self._units().tensors())

    @runtime.filled_once
    def _modules(self):
        """Return the fitted model, whose modules are rebuilt after unpickling."""
        arrays = self._fitted.model
        if not arrays.cache:
            make_model, posterior = arrays.factories
            summary = ColumnSummary(*map(torch.tensor, arrays.summary))
            with seeded(0):
                torch.set_rng_state(torch.tensor(arrays.stream))
                built = models.rebuild(
                    make_model, posterior, self.n_components_, summary
                )
            states = self.model_state_, self.posterior_state_
            model, steps = (
                runtime.load_state(module, state).eval().requires_grad_(False)
                for module, state in zip(built, states, strict=True)
            )
            exact = models.is_integrated(posterior, model)
            rebuilt = fit.FittedModel(model, steps, self.n_components_, exact)
            arrays.cache["fitted"] = rebuilt
        return arrays.cache["fitted"].on(
            runtime.device_in_use(device_name(self.solver))
        )

    def _fit_model(self, table, seed, on_round):
        """Fit the model and check it; returns `Fitted`."""
        cells = table.cells
        if not len(table.schema.model_columns):
            return self._no_model(table.schema)
        with callbacks.failures_named(_DIVERGED):
            settings = settings_of(self.get_params(deep=False), seed, cells.nodes)
            fit_with = partial(
                fit.fit_table,
                nodes=cells.nodes,
                mean=cells.location,
                scale=cells.scale,
                initial_normal=_initial_normal,
                on_round=on_round,
            )
            table_fit, settings = fit.fit_with_enough_draws(fit_with, settings)
            report = _report_of(table_fit)
            with step("checking the scale by fresh noise"):
                report["log_scale_gap_"] = table_fit.scale_gap(settings)
            warn_of_gap(report["log_scale_gap_"], self.noise_ratio)
            with step("checking the draws of unobserved variables by more draws"):
                gap = table_fit.bound_gap(settings.n_draws)
            report["bound_gap_"], report["bound_gap_error_"] = gap
            self._warn_of_gap_and_rounds(table_fit, gap, settings)
            schema, checked = self._check_predictions(
                table, settings, report["n_components_"]
            )
            model = DensityArrays.of(table_fit, (self.model, self.posterior))
            return Fitted(schema, model, report | checked.report())

    def _warn_of_gap_and_rounds(self, table_fit, gap, settings):
        """Warn of a loose bound, of too few rounds, or of both at once."""
        best, biased = table_fit.outcome, ""
        if best.fitted.draws_latents:
            biased = bias_of_latents(gap, table_fit, settings.n_draws)
        else:
            warn_of_bound(gap.mean, settings.n_draws)
        if not best.converged:
            rounds = len(best.losses), self.max_iter, settings.tol
            warn_of_rounds(*rounds, biased)
        elif biased:
            warn_user(biased, ConvergenceWarning)

    def _no_model(self, schema):
        """Make the fit to a table whose columns are all constant."""
        report = {"ridge_": number_or_nan(self.ridge), "n_components_": 0}
        report["criterion_"] = "nce"
        report |= {"objective_": np.nan, "accuracy_": 0.5}
        report |= {k: {} for k in ("noise_", "model_state_", "posterior_state_")}
        report |= dict.fromkeys(_SCALARS, 0.0)
        arrays = (["mean_"], ["covariance_"]) if self.model is None else ()
        return without_columns(schema, report, *arrays)

    def _check_parameters(self):
        super()._check_parameters()
        solver_fields(self.solver)
        if isinstance(self.model, nn.Module):
            raise TypeError(
                "model must be a callable that makes a torch.nn.Module, not a module: "
                "each fit needs a new one. Pass lambda n_features: ..., or the class."
            )

    def _check_predictions(self, table, settings, n_components):
        """Predict held-out cells by another fit; returns what `_held_out` does."""
        schema, cells, nodes = table.schema, table.cells, table.cells.nodes
        hidden = None  # select a tenth, from which `transform` is checked
        if n_components or not np.isnan(nodes).any():
            hidden = np.zeros(nodes.shape, dtype=bool)

        def predict(visible, rows):
            rows_of_fit = visible[~np.isnan(visible).all(1)]
            moments = column_moments(rows_of_fit, np.ones(len(rows_of_fit)))
            try:
                table_fit = fit.fit_table(
                    settings, rows_of_fit, *moments, _initial_normal, tell_round
                )
            except (NotFinite, torch.linalg.LinAlgError):
                # cells without a prediction count as predicted infinitely badly
                return None, {}
            with runtime.one_thread():
                model = ScaledDensity(table_fit.outcome.fitted, table_fit.units)
                filled, _ = model.fill(visible[rows])
            return schema.values.clipped(filled, schema.model_columns), {}

        options = {"hidden": hidden, "scale": cells.scale}
        checked, result = self._held_out(schema, nodes, predict, **options)
        self._report_misfit(checked, result, _REMEDY)
        return checked, result


def _report_of(table_fit):
    """Return the public attributes of a fit, by name."""
    best, fitted = table_fit.outcome, table_fit.outcome.fitted
    model_state, posterior_state = map(runtime.state_of, fitted[:2])
    losses = [float(loss) for loss in best.losses]
    report = {
        "loss_curve_": losses,
        "n_iter_": len(losses),
        "criterion_": table_fit.criterion,
        "n_components_": fitted.n_components,
        "ridge_": best.ridge,
        "objective_": float(best.evaluation.values.mean()),
        "accuracy_": table_fit.accuracy(),
        "noise_": table_fit.noise.parameters,
        "model_state_": model_state,
        "posterior_state_": posterior_state,
        "log_scale_": float(fitted.model.log_scale),
    }
    if isinstance(fitted.model.model, FreeGaussian):
        normal = fitted.model.model.free.normal()
        report["mean_"], report["covariance_"] = table_fit.units.moments(normal)
    return report


def _initial_normal(data):
    """Fit a normal distribution of rows, with the shrinkage by held-out cells."""
    weights = torch.ones(len(data.x)).double()
    held_out = hold_out(data.to_array(), weights, HELD_OUT)
    return initial_normal(data, held_out)
