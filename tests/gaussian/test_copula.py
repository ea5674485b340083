"""Predictions of single cells through marginals and bounds."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from statistical import FAILURE, standard_errors

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import row_lattice
from skvnce.gaussian import copula, marginals
from skvnce.gaussian.calibration import Calibration
from skvnce.gaussian.copula import Copula

CORRELATION = torch.tensor([[1, 0.6, 0.3], [0.6, 1, 0.2], [0.3, 0.2, 1]]).double()


def lattice(rows):
    return row_lattice(rows.to_array(), 0)


def skewed_marginals():
    lines = marginals.linear(3)
    knots = lines.knots[:, 1:-1].clone()
    knots[0] = torch.exp(knots[0] / 2)
    return marginals.with_tails(knots, lines.scores[:, 1:-1])


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
    lines = skewed_marginals() if bent else None
    if bent and ends:
        lines = lines.within(*bounds)
    model = Copula(Normal(torch.zeros(3).double(), CORRELATION), lines, bounds)
    found = copula.cell_means(model, data)[:, 0]
    expected = copula.conditional_mean(model, data, lattice)[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    free = copula.cell_means(model._replace(bounds=None, marginals=None), data)[:, 0]
    if bent or ends:
        assert float((free - expected).abs().max()) > 0.01  # control


@pytest.mark.parametrize("lines", [None, skewed_marginals()])
def test_bounds_truncate_calibrated_cells(lines, seed):
    """As those calibrated draws without bounds that lie within them."""
    z = torch.special.ndtri((torch.arange(17).double() + 0.5) / 17)
    centres = torch.linspace(-2, 2, 17).double()
    shifts = 0.3 * centres[:, None] ** 2 + 0.4 * z
    columns = torch.tensor([0, 1])
    learnt = Calibration(columns, centres.expand(2, -1), shifts.expand(2, -1, -1))
    low = torch.tensor([0.9, -0.2, -torch.inf]).double()
    high = torch.tensor([torch.inf, 1.0, torch.inf]).double()
    normal = Normal(torch.zeros(3).double(), CORRELATION)
    model = Copula(normal, lines, (low, high), calibration=learnt)
    data = Incomplete.from_array(np.array([[np.nan, np.nan, 1.1]]))
    torch.manual_seed(seed)
    inside = copula.draw(model, data, 4000)[:, 0, :2]
    free = copula.draw(model._replace(bounds=None), data, 40_000)[:, 0, :2]
    kept = free[((free >= low[:2]) & (free <= high[:2])).all(1)]
    assert 2000 < len(kept) < 30_000
    p = [ks_2samp(inside[:, j], kept[:, j]).pvalue for j in (0, 1)]
    assert 2 * min(p) > FAILURE
    plain = copula.draw(model._replace(calibration=None), data, 4000)[:, 0, :2]
    assert ks_2samp(plain[:, 0], kept[:, 0]).pvalue < FAILURE  # control
    mean = copula.conditional_mean(model, data, lattice)[0, :2]
    std = kept.std(0)
    chance = standard_errors(2) * std / len(kept) ** 0.5
    assert ((mean - kept.mean(0)).abs() < 0.05 * std + chance).all()
    plain = copula.conditional_mean(model._replace(calibration=None), data, lattice)
    assert ((plain[0, :2] - mean).abs() > 0.1 * std).any()  # control
