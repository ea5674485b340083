"""Posteriors of several steps: number of draws and states, and what is integrated."""

import torch
from _energies import RestrictedBoltzmann

from skvnce.contrast import posteriors

D, LATENTS, N = 3, 2, 5


def machine():
    torch.manual_seed(0)
    found = RestrictedBoltzmann(D, LATENTS).double()
    with torch.no_grad():
        found.weight.normal_()
    return found


def encoder():
    units = torch.zeros(D).double(), torch.ones(D).double()
    network = posteriors.Perceptron(*units, (4,), LATENTS).double()
    return posteriors.Latents(posteriors.BernoulliEncoder(network), LATENTS)


def rows():
    x = (torch.rand(N, D) < 0.5).double()
    return x, torch.ones(N, D).bool()


def test_there_is_one_draw_if_nothing_is_random():
    x, complete = rows()
    incomplete = complete.clone()
    incomplete[2, 1] = False
    states = posteriors.ExactStates(machine())
    assert posteriors.joined([states], 7, complete).n_draws == 1
    assert posteriors.joined([states], 7, incomplete).n_draws == 7
    assert posteriors.joined([encoder()], 7, complete).n_draws == 7
