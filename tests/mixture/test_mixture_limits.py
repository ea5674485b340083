"""MixtureImputer with limits of cells: bias, agreement with one normal, draws."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from skvnce import GaussianImputer, MixtureImputer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
QUIET = {"on_misfit": "ignore", "random_state": 0}
FEW = MixtureImputer(2, n_estimators=2, max_iter=4, **QUIET)


def two_groups(seed, n=1000):
    """Draw rows of two groups, of which 30 % have a first cell below a limit."""
    rng = np.random.default_rng([seed, 4])
    group = rng.random(n) < 0.5
    x = np.where(group, 0.0, 4.0) + rng.normal(size=n)
    y = np.where(group, -x, x / 2) + 0.5 * rng.normal(size=n)
    X = np.column_stack([x, y, y + rng.normal(size=n)])
    limit = np.quantile(x, 0.3)
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[:, 0] = x < limit
    return X, np.where(hidden, np.nan, X), hidden, limit


def drawn(imputer, X, n_draws=10, **limits):
    fitted = clone(imputer).fit(X, **limits)
    return fitted.sample(X, n_draws, 0, as_array=True, **limits)


@pytest.mark.parametrize(("size", "most"), [(2, 0.15), ("auto", 0.3)])
def test_cells_below_a_limit_have_their_mean_and_quantiles(seed, size, most):
    """In standard deviations of the column, means are wrong by .09 and .19 at most.

    That is at 6 seeds; without limits by 1.16 and more.
    """
    full, X, hidden, limit = two_groups(seed)
    imputer = MixtureImputer(size, n_estimators=2, min_value=-np.inf, **QUIET)
    cells = drawn(imputer, X, upper={0: limit})
    unit = full[:, 0].std()
    assert abs(cells[:, hidden].mean() - full[hidden].mean()) < most * unit
    for q in (0.05, 0.15, 0.25):
        ends = np.quantile(cells[..., 0], q), np.quantile(full[:, 0], q)
        assert abs(ends[0] - ends[1]) < 2 * most * unit
    assert drawn(imputer, X)[:, hidden].mean() > full[hidden].mean() + unit  # control


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["raw", "normal-scores"])
def test_one_component_agrees_with_a_normal_distribution(seed, kind):
    """Means and covariances are near those of the censored likelihood."""
    rng = np.random.default_rng([seed, 2])
    full = rng.multivariate_normal([10, 5], [[4.0, 2.4], [2.4, 3.0]], 1000)
    limits = np.array([9.0, 4.5])
    X = np.where(full < limits, np.nan, full)
    upper = {"upper": np.broadcast_to(limits, X.shape)}
    wide = {"min_value": -1e3, "max_value": 1e3, **QUIET}
    one = MixtureImputer(1, n_estimators=1, marginals=kind, **wide).fit(X, **upper)
    given = {"marginals": "normal", "shrinkage": 0.05, "max_iter": 1000}
    normal = GaussianImputer(**given, **wide).fit(X, **upper)
    error = np.sqrt(normal.covariance_.diagonal() / len(X))
    rows = one.sample_rows(20_000, random_state=0)
    scale = np.sqrt(normal.covariance_.diagonal())
    assert (abs(rows.mean(0) - normal.mean_) < (2 + (kind != "raw")) * error).all()
    spread = (np.cov(rows.T) - normal.covariance_) / np.outer(scale, scale)
    assert abs(spread).max() < 0.1
    means = [model.transform(X, **upper) for model in (one, normal)]
    assert (abs(means[0] - means[1]).max(0) < 0.15 * scale).all()
    ignoring = clone(one).fit(X).sample_rows(20_000, random_state=0)
    assert (abs(ignoring.mean(0) - normal.mean_) > 8 * error).all()  # control


def test_draws_means_and_intervals_are_within_limits(seed, rng):
    """Of two columns, with limits of both sides, of rows with categories, too."""
    full, X, hidden, _ = two_groups(seed, 200)
    hidden[:, 1] = rng.random(200) < 0.2
    frame = pd.DataFrame(np.where(hidden, np.nan, full), columns=list("abc"))
    frame["k"] = pd.Categorical(np.where(full[:, 0] > 2, "u", "v"))
    frame.loc[::5, "k"] = np.nan
    width = rng.exponential(size=(2, 200, 2))
    low = pd.DataFrame(full[:, :2] - width[0], columns=list("ab"))
    high = pd.DataFrame(full[:, :2] + width[1], columns=list("ab"))
    low.loc[::3], high.loc[1::3] = -np.inf, np.nan
    limits = {"lower": low, "upper": high}
    fitted = clone(FEW).set_output(transform="pandas").fit(frame, **limits)
    tables = [*fitted.sample(frame, 20, 0, **limits), fitted.transform(frame, **limits)]
    tables += fitted.interval(frame, 0.9, 19, 0, **limits)
    for table in tables:
        for j, name in enumerate("ab"):
            cells = table[name][hidden[:, j]]
            assert not (cells < low[name][hidden[:, j]]).any()
            assert not (cells > high[name][hidden[:, j]]).any()
            assert (table[name] == frame[name])[~hidden[:, j]].all()
    free = fitted.sample(frame, 1, 0)[0]["a"][hidden[:, 0]]
    assert (free > high["a"][hidden[:, 0]]).any()  # control
    shares = fitted.category_probabilities(frame, **limits)["k"]
    assert np.allclose(shares.sum(axis=1), 1)


def test_infinite_limits_are_missing_cells():
    _, X, _, limit = two_groups(0, 150)
    ends = {"lower": np.full(X.shape, -np.inf), "upper": {0: np.inf, 1: np.nan}}
    assert_array_equal(drawn(FEW, X, 2, **ends), drawn(FEW, X, 2))
    means = [clone(FEW).fit(X).transform(X, **one) for one in (ends, {})]
    assert_array_equal(*means)
    assert (drawn(FEW, X, 2, upper={0: limit}) != drawn(FEW, X, 2)).any()  # control


def test_means_are_functions_of_each_row():
    _, X, hidden, limit = two_groups(1, 80)
    X[::4, 1] = np.nan
    fitted = clone(FEW).fit(X, upper={0: limit})
    ends = {"lower": np.full(X.shape, -9.0), "upper": np.full(X.shape, 9.0)}
    whole = fitted.transform(X, **ends)
    rows = np.random.default_rng(0).permutation(80)[:30]
    part = fitted.transform(X[rows], **{k: end[rows] for k, end in ends.items()})
    np.testing.assert_allclose(part, whole[rows], rtol=1e-9)


def test_rows_of_limits_alone_and_scores():
    """Scores take limited cells as missing, as those of GaussianImputer do."""
    _, X, hidden, limit = two_groups(3, 120)
    X[hidden[:, 0], 1:] = np.nan
    fitted = clone(FEW).fit(X, upper={0: limit})
    found = fitted.sample(X, 5, 0, as_array=True, upper={0: limit})
    assert found[:, hidden].max() <= limit and np.isfinite(found).all()
    assert np.isfinite(fitted.score_samples(X)).all()
    without = clone(FEW).fit(X)  # in which these rows are ignored
    far = np.array([[limit - 1, np.nan, np.nan]])
    assert fitted.score_samples(far) > without.score_samples(far)
    with pytest.warns(UserWarning, match="without limits"):
        fitted.transform(X)
