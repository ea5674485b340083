"""DeMissVAE: two gradients of one loss, and where they lead."""

import pytest
import torch
from oracles import GATE, z_mean
from torch import nn
from torch.distributions import Independent, Normal
from vaes import Curved, Given, log_evidence

from skvnce._core.models import frozen, log_joint, observed_log_prob
from skvnce._core.posteriors import draw_latents, stream
from skvnce.autoencoder.losses import (
    COMPLETED_BOUNDS,
    averaged_log_prob,
    cvi_vae,
    demiss_vae,
    miss_vae,
    mvb_vae,
    posterior_only,
)
from skvnce.autoencoder.networks import IndependentNormalEncoder
from skvnce.contrast.posteriors import Perceptron

LOADINGS, SCALE = [[1.0, 0.3], [-0.5, 0.8], [0.4, -0.6]], [0.4, 0.6, 0.5]
K, N, L = 4, 6, 3


class LearntPrior(Curved):
    """A model whose prior has a parameter."""

    def __init__(self):
        super().__init__(LOADINGS, SCALE)
        self.centre = nn.Parameter(torch.tensor([0.3, -0.2]).double())

    def prior(self):
        return Independent(Normal(self.centre, 1.0), 1)


@pytest.fixture
def model():
    return LearntPrior()


@pytest.fixture
def encoder(seed):
    torch.manual_seed(seed)
    network = Perceptron(torch.zeros(3), torch.ones(3), [5], 4)
    nn.init.normal_(network.layers[-1].weight)
    return IndependentNormalEncoder(network).double()


@pytest.fixture
def completed(seed):
    torch.manual_seed(seed)
    observed = torch.rand(N, 3) < 0.6
    return torch.randn(N, 3).double().where(observed, torch.randn(K, N, 3)), observed


def gradients(value, module):
    """Differentiate a mean of rows; zeros where a parameter has no part in it."""
    leaves = list(module.parameters())
    found = torch.autograd.grad(
        value.mean(), leaves, retain_graph=True, allow_unused=True
    )
    pairs = zip(found, leaves, strict=True)
    return [torch.zeros_like(p) if g is None else g for g, p in pairs]


def two_objectives(model, encoder, x, observed):
    """Compute eqs. (1) and (2) of each row, each in a pass of its own."""
    complete = torch.ones_like(x).bool()
    q = encoder(x, complete)
    z = draw_latents(q, stream(0), L, x)
    prior = model.prior().log_prob(z)
    seen = observed_log_prob(model.likelihood(z), x, observed) + prior
    whole = observed_log_prob(model.likelihood(z), x, complete) + prior
    return seen.mean((0, 1)), (whole - frozen(q).log_prob(z)).mean((0, 1))


def assert_equal(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_one_loss_has_the_gradients_of_two(model, encoder, completed):
    loss = demiss_vae(model, encoder, *completed, stream(0), L)
    by_theta, by_phi = two_objectives(model, encoder, *completed)
    assert_equal(gradients(loss, model), gradients(by_theta, model))
    assert_equal(gradients(loss, encoder), gradients(by_phi, encoder))
    for other, module in ((by_phi, model), (by_theta, encoder)):  # controls
        pairs = zip(gradients(loss, module), gradients(other, module), strict=True)
        assert any(abs(a - b).max() > 1e-3 for a, b in pairs)
    assert loss.shape == (N,)
    assert COMPLETED_BOUNDS["demiss-vae"] is demiss_vae


def test_backward_reaches_both(model, encoder, completed):
    by_theta, by_phi = two_objectives(model, encoder, *completed)
    demiss_vae(model, encoder, *completed, stream(0), L).mean().backward()
    assert_equal([p.grad for p in model.parameters()], gradients(by_theta, model))
    assert_equal([p.grad for p in encoder.parameters()], gradients(by_phi, encoder))


def test_the_value_is_a_bound(model, encoder, completed):
    """On average over many draws, that of the mixture of q over the imputations."""
    x, observed = completed
    with torch.no_grad():
        value = demiss_vae(model, encoder, x, observed, stream(0), 400)
        exact = log_evidence(model, x[0], observed)
        q = encoder(x, torch.ones_like(x).bool())
        z = draw_latents(q, stream(0), 400, x)
    parts = [q.base_dist.mean, q.base_dist.stddev]
    parts = [v.detach().movedim(0, 1) for v in parts]  # (n, K, latents)
    mixture = Given([0.0] * K, torch.zeros(K, 2), torch.ones(K, 2), N)
    for place, part in zip(list(mixture.values)[1:], parts, strict=True):
        place.data = part
    torch.testing.assert_close(
        averaged_log_prob(q, z), mixture(x, observed).log_prob(z)
    )
    assert (value < exact).all()
    with torch.no_grad():
        many = [
            miss_vae(model, mixture, x[0], observed, stream(i), 50) for i in range(99)
        ]
        few = [
            demiss_vae(model, encoder, x, observed, stream(i), 13) for i in range(99)
        ]
    assert abs(z_mean(torch.stack(few) - torch.stack(many), 0.0)).max() < GATE


def test_without_gradient_the_value_is_the_same(model, encoder, completed):
    with torch.no_grad():
        value = demiss_vae(model, encoder, *completed, stream(0), L)
    assert not value.requires_grad
    again = demiss_vae(model, encoder, *completed, stream(0), L)
    torch.testing.assert_close(again.detach(), value)


def test_complete_rows_have_the_gradients_of_the_elbo(model, encoder, completed):
    x = completed[0][0]
    observed = torch.ones_like(x).bool()
    loss = demiss_vae(model, encoder, x.expand(1, -1, -1), observed, stream(0), L)

    def same_numbers(step, template):
        wide = template.new_empty(len(template), 1, *template.shape[1:])
        return stream(0)(step, wide).squeeze(1)

    elbo = miss_vae(model, encoder, x, observed, same_numbers, L)
    torch.testing.assert_close(loss, elbo)
    assert_equal(gradients(loss, model), gradients(elbo, model))
    assert_equal(gradients(loss, encoder), gradients(elbo, encoder))


def test_an_encoder_of_incomplete_rows_is_taught_beside(model, encoder, completed):
    """Its gradient is that of the ELBO; the model gets none, and the value is 0."""
    x, observed = completed
    found = posterior_only(model, encoder, x[0], observed, stream(0), L)
    bound = miss_vae(model, encoder, x[0], observed, stream(0), L)
    assert (found == 0).all()
    for one, other in zip(
        gradients(found, encoder), gradients(bound, encoder), strict=True
    ):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other)
    assert all((gradient == 0).all() for gradient in gradients(found, model))


# Controls: one objective for model and posterior


def test_cvi_has_the_value_and_the_model_gradient_of_demiss(model, encoder, completed):
    found = cvi_vae(model, encoder, *completed, stream(0), L)
    demiss = demiss_vae(model, encoder, *completed, stream(0), L)
    torch.testing.assert_close(found, demiss)
    assert_equal(gradients(found, model), gradients(demiss, model))
    pairs = zip(gradients(found, encoder), gradients(demiss, encoder), strict=True)
    assert any(abs(a - b).max() > 1e-3 for a, b in pairs)


@pytest.mark.slow
@pytest.mark.sampled
def test_the_gradient_of_cvi_in_the_posterior_is_unbiased(
    model, encoder, completed, seed
):
    """As that of eq. (3) without a frozen q; that of eq. (2) differs."""
    x, observed = completed
    everything = torch.ones_like(x).bool()

    def plain(model, encoder, x, observed, uniforms, n_draws):
        q = encoder(x, everything)
        z = draw_latents(q, uniforms, n_draws, x)
        joint = log_joint(model, x, observed, z)
        return (joint - averaged_log_prob(q, z)).mean((0, 1))

    def sample(bound):
        streams = (stream(5000 * seed + i) for i in range(400))
        values = (bound(model, encoder, x, observed, one, 2) for one in streams)
        found = [gradients(value, encoder) for value in values]
        return torch.stack([torch.cat([g.flatten() for g in one]) for one in found])

    expected = sample(plain)
    for bound, same in ((cvi_vae, True), (mvb_vae, False)):
        apart = sample(bound) - expected  # at the same draws of z
        apart = apart[:, apart.std(0) > 1e-9]
        assert apart.shape[1] > 10
        assert (abs(z_mean(apart, 0.0)).max() < GATE) == same


def test_cvi_is_exact_for_a_posterior_that_ignores_imputations(seed):
    """p(z | x_obs) of a linear model is another optimum of eq. (3), not of eq. (2)."""
    torch.manual_seed(seed)
    linear = Curved([[1.0], [-0.5], [0.4]], SCALE, bend=0.0)
    w, noise = linear.loadings[:, 0].detach(), torch.tensor(SCALE).double().square()
    observed = torch.tensor([[True, False, True], [False, True, False]])
    seen = torch.randn(2, 3).double()
    x = seen.where(observed, torch.randn(K, 2, 3))
    precision = 1 + (w.square() / noise * observed).sum(1)
    mean = (w / noise * seen * observed).sum(1) / precision
    loc, scale = (nn.Parameter(v[:, None]) for v in (mean, precision**-0.5))

    def posterior(x, observed):
        return Independent(Normal(loc, scale), 1).expand(x.shape[:-1])

    leaves = nn.ParameterList([loc, scale])
    found = cvi_vae(linear, posterior, x, observed, stream(seed), L)
    torch.testing.assert_close(found, log_evidence(linear, seen, observed))
    assert max(abs(g).max() for g in gradients(found, leaves)) < 1e-10
    found = mvb_vae(linear, posterior, x, observed, stream(seed), L)
    assert max(abs(g).max() for g in gradients(found, leaves)) > 1e-3  # control


def test_mvb_is_the_elbo_of_completed_rows(model, encoder, completed):
    x, observed = completed
    found = mvb_vae(model, encoder, x, observed, stream(0), L)
    elbo = miss_vae(model, encoder, x, torch.ones_like(x).bool(), stream(0), L).mean(0)
    torch.testing.assert_close(found, elbo)
    for module in (model, encoder):
        assert_equal(gradients(found, module), gradients(elbo, module))
    demiss = demiss_vae(model, encoder, *completed, stream(0), L)
    assert_equal(gradients(found, encoder), gradients(demiss, encoder))
    pairs = zip(gradients(found, model), gradients(demiss, model), strict=True)
    assert any(abs(a - b).max() > 1e-3 for a, b in pairs)
