"""The objective of VNCE at other rows, by which a search chooses the penalty."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV

from skvnce import TruncatedGaussianGraphLearner
from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce.graphs.truncated_gaussian import TruncatedGaussian
from skvnce.graphs.vnce_cdi import objective_at

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(seed, n=150):
    rng = np.random.default_rng(seed)
    X = rng.gamma(4.0, size=(n, 3))
    X[:, 1] += 2 * X[:, 0]
    X[rng.random(X.shape) < 0.2] = np.nan
    return X[~np.isnan(X).all(1)]


def learner(**options):
    options = {"algorithm": "vnce", "max_iter": 6, "on_misfit": "ignore"} | options
    return TruncatedGaussianGraphLearner(**options, random_state=0)


def objective(learner, X, y=None):
    return learner.objective(X)


def test_the_noise_itself_is_a_random_guess():
    """A model that equals the noise has log-ratio 0, also with an integrated cell."""
    loc, scale = torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, 0.5]).double()
    noise = TruncatedNormal(loc, scale)
    precision = scale.square().reciprocal().diag()
    log_scale = -noise.log_prob(torch.zeros(2).double()).sum()
    model = TruncatedGaussian(precision, precision @ loc, log_scale)
    table, nu = noise.sample((3, 50)), 4
    observed = torch.rand(50, 2) < 0.7
    result = objective_at(model, table, observed, noise, nu)
    assert result == pytest.approx(nu * np.log(nu) - (1 + nu) * np.log(1 + nu))


def test_a_search_keeps_edges_that_are_there(seed):
    search = GridSearchCV(learner(), {"alpha": [0.02, 2.0]}, scoring=objective, cv=2)
    assert search.fit(rows(seed)).best_params_ == {"alpha": 0.02}


def test_it_is_largest_at_the_fitted_scale_and_survives_a_pickle(seed):
    X = rows(seed)
    fitted = learner(alpha=0.0, ridge=0.0, ridge_linear=0.0).fit(X)
    result = fitted.objective(X)
    assert pickle.loads(pickle.dumps(fitted)).objective(X) == result
    model = fitted._fitted.model
    for shift in (-1.0, 1.0):
        moved = model._replace(log_scale=model.log_scale + shift)
        fitted._fitted = fitted._fitted._replace(model=moved)
        assert fitted.objective(X) < result


def test_it_needs_a_normalising_constant():
    fitted = learner(algorithm="score-matching").fit(rows(0))
    assert not hasattr(fitted, "objective")
    with pytest.raises(AttributeError, match="objective") as failure:
        fitted.objective(rows(1))
    assert "does not estimate the normalising" in str(failure.value.__cause__)


@pytest.mark.filterwarnings("ignore:Constant where observed")
def test_tables_without_columns_or_rows_of_the_model_have_none():
    X = rows(0)
    assert np.isnan(learner().fit(X).objective(np.full((2, 3), np.nan)))
    assert np.isnan(learner().fit(np.ones((5, 2))).objective(np.ones((5, 2))))
