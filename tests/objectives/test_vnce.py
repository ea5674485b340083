"""VNCE against NCE, by enumeration of a finite latent space."""

import numpy as np
import pytest
import torch

from skvnce.objectives.nce import nce
from skvnce.objectives.vnce import vnce

N_X, N_Z, TOTAL = 5, 3, 12
RATIOS = [0.5, 1.0, 10.0]


def probabilities(rng):
    """Draw tables of counts (N_X, N_Z), each of at least 1, that sum to TOTAL."""
    more = rng.multinomial(TOTAL - N_Z, np.ones(N_Z) / N_Z, size=N_X)
    return torch.tensor(more + 1)


def draws(table, counts):
    """Repeat the values of each z as often as q draws it; (TOTAL, N_X).

    Averages over the draws are then exact expectations under q = counts / TOTAL.
    """
    return torch.stack(
        [row.repeat_interleave(n) for row, n in zip(table, counts, strict=True)], 1
    )


def problem(seed, exact):
    """Make log ratios with z drawn from q, and those with z summed out."""
    rng = np.random.default_rng(seed)
    posterior = probabilities(rng)
    q = posterior if exact else probabilities(rng)
    log_marginal, log_noise = torch.tensor(rng.normal(size=(2, N_X)))
    log_phi = log_marginal[:, None] + (posterior.double() / TOTAL).log()
    with_z = log_phi - (q.double() / TOTAL).log() - log_noise[:, None]
    return draws(with_z, q), log_marginal - log_noise


@pytest.mark.parametrize("nu", RATIOS)
def test_equal_draws_give_nce(nu, seed):
    data, noise = np.random.default_rng(seed).normal(size=(2, 8))
    data, noise = torch.tensor(data), torch.tensor(noise[:5])
    for n_draws in (1, 4):
        found = vnce(data.expand(n_draws, -1), noise.expand(n_draws, -1), nu)
        expected = nce(data, noise, nu).loss
        torch.testing.assert_close(found.loss, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("nu", RATIOS)
def test_equality_at_the_exact_posterior(nu, seed):
    for i in range(10):
        with_z, without = problem([seed, i], exact=True)
        found = vnce(with_z, with_z, nu).loss
        expected = nce(without, without, nu).loss
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("nu", RATIOS)
def test_it_bounds_nce_for_any_posterior(nu, seed):
    for i in range(20):
        with_z, without = problem([seed, i], exact=False)
        assert vnce(with_z, with_z, nu).loss > nce(without, without, nu).loss + 1e-6


@pytest.mark.parametrize("nu", RATIOS)
def test_only_the_data_term_is_a_bound(nu, seed):
    with_z, without = problem(seed, exact=False)
    found = vnce(with_z, with_z, nu)
    unlikely = torch.full((1, 1), -1e9).double()  # noise of which the model is sure
    data_term = vnce(with_z, unlikely, nu)
    torch.testing.assert_close(found.metrics["data_term"], data_term.loss)
    noise_term = found.loss - data_term.loss
    sure = torch.full((1,), 1e9).double()
    torch.testing.assert_close(noise_term, nce(sure, without, nu).loss)


def test_gradcheck(seed):
    torch.manual_seed(seed)
    parts = [torch.randn(3, n).double().requires_grad_() for n in (4, 6)]
    assert torch.autograd.gradcheck(lambda *parts: vnce(*parts, 2.0).loss, parts)
    assert not vnce(*parts, 2.0).metrics["data_term"].requires_grad
