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

    Attributes
    ----------
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

    Attributes
    ----------
    associations_, edge_strengths_, edge_probabilities_, precision_, mean_, \
covariance_, latent_nodes_, information_, nodes_, feature_indices_, constants_, \
categories_, loss_curve_, change_, optimality_gap_, held_out_gain_, \
marginal_columns_, feature_ranges_, n_features_in_, feature_names_in_
        As in `CopulaGraphLearner`, for the graph at `alpha_`.

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

    _learner_class = CopulaGraphLearner
    _takes_limits = _has_density = _has_new_rows = True
    _associations = CopulaGraphLearner._associations
    _edge_columns = CopulaGraphLearner._edge_columns
    _parameter_constraints = {
        **GraphSearch._parameter_constraints,
        "model": [CopulaGraphLearner, None],
    }
