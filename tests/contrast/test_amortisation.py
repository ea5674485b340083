"""Amortised inference and the ELBO in closed form, as in the lecture on VAEs."""

import pytest
import torch
from oracles import line_rule
from statistical import FAILURE, p_mean
from torch import nn
from torch.distributions import ContinuousBernoulli, Independent, Normal, kl_divergence
from vaes import Curved

from skvnce._core.models import log_joint

LOADINGS, SCALE = [[1.5], [-0.8], [0.5]], [0.3, 0.4, 0.3]
POINTS, WEIGHTS = line_rule(7.0, 40)
STANDARD = Normal(torch.tensor(0.0).double(), 1.0)


def rows(n, seed):
    """Draw complete rows of a model with one latent."""
    torch.manual_seed(seed)
    model = Curved(LOADINGS, SCALE, bend=0.3)
    with torch.no_grad():
        return model, model.likelihood(torch.randn(n, 1).double()).sample()


def elbos(model, parameters, x):
    """Integrate the ELBO of each row at means and log-deviations; (n,)."""
    mean, log_scale = parameters.chunk(2, -1)
    u = POINTS.view(-1, 1, 1)
    z = mean + log_scale.exp() * u
    log_q = STANDARD.log_prob(u) - log_scale
    log_p = log_joint(model, x, torch.ones_like(x).bool(), z)
    inside = (log_p - log_q[..., 0]) * STANDARD.log_prob(u[..., 0]).exp()
    return (WEIGHTS.unsqueeze(-1) * inside).sum(0)


def ascend(leaves, value, n_steps=150, rate=0.03):
    """Maximise a sum by Adam."""
    optimiser = torch.optim.Adam(leaves, lr=rate)
    for _ in range(n_steps):
        optimiser.zero_grad()
        (-value()).backward()
        optimiser.step()


def gaps(model, encoder, x):
    """Compute ELBOs at the encoder's parameters, and those of each row's own q."""
    with torch.no_grad():
        start = encoder(x)
        amortised = elbos(model, start, x)
    own = start.clone().requires_grad_()
    ascend([own], lambda: elbos(model, own, x).sum())
    with torch.no_grad():
        return amortised, elbos(model, own, x)


def test_amortisation_costs_a_gap(seed):
    """It is never negative, and larger for rows that the encoder was not fitted to."""
    model, x = rows(80, seed)
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2)).double()
    train, test = x[:10], x[10:]
    ascend(
        list(encoder.parameters()), lambda: elbos(model, encoder(train), train).sum()
    )
    (seen, seen_best), (new, new_best) = (
        gaps(model, encoder, part) for part in (train, test)
    )
    for amortised, best in ((seen, seen_best), (new, new_best)):
        assert (best - amortised > -1e-6).all()
    gap = (new_best - new).mean()
    assert gap > 1.5 * (seen_best - seen).mean()  # 3 to 66 times, over eight seeds
    poor = nn.Linear(3, 2).double()  # control: an encoder that was not fitted
    amortised, best = gaps(model, poor, test)
    assert (best - amortised).mean() > 3 * gap


def test_the_divergence_from_the_prior_has_a_closed_form(torch_seeded):
    mean, log_scale = torch.randn(2, 3).double()
    q = Independent(Normal(mean, log_scale.exp()), 1)
    prior = Independent(Normal(torch.zeros(3).double(), torch.ones(3).double()), 1)
    closed = (mean**2 + (2 * log_scale).exp() - 1 - 2 * log_scale).sum() / 2
    torch.testing.assert_close(kl_divergence(q, prior), closed)
    z = q.sample((20_000,))
    drawn = (q.log_prob(z) - prior.log_prob(z)).numpy()
    assert p_mean(drawn, float(closed)) > FAILURE
    assert p_mean(drawn, 1.2 * float(closed)) < FAILURE  # control


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_binary_probabilities_are_no_density(p):
    """Those of a Bernoulli cell integrate to less than 1, of a continuous one to 1."""
    x = (torch.arange(4000).double() + 0.5) / 4000
    probability = torch.tensor(p).double()
    binary = (probability**x * (1 - probability) ** (1 - x)).mean()
    cell = ContinuousBernoulli(probability)
    density = cell.log_prob(x).exp()
    assert binary < 0.96
    assert density.mean() == pytest.approx(1, abs=1e-6)
    assert (density * x).mean() == pytest.approx(float(cell.mean), abs=1e-6)
    assert abs(cell.mean - p) > 0.05  # so p is not the mean of the cell
