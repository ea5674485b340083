"""Scores of edges of truncated Gaussians, and their probabilities in small tables."""

import numpy as np
import pytest
import torch
from statistical import FAILURE, p_share

from skvnce import TruncatedGaussianGraphLearner, TruncatedGaussianGraphLearnerCV
from skvnce.graphs import score_matching
from skvnce.graphs.em import Penalty, Theta, minimise_quadratic, off_diagonal
from skvnce.graphs.score_matching import regressions


def positive(n, d, rng, missing=0.0):
    """Draw independent columns, of which the second is the sum of two."""
    X = np.abs(rng.normal(size=(n, d)))
    X[:, 1] += X[:, 0]
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X[~np.isnan(X).all(1)]


def learned(X, alpha=0.1, **options):
    options = {"on_misfit": "ignore", "random_state": 0} | options
    return TruncatedGaussianGraphLearner(alpha, **options).fit(X)


@pytest.mark.quick
@pytest.mark.parametrize("d", [2, 3, 5, 8])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_an_edge_of_few_columns_is_certain(d, missing, seed):
    """Its probability was 0 in 20 tables of 20 with two columns, 17 of 20 with five."""
    X = positive(500, d, np.random.default_rng([seed, d]), missing)
    first = learned(X).edges().iloc[0]
    assert (first.source, first.target) == ("x0", "x1") and first.probability > 0.99
    X[:, 1] = np.random.default_rng(seed).permutation(X[:, 1])  # a control
    assert learned(X).edge_probabilities_[0, 1] < 0.99


@pytest.mark.parametrize("algorithm", ["maximum-likelihood", "vnce"])
def test_an_edge_is_certain_by_all_algorithms(algorithm):
    X = positive(500, 3, np.random.default_rng(0))
    edge_probabilities = learned(X, algorithm=algorithm).edge_probabilities_
    assert edge_probabilities[0, 1] > 0.99 > edge_probabilities[0, 2]


def test_frequent_edges_of_the_search_are_probable():
    X = positive(800, 4, np.random.default_rng(0))
    options = {"selection": "stability", "alphas": 8, "n_subsamples": 6}
    learner = TruncatedGaussianGraphLearnerCV(**options, random_state=0)
    table = learner.fit(X).edges()
    assert list(table)[3:] == ["precision", "probability", "frequency"]
    first = table.iloc[0]
    assert first.frequency == 1 and first.probability > 0.99


def noise_of(kind, n, d, rng):
    draws = {
        "gamma": lambda: rng.gamma(4.0, size=(n, d)),
        "lognormal": lambda: np.exp(rng.normal(size=(n, d))),
        "counts": lambda: rng.poisson(3, size=(n, d)).astype(float),
        "zeros": lambda: rng.gamma(2.0, size=(n, d)) * rng.binomial(1, 0.6, (n, d)),
        "0 and 1": lambda: rng.binomial(1, 0.3, (n, d)).astype(float),
    }
    return draws[kind]()


# cells above zero of columns of 0 and 1 are all equal: rounding errors of the machine
# decide whether their singular matrix can be estimated
@pytest.mark.filterwarnings("ignore:The precision matrix cannot be estimated")
@pytest.mark.quick
@pytest.mark.parametrize("kind", ["gamma", "lognormal", "counts", "zeros", "0 and 1"])
@pytest.mark.parametrize(("n", "d"), [(40, 3), (200, 6), (30, 40)])
def test_independent_columns_have_no_edges(kind, n, d, seed):
    tables, alarms = 6, 0
    for table in range(tables):
        X = noise_of(kind, n, d, np.random.default_rng([seed, n, table]))
        alarms += (learned(X, 0.3).edge_probabilities_ > 0.5).any()
    assert p_share(alarms, tables, 0.05, "greater") > FAILURE


def test_estimates_of_rows_average_to_that_of_score_matching(seed):
    """Without penalties and with columns alike, both have the same normal equations."""
    x = torch.from_numpy(np.random.default_rng(seed).gamma(4.0, size=(4000, 3)))
    x /= x.std(0)
    centre = x.mean(0)
    result, error = regressions(x, centre, 0.0, fit_linear=True)
    stats = score_matching.statistics(x, centre, fit_linear=True)
    start = Theta(torch.eye(3).double(), torch.zeros(3).double(), torch.tensor(0.0))
    penalty = Penalty(0.0 * off_diagonal(3), 0.0)
    quadratic = score_matching.quadratic_of(stats, penalty, centre)
    joint = minimise_quadratic(quadratic, start, penalty, 1e-9).theta.precision
    assert ((result - joint).abs() < 0.5 * error / 4000**0.5).all()


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.3, 0.6])
def test_scores_without_an_edge_are_standard_normal(missing, seed):
    """Their mean square over tables, of which each is one independent observation."""
    from skvnce._core.incomplete import Incomplete
    from skvnce._core.random import seeded
    from skvnce.graphs.score_matching import edge_scores

    pairs, squares = np.triu_indices(8, 1), []
    for table in range(20):
        X = positive(200, 8, np.random.default_rng([seed, table]), missing)
        learner = learned(X)
        data = Incomplete.from_array(X)
        problem = learner._problem(learner._schema, data)
        with seeded(table):
            fit = problem.learn(0.1, max_iter=40, tol=0.01)
            arguments = problem.data, fit, problem.units.centre, problem.ridge
            result = edge_scores(*arguments, fit_linear=True).numpy()[pairs]
        squares.append((result[1:] ** 2).mean())
    error = np.std(squares) / len(squares) ** 0.5
    assert abs(np.mean(squares) - 0.95) < 4 * error + 0.1
