"""Encoders of event-shaped distributions: one normal, and mixtures."""

import pytest
import torch
from _vae_networks import MixtureEncoder
from oracles import shaken
from torch.distributions import Normal
from torch.nn.functional import softplus

from skvnce._core.random import draw, stream
from skvnce.contrast.posteriors import Perceptron

D, LATENTS, K, N = 3, 2, 4, 6


def network(n_outputs, shake=0.7):
    values = Perceptron(torch.zeros(D), torch.ones(D), [4], n_outputs).double()
    return shaken(values, shake)


def mixture_encoder(n_components=K, shake=0.7):
    inner = network(n_components * (2 * LATENTS + 1), shake)
    return MixtureEncoder(inner, n_components, LATENTS).double()


@pytest.fixture
def rows(torch_seeded):
    return torch.randn(2, N, D).double(), torch.rand(N, D) < 0.6


def test_the_outputs_of_the_network_are_the_parameters(rows):
    result = mixture_encoder()
    q, outputs = result(*rows), result.network(*rows)
    assert (q.batch_shape, q.event_shape) == ((2, N), (LATENTS,))
    for k in range(K):
        own = outputs[..., k * 2 * LATENTS : (k + 1) * 2 * LATENTS]
        loc, scale = own[..., :LATENTS], own[..., LATENTS:]
        torch.testing.assert_close(q.loc[..., k, :], loc + result.start[k])
        torch.testing.assert_close(q.scale[..., k, :], softplus(scale) + 1e-5)
    assert (q.logits == outputs[..., -K:]).all()  # last


def test_components_start_apart(rows):
    """Equal components have equal gradients, and would stay equal."""
    numbers = stream(0)(0, torch.empty(20, 2, N, LATENTS + 1).double())

    def loc_gradients(encoder):
        q = encoder(*rows)
        z = draw(q, numbers)
        toward = Normal(1.0, 1.0).log_prob(z).sum() - q.log_prob(z).sum()
        return torch.autograd.grad(toward, q.loc)[0]

    encoder = mixture_encoder(shake=0.0)  # as made: one q for all rows
    apart = loc_gradients(encoder)
    assert (apart[..., 0, :] - apart[..., 1, :]).abs().min() > 1e-6
    encoder.start.zero_()
    equal = loc_gradients(encoder)
    torch.testing.assert_close(equal, equal[..., :1, :].expand_as(equal))
