"""Incomplete normal rows against dense Gaussian algebra, for every pattern at d = 5."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from skvnce.models.gaussian import Normal, batches, condition, invert, log_prob_observed

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


def test_every_pattern_against_dense_algebra(normal, x, observed):
    log_prob, filled, found = log_prob_observed(normal, x, observed)
    covariance = found.covariance()
    for i, o in enumerate(observed):
        mean, cov = dense(normal, x[i], o)
        n = len(mean)
        torch.testing.assert_close(filled[i][~o], mean)
        torch.testing.assert_close(covariance[i, :n, :n], cov)
        assert (covariance[i, n:] == 0).all()
        if o.any():
            marginal = MultivariateNormal(
                normal.mean[o], normal.covariance[o][:, o], validate_args=False
            )
            torch.testing.assert_close(log_prob[i], marginal.log_prob(x[i][o]))
    assert log_prob[0] == pytest.approx(0, abs=1e-10)  # nothing observed
    assert torch.equal(filled[observed], x[observed])


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_values_under_the_mask_are_never_read(value, normal, x, observed):
    hidden = x.where(observed, torch.tensor(value, dtype=x.dtype))
    for a, b in zip(
        log_prob_observed(normal, x, observed)[:2],
        log_prob_observed(normal, hidden, observed)[:2],
        strict=True,
    ):
        assert torch.equal(a, b)


def test_draws_have_the_conditional_covariance(normal, x, observed):
    """Exactly: the map from standard normal numbers is a root of the covariance."""
    found = condition(normal.mean, invert(normal.covariance)[0], x, observed)
    basis = torch.eye(found.mean.shape[1], dtype=x.dtype)
    moved = found.draw(basis[:, None].expand(-1, len(x), -1)) - found.mean
    roots = moved * found.valid
    torch.testing.assert_close(
        torch.einsum("kni,knj->nij", roots, roots), found.covariance()
    )


def test_batches_partition_the_rows(observed, monkeypatch):
    monkeypatch.setattr("skvnce.models.gaussian._CELLS_AT_ONCE", 60)
    found = list(batches(observed))
    assert len(found) > 3
    assert torch.equal(torch.cat(found).sort().values, torch.arange(len(observed)))
    counts = (~observed).sum(1)
    assert all(len(b) == 1 or len(b) * counts[b].max() ** 2 <= 60 for b in found)
