"""Proximal gradient against the exact solution by enumeration of active sets."""

from itertools import product

import numpy as np
import pytest
import torch

from skvnce._core.training.proximal import Quadratic, certify, minimise

PROBLEMS = range(12)


class Problem:
    """A random quadratic over (5, 1) matrices, the first entry bounded below."""

    def __init__(self, seed, weight=0.6, d=5):
        rng = np.random.default_rng(seed)
        factor = rng.normal(size=(d, d + 2))
        self.Q, self.G = factor @ factor.T / d + 0.05 * np.eye(d), rng.normal(size=d)
        self.weight = weight * rng.uniform(0.5, 1.5, size=d)
        self.lower = np.full(d, -np.inf)
        self.weight[0], self.lower[0] = 0.0, 0.1

    def objective(self, a):
        return a @ self.Q @ a / 2 - self.G @ a + self.weight @ np.abs(a)

    def torch(self):
        """Return the problem as `minimise` takes it: quadratic, weight, bounds."""
        Q = torch.tensor(self.Q)
        quadratic = Quadratic(
            product=lambda A: Q @ A,
            target=torch.tensor(self.G)[:, None],
            inverse_form=lambda R: (R * torch.linalg.solve(Q, R)).sum(),
            diagonal=Q.diagonal()[:, None],
        )
        limits = self.weight, self.lower, np.full(len(self.G), np.inf)
        return quadratic, *(torch.tensor(limit)[:, None] for limit in limits)

    def solve(self, **options):
        quadratic, *limits = self.torch()
        start = torch.ones_like(quadratic.target)
        return minimise(quadratic, start, *limits, **options)

    def exact(self):
        """Return the best of the solutions with given signs and zeros."""
        best = None
        for signs in product([0, 1], *[[-1, 0, 1]] * (len(self.G) - 1)):
            signs = np.array(signs)
            free, a = signs != 0, np.where(self.lower > -np.inf, self.lower, 0.0)
            pull = self.G - self.weight * signs - self.Q[:, ~free] @ a[~free]
            a[free] = np.linalg.solve(self.Q[np.ix_(free, free)], pull[free])
            penalised = free & (self.weight > 0)
            feasible = (a[penalised] * signs[penalised] > 0).all()
            if feasible and (a >= self.lower).all():
                if best is None or self.objective(a) < self.objective(best):
                    best = a
        return best


@pytest.mark.parametrize("i", PROBLEMS)
def test_the_exact_solution(i, seed):
    problem = Problem([seed, i])
    result, exact = problem.solve(tol=1e-13), problem.exact()
    point = result.point.numpy().ravel()
    np.testing.assert_allclose(point, exact, atol=1e-5)
    assert result.objective == pytest.approx(problem.objective(point), rel=1e-12)
    assert result.objective == pytest.approx(problem.objective(exact), rel=1e-10)
    assert 0 <= result.gap + 1e-15
    assert result.gap < 1e-12 * max(1, abs(result.objective))
    np.testing.assert_array_equal(point == 0, exact == 0)


def test_some_entries_are_zero_or_bounded_and_some_are_not(seed):
    # else the comparison above says little
    points = np.array([Problem([seed, i]).exact() for i in PROBLEMS])
    assert 0.2 < (points[:, 1:] == 0).mean() < 0.8
    assert 0 < (points[:, 0] == 0.1).sum() < len(points)


@pytest.mark.parametrize("i", PROBLEMS)
def test_the_gap_bounds_the_suboptimality_wherever_it_stops(i, seed):
    problem = Problem([seed, i])
    best = problem.objective(problem.exact())
    for max_iter in (1, 2, 3, 5, 10, 30):
        solution = problem.solve(tol=1e-13, max_iter=max_iter)
        assert solution.n_iter <= max_iter
        assert -1e-12 <= solution.objective - best <= solution.gap + 1e-12


@pytest.mark.parametrize("i", PROBLEMS)
def test_the_certificate_holds_anywhere(i, seed):
    problem, rng = Problem([seed, i]), np.random.default_rng([seed, i, 1])
    quadratic, *limits = problem.torch()
    best = problem.objective(problem.exact())
    for _ in range(20):
        a = rng.normal(size=5) * rng.choice([0, 0.1, 3], size=5)
        a = np.maximum(a, problem.lower)
        objective, gap = certify(quadratic, torch.tensor(a)[:, None], *limits)
        assert objective == pytest.approx(problem.objective(a), rel=1e-12)
        assert objective - best <= gap + 1e-12
    # a gap that always were infinite would pass, too
    exact = torch.tensor(problem.exact())[:, None]
    assert certify(quadratic, exact, *limits)[1] < 1e-12


@pytest.mark.parametrize("i", PROBLEMS)
def test_upper_bounds_mirror_lower_ones(i, seed):
    problem, rng = Problem([seed, i]), np.random.default_rng([seed, i, 1])
    quadratic, weight, lower, _ = problem.torch()
    mirrored = quadratic._replace(target=-quadratic.target)
    limits = weight, torch.full_like(lower, -torch.inf), -lower
    minimum = minimise(mirrored, torch.zeros(5, 1).double(), *limits, tol=1e-13)
    exact = problem.exact()
    np.testing.assert_allclose(minimum.point.numpy().ravel(), -exact, atol=1e-5)
    assert certify(mirrored, -torch.tensor(exact)[:, None], *limits)[1] < 1e-12
    for _ in range(20):
        a = np.maximum(rng.normal(size=5), problem.lower)
        objective, gap = certify(mirrored, -torch.tensor(a)[:, None], *limits)
        assert objective - problem.objective(exact) <= gap + 1e-12


def test_entries_of_infinite_weight_are_left_out(seed):
    problem, left_out = Problem(seed, weight=0.0), [2, 4]
    problem.lower[:] = -np.inf
    problem.weight[left_out] = np.inf
    result, free = problem.solve(tol=1e-14), np.array([0, 1, 3])
    exact = np.zeros(5)
    exact[free] = np.linalg.solve(problem.Q[np.ix_(free, free)], problem.G[free])
    point = result.point.numpy().ravel()
    assert (point[left_out] == 0).all()
    np.testing.assert_allclose(point, exact, atol=1e-6)
    assert result.objective == pytest.approx(-problem.G @ exact / 2, rel=1e-10)
    assert 0 <= result.gap + 1e-15
    assert result.gap < 1e-12 * max(1, abs(result.objective))


def test_a_start_outside_the_bounds_and_the_start_itself(seed):
    problem = Problem(seed)
    quadratic, *limits = problem.torch()
    start = torch.full((5, 1), -9.0).double()
    minimum = minimise(quadratic, start, *limits, tol=1e-13)
    expected = problem.solve(tol=1e-13).point
    torch.testing.assert_close(minimum.point, expected, rtol=0, atol=1e-5)
    assert (start == -9).all()


def test_a_step_found_from_an_unlucky_vector():
    # the power iteration starts at right angles to the largest eigenvector
    start = np.linspace(1, 2, 5)
    largest = np.array([1, -1, 0, 0, 0]) - start * (start[0] - start[1]) / (
        start @ start
    )
    problem = Problem(0)
    problem.Q = np.eye(5) + 99 * np.outer(largest, largest) / (largest @ largest)
    solution = problem.solve(tol=1e-10)
    assert solution.objective - problem.objective(problem.exact()) < 1e-8
