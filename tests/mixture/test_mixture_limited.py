"""Mixtures within limits of cells: exact with one limit, rejection with several."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest, multivariate_normal, truncnorm
from statistical import FAILURE

from skvnce._core.random import global_stream, row_lattice
from skvnce.mixture import density, limited
from skvnce.mixture.density import Arranged, Mixture
from skvnce.mixture.limited import Limited
from skvnce.mixture.margins import Points

FAR = np.array([-100.0, 100.0])
LINES = Points.of([(FAR, FAR)] * 3)
CODES = np.zeros((1, 0), dtype=np.int64)


def stream(data):
    """Take the random numbers of any rows from torch's stream."""
    return global_stream


def lattice(data):
    return row_lattice(data.to_array(), 0)


def mixture(seed, size=3, d=3):
    rng = np.random.default_rng([seed, 1])
    root = rng.normal(size=(size, d, d)) / 2
    covariances = root @ root.transpose(0, 2, 1) + 0.3 * np.eye(d)
    weights, means = rng.dirichlet(np.full(size, 5.0)), rng.normal(size=(size, d))
    return Mixture(weights, means, covariances)


def rows(seed, n, n_limited):
    """Draw rows whose first cells have limits, and whose last one is observed."""
    rng = np.random.default_rng([seed, 2])
    scores, (low, high) = np.full((n, 3), np.nan), np.full((2, n, 3), np.inf)
    low, scores[:, 2] = -low, rng.normal(size=n)
    ends = np.sort(rng.normal(size=(2, n, n_limited)), 0)
    low[::2, :n_limited], high[1:, :n_limited] = ends[0, ::2], ends[1, 1:]
    return Limited(scores, np.tile(CODES, (n, 1)), low, high)


def oracle(one, row, low, high):
    """Compute the shares of components, and means given each, of a row of one limit."""
    shares, means, parts = [], [], []
    for weight, mean, S in zip(*one[:3], strict=True):
        slope = S[:2, 2] / S[2, 2]
        m = mean[:2] + slope * (row[2] - mean[2])
        V = S[:2, :2] - np.outer(slope, S[:2, 2])
        sd = np.sqrt(V[0, 0])
        part = truncnorm((low - m[0]) / sd, (high - m[0]) / sd, m[0], sd)
        inside = np.diff(multivariate_normal(m[0], V[0, 0]).cdf([[low], [high]]))[0]
        density = multivariate_normal(mean[2], S[2, 2]).pdf(row[2])
        shares.append(weight * density * inside)
        first = part.mean()
        means.append([first, m[1] + V[1, 0] / V[0, 0] * (first - m[0])])
        parts.append(part)
    return np.array(shares) / sum(shares), np.array(means), parts


def test_rows_of_one_limit_are_exact(seed):
    one, given = mixture(seed), rows(seed, 12, 1)
    shares = limited.posterior(one, given, lattice)
    means, _ = limited.conditional_means(one, given, LINES, lattice)
    for i, row in enumerate(given.scores):
        wanted, each, _ = oracle(one, row, given.low[i, 0], given.high[i, 0])
        np.testing.assert_allclose(shares[i], wanted, atol=1e-4)
        np.testing.assert_allclose(means[i, :2], wanted @ each, atol=2e-3)
    data = Arranged.of(given.scores, given.codes)
    free = data.restored(density.responsibilities(density.prepare(one), data)[0])
    assert abs(shares - free).max() > 0.05  # control: limits tell of components


def test_draws_of_one_limit_are_truncated(seed):
    """The distribution function of a mixture of truncated normals, at its draws."""
    one, given = mixture(seed), rows(seed, 4, 1)
    torch.manual_seed(seed)
    for i in range(4):
        many = given.take(np.full(2000, i))
        shares = limited.posterior(one, many, lattice)
        drawn = limited.completed(one, many, shares, stream)
        assert np.isnan(drawn[:, 1]).all() and (drawn[:, 2] == many.scores[:, 2]).all()
        low, high = given.low[i, 0], given.high[i, 0]
        assert ((low <= drawn[:, 0]) & (drawn[:, 0] <= high)).all()
        wanted, _, parts = oracle(one, given.scores[i], low, high)
        level = sum(w * p.cdf(drawn[:, 0]) for w, p in zip(wanted, parts, strict=True))
        assert kstest(level, "uniform")[1] > FAILURE


def test_two_limits_agree_with_rejection(seed):
    one, given = mixture(seed), rows(seed, 6, 2)
    given = given._replace(low=given.low - 0.5, high=given.high + 0.5)  # some draws
    rng, n = np.random.default_rng(seed), 40_000
    shares = limited.posterior(one, given, lattice)
    means, _ = limited.conditional_means(one, given, LINES, lattice)
    for i in range(6):
        many = given.take(np.full(2000, i))
        torch.manual_seed(seed)
        drawn = limited.completed(one, many, np.tile(shares[i], (2000, 1)), stream)
        free = Arranged.of(given.scores[[i]], CODES)
        numbers = rng.random((n, 1)), rng.normal(size=(n, 1, 3)), np.empty((0, n, 1))
        x = density.draw(one, free, *numbers)[0][:, 0]
        x = x[((x >= given.low[i]) & (x <= given.high[i])).all(1)]
        error = x.std(0) * np.sqrt(1 / len(x))
        assert (abs(means[i] - x.mean(0)) < 5 * error + 0.02)[:2].all()
        error = x.std(0) * np.sqrt(1 / len(x) + 1 / 2000)
        assert (abs(drawn.mean(0) - x.mean(0)) < 5 * error + 0.02)[:2].all()
        spread = np.corrcoef(drawn[:, :2].T)[0, 1] - np.corrcoef(x[:, :2].T)[0, 1]
        assert abs(spread) < 5 * np.sqrt(1 / len(x) + 1 / 2000) + 0.03


def test_rows_without_limits_are_those_of_the_mixture():
    one, given = mixture(0), rows(0, 6, 1)
    given.low[3:], given.high[3:] = -np.inf, np.inf
    free = Arranged.of(given.scores, given.codes)
    wanted, _ = density.conditional_means(one, free, LINES)
    means, _ = limited.conditional_means(one, given, LINES, lattice)
    np.testing.assert_allclose(means[3:], wanted[3:], rtol=1e-12)
    assert (abs(means[:3] - wanted[:3]).max(1) > 1e-3).all()


@pytest.mark.parametrize("end", [0.0, 60.0, -60.0])
def test_limits_without_width_or_far_away(end):
    one, given = mixture(0), rows(0, 3, 1)
    given.low[:, 0] = given.high[:, 0] = end
    shares = limited.posterior(one, given, lattice)
    assert np.allclose(shares.sum(1), 1)
    means, _ = limited.conditional_means(one, given, LINES, lattice)
    drawn = limited.completed(one, given, shares, stream)
    assert (drawn[:, 0] == end).all() and np.isfinite(means).all()
