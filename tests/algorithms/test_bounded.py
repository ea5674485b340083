"""Bounded cells against draws by rejection, which are exact."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean, z_two_sample
from scipy.stats import truncnorm

from skvnce._incomplete import Incomplete
from skvnce._random import row_keyed, seeded
from skvnce.algorithms import bounded, gaussian
from skvnce.distributions.bounded_normal import BoundedNormal
from skvnce.distributions.normal import Normal

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
        drawn = bounded.draw(NORMAL, data, LOW, HIGH, 1)[0].numpy()
        free = gaussian.draw(NORMAL, data)[0].numpy()
    assert (drawn[:, 2] == ROW[2]).all()
    a, b, c = (first_and_second(x[:, :2]) for x in (exact, drawn, free))
    assert np.abs(z_two_sample(a, b)).max() < GATE
    # negative control: clipping is not truncation
    clipped = first_and_second(np.clip(free[:, :2], LOW[:2].numpy(), HIGH[:2].numpy()))
    assert np.abs(z_two_sample(a, clipped)).max() > GATE
    assert np.abs(z_two_sample(a, c)).max() > GATE


def mean(rows, seed, **effort):
    """Fill rows by means within bounds, as `copula` does."""
    data = Incomplete.from_array(rows)
    filled = gaussian.conditional_mean(NORMAL, data)
    touched, shift = bounded.mean_shift(
        NORMAL, data, LOW, HIGH, row_keyed(rows, seed), lambda c: c.mean, **effort
    )
    filled[touched] += shift
    return touched, filled.numpy()


def test_means(seed):
    exact = by_rejection(np.random.default_rng(seed))
    rows = np.stack([ROW, [np.nan, 0.5, 0.4], [0.1, 0.2, np.nan], [0.0, 5.0, 0.0]])
    touched, filled = mean(rows, seed, n_steps=2000)
    assert touched.tolist() == [True, True, False, False]
    spread = exact.std(0) / np.sqrt(len(exact)) + exact.std(0) / np.sqrt(1000)
    assert (abs(filled[0, :2] - exact.mean(0)) < GATE * spread).all()
    # with the effort that is the default
    quick = mean(rows, seed)[1]
    assert (abs(quick[0, :2] - exact.mean(0)) < 0.15 * exact.std(0)).all()
    # one missing cell: exact
    precision = np.linalg.inv(COVARIANCE)
    loc = -precision[0, 1:] @ rows[1, 1:] / precision[0, 0]
    one = BoundedNormal(
        torch.tensor(loc), torch.tensor(precision[0, 0] ** -0.5), LOW[0], HIGH[0]
    )
    assert filled[1, 0] == pytest.approx(float(one.mean), abs=1e-12)
    assert np.abs(z_mean(exact, [loc, loc])).max() > GATE


def test_idle_bounds_cost_no_accuracy(seed):
    """Chains with and without bounds agree where bounds do not bind."""
    rows = np.array([[np.nan, np.nan, 2.5], [np.nan, 2.4, 2.5]])
    data = Incomplete.from_array(rows)
    low = torch.tensor([-1.9, -1.9, -torch.inf]).double()  # three spreads below
    touched, shift = bounded.mean_shift(
        NORMAL, data, low, -low.flip(0) + 99, row_keyed(rows, seed), lambda c: c.mean
    )
    assert touched.any()
    assert shift.abs().max() < 0.01


def test_draws_of_strongly_correlated_cells(seed):
    """Where Gibbs steps would hardly move."""
    covariance = torch.tensor([[1.0, 0.9999], [0.9999, 1.0]]).double()
    normal = Normal(torch.tensor([0.5, 0.5]).double(), covariance)
    data = Incomplete(torch.zeros(20_000, 2).double(), torch.zeros(20_000, 2).bool())
    low, high = torch.zeros(2).double(), torch.full((2,), torch.inf).double()
    with seeded(seed):
        drawn = bounded.draw(normal, data, low, high, 1)[0].numpy()
    rng = np.random.default_rng(seed)
    exact = rng.multivariate_normal([0.5, 0.5], covariance.numpy(), size=40_000)
    exact = exact[(exact > 0).all(1)]
    assert np.abs(z_two_sample(exact, drawn)).max() < GATE


def test_rows_that_no_try_brings_inside_are_drawn_by_chains(seed):
    normal = Normal(torch.full((2,), -6.0).double(), torch.eye(2).double())
    data = Incomplete(torch.zeros(2000, 2).double(), torch.zeros(2000, 2).bool())
    low, high = torch.zeros(2).double(), torch.full((2,), torch.inf).double()
    with seeded(seed):
        drawn = bounded.draw(normal, data, low, high, 1)[0].numpy()
    exact = truncnorm(6, np.inf, -6).mean()
    assert np.abs(z_mean(drawn, exact)).max() < GATE
    assert np.abs(z_mean(drawn, 1.1 * exact)).max() > GATE


def test_means_are_functions_of_the_row():
    rows = np.stack([ROW, [np.nan, np.nan, 1.0], [np.nan, 0.3, 0.4]])
    np.testing.assert_array_equal(mean(rows, 0)[1][::-1], mean(rows[::-1], 0)[1])
