"""Frequencies, and sampling weights that were not divided by their mean."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skvnce import (
    GaussianImputer,
    IncompleteFactorAnalysis,
    LAIRImputer,
    MultipleImputationRegressor,
    VariationalAutoencoder,
)
from skvnce._weights import warn_of_scale
from skvnce.options import Chunks
from skvnce.sources import summary

REMEDY = r"sample_weight / numpy.mean\(sample_weight\)"


def survey(n=200, seed=0):
    """Draw rows of three columns, and sampling weights of mean 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    weights = rng.lognormal(0, 0.5, n)
    return X, weights / weights.mean()


def sampled(weights):
    """Return the standard deviation of the draws of the mean of a column."""
    imputer = GaussianImputer(
        marginals="normal", shrinkage=0.1, n_parameter_draws=300, random_state=0
    )
    means, _ = imputer.fit(survey()[0], sample_weight=weights).sample_parameters()
    return means[:, 0].std()


@pytest.mark.quick(1)
@pytest.mark.parametrize("factor", [5000, 0.001])
def test_weights_of_another_scale_change_draws_and_warn(factor):
    """Variances of a mean are in proportion to the inverse sum of the weights."""
    weights = survey()[1]
    expected = sampled(weights)
    with pytest.warns(UserWarning, match=f"mean of {factor}.*{REMEDY}"):
        found = sampled(factor * weights)
    # the prior of .3 rows matters if the weights' sum is .2 rows
    assert found / expected < 0.05 if factor > 1 else found / expected > 3
    mended = sampled(factor * weights / np.mean(factor * weights))
    assert mended == pytest.approx(expected, rel=1e-6)


def test_one_warning_wherever_weights_are_read(monkeypatch):
    X, weights = survey()
    y = np.nan_to_num(X).sum(1)
    monkeypatch.setattr(summary, "MOST_ROWS", 120)
    parts, many = Chunks([X[:50], X[50:]]), 300 * weights
    in_parts = Chunks([many[:50], many[50:]])
    imputer, rows = GaussianImputer(random_state=0, n_parameter_draws=0), 40
    calls = [
        lambda: imputer.fit(X[:rows], sample_weight=many[:rows]),
        lambda: imputer.fit(X, sample_weight=many),  # of which a sample is in memory
        lambda: imputer.fit(parts, sample_weight=in_parts),
        lambda: IncompleteFactorAnalysis(1).fit(X, sample_weight=many),
        lambda: MultipleImputationRegressor(
            imputer, n_estimators=1, n_draws=1, random_state=0
        ).fit(X, y, sample_weight=many),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=REMEDY) as caught:
            call()
        assert sum("sample_weight" in str(one.message) for one in caught) == 1


COUNTS = np.random.default_rng(0).integers(0, 4, 300)


@pytest.mark.parametrize(
    "weights",
    [
        np.ones(300),
        COUNTS,
        np.repeat([0.0, 1.0], 150),
        np.random.default_rng(0).poisson(60, 300),
        survey(300)[1],
        survey(300)[1][:60],  # a fold of normalised weights
        survey(300)[1] * (np.arange(300) % 5 > 0) / 0.8,
        np.where(np.arange(300) < 200, 0, 3 * survey(300)[1]),
        np.zeros(3),
    ],
)
def test_frequencies_and_normalised_weights_are_silent(weights):
    with warnings.catch_warnings(action="error"):
        warn_of_scale(np.asarray(weights, dtype=float), len(weights))


@pytest.mark.parametrize(
    ("weights", "mean"),
    [
        (np.random.default_rng(0).poisson(800, 300), "80"),
        (0.4 * survey(300)[1], "0.4"),
        (1.7 * survey(300)[1], "1.7"),
        (0.001 * COUNTS, "0.00"),
    ],
)
def test_other_weights_warn(weights, mean):
    with pytest.warns(UserWarning, match=f"has a mean of {mean}") as caught:
        warn_of_scale(np.asarray(weights, dtype=float), len(weights))
    assert f"not of {(weights > 0).sum()}" in str(caught[0].message)


def test_random_weights_of_members_are_no_sampling_weights():
    """Several members are fitted to rows with random weights of mean 8."""
    X = survey(60)[0]
    model = VariationalAutoencoder(max_iter=1, random_state=0)
    imputer = LAIRImputer(
        model, n_estimators=2, n_steps=1, n_draws=4, on_misfit="ignore", random_state=0
    )
    with warnings.catch_warnings(action="error"):
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        imputer.fit(X)
