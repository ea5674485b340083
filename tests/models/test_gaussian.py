"""Incomplete normal rows against dense Gaussian algebra, for every pattern at d = 5."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from skvnce.models.gaussian import Normal, arrange, cholesky, condition, invert

D = 5


@pytest.fixture
def normal(seed):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(D, D, generator=generator, dtype=torch.float64)
    mean = torch.randn(D, generator=generator, dtype=torch.float64)
    return Normal(mean, root @ root.T + 0.3 * torch.eye(D))


@pytest.fixture
def observed():
    """Make every pattern."""
    return (torch.arange(2**D)[:, None] >> torch.arange(D)) % 2 == 1


@pytest.fixture
def x(seed, observed):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(observed.shape, generator=generator, dtype=torch.float64)


def dense(normal, x, o):
    """Condition one row by the textbook formula."""
    mean, S = normal
    m = ~o
    gain = torch.linalg.solve(S[o][:, o], S[o][:, m]).T
    return mean[m] + gain @ (x[o] - mean[o]), S[m][:, m] - gain @ S[o][:, m]


def conditioned(normal, x, observed):
    precision, log_det = invert(normal.covariance)
    for batch in arrange(x, observed):
        found = condition(normal.mean, precision, batch)
        filled = normal.mean + batch.complete(found.residual, found.mean())
        yield batch, found, filled, found.log_prob - log_det / 2


@pytest.mark.parametrize("cells", [2**16, 60])
def test_every_pattern_against_dense_algebra(cells, normal, x, observed, monkeypatch):
    monkeypatch.setattr("skvnce.models.gaussian._CELLS_AT_ONCE", cells)
    n_rows = 0
    for batch, found, filled, log_prob in conditioned(normal, x, observed):
        covariance = found.covariance()
        for i, row in enumerate(batch.rows):
            n_rows += 1
            o = observed[row]
            mean, cov = dense(normal, x[row], o)
            n = len(mean)
            torch.testing.assert_close(filled[i][~o], mean)
            torch.testing.assert_close(filled[i][o], x[row][o])
            torch.testing.assert_close(covariance[i, :n, :n], cov)
            beyond = torch.eye(covariance.shape[1])[n:].to(cov)
            assert torch.equal(covariance[i, n:], beyond)
            if o.any():
                marginal = MultivariateNormal(
                    normal.mean[o], normal.covariance[o][:, o], validate_args=False
                )
                torch.testing.assert_close(log_prob[i], marginal.log_prob(x[row][o]))
            else:
                assert log_prob[i] == pytest.approx(0, abs=1e-10)
    assert n_rows == len(observed)


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_values_under_the_mask_are_never_read(value, normal, x, observed):
    hidden = x.where(observed, torch.tensor(value, dtype=x.dtype))
    pairs = zip(
        conditioned(normal, x, observed),
        conditioned(normal, hidden, observed),
        strict=True,
    )
    for (*_, filled, log_prob), (*_, other_filled, other_log_prob) in pairs:
        assert torch.equal(filled, other_filled)
        assert torch.equal(log_prob, other_log_prob)


def test_draws_have_the_conditional_covariance(normal, x, observed):
    """Exactly: the map from standard normal numbers is a root of the covariance."""
    for _, found, *_ in conditioned(normal, x, observed):
        basis = torch.eye(found.whitened.shape[1], dtype=x.dtype)
        roots = found.draw(basis[:, None].expand(-1, len(found.factor), -1))
        roots = roots - found.mean()
        torch.testing.assert_close(
            torch.einsum("kni,knj->nij", roots, roots), found.covariance()
        )


def test_batches_partition_the_rows(x, observed, monkeypatch):
    monkeypatch.setattr("skvnce.models.gaussian._CELLS_AT_ONCE", 60)
    found = arrange(x, observed)
    assert len(found) > 3
    rows = torch.cat([batch.rows for batch in found])
    assert torch.equal(rows.sort().values, torch.arange(len(observed)))
    assert all(len(b.rows) == 1 or b.missing.shape[1] ** 2 <= 60 for b in found)


def test_a_singular_matrix_is_mended_with_a_warning():
    singular = torch.ones(3, 3, dtype=torch.float64)
    singular[2] = singular[:, 2] = torch.tensor([0.0, 0.0, 1.0])
    with pytest.warns(RuntimeWarning, match="of its diagonal was added"):
        factor = cholesky(singular.expand(4, 3, 3))
    torch.testing.assert_close(
        factor @ factor.mT, singular.expand(4, 3, 3), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("entry", [-1.0, float("nan")])
def test_a_matrix_that_is_not_positive_is_refused(entry):
    with pytest.raises(torch.linalg.LinAlgError):
        cholesky(torch.diag(torch.tensor([1.0, entry]).double()))
