"""What GaussianImputer and VNCEEstimator say of tables they do not predict."""

import numpy as np
import pytest
from tables import misfits

from skvnce import GaussianImputer, VNCEEstimator


def normal_table(seed, n, d, correlation, missing=0.0):
    rng = np.random.default_rng(seed)
    shared, own = rng.normal(size=(n, 1)), rng.normal(size=(n, d))
    X = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X


def overfitted(seed):
    """Independent columns, half as many as rows, and hardly any shrinkage."""
    X = normal_table(seed, 60, 30, 0.0, missing=0.1)
    return X, GaussianImputer(1e-6, marginals="normal", random_state=0)


def test_the_gain_is_that_of_the_model(seed):
    """Equal correlations r: k other columns explain k r^2 / (1 + (k - 1) r)."""
    imputer = GaussianImputer(marginals="normal")
    assert misfits(imputer, normal_table(seed, 2000, 4, 0.8)) == []
    explained = [k * 0.64 / (1 + 0.8 * (k - 1)) for k in range(4)]
    shares = [0.001, 0.027, 0.243, 0.729]  # nine of ten cells are not held out
    expected = np.dot(shares, explained)
    # rows of at most 1000 have cells held out: N = 400 at least; both squared errors
    # are sums of N squares of normals, so that the logarithm of their ratio has a
    # variance below 4 / N
    margin = 4.5 * (1 - expected) * 0.1
    assert abs(imputer.held_out_gain_ - expected) < margin
    assert imputer.held_out_gain_ > 4.5 * 0.1  # control: far above that of means


@pytest.mark.slow
def test_what_is_not_predicted_comes_from_marginals(seed):
    X, imputer = overfitted(seed)
    (text,) = misfits(imputer, X)
    assert "predicted worse than by their means" in text and "shrinkage" in text
    assert imputer.held_out_gain_ < 0
    marginal = imputer.marginal_columns_
    assert marginal.any()
    hidden = np.isnan(X)
    means = np.broadcast_to(np.nanmean(X, 0), X.shape)
    filled = imputer.transform(X)
    draws = imputer.sample(X, 5, random_state=seed, as_array=True)
    chosen = hidden & marginal
    np.testing.assert_allclose(filled[chosen], means[chosen])
    for j in np.flatnonzero(marginal):
        assert np.isin(draws[..., j], X[:, j]).all()
    # control: without the check they are far from the means
    free = GaussianImputer(1e-6, marginals="normal", on_misfit="ignore", random_state=0)
    assert misfits(free, X) == []
    assert np.isnan(free.held_out_gain_) and not free.marginal_columns_.any()
    assert np.square(free.transform(X) - means)[hidden].mean() > 0.3


def test_a_misfit_can_be_refused(seed):
    X, imputer = overfitted(seed)
    with pytest.raises(ValueError, match="held_out_gain_=-"):
        imputer.set_params(on_misfit="raise").fit(X)
    assert not hasattr(imputer, "mean_")
    with pytest.raises(ValueError, match="on_misfit"):
        imputer.set_params(on_misfit="stop").fit(X)


def test_bounds_are_part_of_what_is_judged(rng):
    """Where nine of ten cells are near 0, a normal one cut off there is too high.

    The mean c of the truncated distribution is half a standard deviation above the mean
    m, so that the squared errors of N cells grow by (c - m)^2 = 0.25 of those of the
    means, with a standard error of 2 (c - m) / sqrt(N) = 0.06, N = 300.
    """
    X = rng.gamma(1.0, size=(1200, 3)) * (rng.uniform(size=(1200, 3)) < 0.1)
    X += 0.01 * rng.uniform(size=X.shape)  # no two rows are the same
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    found = [GaussianImputer(marginals="normal", min_value=low) for low in (None, 0)]
    for imputer in found:
        misfits(imputer, X)
    assert found[1].held_out_gain_ < found[0].held_out_gain_
    assert abs(found[0].held_out_gain_) < 4.5 * 0.06


def test_a_weight_of_two_is_a_row_given_twice_here_too(seed):
    X, imputer = overfitted(seed)
    weights = np.random.default_rng(seed).integers(1, 3, size=len(X))
    misfits(imputer, X, sample_weight=weights)
    twin = GaussianImputer(1e-6, marginals="normal", random_state=0)
    misfits(twin, np.repeat(X, weights, axis=0))
    assert (imputer.marginal_columns_ == twin.marginal_columns_).all()
    assert imputer.held_out_gain_ == pytest.approx(twin.held_out_gain_, rel=1e-4)


def test_vnce_judges_by_a_fit_without_the_cells(seed):
    X = normal_table(seed, 300, 4, 0.8, missing=0.1)
    estimator = VNCEEstimator(random_state=seed)
    assert misfits(estimator, X) == []
    # three others explain 0.74, of which few are missing; N = 100 at least
    assert 0.73 - 4.5 * 0.27 * 0.2 < estimator.held_out_gain_ < 1
    before = estimator.covariance_
    again = VNCEEstimator(on_misfit="ignore", random_state=seed)
    assert misfits(again, X) == [] and np.isnan(again.held_out_gain_)
    np.testing.assert_array_equal(again.covariance_, before)  # the check only looks


def test_vnce_shrinks_wide_tables(seed):
    """As many columns as half the rows, which hardly depend on each other."""
    X = normal_table(seed, 60, 30, 0.0, missing=0.1)
    estimator = VNCEEstimator(random_state=seed, on_misfit="ignore").fit(X)
    hidden, means = np.isnan(X), np.broadcast_to(np.nanmean(X, 0), X.shape)
    moved = np.square(estimator.transform(X) - means)[hidden].mean()
    assert moved < 0.15  # of a variance of 1; 0.8 or so with a tenth of a row a column
