"""Rows grouped by pattern against dense algebra, for every pattern at d = 5."""

import pytest
import torch
from oracles import conditioned

from skvnce._core import incomplete
from skvnce._core.distributions.normal import Covariances, prepare

D = 5


@pytest.fixture
def observed(seed):
    """Make every pattern once, and 30 rows of some of them."""
    generator = torch.Generator().manual_seed(seed)
    number = torch.cat([torch.arange(2**D), torch.randint(8, (30,))])
    number = number[torch.randperm(len(number), generator=generator)]
    return (number[:, None] >> torch.arange(D)) % 2 == 1


@pytest.mark.quick(6)
@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("cells", [2**16, 60, 1])
@pytest.mark.parametrize("widest", [0, 2, 5])  # LAPACK, both, sweeps
def test_every_pattern_against_dense_algebra(
    widest, cells, kinds, normal, x, observed, monkeypatch
):
    monkeypatch.setattr(incomplete, "_CELLS_AT_ONCE", cells)
    monkeypatch.setattr(incomplete, "_WIDEST_SWEPT", widest)
    x = x.where(observed, torch.nan)  # what is hidden is never read
    factored, rows_seen, used = prepare(normal), [], set()
    for group in incomplete.grouped(x, observed, kinds=kinds):
        conditional = group.condition(factored)
        log_prob, variance = (
            conditional.log_prob(factored),
            conditional.variance(factored),
        )
        used.add(group.by_observed)
        for i, row in enumerate(group.rows):
            rows_seen.append(int(row))
            filled, covariance, density = conditioned(normal, x[row], observed[row])
            torch.testing.assert_close(normal.mean + conditional.completed[i], filled)
            torch.testing.assert_close(variance[i], covariance.diagonal())
            torch.testing.assert_close(log_prob[i], density)
            one, total = torch.zeros(len(group.rows)).double(), Covariances.of(x)
            one[i] = 2.0
            conditional.add_covariances(total, one)
            torch.testing.assert_close(total.total(factored), 2 * covariance)
    assert sorted(rows_seen) == list(range(len(observed)))
    assert len(used) == kinds


def test_rows_of_a_pattern_share_its_block(x, observed):
    groups = incomplete.grouped(x, observed)
    assert sum(len(group.block) for group in groups) == 2**D < len(x)
    for group in groups:
        for row, pattern in zip(group.rows, group.pattern, strict=True):
            inside = observed[row] if group.by_observed else ~observed[row]
            block = group.block[pattern]
            assert block[block < D].tolist() == inside.nonzero()[:, 0].tolist()


def test_groups_are_bounded(x, observed, monkeypatch):
    monkeypatch.setattr(incomplete, "_CELLS_AT_ONCE", 20)
    result = incomplete.grouped(x, observed)
    assert len(result) > 6
    widths = [group.block.shape[1] for group in result]
    for group, width in zip(result, widths, strict=True):
        assert len(group.rows) == 1 or len(group.rows) * max(width**2, D) <= 20
    assert max(widths) <= (D + 1) // 2
    smaller = incomplete.grouped(x, observed, width=3)
    most = [max(len(group.rows) for group in groups) for groups in (result, smaller)]
    assert most == [20 // D, 20 // 3**2]


@pytest.mark.parametrize("d", [24, 25, 60])
def test_patterns_of_many_columns_are_distinguished(d, seed):
    """Masks of more columns than one number describes, also if they differ in one."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.rand(20, d, generator=generator) < 0.5
    for j in (0, 23, d - 1):
        other = masks[:3].clone()
        other[:, j] = ~other[:, j]
        masks = torch.cat([masks, other])
    rows = torch.randint(len(masks), (200,), generator=generator)
    result, pattern = incomplete.patterns(masks[rows])
    assert torch.equal(result[pattern], masks[rows])
    assert len(result) == len(masks[rows].unique(dim=0))


@pytest.mark.parametrize("width", [2, 20])
def test_a_singular_block_is_mended_with_a_warning(width):
    matrix = torch.eye(width + 1, dtype=torch.float64)
    matrix[:2, :2] = 1.0
    block = torch.stack([torch.arange(width), torch.arange(1, width + 1)])
    with pytest.warns(RuntimeWarning, match="of its diagonal was added"):
        result = incomplete.Blocks.of(matrix, block).by_pattern()
    torch.testing.assert_close(result[1], torch.eye(width).double(), atol=1e-6, rtol=0)
    assert (result[0, :2, :2].abs() > 1e4).all()


def test_an_empty_table_has_no_groups():
    empty = torch.zeros(0, 3).double()
    assert incomplete.grouped(empty, empty > 0) == []
