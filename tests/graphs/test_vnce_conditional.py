"""The M-step by VNCE: exact where at most one cell is hidden, and stationary at p*."""

import numpy as np
import pytest
import torch
from oracles import GATE, log_integral, orthant_rule, rejection, z_mean

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.contrast.objective import nce
from skvnce.graphs import em
from skvnce.graphs.em import DIAGONAL_FLOOR, Penalty, Theta, minimise_loss, off_diagonal
from skvnce.graphs.vnce_cdi import (
    choose_latent,
    conditional_log_ratio,
    latent_rows,
    vnce,
)

D, NU = 3, 4
PRECISION = np.array([[1.5, 0.6, -0.5], [0.6, 1.5, 0.0], [-0.5, 0.0, 2.0]])
LINEAR = np.array([1.5, 0.5, 1.0])


def rows_of_model(n, rng):
    return torch.tensor(rejection(PRECISION, LINEAR, np.full(D, np.nan), n, rng))


@pytest.fixture
def data(seed):
    """Complete rows of the model."""
    return rows_of_model(200, np.random.default_rng(seed))


@pytest.fixture
def noise(data):
    return em.marginals(Incomplete(data, torch.ones_like(data).bool()))


def one_hidden(n, rng):
    """Hide at most one cell a row."""
    hidden = torch.tensor(rng.integers(-1, D, size=n))
    return hidden[:, None] != torch.arange(D)


def tables(data, noise, observed, seed):
    """Make the rows of an M-step: those of the data and those of the noise."""
    with seeded(seed):
        drawn = noise.sample((len(data) * NU,))
        observed_noise = observed.repeat(NU, 1)
        return (
            latent_rows(data, observed, noise),
            latent_rows(drawn, observed_noise, noise),
        )


def solve(rows, centre, alpha=0.0, ridge=0.0, fit_linear=True, tol=1e-7):
    """Run the M-step on given rows of the data and of the noise."""
    of_data, contrast = rows
    start = Theta(torch.eye(D).double(), torch.zeros(D).double(), torch.zeros(()))

    def loss(theta):
        ratios = [
            conditional_log_ratio(part, theta, centre) for part in (of_data, contrast)
        ]
        return nce(*ratios, NU).loss

    return minimise_loss(
        loss,
        start._replace(log_scale=torch.zeros((), dtype=torch.float64)),
        centre,
        Penalty(alpha * off_diagonal(D), ridge),
        fit_linear=fit_linear,
        fit_scale=True,
        tol=tol,
    )


FREE = Penalty(torch.zeros(D, D).double(), 0.0)


def m_step(data, noise, noise_ratio):
    """Build the M-step of complete data."""
    complete = Incomplete(data, torch.ones_like(data).bool())
    built = vnce(
        complete, noise, data.mean(0), noise_ratio=noise_ratio, fit_linear=True
    )
    return built.m_step


# Rows with one latent cell


def test_latent_cells_are_missing_cells_chosen_evenly(seed):
    observed = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]).bool()
    with seeded(seed):
        latent = choose_latent(observed.repeat(5000, 1, 1)).numpy()
    assert (latent[:, 0] == -1).all()
    assert (latent[:, 2] == 2).all()
    assert set(latent[:, 1]) == {0, 2, 3}
    z = z_mean(latent[:, 1, None] == [0, 2, 3], 1 / 3)
    assert np.abs(z).max() < GATE
    assert np.abs(z_mean(latent[:, 1, None] == [0, 2, 3], 0.4)).max() > GATE


# The M-step


def test_on_complete_data_it_is_nce(data, noise, seed):
    observed, centre = torch.ones_like(data).bool(), data.mean(0)
    with seeded(seed):
        step = m_step(data, noise, noise_ratio=NU)
    with seeded(seed):
        drawn = noise.sample((len(data) * NU,))
    summary = step.summarise(data)
    assert (summary[0].latent == -1).all()
    start = em.independence(Incomplete(data, observed), centre, True)
    found = step.solve(summary, start, FREE, 1e-7)
    model = em.to_model(found.theta, centre)
    ratios = [
        (model.log_density(x) - noise.log_prob(x).sum(-1)).detach()
        for x in (data, drawn)
    ]
    assert found.loss == pytest.approx(float(nce(*ratios, NU).loss), rel=1e-12)
    assert found.gap < 1e-5


def test_with_one_hidden_cell_a_row_it_is_nce(data, noise, seed):
    observed = one_hidden(len(data), np.random.default_rng([seed, 1]))
    rows = tables(data, noise, observed, seed)
    centre = data.mean(0)
    found = solve(rows, centre)
    model = em.to_model(found.theta, centre)
    points, weights = orthant_rule(1, 12.0, 80)

    def exact_ratio(part):
        moved = part.x.repeat(len(points), 1, 1)
        latent = part.latent[:, None] == torch.arange(D)
        log_density = model.log_density(moved.where(~latent, points[:, :, None]))
        marginal = log_integral(log_density, weights[:, None])
        given = marginal.where(part.latent >= 0, model.log_density(part.x))
        log_noise = noise.log_prob(part.x).where(~latent, 0.0).sum(-1)
        return (given - log_noise).detach()

    loss = nce(*map(exact_ratio, rows), NU).loss
    assert 0 < (rows[0].latent == -1).sum() < len(data)
    assert found.loss == pytest.approx(float(loss), rel=1e-9)


def gradients(rows, theta, centre):
    """Compute the gradient of the loss in K (symmetric), b and c by autograd."""
    model = em.to_model(theta, centre)
    ratios = [model.log_marginal(part.x, part.latent) - part.log_noise for part in rows]
    found = torch.autograd.grad(nce(*ratios, NU).loss, list(model.parameters()))
    by_K, by_b, by_c = (gradient.numpy() for gradient in found)
    return (by_K + by_K.T) / 2, by_b, by_c


@pytest.mark.parametrize("fit_linear", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_optimality_without_a_reference(fit_linear, share, data, noise, seed):
    rng = np.random.default_rng([seed, 2])
    observed = torch.tensor(rng.uniform(size=data.shape) < 0.7)
    rows, ridge = tables(data, noise, observed, seed), 0.01
    centre, off = data.mean(0) * fit_linear, ~np.eye(D, dtype=bool)
    empty = solve(rows, centre, 1e3, ridge, fit_linear).theta
    assert (empty.precision.numpy()[off] == 0).all()
    # a share of the smallest alpha that gives no links
    alpha = share * np.abs(gradients(rows, empty, centre)[0][off]).max()
    found = solve(rows, centre, alpha, ridge, fit_linear)
    K = found.theta.precision.numpy()
    gradient, by_b, by_c = gradients(rows, found.theta, centre)
    gradient += ridge * K * off

    assert (K.diagonal() >= DIAGONAL_FLOOR).all()
    at_floor = K.diagonal() == DIAGONAL_FLOOR  # in one table of hundreds
    assert not at_floor.all()
    zero = K == 0
    linked = off & ~zero
    assert zero.any() == (alpha > 0)
    assert linked.any()
    np.testing.assert_array_less(np.abs(gradient[zero]), alpha + 1e-5)
    np.testing.assert_allclose(gradient[linked], -alpha * np.sign(K[linked]), atol=1e-5)
    np.testing.assert_allclose(gradient.diagonal()[~at_floor], 0, atol=1e-5)
    assert (gradient.diagonal()[at_floor] > -1e-5).all()
    np.testing.assert_allclose(by_c, 0, atol=1e-5)
    if fit_linear:
        np.testing.assert_allclose(by_b, 0, atol=1e-5)
    else:
        assert (found.theta.linear == 0).all()
    assert found.gap < 1e-5


def test_the_objective_averages_over_all_tables(data, noise):
    step = m_step(data, noise, noise_ratio=1)
    first, second = step.summarise(data), step.summarise(data.flip(0) + 0.1)
    start = em.independence(
        Incomplete(data, torch.ones_like(data).bool()), data.mean(0), True
    )
    both = step.merge(first, second, 0.5)
    found = step.solve(both, start, FREE, 1e-7)
    losses = [step.solve(part, found.theta, FREE, 1e6).loss for part in (first, second)]
    assert found.loss == pytest.approx(sum(losses) / 2, rel=1e-9)
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


# Consistency


def hidden_at_random(n, rng):
    return torch.tensor(rng.uniform(size=(n, D)) < 0.6)


def gradients_at_the_truth(seed, shift=0.0, neighbours=None, noise_cells=None):
    """Compute the gradient of the loss at p* in independent batches; (50, 10).

    Hidden cells of the data stand at their true values: exact draws given the others.
    """
    points, weights = orthant_rule(D, 9.0, 30)
    model = em.to_model(
        Theta(torch.tensor(PRECISION), torch.tensor(LINEAR), torch.zeros(()).double()),
        torch.zeros(D).double(),
    )
    log_z = float(log_integral(model.log_density(points), weights).detach())
    model.log_scale.data.fill_(log_z + shift)
    noise = TruncatedNormal(
        torch.tensor([0.5, 0.2, 0.8]).double(), torch.ones(D).double()
    )
    rng, gradients = np.random.default_rng(seed), []
    with seeded(seed):
        for _ in range(50):
            x, drawn = rows_of_model(1000, rng), noise.sample((1000,))
            observed = hidden_at_random(1000, rng)
            if neighbours is not None:
                x = x.where(observed, x.mean(0))
            if noise_cells is not None:
                drawn = drawn.where(observed, rows_of_model(1000, rng))
            rows = (latent_rows(part, observed, noise) for part in (x, drawn))
            ratios = [
                model.log_marginal(part.x, part.latent) - part.log_noise
                for part in rows
            ]
            found = torch.autograd.grad(
                nce(*ratios, 1.0).loss, list(model.parameters())
            )
            by_K = (found[0] + found[0].T)[*np.triu_indices(D)]
            gradients.append(torch.cat([by_K, found[1], found[2][None]]))
    return torch.stack(gradients)


def test_the_truth_is_stationary(seed):
    assert np.abs(z_mean(gradients_at_the_truth(seed), 0)).max() < GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "wrong",
    [
        {"shift": 0.2},
        {"neighbours": "means"},  # too little spread
        {"noise_cells": "of the model"},  # whose density is not p_y
    ],
    ids=str,
)
def test_what_is_wrong_is_not_stationary(wrong, seed):
    assert np.abs(z_mean(gradients_at_the_truth(seed, **wrong), 0)).max() > 1.25 * GATE
