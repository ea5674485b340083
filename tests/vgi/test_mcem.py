"""Monte Carlo EM: plain maximum likelihood of complete rows, else Fisher's identity."""

import numpy as np
import pytest
import torch
from oracles import GATE, z_mean

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce._core.training.adam import train
from skvnce.gaussian import em
from skvnce.vgi import mcem
from skvnce.vgi.densities import SplineFlow
from skvnce.vgi.mcem import Proposal, projected_latent
from skvnce.vgi.training import TrainingSettings, observed_hypercube

D, N = 3, 40
FACTOR = torch.tensor([[1.0, 0, 0], [0.7, 0.6, 0], [-0.4, 0.5, 0.8]]).double()


def table(seed, missing):
    with seeded(seed):
        x = torch.randn(N, D).double() @ FACTOR.T
        observed = torch.rand(N, D) >= missing
    return Incomplete(x.where(observed, 0.0), observed)


def from_normal(data, n_chains):
    return data.with_values(torch.randn(n_chains, *data.x.shape).to(data.x))


def flow(mean=None, factor=None, n_steps=1, seed=0):
    with seeded(seed):
        return SplineFlow(
            torch.zeros(D).double() if mean is None else mean,
            torch.eye(D).double() if factor is None else factor,
            n_steps=n_steps,
            n_bins=4,
            hidden=(8,),
        )


def test_of_complete_rows_it_is_plain_maximum_likelihood(seed):
    data, settings = table(seed, 0.0), {"batch_size": 20, "learning_rate": 1e-2}
    model, plain = flow(), flow()
    x = from_normal(data, 3)
    assert (x == data.x).all()
    with seeded(seed):
        losses = mcem.train(
            model,
            data,
            x,
            TrainingSettings(**settings),
            n_epochs=5,
            n_steps=lambda epoch: 2,
            schedule=lambda epoch: (1 + np.cos(np.pi * epoch / 5)) / 2,
        )
    with seeded(seed):
        expected = train(
            lambda rows: -plain.log_prob(data.x[rows]).mean(),
            plain.named_parameters(),
            N,
            max_iter=5,
            on_epoch=lambda epoch, loss: False,
            **settings,
        )
    assert losses == pytest.approx(expected)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert losses[-1] < losses[0]


def scores(model, data, x):
    """Differentiate the loss of each table by the mean and the diagonal."""
    rows, result = torch.arange(N), []
    for one in x:
        loss = mcem.completed_loss(model, data, one[None])(rows)
        leaves = (model.mean, model.log_diagonal)
        result.append(torch.cat(torch.autograd.grad(loss, leaves)))
    return torch.stack(result)


@pytest.mark.slow
def test_imputations_give_the_score_of_the_observed_cells(seed):
    """Fisher's identity: it is zero where EM ends."""
    data = table(seed, 0.4)
    data = data.take(data.observed.any(1).nonzero().squeeze(1))
    data = Incomplete(*(torch.cat([part, part])[:N] for part in data))
    start = em.Normal(torch.zeros(D).double(), torch.eye(D).double())
    fitted = em.fit_normal(
        data, torch.ones(N).double(), 0.0, start, max_iter=1200, tol=1e-12
    ).normal
    model = flow(fitted.mean, torch.linalg.cholesky(fitted.covariance))
    sampler = projected_latent(
        model, n_chains=120, proposal=Proposal(small=0.4, sigma=0.5)
    )
    with seeded(seed):
        x = from_normal(data, 120)
        before = scores(model, data, x)
        mcem.reimpute(sampler, data, x, 60)
    assert (x[:, data.observed] == data.x[data.observed]).all()
    assert np.abs(z_mean(scores(model, data, x), 0.0)).max() < GATE
    assert np.abs(z_mean(before, 0.0)).max() > 2 * GATE


def test_imputations_are_drawn_when_the_schedule_says(seed):
    data, model = table(seed, 0.4), flow()
    x, tables = from_normal(data, 2), []
    before = x.clone()

    def keep(epoch, loss):
        tables.append(x.clone())
        return False

    with seeded(seed):
        mcem.train(
            model,
            data,
            x,
            TrainingSettings(batch_size=30),
            n_epochs=4,
            n_steps={1: 0, 2: 3, 3: 0, 4: 1}.get,
            hypercube=observed_hypercube(data),
            on_epoch=keep,
        )
    same = [
        bool((a == b).all()) for a, b in zip([before, *tables], tables, strict=False)
    ]
    assert same == [True, False, True, False]
    low, high = observed_hypercube(data)
    assert ((tables[-1] >= low) & (tables[-1] <= high)).all()
