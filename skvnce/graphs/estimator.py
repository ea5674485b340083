"""A sparse graph from a non-negative table with missing values."""

from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import rounds_of_tuning
from skvnce._core.random import row_keyed, seeded
from skvnce._core.runtime import threads_for, torch_defaults
from skvnce._core.training.adam import Diverged
from skvnce._core.warnings import warn_user
from skvnce._imputer import callbacks, validation
from skvnce._imputer.fill import chunks
from skvnce._imputer.fitted import number_or_nan, without_columns
from skvnce._imputer.held_out import MOST_LISTED
from skvnce._imputer.imputer import available_where
from skvnce._tables.findings import check_squares
from skvnce._tables.values import NO_LIMITS
from skvnce._types import Seed, TableLike
from skvnce.graphs import em, model
from skvnce.graphs.learner import GraphEstimator
from skvnce.graphs.model import GraphModel
from skvnce.graphs.problem import ALGORITHMS, Options, make_problem
from skvnce.graphs.score_matching import edge_scores
from skvnce.graphs.vnce_cdi import objective_at

# ----------------------------------------
# Checks of a fitted graph learner: the limits of its model, and its predictions.

WIDEST = 0.9  # largest standard deviation over mean of columns that the model suits
LARGEST_CUT = 0.5  # share by which an edge may shrink without a warning
_SLUGGISH = 0.8  # autocorrelation of chains above which more rounds are needed
_INEXACT = 1e-3  # gap, relative to the loss, above which the last M-step is inexact
_ROUNDS = 6  # maximum number of rounds of EM without the held-out cells
_INFLUENCE = 0.25  # share of the influence of held-out cells that may remain
_BURN_IN, _STEPS = 1, 6  # sweeps that predict held-out cells, after those of the rounds
_NO_CONSTANT = (
    "its algorithm does not estimate the normalising constant, as 'vnce' does; score "
    "compares the fits of all algorithms."
)
_N_COMPLETED = 5  # draws of the missing cells of each row for `objective`
REMEDY = (
    "GaussianImputer may fill missing cells better; logarithms of skewed columns may "
    "help."
)


def predict_held_out(problem, theta, training, rows, *, alpha, n_steps):
    """Continue the fit without held-out cells, and fill them; (n_rows, n_nodes).

    `theta` is the fit to all cells, `training` (n, n_nodes) has no held-out cells and
    the units of X, and `rows` are those to fill. Raises Diverged.
    """
    centre, scale = problem.units
    training = Incomplete.from_array(training / scale.numpy())
    n_rounds = min(em.rounds_to_settle(training.observed, _INFLUENCE), _ROUNDS)
    theta, start = problem.continue_fit(training, theta, float(alpha), n_rounds)
    rows = torch.from_numpy(rows)
    part, burn_in = training.take(rows), _BURN_IN
    if start is None:
        start, burn_in = em.observed_mean(training.x, training.observed), n_steps // 2
    else:
        start = start[rows]
    uniforms = row_keyed(part.to_array(), 0)
    chains = em.to_model(theta, centre), part, start, burn_in, _STEPS, uniforms
    filled = model.Chains(*chains).mean()
    return (filled * scale).numpy()


def messages(schema, data, theta, *, fit_linear, cut, remedy):
    """List messages about a table or a fit that is beyond the limits of the model.

    `data` has the units of X, `theta` is for columns of unit standard deviation,
    `cut` is the largest share by which an edge was shrunk.
    """
    sentences = []

    def named(nodes):
        return schema.labels(schema.model_columns[nodes], MOST_LISTED)

    beyond = wide_columns(data) if fit_linear else np.zeros(0, dtype=int)
    if len(beyond):
        sentences.append(
            f"The standard deviation of {named(beyond)} exceeds {WIDEST} "
            "times the mean, more than the model can describe (see the notes of the "
            f"class). Trust the signs of the edges of {_these(beyond)}, not their "
            f"strengths. {_logarithms(beyond)}"
        )
    diagonal = theta.precision.diagonal().numpy()
    # solvers end at the bound up to rounding
    floor = np.flatnonzero(diagonal <= em.DIAGONAL_FLOOR * (1 + 1e-6))
    floor = np.setdiff1d(floor, beyond)
    if fit_linear and len(floor):
        sentences.append(
            f"The fitted precision of {named(floor)} is at its lower "
            f"limit (see the notes of the class): the edges of {_these(floor)} are "
            f"overestimated. {_logarithms(floor)}"
        )
    if cut > LARGEST_CUT:
        sentences.append(
            f"Edges were shrunk by up to {cut:.0%} (largest_cut_), because the fitted "
            f"density had no finite integral. Raise {remedy}, or drop columns that "
            "repeat others."
        )
    return sentences


def _these(columns):
    return "this column" if len(columns) == 1 else "these columns"


def _logarithms(columns):
    if len(columns) == 1:
        return "Take its logarithm, leave it out, or use CopulaGraphLearner."
    return "Take their logarithms, leave them out, or use CopulaGraphLearner."


def wide_columns(data):
    """Find columns whose standard deviation is too large for the model.

    A half-normal column has a ratio of 0.76, and an independent one at the lower bound
    of the precision 0.82. Columns that others make wider reach 0.88 in 80 tables that
    the papers simulate.  The limit allows a random deviation of one over the root of
    the number of observed cells.  `data` has the units of X; returns indices.
    """
    mean = em.observed_mean(data.x, data.observed)
    deviation = em.units_of(data, fit_linear=True).scale
    chance = 1 + data.observed.sum(0).rsqrt()
    return np.flatnonzero((deviation > WIDEST * mean * chance).numpy())


def why_unsettled(fit, ridge, max_iter, tol):
    """Describe why the rounds, or the last M-step, did not settle; None if they did."""
    gap, last, memory = fit.gap, fit.losses[-1], fit.autocorrelation
    n_iter, n_needed = len(fit.losses), em.rounds_needed(memory)
    # few rows without a ridge: the solution has no certificate
    if not np.isfinite(gap):
        return (
            "The precision matrix cannot be estimated from so few rows, or so few "
            f"cells above zero, with ridge={ridge:g}. Raise ridge."
        )
    if gap > _INEXACT * max(1.0, abs(last)):
        return (
            f"The last M-step did not reach its minimum (optimality_gap_={gap:.2g}, "
            f"loss {last:.2g}). Drop columns that repeat others, or change "
            f"ridge={ridge:g}."
        )
    if memory > _SLUGGISH and n_iter == max_iter <= n_needed:
        return (
            f"EM stopped after max_iter={max_iter} rounds, in which the draws of "
            f"missing cells hardly changed (chain_autocorrelation_={memory:.3f}): the "
            "graph still depends on where they started. Raise max_iter above "
            f"{n_needed + 10:.0f}, or drop columns that nearly repeat others."
        )
    if n_iter == max_iter and fit.change > tol:
        return (
            f"EM stopped after max_iter={max_iter} rounds, with an edge strength still "
            f"changing by {fit.change:.2g} a round. Raise max_iter or "
            f"tol={tol:.2g}."
        )
    return None


_NOT_NEGATIVE = validation.Number(Real, 0, None, closed="left")


class TruncatedGaussianGraphLearner(GraphEstimator):
    """Sparse graph of non-negative variables, learned from a table with missing values.

    The model is a Gaussian truncated to ``x >= 0``, with ``p(x)`` proportional to
    ``exp(-x' K x / 2 + b' x)``.  The graph has an edge between variables i and j if
    ``K_ij`` is not zero, that is, if they are dependent given all other variables.  A
    negative ``K_ij`` means a positive association.  Stochastic EM fits the model, and
    its E-step draws the missing cells (NaN): none is imputed beforehand or dropped.
    A fit is one sequence of rounds, and has no `n_jobs`; that of the class with CV has.

    Draws of `sample` are for filling, and it warns: parameters are taken as certain.
    Scores need no normalising constant: `score_samples` hides five blocks of columns of
    a row in turn, and averages their log predictive densities given the others, in
    nats, over two partitions.

    Parameters
    ----------
    alpha : float, default=0.02
        Strength of the L1 penalty, which sets edges to zero, for scaled columns.
    algorithm : {"score-matching", "maximum-likelihood", "vnce", "vnce-cdi", \
            "vnce-lognormal"}, default="score-matching"
        The loss of the M-step; the user guide describes all.  ``"score-matching"`` is
        usually the fastest, and robust; ``"maximum-likelihood"`` is the most accurate
        unless columns are nearly collinear; those of VNCE also estimate the normalising
        constant, and are tens of times slower if cells are missing.
    fit_linear : bool, default=True
        Whether to fit the linear term b.  Otherwise the mode of the model is at zero.
    ridge : "auto" or float, default="auto"
        Strength of the quadratic penalty of the off-diagonal entries of K, for columns
        of unit standard deviation.  ``"auto"`` is empirical Bayes.
    ridge_linear : "auto" or float, default="auto"
        Strength of that of b.  ``"auto"`` shrinks b towards 0 if a pilot fit finds that
        it is small compared with its standard error.
    noise_ratio : int, default=10
        Number of noise rows for each row of data; used by the VNCE methods.
    n_steps : int, default=30
        Number of Gibbs sweeps that `transform` and `score_samples` average over, after
        half as many sweeps of burn-in.  `sample` makes the sum of both.
    max_iter : int, default=100
        Maximum number of rounds of EM, of one E-step and one M-step each.
    tol : "auto" or float, default="auto"
        EM stops if no edge strength (0 to about 1) changes by more than `tol` in a
        round.  ``"auto"`` is a tenth of the standard error of a weak edge.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if the model does not suit the table (see the user guide): warn
        (`skvnce.exceptions.MisfitWarning`), raise a ValueError, or skip the checks.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells; ``np.nan``, None and pandas.NA are one marker.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, filled by
        0, or drops them.  They are never nodes of the graph.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of all draws.  The global streams of numpy and torch are not changed.
    verbose : int, default=0
        If 1, print a line for each round and each step of a second or more.  If 2,
        print all steps.

    Attributes
    ----------
    precision_, linear_ : ndarray of shape (n_nodes, n_nodes) and (n_nodes,)
        K and b, in the inverse units of the columns.
    untruncated_mean_ : ndarray of shape (n_nodes,)
        The mean ``K^-1 b`` before truncation; set only if K is positive definite.
    log_scale_ : float
        Logarithm of the normalising constant; set only by the VNCE methods.
    edge_strengths_ : ndarray of shape (n_nodes, n_nodes)
        ``|K_ij| / sqrt(K_ii K_jj)``, without units; zero on the diagonal.
    edge_probabilities_ : ndarray of shape (n_nodes, n_nodes)
        Posterior probability of each edge, whatever `alpha` and `algorithm` are.
    nodes_ : ndarray of shape (n_nodes,)
        Names of the columns with at least two different observed values; x0, x1, ... if
        X has no names that are strings.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that are nodes.
    constants_ : dict
        Values of the constant columns, by column index, which fill their missing cells.
    location_ : ndarray of shape (n_nodes,)
        Means of the observed cells, at which the chains start.
    ridge_, ridge_linear_ : float
        The ridges that the fit used.  NaN if ``"auto"`` and all columns are constant.
    n_iter_, n_tuning_iter_ : int
        Number of rounds of EM (1 for complete data), and of the pilot fit.
    loss_curve_ : list of float
        Penalised loss of the M-step in each round, before edges were shrunk.
    change_, chain_autocorrelation_ : float
        Largest change of an edge strength in the last round, and largest
        autocorrelation r of draws of successive rounds, of which EM averages at least
        ``2 (1 + r) / (1 - r)``.
    largest_cut_ : float
        Largest share by which an edge was shrunk to make the density integrable.
    optimality_gap_ : float
        Inexactness of the last M-step, before edges were shrunk: for score matching a
        bound of the excess of the loss, for VNCE the largest violation of optimality.
    held_out_gain_ : float
        One minus the ratio of the mean squared errors of the model and of the means, on
        held-out cells; NaN without a check.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts worse than their means, which fill them.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X; infinite without a law.
    n_features_in_, feature_names_in_ : int, and ndarray of shape (n_features_in_,)
        Number of features, and their names if they are strings.

    References
    ----------
    Rhodes and Gutmann (2019), Variational noise-contrastive estimation, section 5;
    Rhodes (2018), MSc thesis of that name, chapter 5; Yu, Drton and Shojaie (2019),
    Generalized score matching for non-negative data.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import TruncatedGaussianGraphLearner
    >>> X = np.random.default_rng(0).gamma(4.0, size=(300, 3))
    >>> X[:, 1] += X[:, 0]
    >>> X[:60, 2] = np.nan
    >>> learner = TruncatedGaussianGraphLearner(alpha=0.1, random_state=0).fit(X)
    >>> learner.edges()[["source", "target"]]
      source target
    0     x0     x1
    """

    _is_positive = _has_density = True

    _parameter_constraints = {
        "alpha": [_NOT_NEGATIVE],
        "algorithm": [StrOptions(set(ALGORITHMS))],
        "fit_linear": ["boolean"],
        "ridge": [validation.AUTO, _NOT_NEGATIVE],
        "ridge_linear": [validation.AUTO, _NOT_NEGATIVE],
        "noise_ratio": [validation.integer_from(1)],
        "n_steps": [validation.integer_from(1)],
        "max_iter": [validation.integer_from(1)],
        "tol": [validation.AUTO, _NOT_NEGATIVE],
        **validation.OF_TABLES,
        **validation.OF_FITS,
    }

    def __init__(
        self,
        alpha: float = 0.02,
        *,
        algorithm: Literal[
            "score-matching", "maximum-likelihood", "vnce", "vnce-cdi", "vnce-lognormal"
        ] = "score-matching",
        fit_linear: bool = True,
        ridge: float | Literal["auto"] = "auto",
        ridge_linear: float | Literal["auto"] = "auto",
        noise_ratio: int = 10,
        n_steps: int = 30,
        max_iter: int = 100,
        tol: float | Literal["auto"] = "auto",
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.algorithm = algorithm
        self.fit_linear = fit_linear
        self.ridge = ridge
        self.ridge_linear = ridge_linear
        self.noise_ratio = noise_ratio
        self.n_steps = n_steps
        self.max_iter = max_iter
        self.tol = tol
        self.on_misfit = on_misfit
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state
        self.verbose = verbose

    @callbacks.reports_fit
    def fit(self, X: TableLike, y: object = None) -> Self:
        """Learn the graph.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Non-negative; NaN marks missing cells.  Rows that are entirely missing are
            ignored.
        y : None, default=None
            Ignored.

        Returns
        -------
        self : TruncatedGaussianGraphLearner

        Raises
        ------
        ValueError
            If X contains negative or infinite values or text, if no cell is observed or
            fewer than two rows have observed cells, or if a parameter is out of range.
        TypeError
            If a parameter has a wrong type.
        DivergenceError
            If numbers overflow, or if the chains of maximum likelihood leave the range
            of the data.
        """
        self._check_parameters()
        cells, schema = self._validated(X)
        return self._learn(self._training_table(schema, cells))

    @available_where("_is_density", _NO_CONSTANT)
    @callbacks.shows_progress
    def objective(self, X: TableLike, y: object = None) -> float:
        """Compute the objective of VNCE at rows of X; larger is better.

        It is that of ``algorithm="vnce"``, without penalties: in each row one missing
        cell is integrated out, and the others are drawn from the model.  The noise is
        drawn from the marginals of the training data, `noise_ratio` rows for each row:
        compare candidates of the same ratio.
        It chooses the penalty as Rhodes and Gutmann (2019) do: ``GridSearchCV(...,
        scoring=lambda learner, X, y=None: learner.objective(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Non-negative; NaN marks missing cells.
        y : None, default=None
            Ignored.

        Returns
        -------
        float
            NaN if all columns were constant at `fit`, or all rows are missing.

        Raises
        ------
        AttributeError
            If the algorithm estimates no normalising constant.
        """
        check_is_fitted(self)
        checked, total, n_rows = self._checked(X), 0.0, 0
        with self._threads(), seeded(0):
            model, size = self._cell_model(), _N_COMPLETED * (1 + self.noise_ratio)
            for _, nodes in chunks(self._schema, checked, size):
                rows = nodes[~np.isnan(nodes).all(1)]
                if rows.size:
                    total += len(rows) * self._objective_of(model, rows)
                    n_rows += len(rows)
        return total / n_rows if n_rows else np.nan

    def _objective_of(self, model, nodes):
        """Compute the objective of rows by drawn cells and noise."""
        drawn = torch.from_numpy(model.draw(nodes, _N_COMPLETED))
        noise = TruncatedNormal(*map(torch.tensor, model.noise))
        parts = model.module(), drawn, torch.from_numpy(~np.isnan(nodes)), noise
        return objective_at(*parts, self.noise_ratio)

    @torch_defaults()
    def to_torch(self) -> Any:
        """Return the fitted model as a torch module, in the units of X.

        Returns
        -------
        skvnce.graphs.truncated_gaussian.TruncatedGaussian
            A copy in double precision, without gradients.
        """
        check_is_fitted(self)
        return self._fitted.model.module()

    def _associations(self):
        return -np.sign(self.precision_) * self.edge_strengths_

    def _edge_columns(self, i, j):
        return {"precision": self.precision_[i, j]}

    def _threads(self, schema=None):
        return threads_for(len((schema or self._schema).model_columns))

    def _check_predictions(self, table, problem, theta, report, strength="alpha"):
        """Check the fit, and report a misfit; returns what `_held_out` returns."""
        cells = table.cells

        def predict(training, rows):
            sizes = {"alpha": self.alpha, "n_steps": self.n_steps}
            try:
                return predict_held_out(problem, theta, training, rows, **sizes), {}
            except Diverged:
                # cells without a prediction count as predicted infinitely badly
                return None, {}

        schema, checked = self._held_out(
            table.schema, cells.nodes, predict, scale=cells.scale
        )
        data = Incomplete.from_array(cells.nodes)
        options = {"fit_linear": self.fit_linear, "cut": report["largest_cut_"]}
        options["remedy"] = f"{strength} or ridge={report['ridge_']:.2g}"
        others = messages(schema, data, theta, **options)
        self._report_misfit(schema, checked, REMEDY, others)
        return schema, checked

    def _remedy(self):
        """Say which parameters to change if a fit diverges."""
        text = (
            "Look for columns with extreme values or that nearly repeat others, for "
            "too few rows, and for an extreme penalty. Another ridge than "
            f"ridge={self.ridge!r}"
        )
        if self.algorithm == "score-matching":
            return f"{text} may help."
        return f"{text}, or algorithm='score-matching', may help."

    def _without_effect(self):
        """Return why parameters have no effect, by name."""
        if "nce" in self.algorithm:
            return {}
        return {
            "noise_ratio": f"algorithm={self.algorithm!r} does not use it; "
            "noise-contrastive ones do, such as 'vnce'"
        }

    def _training_table(self, schema, X):
        """Choose the columns of the model by validated rows."""
        table = self._chosen(schema, X, is_whole=False)
        columns = table.schema.model_columns
        self._report_tails(table.schema, table.cells.table, columns)
        return table

    def _problem(self, schema, data, limits=NO_LIMITS):
        """Scale the columns, choose the ridges, and build the method."""
        units = em.units_of(data, self.fit_linear)
        _check_scale(schema, units.scale.numpy())
        ridges = (
            None if isinstance(value, str) else float(value)
            for value in (self.ridge, self.ridge_linear)
        )
        options = Options(self.algorithm, self.fit_linear, self.noise_ratio)
        return make_problem(data, units, options, *ridges)

    def _stopping(self, data):
        """Return how long EM goes on."""
        return {"max_iter": self.max_iter, "tol": self._tolerance(data)}

    def _tolerance(self, data):
        """Return the change of an edge strength at which EM stops."""
        if isinstance(self.tol, str):
            return em.tolerance(data.observed)
        return self.tol

    def _model_of(self, schema, fit, problem, data):
        """Make the parameters of a fit, in the units of X."""
        precision, linear, log_scale = em.uncentre(fit.theta, problem.units.centre)
        scale, shift = problem.units.scale.numpy(), 0.0
        noise = em.marginals(data)
        if self._is_density:
            # a density in the units of X is divided by the scales
            shift = float(log_scale) + float(np.log(scale).sum())
        return GraphModel(
            precision.numpy() / np.outer(scale, scale),
            linear.numpy() / scale,
            shift,
            em.observed_mean(data.x, data.observed).numpy(),
            np.stack([part.numpy() for part in (noise.loc, noise.scale)]),
            int(self.n_steps),
        )

    def _learned(self, schema, fit, problem, data):
        """Return the parameters of a fit, and the attributes that describe it."""
        model = self._model_of(schema, fit, problem, data)
        scale = problem.units.scale.numpy()
        unit, linear, _ = em.uncentre(fit.theta, problem.units.centre)
        unit, linear = unit.numpy(), linear.numpy()
        root = np.sqrt(np.diag(unit))
        strengths = np.abs(unit) / np.outer(root, root)
        np.fill_diagonal(strengths, 0)
        report = self._report_of(schema, model) | {
            "ridge_": problem.ridge,
            "ridge_linear_": problem.ridge_linear,
            "edge_strengths_": strengths,
            "n_iter_": len(fit.losses),
            "loss_curve_": fit.losses,
            "change_": fit.change,
            "optimality_gap_": fit.gap,
            "largest_cut_": fit.cut,
            "chain_autocorrelation_": fit.autocorrelation,
            "n_tuning_iter_": rounds_of_tuning(),
        }
        # on the positive orthant, a density is finite for some K that are indefinite
        if np.linalg.eigvalsh(unit)[0] > 0:
            report["untruncated_mean_"] = np.linalg.solve(unit, linear) * scale
        tol = self._tolerance(data)
        message = why_unsettled(fit, problem.ridge, self.max_iter, tol)
        if message:
            warn_user(message, ConvergenceWarning)
        return model, report

    def _report_of(self, schema, model):
        """List the attributes of an estimator with these parameters."""
        report = {
            "precision_": model.precision,
            "linear_": model.linear,
            "location_": model.location,
            "nodes_": schema.all_names[schema.model_columns],
        }
        return report | ({"log_scale_": model.log_scale} if self._is_density else {})

    def _empty_graph(self, schema):
        """Make the graph without nodes of a table whose columns are all constant."""
        none, square = np.zeros(0), np.zeros((0, 0))
        noise = np.zeros((2, 0))
        model = GraphModel(square, none, 0.0, none, noise, int(self.n_steps))
        names = "change_", "optimality_gap_", "largest_cut_", "chain_autocorrelation_"
        report = self._report_of(schema, model) | dict.fromkeys(names, 0.0)
        for name in ("ridge", "ridge_linear"):
            report[f"{name}_"] = number_or_nan(getattr(self, name))
        report["n_tuning_iter_"] = 0
        squares = "edge_strengths_", "edge_probabilities_"
        return without_columns(schema, report, ["untruncated_mean_"], squares, model)

    def _edge_scores(self, fit, problem):
        """Score all pairs; return the scores, and which have no sign."""
        scores = edge_scores(
            problem.data,
            fit,
            problem.units.centre,
            problem.ridge,
            fit_linear=self.fit_linear,
        )
        return scores, torch.zeros_like(scores, dtype=torch.bool)

    @property
    def _is_density(self):
        """Whether the algorithm estimates a normalising constant."""
        return "nce" in str(self.algorithm)


def _check_scale(schema, scale):
    """Raise an error for columns whose products overflow."""
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        # entries of the precision are divided by these products
        products = np.outer(scale, scale).max(1), 1 / np.outer(scale, scale).min(1)
    fit = np.isfinite(products).all(0) & (scale != 0)
    check_squares(schema, schema.model_columns, fit)
