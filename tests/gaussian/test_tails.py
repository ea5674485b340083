"""Columns of which a few cells decide the squared errors are named at `fit`."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import skvnce
from skvnce._tables.findings import heavy_tailed
from skvnce.exceptions import MisfitWarning
from skvnce.options import IncompleteDensity

AUTO = skvnce.VariationalAutoencoder(max_iter=0, n_training_draws=2)
ESTIMATORS = [
    skvnce.GaussianImputer(),
    skvnce.MixtureImputer(2, n_estimators=2),
    skvnce.VNCEEstimator(max_iter=2, noise_ratio=2),
    skvnce.LAIRImputer(AUTO, n_estimators=2, n_draws=2),
    skvnce.VGIImputer(IncompleteDensity("factor-analysis", max_iter=0), n_draws=2),
    skvnce.TruncatedGaussianGraphLearner(max_iter=2),
    skvnce.IncompleteFactorAnalysis(1),
    AUTO,
]
COMMON = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "t5": lambda rng, shape: rng.standard_t(5, size=shape),
    "t3": lambda rng, shape: rng.standard_t(3, size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 1, size=shape),
}
name_of = {"ids": lambda value: type(value).__name__}


def found_in(X):
    return heavy_tailed(X, range(X.shape[1])).tolist()


def share_found(X):
    return len(found_in(X)) / X.shape[1]


@pytest.mark.parametrize("n", [20, 50, 1000])
@pytest.mark.parametrize("name", COMMON)
def test_common_columns_are_not_found(name, n, seed):
    """At most 1 % of them; of 500 with 1 %, more than 20 come in 3 of 10^7 runs."""
    X = COMMON[name](np.random.default_rng(seed), (n, 500))
    assert len(found_in(X)) <= 20


def test_heavy_tails_are_found(rng):
    # 98 % of them; of 200 with 98 %, less than 184 come in 3 of 10^6 runs
    assert share_found(rng.lognormal(0, 2, size=(1000, 200))) >= 0.92
    for n in (300, 10000):
        X = rng.normal(size=(n, 50))
        X[: n // 50] *= 1e4
        assert share_found(X) == 1
    X = rng.normal(size=(10, 50))
    assert share_found(X) == 0  # control
    X[3] = 1e12
    assert share_found(X) == 1


def test_the_bounds_by_hand():
    """Distances 1 (m times) and D (k times), from a median of 0.

    The effective number is (m + k D^2)^2 / (m + k D^4), just above k for large D.
    """

    def column(m, k, far, n_zeros=0):
        ones = np.tile([1.0, -1.0], m // 2)
        return np.concatenate([np.zeros(n_zeros + 1), ones, np.tile([far, -far], k)])

    def found(*parts):
        return found_in(column(*parts)[:, None]) == [0]

    assert found(300, 4, 1e3)  # 8 cells
    assert not found(300, 5, 1e3)  # 10.003
    assert found(3000, 30, 1e4)  # 60 of 3061, below 2 %
    assert not found(3000, 31, 1e4)  # 62 of 3063, above 2 %
    assert found(200, 1, 101.0) and not found(200, 1, 99.0)
    assert found(1000, 4, 115.0) and not found(1000, 4, 111.0)  # mean d^2 of 100
    assert not found(20000, 4, 150.0)  # large is no more than 3 medians
    assert found(300, 4, 1e3, 5000)  # zeros are none of the others


def test_rare_events_are_not_found(rng):
    n = 1000
    X = np.zeros((n, 6))
    X[:3, 0] = 1.0  # an indicator
    X[: n - 2, 1] = 1.0
    X[:, 2] = rng.poisson(0.02, size=n)
    X[:, 3] = rng.geometric(0.3, size=n) * (rng.uniform(size=n) < 0.02)
    X[:2, 4] = 1e9, 1.0  # two cells say nothing of others
    X[:, 5] = 1e300  # a constant
    assert found_in(X) == []
    X[:3, 4] = 1e9, 1.0, 1.0  # control
    assert found_in(X) == [4]


def test_it_depends_neither_on_units_nor_on_missing_cells(rng):
    X = np.stack([rng.lognormal(0, 3, size=400), rng.normal(size=400)], 1)
    for unit in (1.0, -1.0, 2.0**-1000, 2.0**1000, -(2.0**900)):
        assert found_in(X * unit) == [0]
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    assert found_in(X.astype(np.float32)) == found_in(X) == [0]
    X[:, 1] = np.nan
    assert heavy_tailed(X, [1]).tolist() == [] and heavy_tailed(X, []).tolist() == []


def table(seed, far=1e6, n=60):
    rng = np.random.default_rng(seed)
    X = 10 + rng.normal(size=(n, 1)) + rng.normal(size=(n, 4))
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    X[7, 1], X[30, 3] = far, far / 2
    return pd.DataFrame(np.maximum(X, 0)).add_prefix("c")


def with_warning(estimator, X):
    with warnings.catch_warnings(record=True, action="always") as found:
        estimator.fit(X)
    ours = [w for w in found if w.category is MisfitWarning]
    assert all(w.filename == __file__ for w in ours)
    return [str(w.message) for w in ours if "A few cells" in str(w.message)]


@pytest.mark.quick(1)
@pytest.mark.parametrize("estimator", ESTIMATORS, **name_of)
def test_each_estimator_names_them_once(estimator, seed):
    (message,) = with_warning(clone(estimator), table(seed))
    assert message.startswith("A few cells of column 'c1', column 'c3' are so far")
    assert "errors to NaN" in message and "logarithms" in message
    assert with_warning(clone(estimator), table(seed, far=12.0)) == []  # control


@pytest.mark.quick(1)
@pytest.mark.parametrize("estimator", ESTIMATORS, **name_of)
def test_they_can_be_refused_or_ignored(estimator, seed):
    estimator = clone(estimator).set_params(on_misfit="raise")
    with pytest.raises(ValueError, match="A few cells of column 'c1', column 'c3'"):
        estimator.fit(table(seed))
    assert not hasattr(estimator, "n_features_in_")
    assert with_warning(estimator.set_params(on_misfit="ignore"), table(seed)) == []


def test_one_cell_is_not_taken_for_repeated_columns(rng):
    """What is said of a covariance matrix comes later, and does not blame others."""
    X = rng.normal(size=(1000, 1)) + 0.3 * rng.normal(size=(1000, 5))
    X[3, 1] = 1e12
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    X[3, 1] = 1e12
    with warnings.catch_warnings(record=True, action="always") as found:
        skvnce.GaussianImputer(max_iter=3).fit(X)
    first, *others = (str(w.message) for w in found)
    assert first.startswith("A few cells of column 1 are so far from the others")
    singular = [text for text in others if "singular" in text]
    assert all("a few cells that are very far" in text for text in singular)
