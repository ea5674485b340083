"""Noisy-OR: a transformer of sparse binary tables into probabilities of causes."""

import numbers
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from copy import deepcopy
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import xlog1py, xlogy
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_is_fitted,
    validate_data,
)

from skvnce._core import runtime
from skvnce._core.numbers import check_count
from skvnce._core.progress import step, tell
from skvnce._core.random import row_lattice, seed_from, seeded
from skvnce._core.training.adam import Diverged
from skvnce._core.warnings import warn_user
from skvnce._imputer import callbacks, validation
from skvnce._imputer.base import IncompleteTransformer
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.parts.tables import by_parts
from skvnce._imputer.validation import Adam
from skvnce._tables.frames import cell_errors_named, readable
from skvnce._tables.schema import Schema
from skvnce._types import Seed
from skvnce.noisy_or import em
from skvnce.noisy_or.em import Rows
from skvnce.noisy_or.model import NoisyOrModel, RowNetwork, gather

# ----------------------------------------
# Validation and preparation of sparse binary tables with missing values.
#
# A validated table is a CSR array that stores ones as 1 and missing cells as NaN.


_NMF_ROUNDS = 50  # enough iterations for an initial guess
_STRONG = 50  # the strength of a component is reached in a fiftieth of the rows
# components are divided by these weights, which are 0 of a column of ones
_RAREST = 1e-3  # lower bound of the column weights
_NOISE = 0.2  # scale of the noise added to components, relative to column rates


def binary_table(estimator, X, *, reset):
    """Validate a table of zeros, ones and NaN, after applying `binarize`.

    With `reset`, scikit-learn sets its attributes of the columns.  Returns `table`
    (n, features), float64 or float32; `schema`.

    Raises ValueError for infinite values and text; for values other than 0 and 1 if
    `binarize` is None (the message names row and column); for a wrong number of
    columns.
    """
    validation.needs_memory(type(estimator), X, reset=reset)
    cells = readable(X, sparse=True)
    validation.check_two_dimensional(cells)
    with cell_errors_named(X):
        table = validate_data(
            estimator,
            cells,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            # the error below names the cell, which scikit-learn does not
            ensure_all_finite=False if sparse.issparse(X) else "allow-nan",
            ensure_min_samples=2 if reset else 1,
        )
    names = getattr(estimator, "feature_names_in_", None)
    schema = Schema(estimator.n_features_in_, names)
    # before `binarize`, which would turn an infinite cell into a one
    if sparse.issparse(table):
        infinite = np.isinf(table.data)
        _reject(schema, sparse.csr_array(table), infinite, "Input X contains inf")
    if estimator.binarize is not None:
        table = _binarize(table, estimator.binarize)
    # the table of the user must not be changed by the next two lines
    table = sparse.csr_array(table, copy=True)
    table.sum_duplicates()
    # last, because duplicates may cancel
    table.eliminate_zeros()
    wrong = ~np.isnan(table.data) & (table.data != 1)
    takes = "With binarize=None, NoisyOr accepts zeros, ones and NaN"
    remedy = "Set binarize=0.0 to count values above 0 as ones."
    _reject(schema, table, wrong, takes, remedy)
    return table, schema


def _binarize(table, threshold):
    """Set cells above a threshold to 1 and the others to 0; NaN is kept."""
    if not sparse.issparse(table):
        return np.where(np.isnan(table), table, table > threshold).astype(table.dtype)
    if threshold < 0:
        raise ValueError(
            f"binarize={threshold!r} is negative, but X is sparse: cells that are not "
            "stored would count as ones. Use a threshold of at least 0, or pass "
            "X.toarray()."
        )
    table = table.copy()
    # a threshold is for the sum of the entries that are stored for a cell
    table.sum_duplicates()
    on = np.where(np.isnan(table.data), np.nan, table.data > threshold)
    return _with_data(table, on.astype(table.dtype))


def _reject(schema, table, wrong, reason, remedy="Replace it by NaN if missing."):
    """Raise an error that names the first wrong stored cell, if there is one."""
    if wrong.any():
        place = np.flatnonzero(wrong)[0]
        row = np.searchsorted(table.indptr, place, side="right") - 1
        column = schema.label(table.indices[place])
        value = float(table.data[place])
        raise ValueError(f"{reason}, got {value!r} in {column}, row {row}. {remedy}")


def observed_counts(table):
    """Count the observed cells of each column; (features,)."""
    missing = table.indices[np.isnan(table.data)]
    return table.shape[0] - np.bincount(missing, minlength=table.shape[1])


def observed_rows(table):
    """Drop the rows that are entirely missing."""
    missing = _with_data(table, np.isnan(table.data).astype(int))
    return table[missing.sum(1) < table.shape[1]]


def without_columns(table, columns):
    """Drop the stored cells of some columns."""
    if not len(columns):
        return table
    retained = np.ones(table.shape[1], dtype=table.dtype)
    retained[columns] = 0
    # a product with NaN is NaN, so select by a mask of the stored cells
    stored = _with_data(table, retained[table.indices])
    data = table.data[stored.data > 0]
    stored.eliminate_zeros()
    return _with_data(stored, data)


def parts_by_length(table, cost_of_cell, cost_of_row, budget):
    """Yield indices of rows of similar length, as many as the budget allows.

    `table` (n, features).  `cost_of_cell`, `cost_of_row`: memory, in numbers, per
    listed cell (all rows are padded to the longest) and per row.  `budget`: maximum
    number of numbers in memory; a single row may need more.
    """
    length = np.maximum(np.diff(table.indptr), 1)
    order = np.argsort(length, kind="stable")
    cost = np.maximum(length[order] * cost_of_cell, cost_of_row)
    first = 0
    while first < len(order):
        rows = cost[first : first + budget]
        # rows of a part are padded to the longest, which is the last one
        total = rows * np.arange(1, len(rows) + 1)
        count = max(1, int(np.searchsorted(total, budget, side="right")))
        yield order[first : first + count]
        first += count


def fingerprints(table):
    """Compute a key of each row's cells that does not depend on other rows; (n, 1)."""
    # a constant seed, because keys must be the same in all calls
    rng = np.random.default_rng(0)
    on, missing = rng.random((2, table.shape[1]))
    # two numbers for each column, because a missing cell is neither 0 nor 1
    weight = np.where(np.isnan(table.data), missing[table.indices], on[table.indices])
    return _with_data(table, weight).sum(1)[:, None]


def torch_rows(table):
    """Convert the stored cells to torch tensors."""
    return Rows(
        # scipy has int32 in small tables, and torch indexes by int64
        torch.from_numpy(table.indptr.astype(np.int64)),
        torch.from_numpy(table.indices.astype(np.int64)),
        torch.from_numpy(~np.isnan(table.data)),
    )


def factorise(table, n_components, rng):  # (n_components, features): probabilities
    """Estimate initial components by non-negative matrix factorisation.

    Columns are weighted down the more ones they have.  Otherwise columns that are
    nearly always 1 would form a component of their own.

    `table` (n, features), `rng` (RandomState instance).
    """
    on, rarity = _on(table), np.maximum(1 - _rates(table), _RAREST)
    scaled = np.zeros((n_components, table.shape[1]))
    if on.nnz:
        weighted = on @ sparse.diags_array(rarity)
        strength, components = _factors(weighted, n_components, rng)
        strength = np.sort(strength, 0)
        strong = strength[-max(2, len(strength) // _STRONG) :].mean(0)
        scaled = components * strong[:, None] / rarity
    return scaled + _NOISE * scatter(table, n_components, rng)


def _factors(weighted, n_components, rng):
    """Factorise a table into strengths (n, n_components) and components.

    The default initialisation of scikit-learn, by singular vectors, divides 0 by 0 if
    the rank of the table is below `n_components`.  In this case it is random.
    """
    for init in (None, "random"):
        factors = NMF(n_components, init=init, max_iter=_NMF_ROUNDS, random_state=rng)
        # the reconstruction error of an exact fit may be the root of -1e-17
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
            strength = factors.fit_transform(weighted)
        if np.isfinite(strength).all() and np.isfinite(factors.components_).all():
            break
    return strength, factors.components_


def scatter(table, n_components, rng):
    """Draw random components around the rates of the columns, as in `factorise`."""
    return _rates(table) * rng.random((n_components, table.shape[1]))


def _on(table):
    """Replace missing cells by zeros."""
    return _with_data(table, np.nan_to_num(table.data))


def _rates(table):
    """Compute the share of ones among the observed cells of each column."""
    return _on(table).sum(0) / np.maximum(observed_counts(table), 1)


STARTS = {"nmf": factorise, "random": scatter}


def _with_data(table, data):
    return sparse.csr_array((data, table.indices, table.indptr), shape=table.shape)


# ----------------------------------------
# Noisy-OR: a transformer of sparse binary tables into probabilities of causes.


_SOLVER = {"batch_size": "auto", "learning_rate_init": 0.02, "device": "cpu"}
_BY_NETWORK = {"acp", "avi"}  # algorithms
_MOST_NAMES = 10  # maximum number of column names in a warning
# 8 MiB of float64
_CHUNK = 2**20  # maximum size of an array of a chunk of rows
_LARGEST_ALPHA = 1e9  # squares of gradients must be finite in single precision
# fits end below the loss of their start, with too large steps at 1.4 to 13 times it
_WORSE, _NATS = 0.25, 1.0  # relative and absolute increase of the loss of a failure
# a step moves an unconstrained parameter by about the learning rate, and by 7 from one
# half to an end; long trainings with small steps may reach the ends
_JUMPING, _AT_END, _MOST_AT_ENDS = 2.0, 1e-3, 0.2
_CHECKED = 500  # maximum number of rows by which failures are noticed
_N_SCORED = 100  # number of draws of the causes in score_samples


class CauseFit(NamedTuple):
    """What `NoisyOr` needs to rebuild its networks."""

    sizes: dict  # parameters that determine the sizes of model and network
    n_rows: int
    cache: dict


class NoisyOr(
    ClassNamePrefixFeaturesOutMixin,
    callbacks.CallbackSupportMixin,
    IncompleteTransformer,
):
    """Latent binary causes of binary columns, such as topics of words.

    Each cause that is present turns each column on with a certain probability,
    independently of the others; a leak turns columns on without any cause:

    .. code-block:: text

        P(x_i = 0 | z) = (1 - leak_i) prod_k (1 - components_ki) ** z_k

    A row may have several causes, or none.  The fit uses the observed cells of each
    row, which is valid if values are missing at random (MAR).

    Parameters
    ----------
    n_components : int, default=10
        Number of causes.
    algorithm : {"acp", "avi", "svi", "lb-cdi", "ub-cdi"}, default="acp"
        Method that infers the causes of a row.  ``"acp"`` (amortised conjugate
        posterior): the form of the posterior follows from the model, and a network
        gives its parameters; much better than the next method if there are few rows.
        ``"avi"``: a network gives the posterior probabilities.  ``"svi"``: each row has
        free posterior probabilities, which maximise a lower bound of the likelihood.
        ``"lb-cdi"`` and ``"ub-cdi"`` (conjugate dual inference): the posterior
        probabilities of the tightest lower and upper bound of the likelihood.
        ``"ub-cdi"`` infers badly; it exists for comparison.
    binarize : float or None, default=0.0
        Cells above this threshold count as ones, others as zeros; NaN stays missing.
        For a sparse X it must be at least 0, because cells that are not stored are
        zeros.  With None, X must consist of zeros, ones and NaN.
    alpha : float, default=1.0
        Rate of the exponential prior of the weights ``-log(1 - components_)``.  The
        larger it is, the fewer columns a cause turns on after training has converged;
        short training shrinks less.  If the `score` of held-out rows is much lower than
        that of the training rows, increase it, up to 100.  With 0 there is no prior.
    init : {"nmf", "random"}, default="nmf"
        Initial components: from a non-negative matrix factorisation, or random.  From
        random components training mostly ends with some causes merged or split.
    hidden_layer_sizes : tuple of int, default=(64,)
        Widths of the hidden layers of the network; only for ``"acp"`` and ``"avi"``.
    n_training_draws : int, default=10
        Number of relaxed draws of the causes of each row in a step; only for ``"acp"``
        and ``"avi"``.
    solver : "auto" or Adam, default="auto"
        Adam.  The fields of `skvnce.options.Adam` that are ``"auto"`` have these
        values: ``batch_size`` is a twentieth of the rows, from 16 to 128;
        ``learning_rate_init=0.02``, which `fit` reduces to 0 along half a cosine.
        `device` is where it trains and is used.  The other fields are not used.
    max_iter : int, default=100
        Number of passes over the rows, all of which are made.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the initial values and of the training.
    verbose : int, default=0
        If 1, print a line for each pass, and for each other step that takes longer than
        a second.  If 2, print all steps.

    Attributes
    ----------
    n_components_ : int
        Number of causes.
    components_ : ndarray of shape (n_components, n_features_in_)
        Probabilities with which a single cause turns columns on.
    leak_ : ndarray of shape (n_features_in_,)
        Probabilities with which columns are on without any cause; NaN for columns that
        were never observed.
    prior_ : ndarray of shape (n_components,)
        Prior probabilities of the causes.
    n_observed_ : ndarray of int, of shape (n_features_in_,)
        Number of observed cells of each column.
    model_state_, posterior_state_ : dict of str to ndarray
        Parameters of the model and of the inference network.
    n_iter_ : int
        Number of passes over the rows.
    loss_curve_ : list of float
        Mean negative lower bound in each pass, in nats a row, estimated by relaxed
        draws if the method uses them, plus the penalty.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    See Also
    --------
    IncompleteFactorAnalysis : For columns of numbers.

    Notes
    -----
    Sparse tables stay sparse.  Time and memory of a step are proportional to the number
    of its rows times the largest number of ones and missing cells in one of them.  In a
    sparse X, cells that are not stored are zeros; missing cells are stored as NaN.

    A fit is one sequence of steps, and has no `n_jobs`.  Each row counts once: the
    prior is that of a number of rows without weights.  Nothing checks a misfit, so
    that there is no `on_misfit`.  Instead of probabilities of levels there are those of
    ones, by `inverse_transform`.

    References
    ----------
    Yan, Ailem and Sha (2019), Amortized inference of variational bounds for
    learning noisy-OR, eqs. (4), (11), (14)-(16); Jaakkola and Jordan (1999),
    Variational probabilistic inference and the QMR-DT network.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import NoisyOr
    >>> rng = np.random.default_rng(0)
    >>> causes = rng.random((300, 2)) < 0.3
    >>> X = (causes @ [[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]] > 0).astype(float)
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = NoisyOr(n_components=2, random_state=0).fit(X)
    >>> model.components_[model.components_[:, 0].argsort()].round(1)
    array([[0., 0., 1., 1., 1.],
           [1., 1., 1., 0., 0.]])
    >>> model.transform([[0, 0, np.nan, 1, 1]]).shape
    (1, 2)
    """

    _parameter_constraints = {
        "n_components": [validation.integer_from(1)],
        "algorithm": [StrOptions(set(em.INFERENCES))],
        "binarize": [None, validation.Number(Real, None, None, closed="neither")],
        "alpha": [validation.Number(Real, 0, _LARGEST_ALPHA, closed="both")],
        "init": [StrOptions(set(STARTS))],
        "hidden_layer_sizes": ["array-like"],
        "n_training_draws": [validation.integer_from(1)],
        "solver": [validation.AUTO, Adam],
        "max_iter": [validation.integer_from(1)],
        "random_state": validation.RANDOM_STATE,
        "verbose": ["verbose"],
    }

    _parts = {"solver": lambda _: Adam()}

    def __init__(
        self,
        n_components: int = 10,
        *,
        algorithm: Literal["acp", "avi", "svi", "lb-cdi", "ub-cdi"] = "acp",
        binarize: float | None = 0.0,
        alpha: float = 1.0,
        init: Literal["nmf", "random"] = "nmf",
        hidden_layer_sizes: Sequence[int] = (64,),
        n_training_draws: int = 10,
        solver: Adam | Literal["auto"] = "auto",
        max_iter: int = 100,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.binarize = binarize
        self.alpha = alpha
        self.init = init
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_training_draws = n_training_draws
        self.solver = solver
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    @callbacks.reports_fit
    def fit(self, X: Any, y: object = None) -> Self:
        """Learn the causes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Cells above `binarize` count as ones, others as zeros; NaN marks missing
            cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.

        Returns
        -------
        self : NoisyOr

        Raises
        ------
        ValueError
            If there are fewer than two rows, if no cell is observed, if a parameter is
            out of range, if `binarize` is negative and X is sparse, if `binarize` is
            None and X has values other than 0, 1 and NaN.
        DivergenceError
            If training diverges.
        TypeError
            If a parameter has a wrong type.
        """
        self._check_parameters()
        table, schema = binary_table(self._new(), X, reset=True)
        # memory grows with the cells that are stored
        validation.check_fit(type(self), (table.nnz / table.shape[1], table.shape[1]))
        fitted, table = self._start_fit(schema, table)
        on_round, finish = callbacks.report_rounds(self, self.max_iter, X=X)
        with self._training():
            learner = self._initial_learner(fitted, table)
            rows = self._to_device(learner, table)
            gains = self._must_gain(learner.model, rows, table)
            with gains, self._must_improve(fitted, learner, rows):
                losses = em.learn(
                    learner,
                    rows,
                    penalty=self._penalty(fitted),
                    batch_size=self._rows_of_step(table),
                    learning_rate=self._solver()["learning_rate_init"],
                    max_iter=self.max_iter,
                    on_epoch=lambda n, loss: on_round(n, loss, np.nan),
                )
            fitted = self._add_parameters(fitted, learner, losses)
        finish()
        return self._publish(fitted)

    @by_parts
    @callbacks.shows_progress
    def transform(self, X: Any) -> Any:
        """Compute the posterior probabilities of the causes given the observed cells.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Cells above `binarize` count as ones, others as zeros; NaN marks missing
            cells.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        table = self._checked(X)
        probability = self._rowwise(table, 1, lambda _, logit, part: logit.sigmoid())
        return probability.astype(table.dtype)

    @by_parts
    @callbacks.shows_progress
    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Estimate the evidence lower bound of each row, in nats.

        The estimate is a mean over 100 draws of the causes, with random numbers that
        are functions of the row.  Up to its error it is at most the log-probability of
        the observed cells.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Cells above `binarize` count as ones, others as zeros; NaN marks missing
            cells.

        Returns
        -------
        ndarray of shape (n_samples,)
        """

        def scored(evidence, logit, part):
            like = logit.expand(_N_SCORED, *logit.shape)
            uniform = row_lattice(fingerprints(part), 0)(0, like)
            return em.hard_elbo(evidence, logit, uniform)

        return self._rowwise(self._checked(X), _N_SCORED, scored)

    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.float64]:
        """Compute the probabilities of ones given those of the causes.

        ``1 - (1 - leak_i) prod_k (1 - Z_k components_ki)``: exact if causes are present
        or absent, and if they are independent with these probabilities.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Probabilities, from 0 to 1.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            NaN in columns that were never observed.

        Raises
        ------
        ValueError
            If values are not between 0 and 1, or if the number of causes is wrong.
        """
        check_is_fitted(self)
        Z = validation.latent_array(Z, self.n_components_)
        outside = np.argwhere((Z < 0) | (Z > 1))
        if len(outside):
            row, cause = outside[0]
            raise ValueError(
                f"Z must hold probabilities, from 0 to 1, got {Z[row, cause]} in "
                f"column {cause}, row {row}."
            )
        off = np.repeat(1 - self.leak_[None].astype(Z.dtype), len(Z), 0)
        # one cause at a time, because all at once would be an array of three dimensions
        for presence, component in zip(Z.T, self.components_, strict=True):
            off *= 1 - presence[:, None] * component.astype(Z.dtype)
        return 1 - off

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
            Zeros and ones; NaN in columns that were never observed.
        """
        check_is_fitted(self)
        check_count(n_rows, "n_rows")
        rng = np.random.default_rng(seed_from(random_state))
        causes = rng.random((n_rows, self.n_components_)) < self.prior_
        chance = self.inverse_transform(causes.astype(float))
        rows = (rng.random(chance.shape) < chance).astype(float)
        # columns that fit has never observed
        return np.where(np.isnan(chance), np.nan, rows)

    def to_torch(self) -> Any:
        """Return the fitted model of the columns of X.

        Returns
        -------
        torch.nn.Module
            A copy in double precision and without gradients, with ``causes()``: weights
            ``-log(1 - components_)`` of shape ``(n_features_in_, n_components_)``,
            leaks ``-log(1 - leak_)``, and logits of `prior_`.  Columns that were never
            observed have initial values.
        """
        check_is_fitted(self)
        return deepcopy(self._double_learner().model).cpu().requires_grad_(False)

    def top_terms(
        self, n_terms: int = 10, feature_names: ArrayLike | None = None
    ) -> list[list[str]]:
        """List the columns that each cause turns on with the highest probabilities.

        Parameters
        ----------
        n_terms : int, default=10
            Number of columns of each cause.
        feature_names : array-like of str of shape (n_features_in_,), default=None
            Names of the columns, such as ``vectorizer.get_feature_names_out()``; the
            default is `feature_names_in_`, or x0, x1, ...

        Returns
        -------
        list of list of str
            One list for each cause, most probable column first.
        """
        check_is_fitted(self)
        check_count(n_terms, "n_terms")
        width = self.n_features_in_
        if feature_names is None:
            feature_names = _check_feature_names_in(self)
        names = np.asarray(feature_names, dtype=object)
        if names.shape != (width,):
            raise ValueError(
                f"feature_names must be {width} names, one a column, got an array of "
                f"shape {names.shape}."
            )
        order = np.argsort(-self.components_, axis=1, kind="stable")
        return [names[first].tolist() for first in order[:, :n_terms]]

    def _check_parameters(self):
        validation.check_parameters(self)
        validation.check_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        self._solver()

    def __sklearn_tags__(self):
        """Declare that sparse tables are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_features_out(self):
        return self.n_components_

    def _attributes_of(self, schema):
        return validation.attributes_of(schema)

    def _checked(self, X):
        """Validate new rows; ignore cells of columns that were never observed."""
        check_is_fitted(self)
        self._check_parameters()
        table, _ = binary_table(self, X, reset=False)
        return without_columns(table, np.flatnonzero(self.n_observed_ == 0))

    def _start_fit(self, schema, table):
        """Drop the empty rows of a table; return `Fitted` without parameters, and it.

        Warns about columns that were never observed.
        """
        table = observed_rows(table)
        if not table.shape[0]:
            raise ValueError("X has no observed cell: there is nothing to learn.")
        n_observed = observed_counts(table)
        if not n_observed.all():
            names = schema.labels(np.flatnonzero(n_observed == 0), _MOST_NAMES)
            warn_user(
                f"Entirely missing: {names}; no cause switches them on, and their "
                "probabilities are NaN."
            )
        fit = CauseFit(self._sizes(), table.shape[0], {})
        return Fitted(schema, fit, {"n_observed_": n_observed}), table

    def _sizes(self):
        """Return the parameters that determine the sizes of model and network."""
        return {
            "n_components": int(self.n_components),
            "algorithm": self.algorithm,
            "hidden_layer_sizes": [int(size) for size in self.hidden_layer_sizes],
        }

    def _solver(self):
        """Return the fields of the solver; `batch_size` may be "auto"."""
        return validation.fields_of(self.solver, "solver", _SOLVER)

    def _to_device(self, learner, table):
        """Move a learner to the device of training, in place, and the rows."""
        device = runtime.resolve_device(self._solver()["device"], "solver.device")
        learner.model.to(device)
        learner.inference.network.to(device)
        return torch_rows(table).on_device(device)

    def _rows_of_step(self, table):
        size = self._solver()["batch_size"]
        if not isinstance(size, str):
            return int(size)
        # about twenty steps in a pass over few rows
        return int(np.clip(table.shape[0] // 20, 16, 128))

    @contextmanager
    def _training(self):
        """Isolate the random numbers, and name the remedies of failures."""
        seed = self.random_state
        if isinstance(seed, numbers.Integral):  # as scikit-learn's estimators
            seed = check_random_state(seed)
        rate = self._solver()["learning_rate_init"]
        remedy = (
            f"Lower learning_rate_init={rate!r} of the solver (pass solver=Adam(...)), "
            f"or alpha={self.alpha!r}."
        )
        with runtime.one_thread(), seeded(seed), callbacks.failures_named(remedy):
            yield

    def _penalty(self, fitted):
        # the loss is a mean over rows, and the prior counts once
        return self.alpha / fitted.model.n_rows

    @contextmanager
    def _must_improve(self, fitted, learner, rows):
        """Raise an error if training increases the loss of the checked rows much.

        With too large steps probabilities jump to 0 or 1, where gradients vanish.  The
        loss stays finite, and bounds that were loose at the start may even decrease.
        """
        before = self._loss_of(fitted, learner, rows)
        yield
        after = self._loss_of(fitted, learner, rows)
        if not after <= before + max(_WORSE * abs(before), _NATS):
            raise Diverged(f"the loss of a row rose from {before:.3g} to {after:.3g}")
        if self._solver()["learning_rate_init"] > _JUMPING:
            p = -torch.expm1(-learner.model.causes().weight.detach())
            at_ends = float(((p < _AT_END) | (p > 1 - _AT_END)).double().mean())
            if at_ends > _MOST_AT_ENDS:
                raise Diverged(f"{at_ends:.0%} of the probabilities jumped to 0 or 1")

    @contextmanager
    def _must_gain(self, model, rows, table):
        """Warn if larger steps explain some rows worse than the start, or no causes.

        With steps of the default size a short fit, or a network of few rows, may.
        """
        rate = self._solver()["learning_rate_init"]
        if rate <= _SOLVER["learning_rate_init"] or self.algorithm == "ub-cdi":
            yield  # "ub-cdi" infers badly at any rate
            return
        checked = _rows_to_check(rows)
        floors = {
            "the start of the fit": em.least_likelihood(model, rows, checked),
            "independent columns": independent(table, table[checked.numpy()]),
        }
        yield
        bound = em.least_likelihood(model, rows, checked)
        rival = max(floors, key=floors.get)
        if not bound > floors[rival]:
            warn_user(
                f"The causes explain the rows no better than {rival}: the mean lower "
                f"bound of the log-likelihood is {bound:.4g}, not above "
                f"{floors[rival]:.4g}. "
                f"Unless columns are independent, lower learning_rate_init={rate!r} of "
                f"the solver (pass solver=Adam(...)), or alpha={self.alpha!r}.",
                ConvergenceWarning,
            )

    @torch.no_grad()
    def _loss_of(self, fitted, learner, rows):
        """Compute the loss of checked rows, always with the same random numbers."""
        # a copy, because "svi" stores the posteriors of the rows that it visits
        with seeded(0):
            copied = em.Learner(learner.model, self._inference(fitted))
            state = learner.inference.network.state_dict()
            copied.inference.network.to(rows.start.device).load_state_dict(state)
            checked = _rows_to_check(rows)
            return float(em.loss(copied, rows, self._penalty(fitted))(checked))

    def _initial_learner(self, fitted, table):
        """Make the initial model and its inference network."""
        if self.algorithm not in _BY_NETWORK:
            reason = f"{self.algorithm!r} has no network; 'acp' and 'avi' have one"
            names = ("hidden_layer_sizes", "n_training_draws")
            validation.warn_of_unused(self, dict.fromkeys(names, f"algorithm={reason}"))
        # scikit-learn's NMF takes no generator of torch
        rng = np.random.RandomState(int(torch.randint(2**31 - 1, ())))
        with step("finding a start"):
            guess = STARTS[self.init](table, int(self.n_components), rng)
        model = em.start(torch_rows(table), torch.from_numpy(guess))
        n_listed = table.nnz / table.shape[0]
        return em.Learner(model, self._inference(fitted, n_listed))

    def _inference(self, fitted, n_listed=1.0):
        sizes, n_columns = fitted.model.sizes, fitted.schema.n_columns
        hidden = tuple(sizes["hidden_layer_sizes"])
        layers = em.Sizes(n_columns, sizes["n_components"], hidden, n_listed)
        draws = em.Relaxation(int(self.n_training_draws))
        inference = em.INFERENCES[sizes["algorithm"]](layers, draws)
        inference.network.float()  # independent of torch's default dtype
        return inference

    def _rebuild(self):
        """Rebuild the learner from its state."""
        k, d = self._fitted.model.sizes["n_components"], self.n_features_in_
        blank = torch.ones(d, k), torch.ones(d), torch.full((k,), 0.5)
        model = NoisyOrModel(*blank).float()
        with seeded(0):
            learner = em.Learner(model, self._inference(self._fitted))
        runtime.load_state(model, self.model_state_)
        runtime.load_state(learner.inference.network, self.posterior_state_)
        return learner

    def _add_parameters(self, fitted, learner, losses):
        """Add the learned parameters to the value of a fit."""
        schema, fit, report = fitted
        states = (
            runtime.state_of(learner.model),
            runtime.state_of(learner.inference.network),
        )
        causes = learner.model.cpu().double().causes()
        weight, leak, prior_logit = (part.detach() for part in causes)
        never = report["n_observed_"] == 0
        # expm1 is exact for small weights, too
        components, leak = -np.expm1(-weight.T.numpy()), -np.expm1(-leak.numpy())
        components[:, never], leak[never] = 0.0, np.nan
        prior = prior_logit.sigmoid().numpy()
        report = report | {
            "loss_curve_": losses,
            "n_iter_": len(losses),
            "model_state_": states[0],
            "posterior_state_": states[1],
            "components_": components,
            "leak_": leak,
            "prior_": prior,
            "n_components_": len(prior),
        }
        return Fitted(schema, fit, report)

    def _rowwise(self, table, n_draws, function):
        """Apply a function of evidence, logits and rows to a table, in parts.

        The function uses `n_draws` draws of the causes of each row.
        """
        model, inference = self._double_learner()
        device = runtime.device_in_use(self._solver()["device"])
        model.to(device)
        inference.network.to(device)
        never = torch.from_numpy(self.n_observed_ == 0).to(device)
        k, hidden = self.n_components_, self._fitted.model.sizes["hidden_layer_sizes"]
        costs = max(n_draws, k, *hidden), n_draws * k
        joined, n_done = None, 0
        with runtime.one_thread(), torch.no_grad():
            causes = model.causes()
            causes.weight[never], causes.leak[never] = 0.0, 0.0
            for places in parts_by_length(table, *costs, _CHUNK):
                n_done += len(places)
                tell("rows", n_done, table.shape[0])
                part = table[places]
                rows = torch.arange(len(places))
                listed = torch_rows(part).on_device(device)
                cells = listed.cells(rows, torch.float64)
                evidence = gather(causes, cells)
                logit = inference.posterior(evidence, cells)
                values = function(evidence, logit, part).cpu().numpy()
                if joined is None:  # small arrays of each part would scatter the heap
                    joined = np.empty((table.shape[0], *values.shape[1:]), values.dtype)
                joined[places] = values
        return joined

    @runtime.filled_once
    def _double_learner(self):
        """Return the learner in double precision, rebuilt on first use."""
        cache = self._fitted.model.cache
        if "learner" not in cache:
            learner = self._rebuild()
            learner.model.double()
            never = torch.from_numpy(np.flatnonzero(self.n_observed_ == 0))
            for part in learner.inference.network.double().modules():
                if isinstance(part, RowNetwork):
                    part.always_missing(never)
            cache["learner"] = learner
        return cache["learner"]


def independent(table, rows):
    """Compute the mean log-likelihood of rows if columns were independent."""
    rates = _rates(table)
    ones, n_observed = _on(rows).sum(0), observed_counts(rows)
    total = xlogy(ones, rates) + xlog1py(n_observed - ones, -rates)
    return float(total.sum()) / rows.shape[0]


def _rows_to_check(rows):
    """Choose evenly spaced rows, by whose loss failures are noticed."""
    n = len(rows.start) - 1
    return torch.arange(0, n, -(-n // _CHECKED))
