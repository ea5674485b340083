"""The penalty of graphs of columns of any kind, and the fit to the chosen edges."""

import numpy as np
import pytest
import torch
from sklearn.covariance import graphical_lasso

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import copula


def mixed(seed, n=300):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x[:, 2] = x[:, 2] > 0
    x[:, 3] = rng.integers(4, size=n)
    x[:, 1] = np.where(rng.uniform(size=n) < 0.5, np.nan, x[:, 1])
    return x, ["numeric", "numeric", "nominal", "nominal"], [1, 1, 2, 4]


def test_weights_depend_on_levels_and_average_information(seed):
    x, kinds, n_levels = mixed(seed)
    with seeded(seed):
        problem = copula.make_problem(Incomplete.from_array(x), kinds, n_levels)
    unit = problem.penalty(0.3).unit
    free = torch.tensor([1.0, 1.0, 1.0, 3.0]).double()
    expected = torch.outer(free, free).sqrt() * (problem.information / free).mean()
    torch.testing.assert_close(unit, expected.fill_diagonal_(0.0))
    torch.testing.assert_close(problem.penalty(0.3).weight, 0.3 * unit)


def linked(seed):
    """Draw complete numbers, for which v is 1, and give their correlations."""
    x = np.random.default_rng(seed).normal(size=(400, 5))
    x[:, 1] += x[:, 0]
    x[:, 4] += x[:, 0]
    return x, np.corrcoef(ranked(x).T)


def test_the_chosen_edges_are_those_of_the_graphical_lasso(seed):
    x, correlations = linked(seed)
    fitted = CopulaGraphLearnerCV(random_state=0).fit(x)
    weight = fitted.alpha_ * fitted.information_.mean()
    expected = graphical_lasso(correlations, weight, tol=1e-9, enet_tol=1e-10)[1]
    edges = np.abs(expected) > 1e-6
    np.testing.assert_array_equal(fitted.precision_ != 0, edges)
    assert 5 < edges.sum() < 25


def test_edges_are_fitted_without_a_penalty(seed):
    """At edges the covariance is that of the data, apart from 0.05 rows of the prior.

    A penalised estimate, with the same edges, differs from them by the weight.
    """
    x, correlations = linked(seed)
    learner = CopulaGraphLearner(0.1, random_state=0).fit(x)
    edges = learner.precision_ != 0
    scale = np.sqrt(np.diag(learner.covariance_))
    value = learner.covariance_ / np.outer(scale, scale)
    np.testing.assert_allclose(value[edges], correlations[edges], atol=2e-4)
    assert abs(value - correlations)[~edges].max() > 1e-3
    weight = 0.1 * learner.information_.mean()
    penalised = graphical_lasso(correlations, weight, tol=1e-9, enet_tol=1e-10)[0]
    assert (abs(penalised - correlations)[edges & ~np.eye(5, dtype=bool)] > 0.05).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("selection", ["ebic", "cv"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_chosen_alpha_reproduces_the_graph(selection, share, seed):
    x, kinds, _ = mixed(seed)
    x[:, 1] += x[:, 0] + x[:, 2]
    x[np.random.default_rng(seed).uniform(size=x.shape) < share] = np.nan
    categories = [kind == "nominal" for kind in kinds]
    options = {"categorical_features": categories, "on_misfit": "ignore"}
    model = CopulaGraphLearner(**options)
    folds = {"selection": selection} | ({"cv": 2} if selection == "cv" else {})
    chosen = CopulaGraphLearnerCV(model, alphas=8, random_state=seed, **folds).fit(x)
    alone = CopulaGraphLearner(chosen.alpha_, random_state=seed, **options).fit(x)
    assert np.count_nonzero(chosen.associations_)
    for name in "precision_", "covariance_", "mean_", "associations_", "loss_curve_":
        np.testing.assert_array_equal(getattr(alone, name), getattr(chosen, name))
    pair = alone.edge_probabilities_, chosen.edge_probabilities_
    np.testing.assert_allclose(*pair, atol=1e-3)
    other = CopulaGraphLearner(10 * chosen.alpha_, random_state=seed, **options).fit(x)
    assert not np.array_equal(other.precision_, chosen.precision_)


def ranked(x):
    """Map columns without ties to normal scores."""
    places = x.argsort(0).argsort(0)
    return torch.special.ndtri(torch.from_numpy((places + 0.5) / len(x))).numpy()


def test_all_edges_of_more_columns_than_rows_have_a_maximum(seed):
    """The prior counts a hundredth of a row for each of the 30 latent variables."""
    x = np.random.default_rng(seed).normal(size=(20, 30))
    learner = CopulaGraphLearner(0.0, on_misfit="ignore", random_state=0).fit(x)
    assert np.isfinite(learner.precision_).all()
    scale = np.sqrt(np.diag(learner.covariance_))
    value = learner.covariance_ / np.outer(scale, scale)
    correlations = np.corrcoef(ranked(x).T)
    assert np.linalg.matrix_rank(correlations) < 30
    off = ~np.eye(30, dtype=bool)
    expected = correlations * 20 / (20 + 0.3)
    np.testing.assert_allclose(value[off], expected[off], atol=1e-3)
    assert abs(value - correlations)[off].max() > 4e-3
    assert np.isfinite(learner.score_samples(x)).all()
