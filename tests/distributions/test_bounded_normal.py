"""The normal distribution on an interval against scipy and direct quadrature."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import truncnorm

from skvnce.distributions.bounded_normal import BoundedNormal

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
