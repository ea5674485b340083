"""The parts of the benchmark of bounds that are not the package's."""

import numpy as np
import pytest
import torch
import vae_bounds as study
from oracles import GATE, z_mean
from torch.distributions import Independent, MultivariateNormal, Normal
from vaes import Curved

from skvnce.objectives.bounds import BOUNDS
from skvnce.variational.base import global_stream

ROWS, LATENTS, FITS = 300, study.LATENTS, 3


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
    model, posterior = study.Autoencoder(FITS), study.encoder_of("demiss-vae", FITS)
    store = study.Store(study.importance_resampled, x, observed)
    assert store.completed.shape == (study.BUDGET, *shape)
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
    model, posterior = study.Autoencoder(FITS), study.encoder_of(method, FITS)
    inputs = x.expand(study.BUDGET, *x.shape) if method == "demiss-vae" else x
    n_draws = study.counts(method, study.BUDGET)[1]
    bound = BOUNDS[method](model, posterior, inputs, observed, global_stream, n_draws)
    bound[1].sum().backward()
    for leaf in (*model.parameters(), *posterior.parameters()):
        assert (leaf.grad[[0, 2]] == 0).all()
        assert (leaf.grad[1] != 0).any()


def test_many_particles_draw_from_the_conditional(seed):
    """Of a linear model, with normal proposals that are not exact."""
    model = linear()
    loadings, noise = model.loadings.detach(), 0.25
    observed = torch.tensor([[True, True, False, True, False]])
    x = torch.tensor([[0.6, -0.4, 0.0, 0.9, 0.0]]).double()
    covariance = loadings @ loadings.T + noise * torch.eye(study.D).double()
    o, m = observed[0].nonzero()[:, 0], (~observed[0]).nonzero()[:, 0]
    weights = torch.linalg.solve(covariance[o][:, o], covariance[o][:, m]).T
    mean = weights @ x[0, o]

    def posterior(x, observed):
        return Independent(Normal(torch.zeros(*x.shape[:-1], LATENTS).double(), 1.2), 1)

    torch.manual_seed(seed)
    draws = []
    with torch.no_grad():
        for _ in range(60):
            start = x.expand(300, 1, -1)
            moved = study.importance_resampled(model, posterior, start, observed)
            draws.append(moved[:, 0, m].mean(0))
    assert abs(z_mean(torch.stack(draws), mean)).max() < GATE
    assert abs(z_mean(torch.stack(draws), 0.0)).max() > GATE  # control
