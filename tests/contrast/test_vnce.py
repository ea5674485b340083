"""VNCE against NCE, by enumeration of a finite latent space."""

import numpy as np
import pytest
import torch

from skvnce._core.models import Draws
from skvnce.contrast.objective import (
    data_term,
    divergence,
    log_marginal,
    log_ratio,
    nce,
    vnce,
)

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


def problem(seed):
    """Make log ratios with z drawn from q, and those with z summed out."""
    rng = np.random.default_rng(seed)
    posterior = probabilities(rng)
    q = probabilities(rng)
    log_marginal, log_noise = torch.tensor(rng.normal(size=(2, N_X)))
    log_phi = log_marginal[:, None] + (posterior.double() / TOTAL).log()
    with_z = log_phi - (q.double() / TOTAL).log() - log_noise[:, None]
    return draws(with_z, q), log_marginal - log_noise


def test_the_log_ratio_by_hand():
    """log phi(x, z) - log q(z) - log p_y, of two draws of three rows."""
    x = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
    z = torch.tensor([[0.5, 0.0, -1.0], [2.0, 1.0, 3.0]])
    log_q = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    ratio = log_ratio(
        lambda x, z: x * z,
        Draws((x, z), log_q, torch.full((2, 3), 0.5)),
        torch.tensor([1.0, 10.0, 100.0]),
    )
    expected = [[0.5 - 1.1, 0.0 - 10.2, -4 - 100.3], [2 - 1.4, 2 - 10.5, 12 - 100.6]]
    torch.testing.assert_close(ratio, torch.tensor(expected))


@pytest.mark.parametrize("nu", RATIOS)
def test_equal_draws_give_nce(nu, seed):
    data, noise = np.random.default_rng(seed).normal(size=(2, 8))
    data, noise = torch.tensor(data), torch.tensor(noise[:5])
    for n_draws in (1, 4):
        loss = vnce(data.expand(n_draws, -1), noise.expand(n_draws, -1), nu)
        expected = nce(data, noise, nu)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("nu", RATIOS)
def test_only_the_data_term_is_a_bound(nu, seed):
    with_z, without = problem(seed)
    loss = vnce(with_z, with_z, nu)
    unlikely = torch.full((1, 1), -1e9).double()  # noise of which the model is sure
    noise_term = loss - vnce(with_z, unlikely, nu)
    sure = torch.full((1,), 1e9).double()
    torch.testing.assert_close(noise_term, nce(sure, without, nu))


def test_sure_answers_stay_finite():
    far = torch.tensor([[1e4, -1e4], [-1e4, -1e4]]).double().requires_grad_()
    values = [vnce(far, far, 2.0), divergence(far, far[0], 2.0).sum()]
    for value in values:
        (gradient,) = torch.autograd.grad(value, far)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_weights_repeat_draws(seed):
    with_z, _ = problem(seed)
    some, counts = with_z[::3], torch.tensor([1, 2, 3, 2])
    weight = (counts / counts.sum().double()).log()[:, None].expand_as(some)
    repeated = some.repeat_interleave(counts, 0)
    weights = {"data_weight": weight, "noise_weight": weight}
    result, expected = vnce(some, some, 2.0, **weights), vnce(repeated, repeated, 2.0)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
    assert (vnce(some, some, 2.0) - result).abs() > 1e-6
    result = divergence(some, with_z[0], 2.0, weight)
    torch.testing.assert_close(result, divergence(repeated, with_z[0], 2.0))


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_draw_of_weight_zero_does_not_count(value, torch_seeded):
    ratio = torch.randn(3, 5).double()
    with_junk = torch.cat([ratio, torch.full((1, 5), value)]).requires_grad_()
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0]).double().div(3).log()[:, None]
    weight = weight.expand(4, -1)
    for function in (
        lambda ratio, weight: data_term(ratio, 2.0, weight),
        log_marginal,
        lambda ratio, weight: divergence(ratio, torch.ones(5).double(), 2.0, weight),
    ):
        result = function(with_junk, weight)
        expected = function(ratio, None)
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-14)
        (gradient,) = torch.autograd.grad(result.sum(), with_junk)
        assert (gradient[3] == 0).all()
        assert (gradient[:3] != 0).all()
