"""Steps of Newton's method, against dense solutions."""

import pytest
import torch

from skvnce.graphs.graphical_lasso import newton_step

D = 5


def problem(seed):
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
    some = free.flatten() > 0
    move = torch.zeros(D * D, dtype=torch.float64)
    rest = -gradient.flatten()[some]
    move[some] = torch.linalg.solve(hessian[some][:, some], rest)
    return move.view(D, D)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_step_solves_the_equations(seed, ridge):
    inverse, free, gradient = problem(seed)
    gradient *= 1e-8  # the accuracy grows as the gradient vanishes
    of_penalty = (lambda move: ridge * move) if ridge else None
    found = newton_step(inverse, gradient, free, 200, of_penalty)
    expected = solved(inverse, free, gradient, ridge)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-14)
    assert (found[free == 0] == 0).all()
    other = solved(inverse, free, gradient, ridge + 0.1)
    assert (found - other).abs().max() > 1e-10  # negative control


def test_few_conjugate_gradients_give_a_direction_of_descent(seed):
    inverse, free, gradient = problem(seed)
    assert (newton_step(inverse, gradient, free, 1) * gradient).sum() < 0
