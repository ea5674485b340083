"""Bounded cells against draws by rejection, which are exact."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean, z_two_sample
from scipy.stats import norm, truncnorm
from statistical import FAILURE, seed_limits, standard_errors, within_standard_errors

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.truncated_normal import BoundedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import row_lattice, seeded
from skvnce.gaussian import em, truncation

COVARIANCE = np.array([[1.0, 0.7, 0.5], [0.7, 1.0, 0.6], [0.5, 0.6, 1.0]])
NORMAL = Normal(torch.zeros(3).double(), torch.tensor(COVARIANCE))
LOW = torch.tensor([-0.2, 0.1, -torch.inf], dtype=torch.float64)
HIGH = torch.tensor([0.9, torch.inf, torch.inf], dtype=torch.float64)
ROW = np.array([np.nan, np.nan, 0.4])


def by_rejection(rng, n=60_000):
    gain = COVARIANCE[:2, 2] / COVARIANCE[2, 2]
    cov = COVARIANCE[:2, :2] - np.outer(gain, COVARIANCE[2, :2])
    drawn = rng.multivariate_normal(gain * ROW[2], cov, size=n)
    low, high = LOW.numpy()[:2], HIGH.numpy()[:2]
    return drawn[((drawn > low) & (drawn < high)).all(1)]


def test_draws(seed):
    exact = by_rejection(np.random.default_rng(seed))
    data = Incomplete.from_array(np.tile(ROW, (len(exact), 1)))
    with seeded(seed):
        drawn = truncation.draw(NORMAL, data, LOW, HIGH, 1)[0].numpy()
        free = em.draw(NORMAL, data)[0].numpy()
    assert (drawn[:, 2] == ROW[2]).all()
    a, b, c = (first_and_second(x[:, :2]) for x in (exact, drawn, free))
    assert np.abs(z_two_sample(a, b)).max() < GATE
    # negative control: clipping is not truncation
    clipped = first_and_second(np.clip(free[:, :2], LOW[:2].numpy(), HIGH[:2].numpy()))
    assert np.abs(z_two_sample(a, clipped)).max() > GATE
    assert np.abs(z_two_sample(a, c)).max() > GATE


def lattice(seed):
    return lambda part: row_lattice(part.to_array(), seed)


def filled(rows, seed, normal=NORMAL, low=LOW, high=HIGH):
    """Fill rows by means within bounds, as `copula` does."""
    data = Incomplete.from_array(rows)
    shift = truncation.mean_shift(normal, data, low, high, lattice(seed))
    return (em.conditional_mean(normal, data) + shift).numpy()


def test_means(seed):
    exact = by_rejection(np.random.default_rng(seed))
    rows = np.stack([ROW, [np.nan, 0.5, 0.4], [0.1, 0.2, np.nan], [0.0, 5.0, 0.0]])
    found = filled(rows, seed)
    std = exact.std(0)
    many = np.array([filled(rows, 20 * seed + i)[0, :2] for i in range(20)])
    errors = (many - exact.mean(0)) / std
    deviation = [0.032, 0.0134]  # of the lattices, over 60 seeds; their mean is 0.001
    limits = [seed_limits(0, one, 60, failure=FAILURE / 40)[1] for one in deviation]
    assert (abs(errors) < np.add(limits, standard_errors() / np.sqrt(len(exact)))).all()
    error = np.sqrt(np.square(deviation) / 20 + 1 / len(exact))
    assert within_standard_errors(errors.mean(0), 0.0, error)
    data = Incomplete.from_array(rows)
    free = em.conditional_mean(NORMAL, data).numpy()
    np.testing.assert_array_equal(found[2:], free[2:])  # no bound is near
    # one missing cell: exact
    precision = np.linalg.inv(COVARIANCE)
    loc = -precision[0, 1:] @ rows[1, 1:] / precision[0, 0]
    loc, scale = torch.tensor(loc), torch.tensor(precision[0, 0] ** -0.5)
    one = BoundedNormal(loc, scale, LOW[0], HIGH[0])
    assert found[1, 0] == pytest.approx(float(one.mean), abs=1e-12)
    # negative control
    assert (abs(free[0, :2] - exact.mean(0)) > 0.2 * std).any()


@pytest.mark.parametrize("low", [-0.5, 0.0, 1.0])
def test_means_of_cells_that_are_nearly_equal(low, seed, rng):
    """Three columns of small noise around one: chains over cells hardly move."""
    loading, noise = np.ones(4), np.array([0.01, 0.01, 0.01, 1.0])
    covariance = np.outer(loading, loading) + np.diag(noise)
    normal = Normal(torch.zeros(4).double(), torch.tensor(covariance))
    row = np.array([np.nan, np.nan, np.nan, 0.3])
    gain = covariance[:3, 3] / covariance[3, 3]
    given = covariance[:3, :3] - np.outer(gain, covariance[3, :3])
    exact = rng.multivariate_normal(gain * row[3], given, size=400_000)
    exact = exact[(exact > low).all(1)]
    bounds = torch.full((4,), low).double(), torch.full((4,), torch.inf).double()
    found = filled(row[None], seed, normal, *bounds)[0, :3]
    std = exact.std(0)
    standard_error = std / np.sqrt(len(exact))
    assert (abs(found - exact.mean(0)) < 0.05 * std + GATE * standard_error).all()


@pytest.mark.slow
def test_means_of_many_cells_near_their_bounds(seed):
    """Within 5 % of the conditional standard deviation, against exact draws."""
    d, rng = 12, np.random.default_rng(seed)
    loading = rng.uniform(0.3, 0.9, size=d)
    covariance = np.outer(loading, loading) + np.diag(1 - loading**2)
    normal = Normal(torch.full((d,), 0.8).double(), torch.tensor(covariance))
    low, high = torch.zeros(d).double(), torch.full((d,), torch.inf).double()
    found = filled(np.full((1, d), np.nan), seed, normal, low, high)[0]
    # given the factor, cells are independent and truncated
    factor, noise = rng.normal(size=200_000), np.sqrt(1 - loading**2)
    loc = 0.8 + factor[:, None] * loading
    weight = norm.cdf(loc / noise).prod(1)
    cells = truncnorm.mean(-loc[:2000] / noise, np.inf, loc[:2000], noise)
    mean = loc + noise * norm.pdf(loc / noise) / norm.cdf(loc / noise)
    np.testing.assert_allclose(mean[:2000], cells, rtol=1e-6)
    exact = weight @ mean / weight.sum()
    square = loc**2 + noise**2 + loc * (mean - loc)
    std = np.sqrt(weight @ square / weight.sum() - exact**2)
    assert (abs(found - exact) < 0.05 * std).all()
    assert (abs(0.8 - exact) > 0.2 * std).all()  # negative control


def test_means_of_curved_cells(seed):
    """Cells are functions of scores: quadrature over one, with a bound."""
    rows = np.array([[np.nan, 0.5, 0.4]])
    data = Incomplete.from_array(rows)
    gain = np.linalg.solve(COVARIANCE[1:, 1:], COVARIANCE[1:, 0])
    loc, scale = gain @ rows[0, 1:], np.sqrt(1 - gain @ COVARIANCE[1:, 0])

    def curved(rows, columns, scores):
        return torch.exp(scores)

    shift = truncation.mean_shift(NORMAL, data, LOW, HIGH, lattice(seed), curved)[0, 0]
    levels = (np.arange(20_000) + 0.5) / 20_000
    a, b = (-0.2 - loc) / scale, (0.9 - loc) / scale
    exact = np.exp(truncnorm.ppf(levels, a, b, loc, scale)).mean()
    exact -= np.exp(loc + scale**2 / 2)
    assert float(shift) == pytest.approx(exact, abs=2e-3)


def test_idle_bounds_cost_no_accuracy(seed):
    """Draws with and without bounds agree where bounds do not bind."""
    rows = np.array([[np.nan, np.nan, 2.5], [np.nan, 2.4, 2.5]])
    low = torch.tensor([-1.9, -1.9, -torch.inf]).double()  # three spreads below
    data, high = Incomplete.from_array(rows), -low.flip(0) + 99
    shift = truncation.mean_shift(NORMAL, data, low, high, lattice(seed))
    assert (shift != 0).any() and shift.abs().max() < 0.01


def test_draws_of_strongly_correlated_cells(seed, rng):
    """Where Gibbs steps would hardly move."""
    covariance = torch.tensor([[1.0, 0.9999], [0.9999, 1.0]]).double()
    normal = Normal(torch.tensor([0.5, 0.5]).double(), covariance)
    data = Incomplete(torch.zeros(20_000, 2).double(), torch.zeros(20_000, 2).bool())
    low, high = torch.zeros(2).double(), torch.full((2,), torch.inf).double()
    with seeded(seed):
        drawn = truncation.draw(normal, data, low, high, 1)[0].numpy()
    exact = rng.multivariate_normal([0.5, 0.5], covariance.numpy(), size=40_000)
    exact = exact[(exact > 0).all(1)]
    assert np.abs(z_two_sample(exact, drawn)).max() < GATE


def test_rows_that_no_try_brings_inside_are_drawn_with_weights(seed):
    normal = Normal(torch.full((2,), -6.0).double(), torch.eye(2).double())
    data = Incomplete(torch.zeros(2000, 2).double(), torch.zeros(2000, 2).bool())
    low, high = torch.zeros(2).double(), torch.full((2,), torch.inf).double()
    with seeded(seed):
        drawn = truncation.draw(normal, data, low, high, 1)[0].numpy()
    exact = truncnorm(6, np.inf, -6).mean()
    assert np.abs(z_mean(drawn, exact)).max() < GATE
    assert np.abs(z_mean(drawn, 1.2 * exact)).max() > GATE


def test_means_are_functions_of_the_row(seed):
    rows = np.stack([ROW, [np.nan, np.nan, 1.0], [np.nan, 0.3, 0.4]])
    np.testing.assert_array_equal(filled(rows, 0)[::-1], filled(rows[::-1], 0))
