"""Covariance selection, against closed forms and optimality."""

import numpy as np
import pytest
import torch
from tables import covariance_of

from skvnce.graphs.graphical_lasso import Blocks, fit_to_edges

SIZES = [1, 3, 1, 2, 4]
CYCLE = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


def of_edges(pairs, d):
    edges = torch.zeros(d, d, dtype=torch.bool)
    for i, j in pairs:
        edges[i, j] = edges[j, i] = True
    return edges


def fitted(S, edges, blocks, **options):
    options = {"tol": 1e-11, **options}
    return fit_to_edges(S, torch.eye(len(S)).double(), edges, blocks, **options)


def single(d):
    return Blocks.of(torch.ones(d, dtype=torch.long))


@pytest.mark.parametrize("d", [3, 8])
def test_a_chain_has_a_closed_form(d, seed):
    """Inverses of cliques less those of separators (Lauritzen 1996, section 5.3.2)."""
    S = covariance_of(d, seed)
    expected = torch.zeros_like(S)
    for j in range(d - 1):
        pair = slice(j, j + 2)
        expected[pair, pair] += torch.linalg.inv(S[pair, pair])
    for j in range(1, d - 1):
        expected[j, j] -= 1 / S[j, j]
    chain = of_edges([(j, j + 1) for j in range(d - 1)], d)
    precision = fitted(S, chain, single(d)).precision
    torch.testing.assert_close(precision, expected, atol=1e-5, rtol=0)
    longer = chain | of_edges([(0, d - 1)], d)
    other = fitted(S, longer, single(d)).precision
    assert (other - expected).abs().max() > 1e-3


def test_all_edges_give_the_inverse_and_none_the_diagonal(seed):
    S = covariance_of(6, seed)
    off = torch.eye(6) == 0
    precision = fitted(S, off, single(6)).precision
    torch.testing.assert_close(precision, torch.linalg.inv(S), atol=1e-5, rtol=0)
    precision = fitted(S, ~off & off, single(6)).precision
    torch.testing.assert_close(precision, S.diagonal().reciprocal().diag())


@pytest.mark.parametrize("sizes", [[1] * 5, SIZES])
def test_the_inverse_is_the_covariance_at_edges(sizes, seed):
    """Of a cycle of five columns, which has no closed form."""
    blocks, S = Blocks.of(torch.tensor(sizes)), covariance_of(sum(sizes), seed)
    edges = of_edges(CYCLE, 5)
    fit = fitted(S, edges, blocks)
    free = blocks.spread(edges | torch.eye(5, dtype=torch.bool))
    assert (fit.precision[~free] == 0).all()
    inverse = torch.linalg.inv(fit.precision)
    torch.testing.assert_close(inverse[free], S[free], atol=1e-5, rtol=0)
    assert (inverse - S)[~free].abs().max() > 1e-2
    assert -1e-13 <= fit.gap <= 1e-11  # of terms near 10, up to rounding


def test_the_gap_bounds_the_excess(seed):
    blocks, S = Blocks.of(torch.tensor(SIZES)), covariance_of(sum(SIZES), seed)
    edges = of_edges(CYCLE, 5)
    least = fitted(S, edges, blocks).objective
    for steps in range(1, 5):
        rough = fitted(S, edges, blocks, max_iter=steps)
        assert 0 <= rough.objective - least <= rough.gap + 1e-9


@pytest.mark.parametrize("start", ["far", "indefinite", "near"])
def test_nearly_equal_columns_are_fitted_from_any_start(start, rng):
    x = rng.normal(size=(300, 6))
    x[:, 5] = x[:, 0] + 1e-4 * rng.normal(size=300)
    S = torch.tensor(np.corrcoef(x.T))
    K = torch.linalg.inv(S)
    begin = {"far": 100 * K, "indefinite": torch.ones(6, 6).double(), "near": K}[start]
    edges = of_edges([*CYCLE, (0, 5)], 6)
    result = fit_to_edges(S, begin, edges, single(6), tol=1e-8)
    # Elements of 1e8 in tr(S K) cannot be added more precisely.
    rounding = torch.finfo(S.dtype).eps * (S * result.precision).abs().sum()
    assert result.gap <= max(1e-8, 5 * rounding)
    inverse = torch.linalg.inv(result.precision)
    torch.testing.assert_close(inverse[edges], S[edges], atol=1e-4, rtol=0)
