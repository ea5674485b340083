"""Generalised score matching against its quadratic form and its population minimum."""

import numpy as np
import pytest
import torch
from oracles import GATE, orthant_rule, rejection, score_matching_loss, z_mean

from skvnce.graphs.score_matching import saturating_weight, statistics
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

PRECISION = np.array([[1.0, -0.5, 0.3], [-0.5, 2.0, 0.0], [0.3, 0.0, 0.7]])
LINEAR = np.array([0.2, -0.6, 0.8])


def loss_and_gradient(model, x, **options):
    loss = score_matching_loss(model, x, **options)
    K, b = torch.autograd.grad(loss, [model.precision, model.linear])
    return float(loss.detach()), (K + K.T) / 2, b


def test_the_weight_and_its_slope():
    x = torch.linspace(0, 50, 20, dtype=torch.float64, requires_grad=True)
    h, slope = saturating_weight(x)
    (derivative,) = torch.autograd.grad(h.sum(), x)
    torch.testing.assert_close(slope, derivative)
    assert float(h[0].detach()) == 0 and (h <= 1).all()


@pytest.mark.parametrize("fit_linear", [True, False])
def test_the_quadratic_form_is_this_loss(fit_linear, rng):
    x, K = torch.tensor(rng.gamma(2.0, size=(30, 3))), torch.tensor(PRECISION)
    centre = x.mean(0) * fit_linear
    b = torch.tensor(LINEAR * fit_linear)
    loss, by_K, by_b = loss_and_gradient(TruncatedGaussian(K, b), x)

    stats = statistics(x, centre, fit_linear)
    K, b = K.requires_grad_(), b.requires_grad_()
    rows = torch.cat([K, (b - K @ centre)[:, None]], 1) if fit_linear else K
    product = torch.einsum("jkl,jl->jk", stats.gamma, rows)
    form = (rows * product).sum() / 2 - (rows * stats.target).sum()
    gradient = torch.autograd.grad(form, [K, b] if fit_linear else [K])
    assert float(form.detach()) == pytest.approx(loss, rel=1e-10)
    symmetric = (gradient[0] + gradient[0].T) / 2
    torch.testing.assert_close(symmetric, by_K, rtol=1e-10, atol=1e-12)
    if fit_linear:
        torch.testing.assert_close(gradient[1], by_b, rtol=1e-10, atol=1e-12)


def test_loss_by_hand():
    # d = b - K x = 0.5 - 2, d' = -K = -2, h = x**2 = 1, h' = 2 x = 2
    model = TruncatedGaussian(torch.tensor([[2.0]]), torch.tensor([0.5]))
    x = torch.tensor([[1.0]])
    loss, *_ = loss_and_gradient(model, x, weight=lambda x: (x**2, 2 * x))
    assert loss == 2 * -1.5 + 1 * (-2 + 1.5**2 / 2)


def population_gradient(field, K, b):
    """Integrate the gradient at (K, b) over p(x) with precision 1 and this field."""
    points, weights = orthant_rule(1, 14.0, 80)
    log_p = field * points[:, 0] - points[:, 0] ** 2 / 2
    p = torch.softmax(log_p + weights.log(), 0)
    model = TruncatedGaussian(torch.tensor([[K]]).double(), torch.tensor([b]).double())
    each = [loss_and_gradient(model, row[None])[1:] for row in points]
    sums = (p @ torch.stack(part).flatten() for part in zip(*each, strict=True))
    return [*map(float, sums)]


@pytest.mark.parametrize("field", [-1.5, 0.0, 2.0])
def test_the_truth_is_stationary_by_quadrature(field):
    assert np.abs(population_gradient(field, 1.0, field)).max() < 1e-10
    assert np.abs(population_gradient(field, 1.1, field)).max() > 1e-3


def test_the_truth_is_stationary_in_a_sample(seed):
    rng, free = np.random.default_rng(seed), np.full(3, np.nan)
    x = rejection(PRECISION, LINEAR, free, 10_000, rng)

    def worst_z(K, b):
        model = TruncatedGaussian(torch.tensor(K), torch.tensor(b))
        batches = torch.tensor(x).split(200)
        result = (loss_and_gradient(model, batch) for batch in batches)
        upper = np.triu_indices(3)
        gradients = [torch.cat([by_K[*upper], by_b]) for _, by_K, by_b in result]
        return np.abs(z_mean(torch.stack(gradients), 0)).max()

    assert worst_z(PRECISION, LINEAR) < GATE
    assert worst_z(PRECISION, LINEAR + 0.3) > 2 * GATE
    assert worst_z(np.diag(np.diag(PRECISION)), LINEAR) > 2 * GATE
