"""All methods of the graph learner: what they have in common, and awkward tables."""

import re
import signal
import warnings
from functools import partial

import numpy as np
import pytest

from skvnce import TruncatedGaussianGraphLearner, TruncatedGaussianGraphLearnerCV
from skvnce.exceptions import DivergenceError
from skvnce.graphs import maximum_likelihood
from skvnce.graphs.problem import ALGORITHMS

CHAINS = "maximum-likelihood"
VNCE = ["vnce", "vnce-cdi", "vnce-lognormal"]
METHODS = ["score-matching", CHAINS, *VNCE]
# three rounds on 40 rows, where a warning of a misfit is right at some seeds
pytestmark = pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning")

QUICK = {"max_iter": 1, "noise_ratio": 1}
TIME_LIMIT = 60  # seconds of CPU time, of fits that take about one


def learner(method, **params):
    """Make a learner that is quick, and settled after any round."""
    defaults = {"max_iter": 3, "tol": 1.0, "noise_ratio": 2, "n_steps": 3}
    options = {**defaults, "random_state": 0, **params}
    if "nce" not in method:
        del options["noise_ratio"]  # fit warns that it has no effect
    return TruncatedGaussianGraphLearner(algorithm=method, **options)


def table(seed, n=40, d=4, hidden=0.2, slope=1.5):
    """The first two columns rise together."""
    rng = np.random.default_rng(seed)
    X = rng.gamma(3.0, size=(n, d))
    X[:, 1] += slope * X[:, 0]
    X[rng.uniform(size=X.shape) < hidden] = np.nan
    return X[~np.isnan(X).all(1)]


@pytest.fixture
def X(seed):
    return table(seed)


@pytest.fixture(autouse=True)
def time_limit():
    """Interrupt a fit that does not end."""

    def interrupt(*_):
        raise TimeoutError(f"still fitting after {TIME_LIMIT} seconds")

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def check_fitted(fitted, X):
    """Check that nothing is NaN, that K is symmetric, and that the rest works."""
    d = len(fitted.nodes_)
    K = fitted.precision_
    assert K.shape == (d, d)
    np.testing.assert_array_equal(K, K.T)
    assert (np.diag(K) > 0).all()
    for values in (K, fitted.linear_, fitted.edge_strengths_, fitted.loss_curve_):
        assert np.isfinite(values).all()
    filled = fitted.transform(X)
    assert np.isfinite(filled).all() and (filled >= 0).all()
    assert np.isfinite(fitted.score_samples(X)).all()


def test_all_algorithms_are_tested():
    assert {*METHODS} == {*ALGORITHMS}


# What they have in common


@pytest.mark.quick(4)
@pytest.mark.parametrize("fit_linear", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_table_with_holes(method, fit_linear, seed):
    X = table(seed, n=400, slope=3)  # three rounds of VNCE on 120 rows miss weak links
    fitted = learner(method, fit_linear=fit_linear).fit(X)
    check_fitted(fitted, X)
    assert fitted.edge_strengths_[0, 1] == fitted.edge_strengths_.max()
    assert fitted.precision_[0, 1] < 0  # they rise together
    assert fitted.n_iter_ == 3
    assert hasattr(fitted, "log_scale_") == ("nce" in method)
    if not fit_linear:
        assert (fitted.linear_ == 0).all() and fitted.ridge_linear_ == 0


@pytest.mark.quick(4)
@pytest.mark.parametrize("method", METHODS)
def test_a_single_column(method, X):
    fitted = learner(method).fit(X[:, :1])
    check_fitted(fitted, X[:, :1])
    assert len(fitted.edges()) == 0


@pytest.mark.quick(5)
@pytest.mark.parametrize("method", METHODS)
def test_a_large_alpha_gives_exact_zeros(method, X):
    assert (learner(method, alpha=1e3, **QUICK).fit(X).edge_strengths_ == 0).all()


@pytest.mark.quick(2)
@pytest.mark.filterwarnings("ignore:EM stopped after max_iter=1 rounds")  # right
@pytest.mark.parametrize("method", METHODS)
def test_a_seed_decides_all(method, X):
    fits = (learner(method, random_state=i, **QUICK).fit(X) for i in (0, 0, 1))
    first, second, other = (one.precision_ for one in fits)
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


@pytest.mark.quick(2)
@pytest.mark.parametrize("method", METHODS)
def test_columns_have_no_units(method, X):
    scale = np.array([1e3, 1.0, 1e-4, 7.0])
    first, second = (learner(method, **QUICK).fit(part) for part in (X, X * scale))
    # approximately: rounding may stop a solver an iteration earlier
    np.testing.assert_allclose(second.edge_strengths_, first.edge_strengths_, atol=2e-3)
    assert second.ridge_linear_ == pytest.approx(first.ridge_linear_, rel=1e-4)


def test_a_fit_that_overflows_names_the_ridge(X):
    with pytest.raises(DivergenceError, match=r"Another ridge than ridge=1e\+308 may"):
        learner("score-matching", ridge=1e308).fit(X)


def test_chains_that_leave_the_data_are_refused_with_a_remedy(X, monkeypatch):
    monkeypatch.setattr(
        maximum_likelihood, "_MOST_RATIO", 1.0
    )  # any difference is too far
    remedy = "algorithm='score-matching', may help. .*chains .* left the data"
    one = TruncatedGaussianGraphLearner(algorithm=CHAINS, random_state=0)
    for estimator in (one, TruncatedGaussianGraphLearnerCV(one, random_state=0)):
        with pytest.raises(DivergenceError, match=remedy):
            estimator.fit(X)


# Awkward tables


def few_rows(seed):
    X = table(seed, n=4, d=6, hidden=0.0)
    X[np.arange(4), np.arange(4)] = np.nan
    return X


def duplicated(seed, hidden=0.2):
    X = table(seed, hidden=hidden)
    X[:, 2] = X[:, 0]
    return X


def changed(seed, first, factor=1.0):
    """Change the first cell of a column, and multiply the others."""
    X = table(seed)
    X[:, 2] *= factor
    X[0, 2] = first
    return X


def hardly_observed(seed):
    X = table(seed, n=60)
    X[3:, 2] = np.nan  # 95 %
    X[:3, 2] = [1.0, 2.0, 4.0]
    return X[~np.isnan(X).all(1)]


AWKWARD = {
    "few rows": few_rows,
    "duplicated": duplicated,
    "duplicated and complete": partial(duplicated, hidden=0.0),
    "hardly observed": hardly_observed,
    "dominated": partial(changed, first=1e12),
    "zeros but one": partial(changed, first=1.0, factor=0.0),
}
REMEDY = "Raise|Drop|drop|use algorithm=|a larger ridge|make it missing|logarithm"


def fit_or_refuse(method, X, **params):
    """Fit; warnings and errors have to say what to do.  None where it was refused."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            fitted = learner(method, **params).fit(X)
        except (ValueError, FloatingPointError) as error:
            assert re.search(REMEDY, str(error)), error
            fitted = None
    for warning in caught:
        assert issubclass(warning.category, UserWarning), warning
        assert re.search(REMEDY, str(warning.message)), warning
    return fitted


@pytest.mark.quick(4)
@pytest.mark.parametrize("awkward", AWKWARD)
@pytest.mark.parametrize("method", METHODS)
def test_awkward_tables_are_fitted(method, awkward, seed):
    X = AWKWARD[awkward](seed)
    fitted = fit_or_refuse(method, X)
    assert fitted is not None
    check_fitted(fitted, X)


def collinear(seed, hidden, d=30, correlation=0.99):
    rng = np.random.default_rng(seed)
    specific, common = rng.normal(size=(200, d)), rng.normal(size=(200, 1))
    X = 1 + correlation**0.5 * common + (1 - correlation) ** 0.5 * specific
    X[rng.uniform(size=X.shape) < hidden] = np.nan
    return np.maximum(X, 0)


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", ["score-matching", CHAINS])
def test_collinear_columns(method, seed):
    X = collinear(seed, hidden=0.3)
    check_fitted(fit_or_refuse(method, X, max_iter=1, on_misfit="ignore"), X)


@pytest.mark.slow
def test_chains_stay_with_correlated_columns(seed):
    """With unlimited steps of the model they leave the data for most seeds."""
    X = collinear(seed, hidden=0.3, d=15, correlation=0.9)
    fitted = fit_or_refuse(CHAINS, X, max_iter=12)
    check_fitted(fitted, X)
    assert fitted.edge_strengths_.max() < 1
    independent = fit_or_refuse(CHAINS, X, alpha=1e3, max_iter=2)
    assert fitted.score(X) > independent.score(X) + 5


def test_a_column_far_from_zero_is_not_special(seed, rng):
    """Years, say: truncation at zero is far, so that a shift changes nothing."""
    X = 9 + rng.normal(size=(200, 1)) + 0.6 * rng.normal(size=(200, 4))
    X[rng.uniform(size=X.shape) < 0.5] = np.nan
    X = X[~np.isnan(X).all(1)]
    kinds = {"n_steps": 30, "max_iter": 20, "random_state": seed}
    near = learner("score-matching", **kinds).fit(X)
    far = learner("score-matching", **kinds).fit(X + [0.0, 0.0, 0.0, 2000.0])
    np.testing.assert_allclose(far.edge_strengths_, near.edge_strengths_, atol=0.02)
    assert abs(far.held_out_gain_ - near.held_out_gain_) < 0.02


def test_a_column_of_zeros_and_mostly_ones_has_an_optimum(rng):
    """Score matching leaves zeros out, so that the ones would be fitted exactly."""
    X = 3 + rng.normal(size=(200, 4))
    X[:, 0] = rng.uniform(size=200) < 0.85
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    X = X.clip(0)[~np.isnan(X).all(1)]
    fitted = learner("score-matching", max_iter=8).fit(X)
    # steps of one are rounded: no conditional standard deviation below their error
    assert 1 < fitted.precision_[0, 0] <= 12 * (1 + 1e-12)
    assert abs(fitted.loss_curve_[-1]) < 20
