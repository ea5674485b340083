"""Draws and fills follow the model beyond the observed range."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

from skvnce import (
    CopulaGraphLearner,
    GaussianImputer,
    LAIRImputer,
    MixtureImputer,
    TruncatedGaussianGraphLearner,
    VariationalAutoencoder,
)

N, TABLES, SLOPE = 300, 4, 3.0
OBSERVED = {"min_value": "observed", "max_value": "observed"}
OF_NORMALS = partial(GaussianImputer, n_parameter_draws=5), OBSERVED
OF_SCORES = MixtureImputer, {"marginals": "normal-scores"}


def truncated(seed, step=None, with_levels=False):
    """Make y = 50 + 3 x + 3 noise, missing where x is low."""
    rng = np.random.default_rng(seed)
    x = rng.normal(20, 5, N)
    y = 50 + SLOPE * x + 3 * rng.normal(size=N)
    y = y if step is None else np.round(np.round(y / step) * step, 6)
    frame = pd.DataFrame({"x": x, "y": y})
    if with_levels:
        frame["g"] = pd.Categorical(np.where(rng.random(N) < 0.5, "a", "b"))
    frame.loc[x < np.quantile(x, 0.3), "y"] = np.nan
    return frame


def drawn(imputer, table, n_draws=5):
    imputer.set_output(transform="pandas").fit(table)
    return imputer.sample(table, n_draws, random_state=0)


def slope_of(table):
    return np.polyfit(table["x"], table["y"], 1)[0] / SLOPE


@pytest.mark.quick
@pytest.mark.parametrize("kind, biased", [OF_NORMALS, OF_SCORES])
@pytest.mark.parametrize("with_levels", [False, True])
@pytest.mark.parametrize("step", [None, 1.0, 0.2])
def test_slopes_are_right_without_low_values(kind, biased, step, with_levels, seed):
    # The slope of complete cases has the standard error .022, as the deviation of x
    # among them is 3.2 and that of the noise 3; of four tables .011.  Marginals of
    # tables with levels are estimated at knots, and so has their tail, by 300 rows.
    margin = 0.09 if with_levels else 0.045
    tables = [truncated([seed, k], step, with_levels) for k in range(TABLES)]
    slopes, controls = [], []
    for table in tables:
        draws = drawn(kind(random_state=0), table)
        slopes.append(np.mean([slope_of(one) for one in draws]))
        least = min(one["y"].min() for one in draws)
        assert least < table["y"].min() - 15  # a standard deviation
        cells = np.concatenate([one["y"][table["y"].isna()] for one in draws])
        if step is not None:
            on_grid = np.round(np.round(cells / step) * step, 6)
            np.testing.assert_array_equal(cells, on_grid)
        # the control
        draws = drawn(kind(random_state=0, **biased), table)
        controls.append(np.mean([slope_of(one) for one in draws]))
    assert abs(np.mean(slopes) - 1) < margin and np.mean(controls) < 1 - margin


@pytest.mark.quick
@pytest.mark.parametrize(
    "imputer",
    [
        MixtureImputer(n_estimators=2, random_state=0),
        LAIRImputer(
            VariationalAutoencoder(max_iter=0), n_estimators=1, n_draws=20, n_steps=5
        ),
        CopulaGraphLearner(0.05, random_state=0),
        TruncatedGaussianGraphLearner(0.01, random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("step", [None, 1.0])
def test_draws_of_all_models_reach_beyond(imputer, step):
    table = truncated(0, step)
    draws = drawn(imputer, table)
    gone = table["y"].isna()
    cells = np.concatenate([one["y"][gone] for one in draws])
    # nearly all of the true cells are below; before, no draw was
    assert np.mean(cells < table["y"].min()) > 0.25
    if step is not None:
        np.testing.assert_array_equal(cells, np.round(cells))


def test_fills_of_new_rows_are_extrapolated(rng):
    parts = rng.integers(1, 9, (60, 3)).astype(float)
    X = np.column_stack([parts.sum(1), parts])
    X[rng.random(X.shape) < 0.1] = np.nan
    rows = [[np.nan, 9, 9, 9], [np.nan, 20, 9, 9]]
    filled = GaussianImputer(random_state=0).fit(X).transform(rows)[:, 0]
    # sums are exact but for the prior, a hundredth of a row for each column at least
    np.testing.assert_allclose(filled, [27, 38], atol=0.5)
    cut = GaussianImputer(random_state=0, **OBSERVED).fit(X).transform(rows)[:, 0]
    np.testing.assert_allclose(cut, np.nanmax(X[:, 0]), atol=0.5)


def test_bounds_are_obeyed_whatever_the_values_are(seed):
    table = truncated(seed, 1.0)
    bounds = {"min_value": {"y": 80.0}, "max_value": {"y": 400.0}}
    draws = drawn(GaussianImputer(random_state=0, **bounds), table)
    least = [one["y"].min() for one in draws]
    assert min(least) == 80.0 < table["y"].min()


def test_draws_that_are_set_to_zero_are_announced(rng):
    z = rng.normal(size=(300, 3)) + 0.8 * rng.normal(size=(300, 1))
    skewed = np.column_stack([np.exp(0.8 * z[:, 0]), z[:, 1:]])
    normal = np.column_stack([z[:, 0] + 8, z[:, 1:]])
    zeros = skewed.copy()
    zeros[:, 0] = np.maximum(z[:, 0], 0)
    hidden = rng.random(300) < 0.3
    given = {"marginals": "normal", "random_state": 0}
    for X in (normal, zeros, skewed):
        X[hidden, 0] = np.nan
        imputer = GaussianImputer(**given).fit(X)
        if X is skewed:
            said = "of the draws of column 0 would be negative and are set to 0"
            with pytest.warns(UserWarning, match=said):
                imputer.sample(X, 10, random_state=0)
            # it is the user's
            imputer = GaussianImputer(min_value=-np.inf, **given).fit(X)
        with warnings.catch_warnings(action="error"):
            imputer.sample(X, 10, random_state=0)


def test_shifted_whole_numbers_leave_the_observed_range(seed):
    table = truncated(seed, 1.0)
    imputer = GaussianImputer(random_state=0).set_output(transform="pandas").fit(table)
    gone, spread = table["y"].isna(), table["y"].std(ddof=0)
    means = []
    for shift in (0.0, -2.3):
        draws = imputer.sample(table, 20, random_state=0, shift={"y": shift})
        cells = np.concatenate([one["y"][gone] for one in draws])
        np.testing.assert_array_equal(cells, np.round(cells))
        means.append(cells.mean())
    # rounding up or down at random has a deviation of at most half a unit
    assert abs(means[1] - means[0] + 2.3 * spread) < 4 * 0.5 / np.sqrt(len(cells))
