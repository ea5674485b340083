"""NCE against its definition, by enumeration of a finite space."""

import numpy as np
import pytest
import torch
from scipy.special import expit

from skvnce.contrast.objective import accuracy, nce

RATIOS = [0.5, 1.0, 10.0]
# Rows of a finite space: x_i occurs DATA[i] times in the data, NOISE[i] in the noise.
DATA = torch.tensor([5, 1, 3, 7, 4])
NOISE = torch.tensor([2, 6, 4, 4, 4])


def tables(log_phi):
    """Return log phi - log p_y at all rows of data and noise."""
    ratio = log_phi - (NOISE / NOISE.sum().double()).log()
    return ratio.repeat_interleave(DATA), ratio.repeat_interleave(NOISE)


def truth():
    return (DATA / DATA.sum().double()).log().requires_grad_()


@pytest.mark.parametrize("nu", RATIOS)
def test_value_by_definition(nu, seed):
    data, noise = np.random.default_rng(seed).normal(size=(2, 7)) * 3
    h_data, h_noise = expit(data - np.log(nu)), expit(noise - np.log(nu))
    expected = -np.log(h_data).mean() - nu * np.log(1 - h_noise).mean()
    loss = nce(torch.tensor(data), torch.tensor(noise), nu)
    assert float(loss) == pytest.approx(expected, rel=1e-12)


def test_accuracy_weighs_both_classes():
    data, noise = torch.tensor([1.0, -1.0]), torch.tensor([-1.0, -1.0, 3.0, -2.0])
    assert float(accuracy(data, noise, 1.0)) == (1 / 2 + 3 / 4) / 2
    # with nu = 3 a row is called data above log 3
    assert float(accuracy(data, noise, 3.0)) == (0 + 3 * 3 / 4) / 4


@pytest.mark.parametrize("nu", RATIOS)
def test_the_truth_with_its_scale_is_the_minimum(nu):
    log_phi = truth()
    value = nce(*tables(log_phi), nu)
    (gradient,) = torch.autograd.grad(value, log_phi)
    assert gradient.abs().max() < 1e-14
    for shift in [torch.full((5,), 0.1), torch.eye(5)[2], -torch.eye(5)[0]]:
        assert nce(*tables(log_phi + shift), nu) > value + 1e-4


def test_sure_answers_stay_finite():
    far = torch.tensor([1e4, -1e4]).requires_grad_()
    value = nce(far, far, 2.0)
    (gradient,) = torch.autograd.grad(value, far)
    assert value.isfinite()
    assert gradient.isfinite().all()
    assert float(nce(far[:1], far[1:], 2.0).detach()) == 0
