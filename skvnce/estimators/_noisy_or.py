"""Noisy-OR: a transformer of sparse binary tables into probabilities of causes."""

from copy import deepcopy
from numbers import Real

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skvnce._arguments import check_count
from skvnce._keyed import row_lattice
from skvnce._memory import check_fit
from skvnce._progress import step
from skvnce._random import seed_from
from skvnce.algorithms import noisy_or
from skvnce.estimators._binary_tables import STARTS, binary_table, fingerprints
from skvnce.estimators._callbacks import report_rounds, reports_fit, shows_progress
from skvnce.estimators._missing_table import names_table
from skvnce.estimators._noisy_or_training import CauseLearner, arrays_of
from skvnce.estimators._options import Adam, check_parameters
from skvnce.estimators._tables_in_parts import by_parts
from skvnce.estimators._validation import (
    AUTO,
    RANDOM_STATE,
    Number,
    check_sizes,
    integer_from,
    latent_array,
)

_LARGEST_ALPHA = 1e9  # squares of gradients must be finite in single precision
_N_SCORED = 100  # number of draws of the causes in score_samples


class NoisyOr(ClassNamePrefixFeaturesOutMixin, CauseLearner):
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
        Number of observed cells of each column, counted once in `fit`, and again in
        each call of `partial_fit`.
    model_state_, posterior_state_ : dict of str to ndarray
        Parameters of the model and of the inference network.
    optimizer_state_ : dict of str to ndarray
        State of Adam, from which `partial_fit` continues.
    n_updates_ : int
        Number of steps of Adam.
    n_iter_ : int
        Number of passes of the last `fit`, plus the calls of `partial_fit` since then.
    n_samples_seen_ : int
        Number of rows with observed cells, counted as `n_observed_`.
    loss_curve_ : list of float
        Mean negative lower bound in each pass, in nats a row, estimated by relaxed
        draws if the method uses them, plus the penalty.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

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
        "n_components": [integer_from(1)],
        "algorithm": [StrOptions(set(noisy_or.INFERENCES))],
        "binarize": [None, Number(Real, None, None, closed="neither")],
        "alpha": [Number(Real, 0, _LARGEST_ALPHA, closed="both")],
        "init": [StrOptions(set(STARTS))],
        "hidden_layer_sizes": ["array-like"],
        "n_training_draws": [integer_from(1)],
        "solver": [AUTO, Adam],
        "max_iter": [integer_from(1)],
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components=10,
        *,
        algorithm="acp",
        binarize=0.0,
        alpha=1.0,
        init="nmf",
        hidden_layer_sizes=(64,),
        n_training_draws=10,
        solver="auto",
        max_iter=100,
        random_state=None,
        verbose=0,
    ):
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

    @names_table
    def fit(self, X, y=None):
        """Learn the causes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Cells above `binarize` count as ones, others as zeros; NaN marks missing
            cells.  Rows that are entirely missing are ignored.
        y : None
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
        return self._set(self._new()._fit(X))

    @reports_fit
    def _fit(self, X):
        """Do what `fit` does, on a copy that has no other user."""
        self._check_parameters()
        table = binary_table(self, X, reset=True)
        # memory grows with the cells that are stored
        check_fit(type(self), (table.nnz / table.shape[1], table.shape[1]))
        self._reset()
        table = self._observed(table)
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        with self._training():
            learner = self._started(table)
            losses = noisy_or.learn(
                learner,
                self._placed(learner, table),
                # the loss is a mean over rows, and the prior counts once for all of
                # them
                penalty=self.alpha / self._n_rows,
                batch_size=self._rows_of_step(table),
                learning_rate=self._solver()["learning_rate_init"],
                max_iter=self.max_iter,
                on_epoch=lambda n, loss: on_round(n, loss, np.nan),
            )
        self._keep(learner, losses, table)
        finish()
        return self

    @names_table
    def partial_fit(self, X, y=None):
        """Go on learning from more rows.

        Each call is one pass over its rows, of which none is kept.  The first call, or
        `fit`, initialises the model from its rows; it should have some hundred rows,
        with ones in each column, because a column that first occurs later is learned
        slowly.  All calls use a constant learning rate; the first call after `fit`
        restarts Adam.  The prior counts once for all rows so far; a table that is
        passed again, in any order of its rows, counts as the same rows.  Rows that are
        entirely missing are ignored.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Cells above `binarize` count as ones, others as zeros; NaN marks missing
            cells.
        y : None
            Ignored.

        Returns
        -------
        self : NoisyOr

        Raises
        ------
        ValueError, TypeError
            As in `fit`; ValueError also if the number of columns changed, or if a
            parameter changed that the model was built with.
        """
        return self._set(self._copy()._partial_fit(X))

    @shows_progress
    def _partial_fit(self, X):
        """Do what `partial_fit` does, on a copy that has no other user."""
        self._check_parameters()
        first = not hasattr(self, "model_state_")
        table = binary_table(self, X, reset=first)
        if first:
            self._reset()
        else:
            self._check_made_with()
        table = self._observed(table)
        with self._training():
            learner = self._started(table) if first else self._rebuilt()
            rows = self._placed(learner, table)
            adam = self._optimizer(learner)
            with step("learning from the rows"):
                loss = noisy_or.learn_once(
                    learner,
                    rows,
                    adam,
                    penalty=self.alpha / self._n_rows,
                    batch_size=self._rows_of_step(table),
                )
        self.optimizer_state_ = arrays_of(adam)
        self._keep(learner, [loss], table)
        return self

    @by_parts
    @shows_progress
    def transform(self, X):
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
        found = self._rowwise(table, 1, lambda _, logit, part: logit.sigmoid())
        return found.astype(table.dtype)

    @by_parts
    @shows_progress
    def score_samples(self, X, return_std=False):
        """Estimate the evidence lower bound of each row, in nats.

        The estimate is a mean over 100 draws of the causes, with random numbers that
        are functions of the row.  Up to its error it is at most the log-probability of
        the observed cells.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Cells above `binarize` count as ones, others as zeros; NaN marks missing
            cells.
        return_std : bool, default=False
            Whether to also return standard errors, estimated from the variance of the
            draws.

        Returns
        -------
        bound : ndarray of shape (n_samples,)
        std : ndarray of shape (n_samples,)
            Standard errors; only if `return_std` is True.
        """

        def scored(evidence, logit, part):
            like = logit.expand(_N_SCORED, *logit.shape)
            uniform = row_lattice(fingerprints(part), 0)(0, like)
            return noisy_or.scored(evidence, logit, uniform)

        bound, error = self._rowwise(self._checked(X), _N_SCORED, scored).T
        return (bound, error) if return_std else bound

    def inverse_transform(self, Z):
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
        Z = latent_array(Z, self.n_components_)
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

    def to_torch(self):
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
        return deepcopy(self._evaluated().model).cpu().requires_grad_(False)

    def top_terms(self, n_terms=10, feature_names=None):
        """List the columns that each cause turns on with the highest probabilities.

        Parameters
        ----------
        n_terms : int, default=10
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
        check_parameters(self)
        check_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        self._solver()
