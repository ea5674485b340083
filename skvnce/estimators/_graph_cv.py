"""Graph learners that choose the strength of their L1 penalty.

What a fitted graph can do is assigned from the learner, whose `fit` is another one.
"""

from skvnce.estimators._copula_graph import CopulaGraphLearner
from skvnce.estimators._graph import TruncatedGaussianGraphLearner
from skvnce.estimators._graph_search import GraphSearch


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
        Number of rounds of EM of the pilot fit and of all folds or subsamples.
    precision_, linear_, untruncated_mean_, log_scale_, edge_strengths_, \
edge_probabilities_, nodes_, feature_indices_, constants_, location_, ridge_, \
ridge_linear_, loss_curve_, change_, chain_autocorrelation_, largest_cut_, \
optimality_gap_, held_out_gain_, marginal_columns_, feature_ranges_, n_features_in_, \
feature_names_in_
        As in `TruncatedGaussianGraphLearner`, for the graph at `alpha_`.

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

    _learner_class = TruncatedGaussianGraphLearner
    _is_positive = _has_density = True
    score_samples = TruncatedGaussianGraphLearner.score_samples
    to_torch = TruncatedGaussianGraphLearner.to_torch
    _cell_model = TruncatedGaussianGraphLearner._cell_model
    _cells_of = TruncatedGaussianGraphLearner._cells_of
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
    alphas : int or array-like of shape (n_alphas,), default=20
        Number of values, at least 2, on a path from the smallest alpha that gives an
        empty graph down to a hundredth of it; or the values themselves.  See
        `CopulaGraphLearner`.
    selection : {"ebic", "cv", "cv-1se", "stability"}, default="ebic"
        - ``"ebic"``: the extended Bayesian information criterion of the edges, refitted
          without penalties.  It costs little and recovers edges best.  Of several
          alphas with the same edges the smallest is selected;
        - ``"cv"``: the cross-validated score of held-out rows (`score_samples`), given
          the edges of each alpha; it optimises prediction and gives denser graphs;
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
        The chosen strength: `CopulaGraphLearner` with this `alpha`, and the same other
        parameters and seed, learns the same graph.
    alphas_ : ndarray of shape (n_alphas,)
        Strengths along the path, in decreasing order.
    path_ : ndarray of shape (n_alphas, n_nodes, n_nodes)
        Signed associations along the path, ``-K_ij / sqrt(K_ii K_jj)``, zero on the
        diagonal; shrunk by the penalty, unlike `associations_`.
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
        Number of rounds of EM of all folds or subsamples.
    associations_, edge_strengths_, edge_probabilities_, precision_, mean_, \
covariance_, latent_nodes_, information_, nodes_, feature_indices_, constants_, \
categories_, loss_curve_, change_, optimality_gap_, held_out_gain_, \
marginal_columns_, feature_ranges_, n_features_in_, feature_names_in_
        As in `CopulaGraphLearner`, for the graph at `alpha_`.

    Notes
    -----
    The model is in arrays, not in a torch module.

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

    _learner_class = CopulaGraphLearner
    _takes_limits = _has_density = _has_new_rows = True
    _associations = CopulaGraphLearner._associations
    _edge_columns = CopulaGraphLearner._edge_columns
    _parameter_constraints = {
        **GraphSearch._parameter_constraints,
        "model": [CopulaGraphLearner, None],
    }
