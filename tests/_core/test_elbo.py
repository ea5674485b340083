"""Bounds of log p(x_obs): values against quadrature, and against one another."""

import pytest
import torch
from _vae_networks import IndependentNormalEncoder, MixtureEncoder
from oracles import GATE, z_mean, z_two_sample
from torch import nn
from torch.distributions import Bernoulli, Independent
from vaes import Curved, Given, Single, grid, log_evidence

from skvnce._core import models
from skvnce._core.random import stream
from skvnce.autoencoder.factor_analysis import FactorModel, log_prob_observed
from skvnce.autoencoder.losses import (
    BOUNDS,
    demiss_vae,
    miss_iwae,
    miss_siwae,
    miss_svae,
    miss_vae,
)
from skvnce.contrast.posteriors import Perceptron

LOADINGS = [[1.0, 0.3], [-0.5, 0.8], [0.4, -0.6]]
ROW = torch.tensor([[0.9, torch.nan, -0.4]]).double()
SEEN = ~ROW.isnan()
MIXTURE = (
    [0.2, -0.3, 0.1],
    [[0.8, -0.2], [-0.9, 0.4], [0.1, 1.0]],
    [[0.5, 0.6], [0.7, 0.4], [0.6, 0.8]],
)
ONE = tuple(v[:1] for v in MIXTURE)
N = 4000
SINGLE = [miss_vae, miss_iwae]
ALL = [*SINGLE, miss_svae, miss_siwae]


@pytest.fixture
def model():
    return Curved(LOADINGS, [0.4, 0.6, 0.5])


def rows(n):
    return ROW.expand(n, -1), SEEN.expand(n, -1)


def value(bound, model, posterior, seed, n_draws=1, n=N):
    with torch.no_grad():
        return bound(model, posterior, *rows(n), stream(seed), n_draws)


def exact_elbo(model, posterior):
    """Integrate the ELBO of the first row."""
    z, weights = grid(2)
    q = posterior(*rows(1))
    z = z.unsqueeze(1)
    log_q = q.log_prob(z)
    log_w = models.log_joint(model, *rows(1), z) - log_q
    return float(((log_q.exp() * log_w).squeeze(1) @ weights).detach())


def test_the_oracle_has_the_closed_form_of_a_linear_model(seed):
    linear = Curved(LOADINGS, [0.4, 0.6, 0.5], bend=0.0)
    scale = linear.log_scale.exp()
    factors = FactorModel(torch.zeros(3).double(), linear.loadings, scale.square())
    evidence = log_evidence(linear, *rows(1))
    torch.testing.assert_close(evidence, log_prob_observed(factors, *rows(1))[0])


def test_the_four_functions_of_log_weights():
    log_w = torch.tensor([[[0.3, -1.0], [0.7, 0.2]], [[-0.4, 1.1], [0.5, -2.0]]])
    log_pi = torch.tensor([[0.3, 0.9], [0.7, 0.1]]).log()
    flat = log_w[0]
    torch.testing.assert_close(models.elbo(flat), (flat[0] + flat[1]) / 2)
    mean = (flat[0].exp() + flat[1].exp()) / 2
    torch.testing.assert_close(models.iwelbo(flat), mean.log())
    first = 0.3 * (0.3 + 0.7) / 2 + 0.7 * (-0.4 + 0.5) / 2
    assert float(models.stratified_elbo(log_pi, log_w)[0]) == pytest.approx(first)
    inside = log_pi.exp()[:, None] * log_w.exp() / 2
    expected = inside.sum((0, 1)).log()
    torch.testing.assert_close(models.stratified_iwelbo(log_pi, log_w), expected)


def test_the_error_of_a_mean_of_weights_by_hand():
    """Weights 1, 1, 3, 3 are relatively 1/2, 1/2, 3/2, 3/2: variance 1/3, of four."""
    log_w = torch.tensor([1.0, 1.0, 3.0, 3.0]).double().log()[:, None] - 700.0
    assert models.standard_error(log_w).item() == pytest.approx((1 / 3 / 4) ** 0.5)
    assert models.standard_error(log_w[:1]).isinf()


@pytest.mark.parametrize("n_draws", [1, 5])
@pytest.mark.parametrize(
    ("one", "other"),
    [(miss_vae, miss_svae), (miss_iwae, miss_siwae)],
    ids=["elbo", "iwelbo"],
)
def test_one_component_is_mvae_and_miwae(model, seed, one, other, n_draws):
    mixture, normal = Given(*ONE, n=20), Single(*ONE, n=20)
    expected = value(one, model, normal, seed, n_draws, n=20)
    for bound in (one, other):
        result = value(bound, model, mixture, seed, n_draws, n=20)
        torch.testing.assert_close(result, expected, rtol=1e-14, atol=1e-14)
    assert (expected[0] != expected[1]).all()


@pytest.mark.parametrize(
    ("bound", "one"), [(miss_svae, miss_vae), (miss_siwae, miss_iwae)]
)
def test_strata_of_equal_components_are_more_draws_of_one(model, seed, bound, one):
    def numbers(step, template):  # those of two components, one after the other
        strata = stream(seed)(step, template.new_empty(4, 20, 2, 3))
        return strata.movedim(2, 0).flatten(0, 1)

    equal = Given([0.5, 0.5], ONE[1] * 2, ONE[2] * 2, n=20)
    expected = one(model, Single(*ONE, n=20), *rows(20), numbers, 8)
    result = value(bound, model, equal, seed, 4, n=20)
    torch.testing.assert_close(result, expected.detach())


@pytest.mark.parametrize("name", ["miss-vae", "miss-svae"])
def test_the_elbo_is_the_integral(model, seed, name):
    posterior = Given(*MIXTURE, n=N)
    exact = exact_elbo(model, Given(*MIXTURE, n=1))
    assert abs(z_mean(value(BOUNDS[name], model, posterior, seed), exact)) < GATE
    with torch.no_grad():  # control: one component is another bound
        posterior.values[0][:, 0] += 20
    assert abs(z_mean(value(BOUNDS[name], model, posterior, seed), exact)) > GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize("bound", [miss_iwae, miss_siwae])
def test_importance_weighting_rises_to_the_evidence(model, seed, bound):
    exact = log_evidence(model, *rows(1)).detach()
    # more rows where fewer draws make values vary more
    result = [
        value(bound, model, Given(*MIXTURE, n=n_rows), seed + i, n, n_rows)
        for i, (n, n_rows) in enumerate(DRAWS)
    ]
    for few, many in zip(result, result[1:], strict=False):
        assert z_two_sample(many, few) > GATE
    for values in result:
        assert z_mean(values, exact) < GATE
    assert z_mean(result[0], exact) < -GATE  # control: one draw is not enough
    assert abs(result[-1].mean() - exact) < 0.05 * abs(result[0].mean() - exact)


DRAWS = [(1, 3 * N), (3, 3 * N), (10, 3 * N), (100, N)]  # and rows


def test_the_bounds_are_tight_at_the_posterior(seed):
    """Of a linear model with one latent, the posterior is normal and known."""
    linear = Curved([[1.0], [-0.5], [0.4]], [0.4, 0.6, 0.5], bend=0.0)
    noise = torch.tensor([0.4, 0.6, 0.5]).double().square()
    w = linear.loadings[:, 0].detach()
    precision = 1 + (w**2 / noise)[SEEN[0]].sum()
    mean = (w * ROW[0] / noise)[SEEN[0]].sum() / precision
    posterior = [[0.0], [[mean]], [[precision**-0.5]]]
    exact = log_evidence(linear, *rows(5)).detach()
    for bound in ALL:
        result = value(bound, linear, Given(*posterior, n=5), seed, 3, n=5)
        torch.testing.assert_close(result, exact)


class Amortised(nn.Module):
    def __init__(self, kind, n_components):
        super().__init__()
        zeros, ones = torch.zeros(3).double(), torch.ones(3).double()
        network = Perceptron(zeros, ones, [5], n_components * 5 if kind else 4).double()
        nn.init.normal_(network.layers[-1].weight)
        result = kind(network, n_components, 2) if kind else None
        self.encoder = (result or IndependentNormalEncoder(network)).double()

    def forward(self, x, observed):
        return self.encoder(x, observed)


@pytest.mark.parametrize("name", list(BOUNDS))
def test_values_under_the_mask_are_never_read(model, name, torch_seeded):
    posterior = Amortised(MixtureEncoder, 3) if "miss-" in name else Amortised(None, 1)
    x = torch.randn(8, 3).double()
    observed = torch.rand(8, 3) < 0.5
    observed[0] = False  # a row that shows nothing
    leaves = [*model.parameters(), *posterior.parameters()]
    results = []
    for junk in (0.0, 1e6, torch.nan):
        bound = BOUNDS[name](
            model, posterior, x.masked_fill(~observed, junk), observed, stream(1), 3
        )
        assert bound.shape == (8,)
        gradients = torch.autograd.grad(bound.sum(), leaves, allow_unused=True)
        results.append([bound, *[g for g in gradients if g is not None]])
    assert any((g != 0).any() for g in results[0][1:])
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            assert (mine == theirs).all()
    shifted = BOUNDS[name](model, posterior, x + observed, observed, stream(1), 3)
    assert (shifted != results[0][0])[observed.any(1)].all()  # control


def test_a_row_without_observed_cells_has_log_evidence_0(model, seed):
    """The prior is its posterior, and eq. (1) is 0 at every draw."""
    prior = ([0.0], [[0.0, 0.0]], [[1.0, 1.0]])
    nothing = torch.zeros(7, 3).bool()
    for bound in ALL:
        result = bound(model, Given(*prior, n=7), rows(7)[0], nothing, stream(seed), 3)
        torch.testing.assert_close(result, torch.zeros(7).double())


def test_strata_of_a_normal_are_refused(model):
    with pytest.raises(TypeError, match="Independent. Use a mixture"):
        miss_svae(model, Single(*ONE, n=5), *rows(5), stream(0))


@pytest.mark.parametrize("bound", [*SINGLE, demiss_vae])
def test_latents_without_gradient_are_refused(model, bound):
    """The posterior would stay where it is, and nobody would know."""

    def posterior(x, observed):
        return Independent(Bernoulli(torch.full((*x.shape[:-1], 2), 0.5)), 1)

    x, observed = rows(5)
    with pytest.raises(TypeError, match="Bernoulli.*, whose draws have no gradient"):
        bound(
            model, posterior, x[None] if bound is demiss_vae else x, observed, stream(0)
        )
