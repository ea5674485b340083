"""Means and draws of LAIRImputer and VGIImputer are possible values, by default."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skvnce import LAIRImputer, VariationalAutoencoder, VGIImputer
from skvnce.options import IncompleteDensity

# half of the draws of a linear model of such a column are negative
pytestmark = pytest.mark.filterwarnings(r"ignore:\d+% of the draws of column")
LINEAR = VariationalAutoencoder(max_iter=0)
# a column is the exponential of Student's t: its cells are to be those of the model
QUICK = {"n_draws": 10, "n_steps": 3, "random_state": 0, "on_misfit": "ignore"}
IMPUTERS = [
    LAIRImputer(LINEAR, n_estimators=1, **QUICK),
    VGIImputer(IncompleteDensity("vae", max_iter=0), n_estimators=1, **QUICK),
    VGIImputer(
        IncompleteDensity("factor-analysis", max_iter=0), n_estimators=1, **QUICK
    ),
]
NAMES = ["lair", "vae", "density"]
by_imputer = pytest.mark.parametrize("imputer", IMPUTERS, ids=NAMES)
DRAWS = 8


def table_of(seed, n=30):
    """Make columns: continuous, positive, a few values, spaced integers, a spike."""
    rng = np.random.default_rng(seed)
    base = rng.standard_t(2, size=(n, 1)) + rng.normal(size=(n, 5))
    X, integers = base.copy(), rng.permutation(10 * n)[:n]
    X[:, 1], X[:, 2] = np.exp(X[:, 1]), X[:, 2].round().clip(-2, 2) / 10
    X[:, 3], X[:, 4] = integers, X[:, 4].clip(min=0)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:2] = np.nan  # an empty row, and one that shows a cell of each kind
    X[1] = [0.0, 1.0, 0.1, 3.0, 0.0]
    return X


def drawn(imputer, X):
    draws = imputer.sample(X, n_draws=DRAWS, random_state=0, as_array=True)
    assert np.isfinite(draws).all()
    return draws


@pytest.fixture
def X(seed):
    return table_of(seed, n=120)


@by_imputer
def test_without_the_rule_draws_leave_the_observed_range(imputer, X):
    """The control."""
    ranges = np.nanmin(X, 0), np.nanmax(X, 0)
    free = clone(imputer).set_params(min_value=-np.inf, max_value=np.inf).fit(X)
    assert (free.feature_ranges_ == [[-np.inf] * 5, [np.inf] * 5]).all()
    draws, rounding = drawn(free, X), 1e-6 * (ranges[1] - ranges[0])
    outside = (draws < ranges[0] - rounding) | (draws > ranges[1] + rounding)
    assert outside[..., [0, 1, 3]].any()
    bound = clone(imputer).set_params(min_value="observed", max_value="observed")
    draws = drawn(bound.fit(X), X)
    assert ((draws >= ranges[0]) & (draws <= ranges[1])).all()


@by_imputer
def test_bounds_by_name_hold(imputer, X):
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["f"] = np.nan
    bounds = {"min_value": {"a": -30.0, "f": 2.0}, "max_value": {"b": "observed"}}
    bounded = clone(imputer).set_params(**bounds)
    frame.loc[frame["a"] <= -30, "a"] = np.nan
    after = "filled by 0, or by the value within min_value and max_value that is near"
    with pytest.warns(UserWarning, match=f"Entirely missing: .*{after}"):
        bounded.set_params(keep_empty_features=True).fit(frame)
    assert bounded.feature_ranges_[0, 0] == -30
    assert bounded.feature_ranges_[1, 1] == frame["b"].max()
    bounded.set_output(transform="pandas")
    for table in bounded.sample(frame, n_draws=DRAWS, random_state=0):
        assert (table["a"] >= -30).all() and (table["b"] <= frame["b"].max()).all()
        assert (table["f"] == 2).all()
    filled = np.asarray(bounded.transform(frame))
    assert (filled[:, 5] == 2).all()


def test_bounds_act_on_what_is_drawn_beside(rng):
    """Cells are drawn given the bounds of others, not moved to them afterwards."""
    a = rng.normal(size=200)
    X = np.column_stack([a, a + 0.3 * rng.normal(size=200), rng.normal(size=200)])
    X[X < 0] = np.nan
    X[X[:, 2] > 0.1, :2] = np.nan
    model = VariationalAutoencoder(max_iter=0, marginals="normal", likelihood="normal")
    gone = np.isnan(X[:, :2]).all(1)

    def draws_above(low):
        imputer = LAIRImputer(model, n_estimators=1, min_value=low, **QUICK)
        return imputer.fit(X).sample(X, n_draws=20, random_state=0, as_array=True)

    free = draws_above(-np.inf)
    assert (free[:, gone, 0] < 0).mean() > 0.01  # they would be moved to zero
    for low in (0.0, None):
        draws = draws_above(low)
        assert (draws >= 0).all() and (draws[:, gone, 0] > 0).all()


@pytest.mark.filterwarnings("ignore:A few cells")
def test_a_frozen_estimator_knows_the_ranges_of_its_table(X):
    frozen = FrozenEstimator(clone(LINEAR).fit(X))
    imputer = LAIRImputer(frozen, max_value={0: 1e3}, **QUICK).fit(X[:6])
    ruled = LAIRImputer(LINEAR, n_estimators=1, **QUICK).fit(X).feature_ranges_
    expected = ruled.copy()
    expected[1, 0] = 1e3
    np.testing.assert_array_equal(imputer.feature_ranges_, expected)
    assert np.isin(drawn(imputer, X)[..., 2], X[:, 2]).all()
