"""Draws of what rows hide: log q by its parts, weights, and the mask."""

import pytest
import torch
from torch.distributions import Bernoulli, Normal

from skvnce.variational.base import repeated, with_latents, with_missing, with_states

N_DRAWS, N, FEATURES = 3, 5, 4


@pytest.fixture
def rows(seed):
    torch.manual_seed(seed)
    return torch.randn(N, FEATURES).double(), torch.rand(N, FEATURES) < 0.6


def cells(n=N):
    """Give each cell its own normal."""
    place = torch.arange(float(n * FEATURES)).double().view(n, FEATURES)
    return Normal(place.sin(), 1 + place.cos().square())


def posterior(x):
    return Normal(x[..., :2], 0.5)


def drawn_both(x, observed):
    draws = with_missing(repeated(x, N_DRAWS), observed, cells())
    return with_latents(draws, posterior(draws.values[0]))


def test_rows_that_hide_nothing(rows):
    x, _ = rows
    draws = repeated(x, N_DRAWS)
    assert (draws.values[0] == x).all()
    assert (draws.log_prob == 0).all()
    torch.testing.assert_close(draws.log_weight.logsumexp(0), torch.zeros(N).double())


def test_log_prob_is_the_sum_of_its_parts(rows):
    x, observed = rows
    draws = drawn_both(x, observed)
    filled, z = draws.values
    assert (filled == x)[:, observed].all()
    assert (filled != x)[:, ~observed].all()
    by_hand = torch.zeros(N_DRAWS, N).double()
    for s, i, j in torch.cartesian_prod(*map(torch.arange, filled.shape)):
        if not observed[i, j]:
            mean, scale = cells().mean[i, j], cells().stddev[i, j]
            by_hand[s, i] += Normal(mean, scale).log_prob(filled[s, i, j])
    by_hand += posterior(filled).log_prob(z).sum(-1)
    torch.testing.assert_close(draws.log_prob, by_hand)
    assert (draws.values[1][0] != draws.values[1][1]).all()


def test_complete_rows_are_encoded_once(rows):
    x, _ = rows
    draws = with_latents(repeated(x, N_DRAWS), posterior(x))
    z = draws.values[1]
    assert z.shape == (N_DRAWS, N, 2)
    assert (z[0] != z[1]).all()
    torch.testing.assert_close(draws.log_prob, posterior(x).log_prob(z).sum(-1))


def test_values_under_the_mask_are_never_read(rows, seed):
    x, observed = rows
    results = []
    for junk in (0.0, 1e6, torch.nan):
        torch.manual_seed(seed)
        results.append(drawn_both(x.masked_fill(~observed, junk), observed))
    for other in results[1:]:
        assert (other.log_prob == results[0].log_prob).all()
        assert (other.values[0] == results[0].values[0]).all()


def test_states_are_weighted_by_their_probability(rows):
    x, observed = rows
    draws = with_missing(repeated(x, N_DRAWS), observed, cells())
    states = torch.tensor([[0.0], [1.0]]).double()
    q = Bernoulli(logits=draws.values[0].sum(-1))
    log_q = torch.stack([q.log_prob(s.expand(N_DRAWS, N)) for s in states[:, 0]])
    every = with_states(draws, states, log_q)
    filled, z = every.values
    assert filled.shape == (2 * N_DRAWS, N, FEATURES)
    assert z.shape == (2 * N_DRAWS, N, 1)
    torch.testing.assert_close(every.log_weight.exp().sum(0), torch.ones(N).double())
    # E z by enumeration is the mean of the probabilities of z = 1
    mean = (every.log_weight.exp() * z.squeeze(-1)).sum(0)
    torch.testing.assert_close(mean, q.probs.mean(0))
    inside = q.log_prob(z.squeeze(-1).view(2, N_DRAWS, N)) + draws.log_prob
    torch.testing.assert_close(every.log_prob, inside.flatten(0, 1))


def test_draws_are_differentiable(rows):
    x, observed = rows
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    q = Normal(cells().mean + shift, cells().stddev)
    filled = with_missing(repeated(x, N_DRAWS), observed, q).values[0]
    (gradient,) = torch.autograd.grad(filled.sum(), shift)
    assert gradient == N_DRAWS * (~observed).sum()
