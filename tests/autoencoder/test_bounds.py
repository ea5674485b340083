"""Bounds whose imputations are drawn: of DeMissVAE, and of blocks."""

import pytest
import torch
from _vae_networks import IndependentNormalEncoder, NormalLatentCells
from oracles import GATE, z_mean
from torch import nn
from torch.distributions import Independent, Normal
from torch.testing import assert_close
from vaes import Curved, Given, log_evidence

from skvnce._core import models
from skvnce._core.random import global_stream, stream
from skvnce.autoencoder import losses
from skvnce.contrast.posteriors import Perceptron

# DeMissVAE: two gradients of one loss, and where they lead


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
def encoder(torch_seeded):
    network = Perceptron(torch.zeros(3), torch.ones(3), [5], 4)
    nn.init.normal_(network.layers[-1].weight)
    return IndependentNormalEncoder(network).double()


@pytest.fixture
def completed(torch_seeded):
    observed = torch.rand(N, 3) < 0.6
    return torch.randn(N, 3).double().where(observed, torch.randn(K, N, 3)), observed


def gradients(value, module):
    """Differentiate a mean of rows; zeros where a parameter has no part in it."""
    leaves = list(module.parameters())
    result = torch.autograd.grad(
        value.mean(), leaves, retain_graph=True, allow_unused=True
    )
    pairs = zip(result, leaves, strict=True)
    return [torch.zeros_like(p) if g is None else g for g, p in pairs]


def two_objectives(model, encoder, x, observed):
    """Compute eqs. (1) and (2) of each row, each in a pass of its own."""
    complete = torch.ones_like(x).bool()
    q = encoder(x, complete)
    z = models.draw_latents(q, stream(0), L, x)
    prior = model.prior().log_prob(z)
    seen = models.observed_log_prob(model.likelihood(z), x, observed) + prior
    whole = models.observed_log_prob(model.likelihood(z), x, complete) + prior
    return seen.mean((0, 1)), (whole - models.frozen(q).log_prob(z)).mean((0, 1))


def assert_equal(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs)


def test_one_loss_has_the_gradients_of_two(model, encoder, completed):
    loss = losses.demiss_vae(model, encoder, *completed, stream(0), L)
    by_theta, by_phi = two_objectives(model, encoder, *completed)
    assert_equal(gradients(loss, model), gradients(by_theta, model))
    assert_equal(gradients(loss, encoder), gradients(by_phi, encoder))
    for other, module in ((by_phi, model), (by_theta, encoder)):  # controls
        pairs = zip(gradients(loss, module), gradients(other, module), strict=True)
        assert any(abs(a - b).max() > 1e-3 for a, b in pairs)
    assert loss.shape == (N,)
    assert losses.COMPLETED_BOUNDS["demiss-vae"] is losses.demiss_vae


def test_the_value_is_a_bound(model, encoder, completed):
    """On average over many draws, that of the mixture of q over the imputations."""
    x, observed = completed
    with torch.no_grad():
        value = losses.demiss_vae(model, encoder, x, observed, stream(0), 400)
        exact = log_evidence(model, x[0], observed)
        q = encoder(x, torch.ones_like(x).bool())
        z = models.draw_latents(q, stream(0), 400, x)
    parts = [q.base_dist.mean, q.base_dist.stddev]
    parts = [v.detach().movedim(0, 1) for v in parts]  # (n, K, latents)
    mixture = Given([0.0] * K, torch.zeros(K, 2), torch.ones(K, 2), N)
    for place, part in zip(list(mixture.values)[1:], parts, strict=True):
        place.data = part
    assert_close(losses.averaged_log_prob(q, z), mixture(x, observed).log_prob(z))
    assert (value < exact).all()
    with torch.no_grad():
        many = [
            losses.miss_vae(model, mixture, x[0], observed, stream(i), 50)
            for i in range(99)
        ]
        few = [
            losses.demiss_vae(model, encoder, x, observed, stream(i), 13)
            for i in range(99)
        ]
    assert abs(z_mean(torch.stack(few) - torch.stack(many), 0.0)).max() < GATE


def test_without_gradient_the_value_is_the_same(model, encoder, completed):
    with torch.no_grad():
        value = losses.demiss_vae(model, encoder, *completed, stream(0), L)
    assert not value.requires_grad
    again = losses.demiss_vae(model, encoder, *completed, stream(0), L)
    assert_close(again.detach(), value)


def test_an_encoder_of_incomplete_rows_is_taught_beside(model, encoder, completed):
    """Its gradient is that of the ELBO; the model gets none, and the value is 0."""
    x, observed = completed
    result = losses.posterior_only(model, encoder, x[0], observed, stream(0), L)
    bound = losses.miss_vae(model, encoder, x[0], observed, stream(0), L)
    assert (result == 0).all()
    pairs = zip(gradients(result, encoder), gradients(bound, encoder), strict=True)
    for one, other in pairs:
        assert other.abs().max() > 0
        assert_close(one, other)
    assert all((gradient == 0).all() for gradient in gradients(result, model))


# Controls: one objective for model and posterior


def test_cvi_has_the_value_and_the_model_gradient_of_demiss(model, encoder, completed):
    result = losses.cvi_vae(model, encoder, *completed, stream(0), L)
    demiss = losses.demiss_vae(model, encoder, *completed, stream(0), L)
    assert_close(result, demiss)
    assert_equal(gradients(result, model), gradients(demiss, model))
    pairs = zip(gradients(result, encoder), gradients(demiss, encoder), strict=True)
    assert any(abs(a - b).max() > 1e-3 for a, b in pairs)


@pytest.mark.slow
def test_the_gradient_of_cvi_in_q_is_unbiased(model, encoder, completed, seed):
    """As that of eq. (3) without a frozen q; that of eq. (2) differs."""
    x, observed = completed
    everything = torch.ones_like(x).bool()

    def plain(model, encoder, x, observed, uniforms, n_draws):
        q = encoder(x, everything)
        z = models.draw_latents(q, uniforms, n_draws, x)
        joint = models.log_joint(model, x, observed, z)
        return (joint - losses.averaged_log_prob(q, z)).mean((0, 1))

    def sample(bound):
        streams = (stream(5000 * seed + i) for i in range(400))
        values = (bound(model, encoder, x, observed, one, 2) for one in streams)
        result = [gradients(value, encoder) for value in values]
        return torch.stack([torch.cat([g.flatten() for g in one]) for one in result])

    expected = sample(plain)
    for bound, same in ((losses.cvi_vae, True), (losses.mvb_vae, False)):
        apart = sample(bound) - expected  # at the same draws of z
        apart = apart[:, apart.std(0) > 1e-9]
        assert apart.shape[1] > 10
        assert (abs(z_mean(apart, 0.0)).max() < GATE) == same


def test_cvi_is_exact_for_a_posterior_that_ignores_imputations(seed, torch_seeded):
    """p(z | x_obs) of a linear model is another optimum of eq. (3), not of eq. (2)."""
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
    result = losses.cvi_vae(linear, posterior, x, observed, stream(seed), L)
    assert_close(result, log_evidence(linear, seen, observed))
    assert max(abs(g).max() for g in gradients(result, leaves)) < 1e-10
    result = losses.mvb_vae(linear, posterior, x, observed, stream(seed), L)
    assert max(abs(g).max() for g in gradients(result, leaves)) > 1e-3  # control


def test_mvb_is_the_elbo_of_completed_rows(model, encoder, completed):
    x, observed = completed
    result = losses.mvb_vae(model, encoder, x, observed, stream(0), L)
    elbo = losses.miss_vae(
        model, encoder, x, torch.ones_like(x).bool(), stream(0), L
    ).mean(0)
    assert_close(result, elbo)
    for module in (model, encoder):
        assert_equal(gradients(result, module), gradients(elbo, module))
    demiss = losses.demiss_vae(model, encoder, *completed, stream(0), L)
    assert_equal(gradients(result, encoder), gradients(demiss, encoder))
    pairs = zip(gradients(result, model), gradients(demiss, model), strict=True)
    assert any(abs(a - b).max() > 1e-3 for a, b in pairs)


# Block objectives: what their optima are, what they bound, and what they read


LOADINGS_VBGI, SCALE_VBGI = [[1.0], [-0.5], [0.4]], [0.4, 0.6, 0.5]
N_VBGI, MANY = 6, 4000


class Linear(nn.Module):
    """q(z | x) of factor analysis with one latent: exact, or off."""

    def __init__(self, wider=1.0):
        super().__init__()
        w = torch.tensor(LOADINGS_VBGI).double()[:, 0]
        scaled = w / torch.tensor(SCALE_VBGI).double() ** 2
        variance = 1 / (1 + w @ scaled)
        self.slopes = nn.Parameter(variance * scaled[None])
        self.deviation = nn.Parameter(wider * variance.sqrt())

    def forward(self, x, observed):
        return Independent(Normal(x @ self.slopes.T, self.deviation), 1)


class Decoded(nn.Module):
    """q(x_mis | z, x_obs) that is p(x_mis | z), or wider."""

    def __init__(self, wider=1.0):
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor(LOADINGS_VBGI).double())
        self.of_observed = nn.Parameter(torch.zeros(3, 3).double())
        self.deviation = nn.Parameter(wider * torch.tensor(SCALE_VBGI).double())

    def forward(self, x, observed, z):
        seen = x.where(observed, 0.0) @ self.of_observed
        return Normal(z @ self.slopes.T + seen, self.deviation)


def curved():
    return Curved([[1.0, 0.3], [-0.5, 0.8], [0.4, -0.6]], SCALE_VBGI)


@pytest.fixture
def cells(seed):
    torch.manual_seed(seed + 1)
    return NormalLatentCells(nn.Linear(5, 6)).double()


@pytest.fixture
def rows(torch_seeded):
    """Completed rows, their latents, and the mask."""
    x, z = torch.randn(2, N_VBGI, 3).double(), torch.randn(2, N_VBGI, 2).double()
    return x, z, torch.rand(N_VBGI, 3) < 0.6


def test_it_is_the_mean_of_two_blocks(encoder, cells, rows):
    x, z, observed = rows
    model, everything = curved(), torch.ones_like(x).bool()
    torch.manual_seed(0)
    result = losses.vbgi(model, encoder, cells, x, z, observed, stream(0))
    torch.manual_seed(0)
    q = cells(x, observed, z)
    some = q.rsample()
    moved = x.where(observed, some)
    second = models.log_joint(model, moved, everything, z)
    second = second + q.entropy().where(~observed, 0.0).sum(-1)
    first = losses.miss_vae(model, encoder, x, everything, stream(0))
    assert result.shape == (2, N_VBGI)
    assert_close(result, (first + second) / 2)


def test_complete_rows_have_the_elbo(encoder, rows):
    x, everything = rows[0], torch.ones(N_VBGI, 3).bool()
    result = losses.vbgi_marginal(curved(), encoder, x, everything, stream(0), 5)
    elbo = losses.miss_vae(curved(), encoder, x, everything, stream(0), 5)
    assert_close(result, elbo)
    other = losses.vbgi_marginal(curved(), encoder, x, rows[2], stream(0), 5)
    assert (result != other)[:, ~rows[2].all(1)].all()  # control


def test_the_bounds_are_below_the_likelihood(encoder, cells, rows):
    """On average; A that of the completed row, B that of the row and its latents."""
    x, z, observed = (v[:1] if v.dim() == 3 else v for v in rows)
    model, everything = curved(), torch.ones(N_VBGI, 3).bool()
    with torch.no_grad():
        marginal = losses.vbgi_marginal(
            model, encoder, x[0], observed, global_stream, MANY
        )
        assert (marginal < log_evidence(model, x[0], observed)).all()
        torch.manual_seed(0)
        copies = (v.expand(MANY, -1, -1) for v in (x[0], z[0]))
        second = losses.of_cells(model, cells, *copies, observed)
        exact = models.log_joint(model, x[0], observed, z[0])
        incomplete = ~observed.all(1)
        above = z_mean(second[:, incomplete], exact[incomplete])
        assert (above < GATE).all()  # nearly equal where q is right by chance
        assert above.min() < -GATE
        assert_close(second[:, ~incomplete], exact[~incomplete].expand(MANY, -1))
        first = losses.miss_vae(model, encoder, x[0], everything, global_stream, MANY)
        assert (first < log_evidence(model, x[0], everything)).all()


def test_the_posterior_of_completed_rows_reads_all_cells(rows):
    """Whatever the likelihood leaves out; the control is an encoder of what is seen."""
    x, _, observed = rows

    class ByMask(nn.Module):
        def forward(self, x, observed):
            seen = observed.to(x).mean(-1, keepdim=True)
            return Independent(Normal(seen.expand(*seen.shape[:-1], 2), 1.0), 1)

    model, everything = curved(), torch.ones_like(x).bool()
    assert not observed.all()
    result = losses.vbgi_marginal(model, ByMask(), x, observed, stream(0), 5)
    of_all = models.drawn_elbo(
        model, ByMask()(x, everything), x, observed, stream(0), 5
    )
    assert_close(result, of_all, rtol=0, atol=0)
    part = ByMask()(x, observed.expand(x.shape))
    of_some = models.drawn_elbo(model, part, x, observed, stream(0), 5)
    assert (result != of_some).any()


@pytest.mark.parametrize("garbage", [torch.nan, 1e6, -torch.inf])
def test_of_cells_reads_nothing_under_the_mask(cells, rows, garbage):
    x, z, observed = rows
    values = []
    for filled in (x, x.where(observed, garbage)):
        torch.manual_seed(0)
        values.append(losses.of_cells(curved(), cells, filled, z, observed))
        assert torch.equal(cells(filled, observed, z).loc, cells(x, observed, z).loc)
    assert torch.equal(*values)


# The gradient in the model, against that of log p(x_obs)

REPEATS, CHAINS = 200, 30


def conditional(model, x, observed):
    """Draw z and x_mis of the linear model given x_obs; (CHAINS, n, ...)."""
    w, scale = model.loadings.detach()[:, 0], model.log_scale.detach().exp()
    precision = 1 + (w.square() / scale**2 * observed).sum(1)
    residual = (x - model.mean.detach()).where(observed, 0.0)
    mean = (w / scale**2 * residual).sum(1) / precision
    z = mean + torch.randn(CHAINS, len(x)).double() / precision.sqrt()
    cells = model.likelihood(z[..., None])
    return x.where(observed, cells.sample()), z[..., None]


def marginal(model, x, observed):
    """Draw z of the prior and x_mis given z: the imputations do not see x_obs."""
    z = torch.randn(CHAINS, len(x), 1).double()
    return x.where(observed, model.likelihood(z).sample()), z


def objectives(model, x, observed):
    """The objectives at a state of the chains, with exact conditionals."""
    parts = Linear(), Decoded()
    return {
        "both": lambda x, z: losses.vbgi(model, *parts, x, z, observed, global_stream),
        "A": lambda x, z: losses.of_latents(model, parts[0], x, global_stream),
        "B": lambda x, z: losses.of_cells(model, parts[1], x, z, observed),
        "marginal": lambda x, z: losses.vbgi_marginal(
            model, parts[0], x, observed, global_stream
        ),
    }


@pytest.fixture
def learning(torch_seeded):
    """A linear model away from its optimum, and rows with missing cells."""
    model = Curved(LOADINGS_VBGI, SCALE_VBGI, bend=0.0, mean=[0.0] * 3)
    observed = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
    return model, 1.0 + torch.randn(4, 3).double(), observed


def distance(name, chains, learning):
    """Return the largest distance of the gradient in the model, in errors."""
    model, x, observed = learning
    leaves = list(model.parameters())
    exact = torch.autograd.grad(log_evidence(model, x, observed).mean(), leaves)
    bound, result = objectives(model, x, observed)[name], []
    for _ in range(REPEATS):
        with torch.no_grad():
            state = chains(model, x, observed)
        gradients = torch.autograd.grad(bound(*state).mean(), leaves)
        result.append(torch.cat([g.flatten() for g in gradients]))
    exact = torch.cat([g.flatten() for g in exact])
    return abs(z_mean(torch.stack(result), exact)).max()


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["both", "A", "B", "marginal"])
def test_the_gradient_in_the_model_is_that_of_the_likelihood(name, learning):
    """On average over draws of p(x_mis, z | x_obs); not if chains ignore x_obs."""
    assert distance(name, conditional, learning) < GATE
    assert distance(name, marginal, learning) > GATE


def test_the_gradient_in_q_is_that_of_the_likelihood(learning):
    """Zero, on average over any states of the chains; a wider q has another."""
    model, x, observed = learning

    def found(wider):
        parts = Linear(wider), Decoded(wider)
        leaves = [leaf for part in parts for leaf in part.parameters()]
        gradients = []
        for _ in range(REPEATS):
            z, cells = torch.randn(CHAINS, 4, 1), torch.randn(CHAINS, 4, 3)
            state = x.where(observed, cells.double()), z.double()
            value = losses.vbgi(model, *parts, *state, observed, global_stream)
            each = torch.autograd.grad(value.mean(), leaves)
            gradients.append(torch.cat([g.flatten() for g in each]))
        gradients = torch.stack(gradients)
        varies = gradients.std(0) > 1e-12  # exact in each draw elsewhere
        assert abs(gradients[:, ~varies]).max() < 1e-10
        return abs(z_mean(gradients[:, varies], 0.0)).max()

    assert found(1.0) < GATE
    assert found(1.2) > GATE
