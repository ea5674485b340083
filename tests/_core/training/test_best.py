"""Early stopping: the best round, its state, and when to stop."""

import torch
from torch import nn

from skvnce._core.training.rounds import Best


def test_the_best_round_comes_back():
    module = nn.Linear(1, 1)
    best = Best([module], patience=2)
    stops = []
    for n_round, gain in enumerate([0.1, 0.3, 0.2, -1.0], 1):
        nn.init.constant_(module.weight, n_round)
        stops.append(best.record(n_round, gain))
    assert stops == [False, False, False, True]
    assert best.restore() == 2 and module.weight.item() == 2.0


def test_the_start_is_best_where_nothing_gains():
    module = nn.Linear(1, 1)
    start = module.weight.clone()
    best = Best([module], patience=1)
    nn.init.zeros_(module.weight)
    assert best.record(1, -0.1)
    assert best.restore() == 0 and torch.equal(module.weight, start)
