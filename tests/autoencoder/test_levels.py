"""Autoencoders of tables with categories, at their linear start."""

import numpy as np
import pytest
import torch
from statistical import FAILURE, p_mean, within_standard_errors
from vaes import NORMAL, grid, log_evidence

from skvnce._core.distributions.cells import Nominal, Ordinal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import global_stream, seeded
from skvnce.autoencoder import losses, vae
from skvnce.autoencoder.factor_analysis import FactorModel, infer
from skvnce.autoencoder.samplers import SAMPLERS
from skvnce.autoencoder.vae import Architecture, Training, build, fit_latents, sites

D, N_OUTPUTS = 4, 6  # two numbers, an ordinal and a nominal column
FAMILIES = NORMAL._replace(
    levels=(Ordinal.of([2], [torch.tensor([-0.6, 0.5])]), Nominal.of([3], [3], D))
)


def linear(seed, k):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(N_OUTPUTS, k + 1, generator=generator).double()
    noise = torch.linspace(0.3, 0.8, N_OUTPUTS).double()
    return FactorModel(0.3 * numbers[:, 0], numbers[:, 1:], noise)


def made(seed, k=2, families=FAMILIES):
    """Make an autoencoder in double precision; the networks have no effect yet."""
    with seeded(seed):
        auto = build(linear(seed, k), families, Architecture((8,), 0.0, 1))
    return auto._replace(model=auto.model.double(), posterior=auto.posterior.double())


def rows():
    """Make a row for each combination of levels, and some with missing cells."""
    codes = torch.cartesian_prod(torch.arange(3), torch.arange(3)).double()
    x = torch.cat([torch.tensor([[0.4, -0.7]]).double().expand(9, 2), codes], 1)
    x = torch.cat([x, x[[1, 5, 6]]])
    observed = torch.ones_like(x, dtype=torch.bool)
    observed[9:] = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]]).bool()
    return Incomplete(x.where(observed, 0.0), observed)


@pytest.mark.parametrize("k", [1, 2])
def test_estimated_log_probabilities_are_those_of_quadrature(k, seed):
    auto, data = made(seed, k), rows()
    with torch.no_grad(), seeded(seed):
        exact = log_evidence(auto.model, *data, n_points=120)
        result = vae.scored(auto, data, global_stream, 4000)
    error = result[:, 1].clamp(min=1e-6)
    assert within_standard_errors(result[:, 0], exact, error, failure=1e-6)
    control = exact.roll(1)
    assert not within_standard_errors(result[:, 0], control, error)


def test_log_probabilities_of_levels_sum_to_one(seed):
    """Over the nine combinations, given the numbers."""
    auto, data = made(seed), rows().take(slice(9))
    known = Incomplete(data.x[:1], torch.tensor([[True, True, False, False]]))
    with torch.no_grad():
        joint = log_evidence(auto.model, *data)
        numbers = log_evidence(auto.model, *known)
    torch.testing.assert_close(joint.logsumexp(0), numbers[0])


def exact_probabilities(auto, data):
    """Integrate the probabilities of levels given the observed cells of rows."""
    z, weights = grid(auto.model.loadings.shape[1], n_points=120)
    cells = auto.model.likelihood(z[:, None].expand(-1, len(data.x), -1))
    seen = cells.log_prob(data.x).where(data.observed, 0.0).sum(-1)
    joint = seen + auto.model.prior().log_prob(z)[:, None] + weights.log()[:, None]
    share = joint.softmax(0)
    return (share[..., None] * cells.level_probabilities).sum(0)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("rule", "n_steps"), [("lair", 10), ("mwg", 8), ("ac-mwg", 30)]
)
def test_samplers_give_the_exact_probabilities_of_levels(rule, n_steps, seed):
    auto, data, n = made(seed), rows().take(slice(9, 12)), 60
    many = Incomplete(*(part.repeat(n, 1) for part in data))
    with torch.no_grad(), seeded(seed):
        exact = exact_probabilities(auto, data)
        result = SAMPLERS[rule]().draws(
            auto, many, 20, n_steps, lambda purpose: global_stream
        )
    drawn = result.probabilities.view(n, 3, -1)
    assert (drawn - exact).mean(0).abs().max() < 0.05
    free = torch.zeros_like(exact, dtype=torch.bool)
    free[0, 3:] = free[1, :3] = True  # the levels of missing cells
    assert p_mean(drawn[:, free], exact[free]) > FAILURE
    prior = exact_probabilities(auto, data._replace(observed=data.observed & False))
    assert p_mean(drawn[:, free], prior[free]) < FAILURE  # control


def test_draws_follow_the_probabilities(seed):
    auto, n = made(seed), 400
    data = rows().take(slice(9, 10))
    many = Incomplete(*(part.expand(n, -1) for part in data))
    with torch.no_grad(), seeded(seed):
        exact = exact_probabilities(auto, data)[0, 3:]
        rule = SAMPLERS["lair"]()
        result = rule.draws(auto, many, 1, 6, lambda purpose: global_stream)
    codes = result.tables[0, :, 3].long()
    drawn = torch.nn.functional.one_hot(codes, 3).double()
    assert p_mean(drawn[:, :2], exact[:2]) > FAILURE


def test_sites_have_the_mode_of_each_level(seed):
    auto = made(seed)
    start = vae.as_family(linear(seed, 2), FAMILIES)
    columns, codes, precision, field = sites(*start, FAMILIES)
    assert columns.tolist() == [2] * 3 + [3] * 3 and codes.tolist() == [0, 1, 2] * 2
    eye = torch.eye(2).double()
    mode = torch.linalg.solve(eye + precision, field[..., None])[..., 0]
    z = mode.clone().requires_grad_()
    x = torch.zeros(6, D).double()
    x[torch.arange(6), columns] = codes.double()
    seen = auto.model.likelihood(z).log_prob(x)[torch.arange(6), columns]
    [slope] = torch.autograd.grad((seen + auto.model.prior().log_prob(z)).sum(), z)
    assert slope.abs().max() < 1e-8
    assert torch.linalg.eigvalsh(precision).min() > -1e-12


def test_observed_numbers_have_the_posterior_of_factors(seed):
    data = Incomplete(
        rows().x, torch.tensor([[True, True, False, False]]).expand(12, 4)
    )
    model = linear(seed, 2)
    posterior = made(seed).posterior.infer(*data)
    numbers = FactorModel(*(part[:2] for part in model))
    exact = infer(numbers, data.x[:, :2], data.observed[:, :2])
    torch.testing.assert_close(posterior.mean, exact.mean)
    torch.testing.assert_close(posterior.root @ posterior.root.mT, exact.covariance())
    assert (posterior.filled[:, 2:] == 0).all()
    whole = made(seed).posterior.infer(*rows())
    assert (whole.filled[:9, 2:].sum(1) == 2).all()  # one level a column
    assert (whole.mean[:9] - exact.mean[:9]).abs().max() > 0.1  # levels tell more


def test_the_start_of_the_encoder_is_near_the_exact_posterior(seed):
    """Importance weights of most rows have an effective size of half of the draws.

    At 40 seeds the median of the rows was 468 with a standard deviation of 28.
    """
    auto, data = made(seed), rows()
    with torch.no_grad(), seeded(seed):
        _, log_weight = vae.weigh(auto, data, global_stream, 500)
    size = 1 / log_weight.softmax(0).square().sum(0)
    assert size.median() > 250


def test_values_under_the_mask_are_not_used(seed):
    auto, data = made(seed), rows()
    other = data.x.where(data.observed, 1e6)
    pairs = (auto.posterior.infer(x, data.observed) for x in (data.x, other))
    for one, two in zip(*pairs, strict=True):
        assert (one == two).all()


def test_gradients_reach_all_parameters(seed):
    auto, data = made(seed), rows()
    with torch.no_grad():
        for part in auto:
            for leaf in part.parameters():
                leaf += 0.1 * torch.randn_like(leaf)
    with seeded(seed):
        training = Training(5, 12, 1e-3, 0.0)
        loss = losses.ALGORITHMS["miwae"].loss(auto, {}, data, training)
        loss(torch.arange(12)).backward()
    for part in auto:
        for name, leaf in part.named_parameters():
            assert leaf.grad.isfinite().all() and leaf.grad.abs().max() > 0, name
    outputs = auto.model.free_scale.grad != 0
    assert outputs.tolist() == [True, True, True, False, False, False]  # logits


def test_latents_of_levels_are_in_the_order_of_the_outputs(seed, rng):
    z = rng.normal(size=600)
    utility = np.stack([z, 0 * z, -z], 1) + 0.5 * rng.normal(size=(600, 3))
    grade = np.digitize(z + 0.5 * rng.normal(size=600), [-0.6, 0.5])
    x = np.stack([z, rng.normal(size=600), grade, utility.argmax(1)], 1)
    x[rng.random(x.shape) < 0.2] = np.nan
    data, weights = Incomplete.from_array(x), torch.ones(600).double()
    with seeded(seed):
        normal = fit_latents(data, weights, FAMILIES, 0.5, 40)
    deviation = normal.covariance.diagonal().sqrt()
    correlation = normal.covariance / torch.outer(deviation, deviation)
    assert normal.mean.shape == (N_OUTPUTS,)
    first = correlation[0]
    assert first[2] > 0.6 and first[3] > 0.3 and first[5] < -0.3
    assert abs(first[1]) < 0.25
