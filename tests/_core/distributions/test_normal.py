"""Incomplete normal rows against dense Gaussian algebra, for every pattern at d = 5."""

import pytest
import torch
from oracles import all_patterns, conditioned

from skvnce._core.distributions.normal import (
    ByMissing,
    Covariances,
    arrange,
    cholesky,
    prepare,
)

D = 5


@pytest.fixture
def observed():
    return all_patterns(D)


def in_batches(normal, x, observed, kinds=2):
    factored = prepare(normal)
    for batch in arrange(x, observed, kinds=kinds):
        conditional = batch.condition(factored)
        yield batch, conditional, normal.mean + conditional.completed()


def covariance_of(found, weight):
    """Sum the covariances of the missing cells of a batch."""
    sums = Covariances.of(found.batch.x).added(found, weight)
    return sums.total(getattr(found, "normal", None))


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("cells", [2**16, 60])
def test_patterns_against_dense_algebra(cells, kinds, normal, x, observed, monkeypatch):
    monkeypatch.setattr("skvnce._core.distributions.normal._CELLS_AT_ONCE", cells)
    x = x.where(observed, torch.nan)  # what is hidden is never read
    rows_seen, used = [], set()
    for batch, result, filled in in_batches(normal, x, observed, kinds):
        used.add(batch.kind)
        for i, row in enumerate(batch.rows):
            rows_seen.append(int(row))
            expected, covariance, log_prob = conditioned(normal, x[row], observed[row])
            torch.testing.assert_close(filled[i], expected)
            one = torch.zeros(len(batch.rows)).double()
            one[i] = 2.0
            torch.testing.assert_close(covariance_of(result, one), 2 * covariance)
            if batch.kind is ByMissing:
                torch.testing.assert_close(result.variance()[i], covariance.diagonal())
            assert result.log_prob[i] == pytest.approx(float(log_prob), abs=1e-10)
    assert sorted(rows_seen) == list(range(len(observed)))
    assert len(used) == kinds


@pytest.mark.parametrize("kinds", [1, 2])
def test_draws_have_the_conditional_covariance(kinds, normal, x, observed, monkeypatch):
    """Exactly: the map from standard normal numbers is a root of the covariance."""

    def basis(shape, like):
        n_draws, n, width = shape
        return torch.eye(n_draws).double()[:, None, :width].expand(-1, n, -1)

    for _, result, _ in in_batches(normal, x, observed, kinds):
        with monkeypatch.context() as patch:
            patch.setattr("skvnce._core.distributions.normal.normal_numbers", basis)
            roots = result.draw(D) - result.completed()
        for i in range(len(result.batch.rows)):
            one = torch.zeros(len(result.batch.rows)).double()
            one[i] = 1.0
            root = roots[:, i]
            torch.testing.assert_close(root.T @ root, covariance_of(result, one))


def test_batches_are_bounded(x, observed, monkeypatch):
    monkeypatch.setattr("skvnce._core.distributions.normal._CELLS_AT_ONCE", 20)
    result = arrange(x, observed)
    assert len(result) > 6
    assert all(len(b.rows) == 1 or b.block.shape[1] ** 2 <= 20 for b in result)
    assert all(b.block.shape[1] <= (D + 1) // 2 for b in result)


def test_a_singular_matrix_is_mended_with_a_warning():
    singular = torch.ones(3, 3, dtype=torch.float64)
    singular[2] = singular[:, 2] = torch.tensor([0.0, 0.0, 1.0])
    with pytest.warns(RuntimeWarning, match="of its diagonal was added"):
        factor = cholesky(singular.expand(4, 3, 3))
    expected = singular.expand(4, 3, 3)
    torch.testing.assert_close(factor @ factor.mT, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("entry", [-1.0, float("nan")])
def test_a_matrix_that_is_not_positive_is_refused(entry):
    with pytest.raises(torch.linalg.LinAlgError):
        cholesky(torch.diag(torch.tensor([1.0, entry]).double()))


def test_rows_of_one_mask_share_its_blocks(normal, x, observed):
    """Leading dimensions of the rows, as of noise, are those of each alone."""
    y, factored = torch.stack([x, x.flip(0), 2 * x]), prepare(normal)
    shared = arrange(y, observed, kinds=1)
    for batch in shared:
        conditional = batch.condition(factored)
        assert conditional.log_prob.shape == (3, len(batch.rows))
        noise = torch.randn(3, *batch.block.shape).double()
        for i in range(3):
            (alone,) = (
                part
                for part in arrange(y[i], observed, kinds=1)
                if torch.equal(part.rows, batch.rows)
            )
            one = alone.condition(factored)
            torch.testing.assert_close(conditional.log_prob[i], one.log_prob)
            torch.testing.assert_close(conditional.completed()[i], one.completed())
            torch.testing.assert_close(conditional.at(noise)[i], one.at(noise[i]))
            cells = torch.randn(3, *x[batch.rows].shape).double()
            gathered = batch.gather_cells(cells)
            assert torch.equal(gathered[i], alone.gather_cells(cells[i]))
            missing = cells.where(~observed[batch.rows], 0.0)
            assert torch.equal(batch.scatter(gathered), missing)
