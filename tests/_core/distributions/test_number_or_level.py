"""Means over cells that are numbers or levels, against sums over all levels."""

import pytest
import torch
from oracles import GATE, z_mean
from torch.distributions import Categorical, Normal

from skvnce._core.distributions.cells import NumberOrLevel, drawn_once
from skvnce._core.distributions.families import UnivariateMixture
from skvnce._core.random import at_quantiles

SIZES = torch.tensor([0, 2, 3, 7, 0, 5])
WIDEST = 7


pytestmark = pytest.mark.usefixtures("torch_seeded")


def made(n=1, number=None):
    logits = torch.randn(n, len(SIZES), WIDEST, dtype=torch.float64, requires_grad=True)
    number = number or Normal(*torch.tensor([[[0.5]], [[2.0]]]).double())
    number = number.expand((n, len(SIZES)))
    return NumberOrLevel(number, logits, SIZES.expand(n, -1)), logits


def categoricals(logits):
    return {
        j: Categorical(logits=logits[:, j, :size])
        for j, size in enumerate(SIZES.tolist())
        if size
    }


def test_cells_have_the_densities_of_their_kinds():
    q, logits = made(4)
    value = torch.tensor([0.3, 1.0, 2.0, 6.0, -1.0, 4.0]).double().expand(4, -1)
    log_prob = q.log_prob(value)
    for j, one in categoricals(logits).items():
        torch.testing.assert_close(log_prob[:, j], one.log_prob(value[:, j]))
    numbers = [0, 4]
    expected = Normal(0.5, 2.0).log_prob(value[:, numbers])
    torch.testing.assert_close(log_prob[:, numbers], expected)


def test_quantiles_are_draws():
    q, logits = made()
    uniform = (torch.arange(2000).double() + 0.5)[:, None, None] / 2000
    drawn = at_quantiles(q, uniform.expand(-1, 1, len(SIZES)))
    for j, one in categoricals(logits).items():
        shares = torch.bincount(drawn[:, 0, j].long(), minlength=SIZES[j]) / 2000
        torch.testing.assert_close(shares, one.probs[0].float(), atol=1e-3, rtol=0)
    torch.testing.assert_close(drawn[:, 0, 0], Normal(0.5, 2.0).icdf(uniform[:, 0, 0]))


def test_all_levels_are_enumerated_exactly():
    """The mean of a function and its gradient are those of a sum over all levels."""
    q, logits = made(3)
    f = torch.randn(3, len(SIZES), WIDEST).double()
    candidates = q.candidates(WIDEST)
    levels = SIZES > 0
    part = f.gather(-1, candidates.values.long().clamp(0, WIDEST - 1))
    mean = (candidates.weights * part).sum(-1)[:, levels]
    exact = [
        (one.probs * f[:, j, : SIZES[j]]).sum(-1)
        for j, one in categoricals(logits).items()
    ]
    exact = torch.stack(exact, 1)
    torch.testing.assert_close(mean, exact)
    gradients = [
        torch.autograd.grad(one.sum(), logits, retain_graph=True)[0]
        for one in (mean, exact)
    ]
    torch.testing.assert_close(*gradients)
    entropy = [one.entropy() for one in categoricals(logits).values()]
    torch.testing.assert_close(candidates.entropy[:, levels], torch.stack(entropy, 1))


def test_numbers_are_drawn_once():
    q, _ = made(2)
    torch.manual_seed(0)
    candidates = q.candidates(3)
    torch.manual_seed(0)
    drawn = q.number.rsample()
    numbers = SIZES == 0
    torch.testing.assert_close(candidates.values[:, numbers, 0], drawn[:, numbers])
    assert candidates.weights[:, numbers].tolist() == [[[1.0, 0.0, 0.0]] * 2] * 2
    expected = q.number.entropy()[:, numbers]
    torch.testing.assert_close(candidates.entropy[:, numbers], expected)


@pytest.mark.parametrize("most", [2, 4])
def test_the_rest_is_estimated_without_bias(most):
    """Values and gradients, in q and in f, of one row repeated many times."""
    n = 20_000
    logits = torch.randn(1, len(SIZES), WIDEST).double()
    wide = logits.expand(n, -1, -1).clone().requires_grad_()
    number = Normal(torch.zeros(n, len(SIZES)).double(), 1.0)
    q = NumberOrLevel(number, wide, SIZES.expand(n, -1))
    f = torch.randn(len(SIZES), WIDEST).double()
    slopes = f.expand(n, -1, -1).clone().requires_grad_()
    candidates = q.candidates(most)
    assert candidates.values.shape[-1] == most
    mean = candidates.weights * slopes.gather(
        -1, candidates.values.long().clamp(0, WIDEST - 1)
    )
    mean = mean.sum(-1)
    gradients = torch.autograd.grad(mean[:, SIZES > 0].sum(), [wide, slopes])
    control = candidates.weights.detach().clone()
    codes = candidates.values[..., -1:].long().clamp(0, WIDEST - 1)
    control[..., -1:] = q.log_probabilities.exp().gather(-1, codes).detach()
    for j, one in categoricals(logits).items():
        p, level_values = one.probs[0], f[j, : SIZES[j]]
        exact = (p @ level_values), p * (level_values - p @ level_values), p
        parts = mean[:, j].detach(), *(g[:, j, : SIZES[j]] for g in gradients)
        for values, target in zip(parts, exact, strict=True):
            error = GATE * values.std(0) / n**0.5 + 1e-9
            assert ((values.mean(0) - target).abs() < error).all()
        if SIZES[j] > most:  # a draw of weight p is no mean over the others
            total = control[:, j].sum(-1)
            assert abs(z_mean(total, 1.0)) > 2 * GATE


def test_a_level_of_probability_zero_is_no_candidate():
    logits = torch.tensor([[0.0, -200.0, -300.0, -400.0]])
    number = Normal(torch.zeros(1), 1.0)
    candidates = NumberOrLevel(number, logits, torch.tensor([4])).candidates(3)
    assert candidates.weights[0].tolist() == [1.0, 0.0, 0.0]
    assert candidates.entropy[0] == pytest.approx(0, abs=1e-6)


def test_one_draw_of_a_mixture_has_its_density_as_entropy():
    q = UnivariateMixture(*torch.randn(2, 5, 3), torch.ones(5, 3))
    result = drawn_once(q)
    torch.testing.assert_close(result.entropy, -q.log_prob(result.values[:, 0]))
    assert (result.weights == 1).all()
