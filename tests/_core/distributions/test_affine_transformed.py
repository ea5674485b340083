"""Turned and shifted distributions against torch's, quadrature, and their moments."""

import pytest
import torch
from oracles import GATE, first_and_second, z_mean
from torch.distributions import Independent, MultivariateNormal, Normal
from vaes import grid

from skvnce._core.distributions.families import AffineTransformed, NormalMixture
from skvnce._core.models import draw_latents
from skvnce._core.random import draw, stream

K, N = 2, 20_000
LOC = torch.tensor([0.3, -0.4]).double()
ROOT = torch.tensor([[0.8, -0.5], [0.0, 0.6]]).double()
MIXTURE = (
    torch.tensor([0.3, -0.5]).double(),
    torch.tensor([[1.0, -0.5], [-0.8, 0.3]]).double(),
    torch.tensor([[0.7, 1.1], [0.5, 0.9]]).double(),
)


def some(seed, *batch, width=K):
    """Make loc, root, and shift and spread of a normal base."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    root = numbers(width, width).triu(1) + torch.diag_embed(numbers(width).exp())
    return numbers(width), root, numbers(width), numbers(width).exp()


def oblique(loc, root, shift, std):
    return AffineTransformed(Independent(Normal(shift, std), 1), loc, root)


def known(loc, root, shift, std):
    mean = loc + (root @ shift[..., None])[..., 0]
    return MultivariateNormal(mean, root @ torch.diag_embed(std**2) @ root.mT)


def numbers(seed, *shape):
    return stream(seed)(0, torch.empty(shape).double())


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("batch", [(), (3,), (3, 2)])
@pytest.mark.parametrize("sample", [(), (5,), (5, 4)])
def test_a_normal_base_is_a_normal_distribution(width, batch, sample, seed):
    parts = some(seed, *batch, width=width)
    q, exact = oblique(*parts), known(*parts)
    assert (q.batch_shape, q.event_shape) == (batch, (width,))
    z = torch.randn(*sample, *batch, width).double()
    torch.testing.assert_close(q.log_prob(z), exact.log_prob(z))
    torch.testing.assert_close(q.mean, exact.mean)


def test_values_broadcast_against_the_batch(seed):
    """As LAIR asks: each of m values of a row under each of c distributions of it."""
    parts = some(seed, 3, 4)  # c chains of 4 rows
    z = torch.randn(6, 4, K).double()
    expected = torch.stack([known(*parts).log_prob(value) for value in z])
    log_prob = oblique(*parts).log_prob(z[:, None])
    assert log_prob.shape == (6, 3, 4)
    torch.testing.assert_close(log_prob, expected)
    turned = oblique(*parts).log_prob(z[:, None].flip(-2))
    assert (turned != expected).all()  # control: rows in another order
    torch.testing.assert_close(  # fewer dimensions than the batch
        oblique(*parts).log_prob(z[0]), known(*parts).log_prob(z[0])
    )


# A mixture in place of the normal


def mixed(*batch):
    loc, root = LOC.expand(*batch, K), ROOT.expand(*batch, K, K)
    return AffineTransformed(NormalMixture(*MIXTURE).expand(batch), loc, root)


def exact_parts():
    """Return weights, means and covariances of the components of z."""
    logits, shift, std = MIXTURE
    means = LOC + shift @ ROOT.T
    return logits.softmax(0), means, ROOT @ torch.diag_embed(std**2) @ ROOT.T


def test_the_density_of_a_mixture(seed):
    weights, means, covariances = exact_parts()
    z, volume = grid(2, length=9.0, n_points=150)
    log_prob = mixed().log_prob(z)
    assert float(log_prob.exp() @ volume) == pytest.approx(1.0, abs=1e-9)
    inside = MultivariateNormal(means, covariances).log_prob(z[:, None])
    torch.testing.assert_close(log_prob, (weights.log() + inside).logsumexp(1))
    torch.testing.assert_close(mixed().mean, (log_prob.exp() * volume) @ z)


def test_components(seed):
    weights, means, covariances = exact_parts()
    parts, z = mixed(3).components(), torch.randn(5, 3, 2, K).double()
    assert (parts.batch_shape, parts.event_shape) == ((3, 2), (K,))
    exact = MultivariateNormal(means, covariances)
    torch.testing.assert_close(parts.log_prob(z), exact.log_prob(z))
    torch.testing.assert_close(parts.mean, means.expand(3, 2, K))
    torch.testing.assert_close(mixed(3).log_weights.exp(), weights.expand(3, 2))
    strata = draw_latents(parts, stream(seed), 7, LOC)
    assert strata.shape == (7, 3, 2, K)
    assert mixed(3).log_prob(strata.movedim(-2, 0)).shape == (2, 7, 3)


# Draws


def moments():
    weights, means, covariances = exact_parts()
    mean = weights @ means
    second = (weights[:, None, None] * covariances).sum(0) + torch.einsum(
        "c,ci,cj->ij", weights, means, means
    )
    i, j = torch.triu_indices(K, K)
    return torch.cat([mean, second[i, j]]).numpy()


def test_draws_of_a_mixture_have_its_moments(seed):
    drawn = draw(mixed(), numbers(seed, N, K + 1)).numpy()
    assert abs(z_mean(first_and_second(drawn), moments())).max() < GATE
    straight = AffineTransformed(NormalMixture(*MIXTURE), LOC, ROOT.diagonal().diag())
    other = draw(straight, numbers(seed, N, K + 1)).numpy()  # control
    assert abs(z_mean(first_and_second(other), moments())).max() > GATE


@pytest.mark.parametrize("least", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_uniform_numbers_give_finite_draws(least):
    ends = torch.full((4, K + 1), least).double()
    for q in (mixed(), mixed().components().expand((4, 2)), oblique(*some(0))):
        shape = 4, *q.batch_shape, K + 1
        assert draw(q, ends[0].expand(shape)).isfinite().all()


def test_draws_of_a_normal_carry_its_gradient():
    leaves = [part.requires_grad_() for part in some(1, 3)]
    uniform = numbers(1, 5, 3, K + 1)

    def drawn(loc, free_root, shift, std):
        return draw(oblique(loc, free_root.triu(), shift, std), uniform)

    assert oblique(*leaves).has_rsample
    assert torch.autograd.gradcheck(drawn, leaves)
    for gradient in torch.autograd.grad(drawn(*leaves).sum(), leaves):
        assert gradient.abs().sum() > 0


def test_draws_of_a_mixture_carry_its_gradient(seed):
    """The mean gradient of z_1 z_2 is that of its mean, for every parameter."""

    def leaves(n):
        values = (*MIXTURE, LOC, ROOT)
        return [v.expand(n, *v.shape).clone().requires_grad_() for v in values]

    logits, shift, std, loc, root = one = leaves(1)
    weight = logits.softmax(-1)[..., None]
    means = loc[:, None] + shift @ root.mT
    within = (root[:, None, 0] * root[:, None, 1] * std.square()).sum(-1)
    product = (weight[..., 0] * (within + means.prod(-1))).sum()
    exact = torch.autograd.grad(product, one)
    many = leaves(N)
    q = AffineTransformed(NormalMixture(*many[:3]), *many[3:])
    z = draw(q, numbers(seed, N, K + 1))
    gradients = torch.autograd.grad(z.prod(-1).sum(), many)
    for mine, true in zip(gradients, exact, strict=True):
        moving = mine.flatten(1).std(0) > 0  # not below the diagonal of the root
        assert moving.sum() >= mine[0].numel() - 1
        off = z_mean(mine.flatten(1)[:, moving], true.flatten()[moving])
        assert abs(off).max() < GATE
    wrong = z_mean(gradients[1].flatten(1), 1.2 * exact[1].flatten())
    assert abs(wrong).max() > GATE


def test_rows_may_share_one_root(seed):
    """An expanded root gives what its copies give."""
    loc, root, shift, std = some(seed, 3, width=4)
    single = root[0].expand(3, -1, -1)
    shared, copied = (oblique(loc, one, shift, std) for one in (single, single.clone()))
    z = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(seed)).double()
    torch.testing.assert_close(shared.log_prob(z), copied.log_prob(z))
    uniform = numbers(seed, 5, 3, 5)
    torch.testing.assert_close(draw(shared, uniform), draw(copied, uniform))
    torch.testing.assert_close(shared.mean, copied.mean)
    assert not torch.allclose(
        shared.log_prob(z), oblique(loc, root, shift, std).log_prob(z)
    )
