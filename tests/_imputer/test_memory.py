"""Errors before a computation starts that cannot fit in memory."""

import time

import numpy as np
import pytest
from cases import PREDICTORS, SMALL
from errors import refused
from sklearn.base import clone

from skvnce._imputer import validation

pytestmark = pytest.mark.usefixtures("short_training")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1)) + rng.normal(size=(200, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def test_the_limit_is_that_of_the_machine_or_its_container(monkeypatch, tmp_path):
    here = validation.memory_limit()
    assert 2**28 < here < 2**50
    monkeypatch.setattr(validation, "_CGROUPS", (tmp_path / "max", tmp_path / "none"))
    (tmp_path / "max").write_text("123456\n")
    assert validation.memory_limit() == 123456
    (tmp_path / "max").write_text("max\n")
    assert validation.memory_limit() >= here


# ConstrainedImputer and the predictors fit their imputer, which checks the memory
READING = [one for name, one in SMALL.items() if name != "ConstrainedImputer"]


@pytest.mark.quick(4)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("estimator", READING, ids=lambda one: type(one).__name__)
def test_a_fit_that_cannot_fit(estimator, X, monkeypatch):
    X, name = abs(X), type(estimator).__name__
    if name == "NoisyOr":
        X = np.where(np.isnan(X), np.nan, X > 2)
    n_bytes = X.nbytes
    monkeypatch.setattr(validation, "memory_limit", lambda: n_bytes - 1)
    message = f"3 columns that {name}.fit reads need.*sample of the rows"
    refused(MemoryError, message, clone(estimator).fit, X)
    monkeypatch.setattr(validation, "memory_limit", lambda: n_bytes + 1)
    clone(estimator).fit(X)  # negative control


@pytest.mark.parametrize(
    "name", ["GaussianImputer", "ColumnImputer", "MixtureImputer", "TableImputer"]
)
def test_draws_that_cannot_fit(name, X, monkeypatch):
    imputer = clone(SMALL[name]).fit(X)
    monkeypatch.setattr(validation, "memory_limit", lambda: 10 * X.nbytes)
    message = "6 completed tables of 200 rows and 3 columns need .* smaller n_draws"
    refused(MemoryError, message, imputer.sample, X, 6, random_state=0)
    assert len(imputer.sample(X, 5, random_state=0)) == 5  # negative control


def test_sizes_are_named_in_gib():
    with pytest.raises(MemoryError, match=r"It need 1,048,576.0 GiB, and .* GiB. Go\."):
        validation.check_memory(2.0**50, "It", "Go.")


HUGE = np.broadcast_to(1.0, (10**7, 10**4))  # takes 8 bytes, and its copies 745 GiB


@pytest.mark.parametrize(
    "estimator", [*SMALL.values(), *PREDICTORS], ids=lambda one: type(one).__name__
)
def test_the_memory_is_checked_before_the_table_is_copied(estimator, monkeypatch):
    monkeypatch.setattr(validation, "memory_limit", lambda: 2**36)
    y = np.broadcast_to(1.0, len(HUGE))
    begin = time.process_time()
    with pytest.raises(MemoryError, match="10,000,000 rows and 10,000 columns"):
        clone(estimator).fit(HUGE, y)
    assert time.process_time() - begin < 5  # a copy takes longer
