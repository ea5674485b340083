"""Cells with bounds against scipy, and what missing ones say of the latents."""

import numpy as np
import pytest
import torch
from scipy import stats
from vaes import families

from skvnce._core.distributions.cells import BoundedCells, Cells, student_cdf
from skvnce._core.models import observed_log_prob

FAMILIES = families([1])  # student
PLACES = [0, 1]
LOW, HIGH = [-0.5, 0.2], [np.inf, 1.5]
LEVELS = [1e-6, 0.1, 0.5, 0.9, 1 - 1e-6]


@pytest.fixture
def parameters(seed):
    generator = torch.Generator().manual_seed(seed)
    loc, log_scale = torch.randn(2, 6, 3, generator=generator).double()
    return loc, log_scale.exp()


@pytest.fixture
def bounded(parameters):
    ends = (torch.tensor(end, dtype=torch.float64) for end in (LOW, HIGH))
    return BoundedCells(Cells(*parameters, FAMILIES), torch.tensor(PLACES), *ends)


def scipys(parameters):
    """Freeze the distributions of both bounded columns, without bounds."""
    loc, scale = (p.numpy() for p in parameters)
    first = stats.norm(loc[:, 0], scale[:, 0])
    return [first, stats.t(4, loc[:, 1], scale[:, 1])]


def between(exact, low, high):
    """Compute probabilities of intervals, in the tail in which they are accurate."""
    below, above = exact.cdf(high) - exact.cdf(low), exact.sf(low) - exact.sf(high)
    return np.where(exact.cdf(low) < 0.5, below, above)


def test_probabilities_of_the_bounds(bounded, parameters):
    log_inside = bounded.log_inside
    for j, exact in enumerate(scipys(parameters)):
        share = between(exact, LOW[j], HIGH[j])
        np.testing.assert_allclose(log_inside[:, j].exp(), share, rtol=1e-8)
    assert (log_inside[:, 2] == 0).all()


def test_quantiles_are_truncated(bounded, parameters):
    for level in LEVELS:
        quantiles = bounded.icdf(torch.full_like(parameters[0], level))
        for j, exact in enumerate(scipys(parameters)):
            share = between(exact, LOW[j], quantiles[:, j].numpy())
            share /= between(exact, LOW[j], HIGH[j])
            np.testing.assert_allclose(share, level, atol=1e-7)
            assert (quantiles[:, j] >= LOW[j]).all()
            assert (quantiles[:, j] <= HIGH[j]).all()
        free = stats.norm(parameters[0][:, 2], parameters[1][:, 2])
        np.testing.assert_allclose(quantiles[:, 2], free.ppf(level), rtol=1e-6)


def test_observed_cells_count_as_without_bounds(bounded, parameters):
    x = torch.full((6, 3), 0.7).double()
    plain = Cells(*parameters, FAMILIES)
    everything, nothing = torch.ones(6, 3).bool(), torch.zeros(6, 3).bool()
    expected = observed_log_prob(plain, x, everything)
    torch.testing.assert_close(observed_log_prob(bounded, x, everything), expected)
    missing = observed_log_prob(bounded, x, nothing)
    torch.testing.assert_close(missing, bounded.log_inside.sum(-1))
    assert (missing < 0).all()
    assert (observed_log_prob(plain, x, nothing) == 0).all()


def test_bounds_far_out_leave_draws_inside():
    loc, scale = torch.zeros(1, 3).double(), torch.ones(1, 3).double()
    ends = torch.tensor([1e3, 1e3]).double(), torch.tensor([1e3 + 1, np.inf]).double()
    far = BoundedCells(Cells(loc, scale, FAMILIES), torch.tensor(PLACES), *ends)
    result = far.icdf(torch.full_like(loc, 0.5))[0]
    assert 1e3 <= result[0] <= 1e3 + 1 and 1e3 <= result[1] < np.inf
    assert far.log_inside.isfinite().all()


def test_distribution_function_of_students_t():
    t = torch.tensor([-torch.inf, -50.0, -1.0, 0.0, 0.3, 4.0, torch.inf]).double()
    np.testing.assert_allclose(student_cdf(t), stats.t(4).cdf(t), atol=1e-14)
