"""Incomplete rows of factor analysis against dense algebra, every pattern at d = 5."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from skvnce.autoencoder.factor_analysis import (
    FactorModel,
    batches,
    infer,
    log_prob_observed,
)

D, K = 5, 2


@pytest.fixture
def model(seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(D, K + 2, generator=generator, dtype=torch.float64)
    return FactorModel(numbers[:, 0], numbers[:, 1:-1], numbers[:, -1].exp())


@pytest.fixture
def observed():
    """Make every pattern."""
    return (torch.arange(2**D)[:, None] >> torch.arange(D)) % 2 == 1


@pytest.fixture
def x(seed, observed):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(observed.shape, generator=generator, dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_every_pattern_against_dense_algebra(model, x, observed):
    log_prob, found = log_prob_observed(model, x, observed)
    covariance = found.covariance()
    S = model.covariance()
    for i, o in enumerate(observed):
        gain = torch.linalg.solve(S[o][:, o], model.loadings[o]).T
        close(found.mean[i], gain @ (x[i] - model.mean)[o])
        close(covariance[i], torch.eye(K) - gain @ model.loadings[o])
        if o.any():
            marginal = MultivariateNormal(
                model.mean[o], S[o][:, o], validate_args=False
            )
            close(log_prob[i], marginal.log_prob(x[i][o]))
    assert log_prob[0] == 0  # nothing observed
    assert (found.mean[0] == 0).all()


def test_covariance_and_precision_are_inverse(model):
    unit = torch.eye(D, dtype=torch.float64)
    close(model.covariance() @ model.precision(), unit)
    close(
        model.covariance() - model.noise_variance.diag(),
        model.loadings @ model.loadings.T,
    )


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_values_under_the_mask_are_never_read(value, model, x, observed):
    hidden = x.where(observed, torch.tensor(value, dtype=x.dtype))
    for a, b in zip(
        (*infer(model, x, observed), log_prob_observed(model, x, observed)[0]),
        (
            *infer(model, hidden, observed),
            log_prob_observed(model, hidden, observed)[0],
        ),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_little_noise_costs_no_digits(model, x, observed):
    """The textbook difference of squares would leave 1e-16 * 1e10 here."""
    quiet = model._replace(noise_variance=torch.full_like(model.mean, 1e-10))
    z = torch.linalg.lstsq(model.loadings, torch.ones(D, 1).double()).solution[:, 0]
    row = (model.mean + model.loadings @ z)[None].clone()
    row[0, 0] += 1e-6
    full = torch.ones_like(row, dtype=torch.bool)
    log_prob, _ = log_prob_observed(quiet, row, full)
    noise = torch.zeros(D, dtype=torch.float64)
    noise[0] = 1e-6
    plane = quiet.loadings @ torch.linalg.pinv(quiet.loadings)
    off = (noise - plane @ noise).square().sum() / 1e-10
    size = torch.linalg.slogdet(quiet.covariance()).logabsdet
    near = torch.linalg.pinv(quiet.loadings) @ (row[0] - model.mean)
    constant = D * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64))
    exact = -(off + near.square().sum() + size + constant) / 2
    torch.testing.assert_close(log_prob[0], exact, rtol=0, atol=1e-5)


def test_batches_partition_the_rows(model, monkeypatch):
    monkeypatch.setattr("skvnce.autoencoder.factor_analysis._CELLS_AT_ONCE", 60)
    found = [torch.arange(32)[rows] for rows in batches(model, 32)]
    assert torch.equal(torch.cat(found), torch.arange(32))
    assert [len(rows) for rows in found] == [6] * 5 + [2]
