"""Posteriors of several steps: number of draws and states, and what is integrated."""

import torch
from energies import RestrictedBoltzmann

from skvnce.contrast.posteriors import (
    BernoulliEncoder,
    ExactStates,
    Latents,
    Perceptron,
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


def test_there_is_one_draw_if_nothing_is_random():
    x, complete = rows()
    incomplete = complete.clone()
    incomplete[2, 1] = False
    states = ExactStates(machine())
    assert joined([states], 7, complete).n_draws == 1
    assert joined([states], 7, incomplete).n_draws == 7
    assert joined([encoder()], 7, complete).n_draws == 7
