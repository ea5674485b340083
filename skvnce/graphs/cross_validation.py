"""The search for the L1 strength of a graph learner on a table with missing values."""

import warnings
from inspect import cleandoc
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import StrOptions

from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import rounds_of_tuning, steps
from skvnce._core.random import seeded
from skvnce._core.warnings import warn_user
from skvnce._imputer import callbacks, validation
from skvnce._imputer.base import TrainingTable
from skvnce._imputer.fill import score
from skvnce._imputer.fitted import Fitted
from skvnce._tables.schema import Schema
from skvnce._types import Seed, TableLike
from skvnce.graphs.copula_estimator import CopulaGraphLearner
from skvnce.graphs.em import Fit, Path, learn_path, n_links
from skvnce.graphs.estimator import TruncatedGaussianGraphLearner
from skvnce.graphs.learner import GraphEstimator

# ----------------------------------------
# Paths of penalties that are fitted to parts of the rows.


class Resample(NamedTuple):
    """Paths of penalties that the methods of a learner fit to parts of the rows."""

    learner: BaseEstimator  # its parameters are used
    schema: Schema  # of the rows, as they have been read
    rows: np.ndarray  # (n_samples, n_features), validated
    alphas: list

    def scores(self, train, test, seed):
        """Compute the score of held-out rows for each alpha; (n_alphas,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the final fit repeats relevant warnings
            schema, data = self._read(train)
            if not len(schema.model_columns):  # all are constant in these rows
                # a model without columns has log-density 0
                return [0.0] * len(self.alphas)
            problem, first, path = self._path(schema, data, seed)
            fits = [
                first._replace(theta=problem.estimate(first, theta))
                for theta in path.thetas
            ]
            rows = self.rows[test]
            return [self._score(schema, fit, problem, data, rows) for fit in fits]

    def edges(self, rows, seed):
        """Return which edges each alpha keeps; (n_alphas, n_features, n_features)."""
        d = self.rows.shape[1]
        edges = np.zeros((len(self.alphas), d, d), dtype=bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schema, data = self._read(rows)
            if not len(schema.model_columns):  # all are constant in these rows
                return edges
            problem, _, path = self._path(schema, data, seed)
        places = np.ix_(schema.model_columns, schema.model_columns)
        for links, theta in zip(edges, path.thetas, strict=True):
            links[places] = problem.method.family.strengths(theta).numpy() != 0
        return edges

    def _read(self, rows):
        """Choose the columns of the model by some rows."""
        table = self.learner._training_table(self.schema, self.rows[rows])
        return table.schema, Incomplete.from_array(table.cells.nodes)

    def _score(self, schema, fit, problem, data, rows):
        """Score rows by a fit."""
        learner = self.learner
        model = learner._model_of(schema, fit, problem, data)
        with learner._threads(schema):
            return float(score(schema, model, rows)[0].mean())

    def _path(self, schema, data, seed):
        """Fit all alphas to rows."""
        learner = self.learner
        with learner._threads(schema), seeded(seed):
            problem = learner._problem(schema, data)
            return problem, *learn_path(problem, self.alphas, **learner._stopping(data))


# ----------------------------------------
# The choice among graphs by how much their edges vary between random halves of rows.
#
# The instability of a graph is the mean over pairs of ``2 f (1 - f)``, where f is the
# share of halves that find the edge (Liu, Roeder and Wasserman 2010, Stability
# approach to regularization selection).  As the penalty decreases, it exceeds a limit
# for the first time where edges enter that not all halves find.  These authors stop
# there, because graphs of noise become stable again only where they have nearly all
# edges.  If most pairs are edges of about the same strength, however, they enter
# together, and the sparse graphs vary, while denser ones hold the same edges in all
# halves.  So a denser stable graph is accepted as long as its penalty leaves rows
# without any dependence (columns permuted, each on its own) nearly without edges.

LIMIT = 0.1  # instability of an accepted graph
_NOISE = 0.05  # share of edges without dependence of an accepted denser graph
_FREQUENT = 0.9  # share of halves that find an edge: an empty graph misses none


def instability(frequencies: np.ndarray) -> np.ndarray:
    """Compute the instability of each graph; (n_graphs, n_pairs) -> (n_graphs,)."""
    each = 2 * frequencies * (1 - frequencies)
    return each.mean(1) if each.shape[1] else np.zeros(len(each))


def noise_share(edges: np.ndarray) -> np.ndarray:
    """Compute the largest share of noise edges at this or a larger penalty."""
    share = edges.mean(1) if edges.shape[1] else np.zeros(len(edges))
    return np.maximum.accumulate(share)


def densest_stable(unstable: np.ndarray, noise: np.ndarray) -> int:
    """Return the place of the densest graph that is accepted, 0 if there is none."""
    stable = unstable <= LIMIT
    first = np.logical_and.accumulate(stable)
    return int(np.flatnonzero(stable & (first | (noise <= _NOISE))).max(initial=0))


def count_frequent(frequencies: np.ndarray, noise: np.ndarray) -> int:
    """Count pairs that most halves link where noise is nearly without edges."""
    often = frequencies[noise <= _NOISE] >= _FREQUENT
    return int(often.any(0).sum())


def permuted(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Permute each column on its own, and drop rows that are then entirely missing."""
    shuffled = rng.permuted(rows, axis=0)
    return shuffled[~np.isnan(shuffled).all(1)]


_SAME = 1e-9  # relative difference below which two criteria count as equal


_ATTRIBUTES = "\n\nAttributes\n----------\n"  # the line that begins the section


def with_entries(doc, base):
    """Add the parameters and attributes of a base class to a docstring."""
    doc, base = cleandoc(doc), cleandoc(base)
    parameters, attributes = base.split("----------\n", 1)[1].split(_ATTRIBUTES)
    return doc.replace(_ATTRIBUTES, f"\n{parameters}{_ATTRIBUTES}{attributes}\n")


class Search(NamedTuple):
    """A path of penalties on all rows, from which a rule chooses."""

    learner: BaseEstimator
    table: TrainingTable
    problem: NamedTuple  # of `problem` or `copula`
    first: Fit
    path: Path
    rows: np.ndarray  # (n_samples, n_features), validated
    seed: int
    report: dict  # attributes of the path, to which rules add theirs


class GraphSearch(GraphEstimator):
    """Base class of graph learners that choose the strength of their L1 penalty.

    Subclasses set `_parts` and what a fitted graph of that class can do.  Their
    docstrings get the parameters and attributes of this one.

    Parameters
    ----------
    alphas : int or array-like of shape (n_alphas,), default=20
        Number of values, at least 2, on a path from the smallest alpha that gives an
        empty graph down to a hundredth of it; or the values themselves, in the unit of
        `alpha` of the learner.
    selection : {"ebic", "cv", "cv-1se", "stability"}, default="ebic"
        - ``"ebic"``: the extended Bayesian information criterion of the edges, refitted
          without penalties.  It costs little and recovers edges best.  Of several
          alphas with the same edges the smallest is selected;
        - ``"cv"``: the cross-validated score of held-out rows (`score_samples`), which
          optimises prediction and gives denser graphs;
        - ``"cv-1se"``: the sparsest graph within one standard error of the best score;
        - ``"stability"``: the densest graph whose edges change little between random
          halves of the rows (Liu, Roeder and Wasserman 2010).  Beyond sparser graphs
          that change more, as if all edges enter together, its alpha has to leave
          columns without dependence nearly without edges.
    gamma : float, default=0.0
        Parameter of the extended criterion: 0 is the BIC, larger values give sparser
        graphs.
    cv : int or cross-validation splitter, default=5
        Splits of the rows; used by ``"cv"`` and ``"cv-1se"``.
    n_subsamples : int, default=20
        Number of random halves of the rows; used by ``"stability"``.
    n_jobs : int or None, default=None
        Number of folds or subsamples that joblib processes in parallel.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of all draws.  The global streams of numpy and torch are not changed.
    verbose : int, default=0
        If 1, print a line for each round, and for each other step of `fit`,
        `transform`, `sample` and `score_samples` that takes longer than a second.  If
        2, print all steps.

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
        ``std_test_score`` and ``split0_test_score`` ...; or ``instability``, the mean
        of ``2 f (1 - f)`` over pairs that a share f of the halves links, and ``noise``,
        the share of pairs that half of the rows link after each column is permuted.
        Use ``pandas.DataFrame(cv_results_)`` to get a table.  If all columns are
        constant, it contains only ``alpha`` and ``n_edges``; if they are constant in a
        fold, all scores of this fold are 0.
    edge_frequencies_ : ndarray of shape (n_nodes, n_nodes)
        Share of the subsamples that contain an edge at `alpha_`; only with
        ``selection="stability"``.
    n_iter_ : int
        Number of rounds of EM of the fit to all rows, which all alphas share.
    n_tuning_iter_ : int
        Number of rounds of EM of the pilot fit, if there is one, and of all folds or
        subsamples.
    """

    _parameter_constraints = {
        "alphas": [validation.integer_from(2), "array-like"],
        "selection": [StrOptions({"ebic", "cv", "cv-1se", "stability"})],
        "gamma": [validation.Number(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "n_subsamples": [validation.integer_from(2)],
        "n_jobs": validation.N_JOBS,
        "random_state": validation.RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model: Any = None,
        *,
        alphas: ArrayLike = 20,
        selection: Literal["ebic", "cv", "cv-1se", "stability"] = "ebic",
        gamma: float = 0.0,
        cv: Any = 5,
        n_subsamples: int = 20,
        n_jobs: int | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.alphas = alphas
        self.selection = selection
        self.gamma = gamma
        self.cv = cv
        self.n_subsamples = n_subsamples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __init_subclass__(cls, **kwargs):
        """Add the parameters and attributes that all searches have to the docstring."""
        super().__init_subclass__(**kwargs)
        if cls.__doc__ and GraphSearch.__doc__:  # python -OO removes them
            cls.__doc__ = with_entries(cls.__doc__, GraphSearch.__doc__)

    @callbacks.reports_fit
    def fit(self, X: TableLike, y: object = None) -> Self:
        """Solve the path, choose alpha, and set the attributes of its graph.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As the learner takes it; NaN marks missing cells.  Rows that are entirely
            missing are ignored.
        y : None, default=None
            Ignored.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError, TypeError
            As in the learner, and if there are fewer rows than folds.
        DivergenceError
            As in the learner.
        """
        alphas = self._check_parameters()
        learner = clone(self._settings())
        # the search itself reports its steps
        learner.set_params(random_state=self.random_state, verbose=0)
        validation.warn_of_unused(learner, learner._without_effect())
        X, schema = self._validated(X)
        table = learner._training_table(schema, X)
        schema, data = table.schema, Incomplete.from_array(table.cells.nodes)
        on_round, finish = callbacks.report_rounds(self, learner.max_iter, X=X)
        with callbacks.failures_named(learner._remedy()):
            if len(schema.model_columns):
                with learner._threads(schema), seeded(self.random_state) as seed:
                    problem = learner._problem(schema, data)
                    stopping = learner._stopping(data)
                    path = learn_path(problem, alphas, on_round=on_round, **stopping)
                report = _report_of_path(problem, path[1])
                search = Search(learner, table, problem, *path, X, seed, report)
                fitted = self._choose(search)
            else:
                fitted = self._empty_path(learner._empty_graph(schema), alphas)
        finish()
        return self._publish(fitted)

    def _settings(self):
        return self._parts["model"](None) if self.model is None else self.model

    def _without_effect(self):
        """Return why parameters have no effect, by name."""
        selections = {
            "gamma": ["ebic"],
            "cv": ["cv", "cv-1se"],
            "n_subsamples": ["stability"],
        }
        reason = f"selection={self.selection!r} does not use it; it is for"
        return {
            name: f"{reason} {' and '.join(map(repr, users))}"
            for name, users in selections.items()
            if self.selection not in users
        }

    def _choose(self, search):
        """Choose alpha by the criterion; returns `Fitted` of this graph."""
        learner, table, problem, first, path, _, seed, report = search
        best = _RULES[self.selection](self, search)
        self._warn_at_the_edge(search, best)
        report["alpha_"] = alpha = path.alphas[best]
        learner.set_params(alpha=alpha)
        data = Incomplete.from_array(table.cells.nodes)
        with learner._threads(table.schema):
            fit = problem.choose(first, path.thetas[best], alpha)
            # more precise than the path
            chosen = problem.method.family.strengths(fit.theta)
            report["path_"][best] = chosen.numpy()
            report["cv_results_"]["n_edges"][best] = n_links(chosen)
            model, learned = learner._learned(table.schema, fit, problem, data)
            learned |= learner._probabilities(first, problem)
            with seeded(seed):
                schema, checked = learner._check_predictions(
                    table, problem, fit.theta, learned, "alphas"
                )
        return Fitted(schema, model, learned | checked.report() | report)

    def _empty_path(self, fitted, alphas):
        """Add a path of graphs without nodes to a graph without nodes."""
        alphas = [0.0] if isinstance(alphas, int) else alphas
        counts = np.zeros(len(alphas), dtype=int)
        report = {
            "alphas_": np.array(alphas),
            "alpha_": alphas[0],
            "path_": np.zeros((len(alphas), 0, 0)),
            "cv_results_": {"alpha": np.array(alphas), "n_edges": counts},
        }
        if self.selection == "stability":
            report["edge_frequencies_"] = np.zeros((0, 0))
        return fitted._replace(report=fitted.report | report)

    def _jobs(self, name, function, parts, search):
        """Apply a function to parts of the rows, each with its own learner and seed."""
        rng = np.random.default_rng(search.seed)
        seeds = rng.integers(2**31 - 1, size=len(parts))
        schema = search.table.schema.as_read
        resample = Resample(search.learner, schema, search.rows, search.path.alphas)
        # a generator, so that parts are reported when they end
        results = Parallel(self.n_jobs, return_as="generator")(
            delayed(callbacks.count_rounds)(function, resample, *part, int(s))
            for part, s in zip(parts, seeds, strict=True)
        )
        values = []
        for _ in steps(name, parts, len(parts)):
            result, n_rounds = next(results)
            values.append(result)
            search.report["n_tuning_iter_"] += n_rounds
        return values

    def _by_ebic(self, search):
        with search.learner._threads(search.table.schema), seeded(search.seed):
            criterion = search.problem.criterion(search.first)
            scores = [criterion(theta, self.gamma) for theta in search.path.thetas]
        search.report["cv_results_"]["ebic"] = scores = np.array(scores)
        least = scores.min()
        # of alphas with the same edges, the one that shrinks them least
        return int(np.flatnonzero(scores <= least + _SAME * abs(least)).max())

    def _score_folds(self, search, least):
        """Compute scores of held-out rows for all alphas; (n_splits, n_alphas)."""
        parts = list(check_cv(self.cv).split(search.rows))
        if len(parts) < least:
            raise ValueError(
                f"cv gives {len(parts)} splits, and selection={self.selection!r} needs "
                f"at least {least}. (One fit exhausts a generator of splits: pass a "
                "list or a splitter.)"
            )
        scores = np.array(self._jobs("fold", Resample.scores, parts, search))
        results = search.report["cv_results_"]
        results["mean_test_score"] = scores.mean(0)
        results["std_test_score"] = scores.std(0)
        for fold, row in enumerate(scores):
            results[f"split{fold}_test_score"] = row
        return scores

    def _by_score(self, search):
        return int(np.argmax(self._score_folds(search, 1).mean(0)))

    def _by_one_error(self, search):
        scores = self._score_folds(search, 2)
        mean = scores.mean(0)
        # the first of equal ones, which is the sparsest
        best = np.argmax(mean)
        loss = scores[:, best, None] - scores  # paired by fold
        error = loss.std(0, ddof=1) / np.sqrt(len(scores))
        # the first one has the largest alpha, and so the fewest edges
        return int(np.argmax(mean + error >= mean[best]))

    def _by_stability(self, search):
        frequencies, noise = self._frequencies(search)
        upper = np.triu_indices(frequencies.shape[1], 1)
        pairs, noise = frequencies[:, *upper], noise_share(noise[:, *upper])
        unstable = instability(pairs)
        results = search.report["cv_results_"]
        results |= {"instability": unstable, "noise": noise}
        best = densest_stable(unstable, noise)
        search.report["edge_frequencies_"] = frequencies[best]
        np.fill_diagonal(frequencies[best], 0)
        if unstable[best] > LIMIT:
            warn_user(
                "No graph of the path is stable: even the sparsest changes too much "
                f"between halves of the rows (instability {unstable[0]:.2f}, limit "
                f"{LIMIT}). Choose by selection='ebic', or collect more "
                "rows.",
                UserWarning,
            )
        elif not results["n_edges"][best]:
            n_frequent = count_frequent(pairs, noise)
            _warn_if_empty(results, search.path.alphas, best, n_frequent)
        return best

    def _frequencies(self, search):
        """Find how often halves of the rows link pairs, and which noise links.

        Both are of shape (n_alphas, n_nodes, n_nodes).
        """
        rng, X = np.random.default_rng(search.seed), search.rows
        half = max(len(X) // 2, 2)
        parts = [
            (rng.choice(len(X), half, replace=False),) for _ in range(self.n_subsamples)
        ]
        noise = permuted(X[parts[0]], rng)
        parts.append((np.arange(len(X), len(X) + len(noise)),))
        rows = search._replace(rows=np.concatenate([X, noise]))
        nodes = search.table.schema.model_columns
        links = np.array(self._jobs("half", Resample.edges, parts, rows))
        links = links[:, :, *np.ix_(nodes, nodes)]
        return links[:-1].mean(0), links[-1]

    def _warn_at_the_edge(self, search, best):
        alphas, d = search.path.alphas, len(search.table.schema.model_columns)
        links, alpha = search.report["cv_results_"]["n_edges"][best], alphas[best]
        # nothing can be sparser than the empty graph, or denser than the complete one
        sparser = best == 0 and links > 0
        denser = best == len(alphas) - 1 and alpha > 0 and 2 * links < d * (d - 1)
        if len(alphas) > 1 and (sparser or denser):
            end = "largest" if sparser else "smallest"
            warn_user(
                f"selection={self.selection!r} chose the {end} alpha of the path, "
                f"{alpha:.3g} (number of edges: {links}). The best alpha may lie "
                f"beyond: {self._wider_path(alphas, sparser)}",
                UserWarning,
            )

    def _wider_path(self, alphas, sparser):
        """Say what to do if the chosen alpha is at an end of the path."""
        first, last = alphas[0], alphas[-1]
        if sparser:
            return (
                "pass an integer as alphas, for a path that begins with the empty "
                f"graph, or values above {first:.3g}."
            )
        wider = f"alphas=[*np.geomspace({first:.3g}, {last / 100:.3g}, 30), 0]"
        advice = f"pass smaller values as well, {wider}, where 0 is no L1 penalty"
        if self.selection in ("cv", "cv-1se"):
            advice += (
                ". The score rates predictions, and may be best with all edges: to "
                "find edges, set selection='ebic'"
            )
        return advice + "."

    def _check_parameters(self):
        """Check parameters; return the decreasing alphas, or the number of alphas."""
        super()._check_parameters()
        self._settings()._check_parameters()
        if isinstance(self.alphas, Integral):
            return int(self.alphas)
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


def _warn_if_empty(results, alphas, best, n_frequent):
    """Warn about an empty graph if halves of the rows agree on some edges."""
    if n_frequent and best + 1 < len(alphas):
        alpha, denser = alphas[best], alphas[best + 1]
        warn_user(
            "selection='stability' chose the empty graph, although at least nine "
            f"in ten halves find the same {n_frequent} edge{'s'[: n_frequent - 1]} "
            "at smaller alphas: other edges enter there and vary between halves "
            f"(instability {results['instability'][best + 1]:.2f} at "
            f"alpha={denser:.3g}, limit {LIMIT}). Choose by "
            "selection='ebic', read edge_probabilities_, or pass alphas in "
            f"between, alphas=np.geomspace({alpha:.3g}, {denser:.3g}, 10).",
            UserWarning,
        )


def _report_of_path(problem, path):
    """List the attributes of a path of penalties."""
    strengths = [problem.method.family.strengths(theta) for theta in path.thetas]
    counts, alphas = np.array([n_links(graph) for graph in strengths]), path.alphas
    return {
        "n_tuning_iter_": rounds_of_tuning(),
        "alphas_": np.array(alphas),
        "path_": np.array([graph.numpy() for graph in strengths]),
        "cv_results_": {"alpha": np.array(alphas), "n_edges": counts},
    }


_RULES = {
    "ebic": GraphSearch._by_ebic,
    "cv": GraphSearch._by_score,
    "cv-1se": GraphSearch._by_one_error,
    "stability": GraphSearch._by_stability,
}


# ----------------------------------------
# Graph learners that choose the strength of their L1 penalty.
#
# What a fitted graph can do is assigned from the learner, whose `fit` is another one.


class TruncatedGaussianGraphLearnerCV(GraphSearch):
    """`TruncatedGaussianGraphLearner` that chooses the strength of its L1 penalty.

    One fit without L1 penalty averages the statistics of the missing cells.  Then a
    path of penalties is solved on these statistics, from the sparsest graph to the
    densest, and a criterion selects one graph.

    Parameters
    ----------
    model : TruncatedGaussianGraphLearner or None, default=None
        The learner whose `alpha` is chosen.  It is cloned, and its `alpha`,
        `random_state` and `verbose` are not used; its `on_misfit` is.  None is a
        learner with the default parameters.  Warnings and errors name its parameters,
        such as ``max_iter`` for ``model__max_iter``.

    Attributes
    ----------
    precision_, linear_, untruncated_mean_, log_scale_, edge_strengths_, \
edge_probabilities_, nodes_, feature_indices_, constants_, location_, ridge_, \
ridge_linear_, loss_curve_, change_, chain_autocorrelation_, largest_cut_, \
optimality_gap_, held_out_gain_, marginal_columns_, feature_ranges_, n_features_in_, \
feature_names_in_
        As in `TruncatedGaussianGraphLearner`, for the graph at `alpha_`.

    See Also
    --------
    TruncatedGaussianGraphLearner : With a penalty of your choice.
    CopulaGraphLearnerCV : For columns of any kind.

    Notes
    -----
    Columns are numbers, and have no probabilities of levels.

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

    _parts = {"model": lambda _: TruncatedGaussianGraphLearner()}
    _is_positive = _has_density = True
    to_torch = TruncatedGaussianGraphLearner.to_torch
    _associations = TruncatedGaussianGraphLearner._associations
    _edge_columns = TruncatedGaussianGraphLearner._edge_columns
    _threads = TruncatedGaussianGraphLearner._threads
    _parameter_constraints = {
        **GraphSearch._parameter_constraints,
        "model": [TruncatedGaussianGraphLearner, None],
    }


class CopulaGraphLearnerCV(GraphSearch):
    """`CopulaGraphLearner` that chooses the strength of its L1 penalty.

    One run of EM estimates the moments of the latent variables.  Then a path of
    penalties is solved on these moments, from the sparsest graph to the densest, and a
    criterion selects one graph, to which the model is fitted without a penalty.

    Parameters
    ----------
    model : CopulaGraphLearner or None, default=None
        The learner whose `alpha` is chosen.  It is cloned, and its `alpha`,
        `random_state` and `verbose` are not used; its `on_misfit` is.  None is a
        learner with the default parameters.  Warnings and errors name its parameters,
        such as ``max_iter`` for ``model__max_iter``.

    Attributes
    ----------
    associations_, edge_strengths_, edge_probabilities_, precision_, mean_, \
covariance_, latent_nodes_, information_, nodes_, feature_indices_, constants_, \
categories_, loss_curve_, change_, optimality_gap_, held_out_gain_, \
marginal_columns_, feature_ranges_, n_features_in_, feature_names_in_
        As in `CopulaGraphLearner`, for the graph at `alpha_`.

    See Also
    --------
    CopulaGraphLearner : With a penalty of your choice.
    TruncatedGaussianGraphLearnerCV : For non-negative columns.

    Notes
    -----
    `CopulaGraphLearner` with the `alpha` that is chosen, and the same other parameters
    and seed, learns the same graph.  The penalty shrinks `path_`, unlike
    `associations_`, and the scores of ``"cv"`` are given the edges of each alpha.  The
    model is in arrays, not in a torch module.

    Examples
    --------
    >>> from skvnce import CopulaGraphLearnerCV
    >>> from skvnce.datasets import load_nhanes
    >>> df = load_nhanes(as_frame=True, categories=True).data
    >>> df = df[["Gender", "Height", "Age", "Pulse"]][::10]
    >>> learner = CopulaGraphLearnerCV(random_state=0).fit(df)
    >>> learner.edges()[["source", "target"]].head(1)
       source  target
    0  Gender  Height
    """

    _parts = {"model": lambda _: CopulaGraphLearner()}
    _takes_limits = _has_density = _has_new_rows = True
    _parameter_constraints = {
        **GraphSearch._parameter_constraints,
        "model": [CopulaGraphLearner, None],
    }
