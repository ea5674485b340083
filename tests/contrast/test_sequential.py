"""Posteriors of several steps: number of draws and states, and what is integrated."""

import torch

from skvnce._core.posteriors import global_stream
from skvnce.contrast.models import RestrictedBoltzmann
from skvnce.contrast.posteriors import (
    BernoulliEncoder,
    ExactStates,
    Latents,
    Perceptron,
    SequentialPosterior,
    integrated,
    joined,
)

D, LATENTS, N = 3, 2, 5


def machine():
    torch.manual_seed(0)
    found = RestrictedBoltzmann(D, LATENTS).double()
    with torch.no_grad():
        found.weight.normal_()
    return found


def encoder():
    units = torch.zeros(D).double(), torch.ones(D).double()
    network = Perceptron(*units, (4,), LATENTS).double()
    return Latents(BernoulliEncoder(network), LATENTS)


def rows():
    x = (torch.rand(N, D) < 0.5).double()
    return x, torch.ones(N, D).bool()


def test_enumerated_states_are_counted():
    states = ExactStates(machine())
    assert SequentialPosterior([states], 1).n_states == 2**LATENTS
    assert SequentialPosterior([], 3).n_states == 1
    assert SequentialPosterior([encoder()], 3).n_states == 1


def test_there_is_one_draw_if_nothing_is_random():
    x, complete = rows()
    incomplete = complete.clone()
    incomplete[2, 1] = False
    states = ExactStates(machine())
    assert joined([states], 7, complete).n_draws == 1
    assert joined([states], 7, incomplete).n_draws == 7
    assert joined([encoder()], 7, complete).n_draws == 7


def test_nothing_is_drawn_if_all_is_integrated():
    x, observed = rows()
    draws = integrated(x, observed, global_stream)
    assert draws.values[0].shape == (1, N, D) and draws.values[1] is observed
    assert (draws.log_prob == 0).all() and (draws.log_weight == 0).all()
