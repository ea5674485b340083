"""Stability selection of graphs whose edges enter together; columns of `edges`."""

import re
import warnings

import numpy as np
import pytest

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV
from skvnce.graphs.cross_validation import _warn_if_empty

ALPHAS = np.geomspace(0.5, 0.08, 8)


def common_factor(n, d, seed):
    """Draw columns of which all pairs are edges of the same strength."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 0.8 * rng.normal(size=(n, 1))


def stable(X, alphas=ALPHAS, **options):
    learner = CopulaGraphLearnerCV(
        CopulaGraphLearner(on_misfit="ignore"),
        alphas=alphas,
        selection="stability",
        n_subsamples=6,
        random_state=0,
        **options,
    )
    return learner.fit(X)


@pytest.mark.parametrize("table", range(2))
def test_edges_that_enter_together_are_found(table):
    """The graph was empty: the next of the path varies, and denser ones do not."""
    learner = stable(common_factor(1000, 8, table))
    unstable = learner.cv_results_["instability"]
    best = list(learner.alphas_).index(learner.alpha_)
    assert unstable[1] > 0.1 >= unstable[best] and len(learner.edges()) == 28


def test_noise_has_no_dense_graph():
    """Nearly complete graphs of noise are stable too."""
    X = np.random.default_rng(0).normal(size=(150, 8))
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        learner = stable(X, np.r_[0.5, np.geomspace(0.1, 0.001, 7)])
    assert learner.cv_results_["instability"][-1] < 0.1
    assert learner.cv_results_["noise"][-1] > 0.5 and learner.edges().empty


def test_an_empty_graph_is_not_silent_and_the_remedy_helps():
    X = common_factor(150, 8, 0)
    with pytest.warns(UserWarning, match="chose the empty graph, although") as caught:
        learner = stable(X, 8)
    assert learner.edges().empty
    [message] = [str(one.message) for one in caught]
    inside = re.search(r"np\.geomspace\((.*)\)", message).group(1).split(", ")
    finer = np.geomspace(float(inside[0]), float(inside[1]), int(inside[2]))
    assert len(stable(X, finer).edges()) > 0


@pytest.mark.parametrize(
    ("n_frequent", "words"), [(1, "the same 1 edge at"), (2, "the same 2 edges at")]
)
def test_one_edge_is_not_many(n_frequent, words):
    results = {"instability": [0.0, 0.2]}
    with pytest.warns(UserWarning, match=words):
        _warn_if_empty(results, [0.2, 0.1], 0, n_frequent)


def test_the_table_of_edges_has_frequencies_and_probabilities():
    learner = stable(common_factor(300, 4, 0), [0.3, 0.2])
    table = learner.edges()
    assert list(table)[3:] == ["probability", "frequency"] and not table.empty
    for row in table.itertuples():
        i, j = (learner.nodes_.tolist().index(end) for end in (row.source, row.target))
        assert row.probability == learner.edge_probabilities_[i, j]
        assert row.frequency == learner.edge_frequencies_[i, j]
    one = learner.to_networkx().edges[table["source"][0], table["target"][0]]
    assert set(one) == {"weight", "probability", "frequency"}
    learner.set_params(selection="ebic", alphas=5, n_subsamples=20)
    learner.fit(common_factor(300, 4, 0))
    assert list(learner.edges())[3:] == ["probability"]
