"""Mixtures of normals: density, draws, and the implicit gradient of draws."""

import pytest
import torch
from oracles import GATE, z_mean
from torch.distributions import Independent, Normal
from vaes import grid

from skvnce._core.distributions.families import NormalMixture

LOGITS = torch.tensor([0.3, -0.4, 0.6]).double()
LOC = torch.tensor([[-1.0, 0.5], [1.5, 1.0], [0.2, -0.7]]).double()
SCALE = torch.tensor([[0.5, 0.8], [0.4, 0.6], [1.0, 0.5]]).double()
N = 20000


def leaves(n=N):
    """Give every replicate parameters of its own."""
    values = [v.expand(n, *v.shape).clone() for v in (LOGITS, LOC, SCALE.log())]
    return [v.requires_grad_() for v in values]


def mixture(logits, loc, log_scale):
    return NormalMixture(logits, loc, log_scale.exp())


def numbers(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=dtype)


def test_mean_and_variance_are_those_of_the_density():
    z, weights = grid(2, length=9.0, n_points=150)
    q = NormalMixture(LOGITS, LOC, SCALE)
    density = q.log_prob(z).exp() * weights
    assert float(density.sum()) == pytest.approx(1.0, abs=1e-9)
    torch.testing.assert_close(q.mean, density @ z)
    torch.testing.assert_close(q.variance, density @ (z - q.mean).square())


def test_draws_have_the_moments_of_the_mixture(torch_seeded):
    q = NormalMixture(LOGITS, LOC, SCALE)
    z = q.sample((N,))
    assert not z.requires_grad
    assert abs(z_mean(z, q.mean)).max() < GATE
    assert abs(z_mean((z - q.mean) ** 2, q.variance)).max() < GATE
    third = q.components().mean[2]  # control: one component alone
    assert abs(z_mean(z, third)).min() > GATE


def test_the_last_number_chooses_the_component():
    q = NormalMixture(LOGITS, LOC, SCALE / 100)
    uniform = torch.full((1000, 3), 0.5).double()
    uniform[:, -1] = torch.arange(1000) / 1000
    nearest = (q.at_uniform(uniform)[:, None] - LOC).norm(dim=-1).argmin(-1)
    assert (nearest.diff() >= 0).all()
    share = nearest.bincount().double() / 1000
    torch.testing.assert_close(share, LOGITS.softmax(-1), atol=2e-3, rtol=0)


def test_shapes():
    batch, sample = (4, 5), (2, 3)
    q = NormalMixture(LOGITS, LOC, SCALE).expand(batch)
    assert (q.batch_shape, q.event_shape) == (batch, (2,))
    assert q.mean.shape == q.variance.shape == (*batch, 2)
    assert q.components().batch_shape == (*batch, 3)
    z = q.rsample(sample)
    assert z.shape == (*sample, *batch, 2)
    assert q.log_prob(z).shape == (*sample, *batch)
    one = NormalMixture(LOGITS, LOC, SCALE)
    torch.testing.assert_close(q.log_prob(z), one.log_prob(z))


def transform(q, z):
    """Compute eq. (2) from the definition, with its products of densities."""
    weights, parts = q.logits.softmax(-1), []
    for d in range(z.shape[-1]):
        part = Normal(q.loc[..., d], q.scale[..., d])
        at = z[..., d, None]
        parts.append((weights * part.cdf(at)).sum(-1) / weights.sum(-1))
        weights = weights * part.log_prob(at).exp()
    return torch.stack(parts, -1)


def test_draws_move_so_that_their_transform_stays(seed):
    """``T(z + e dz; p + e dp) = T(z; p)`` up to e^2, for a direction dp of all."""
    generator = torch.Generator().manual_seed(seed)
    parameters, n = leaves(50), 50
    towards = [torch.randn(p.shape, generator=generator).double() for p in parameters]
    z = mixture(*parameters).at_uniform(numbers(seed, n, 3))
    moves = []
    for d in range(2):
        slope = torch.autograd.grad(z[:, d].sum(), parameters, retain_graph=True)
        pairs = zip(slope, towards, strict=True)
        moves.append(sum((s * t).flatten(1).sum(1) for s, t in pairs))
    dz = torch.stack(moves, -1)

    def change(e, moved=1.0):
        ends = [
            transform(
                mixture(*[p + s * t for p, t in zip(parameters, towards, strict=True)]),
                z + s * moved * dz,
            )
            for s in (e, -e)
        ]
        return float(abs(ends[0] - ends[1]).max().detach()) / (2 * e)

    assert change(1e-5) < 1e-6  # e^2 times a third derivative, and rounding
    assert change(1e-5, moved=0.9) > 1e-2  # control


def test_one_component_is_the_normal(seed):
    loc, scale = (v[:1].clone().requires_grad_() for v in (LOC, SCALE))
    one = NormalMixture(torch.zeros(1).double(), loc, scale)
    normal = Independent(Normal(loc[0], scale[0]), 1)
    uniform = numbers(seed, 100, 3)
    z, same = one.at_uniform(uniform), normal.base_dist.icdf(uniform[:, :-1])
    assert (z == same).all()
    assert (one.log_prob(z) == normal.log_prob(z)).all()
    ways = [torch.autograd.grad(v.pow(3).sum(), (loc, scale)) for v in (z, same)]
    for mine, theirs in zip(*ways, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_overflows_far_from_all_components(dtype):
    logits = torch.tensor([0.0, -80.0, 5.0], dtype=dtype, requires_grad=True)
    loc = torch.tensor([[-90.0, 3], [90, 0], [0, 500]], dtype=dtype, requires_grad=True)
    scale = torch.full((3, 2), 0.1, dtype=dtype, requires_grad=True)
    q = NormalMixture(logits, loc, scale)
    uniform = torch.cartesian_prod(*[torch.tensor([0.0, 0.5, 1.0], dtype=dtype)] * 3)
    far = torch.cartesian_prod(*[torch.tensor([-45.0, 1e3, 0.0], dtype=dtype)] * 2)
    for z in (q.at_uniform(uniform), q._moved(far)):
        assert z.isfinite().all()
        assert q.log_prob(z).isfinite().all()
        for row in z:
            gradients = torch.autograd.grad(
                row.sum(), (logits, loc, scale), retain_graph=True
            )
            assert all(g.isfinite().all() for g in gradients)


def test_a_draw_has_its_value_without_gradient(seed):
    parameters = leaves(5)
    q, uniform = mixture(*parameters), numbers(seed, 5, 3)
    with torch.no_grad():
        z = q.at_uniform(uniform)
    assert not z.requires_grad
    assert (z == q.at_uniform(uniform)).all()
