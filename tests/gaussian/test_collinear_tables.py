"""Tables with exact relations of columns: squares, changes, lags and sums."""

import numpy as np
import pytest

from skvnce import ColumnImputer, CopulaGraphLearner, GaussianImputer, MixtureImputer

HIDDEN = 0.15


def squares(n, rng):
    """Draw ages and incomes, their squares, and whether there is an account."""
    age = rng.integers(25, 65, n).astype(float)
    income = np.exp(rng.normal(3.5, 0.6, n)).round(1)
    account = rng.binomial(1, 0.3, n)
    return np.column_stack([age, age**2, income, income**2, account])


def panel(n, rng):
    """Draw two series with their lags, changes and sum."""
    y, x = rng.normal(size=(2, n + 1)).cumsum(1)
    parts = y[1:], y[:-1], np.diff(y), x[1:], x[:-1], np.diff(x), (x + y)[1:]
    return np.column_stack(parts)


def hidden(X, rng):
    cells = rng.uniform(size=X.shape) < HIDDEN
    cells[cells.all(1), 0] = False
    return cells


@pytest.mark.quick
@pytest.mark.parametrize("table", [squares, panel])
@pytest.mark.parametrize(
    "imputer", [CopulaGraphLearner, GaussianImputer, MixtureImputer]
)
def test_exact_relations_are_used_and_numbers_stay_finite(table, imputer, seed):
    """The copula graph overflowed at squares (a RuntimeWarning is an error here)."""
    rng = np.random.default_rng([seed, 7])
    X = table(300, rng)
    cells = hidden(X, rng)
    masked = np.where(cells, np.nan, X)
    model = imputer(random_state=0, on_misfit="ignore").fit(masked)
    filled = model.transform(masked)
    assert np.isfinite(filled).all() and np.isfinite(model.sample(masked, 1, 0)).all()
    assert np.isfinite(model.score_samples(masked)).all()
    # columns 0 and 1 say nearly all about each other
    one = cells[:, 0] & ~cells[:, 1]
    error = np.abs(filled - X)[one, 0].mean()
    assert error < 0.4 * np.abs(np.nanmean(masked[:, 0]) - X[one, 0]).mean()


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:sample_weight has a mean")
@pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning")
@pytest.mark.parametrize("weights", [np.full(8, 5e8), np.r_[5e8, np.ones(7)]])
@pytest.mark.parametrize(
    "imputer",
    [
        GaussianImputer(random_state=0),
        MixtureImputer(n_estimators=2, random_state=0),
        ColumnImputer(random_state=0),
    ],
    ids=lambda imputer: type(imputer).__name__,
)
def test_large_weights_beside_outliers(rng, imputer, weights):
    X = rng.normal(size=(8, 4)) @ rng.normal(size=(4, 4))
    X[rng.random(X.shape) < 0.25] = np.nan
    X[0, 0], X[1] = 1e6, 1.0
    assert np.isfinite(imputer.fit(X, sample_weight=weights).transform(X)).all()
