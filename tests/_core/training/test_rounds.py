"""Averages of parameters, and early stopping."""

import torch
from torch import nn

from skvnce._core.training.rounds import Averaged, Best

# Averages of parameters over steps: their weights, and what they leave alone


def steps_of(values, share=None):
    """Move one weight through some values; the module and its average."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 1.0)
    averaged = Averaged([module], share)
    for value in values:
        nn.init.constant_(module.weight, value)
        averaged.update()
    return module, averaged


def test_a_step_counts_less_with_every_later_one():
    values = [3.0, -2.0, 5.0]
    module, averaged = steps_of(values)
    decay = 1 - 1 / 200
    expected = decay**3 + sum(v * decay ** (2 - i) / 200 for i, v in enumerate(values))
    (mean,) = averaged.modules
    assert torch.isclose(mean.weight, torch.tensor(expected)).all()
    assert module.weight.item() == 5.0  # which goes on by itself


def test_early_averages_may_span_a_share_of_the_steps():
    values, expected = [3.0, -2.0, 5.0], 1.0
    for number, value in enumerate(values, 1):
        expected += (value - expected) / (1 + number / 4)
    (mean,) = steps_of(values, 0.25)[1].modules
    assert torch.isclose(mean.weight, torch.tensor(expected)).all()
    (late,) = steps_of([4.0, 1.0] * 400, 0.25)[1].modules
    assert 2.4 < late.weight.item() < 2.6  # over 200 steps


def test_modules_take_the_averages():
    module, averaged = steps_of([4.0] * 10)
    averaged.replace()
    assert torch.equal(module.weight, averaged.modules[0].weight)
    assert module.weight.item() < 1.2


def test_modules_without_parameters_pass():
    averaged = Averaged([nn.Identity()])
    averaged.update()
    averaged.replace()


# Early stopping: the best round, its state, and when to stop


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
