"""Encoders: their distributions, and draws of latents of (completed) rows."""

import pytest
import torch
from oracles import shaken
from torch import nn
from torch.distributions import Bernoulli, Normal

from skvnce._core.models import repeated
from skvnce._core.random import stream
from skvnce.contrast.posteriors import (
    BernoulliEncoder,
    Latents,
    NormalEncoder,
    Perceptron,
)

D, LATENTS, N, NU, N_DRAWS = 3, 2, 6, 4, 5
ZEROS, ONES = torch.zeros(D).double(), torch.ones(D).double()
KINDS = pytest.mark.parametrize("kind", [NormalEncoder, BernoulliEncoder])


def encoder(kind, shake=0.7):
    n_outputs = LATENTS * (2 if kind is NormalEncoder else 1)
    return shaken(kind(Perceptron(ZEROS, ONES, [4], n_outputs).double()), shake)


class Counted(nn.Module):
    """Count the rows that an encoder sees."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.n_rows = inner, 0

    def forward(self, x, observed):
        assert x.shape == observed.shape == (len(x), D)  # a matrix
        self.n_rows += len(x)
        return self.inner(x, observed)


@pytest.fixture
def y(torch_seeded):
    return torch.randn(NU, N, D).double()


@pytest.fixture
def observed(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(N, D, generator=generator) < 0.6


@KINDS
def test_at_the_start_every_row_has_the_same_standard_posterior(kind, y, observed):
    q = encoder(kind, shake=0.0)(y, observed)
    standard = (0.5, 0.25) if kind is BernoulliEncoder else (0.0, 1.0)
    assert q.batch_shape == (NU, N, LATENTS)
    assert (q.mean == standard[0]).all()
    assert (q.variance == standard[1]).all()


@KINDS
def test_latents_of_complete_rows(kind, y):
    """Complete rows are encoded once; all draws are of that distribution."""
    inner, complete = Counted(encoder(kind)), torch.ones(N, D).bool()
    draws = Latents(inner, LATENTS)(repeated(y, N_DRAWS), complete, stream(0))
    assert inner.n_rows == NU * N
    x, z = draws.values
    assert (x == y).all()
    assert z.shape == (N_DRAWS, NU, N, LATENTS)
    expected = inner.inner(y, complete).log_prob(z).sum(-1)
    torch.testing.assert_close(draws.log_prob, expected)
    assert (z[0] != z[1]).any()


@KINDS
def test_latents_of_completed_rows(kind, y, observed):
    inner = Counted(encoder(kind))
    drawn = repeated(y, N_DRAWS)
    cells = torch.randn(N_DRAWS, NU, N, D).double()
    drawn = drawn._replace(
        values=(y.where(observed, cells),), log_prob=cells.sum(-1) / 10
    )
    draws = Latents(inner, LATENTS)(drawn, observed, stream(0))
    assert inner.n_rows == N_DRAWS * NU * N
    x, z = draws.values
    assert (x == drawn.values[0]).all()
    expected = inner.inner(x, observed).log_prob(z).sum(-1) + drawn.log_prob
    torch.testing.assert_close(draws.log_prob, expected)
    if kind is BernoulliEncoder:
        torch.testing.assert_close(draws.log_score, expected - drawn.log_prob)
    else:
        assert draws.log_score is None


class Wide(nn.Module):
    """An encoder of the user, without a network of ours."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x, observed):
        return self.kind(x[:, :LATENTS])


@pytest.mark.parametrize(
    "kind", [lambda x: Normal(x, 1.0), lambda x: Bernoulli(logits=x)]
)
def test_an_encoder_of_the_user(kind, y, observed):
    filled = y.where(observed, 0.0)
    draws = Latents(Wide(kind), LATENTS)(repeated(filled, 2), observed, stream(0))
    expected = kind(filled[..., :LATENTS]).log_prob(draws.values[1]).sum(-1)
    torch.testing.assert_close(draws.log_prob, expected)
