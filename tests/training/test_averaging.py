"""Averages of parameters over steps: their weights, and what they leave alone."""

import torch
from torch import nn

from skvnce.training.averaging import Averaged


def steps_of(values):
    """Move one weight through some values; the module and its average."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 1.0)
    averaged = Averaged([module])
    for value in values:
        nn.init.constant_(module.weight, value)
        averaged.update()
    return module, averaged


def test_a_step_counts_less_with_every_later_one():
    values = [3.0, -2.0, 5.0]
    module, averaged = steps_of(values)
    expected = 1.0
    for number, value in enumerate(values, 1):
        expected += (value - expected) / (1 + number / 4)
    (mean,) = averaged.modules
    assert torch.isclose(mean.weight, torch.tensor(expected)).all()
    assert module.weight.item() == 5.0  # which goes on by itself


def test_modules_take_the_averages():
    module, averaged = steps_of([4.0, 1.0] * 400)
    averaged.replace()
    assert torch.equal(module.weight, averaged.modules[0].weight)
    assert 2.4 < module.weight.item() < 2.6  # over 200 steps


def test_modules_without_parameters_pass():
    averaged = Averaged([nn.Identity()])
    averaged.update()
    averaged.replace()
