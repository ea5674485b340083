"""The graphical lasso for blocks, against scikit-learn and optimality."""

import numpy as np
import pytest
import torch
from sklearn.covariance import graphical_lasso
from tables import covariance_of

from skvnce.graphs.graphical_lasso import (
    Blocks,
    certify,
    newton_move,
    newton_step,
    point_at,
    smooth_loss,
    solve,
)

SIZES = [1, 3, 1, 2, 4]


def weights_of(d, strength):
    return strength * (1 - torch.eye(d).double())


def slices(blocks):
    ends = blocks.sizes.cumsum(0).tolist()
    return [slice(e - s, e) for s, e in zip(blocks.sizes.tolist(), ends, strict=True)]


def objective(K, S, weight, blocks):
    """Compute the objective block by block."""
    value = (S * K).sum() - torch.logdet(K)
    parts = slices(blocks)
    for i, one in enumerate(parts):
        for j, other in enumerate(parts):
            if i != j:
                value = value + weight[i, j] * torch.linalg.norm(K[one, other])
    return float(value)


def violation(K, S, weight, blocks):
    """Compute the largest distance of zero from the subdifferential of a block."""
    gradient = S - torch.linalg.inv(K)
    parts, worst = slices(blocks), 0.0
    for i, one in enumerate(parts):
        for j, other in enumerate(parts):
            g, k = gradient[one, other], K[one, other]
            if i == j:
                distance = torch.linalg.norm(g)
            elif (k == 0).all():
                distance = (torch.linalg.norm(g) - weight[i, j]).clamp(min=0)
            else:
                pull = weight[i, j] * k / torch.linalg.norm(k)
                distance = torch.linalg.norm(g + pull)
            worst = max(worst, float(distance))
    return worst


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_equals_scikit_learn(alpha, seed):
    S = covariance_of(8, seed)
    blocks = Blocks.of(torch.ones(8, dtype=torch.long))
    solution = solve(S, torch.eye(8).double(), weights_of(8, alpha), blocks, tol=1e-12)
    _, expected = graphical_lasso(S.numpy(), alpha, tol=1e-10, enet_tol=1e-12)
    np.testing.assert_allclose(solution.precision, expected, atol=1e-5)
    assert solution.gap < 1e-10
    _, other = graphical_lasso(S.numpy(), alpha * 1.01, tol=1e-10, enet_tol=1e-12)
    assert abs(solution.precision.numpy() - other).max() > 1e-4


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_blocks_satisfy_the_optimality_conditions(alpha, seed):
    S = covariance_of(sum(SIZES), seed)
    blocks, weight = Blocks.of(torch.tensor(SIZES)), weights_of(len(SIZES), alpha)
    start = torch.eye(sum(SIZES)).double()
    solution = solve(S, start, weight, blocks, tol=1e-13, max_iter=20_000)
    assert violation(solution.precision, S, weight, blocks) < 1e-5
    expected = objective(solution.precision, S, weight, blocks)
    assert solution.objective == pytest.approx(expected)
    rough = solve(S, start, weight, blocks, tol=1e-1)
    assert violation(rough.precision, S, weight, blocks) > 1e-4


@pytest.mark.parametrize("tol", [1.0, 1e-1, 1e-3])
def test_the_gap_bounds_the_excess_of_the_objective(tol, seed):
    S = covariance_of(sum(SIZES), seed)
    blocks, weight = Blocks.of(torch.tensor(SIZES)), weights_of(len(SIZES), 0.1)
    start = torch.eye(sum(SIZES)).double()
    least = solve(S, start, weight, blocks, tol=1e-13, max_iter=20_000).objective
    rough = solve(S, start, weight, blocks, tol=tol)
    assert 0 <= rough.objective - least <= rough.gap + 1e-12 and rough.gap <= tol


def test_a_gap_within_tol_is_reached_from_any_start(seed):
    S = covariance_of(sum(SIZES), seed)
    blocks, weight = Blocks.of(torch.tensor(SIZES)), weights_of(len(SIZES), 0.1)
    inverse = torch.linalg.inv(S)
    starts = torch.eye(len(S)).double(), inverse, 100 * inverse
    values = [solve(S, start, weight, blocks, tol=1e-12).precision for start in starts]
    assert torch.allclose(values[0], values[1], atol=1e-5)
    assert torch.allclose(values[0], values[2], atol=1e-5)


def test_excluded_blocks_stay_zero_and_the_others_are_free(seed):
    S = covariance_of(sum(SIZES), seed)
    blocks, weight = Blocks.of(torch.tensor(SIZES)), weights_of(len(SIZES), 0.0)
    weight[0, 1] = weight[1, 0] = weight[3, 4] = weight[4, 3] = torch.inf
    start = torch.linalg.inv(S)
    solution = solve(S, start, weight, blocks, tol=1e-12, max_iter=20_000)
    norms = blocks.norms(solution.precision)
    assert ((norms == 0) == weight.isinf()).all()
    inverse = torch.linalg.inv(solution.precision)
    free = blocks.spread(weight.isinf().double()) == 0
    assert torch.allclose(inverse[free], S[free], atol=1e-5)
    assert not torch.allclose(inverse[~free], S[~free], atol=1e-2)


def test_the_graph_is_empty_from_the_largest_ratio_on(seed, rng):
    """Without edges the gradient in the block K_ij is S_ij."""
    blocks = Blocks.of(torch.tensor(SIZES))
    S = covariance_of(sum(SIZES), seed)
    unit = torch.tensor(rng.uniform(0.3, 1.0, size=len(SIZES)))
    unit = torch.outer(unit, unit).fill_diagonal_(0.0)
    ratios = blocks.norms(S).div(unit.clamp(min=1e-9)).fill_diagonal_(0.0)
    largest, start = ratios.max(), torch.eye(len(S)).double()
    above = solve(S, start, 1.001 * largest * unit, blocks, tol=1e-12).precision
    below = solve(S, start, 0.99 * largest * unit, blocks, tol=1e-12).precision
    assert not blocks.norms(above).fill_diagonal_(0.0).any()
    assert blocks.norms(below).flatten()[ratios.argmax()] > 0


def test_a_newton_step_solves_for_the_blocks_that_are_not_zero(seed):
    S, d = covariance_of(sum(SIZES), seed), sum(SIZES)
    blocks, weight = Blocks.of(torch.tensor(SIZES)), weights_of(len(SIZES), 0.05)
    start = torch.eye(d).double()
    rough = solve(S, start, weight, blocks, tol=1e-4).precision
    here = point_at(rough, *smooth_loss(rough, S), S)
    before, gap = certify(here, S, weight, blocks)
    for _ in range(4):
        value = certify(here, S, weight, blocks)[0]
        here = newton_move(here, value, S, weight, blocks)
    nonzero = blocks.norms(rough) > 0
    assert (blocks.norms(here.precision) > 0).equal(nonzero)
    value, smaller = certify(here, S, weight, blocks)
    assert value <= before and smaller < 1e-3 * gap


def test_a_newton_step_does_not_change_signs():
    S = torch.tensor([[1.0, 0.1], [0.1, 1.0]]).double()
    K = torch.tensor([[1.0, 0.05], [0.05, 1.0]]).double()
    blocks, weight = Blocks.of(torch.ones(2).long()), weights_of(2, 0.5)
    here = point_at(K, *smooth_loss(K, S), S)
    result = newton_move(here, objective(K, S, weight, blocks), S, weight, blocks)
    assert result.precision[0, 1] == 0  # the step alone leads to a negative value
    assert result.precision[0, 0] != K[0, 0]


# Steps of Newton's method, against dense solutions


D = 5


def newton_problem(seed):
    """Make a covariance, the free entries, and a gradient in them."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(D, 2 * D, dtype=torch.float64, generator=generator)
    free = (torch.rand(D, D, generator=generator) < 0.6).double()
    free = ((free + free.T) > 0).double().fill_diagonal_(1.0)
    gradient = torch.randn(D, D, dtype=torch.float64, generator=generator)
    return root @ root.T / (2 * D), free, (gradient + gradient.T) * free / 2


def solved(inverse, free, gradient, ridge=0.0):
    """Solve for the step with the Hessian as a matrix."""
    hessian = torch.kron(inverse, inverse) + ridge * torch.eye(D * D)
    is_free = free.flatten() > 0
    move = torch.zeros(D * D, dtype=torch.float64)
    rest = -gradient.flatten()[is_free]
    move[is_free] = torch.linalg.solve(hessian[is_free][:, is_free], rest)
    return move.view(D, D)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_step_solves_the_equations(seed, ridge):
    inverse, free, gradient = newton_problem(seed)
    gradient *= 1e-8  # the accuracy grows as the gradient vanishes
    of_penalty = (lambda move: ridge * move) if ridge else None
    result = newton_step(inverse, gradient, free, 200, of_penalty)
    expected = solved(inverse, free, gradient, ridge)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-14)
    assert (result[free == 0] == 0).all()
    other = solved(inverse, free, gradient, ridge + 0.1)
    assert (result - other).abs().max() > 1e-10  # negative control


def test_few_conjugate_gradients_give_a_direction_of_descent(seed):
    inverse, free, gradient = newton_problem(seed)
    assert (newton_step(inverse, gradient, free, 1) * gradient).sum() < 0
