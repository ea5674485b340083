"""Stochastic maximum likelihood, against quadrature and the algebra of normals."""

from itertools import product

import numpy as np
import pytest
import torch
from oracles import GATE, log_integral, orthant_rule, rejection, symmetric_basis, z_mean
from scipy.optimize import minimize

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce._core.training.adam import Diverged
from skvnce.graphs import em
from skvnce.graphs.em import DIAGONAL_FLOOR, Penalty, Theta, off_diagonal
from skvnce.graphs.maximum_likelihood import (
    DrawnMoments,
    Information,
    Moments,
    check_chains,
    expected_statistic,
    maximum_likelihood,
    moments_of_draws,
    quadratic_of,
    running_mean,
    within_reach,
)
from skvnce.graphs.truncated_gaussian import TruncatedGaussian, conditionals

D = 3
PRECISION = np.array([[1.5, 0.6, -0.5], [0.6, 1.5, 0.0], [-0.5, 0.0, 2.0]])
LINEAR = np.array([1.5, 0.5, 1.0])
CENTRE = torch.tensor([0.9, 0.4, 0.7]).double()


def model_of(d=D, shift=0.0):
    linear = torch.tensor(LINEAR[:d]) + shift
    return TruncatedGaussian(torch.tensor(PRECISION[:d, :d]), linear)


def rows_of_model(n, rng, d=D):
    hidden = np.full(d, np.nan)
    return torch.tensor(rejection(PRECISION[:d, :d], LINEAR[:d], hidden, n, rng))


def plain_statistic(x, centre):
    z = x - centre
    return torch.cat([-z.T @ z / (2 * len(z)), z.mean(0)[:, None]], 1)


def exact_statistic(model, centre):
    """Compute E[T] by quadrature."""
    points, weights = orthant_rule(len(centre), 9.0, 40)
    log_density = model.log_density(points).detach()
    p = (log_density - log_integral(log_density, weights)).exp() * weights
    z = points - centre
    return torch.cat([-(z * p[:, None]).T @ z / 2, (p @ z)[:, None]], 1)


def random_direction(rng, width, d=D):
    matrix = rng.normal(size=(d, width))
    matrix[:, :d] += matrix[:, :d].T.copy()
    return torch.tensor(matrix)


# The statistic


def batches(seed, shift=0.0):
    """Average T over batches of exact rows, both ways; two of (60, 12)."""
    rng, result = np.random.default_rng(seed), []
    for _ in range(60):
        x = rows_of_model(200, rng)
        observed = torch.tensor(rng.uniform(size=x.shape) < 0.4)
        rao_blackwell = expected_statistic(model_of(shift=shift), x, observed, CENTRE)
        result.append([rao_blackwell.flatten(), plain_statistic(x, CENTRE).flatten()])
    return np.array([[part.numpy() for part in pair] for pair in result]).swapaxes(0, 1)


def test_the_statistic_is_unbiased_and_varies_less(seed):
    rao_blackwell, plain = batches(seed)
    exact = exact_statistic(model_of(), CENTRE).flatten()
    assert np.abs(z_mean(rao_blackwell, exact)).max() < GATE
    assert np.abs(z_mean(plain, exact)).max() < GATE
    assert rao_blackwell.var(0).sum() < 0.8 * plain.var(0).sum()
    # negative control: moments of another model
    assert np.abs(z_mean(batches(seed, shift=0.3)[0], exact)).max() > GATE


def test_observed_cells_are_taken_as_they_are_and_chains_are_rows(rng):
    x = rows_of_model(40, rng)
    every = torch.ones_like(x).bool()
    statistic = expected_statistic(model_of(), x, every, CENTRE)
    torch.testing.assert_close(statistic, plain_statistic(x, CENTRE))
    observed = torch.tensor(rng.uniform(size=(20, D)) < 0.5)
    chains = expected_statistic(model_of(), x.reshape(2, 20, D), observed, CENTRE)
    flat = expected_statistic(model_of(), x, observed.repeat(2, 1), CENTRE)
    torch.testing.assert_close(chains, flat)


# The information


def normal_moments(seed, heavier=1.0):
    """Make the moments of a normal; its fourth ones are multiplied."""
    rng = np.random.default_rng(seed)
    factor, mean = rng.normal(size=(D, D + 2)), torch.tensor(rng.normal(size=D))
    covariance = torch.tensor(factor @ factor.T)
    second = covariance + torch.outer(mean, mean)
    fourth = 3 * heavier * covariance.diagonal() ** 2
    return DrawnMoments(mean, second, fourth), covariance


@pytest.mark.parametrize("width", [D, D + 1])
def test_the_information_is_the_covariance_of_the_statistic_of_a_normal(width, seed):
    drawn, covariance = normal_moments(seed)
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)  # exact to degree 7
    nodes = torch.tensor(list(product(nodes, repeat=D)))
    p = torch.tensor(list(product(weights, repeat=D))).prod(1)
    p = p / p.sum()
    z = drawn.mean + nodes @ torch.linalg.cholesky(covariance).T
    statistic = torch.cat([-z[:, :, None] * z[:, None] / 2, z[:, :, None]], 2)
    statistic = statistic[:, :, :width]
    direction = random_direction(np.random.default_rng([seed, 1]), width)
    along = (statistic * direction).sum((1, 2))
    centred = p * (along - p @ along)
    expected = (centred[:, None, None] * statistic).sum(0)
    result = Information.of(drawn).product(direction)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def test_heavy_tails_inflate_the_information_of_squares(seed):
    z = torch.tensor(np.random.default_rng(seed).standard_t(6, size=(4000, D)))
    z = z - z.mean(0)
    information = Information.of(moments_of_draws(z))
    for j in range(D):
        direction = torch.zeros(D, D).double()
        direction[j, j] = 1
        value = float(information.product(direction)[j, j])
        squares = z[:, j].square()
        assert value == pytest.approx(float(squares.var(correction=0) / 4), rel=1e-9)
    light = Information.of(normal_moments(seed, heavier=0.5)[0])
    assert torch.equal(light.heavy, light.covariance)


@pytest.mark.parametrize("heavier", [1.0, 3.0])
@pytest.mark.parametrize("width", [D, D + 1])
def test_the_inverse_form_against_a_dense_solve(width, heavier, seed):
    information = Information.of(normal_moments(seed, heavier)[0])
    spanned = symmetric_basis(D, width)
    moved = torch.stack([information.product(matrix) for matrix in spanned])
    dense = torch.einsum("pij,qij->pq", spanned, moved)
    torch.testing.assert_close(dense, dense.T)
    assert torch.linalg.eigvalsh(dense)[0] > 0
    for i in range(5):
        residual = random_direction(np.random.default_rng([seed, i]), width)
        by_entry = torch.einsum("pij,ij->p", spanned, residual)
        exact = float(by_entry @ torch.linalg.solve(dense, by_entry))
        value = float(information.inverse_form(residual))
        if width > D:
            assert value == pytest.approx(exact, rel=1e-8)
        else:
            assert exact * (1 - 1e-9) < value < 100 * exact


@pytest.mark.parametrize("width", [D, D + 1])
def test_the_diagonal_of_the_quadratic_with_penalties(width, seed):
    drawn, _ = normal_moments(seed, heavier=3.0)
    point = random_direction(np.random.default_rng([seed, 7]), width)
    moments = Moments(point, point, point, drawn)
    penalty = Penalty(torch.zeros(D, D).double(), ridge=0.3, ridge_linear=0.7)
    quadratic = quadratic_of(moments, penalty, CENTRE)
    for matrix in symmetric_basis(D, width):
        entry = matrix != 0
        unit = matrix / matrix.norm()
        result = quadratic.diagonal[entry]
        exact = (unit * quadratic.product(unit)).sum()
        torch.testing.assert_close(result, exact.expand_as(result))


def test_nothing_is_certified_of_chains_that_are_collinear(seed):
    z = torch.tensor(np.random.default_rng(seed).normal(size=(50, 1))).expand(-1, D)
    information = Information.of(moments_of_draws(z))
    assert information.inverse_form(torch.ones(D, D + 1).double()) == torch.inf


# The quadratic


def some_moments(seed, width=D + 1):
    rng = np.random.default_rng(seed)
    data, model, theta = (random_direction(rng, width) for _ in range(3))
    return Moments(data, model, theta, normal_moments(seed)[0])


@pytest.mark.parametrize("width", [D, D + 1])
def test_its_gradient_at_the_model_is_that_of_the_likelihood(width, seed):
    moments = some_moments(seed, width)
    penalty = Penalty(torch.zeros(D, D).double(), 0.3, 0.7)
    centre = CENTRE * (width > D)
    quadratic = quadratic_of(moments, penalty, centre)
    gradient = quadratic.product(moments.theta) - quadratic.target
    point = moments.theta.clone().requires_grad_()
    linear = point[:, D] if width > D else torch.zeros(D).double()
    smooth = penalty.smooth(Theta(point[:, :D], linear, CENTRE[0]), centre)
    (shrunk,) = torch.autograd.grad(smooth, point)
    shrunk[:, :D] = (shrunk[:, :D] + shrunk[:, :D].T) / 2
    expected = moments.model - moments.data + shrunk
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


def test_running_means(seed):
    parts = [some_moments([seed, i]) for i in range(5)]
    merged = parts[0]
    for i, part in enumerate(parts[1:], 2):
        merged = running_mean(merged, part, 1 / i)
    for i in range(3):
        torch.testing.assert_close(merged[i], sum(part[i] for part in parts) / 5)
    for i in range(3):
        expected = sum(part.drawn[i] for part in parts) / 5
        torch.testing.assert_close(merged.drawn[i], expected)


# The fit


def complete(x):
    return Incomplete(x, torch.ones_like(x).bool())


def test_the_truth_is_a_fixed_point(seed):
    """Gradients at the truth, with its own statistics in place of the data's."""
    d, gradients, moves = 2, [], []
    centre, model = CENTRE[:d], model_of(d)
    exact = exact_statistic(model, centre)
    none = Penalty(torch.zeros(d, d).double(), 0.0)
    for i in range(40):
        x = rows_of_model(100, np.random.default_rng([seed, i]), d)
        with seeded(100 * seed + i):
            method = maximum_likelihood(complete(x), centre, fit_linear=True)
            state = method.e_step.init()
            for _ in range(8):  # forget the rows
                state, moments = method.e_step.step(state, model)
        moments = moments._replace(data=exact)
        quadratic = quadratic_of(moments, none, centre)
        gradients.append(quadratic.product(moments.theta) - quadratic.target)
        linear = model.linear.detach() - model.precision.detach() @ centre
        start = Theta(model.precision.detach(), linear, linear.new_zeros(()))
        solved = method.m_step.solve(moments, start, none, 1e-10).theta
        moves.append(solved.precision - start.precision)
    gradients = torch.stack(gradients).flatten(1)
    assert np.abs(z_mean(gradients, 0)).max() < GATE
    assert np.abs(z_mean(gradients, 0.05)).min() > GATE
    assert float(torch.stack(moves).mean(0).abs().max()) < 0.05


def exact_fit(x, centre):
    """Maximise the likelihood of two columns by quadrature; (K_00, K_01, K_11, b)."""
    points, weights = orthant_rule(2, 9.0, 60)

    def loss(vector):
        vector = torch.tensor(vector).requires_grad_()
        theta = Theta(vector[[0, 1, 1, 2]].reshape(2, 2), vector[3:], vector.sum())
        K, b = em.uncentre(theta, centre)[:2]

        def log_density(rows):
            return ((b - rows @ K / 2) * rows).sum(-1)

        value = log_integral(log_density(points), weights) - log_density(x).mean()
        return float(value.detach()), torch.autograd.grad(value, vector)[0].numpy()

    start = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    minimum = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8})
    assert np.abs(minimum.jac).max() < 1e-6
    return minimum.x


@pytest.mark.slow
def test_on_complete_data_it_is_the_maximum_of_the_likelihood(seed):
    x = rows_of_model(150, np.random.default_rng(seed), 2)
    data = complete(x / x.std(0))
    centre = em.units_of(data, True).centre
    exact, values = exact_fit(data.x, centre), []
    for i in range(8):
        with seeded(100 * seed + i):
            fit = em.learn_graph(
                maximum_likelihood(data, centre, fit_linear=True),
                em.independence(data, centre, True),
                Penalty(torch.zeros(2, 2).double(), 0.0),
                max_iter=40,
                tol=0.0,
                warm_up=10,
            )
        K, b = fit.theta.precision, fit.theta.linear
        values.append(np.r_[K[0, 0], K[0, 1], K[1, 1], b])
    values = np.array(values)
    assert np.abs(z_mean(values, exact)).max() < GATE
    assert np.abs(values.mean(0) - exact).max() < 0.02
    assert np.abs(z_mean(values, exact + 0.05)).min() > GATE


# Chains that leave the data


@pytest.mark.parametrize("width", [D, D + 1])
def test_steps_of_the_model_are_limited_in_the_metric_of_the_information(width, seed):
    last = some_moments(seed, width)
    information = Information.of(last.drawn)
    step = random_direction(np.random.default_rng([seed, 9]), width)
    unit = step / (step * information.product(step)).sum().sqrt()
    assert torch.equal(within_reach(last.theta, last), last.theta)
    for length in (0.01, 0.5, 3.0, 1e6):
        moved = within_reach(last.theta + length * unit, last) - last.theta
        value = float((moved * information.product(moved)).sum())
        assert value == pytest.approx(min(length**2, 0.1 * D), rel=1e-6)
        torch.testing.assert_close(moved / moved.norm(), unit / unit.norm())


@pytest.mark.parametrize("fit_linear", [True, False])
def test_the_model_follows_the_solutions_step_by_step(fit_linear, seed):
    """A far model is reached in some rounds, and not at once."""
    x = rows_of_model(100, np.random.default_rng(seed))
    centre = CENTRE * fit_linear
    linear = torch.tensor([6.0, 6.0, 6.0]).double() * fit_linear
    far = TruncatedGaussian(4 * torch.tensor(PRECISION), linear)
    width, places = D + fit_linear, []
    with seeded(seed):
        method = maximum_likelihood(complete(x), centre, fit_linear=fit_linear)
        state, _ = method.e_step.step(method.e_step.init(), model_of())
        for _ in range(40):
            state, moments = method.e_step.step(state, far)
            places.append(moments.theta)
    target = far.precision.detach(), (far.linear - far.precision @ centre).detach()
    target = torch.cat([target[0], target[1][:, None]], 1)[:, :width]
    distances = [float((place - target).norm()) for place in places]
    assert distances[0] > 0.3 * float(target.norm())
    assert distances == sorted(distances, reverse=True)
    torch.testing.assert_close(places[-1], target)


def test_chains_that_leave_the_data_are_refused(seed):
    rows = torch.tensor(np.random.default_rng(seed).gamma(2.0, size=(2, 50, D)))
    check_chains(rows * 10, rows)
    for factor in ([1.0, 1e-3, 1.0], [1.0, 1.0, 1e3], [np.nan, 1.0, 1.0]):
        with pytest.raises(Diverged, match="chains of the model have left the data"):
            check_chains(rows * torch.tensor(factor), rows)


# An M-step that descends a loss (`em.minimise_loss`): by pseudo-likelihood, all
# univariate conditionals at once (Besag 1975), against quadrature


OFF = ~np.eye(D, dtype=bool)


def negative_log_pseudo_likelihood(x, precision, linear):
    return -conditionals(x, precision, linear).log_prob(x).sum(-1).mean()


def pseudo_likelihood(centre, fit_linear):
    """Build the M-step."""

    def solve(tables, start, penalty, tol):
        rows = torch.cat(tables)

        def loss(theta):
            model = em.uncentre(theta, centre)
            return negative_log_pseudo_likelihood(rows, model.precision, model.linear)

        free = {"fit_linear": fit_linear, "fit_scale": False}
        return em.minimise_loss(loss, start, centre, penalty, **free, tol=tol)

    return em.MStep(lambda x: (x,), lambda old, new, _: old + new, solve, (1e-3, 1e-5))


@pytest.mark.parametrize("d", [1, D])
def test_it_is_the_sum_of_the_conditionals(d, seed):
    x = rows_of_model(20, np.random.default_rng(seed))[:, :d]
    K, b = torch.tensor(PRECISION[:d, :d]), torch.tensor(LINEAR[:d])
    model = TruncatedGaussian(K, b)
    points, weights = orthant_rule(1, 12.0, 80)
    total = 0.0
    for j in range(d):
        moved = x.repeat(len(points), 1, 1)
        moved[:, :, j] = points
        log_z = log_integral(model.log_density(moved), weights[:, None])
        total = total - (model.log_density(x) - log_z).mean().detach()
    result = negative_log_pseudo_likelihood(x, K, b)
    torch.testing.assert_close(result, total, rtol=1e-9, atol=1e-9)


def solve(x, alpha, ridge, ridge_linear, fit_linear, tol=1e-7):
    centre = x.mean(0) * fit_linear
    m_step = pseudo_likelihood(centre, fit_linear)
    start = em.independence(complete(x), centre, fit_linear)
    penalty = Penalty(alpha * off_diagonal(D), ridge, ridge_linear)
    return m_step.solve(m_step.summarise(x), start, penalty, tol), centre


def slopes(theta, x, centre, ridge, ridge_linear):
    """Compute K, and the slopes of the smooth loss in K (symmetric) and b.

    Of b at the origin: what moves it along with K counts nothing where its slope is 0.
    """
    model = em.to_model(theta, centre)
    K, b = model.precision, model.linear
    loss = negative_log_pseudo_likelihood(x, K, b)
    loss = loss + ridge_linear * b.square().sum() / 2
    by_K, by_b = (part.numpy() for part in torch.autograd.grad(loss, [K, b]))
    K = K.detach().numpy()
    return K, (by_K + by_K.T) / 2 + ridge * K * OFF, by_b


@pytest.mark.parametrize("fit_linear", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_optimality_without_a_reference(share, fit_linear, seed):
    x = rows_of_model(300, np.random.default_rng(seed))
    x = x / x.std(0)
    ridges = 0.02, 0.1 * fit_linear
    empty, centre = solve(x, 1e3, *ridges, fit_linear)
    assert (empty.theta.precision.numpy()[OFF] == 0).all()
    # a share of the smallest alpha that gives no links
    alpha = share * np.abs(slopes(empty.theta, x, centre, *ridges)[1][OFF]).max()
    result, _ = solve(x, alpha, *ridges, fit_linear)
    K, by_K, by_b = slopes(result.theta, x, centre, *ridges)
    zero = (K == 0) & OFF
    linked = OFF & ~zero
    assert zero.any() == (alpha > 0) and linked.any()
    np.testing.assert_array_less(np.abs(by_K[zero]), alpha + 1e-5)
    np.testing.assert_allclose(by_K[linked], -alpha * np.sign(K[linked]), atol=1e-5)
    inside = K.diagonal() > DIAGONAL_FLOOR
    np.testing.assert_allclose(by_K.diagonal()[inside], 0, atol=1e-5)
    if fit_linear:
        np.testing.assert_allclose(by_b, 0, atol=1e-5)
    else:
        assert (result.theta.linear == 0).all()
    assert result.gap < 1e-5


def test_the_objective_averages_over_all_tables(seed):
    x = rows_of_model(100, np.random.default_rng(seed))
    m_step = pseudo_likelihood(x.mean(0), True)
    first, second = m_step.summarise(x), m_step.summarise(x.flip(0) + 0.1)
    start = em.independence(complete(x), x.mean(0), True)
    free = Penalty(torch.zeros(D, D).double(), 0.0)
    solution = m_step.solve(m_step.merge(first, second, 0.5), start, free, 1e-7)
    parts = first, second
    losses = [m_step.solve(part, solution.theta, free, 1e6).loss for part in parts]
    assert solution.loss == pytest.approx(sum(losses) / 2, rel=1e-9)
