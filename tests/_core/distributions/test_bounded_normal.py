"""The normal distribution on an interval against scipy and direct quadrature."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import truncnorm

from skvnce._core.distributions.truncated_normal import BoundedNormal

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
    found = bounded(case)
    u = torch.linspace(0.001, 0.999, 41, dtype=torch.float64)
    np.testing.assert_allclose(
        found.icdf(u), exact.ppf(u.numpy()), rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(found.mean, _mean(*case), rtol=1e-8, atol=1e-10)


def _mean(loc, scale, low, high):
    """Integrate by quadrature, with the density scaled by its largest value."""
    top = np.clip(loc, low, high)
    left, right = max(low, top - 12 * scale), min(high, top + 12 * scale)

    def density(x):
        return np.exp(((top - loc) ** 2 - (x - loc) ** 2) / (2 * scale**2))

    if abs(top - loc) > 5 * scale:  # a steep exponential: integrate where it lives
        reach = 40 * scale**2 / abs(top - loc)
        left, right = max(left, top - reach), min(right, top + reach)
    total = quad(density, left, right, epsabs=0, epsrel=1e-12)[0]
    return (
        quad(lambda x: x * density(x), left, right, epsabs=0, epsrel=1e-12)[0] / total
    )


@pytest.mark.parametrize("case", [(0.0, 1.0, 50.0, 60.0), (0.0, 1e-3, -9.0, -1.0)])
def test_far_tails_are_nearly_exponential(case):
    loc, scale, low, high = case
    found = bounded(case)
    inner = low if low > 0 else high
    excess = scale**2 / abs(inner - loc)
    assert abs(float(found.mean) - inner) == pytest.approx(excess, rel=1e-3)
    draw = found.icdf(torch.tensor(0.5, dtype=torch.float64))
    assert abs(float(draw) - inner) == pytest.approx(np.log(2) * excess, rel=1e-3)


def test_everything_stays_inside(seed):
    rng = np.random.default_rng(seed)
    low = torch.tensor(rng.normal(size=4000) * 10)
    high = low + torch.tensor(10 ** rng.uniform(-9, 2, size=4000))
    found = BoundedNormal(
        torch.tensor(rng.normal(size=4000) * 30),
        torch.tensor(10 ** rng.uniform(-3, 1, size=4000)),
        low,
        high,
    )
    for value in (found.mean, found.icdf(torch.tensor(rng.uniform(size=4000)))):
        assert value.isfinite().all()
        assert ((value >= low) & (value <= high)).all()


SPANS = [(0.0, 1.0, -1.0, 2.0), (1.0, 2.0, 4.0, np.inf), (1.0, 2.0, -np.inf, -6.0)]
SPANS += [(3.0, 0.5, -np.inf, np.inf), (0.0, 1.0, 6.0, 6.5), (0.0, 2.0, -1.0, -0.2)]


@pytest.mark.parametrize("case", CASES)
def test_density_cdf_and_entropy_against_scipy(case):
    loc, scale, low, high = case
    a, b = (low - loc) / scale, (high - loc) / scale
    exact, found = truncnorm(a, b, loc, scale), bounded(case)
    x = exact.ppf(np.linspace(0.02, 0.98, 21))
    at = torch.tensor(x)
    narrow = high - low < 1e-3
    rtol = 1e-7 if narrow else 1e-9
    np.testing.assert_allclose(found.log_prob(at), exact.logpdf(x), rtol=rtol)
    outside = torch.tensor([low - 1, high + 1]).double()
    assert (found.log_prob(outside) == -np.inf).all()
    np.testing.assert_allclose(found.cdf(at), exact.cdf(x), rtol=1e-6, atol=1e-10)
    if narrow:  # scipy loses digits; it is uniform nearly
        assert float(found.entropy()) == pytest.approx(np.log(high - low), abs=1e-6)
    else:
        assert float(found.entropy()) == pytest.approx(_entropy(found, x), abs=1e-6)


def _entropy(found, x):
    """Integrate -q log q by quadrature over the quantiles' stretch, and beyond."""
    wide = x[-1] - x[0]
    left = max(float(found.low), x[0] - 12 * wide)
    right = min(float(found.high), x[-1] + 12 * wide)

    def inside(v):
        log_q = float(found.log_prob(torch.tensor(v, dtype=torch.float64)))
        return -np.exp(log_q) * log_q

    return quad(inside, left, right, epsabs=0, epsrel=1e-10, limit=400)[0]


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
