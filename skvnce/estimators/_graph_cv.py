"""A sparse graph that chooses its L1 strength from a table with missing values."""

import warnings

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import check_cv

from skvnce._progress import step, steps, tell_round
from skvnce._random import seeded
from skvnce._warnings import warn_user
from skvnce.algorithms.graph import em, penalty_path
from skvnce.estimators import _graph_checks
from skvnce.estimators._callbacks import (
    counting_rounds,
    report_rounds,
    reports_fit,
    rounds_of_tuning,
)
from skvnce.estimators._graph import TruncatedGaussianGraphLearner
from skvnce.estimators._rounds import failures_named
from skvnce.estimators._validation import (
    check_choice,
    check_number,
    incomplete_array,
    keeps_state_on_failure,
)

_RATIO = 100  # ratio of the largest to the smallest alpha of an automatic path
_INSTABILITY = 0.1  # maximum instability that `selection="stability"` accepts
_SAME = 1e-9  # relative difference below which two criteria count as equal


def _learn_path(learner, data, alphas, on_round=tell_round):
    """Learn all edges, and solve the path for given alphas or a number of them."""
    problem = learner._pose(data)
    dense = learner._learn(problem, problem.start, 0.0, on_round)
    m_step, penalty = problem.method.m_step, problem.penalty(0.0)
    if np.ndim(alphas) == 0:
        with step("finding the largest alpha"):
            top = penalty_path.largest_alpha(m_step, dense, penalty)
        alphas = np.geomspace(top, top / _RATIO, alphas).tolist()
    return problem, dense, penalty_path.solve_path(m_step, dense, penalty, alphas)


def _fit_path(learner, data, alphas, seed):
    """Fit all alphas to validated rows."""
    with learner._threads(), seeded(seed):
        return _learn_path(learner, data, alphas)


def _fold_scores(learner, X, train, test, alphas, seed):
    """Compute the score of held-out rows for each alpha; (n_alphas,)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the final fit repeats relevant warnings
        data = learner._read(X[train])
        if not learner.feature_indices_.size:  # all columns are constant in these rows
            return [0.0] * len(alphas)
        problem, dense, path = _fit_path(learner, data, alphas, seed)
        learner._seed, scores = seed, []
        for theta in path.thetas:
            learner._keep(dense._replace(theta=theta), problem, data)
            scores.append(learner.score(X[test]))
    return scores


def _selected(learner, X, rows, alphas, seed):
    """Return which edges each alpha keeps; (n_alphas, n_features, n_features)."""
    d = X.shape[1]
    found = np.zeros((len(alphas), d, d), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = learner._read(X[rows])
        if not learner.feature_indices_.size:  # all columns are constant in these rows
            return found
        *_, path = _fit_path(learner, data, alphas, seed)
    places = np.ix_(learner.feature_indices_, learner.feature_indices_)
    for links, theta in zip(found, path.thetas, strict=True):
        links[places] = theta.precision.numpy() != 0
    return found


class TruncatedGaussianGraphLearnerCV(TruncatedGaussianGraphLearner):
    """`TruncatedGaussianGraphLearner` that chooses the strength of its L1 penalty.

    One fit without L1 penalty averages the statistics of the missing cells.  Then a
    path of penalties is solved on these statistics, from the sparsest graph to the
    densest, and a criterion selects one graph.

    Parameters
    ----------
    alphas : int or array-like of shape (n_alphas,), default=20
        Number of values, at least 2, on a path from the smallest alpha that gives an
        empty graph down to a hundredth of it; or the values themselves.  They refer to
        columns scaled to unit standard deviation.
    selection : {"ebic", "cv", "cv-1se", "stability"}, default="ebic"
        - ``"ebic"``: the extended Bayesian information criterion of the edges, refitted
          without penalties.  It costs almost nothing and recovers edges best.  Of
          several alphas with the same edges the smallest is selected;
        - ``"cv"``: the cross-validated score of held-out rows (`score_samples`), which
          optimises prediction and gives denser graphs;
        - ``"cv-1se"``: the sparsest graph within one standard error of the best score;
        - ``"stability"``: the densest graph whose edges change little between random
          halves of the rows (Liu, Roeder and Wasserman 2010).
    gamma : float, default=0.0
        Parameter of the extended criterion: 0 is the BIC, larger values give sparser
        graphs.
    cv : int or cross-validation splitter, default=5
        Splits of the rows; used by ``"cv"`` and ``"cv-1se"``.
    n_subsamples : int, default=20
        Number of random halves of the rows; used by ``"stability"``.
    n_jobs : int or None, default=None
        Number of folds or subsamples that joblib processes in parallel.
    algorithm, imputation, fit_linear, ridge, ridge_linear, noise_ratio, n_steps, \
max_iter, tol, on_misfit, keep_empty_features, random_state, verbose
        As in `TruncatedGaussianGraphLearner`.

    Attributes
    ----------
    alpha_ : float
        The chosen strength.
    alphas_ : ndarray of shape (n_alphas,)
        Strengths along the path, in decreasing order.
    path_ : ndarray of shape (n_alphas, n_nodes, n_nodes)
        Signed associations along the path, ``-K_ij / sqrt(K_ii K_jj)``, zero on the
        diagonal.
    cv_results_ : dict of ndarray of shape (n_alphas,)
        ``alpha``, ``n_edges`` and the criterion: ``ebic``; or ``mean_test_score``,
        ``std_test_score`` and ``split0_test_score`` ...; or ``instability``.  Use
        ``pandas.DataFrame(cv_results_)`` to get a table.  If all columns are constant,
        it contains only ``alpha`` and ``n_edges``; if they are constant in a fold, all
        scores of this fold are 0.
    edge_frequencies_ : ndarray of shape (n_nodes, n_nodes)
        Share of the subsamples that contain an edge at `alpha_`; only with
        ``selection="stability"``.
    n_iter_ : int
        Number of rounds of EM of the fit to all rows, which all alphas share.
    n_tuning_iter_ : int
        Number of rounds of EM of the pilot fit and of all folds or subsamples.
    precision_, linear_, edge_strengths_, edge_probabilities_, nodes_, ...
        As in `TruncatedGaussianGraphLearner`, for the graph at `alpha_`.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import TruncatedGaussianGraphLearnerCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.gamma(4.0, size=(300, 4))
    >>> X[:, 1] += X[:, 0]
    >>> X[rng.uniform(size=X.shape) < 0.2] = np.nan
    >>> learner = TruncatedGaussianGraphLearnerCV(random_state=0).fit(X)
    >>> learner.edges()[["source", "target"]]
      source target
    0     x0     x1
    """

    def __init__(
        self,
        alphas=20,
        *,
        selection="ebic",
        gamma=0.0,
        cv=5,
        n_subsamples=20,
        n_jobs=None,
        algorithm="score-matching",
        imputation="mean",
        fit_linear=True,
        ridge="auto",
        ridge_linear="auto",
        noise_ratio=10,
        n_steps=30,
        max_iter=100,
        tol=2e-3,
        on_misfit="warn",
        keep_empty_features=False,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            algorithm=algorithm,
            imputation=imputation,
            fit_linear=fit_linear,
            ridge=ridge,
            ridge_linear=ridge_linear,
            noise_ratio=noise_ratio,
            n_steps=n_steps,
            max_iter=max_iter,
            tol=tol,
            on_misfit=on_misfit,
            keep_empty_features=keep_empty_features,
            random_state=random_state,
            verbose=verbose,
        )
        del self.alpha  # it is chosen, not a parameter
        self.alphas = alphas
        self.selection = selection
        self.gamma = gamma
        self.cv = cv
        self.n_subsamples = n_subsamples
        self.n_jobs = n_jobs

    @keeps_state_on_failure
    @reports_fit
    def fit(self, X, y=None):
        """Solve the path, choose alpha, and set the attributes of its graph.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Non-negative; NaN marks missing cells.  Rows that are entirely missing are
            ignored.
        y : None
            Ignored.

        Returns
        -------
        self : TruncatedGaussianGraphLearnerCV

        Raises
        ------
        ValueError, TypeError
            As in `TruncatedGaussianGraphLearner`, and if there are fewer rows than
            folds.
        DivergenceError
            As in `TruncatedGaussianGraphLearner`.
        """
        alphas = self._check_parameters()
        data = self._read(X)
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        self.__dict__.pop("edge_frequencies_", None)  # of an earlier fit
        with failures_named(_graph_checks.remedy(self)):
            with self._threads(), seeded(self.random_state) as seed:
                if not self.feature_indices_.size:
                    found = None
                else:
                    found = _learn_path(self, data, alphas, on_round)
            if found is None:
                self._keep_empty_graph()
            else:
                self._choose(X, data, *found, seed)
        self._seed = seed
        finish()
        return self

    def _choose(self, X, data, problem, dense, path, seed):
        """Choose alpha by the criterion, and set the attributes of its graph."""
        self.n_tuning_iter_ = rounds_of_tuning()
        self.alphas_ = np.array(path.alphas)
        self.cv_results_ = {
            "alpha": self.alphas_.copy(),
            "n_edges": np.array([penalty_path.n_edges(theta) for theta in path.thetas]),
        }
        rows = incomplete_array(self, X, reset=False)[:, self.feature_indices_]
        best = _RULES[self.selection](self, problem, dense, path, rows, seed)
        self._warn_at_the_edge(best)
        self.alpha_ = path.alphas[best]
        self.path_ = np.array(
            [em.associations(theta.precision).numpy() for theta in path.thetas]
        )
        with self._threads():
            chosen = dense._replace(theta=path.thetas[best])
            penalty = problem.penalty(self.alpha_)
            fit = em.concluded(problem.method.m_step, chosen, penalty)
            self._keep(fit, problem, data)
            self._keep_probabilities(dense, problem)
            with seeded(seed):
                self._judge(problem, data, fit.theta)

    def _keep_empty_graph(self):
        """Set the attributes of a path of graphs without nodes."""
        super()._keep_empty_graph()
        alphas = [0.0] if np.ndim(self.alphas) == 0 else self._check_parameters()
        self.alphas_, self.alpha_ = np.array(alphas), alphas[0]
        self.path_ = np.zeros((len(alphas), 0, 0))
        counts = np.zeros(len(alphas), dtype=int)
        self.cv_results_ = {"alpha": self.alphas_.copy(), "n_edges": counts}
        if self.selection == "stability":
            self.edge_frequencies_ = np.zeros((0, 0))

    def _alpha(self):
        return float(self.alpha_)

    def _learner(self):
        """Make the learner that is fitted to folds and subsamples."""
        names = TruncatedGaussianGraphLearner().get_params()
        given = {name: getattr(self, name) for name in names if name != "alpha"}
        return TruncatedGaussianGraphLearner(**{**given, "verbose": 0})

    def _jobs(self, name, function, parts, X, seed):
        """Apply a function to parts of the rows, each with its own learner and seed.

        `name` is the name of the step.  Parts that run in other threads or processes
        do not report their steps.
        """
        seeds = np.random.default_rng(seed).integers(2**31 - 1, size=len(parts))
        learner = self._learner()
        results = Parallel(self.n_jobs, return_as="generator")(
            delayed(counting_rounds)(
                function, clone(learner), X, *part, self.alphas_.tolist(), int(s)
            )
            for part, s in zip(parts, seeds, strict=True)
        )
        found = []
        for _ in steps(name, parts, len(parts)):
            result, n_rounds = next(results)
            found.append(result)
            self.n_tuning_iter_ += n_rounds
        return found

    def _by_ebic(self, problem, dense, path, X, seed):
        with self._threads(), seeded(seed):
            known = penalty_path.evidence(
                problem.method.m_step,
                dense,
                problem.penalty(0.0),
                problem.units.centre,
                problem.data,
                fit_linear=self.fit_linear,
            )
            scores = [
                penalty_path.extended_bic(known, theta, self.gamma)
                for theta in path.thetas
            ]
        self.cv_results_["ebic"] = scores = np.array(scores)
        least = scores.min()
        # of alphas with the same edges, the one that shrinks them least
        return int(np.flatnonzero(scores <= least + _SAME * abs(least)).max())

    def _score_folds(self, X, seed, least):
        """Compute scores of held-out rows for all alphas; (n_splits, n_alphas)."""
        parts = list(check_cv(self.cv).split(X))
        if len(parts) < least:
            raise ValueError(
                f"cv gives {len(parts)} splits, and selection={self.selection!r} needs "
                f"at least {least}. (One fit exhausts a generator of splits: pass a "
                "list or a splitter.)"
            )
        scores = np.array(self._jobs("fold", _fold_scores, parts, X, seed))
        self.cv_results_["mean_test_score"] = scores.mean(0)
        self.cv_results_["std_test_score"] = scores.std(0)
        for fold, row in enumerate(scores):
            self.cv_results_[f"split{fold}_test_score"] = row
        return scores

    def _by_score(self, problem, dense, path, X, seed):
        return int(np.argmax(self._score_folds(X, seed, 1).mean(0)))

    def _by_one_error(self, problem, dense, path, X, seed):
        scores = self._score_folds(X, seed, 2)
        mean = scores.mean(0)
        best = np.argmax(mean)
        loss = scores[:, best, None] - scores  # paired by fold
        error = loss.std(0, ddof=1) / np.sqrt(len(scores))
        return int(np.argmax(mean + error >= mean[best]))

    def _by_stability(self, problem, dense, path, X, seed):
        rng = np.random.default_rng(seed)
        half = max(len(X) // 2, 2)
        parts = [
            (rng.choice(len(X), half, replace=False),) for _ in range(self.n_subsamples)
        ]
        found = np.mean(self._jobs("half", _selected, parts, X, seed), axis=0)
        upper = np.triu_indices(X.shape[1], 1)
        wobble = (2 * found * (1 - found))[:, *upper].mean(1) if len(upper[0]) else [0]
        instability = np.maximum.accumulate(np.broadcast_to(wobble, len(found)))
        self.cv_results_["instability"] = instability
        best = int(np.flatnonzero(instability <= _INSTABILITY).max(initial=0))
        if instability[0] > _INSTABILITY:
            warn_user(
                "No graph of the path is stable: even the sparsest changes too much "
                f"between halves of the rows (instability {instability[0]:.2f}, limit "
                f"{_INSTABILITY}). Choose by selection='ebic', or collect more rows.",
                UserWarning,
            )
        self.edge_frequencies_ = found[best]
        np.fill_diagonal(self.edge_frequencies_, 0)
        return best

    def _warn_at_the_edge(self, best):
        links, alpha = self.cv_results_["n_edges"][best], self.alphas_[best]
        d = len(self.feature_indices_)
        # nothing can be sparser than the empty graph, or denser than the complete one
        sparser = best == 0 and links > 0
        denser = best == len(self.alphas_) - 1 and alpha > 0 and 2 * links < d * (d - 1)
        if len(self.alphas_) > 1 and (sparser or denser):
            end = "largest" if sparser else "smallest"
            warn_user(
                f"selection={self.selection!r} chose the {end} alpha of the path, "
                f"{alpha:.3g} (number of edges: {links}). The best alpha may lie "
                "beyond: pass alphas with a wider range, or use another selection.",
                UserWarning,
            )

    def _check_parameters(self):
        """Check parameters; return the decreasing alphas, or the number of alphas."""
        super()._check_parameters()
        check_choice(self.selection, "selection", _RULES)
        check_number(self.gamma, "gamma", low=0)
        check_number(self.n_subsamples, "n_subsamples", low=2, integer=True)
        if np.ndim(self.alphas) == 0:
            check_number(self.alphas, "alphas", low=2, integer=True)
            return self.alphas
        alphas = np.asarray(self.alphas)
        if alphas.ndim != 1 or alphas.size == 0 or alphas.dtype.kind not in "iuf":
            raise ValueError(
                "alphas should be an integer, or a sequence of at least one number, "
                f"got {self.alphas!r}."
            )
        if not np.isfinite(alphas).all() or alphas.min() < 0:
            raise ValueError(
                f"alphas should be finite and not negative, got {self.alphas!r}."
            )
        return np.unique(alphas.astype(float))[::-1].tolist()


_RULES = {
    "ebic": TruncatedGaussianGraphLearnerCV._by_ebic,
    "cv": TruncatedGaussianGraphLearnerCV._by_score,
    "cv-1se": TruncatedGaussianGraphLearnerCV._by_one_error,
    "stability": TruncatedGaussianGraphLearnerCV._by_stability,
}
