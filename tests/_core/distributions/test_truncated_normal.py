"""Truncated normal distributions, of a half-line and of an interval."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad
from scipy.stats import truncnorm

from skvnce._core.distributions.truncated_normal import (
    BoundedNormal,
    TruncatedNormal,
    fit_moments,
    log_normaliser,
    unit_mean,
    unit_quantile,
    unit_variance,
)
from skvnce._core.random import seeded

# The truncated normal against mpmath, scipy and finite differences


RATIOS = np.concatenate(
    [
        -np.geomspace(2000, 1e-3, 40),
        [0.0, -7.99, -8.01, -11.99, -12.01],  # zero, and where the formulas change
        np.geomspace(1e-3, 50, 20),
    ]
)


def exact(t):
    """Log-normaliser, mean and variance with sixty digits."""
    with mpmath.workdps(60):
        t = mpmath.mpf(float(t))
        z = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(-t / mpmath.sqrt(2))
        mean = t + 1 / (z * mpmath.exp(t * t / 2))
        return mpmath.log(z) + t * t / 2, mean, 1 - mean * (mean - t)


EXACT = np.array([[float(number) for number in exact(t)] for t in RATIOS])


def column(values, dtype=torch.float64):
    return torch.tensor(np.asarray(values), dtype=dtype)


# Closed forms


@pytest.mark.parametrize(
    "function, place, rtol",
    [(log_normaliser, 0, 1e-12), (unit_mean, 1, 1e-12), (unit_variance, 2, 1e-9)],
)
def test_moments_against_mpmath(function, place, rtol):
    # the variance is 1 minus nearly 1 in the far tail; the log-normaliser crosses zero
    got = function(column(RATIOS)).numpy()
    assert_allclose(got, EXACT[:, place], rtol=rtol, atol=1e-15)


@pytest.mark.parametrize("loc, scale", [(-2000.0, 1.0), (-3.0, 0.1), (2.0, 5.0)])
def test_distribution_against_mpmath(loc, scale):
    dist = TruncatedNormal(column(loc), column(scale))
    log_z, mean, variance = exact(loc / scale)
    assert float(dist.mean) == pytest.approx(float(scale * mean), rel=1e-11)
    assert float(dist.variance) == pytest.approx(float(scale**2 * variance), rel=1e-8)
    for x in np.array([0.0, 0.1, 1.0, 7.0]) * float(dist.mean):
        v = mpmath.mpf(x) / scale
        log_prob = -v * v / 2 + loc / scale * v - log_z - mpmath.log(scale)
        found = float(dist.log_prob(column(x)))
        assert found == pytest.approx(float(log_prob), rel=1e-11, abs=1e-11)


def test_log_prob_is_normalised_and_has_its_support():
    dist = TruncatedNormal(column([-2.0, 0.5]), column([1.5, 0.3]))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x, weights = column((nodes + 1) * 5), column(weights * 5)
    mass = dist.log_prob(x[:, None]).exp().T @ weights
    assert_allclose(mass, 1, rtol=1e-12)
    assert (dist.log_prob(column(-1e-300)) == -torch.inf).all()
    assert dist.log_prob(column(0.0)).isfinite().all()


@given(t=st.floats(-2000, 50), upper=st.floats(1e-300, 1))
def test_everything_is_finite_and_ordered(t, upper):
    ratio = column([t])
    mean, variance = float(unit_mean(ratio)), float(unit_variance(ratio))
    assert np.isfinite(float(log_normaliser(ratio)))
    assert 0 < mean < np.inf
    assert t <= mean
    assert 0 <= variance <= 1
    assert 0 < float(unit_quantile(column([upper]), ratio)) < np.inf


@pytest.mark.parametrize("t", [-40.0, -12.0, -3.0, 0.0, 2.0, 9.0])
def test_derivatives(t):
    at = column([t, t + 0.3]).requires_grad_()
    assert torch.autograd.gradcheck(log_normaliser, at, rtol=1e-6)
    assert torch.autograd.gradgradcheck(log_normaliser, at, rtol=1e-5)
    assert torch.autograd.gradcheck(unit_mean, at, rtol=1e-5)


def test_float32():
    single = column(RATIOS, torch.float32)
    near = np.abs(RATIOS) < 100  # beyond, the variance has no digits left
    for place, function in enumerate((log_normaliser, unit_mean, unit_variance)):
        got = function(single)
        assert got.dtype == torch.float32
        rtol = 1e-4 if place < 2 else 2e-2
        assert_allclose(got.numpy()[near], EXACT[near, place], rtol=rtol, atol=1e-5)
    dist = TruncatedNormal(single, torch.ones_like(single))
    draws = dist.sample((200,))
    assert draws.dtype == torch.float32
    assert draws.isfinite().all()
    assert (draws >= 0).all()
    assert dist.log_prob(draws).isfinite().all()


# Draws


@pytest.mark.parametrize("upper", [1.0, 0.5, 1e-3, 1e-12])
def test_quantile_solves_its_equation(upper):
    drawn = unit_quantile(column([upper] * len(RATIOS)), column(RATIOS))
    with mpmath.workdps(60):
        for v, t in zip(drawn.tolist(), RATIOS.tolist(), strict=True):
            tails = [mpmath.erfc((q - t) / mpmath.sqrt(2)) for q in (mpmath.mpf(v), 0)]
            assert float(tails[0] / tails[1]) == pytest.approx(upper, rel=1e-9)


def test_icdf_is_the_quantile_function():
    dist = TruncatedNormal(column([-3.0, 0.0, 2.0]), column([2.0, 1.0, 0.5]))
    p = column([0.0, 0.01, 0.5, 0.999])[:, None]
    a = -dist.loc / dist.scale
    oracle = stats.truncnorm(a, np.inf, dist.loc, dist.scale).ppf(p.numpy())
    assert_allclose(dist.icdf(p), oracle, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loc, scale", [(-50.0, 2.0), (-3.0, 1.0), (0.2, 1.3), (5, 2)])
def test_rsample_gradient_is_that_of_the_quantile(loc, scale, seed):
    def draw(loc, scale):  # at fixed uniform numbers
        with seeded(seed):
            return TruncatedNormal(loc, scale, validate_args=False).rsample((20,))

    parameters = [column(number).requires_grad_() for number in (loc, scale)]
    with seeded(seed):
        upper = 1 - torch.rand(20, dtype=torch.float64)
    quantile = scale * unit_quantile(upper, column(loc / scale).expand(20))
    assert_allclose(draw(*parameters).detach(), quantile, rtol=1e-13)
    assert torch.autograd.gradcheck(draw, parameters, rtol=1e-5)


def test_sample_has_no_gradient():
    loc = column(0.0).requires_grad_()
    assert not TruncatedNormal(loc, column(1.0)).sample().requires_grad


# Moment fit


def test_fit_moments_against_scipy():
    mean = column([1.0, 0.01, 300.0, 2.0, 5.0])
    cv = column([0.05, 0.3, 0.6, 0.9, 0.989])
    dist = fit_moments(mean, (cv * mean).square())
    oracle = stats.truncnorm(-dist.loc / dist.scale, np.inf, dist.loc, dist.scale)
    assert_allclose(oracle.mean(), mean, rtol=1e-8)
    assert_allclose(oracle.var(), (cv * mean).square(), rtol=1e-8)


def test_fit_moments_lowers_an_impossible_variance():
    mean = column([1.0, 40.0, 1e-3])
    dist = fit_moments(mean, mean.square() * column([1.0, 4.0, 1e6]))
    assert_allclose(dist.mean, mean, rtol=1e-8)
    assert_allclose(dist.variance, 0.98 * mean.square(), rtol=1e-8)


# The normal distribution on an interval against scipy and direct quadrature


CASES = [
    (0.0, 1.0, -1.0, 2.0),
    (3.0, 0.5, -np.inf, np.inf),
    (1.0, 2.0, 4.0, np.inf),
    (1.0, 2.0, -np.inf, -6.0),
    (0.0, 1.0, 6.0, 6.5),
    (0.0, 1.0, -30.0, -9.0),
    (0.0, 1.0, 20.0, 21.0),
    (0.0, 1.0, 0.3, 0.3 + 1e-4),
]


def bounded(case):
    return BoundedNormal(*(torch.tensor(part, dtype=torch.float64) for part in case))


@pytest.mark.parametrize("case", CASES)
def test_mean_and_quantiles(case):
    loc, scale, low, high = case
    a, b = (low - loc) / scale, (high - loc) / scale
    exact = truncnorm(a, b, loc, scale)
    result = bounded(case)
    u = torch.linspace(0.001, 0.999, 41, dtype=torch.float64)
    assert_allclose(result.icdf(u), exact.ppf(u.numpy()), rtol=1e-8, atol=1e-9)
    assert_allclose(result.mean, _mean(*case), rtol=1e-8, atol=1e-10)


def _mean(loc, scale, low, high):
    """Integrate by quadrature, with the density scaled by its largest value."""
    top = np.clip(loc, low, high)
    start, end = max(low, top - 12 * scale), min(high, top + 12 * scale)

    def density(x):
        return np.exp(((top - loc) ** 2 - (x - loc) ** 2) / (2 * scale**2))

    if abs(top - loc) > 5 * scale:  # a steep exponential: integrate where it lives
        reach = 40 * scale**2 / abs(top - loc)
        start, end = max(start, top - reach), min(end, top + reach)
    total = quad(density, start, end, epsabs=0, epsrel=1e-12)[0]
    return quad(lambda x: x * density(x), start, end, epsabs=0, epsrel=1e-12)[0] / total


@pytest.mark.parametrize("case", [(0.0, 1.0, 50.0, 60.0), (0.0, 1e-3, -9.0, -1.0)])
def test_far_tails_are_nearly_exponential(case):
    loc, scale, low, high = case
    result = bounded(case)
    inner = low if low > 0 else high
    excess = scale**2 / abs(inner - loc)
    assert abs(float(result.mean) - inner) == pytest.approx(excess, rel=1e-3)
    draw = result.icdf(torch.tensor(0.5, dtype=torch.float64))
    assert abs(float(draw) - inner) == pytest.approx(np.log(2) * excess, rel=1e-3)


def test_everything_stays_inside(rng):
    low = torch.tensor(rng.normal(size=4000) * 10)
    high = low + torch.tensor(10 ** rng.uniform(-9, 2, size=4000))
    result = BoundedNormal(
        torch.tensor(rng.normal(size=4000) * 30),
        torch.tensor(10 ** rng.uniform(-3, 1, size=4000)),
        low,
        high,
    )
    for value in (result.mean, result.icdf(torch.tensor(rng.uniform(size=4000)))):
        assert value.isfinite().all()
        assert ((value >= low) & (value <= high)).all()


SPANS = [(0.0, 1.0, -1.0, 2.0), (1.0, 2.0, 4.0, np.inf), (1.0, 2.0, -np.inf, -6.0)]
SPANS += [(3.0, 0.5, -np.inf, np.inf), (0.0, 1.0, 6.0, 6.5), (0.0, 2.0, -1.0, -0.2)]


@pytest.mark.parametrize("case", CASES)
def test_density_cdf_and_entropy_against_scipy(case):
    loc, scale, low, high = case
    a, b = (low - loc) / scale, (high - loc) / scale
    exact, result = truncnorm(a, b, loc, scale), bounded(case)
    x = exact.ppf(np.linspace(0.02, 0.98, 21))
    at = torch.tensor(x)
    narrow = high - low < 1e-3
    rtol = 1e-7 if narrow else 1e-9
    assert_allclose(result.log_prob(at), exact.logpdf(x), rtol=rtol)
    outside = torch.tensor([low - 1, high + 1]).double()
    assert (result.log_prob(outside) == -np.inf).all()
    assert_allclose(result.cdf(at), exact.cdf(x), rtol=1e-6, atol=1e-10)
    if narrow:  # scipy loses digits; it is uniform nearly
        assert float(result.entropy()) == pytest.approx(np.log(high - low), abs=1e-6)
    else:
        assert float(result.entropy()) == pytest.approx(_entropy(result, x), abs=1e-6)


def _entropy(found, x):
    """Integrate -q log q by quadrature over the quantiles' stretch, and beyond."""
    wide = x[-1] - x[0]
    start = max(float(found.low), x[0] - 12 * wide)
    right = min(float(found.high), x[-1] + 12 * wide)

    def inside(v):
        log_q = float(found.log_prob(torch.tensor(v, dtype=torch.float64)))
        return -np.exp(log_q) * log_q

    return quad(inside, start, right, epsabs=0, epsrel=1e-10, limit=400)[0]


@pytest.mark.parametrize("case", SPANS)
def test_gradients_in_location_and_scale(case):
    """Of density, cdf, entropy and draws, by finite differences."""
    loc, scale, low, high = (torch.tensor(part).double() for part in case)
    leaves = loc.requires_grad_(), scale.requires_grad_()
    u = torch.tensor([0.03, 0.5, 0.9]).double()
    at = bounded(case).icdf(u).detach()

    def parts(loc, scale):
        q = BoundedNormal(loc, scale, low, high, validate_args=False)
        return q.log_prob(at), q.cdf(at), q.entropy(), q.icdf(u)

    assert torch.autograd.gradcheck(parts, leaves, eps=1e-6, atol=1e-5)
