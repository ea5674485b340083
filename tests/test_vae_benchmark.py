"""The parts of the benchmark of bounds that are not the package's."""

import _vae_imputers as imputation
import numpy as np
import pytest
import torch
import vae_bounds as study
from oracles import GATE, z_mean
from torch.distributions import Independent, MultivariateNormal, Normal
from vaes import Curved

from skvnce.objectives.bounds import BOUNDS
from skvnce.objectives.demiss import COMPLETED_BOUNDS
from skvnce.variational.base import global_stream

ROWS, LATENTS, FITS, BUDGET = 300, study.LATENTS, 3, 5


def linear():
    rng = np.random.default_rng(0)
    return Curved(rng.normal(size=(study.D, LATENTS)), [0.5] * study.D, bend=0.0)


def test_the_grid_integrates_the_likelihood(seed):
    model = linear()
    loadings, variance = model.loadings.detach(), model.log_scale.detach().exp() ** 2
    covariance = loadings @ loadings.T + variance.diag()
    x = MultivariateNormal(torch.zeros(study.D).double(), covariance)
    torch.manual_seed(seed)
    rows = x.sample((ROWS,)).clamp(-2.5, 2.5)
    wide = variance.sqrt()
    model.likelihood = lambda z: Normal(
        z.double() @ loadings.T, wide.expand(*z.shape[:-1], -1)
    )
    model.prior = study.Autoencoder(1).prior
    (found,) = study.log_likelihood(model, rows, 1)
    assert found == pytest.approx(float(x.log_prob(rows).mean()), abs=1e-4)


def test_half_of_the_cells_are_hidden():
    x = torch.ones(1000, study.D)
    kept, observed = study.hidden(x, np.random.default_rng(0))
    assert observed.any(1).all()
    assert observed.sum() == study.MISSING * x.numel()  # dropped rows had none
    assert len(kept) == len(observed) < len(x)
    assert (kept.isnan() == ~observed).all()


def test_the_truth_is_standardised(seed):
    rng = np.random.default_rng(study.DATA_SEED)
    truth = study.bells(rng)
    x = study.simulate(truth, 20000, np.random.default_rng(seed))
    assert abs(z_mean(x, 0.0)).max() < GATE
    assert abs(z_mean(x**2, 1.0)).max() < GATE
    weights, _, roots = truth
    shares = (weights[:, None] * (roots**2).sum(-1)).max(0)
    assert (shares < 0.5).all()  # the rule by which its seed was chosen


def test_resampled_imputations_keep_what_is_observed(seed):
    torch.manual_seed(seed)
    shape = FITS, ROWS, study.D
    x, observed = torch.randn(shape), torch.rand(shape) < 0.5
    model = study.Autoencoder(FITS)
    posterior = study.encoder_of("demiss-vae", FITS, BUDGET)
    store = study.Store(study.importance_resampled, x, observed, BUDGET)
    assert store.completed.shape == (BUDGET, *shape)
    before = store.completed.clone()
    moved = store.update(model, posterior, torch.arange(100))
    assert (moved == x[:, :100])[:, observed[:, :100]].all()
    assert (moved != before[:, :, :100])[:, ~observed[:, :100]].all()
    assert (store.completed[:, :, :100] == moved).all()
    assert (store.completed[:, :, 100:] == before[:, :, 100:]).all()


@pytest.mark.parametrize("method", study.METHODS)
def test_fits_side_by_side_do_not_touch(method, seed):
    """What is seen in one fit has no gradient in the others."""
    torch.manual_seed(seed)
    x, observed = torch.randn(FITS, 50, study.D), torch.rand(FITS, 50, study.D) < 0.5
    model, posterior = study.Autoencoder(FITS), study.encoder_of(method, FITS, BUDGET)
    inputs = x.expand(BUDGET, *x.shape) if method in study.COMPLETING else x
    n_draws = study.counts(method, BUDGET)[1]
    bound = {**BOUNDS, **COMPLETED_BOUNDS}[method]
    bound = bound(model, posterior, inputs, observed, global_stream, n_draws)
    bound[1].sum().backward()
    for leaf in (*model.parameters(), *posterior.parameters()):
        assert (leaf.grad[[0, 2]] == 0).all()
        assert (leaf.grad[1] != 0).any()


@pytest.mark.quick(3)
@pytest.mark.parametrize("method", study.METHODS)
def test_no_method_sees_hidden_cells(method, seed):
    """Fits are equal whatever hidden cells are; observed cells matter."""
    torch.manual_seed(seed)
    x, observed = torch.randn(2, 70, study.D), torch.rand(2, 70, study.D) < 0.5
    found = []
    for table in (
        x.where(observed, torch.nan),
        x,
        x.where(observed, 1e3),
        x.where(~observed, x + 1),
    ):
        model = study.fit(method, table, observed, seed, 2, 3)
        found.append(
            torch.cat([leaf.detach().flatten() for leaf in model.parameters()])
        )
    assert found[0].isfinite().all()
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[3])  # control


def test_methods_are_all_objectives_of_the_package():
    assert {*study.METHODS} == {*BOUNDS, *COMPLETED_BOUNDS}
    assert {*study.COMPLETING} == {*COMPLETED_BOUNDS}


# Imputations


def conditional_moments(truth, x, observed):
    """Mean of the missing cells of one row under the mixture, by its conditionals."""
    weights, means, roots = map(torch.tensor, truth)
    o, m = observed.nonzero()[:, 0], (~observed).nonzero()[:, 0]
    covariance = roots @ roots.mT
    log_share, mean = [], []
    for weight, centre, square in zip(weights, means, covariance, strict=True):
        inner = square[o][:, o]
        seen = MultivariateNormal(centre[o], inner)
        log_share.append(weight.log() + seen.log_prob(x[o]))
        slope = torch.linalg.solve(inner, square[o][:, m]).T
        mean.append(centre[m] + slope @ (x[o] - centre[o]))
    share, mean = torch.stack(log_share).softmax(0), torch.stack(mean)
    return share, mean, m


@pytest.mark.parametrize("equal", [False, True])
def test_the_oracle_draws_from_the_conditional_of_the_truth(equal, seed):
    rng = np.random.default_rng(study.DATA_SEED)
    truth = study.bells(rng)
    x = torch.tensor(study.simulate(truth, 2, np.random.default_rng(seed)))
    observed = torch.tensor([[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]]).bool()
    torch.manual_seed(seed)
    completed = x.float().where(observed, 7.0).expand(20000, 1, 2, -1)
    move = imputation.oracle(truth, equal=equal)
    drawn = move(None, None, completed, observed[None])[:, 0].double()
    for row in range(2):
        share, mean, m = conditional_moments(truth, x[row], observed[row])
        other = share @ mean
        if equal:
            share = torch.full_like(share, 1 / len(share))
        cells = drawn[:, row]
        assert (cells[:, observed[row]] == completed[0, 0, row, observed[row]]).all()
        assert abs(z_mean(cells[:, m], share @ mean)).max() < GATE
        if equal:  # control
            assert abs(z_mean(cells[:, m], other)).max() > GATE


def test_independent_draws_have_the_moments_of_the_columns(seed):
    truth = study.bells(np.random.default_rng(study.DATA_SEED))
    torch.manual_seed(seed)
    x = torch.full((20000, 1, 1, study.D), 5.0)
    observed = torch.tensor([True, False, False, False, False])[None, None]
    drawn = imputation.oracle(truth, independent=1.0)(None, None, x, observed)[:, 0, 0]
    assert (drawn[:, 0] == 5.0).all()
    assert abs(z_mean(drawn[:, 1:].double(), 0.0)).max() < GATE
    assert abs(z_mean(drawn[:, 1:].double() ** 2, 1.0)).max() < GATE
    product = drawn[:, 1] * drawn[:, 2]
    assert abs(z_mean(product.double(), 0.0)) < GATE


@pytest.mark.parametrize("name", ["importance_resampled", "by_grid"])
def test_draws_are_from_the_conditional_of_the_model(name, seed):
    """Of a linear model; importance resampling has proposals that are not exact."""
    model = linear().float()
    loadings, noise = model.loadings.detach().double(), 0.25
    model.prior = study.Autoencoder(1).prior
    wide = model.log_scale.detach().exp()
    model.likelihood = lambda z: Normal(
        z @ model.loadings.T, wide.expand(*z.shape[:-1], -1)
    )
    observed = torch.tensor([[[True, True, False, True, False]]])
    x = torch.tensor([[[0.6, -0.4, 0.0, 0.9, 0.0]]])
    covariance = loadings @ loadings.T + noise * torch.eye(study.D).double()
    o, m = observed[0, 0].nonzero()[:, 0], (~observed[0, 0]).nonzero()[:, 0]
    weights = torch.linalg.solve(covariance[o][:, o], covariance[o][:, m]).T
    mean = weights @ x[0, 0, o].double()

    def posterior(x, observed):
        return Independent(Normal(torch.zeros(*x.shape[:-1], LATENTS), 1.2), 1)

    torch.manual_seed(seed)
    move, draws = getattr(imputation, name), []
    with torch.no_grad():
        for _ in range(60):
            start = x.expand(300, 1, 1, -1)
            moved = move(model, posterior, start, observed)
            assert (moved[..., o] == x[..., o]).all()
            draws.append(moved[:, 0, 0, m].mean(0).double())
    assert abs(z_mean(torch.stack(draws), mean)).max() < GATE
    assert abs(z_mean(torch.stack(draws), 0.0)).max() > GATE  # control
