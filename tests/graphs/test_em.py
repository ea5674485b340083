"""Units, starting points and EM, against algebra and the simulation of the thesis."""

import numpy as np
import pytest
import torch
from oracles import GATE, log_integral, orthant_rule, ring, z_mean

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import em, samplers
from skvnce.graphs import em as rounds
from skvnce.graphs.model import draw
from skvnce.graphs.problem import ridge_of_links
from skvnce.graphs.score_matching import score_matching
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

D = 5


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def simulate(n, rng):
    """Draw K of the thesis and n rows of its model with b = K 1."""
    precision = torch.tensor(ring(D, rng))
    model = TruncatedGaussian(precision, precision.sum(1))
    empty = Incomplete.from_array(np.full((n, D), np.nan))
    with seeded(rng):
        drawn = draw(model, empty, torch.ones(D).double(), n_draws=1, n_steps=30)
    return precision.numpy(), drawn[0].detach().numpy()


def hide(x, rng, fraction=0.3):
    x = np.where(rng.uniform(size=x.shape) < fraction, np.nan, x)
    return x[~np.isnan(x).all(1)]


def scaled(x, fit_linear=True):
    data = Incomplete.from_array(x)
    units = em.units_of(data, fit_linear)
    return Incomplete(data.x / units.scale, data.observed), units


def learn(x, alpha=0.0, ridge=0.0, **options):
    """Learn a graph by score matching; K in the units of x, and the fit."""
    data, units = scaled(x)
    fit = em.learn_graph(
        score_matching(data, units.centre, fit_linear=True),
        em.independence(data, units.centre, True),
        em.Penalty(alpha * em.off_diagonal(D), ridge),
        **{"max_iter": 50, "tol": 3e-3, **options},
    )
    return fit.theta.precision.numpy() / np.outer(units.scale, units.scale), fit


# Units


@pytest.mark.parametrize("fit_linear", [True, False])
def test_units_use_the_observed_cells_alone(fit_linear, seed):
    x = hide(np.random.default_rng(seed).gamma(2.0, size=(50, 3)), np.random)
    units = em.units_of(Incomplete.from_array(x), fit_linear)
    std = np.nanstd(x, 0) if fit_linear else np.sqrt(np.nanmean(x**2, 0))
    centre = np.nanmean(x, 0) / std if fit_linear else np.zeros(3)
    np.testing.assert_allclose(units.scale, std, rtol=1e-12)
    np.testing.assert_allclose(units.centre, centre, rtol=1e-12)


def test_uncentring_keeps_the_density(rng):
    K, b, centre = torch.tensor(ring(D, rng)), *torch.tensor(rng.normal(size=(2, D)))
    theta, x = em.Theta(K, b, column(0.7)[0]), torch.tensor(rng.gamma(2.0, size=(9, D)))
    z = x - centre
    expected = -0.7 - ((z @ K) * z).sum(-1) / 2 + z @ b
    log_density = em.to_model(theta, centre).log_density(x)
    torch.testing.assert_close(log_density, expected, rtol=1e-12, atol=1e-12)


def test_marginals_have_the_moments_of_the_observed_cells(rng):
    x = hide(rng.gamma([2.0, 9.0, 0.5], size=(400, 3)), rng)
    dist = em.marginals(Incomplete.from_array(x))
    mean, variance = np.nanmean(x, 0), np.nanvar(x, 0)
    np.testing.assert_allclose(dist.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(dist.variance[:2], variance[:2], rtol=1e-8)
    assert float(dist.variance[2]) < variance[2]  # no truncated normal is so skewed


@pytest.mark.parametrize("fit_linear", [True, False])
def test_the_start_is_independent_with_the_right_moments(fit_linear, seed):
    x = np.random.default_rng(seed).gamma(3.0, size=(80, 2))
    data, units = scaled(x, fit_linear)
    model = em.to_model(em.independence(data, units.centre, fit_linear), units.centre)
    points, weights = orthant_rule(2, 15.0, 80)
    log_density = model.log_density(points).detach()
    p = (log_density - log_integral(log_density, weights)).exp() * weights
    second = p @ points.square()
    torch.testing.assert_close(second, data.x.square().mean(0), rtol=1e-6, atol=0)
    mean = data.x.mean(0) if fit_linear else torch.full((2,), (2 / np.pi) ** 0.5)
    torch.testing.assert_close(p @ points, mean.double(), rtol=1e-6, atol=0)


# The ridge


def test_ridge_by_definition(rng):
    x = rng.gamma(2.0, size=(100, 4))
    x += 2 * x[:, :1]
    data, _ = scaled(x)
    squared = np.corrcoef(x.T)[np.triu_indices(4, 1)] ** 2
    expected = 1 / (100 * (squared - 1 / 100).mean())
    assert ridge_of_links(data) == pytest.approx(expected, rel=1e-9)
    noise, _ = scaled(rng.gamma(2.0, size=(200, 4)))
    assert ridge_of_links(noise) <= 10  # tau**2 >= 0.1 / n


# EM


def test_columns_and_rows_have_no_order(rng):
    _, x = simulate(200, rng)
    columns, rows = rng.permutation(D), rng.permutation(len(x))
    for alpha in 0.08, 0.05, 0.15:  # the first removes none or all of few tables
        first, _ = learn(x, alpha=alpha)
        if some_are_zero := 0 < (first == 0).sum() < D * (D - 1):
            break
    assert some_are_zero
    second, _ = learn(x[rows][:, columns], alpha=alpha)
    np.testing.assert_allclose(second, first[np.ix_(columns, columns)], atol=1e-4)
    edges = np.abs(first) > 1e-3
    assert (second[edges[np.ix_(columns, columns)]] != 0).all()


@pytest.mark.slow
def test_em_recovers_the_graph_of_the_thesis(seed):
    """Tables of 2000 rows with 30 % of the cells hidden, new K each."""
    errors, filled_errors = [], []
    for i in range(15):
        rng = np.random.default_rng([seed, i])
        truth, x = simulate(2000, rng)
        x = hide(x, rng)
        with seeded(rng):
            errors.append(learn(x)[0] - truth)
        filled = np.where(np.isnan(x), np.nanmean(x, 0), x)
        filled_errors.append(learn(filled)[0] - truth)
    errors, filled_errors = np.array(errors), np.array(filled_errors)
    entries = np.triu_indices(D)
    assert np.abs(z_mean(errors[:, *entries], 0)).max() < GATE
    # negative control: cells filled by means have too little spread
    assert np.abs(z_mean(filled_errors[:, *entries], 0)).max() > GATE
    assert (errors**2).mean() < 0.2 * (filled_errors**2).mean()


# What tells that chains hardly move


def blocks_missing_together(rng, n=400):
    """Hide z + small noise, three times, in the same 30 % of the rows."""
    z = rng.normal(size=(n, 1))
    x = 5 + z + np.hstack([0.1 * rng.normal(size=(n, 3)), rng.normal(size=(n, 1))])
    x[: int(0.3 * n), :3] = np.nan
    return x


def learned_in_rounds(x, max_iter=40):
    data, units = scaled(x)
    return em.learn_graph(
        score_matching(data, units.centre, fit_linear=True),
        em.independence(data, units.centre, True),
        em.Penalty(0.02 * em.off_diagonal(x.shape[1]), ridge_of_links(data)),
        max_iter=max_iter,
        tol=3e-3,
    )


def test_chains_along_slow_directions_move_and_single_cells_do_not(seed, monkeypatch):
    x = blocks_missing_together(np.random.default_rng(seed))
    with seeded(seed):
        moving = learned_in_rounds(x)
        monkeypatch.setattr(samplers, "lines_of", lambda precision, patterns: None)
        stuck = learned_in_rounds(x)
    assert moving.autocorrelation < 0.5 and stuck.autocorrelation > 0.8
    # the steps of the stuck chains are as small; it is the draws that say go on
    assert stuck.change < 3e-3 and len(stuck.losses) == 40
    assert len(moving.losses) < 40


@pytest.mark.parametrize("r", [0.0, 0.6])
def test_autocorrelation_of_known_chains(r, seed):
    rng, missing = np.random.default_rng(seed), torch.rand(5000, 2) < 0.5
    before = torch.tensor(rng.normal(size=(2, 5000, 2)))
    noise = torch.tensor(rng.normal(size=(2, 5000, 2)))
    after = r * before + (1 - r**2) ** 0.5 * noise
    shared = torch.tensor(rng.normal(size=(5000, 2)))  # means of the rows
    products = rounds.lagged_products(before + shared, after + shared, missing)
    result = rounds.largest_autocorrelation(products)
    error = 2 / np.sqrt(2000)
    assert r - GATE * error < result < r + GATE * error
    assert rounds.rounds_needed(0.0) == 2
    assert rounds.rounds_needed(0.6) == pytest.approx(8)


def test_rounds_to_settle_grow_with_the_pairs_that_are_not_observed(rng):
    """The rate of EM of a correlation, of pairs that are missing at random."""
    for share, remaining, expected in ((0.3, 0.2, 3), (0.3, 0.1, 4), (0.5, 0.2, 6)):
        observed = torch.tensor(rng.uniform(size=(20000, 40)) > share)
        assert rounds.rounds_to_settle(observed, remaining) == expected
    complete = torch.ones(10, 3).bool()
    assert rounds.rounds_to_settle(complete, 0.2) == 2
    alone = complete & (torch.arange(10) < 1)[:, None]
    assert rounds.rounds_to_settle(alone, 0.2) == 10


@pytest.mark.parametrize(("averaged", "rounds"), [(None, 8), (2, 6), (30, 34)])
def test_at_least_so_many_rounds_are_averaged(averaged, rounds, monkeypatch, rng):
    """With a tolerance that all rounds meet, and draws that count as independent."""
    monkeypatch.setattr(em, "rounds_needed", lambda autocorrelation: 1)
    x = hide(rng.gamma(2.0, size=(60, D)), rng)
    options = {"tol": np.inf, "warm_up": 4, "averaged": averaged}
    assert len(learn(x, **options)[1].losses) == rounds
