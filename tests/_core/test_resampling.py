"""Acceptance and resampling where weights are ordinary, extreme or none."""

import numpy as np
import torch
from oracles import GATE

from skvnce._core.models import accept, resample
from skvnce._core.random import seeded

N, INF = np.nan, np.inf


def test_acceptance():
    log_weight = torch.tensor([[0, 0, 0, -INF, -INF, 0], [1, -1, -INF, 0, -INF, N]])
    accepted, probability = accept(log_weight, torch.full((6,), 0.3))
    expected = torch.tensor([1, np.exp(-1), 0, 1, 0, 0]).float()
    torch.testing.assert_close(probability, expected)
    assert accepted.tolist() == [True, True, False, True, False, False]


def test_resampling():
    log_weight = torch.tensor([-INF, 0.0, np.log(3.0), -INF])
    uniform = torch.tensor([0.0, 0.2, 0.3, 0.9, 1.0])
    assert resample(log_weight, uniform).tolist() == [1, 1, 2, 2, 2]
    assert resample(log_weight - 1e4, uniform).tolist() == [1, 1, 2, 2, 2]
    none = torch.tensor([-INF, N, -INF, -INF])
    assert resample(none, uniform).tolist() == [0, 0, 1, 3, 3]  # all alike


def test_resampling_of_rows_and_chains():
    log_weight = torch.full((3, 2, 5), -INF)
    log_weight[1], log_weight[2, 1, 4] = 0.0, 50.0
    index = resample(log_weight, torch.full((7, 2, 5), 0.5))
    assert index.shape == (7, 2, 5)
    assert (index == 1).sum() == 7 * 9
    assert (index[:, 1, 4] == 2).all()


def test_resampling_is_in_proportion_to_the_weights(seed):
    log_weight = torch.tensor([0.0, 1.0, -2.0, 0.5]).double() + 700
    with seeded(seed):
        index = resample(log_weight, torch.rand(100_000).double())
    share = torch.bincount(index).numpy() / len(index)
    weight = log_weight.softmax(0).numpy()
    error = np.sqrt(weight * (1 - weight) / len(index))
    assert np.abs((share - weight) / error).max() < GATE
