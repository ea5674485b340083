"""Values near the ends of float32 and float64, in every estimator and metric."""

import warnings

import numpy as np
import pytest
from cases import ESTIMATORS
from sklearn.base import clone

from skvnce import metrics
from skvnce._tables.values import into_dtype
from skvnce.exceptions import DivergenceError
from skvnce.testing._requirements import draws_cells, imputes

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.xdist_group("extreme_values"),  # which share fits
    pytest.mark.filterwarnings("ignore::UserWarning"),  # tables too small to settle
]

FIRST = {type(one).__name__: one for one in reversed(ESTIMATORS)}
FIRST.pop("NoisyOr")  # which only compares cells to a threshold
MOST = np.finfo(np.float32).max


def near_the_end():
    """Draw correlated columns whose largest values are nearly the largest float32."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30, 1))
    x = np.exp(0.5 * (z + 0.5 * rng.normal(size=(30, 3))))
    x = (x / x.max(0) * 0.999 * MOST).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


@pytest.fixture(scope="module")
def fitted():
    found = {}

    def fit(name):
        if name not in found:
            found[name] = clone(FIRST[name]).fit(near_the_end())
        return found[name]

    return fit


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", FIRST)
def test_single_precision_does_not_overflow(name, fitted):
    X = near_the_end()
    model, missing = fitted(name), np.isnan(X)
    answers = [model.transform(X)]
    if draws_cells(model):
        answers += list(np.asarray(model.sample(X, n_draws=4, random_state=0)))
    for found in answers:
        assert found.dtype == np.float32 and np.isfinite(found).all()
        if imputes(model):
            np.testing.assert_array_equal(found[~missing], X[~missing])
    if hasattr(model, "score_samples"):
        assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.parametrize("name", FIRST)
def test_rows_too_far_for_a_finite_answer_are_refused(name, fitted):
    model, X = fitted(name), np.full((3, 3), np.nan)
    for sign in (1, -1) if name[:9] != "Truncated" else (1,):
        X[2, 1] = sign * 1e200
        match = r"X has -?1e\+200 in column 1, row 2: .* mark it as missing by NaN"
        for method in ("transform", "score_samples", "sample"):
            if hasattr(model, method):
                with pytest.raises(ValueError, match=match):
                    getattr(model, method)(X)
    X[2, 1] = 1e60  # far less than 1e50 widths
    assert np.isfinite(model.transform(X)).all()
    if hasattr(model, "score_samples"):
        assert np.isfinite(model.score_samples(X)).all()


def test_conversion_takes_the_ends():
    cells = np.array([np.inf, -np.inf, 1e300, -1e300, 1.5, np.nan])
    expected = np.array([MOST, -MOST, MOST, -MOST, 1.5, np.nan], dtype=np.float32)
    np.testing.assert_array_equal(into_dtype(cells, np.float32), expected)
    assert into_dtype(cells, np.float32).dtype == np.float32
    most = np.finfo(float).max
    expected = [most, -most, 1e300, -1e300, 1.5, np.nan]
    np.testing.assert_array_equal(into_dtype(cells, np.float64), expected)


def test_the_energy_distance_neither_overflows_nor_vanishes():
    x, y = np.random.default_rng(0).normal(size=(2, 9, 3))
    expected = metrics.energy_distance(x, y)
    for power in (-900, 500, 1015):
        unit = 2.0**power
        found = metrics.energy_distance(x * unit, y * unit)
        assert found == pytest.approx(expected * unit, rel=1e-12)
    with pytest.raises(ValueError, match="beyond the largest float64"):
        metrics.energy_distance([[1.7e308, 1e308]], [[-1.7e308, 2.0]])


def test_divergence_is_both_kinds_of_error():
    bases = DivergenceError.__bases__
    assert set(bases) == {ValueError, FloatingPointError}


@pytest.mark.parametrize("name", ["GaussianImputer", "LAIRImputer", "VGIImputer"])
@pytest.mark.parametrize("size", [1e200, 1e300])
def test_cells_without_squares_are_an_error_and_no_warning(name, size):
    X = near_the_end().astype(np.float64) / MOST
    X[0, 0] = size
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        with pytest.raises(ValueError, match="column 0 has values whose squares"):
            clone(FIRST[name]).fit(X)
