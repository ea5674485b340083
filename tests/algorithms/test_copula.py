"""Predictions of single cells through margins and bounds."""

import numpy as np
import pytest
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import row_lattice
from skvnce.algorithms import copula, margins
from skvnce.algorithms.copula import Copula
from skvnce.distributions.normal import Normal

CORRELATION = torch.tensor([[1, 0.6, 0.3], [0.6, 1, 0.2], [0.3, 0.2, 1]]).double()


def skewed_margins():
    lines = margins.straight(3)
    knots = lines.knots[:, 1:-1].clone()
    knots[0] = torch.exp(knots[0] / 2)
    return margins.with_tails(knots, lines.scores[:, 1:-1])


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("ends", [(0.3, 3.0), (0.2, np.inf), (-np.inf, 2.8), None])
def test_one_missing_cell_is_predicted_alike(bent, ends, seed):
    """With one missing cell in a row the mean of the row is exact, too."""
    x = np.random.default_rng(seed).normal(scale=1.5, size=(100, 3))
    x[:, 0] = np.nan
    data = Incomplete.from_array(x)
    bounds = ends and tuple(
        torch.tensor([end, s, s])
        for end, s in zip(ends, (-np.inf, np.inf), strict=True)
    )
    lines = skewed_margins() if bent else None
    if bent and ends:
        lines = lines.within(*bounds)
    model = Copula(Normal(torch.zeros(3).double(), CORRELATION), lines, bounds)
    found = copula.cell_means(model, data)[:, 0]
    expected = copula.conditional_mean(
        model, data, lambda rows: row_lattice(rows.to_array(), 0)
    )[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    free = copula.cell_means(model._replace(bounds=None, margins=None), data)[:, 0]
    if bent or ends:
        assert float((free - expected).abs().max()) > 0.01  # control
