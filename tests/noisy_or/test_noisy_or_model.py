"""Noisy-OR against brute force with scipy's logarithms and sums over all states."""

from itertools import product

import numpy as np
import pytest
import torch
from _enumerated_causes import all_states, enumerate_joint, log_likelihood
from tables import cells_of

from skvnce.noisy_or.model import NoisyOrModel, gather, log1mexp

D, K, N = 6, 3, 8


@pytest.fixture
def model(rng):
    sizes = (rng.gamma(1.0, size=(D, K)) + 0.01, rng.gamma(0.3, size=D) + 0.01)
    prior = rng.uniform(0.1, 0.6, K)
    return NoisyOrModel(*map(torch.tensor, (*sizes, prior))), (*sizes, prior)


@pytest.fixture
def table(seed):
    rng = np.random.default_rng([seed, 1])
    x = (rng.uniform(size=(N, D)) < 0.5).astype(float)
    x[rng.uniform(size=x.shape) < 0.2] = np.nan
    return x


def test_the_logarithm_is_exact_for_small_and_large_arguments():
    s = torch.tensor(
        [1e-300, 1e-12, 1e-3, 0.6931, 0.6932, 1.0, 30.0, 700.0], dtype=torch.float64
    )
    expected = [np.log(-np.expm1(-v)) for v in s.tolist()[:6]]
    expected += [-np.exp(-30.0), -np.exp(-700.0)]
    np.testing.assert_allclose(log1mexp(s), expected, rtol=1e-12)


def test_its_gradient_is_finite_everywhere():
    s = torch.tensor([1e-8, 0.5, 1.0, 800.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(log1mexp(s).sum(), s)
    expected = [1e8, 1 / np.expm1(0.5), 1 / np.expm1(1.0), 0.0]
    np.testing.assert_allclose(slope, expected, rtol=1e-7, atol=1e-300)


def test_the_parameters_are_those_it_starts_from(model):
    result, given = model[0].causes(), model[1]
    np.testing.assert_allclose(result.weight.detach(), given[0], rtol=1e-10)
    np.testing.assert_allclose(result.leak.detach(), given[1], rtol=1e-10)
    np.testing.assert_allclose(result.prior_logit.sigmoid().detach(), given[2])


def joint_of(model, x):
    return enumerate_joint(gather(model[0].causes(), cells_of(x))).detach()


def by_hand(parameters, x):
    """Sum over all states with probabilities, not logarithms; (states, n)."""
    weight, leak, prior = parameters
    joint = []
    for z in product([0, 1], repeat=K):
        off = np.exp(-leak - weight @ np.array(z))
        cells = np.where(np.isnan(x), 1.0, np.where(x == 1, 1 - off, off))
        joint.append(cells.prod(1) * np.prod(np.where(z, prior, 1 - prior)))
    return np.array(joint)


def test_the_joint_of_all_states(model, table):
    result = joint_of(model, table)
    np.testing.assert_allclose(result.exp(), by_hand(model[1], table), rtol=1e-9)


def test_rows_filled_up_are_the_same(model, table):
    """Cells of other rows widen the list; what stands there is never read."""
    narrow = cells_of(table)
    columns, on, missing = (
        torch.cat([part, torch.zeros_like(part[:, :3])], 1) for part in narrow
    )
    columns[:, -3:] = torch.tensor([0, D - 1, 2])
    z = all_states(K)[:, None].expand(-1, N, -1)
    causes = model[0].causes()
    expected = log_likelihood(gather(causes, narrow), z)
    wide = narrow._replace(columns=columns, on=on, missing=missing)
    torch.testing.assert_close(log_likelihood(gather(causes, wide), z), expected)


def test_a_row_without_cells_is_certain(model):
    joint = joint_of(model, np.full((1, D), np.nan))
    assert float(joint.logsumexp(0)) == pytest.approx(0, abs=1e-12)
