"""Cumulative data imputation with learnt conditionals, and VNCE with lognormal ones."""

import numpy as np
import pytest
import torch
from oracles import (
    GATE,
    first_and_second,
    log_integral,
    orthant_rule,
    rejection,
    z_mean,
)

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded, stream
from skvnce.contrast import objective
from skvnce.contrast.posteriors import SequentialPosterior
from skvnce.graphs import em
from skvnce.graphs.em import DIAGONAL_FLOOR, Penalty, Theta, minimise_loss, off_diagonal
from skvnce.graphs.vnce import contrast_of, defended, improve, lognormal, vnce_lognormal
from skvnce.graphs.vnce_cdi import (
    AffineConditionals,
    LatentRows,
    choose_latent,
    imputation,
    latent_rows,
    vnce,
    vnce_cdi,
)

D, NU = 3, 4
PRECISION = np.array([[1.5, 0.6, -0.5], [0.6, 1.5, 0.0], [-0.5, 0.0, 2.0]])
LINEAR = np.array([1.5, 0.5, 1.0])
CENTRE = torch.zeros(D).double()
ZERO = torch.zeros((), dtype=torch.float64)
TRUTH = Theta(torch.tensor(PRECISION), torch.tensor(LINEAR), ZERO)


def simulate(n, share, seed):
    """Draw rows of the model and hide a share of the cells."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rejection(PRECISION, LINEAR, np.full(D, np.nan), n, rng))
    observed = torch.tensor(rng.uniform(size=x.shape) >= share)
    return Incomplete(x.where(observed, 0.0), observed)


def log_ratios(model, noise, *tables):
    parts = (model.log_density(x) - noise.log_prob(x).sum(-1) for x in tables)
    return [part.detach() for part in parts]


IMPUTATION = f"{imputation.__module__}.imputation"


def mean_of_draws(cells):
    """Keep the mean of the draws, as VNCE (approx) of the thesis does."""
    return cells.mean(0)


def method(data, kind=vnce_cdi, **options):
    noise = em.marginals(data)
    options = {"noise_ratio": NU, "fit_linear": True, **options}
    return kind(data, noise, CENTRE, **options), noise


FAMILIES = [lognormal, defended]
FAMILY = f"{lognormal.__module__}.defended"  # what `vnce_lognormal` uses


@pytest.mark.parametrize(
    ("kind", "family"), [(vnce_cdi, defended), *((vnce_lognormal, q) for q in FAMILIES)]
)
def test_without_holes_it_is_nce(kind, family, seed, monkeypatch):
    monkeypatch.setattr(FAMILY, family)
    data = simulate(150, 0.0, seed)
    with seeded(seed):
        (e_step, m_step, _), noise = method(data, kind)
    with seeded(seed):
        y = noise.sample((NU * len(data.x),))
    _, both = e_step.step(e_step.init(), em.to_model(TRUTH, CENTRE))
    penalty = Penalty(torch.zeros(D, D).double(), 0.0)
    solution = m_step.solve(m_step.summarise(both), TRUTH, penalty, 1e-7)
    model = em.to_model(solution.theta, CENTRE)
    ratios = log_ratios(model, noise, data.x, y)
    assert e_step.once
    assert solution.loss == pytest.approx(float(objective.nce(*ratios, NU)), rel=1e-10)


@pytest.mark.parametrize("rule", [imputation, mean_of_draws])
@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_observed_cells_stay_and_others_move_one_a_step(rule, value, seed, monkeypatch):
    monkeypatch.setattr(IMPUTATION, rule)
    data = simulate(100, 0.5, seed)
    x = data.x.where(data.observed, torch.tensor(value).double())
    hidden = Incomplete(x, data.observed)
    with seeded(seed):
        e_step = method(hidden, n_steps=1)[0].e_step
        first = e_step.init()
        second, both = e_step.step(first, em.to_model(TRUTH, CENTRE))
    observed, moved = data.observed, (second.x - first.x).abs() > 1e-12  # of means
    assert torch.equal(second.x[observed], data.x[observed]) and (second.x >= 0).all()
    assert torch.equal(moved.sum(1), (~observed).any(1).long())
    for x, mask in ((both.data.x, observed), (both.noise.x, observed.repeat(NU, 1))):
        changed = (x != x[0]).any(0)
        assert torch.equal(changed.sum(1), (~mask).any(1).long())
        assert not (changed & mask).any()


def test_draws_carry_their_density(seed):
    data = simulate(50, 0.5, seed)
    noise = em.marginals(data)
    q = AffineConditionals(noise, torch.ones(D).double())
    with seeded(seed), torch.no_grad():
        q.slopes += 0.1 * torch.randn(2, D, D)
        rows = latent_rows(data.with_values(noise.sample((50,))), data.observed, noise)
        draws = rows.draw(q, 4)
    (x,) = draws.values
    for i, j in enumerate(rows.latent.tolist()):
        dist = q.at(rows.x[i : i + 1], torch.tensor([max(j, 0)]))
        expected = dist.log_prob(x[:, i, j]) if j >= 0 else torch.zeros(4).double()
        torch.testing.assert_close(draws.log_prob[:, i], expected.detach())
    visible = rows.visible()
    assert torch.equal(x[:, visible], rows.x[visible].expand(4, -1))
    assert torch.equal((~visible).sum(1), (rows.latent >= 0).long())


def trained(data, seed, n_rounds, **options):
    """Train q at the true model, which stays."""
    with seeded(seed):
        e_step = method(data, **options)[0].e_step
        state = e_step.init()
        for _ in range(n_rounds):
            state, _ = e_step.step(state, em.to_model(TRUTH, CENTRE))
    return state


def relative_entropy(q, seed):
    """Integrate KL(q_j || p_j), for each column, at rows of the model."""
    rows = simulate(40, 0.0, seed + 1).x
    points, weights = orthant_rule(1, 12.0, 100)
    model, result = em.to_model(TRUTH, CENTRE), []
    for j in range(D):
        filled = rows.repeat(len(points), 1, 1)
        filled[..., j] = points
        log_q = q.at(filled, torch.full((40,), j)).log_prob(points)
        log_p = model.conditional(filled, j).log_prob(points)
        result.append(((log_q - log_p) * log_q.exp() * weights[:, None]).sum(0).mean())
    return torch.stack(result).detach()


def test_q_learns_the_conditionals_of_the_model(seed):
    data = simulate(1000, 0.5, seed)
    state = trained(data, seed, 6)
    start = AffineConditionals(em.marginals(data), torch.ones(D).double())
    before, after = relative_entropy(start, seed), relative_entropy(state.q, seed)
    assert float(after.max()) < 0.01 and float(before.min()) > 0.01
    assert float(before.max()) > 10 * float(after.max())


def test_q_learns_from_the_data_alone(seed, monkeypatch):
    data = simulate(100, 0.5, seed)
    options = {"n_steps": 3}
    first = trained(data, seed, 2, **options).q
    drawn_cells = LatentRows.draw

    def broken(self, q, n_draws):
        """Draw; noise rows far away."""
        if len(self.x) > len(data.x):
            return drawn_cells(self._replace(x=self.x + 50), q, n_draws)
        return drawn_cells(self, q, n_draws)

    monkeypatch.setattr(LatentRows, "draw", broken)
    second = trained(data, seed, 2, **options).q
    assert torch.equal(first.slopes, second.slopes)
    assert torch.equal(first.intercepts, second.intercepts)


@pytest.mark.slow
def test_single_draws_have_the_spread_of_the_data_and_means_have_not(seed, monkeypatch):
    """Completed rows against the complete ones, whose moments they should have."""
    complete = simulate(3000, 0.0, seed).x
    rng = np.random.default_rng([seed, 1])
    observed = torch.tensor(rng.uniform(size=complete.shape) >= 0.5)
    data, z = Incomplete(complete, observed), {}
    for rule in (imputation, mean_of_draws):
        monkeypatch.setattr(IMPUTATION, rule)
        x = trained(data, seed, 4, n_draws=8).x
        change = first_and_second(x) - first_and_second(complete)
        z[rule] = np.abs(z_mean(change, 0)).max()
    assert z[imputation] < GATE and z[mean_of_draws] > GATE


# VNCE with a joint lognormal posterior, defended by the noise's marginals


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_observed_cells_stay_and_those_under_the_mask_are_never_read(
    family, value, seed, monkeypatch
):
    monkeypatch.setattr(FAMILY, family)
    data, result = simulate(100, 0.5, seed), []
    hidden = data.x.where(data.observed, torch.tensor(value).double())
    for x in (data.x, hidden):
        with seeded(seed):
            rows = Incomplete(x, data.observed)
            e_step = method(rows, vnce_lognormal)[0].e_step
            result.append(e_step.step(e_step.init(), em.to_model(TRUTH, CENTRE))[1])
    first, second = result
    assert torch.equal(first.data.x, second.data.x)
    assert torch.equal(first.noise.log_base, second.noise.log_base)
    observed = data.observed
    assert torch.equal(first.data.x[:, observed], data.x[observed].expand(5, -1))
    for part in first:
        assert (part.x >= 0).all() and part.log_base.isfinite().all()
        changed = (part.x != part.x[0]).any(0)
        assert torch.equal(changed, (~observed).expand_as(changed))


def test_zeros_have_logarithms(seed):
    data = simulate(100, 0.4, seed)
    zeros = data.x.where(torch.arange(100)[:, None] > 5, 0.0)
    with seeded(seed):
        e_step = method(Incomplete(zeros, data.observed), vnce_lognormal)[0].e_step
        _, both = e_step.step(e_step.init(), em.to_model(TRUTH, CENTRE))
    assert both.data.log_base.isfinite().all() and float(both.data.x.max()) < 100


def exact_log_ratio(model, rows):
    """Integrate the missing cells out of phi; log phi(u) - log p_y(u) of each row."""
    points, weights = orthant_rule(D, 9.0, 20)
    records = []
    for x, mask in zip(rows.x, rows.observed, strict=True):
        log_phi = model.log_density(points.where(~mask, x))
        records.append((log_phi + weights.log()).logsumexp(0))
    length_of_seen = rows.observed.sum(1) * np.log(9.0)
    return torch.stack(records) - length_of_seen - rows.log_noise


def bound(q, model, rows):
    draws = q(rows.x, rows.observed, stream(5))
    ratio = objective.log_ratio(model.log_density, draws, rows.log_noise)
    return float(objective.data_term(ratio, NU, draws.log_weight).mean().detach())


def problem(seed, n=300):
    data = simulate(n, 0.4, seed)
    data = data.take(data.observed.any(1))
    noise = em.marginals(data)
    with seeded(seed):
        contrast = contrast_of(data, noise, NU)
    return data, noise, contrast, em.to_model(TRUTH, CENTRE).requires_grad_(False)


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_e_step_raises_the_data_term_below_its_limit(family, seed):
    data, noise, contrast, model = problem(seed)
    q = SequentialPosterior([family(data, noise)], 200)
    before = bound(q, model, contrast.data)
    for _ in range(3):
        improve(q, model, contrast.data, stream(1), NU, 5)
    after = bound(q, model, contrast.data)
    limit = float(
        objective.log_is_data(exact_log_ratio(model, contrast.data), NU).mean()
    )
    assert before < after < limit


def test_a_lognormal_q_learns_from_the_data_alone(seed, monkeypatch):
    data, result = simulate(100, 0.4, seed), []

    def moved(*arguments):
        """Shift the noise."""
        data, noise = contrast_of(*arguments)
        return objective.Contrast(data, noise._replace(x=noise.x + 50))

    for replacement in (contrast_of, moved):
        monkeypatch.setattr(f"{lognormal.__module__}.contrast_of", replacement)
        with seeded(seed):
            e_step = method(data, vnce_lognormal)[0].e_step
            q, both = e_step.step(e_step.init(), em.to_model(TRUTH, CENTRE))
        result.append([leaf.detach() for leaf in q.parameters()])
        assert not any(part.requires_grad for part in (*both.data, *both.noise))
    assert all(map(torch.equal, *result)) and float(result[0][0].abs().max()) > 0


def errors_of_the_noise_term(family, n_draws, seed):
    """Compute the errors of log phi(y) at rows of noise, q learnt; (20, n)."""
    data, noise, contrast, model = problem(seed, 200)
    q = SequentialPosterior([family(data, noise)], n_draws)
    for _ in range(3):
        improve(q, model, contrast.data, stream(1), NU, 5)
    x, log_noise = contrast.noise.x[0], contrast.noise.log_noise[0]
    rows = contrast.noise._replace(x=x, log_noise=log_noise)
    exact, result = exact_log_ratio(model, rows), []
    for i in range(20):
        with torch.no_grad():
            draws = q(rows.x, rows.observed, stream(100 + i))
        ratio = objective.log_ratio(model.log_density, draws, rows.log_noise)
        result.append(objective.log_marginal(ratio, draws.log_weight) - exact)
    return torch.stack(result)


@pytest.mark.slow
def test_the_mixture_estimates_the_noise_term_well(seed):
    """The lognormal alone does not: it has no mass at zero, where the model has most.

    Few of its weights are far too large, and all others too small.
    """
    errors = [errors_of_the_noise_term(family, 6, seed) for family in FAMILIES]
    alone, mixed = (float(part.square().mean().sqrt()) for part in errors)
    assert mixed < 0.75 * alone
    many = errors_of_the_noise_term(defended, 400, seed)
    assert float(many.square().mean().sqrt()) < 0.25 * mixed


# The M-step by VNCE: exact where at most one cell is hidden, and stationary at p*


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
        pairs = (data, observed), (drawn, observed.repeat(NU, 1))
        return tuple(latent_rows(*pair, noise) for pair in pairs)


def solve(rows, centre, alpha=0.0, ridge=0.0, fit_linear=True, tol=1e-7):
    """Run the M-step on given rows of the data and of the noise."""
    of_data, contrast = rows
    start = Theta(torch.eye(D).double(), torch.zeros(D).double(), torch.zeros(()))

    def loss(theta):
        ratios = (part.log_ratio(theta, centre) for part in (of_data, contrast))
        return objective.nce(*ratios, NU)

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
    options = {"noise_ratio": noise_ratio, "fit_linear": True}
    built = vnce(complete, noise, data.mean(0), **options)
    return built.m_step


# Rows with one latent cell


def test_latent_cells_are_missing_cells_chosen_evenly(seed):
    observed = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]).bool()
    with seeded(seed):
        latent = choose_latent(observed.repeat(5000, 1, 1)).numpy()
    assert (latent[:, 0] == -1).all() and (latent[:, 2] == 2).all()
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
    assert (summary.latent == -1).all()
    start = em.independence(Incomplete(data, observed), centre, True)
    solution = step.solve(summary, start, FREE, 1e-7)
    model = em.to_model(solution.theta, centre)
    ratios = log_ratios(model, noise, data, drawn)
    assert solution.loss == pytest.approx(float(objective.nce(*ratios, NU)), rel=1e-12)
    assert solution.gap < 1e-5


def test_with_one_hidden_cell_a_row_it_is_nce(data, noise, seed):
    observed = one_hidden(len(data), np.random.default_rng([seed, 1]))
    rows = tables(data, noise, observed, seed)
    centre = data.mean(0)
    solution = solve(rows, centre)
    model = em.to_model(solution.theta, centre)
    points, weights = orthant_rule(1, 12.0, 80)

    def exact_ratio(part):
        moved = part.x.repeat(len(points), 1, 1)
        latent = part.latent[:, None] == torch.arange(D)
        log_density = model.log_density(moved.where(~latent, points[:, :, None]))
        marginal = log_integral(log_density, weights[:, None])
        log_model = marginal.where(part.latent >= 0, model.log_density(part.x))
        log_noise = noise.log_prob(part.x).where(~latent, 0.0).sum(-1)
        return (log_model - log_noise).detach()

    loss = objective.nce(*map(exact_ratio, rows), NU)
    assert 0 < (rows[0].latent == -1).sum() < len(data)
    assert solution.loss == pytest.approx(float(loss), rel=1e-9)


def gradients(rows, theta, centre):
    """Compute the gradient of the loss in K (symmetric), b and c by autograd."""
    model = em.to_model(theta, centre)
    ratios = [model.log_marginal(part.x, part.latent) - part.log_noise for part in rows]
    result = torch.autograd.grad(objective.nce(*ratios, NU), list(model.parameters()))
    by_K, by_b, by_c = (gradient.numpy() for gradient in result)
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
    solution = solve(rows, centre, alpha, ridge, fit_linear)
    K = solution.theta.precision.numpy()
    gradient, by_b, by_c = gradients(rows, solution.theta, centre)
    gradient += ridge * K * off

    assert (K.diagonal() >= DIAGONAL_FLOOR).all()
    at_floor = K.diagonal() == DIAGONAL_FLOOR  # in one table of hundreds
    assert not at_floor.all()
    zero = K == 0
    linked = off & ~zero
    assert zero.any() == (alpha > 0) and linked.any()
    np.testing.assert_array_less(np.abs(gradient[zero]), alpha + 1e-5)
    np.testing.assert_allclose(gradient[linked], -alpha * np.sign(K[linked]), atol=1e-5)
    np.testing.assert_allclose(gradient.diagonal()[~at_floor], 0, atol=1e-5)
    assert (gradient.diagonal()[at_floor] > -1e-5).all()
    np.testing.assert_allclose(by_c, 0, atol=1e-5)
    if fit_linear:
        np.testing.assert_allclose(by_b, 0, atol=1e-5)
    else:
        assert (solution.theta.linear == 0).all()
    assert solution.gap < 1e-5


def test_the_objective_averages_over_all_tables(data, noise):
    step = m_step(data, noise, noise_ratio=1)
    first, second = step.summarise(data), step.summarise(data.flip(0) + 0.1)
    complete = Incomplete(data, torch.ones_like(data).bool())
    start = em.independence(complete, data.mean(0), True)
    both = step.merge(first, second, 0.5)
    solution = step.solve(both, start, FREE, 1e-7)
    losses = [
        step.solve(part, solution.theta, FREE, 1e6).loss for part in (first, second)
    ]
    assert solution.loss == pytest.approx(sum(losses) / 2, rel=1e-9)
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
    loc = torch.tensor([0.5, 0.2, 0.8]).double()
    noise = TruncatedNormal(loc, torch.ones(D).double())
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
            loss = objective.nce(*ratios, 1.0)
            result = torch.autograd.grad(loss, list(model.parameters()))
            by_K = (result[0] + result[0].T)[*np.triu_indices(D)]
            gradients.append(torch.cat([by_K, result[1], result[2][None]]))
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


# Affine truncated-normal conditionals: they contain those of a truncated Gaussian


N = 40
START = TruncatedNormal(torch.tensor([0.1, -2, 1]).double(), torch.tensor(LINEAR).exp())
COLUMNS = torch.arange(N) % D


def positive_rows(seed):
    return START.sample((N,)) * (1 + seed)


def test_they_start_at_the_marginals(seed):
    q = AffineConditionals(START, torch.ones(D).double())
    conditional = q.at(positive_rows(seed), COLUMNS)
    torch.testing.assert_close(conditional.loc, START.loc[COLUMNS])
    torch.testing.assert_close(conditional.scale, START.scale[COLUMNS])


def test_they_contain_the_conditionals_of_the_model(seed):
    model = em.to_model(TRUTH, CENTRE).requires_grad_(False)
    origin, precision = torch.tensor([0.3, 1.0, 2.0]).double(), torch.tensor(PRECISION)
    diagonal, linear = precision.diagonal(), torch.tensor(LINEAR)
    q = AffineConditionals(START, origin)
    slopes = diagonal.diag() - precision
    with torch.no_grad():
        q.slopes[0] = slopes / diagonal[:, None]
        q.intercepts[0] = (linear + slopes @ origin) / diagonal
        q.intercepts[1] = -diagonal.log() / 2
    x = positive_rows(seed)
    result, expected = q.at(x, COLUMNS), model.conditionals(x)
    places = torch.arange(N), COLUMNS
    torch.testing.assert_close(result.loc, expected.loc[places])
    torch.testing.assert_close(result.scale, expected.scale[places])


def test_they_do_not_see_their_own_column(seed):
    q = AffineConditionals(START, torch.ones(D).double())
    with torch.no_grad():
        q.slopes += 1
    x = positive_rows(seed)
    moved = x.scatter(1, COLUMNS[:, None], 1e6)
    conditional, other = q.at(x, COLUMNS), q.at(moved, COLUMNS)
    assert torch.equal(conditional.loc, other.loc)
    assert torch.equal(conditional.scale, other.scale)
    conditional = q.at(x.expand(2, N, D), COLUMNS)
    assert conditional.batch_shape == (2, N)
