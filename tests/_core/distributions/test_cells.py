"""Cells of each family against scipy, their quantiles, and what nobody observed."""

import numpy as np
import pytest
import torch
from scipy import stats
from vaes import families

from skvnce._core.distributions.cells import Cells, ScoredCells
from skvnce._core.models import observed_log_prob


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


# columns 0 normal, 1 student, 2 two-valued, 3 of four values, 4 of two, padded
PAIR = (-0.5, 2.0)
VALUES = [[-1.0, 0.0, 0.5, 2.0], [-0.7, 1.4, 1.4, 1.4]]
EDGES = [[-1.5, -0.5, 0.25, 1.25, 2.75], [-1.75, 0.35, 2.45, 2.45, 2.45]]
ALL = families([1], [2], [3, 4], [PAIR], VALUES, EDGES)
ROWS = [
    [0.3, -1.2, -0.5, -1.0, -0.7],
    [-2.0, 25.0, 2.0, 0.0, 1.4],
    [0.0, 0.7, 2.0, 0.5, 1.4],
    [4.0, -0.1, -0.5, 2.0, -0.7],
]


@pytest.fixture
def parameters(seed):
    generator = torch.Generator().manual_seed(seed)
    loc, log_scale = torch.randn(2, 4, 5, generator=generator).double()
    return loc, log_scale.exp()


def log_share(low, high):
    """Compute the log-probability of intervals, in the lower tail, for precision."""
    upper = low > 0
    low, high = np.where(upper, -high, low), np.where(upper, -low, high)
    low, high = stats.norm.logcdf(low), stats.norm.logcdf(high)
    return high + np.log1p(-np.exp(low - high))


def exact_log_prob(loc, scale):
    """Compute all cells of ROWS by scipy."""
    x, loc, scale = np.array(ROWS), loc.numpy(), scale.numpy()
    result = np.empty_like(x)
    result[:, 0] = stats.norm.logpdf(x[:, 0], loc[:, 0], scale[:, 0])
    result[:, 1] = stats.t.logpdf(x[:, 1], 4, loc[:, 1], scale[:, 1])
    larger = x[:, 2] == PAIR[1]
    result[:, 2] = stats.bernoulli.logpmf(larger, 1 / (1 + np.exp(-loc[:, 2])))
    for column, values, edges in zip((3, 4), VALUES, EDGES, strict=True):
        place = np.array([values.index(v) for v in x[:, column]])
        low, high = (
            (np.array(edges)[place + k] - loc[:, column]) / scale[:, column]
            for k in (0, 1)
        )
        result[:, column] = log_share(low, high)
    return result


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float64, 1e-9), (torch.float32, 2e-5)]
)
def test_every_family_against_scipy(dtype, rtol, parameters):
    cells = Cells(*(p.to(dtype) for p in parameters), ALL)
    log_prob = cells.log_prob(torch.tensor(ROWS, dtype=dtype))
    assert log_prob.dtype == dtype
    expected = exact_log_prob(*parameters)
    np.testing.assert_allclose(log_prob, expected, rtol=rtol, atol=rtol)
    many = cells.log_prob(torch.tensor(ROWS, dtype=dtype).expand(3, 2, 4, 5))
    torch.testing.assert_close(many, log_prob.expand(3, 2, 4, 5))  # leading dimensions


def test_without_other_families_all_are_normal(parameters):
    x = exact(ROWS)
    expected = torch.distributions.Normal(*parameters).log_prob(x)
    assert torch.equal(Cells(*parameters, families()).log_prob(x), expected)
    assert not torch.equal(Cells(*parameters, ALL).log_prob(x), expected)


def one_rounded(loc, scale, values, edges):
    column = families(rounded=[0], values=[values], edges=[edges])
    return Cells(loc, scale, column)


@pytest.mark.parametrize("loc", [-30.0, -9.0, 9.0, 30.0])
@pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 2e-5)]
)
def test_far_tails_have_their_logarithms(loc, dtype, rtol):
    """Differences of the cdf are 0 there, or have lost their digits."""
    at, scale = (torch.tensor([v], dtype=dtype) for v in (loc, 1.0))
    result = one_rounded(at, scale, [-0.5, 0.5], [-1.0, 0.0, 1.0])
    log_prob = result.log_prob(torch.tensor([[-0.5], [0.5]], dtype=dtype))[:, 0]
    for value, low, high in zip(log_prob, (-1.0, 0.0), (0.0, 1.0), strict=True):
        a, b = (low - loc, high - loc) if loc > 0 else (loc - high, loc - low)
        above, below = stats.norm.logcdf([b, a])
        expected = above + np.log1p(-np.exp(below - above))
        np.testing.assert_allclose(value, expected, rtol=rtol)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nothing_is_infinite_however_far(dtype):
    loc = torch.tensor([-1e6, -60.0, 0.0, 60.0, 1e6], dtype=dtype)[:, None]
    loc.requires_grad_()
    log_scale = torch.full((5, 1), -3.0, dtype=dtype, requires_grad=True)
    result = one_rounded(loc, log_scale.exp(), [-0.5, 0.5], [-1.0, 0.0, 1.0])
    log_prob = result.log_prob(torch.full((5, 1), 0.5, dtype=dtype))
    log_prob.sum().backward()
    for value in (log_prob, loc.grad, log_scale.grad):
        assert value.isfinite().all()
    assert (log_prob[[0, 1, 3, 4]] < -1000).all()


def test_gradients(parameters):
    x = exact(ROWS)
    loc, scale = (p.clone().requires_grad_() for p in parameters)
    assert torch.autograd.gradcheck(
        lambda loc, scale: Cells(loc, scale, ALL).log_prob(x), (loc, scale)
    )
    gradient = torch.autograd.grad(Cells(loc, scale, ALL).log_prob(x).sum(), loc)[0]
    assert (gradient != 0).all()  # control: gradcheck is content with constants


def test_values_that_nobody_has_are_the_nearest(parameters):
    """In new rows; in padded columns as in others."""
    x, off = (exact(ROWS) for _ in range(2))
    off[:, 3:] += torch.where(off[:, 3:] > 0, 0.2, -0.2)
    off[1, 3:] = exact([0.1, 50.0])  # beyond the last edge
    off[3, 3:] = exact([50.0, -50.0])
    cells = Cells(*parameters, ALL)
    expected = cells.log_prob(x)[:, 3:]
    torch.testing.assert_close(cells.log_prob(off)[:, 3:], expected, rtol=0, atol=0)
    near = ALL.nearest(off[:, 3:])
    assert torch.equal(near, x[:, 3:])


# Quantiles


def uniforms(n=2001, dtype=torch.float64):
    least = torch.finfo(dtype).eps / 2
    u = torch.linspace(0, 1, n, dtype=dtype).clamp(least, 1 - least)
    return u[:, None, None].expand(n, 4, 5)


def test_quantiles_invert_the_distribution_functions(parameters):
    (loc, scale), u = parameters, uniforms()
    x = Cells(loc, scale, ALL).icdf(u).numpy()
    u, loc, scale = u.numpy(), loc.numpy(), scale.numpy()
    for column, family in ((0, stats.norm), (1, stats.t(4))):
        standard = (x[..., column] - loc[:, column]) / scale[:, column]
        np.testing.assert_allclose(family.cdf(standard), u[..., column], atol=1e-8)
    larger = u[..., 2] > 1 - 1 / (1 + np.exp(-loc[:, 2]))
    np.testing.assert_array_equal(x[..., 2], np.where(larger, PAIR[1], PAIR[0]))
    for column, values, edges in zip((3, 4), VALUES, EDGES, strict=True):
        midpoints = np.array(edges[1:-1])
        normal = stats.norm.ppf(u[..., column], loc[:, column], scale[:, column])
        place = np.searchsorted(midpoints, normal)
        near_edge = np.abs(normal[..., None] - midpoints).min(-1) < 1e-9
        expected = np.array(values)[place]
        assert (near_edge | (x[..., column] == expected)).all()
        assert near_edge.mean() < 0.01
        assert set(np.unique(x[..., column])) == set(values)


@pytest.mark.parametrize("u", [1e-300, 1e-30, 1e-6, 0.01, 0.3, 0.7, 1 - 1e-9])
def test_quantiles_of_t(u):
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    quantiles = Cells(zero, one, families(student=[0])).icdf(exact([u]))
    np.testing.assert_allclose(quantiles, stats.t.ppf(u, 4), rtol=1e-7)


def test_quantiles_of_t_about_the_median():
    u = 0.5 + torch.linspace(-1e-3, 1e-3, 101).double()[:, None]
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    quantiles = Cells(zero, one, families(student=[0])).icdf(u)
    np.testing.assert_allclose(quantiles, stats.t.ppf(u, 4), atol=3e-8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_draws_are_finite_and_of_one_type(dtype, parameters):
    """Discrete columns have values alone, to the last digit of their type."""
    cells = Cells(*(p.to(dtype) for p in parameters), ALL)
    x = cells.icdf(uniforms(dtype=dtype))
    assert x.dtype == dtype and x.isfinite().all()
    for column, values in ((2, PAIR), (3, VALUES[0]), (4, VALUES[1])):
        assert torch.isin(x[..., column], torch.tensor(values, dtype=dtype)).all()
    assert cells.log_prob(x).isfinite().all()


# Missing cells


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -1e30])
def test_values_under_the_mask_are_never_read(junk, parameters, seed):
    loc, scale = (p.clone().requires_grad_() for p in parameters)
    torch.manual_seed(seed)
    x, observed = exact(ROWS), torch.rand(4, 5) < 0.5
    observed[0], observed[1] = False, True
    results = []
    for value in (0.0, junk):
        log_prob = observed_log_prob(
            Cells(loc, scale, ALL), x.masked_fill(~observed, value), observed
        )
        gradients = torch.autograd.grad(log_prob.sum(), (loc, scale))
        results.append((log_prob, *gradients))
    for mine, theirs in zip(*results, strict=True):
        assert torch.equal(mine, theirs)
    cells = torch.tensor(exact_log_prob(*parameters))
    torch.testing.assert_close(results[0][0].detach(), (cells * observed).sum(1))
    assert (results[0][1][~observed] == 0).all()


# Missing cells as numbers before rounding


def test_missing_cells_of_rounded_columns_are_normal(parameters):
    loc, scale = parameters
    observed = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 0, 0, 1]]).bool().repeat(2, 1)
    cells = Cells(loc, scale, ALL)
    result, plain = ScoredCells(cells, observed), cells.log_prob(exact(ROWS))
    normal = torch.distributions.Normal(loc, scale)
    expected = plain.clone()
    at = [3, 4]
    expected[:, at] = plain[:, at].where(
        observed[:, at], normal.log_prob(exact(ROWS))[:, at]
    )
    torch.testing.assert_close(result.log_prob(exact(ROWS)), expected)
    assert (expected != plain)[:, at].eq(~observed[:, at]).all()  # control
    level = torch.full((4, 5), 0.3).double()
    torch.testing.assert_close(result.icdf(level)[:, at], normal.icdf(level)[:, at])
    torch.testing.assert_close(result.icdf(level)[:, :3], cells.icdf(level)[:, :3])


def test_scores_of_missing_cells_have_a_finite_gradient(parameters):
    """Far from all values, too, where the probability of an interval is zero."""
    loc, scale = (p.float().requires_grad_() for p in parameters)
    x = torch.tensor(ROWS)
    x[:, 3:] = 1e3
    x.requires_grad_()
    missing = torch.zeros(4, 5).bool()
    value = ScoredCells(Cells(loc, scale, ALL), missing).log_prob(x)[:, 3:].sum()
    for gradient in torch.autograd.grad(value, (loc, scale, x)):
        assert gradient.isfinite().all()
        assert (gradient[:, 3:] != 0).all()


def test_cells_are_taken_from_several_draws(parameters):
    """Those at an index have the densities of the chosen draws."""
    loc, scale = (torch.stack([part, part + 0.5, part + 1.0]) for part in parameters)
    index = torch.tensor([[2, 0, 1, 1], [0, 0, 2, 1]])
    x = exact(ROWS)
    every = Cells(loc, scale, ALL).log_prob(x)
    log_prob = Cells(loc, scale, ALL).take(index).log_prob(x)
    for k, chosen in enumerate(index):
        for row, draw in enumerate(chosen):
            assert torch.equal(log_prob[k, row], every[draw, row])
    observed = torch.ones(4, 5).bool()
    scored = ScoredCells(Cells(loc, scale, ALL), ~observed)
    again = scored.take(index).log_prob(x)
    assert torch.equal(again[1, 1], scored.log_prob(x)[0, 1])
    assert not torch.equal(again, log_prob)
