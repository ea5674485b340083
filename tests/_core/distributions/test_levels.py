"""Probabilities, quantiles and gradients of columns of categories."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import norm
from vaes import NORMAL

from skvnce._core.distributions.cells import Cells, Nominal, Ordinal

ORDINAL = Ordinal.of([1, 4], [torch.tensor([-0.5, 0.2, 1.0]), torch.tensor([0.3])])
NOMINAL = Nominal.of([0, 3], [3, 4], 5)  # column 2 is a number
N_OUTPUTS = 10
FAMILIES = NORMAL._replace(levels=(ORDINAL, NOMINAL))
N_LEVELS = {0: 3, 1: 4, 3: 4, 4: 2}


@pytest.fixture
def cells(seed):
    generator = torch.Generator().manual_seed(seed)
    loc, scale = torch.randn(2, 6, N_OUTPUTS, generator=generator).double()
    return Cells(loc, scale.exp(), FAMILIES)


def expected(cells, column, row):
    """Compute the probabilities of the levels of a cell by scipy."""
    loc, scale = (part[row].numpy() for part in cells.outputs)
    if column in (0, 3):
        outputs = {0: [0, 5, 6], 3: [3, 7, 8, 9]}[column]
        return softmax(loc[outputs])
    edges = {1: [-0.5, 0.2, 1.0], 4: [0.3]}[column]
    ends = [-np.inf, *edges, np.inf]
    return np.diff(norm.cdf(ends, loc[column], scale[column]))


def test_probabilities_are_those_of_scipy_and_sum_to_one(cells):
    assert cells.batch_shape == (6, 5)
    table, blocks = cells.level_probabilities, FAMILIES.level_blocks()
    assert {j: block.stop - block.start for j, block in blocks.items()} == N_LEVELS
    for column, block in blocks.items():
        values = table[:, block].numpy()
        np.testing.assert_allclose(values.sum(1), 1, atol=1e-8)
        for row in range(6):
            exact = expected(cells, column, row)
            np.testing.assert_allclose(values[row], exact, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(table.sum(1), 4, atol=1e-8)  # others are 0


def test_log_probabilities_are_their_logarithms(cells):
    for column, block in FAMILIES.level_blocks().items():
        for code in range(N_LEVELS[column]):
            x = torch.zeros(6, 5).double()
            x[:, column] = code + 1e-9 * (-1) ** code  # as maps to scores round
            values = cells.log_prob(x)[:, column].exp()
            expected = cells.level_probabilities[:, block][:, code]
            torch.testing.assert_close(values, expected)


def test_quantiles_have_these_probabilities(cells):
    n = 4000
    levels = ((torch.arange(n) + 0.5) / n).double()
    drawn = cells.icdf(levels[:, None, None].expand(n, 6, 5))
    for column, block in FAMILIES.level_blocks().items():
        for code in range(N_LEVELS[column]):
            share = (drawn[..., column] == code).double().mean(0)
            p = cells.level_probabilities[:, block][:, code]
            assert (share - p).abs().max() <= 1 / n
    assert drawn[..., [0, 1, 3, 4]].max() == 3


def test_gradients(cells):
    outputs = [part.requires_grad_() for part in cells.outputs]
    for code in range(4):
        x = torch.full((6, 5), float(code)).double()

        def log_prob(loc, scale, x=x):
            return Cells(loc, scale, FAMILIES).log_prob(x)

        assert torch.autograd.gradcheck(log_prob, outputs)


@pytest.mark.parametrize("code", [0, 3])
def test_gradients_are_finite_far_out(code):
    loc = torch.tensor([[-90.0] * 10, [90.0] * 10], requires_grad=True)
    scale = torch.full((2, 10), 0.03, requires_grad=True)
    log_prob = Cells(loc, scale, FAMILIES).log_prob(torch.full((2, 5), float(code)))
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert loc.grad.isfinite().all() and scale.grad.isfinite().all()


def test_logits_follow_normal_utilities():
    """The largest of normal variables names a level with about the softmax."""
    family = Nominal.of([0], [3], 1)
    mean = torch.tensor([0.8, 0.0, -0.5]).double()
    deviation = torch.tensor([0.7, 0.7, 0.7]).double()
    logits = mean.clone()
    family.scaled((logits, torch.zeros(3, 1).double()), deviation)
    points = torch.linspace(-8, 8, 4001).double()
    exact = []
    for k in range(3):
        z = mean[k] + deviation[k] * points
        others = [other for other in range(3) if other != k]
        below = np.prod([norm.cdf(z, mean[o], deviation[o]) for o in others], 0)
        exact.append(np.trapezoid(below * norm.pdf(points), points))
    values = family.probabilities(logits, deviation)[0].numpy()
    np.testing.assert_allclose(values, exact, atol=0.02)
    assert abs(softmax(mean.numpy()) - exact).max() > 0.1  # control: not scaled


def test_tables_of_numbers_have_no_probabilities():
    result = Cells(torch.zeros(3, 2), torch.ones(3, 2), NORMAL)
    assert result.level_probabilities.shape == (3, 0) and NORMAL.level_blocks() == {}
