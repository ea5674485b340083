"""Errors before a computation starts that cannot fit in memory."""

import numpy as np
import pytest
from sklearn.base import clone

from skvnce import (
    Chunks,
    CopulaGraphLearner,
    CopulaGraphLearnerCV,
    ForestImputer,
    GaussianImputer,
    IncompleteFactorAnalysis,
    TruncatedGaussianGraphLearner,
    TruncatedGaussianGraphLearnerCV,
)
from skvnce.estimators import _memory


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1)) + rng.normal(size=(200, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def test_the_limit_is_that_of_the_machine_or_its_container(monkeypatch, tmp_path):
    here = _memory.memory_limit()
    assert 2**28 < here < 2**50
    monkeypatch.setattr(_memory, "_CGROUPS", (tmp_path / "max", tmp_path / "none"))
    (tmp_path / "max").write_text("123456\n")
    assert _memory.memory_limit() == 123456
    (tmp_path / "max").write_text("max\n")
    assert _memory.memory_limit() >= here


IN_PARTS = [GaussianImputer(random_state=0), IncompleteFactorAnalysis(1)]
GRAPHS = [TruncatedGaussianGraphLearner(), CopulaGraphLearner()]
SEARCHES = [TruncatedGaussianGraphLearnerCV(cv=2), CopulaGraphLearnerCV(cv=2)]


@pytest.mark.parametrize("estimator", [*IN_PARTS, *GRAPHS, *SEARCHES])
def test_a_fit_that_cannot_fit(estimator, X, monkeypatch):
    X, in_parts = abs(X), estimator in IN_PARTS
    needed = (4 if in_parts else 8) * X.nbytes + 4 * 9 * 8
    monkeypatch.setattr(_memory, "memory_limit", lambda: needed - 1)
    remedy = "skvnce.Chunks.from_array" if in_parts else "sample of the rows"
    message = f"table of 200 rows and 3 columns .* matrices of all pairs.*{remedy}"
    with pytest.raises(MemoryError, match=message):
        estimator.fit(X)
    assert not hasattr(estimator, "n_features_in_")
    if in_parts:
        clone(estimator).fit(Chunks.from_array(X, 50))
    monkeypatch.setattr(_memory, "memory_limit", lambda: needed)
    clone(estimator).fit(X)  # negative control


def test_a_fit_to_many_columns_that_cannot_fit(monkeypatch):
    X = np.ones((2, 1000))
    monkeypatch.setattr(_memory, "memory_limit", lambda: 2**24)
    with pytest.raises(MemoryError, match="2 rows and 1,000 columns"):
        GaussianImputer().fit(X)


@pytest.mark.parametrize("kind", [GaussianImputer, ForestImputer])
def test_draws_that_cannot_fit(kind, X, monkeypatch):
    imputer = kind(random_state=0).fit(X)
    monkeypatch.setattr(_memory, "memory_limit", lambda: 10 * X.nbytes)
    message = "6 completed tables of 200 rows and 3 columns need .* smaller n_draws"
    with pytest.raises(MemoryError, match=message):
        imputer.sample(X, 6, random_state=0)
    assert len(imputer.sample(X, 5, random_state=0)) == 5  # negative control


def test_sizes_are_named_in_gib():
    with pytest.raises(MemoryError, match=r"It need 1,048,576.0 GiB, and .* GiB. Go\."):
        _memory.check_memory(2.0**50, "It", "Go.")
