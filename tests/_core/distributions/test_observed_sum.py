"""Sums over observed cells against the densities of single cells, and their slopes."""

import pytest
import torch
from torch.distributions import Independent, Normal
from vaes import families

from skvnce._core.distributions.cells import Cells, ScoredCells
from skvnce._core.distributions.families import DiagonalNormal
from skvnce._core.random import draw

VALUES = torch.tensor([[-1.0, 0.0, 2.0], [-2.0, 1.0, 1.5]]).double()
EDGES = torch.tensor([[-1.5, -0.5, 1.0, 3.0], [-3.5, -0.5, 1.25, 1.75]]).double()
N, DRAWS = 6, 3


def rounded_at(*places):
    n = len(places)
    return families(rounded=places, values=VALUES[:n], edges=EDGES[:n])


def table(seed, rounded, width):
    torch.manual_seed(seed)
    x = torch.randn(N, width).double()
    for table_of, column in zip(VALUES, rounded, strict=False):
        x[:, column] = table_of[torch.randint(3, (N,))]
    observed = torch.rand(N, width) < 0.6
    observed[:2, 0] = torch.tensor([True, False])  # at least one of each
    loc, scale = torch.randn(2, DRAWS, N, width).double()
    return x, observed, loc.requires_grad_(), scale.exp().detach().requires_grad_()


@pytest.mark.parametrize("rounded", [(), (2, 0), (0, 1)])
@pytest.mark.parametrize("far", [1.0, 60.0])
def test_sums_and_slopes_are_those_of_the_cells(rounded, far, seed):
    """Far from all values, too, where probabilities underflow."""
    width = 2 if rounded == (0, 1) else 4
    x, observed, loc, scale = table(seed, rounded, width)
    cells = Cells(far * loc, scale, rounded_at(*rounded))
    sums = cells.sum_observed(x.where(observed, torch.nan), observed)
    each = cells.log_prob(x)
    assert torch.allclose(sums, each.where(observed, 0.0).sum(-1), rtol=1e-9)
    assert not torch.allclose(sums, each.sum(-1), rtol=1e-3)
    slopes = torch.autograd.grad(sums.sum(), (loc, scale), retain_graph=True)
    expected = torch.autograd.grad(each.where(observed, 0.0).sum(), (loc, scale))
    for one, other in zip(slopes, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_known_cells_are_used(seed):
    x, observed, loc, scale = table(seed, (2, 0), 4)
    kinds = rounded_at(2, 0)
    whole = Cells(loc, scale, kinds).sum_observed(x, observed)
    rows = torch.tensor([4, 1])
    part = kinds.intervals(x).take(rows)
    cells = Cells(loc[:, rows], scale[:, rows], kinds).with_intervals(part)
    sums = cells.sum_observed(torch.zeros(2, 4).double(), observed[rows])
    torch.testing.assert_close(sums, whole[:, rows])


def test_other_families_and_gradients_in_x_take_the_slow_way(seed):
    x, observed, loc, scale = table(seed, (2, 0), 4)
    student = rounded_at(2, 0)._replace(student=torch.tensor([1]))
    assert student.intervals(x) is None
    cells = Cells(loc, scale, student)
    expected = cells.log_prob(x).where(observed, 0.0).sum(-1)
    torch.testing.assert_close(cells.sum_observed(x, observed), expected)
    scored = ScoredCells(Cells(loc, scale, rounded_at(2, 0)), observed)
    every = torch.ones_like(observed)
    exact = scored.log_prob(x).sum(-1)
    torch.testing.assert_close(scored.sum_observed(x, every), exact)
    moved = x.clone().requires_grad_()
    total = Cells(loc, scale, rounded_at()).sum_observed(moved, observed).sum()
    (slope,) = torch.autograd.grad(total, moved)
    expected = (-(x - loc) / scale.square()).sum(0).where(observed, 0.0)
    torch.testing.assert_close(slope, expected.detach())


def test_the_diagonal_normal_is_that_of_torch(torch_seeded):
    loc, scale = torch.randn(2, 5, 3).double()
    ours = DiagonalNormal(loc, scale.exp())
    theirs = Independent(Normal(loc, scale.exp()), 1)
    z, uniform = torch.randn(4, 5, 3).double(), torch.rand(4, 5, 4).double()
    torch.testing.assert_close(ours.log_prob(z), theirs.log_prob(z))
    torch.testing.assert_close(draw(ours, uniform), draw(theirs, uniform))
    wide = ours.expand((4, 5))
    assert wide.batch_shape == (4, 5)
    torch.testing.assert_close(wide.log_prob(z), theirs.log_prob(z))
