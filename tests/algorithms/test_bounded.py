"""Bounded cells against draws by rejection, which are exact."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean, z_two_sample

from skvnce._incomplete import Incomplete
from skvnce._random import row_keyed, seeded
from skvnce.algorithms import bounded
from skvnce.models.gaussian import Normal

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
        free = bounded.gaussian.draw(NORMAL, data)[0].numpy()
    assert (drawn[:, 2] == ROW[2]).all()
    a, b, c = (first_and_second(x[:, :2]) for x in (exact, drawn, free))
    assert np.abs(z_two_sample(a, b)).max() < GATE
    # negative control: clipping is not truncation
    clipped = first_and_second(np.clip(free[:, :2], LOW[:2].numpy(), HIGH[:2].numpy()))
    assert np.abs(z_two_sample(a, clipped)).max() > GATE
    assert np.abs(z_two_sample(a, c)).max() > GATE


def test_means(seed):
    exact = by_rejection(np.random.default_rng(seed))
    rows = np.stack([ROW, [np.nan, 0.5, 0.4], [0.1, 0.2, np.nan], [0.0, 5.0, 0.0]])
    data = Incomplete.from_array(rows)
    touched, mean = bounded.conditional_mean(
        NORMAL, data, LOW, HIGH, row_keyed(rows, seed), lambda c: c.mean, n_steps=4000
    )
    assert touched.tolist() == [True, True, False, False]
    spread = exact.std(0) / np.sqrt(len(exact)) + exact.std(0) / np.sqrt(2000)
    assert (abs(mean[0, :2].numpy() - exact.mean(0)) < GATE * spread).all()
    # one missing cell: exact
    precision = np.linalg.inv(COVARIANCE)
    loc = -precision[0, 1:] @ rows[1, 1:] / precision[0, 0]
    one = bounded.BoundedNormal(
        torch.tensor(loc), torch.tensor(precision[0, 0] ** -0.5), LOW[0], HIGH[0]
    )
    assert float(mean[1, 0]) == pytest.approx(float(one.mean), abs=1e-12)
    assert np.abs(z_mean(exact, [loc, loc])).max() > GATE


def test_means_are_functions_of_the_row():
    rows = np.stack([ROW, [np.nan, np.nan, 1.0], [np.nan, 0.3, 0.4]])

    def mean(rows):
        return bounded.conditional_mean(
            NORMAL,
            Incomplete.from_array(rows),
            LOW,
            HIGH,
            row_keyed(rows, 0),
            lambda c: c.mean,
        )[1].numpy()

    np.testing.assert_array_equal(mean(rows)[::-1], mean(rows[::-1]))
