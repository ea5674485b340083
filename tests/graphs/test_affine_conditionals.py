"""Affine truncated-normal conditionals: they contain those of a truncated Gaussian."""

import torch

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce.graphs.truncated_gaussian import TruncatedGaussian
from skvnce.graphs.vnce_cdi import AffineConditionals

D, N = 3, 40
PRECISION = torch.tensor([[1.5, 0.6, -0.5], [0.6, 1.2, 0.0], [-0.5, 0.0, 2.0]]).double()
LINEAR = torch.tensor([1.5, 0.5, -1.0]).double()
START = TruncatedNormal(torch.tensor([0.1, -2, 1]).double(), LINEAR.exp())
COLUMNS = torch.arange(N) % D


def rows(seed):
    return START.sample((N,)) * (1 + seed)


def test_they_start_at_the_marginals(seed):
    q = AffineConditionals(START, torch.ones(D).double())
    found = q.at(rows(seed), COLUMNS)
    torch.testing.assert_close(found.loc, START.loc[COLUMNS])
    torch.testing.assert_close(found.scale, START.scale[COLUMNS])


def test_they_contain_the_conditionals_of_the_model(seed):
    model = TruncatedGaussian(PRECISION, LINEAR).requires_grad_(False)
    origin, diagonal = torch.tensor([0.3, 1.0, 2.0]).double(), PRECISION.diagonal()
    q = AffineConditionals(START, origin)
    slopes = PRECISION.diagonal().diag() - PRECISION
    with torch.no_grad():
        q.slopes[0] = slopes / diagonal[:, None]
        q.intercepts[0] = (LINEAR + slopes @ origin) / diagonal
        q.intercepts[1] = -diagonal.log() / 2
    x = rows(seed)
    found, expected = q.at(x, COLUMNS), model.conditionals(x)
    own = torch.arange(N), COLUMNS
    torch.testing.assert_close(found.loc, expected.loc[own])
    torch.testing.assert_close(found.scale, expected.scale[own])


def test_they_do_not_see_their_own_column(seed):
    q = AffineConditionals(START, torch.ones(D).double())
    with torch.no_grad():
        q.slopes += 1
    x = rows(seed)
    moved = x.scatter(1, COLUMNS[:, None], 1e6)
    found, other = q.at(x, COLUMNS), q.at(moved, COLUMNS)
    assert torch.equal(found.loc, other.loc)
    assert torch.equal(found.scale, other.scale)
    found = q.at(x.expand(2, N, D), COLUMNS)
    assert found.batch_shape == (2, N)
