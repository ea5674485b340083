"""The L-BFGS driver against proximal gradient and the optimality conditions."""

import weakref

import numpy as np
import pytest
import torch

from skvnce._core.training import proximal
from skvnce._core.training.adam import NotFinite
from skvnce._core.training.lbfgs import minimise, minimise_parameters

D = 8


@pytest.fixture
def quadratic(rng):
    """Q, G, weight and lower; the first two entries bounded, the next one free."""
    factor = rng.normal(size=(D, D + 4))
    Q = torch.tensor(factor @ factor.T / (5 * D) + 0.5 * np.eye(D))
    G = torch.tensor(np.resize([0.0, 2.0, -0.1], D) + 0.3 * rng.normal(size=D))
    weight, lower = (
        torch.full((D,), 0.5).double(),
        torch.full((D,), -torch.inf).double(),
    )
    weight[:3], lower[:2] = 0.0, 0.2
    return Q, G, weight, lower


def optimality(gradient, point, weight, lower):
    """Return the largest violation, entry by entry from the definition."""
    worst = 0.0
    pairs = zip(*(t.tolist() for t in (gradient, point, weight, lower)), strict=True)
    for g, v, w, low in pairs:
        if v == low:
            violation = max(0.0, -g)
        elif w and v == 0:
            violation = max(0.0, abs(g) - w)
        else:
            violation = abs(g + w * np.sign(v))
        worst = max(worst, violation)
    return worst


def test_the_same_minimum_as_proximal_gradient(quadratic):
    Q, G, weight, lower = quadratic
    start = torch.linspace(-1, 1, D).double()
    minimum = minimise(lambda v: v @ Q @ v / 2 - G @ v, start, weight, lower, tol=1e-9)
    certified = proximal.minimise(
        proximal.Quadratic(
            lambda A: Q @ A,
            G[:, None],
            lambda R: (R * torch.linalg.solve(Q, R)).sum(),
            Q.diagonal()[:, None],
        ),
        start[:, None],
        weight[:, None],
        lower[:, None],
        torch.full_like(lower, torch.inf)[:, None],
        tol=1e-14,
    )
    reference = certified.point.ravel()
    torch.testing.assert_close(minimum.point, reference, rtol=0, atol=1e-5)
    assert minimum.objective == pytest.approx(certified.objective, rel=1e-9)
    assert torch.equal(minimum.point == 0, reference == 0)
    assert 0 < (reference == 0).sum() < D - 3
    assert (start == torch.linspace(-1, 1, D).double()).all()


def test_optimality_of_a_function_that_is_not_quadratic(quadratic, seed):
    _, G, weight, lower = quadratic
    rows = torch.tensor(np.random.default_rng([seed, 1]).normal(size=(40, D)))
    sign = torch.tensor(np.sign(rows.numpy() @ G.numpy()))

    def value(v):
        return torch.nn.functional.softplus(-sign * (rows @ v)).mean()

    weight = weight * 0.2
    minimum = minimise(value, torch.zeros(D).double(), weight, lower, tol=1e-7)
    point = minimum.point.requires_grad_()
    (gradient,) = torch.autograd.grad(value(point), point)
    violation = optimality(gradient, point, weight, lower)
    assert violation == pytest.approx(minimum.gap, abs=1e-15)
    assert violation < 1e-5
    assert abs(float(gradient[2])) < 1e-5  # neither penalised nor bounded
    assert 0 < (point[3:] == 0).sum() < D - 3
    assert (point >= lower).all()


def test_the_gap_measures_a_stop_that_came_too_early(quadratic):
    Q, G, weight, lower = quadratic
    start = torch.ones(D).double()
    early = minimise(lambda v: v @ Q @ v / 2 - G @ v, start, weight, lower, max_iter=1)
    gradient = Q @ early.point - G
    assert early.n_iter == 1
    violation = optimality(gradient, early.point, weight, lower)
    assert early.gap == pytest.approx(violation, rel=1e-12)
    assert early.gap > 1e-3


def test_parameters_of_modules_move_in_place():
    first = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    second = torch.ones((), dtype=torch.float32, requires_grad=True)
    target = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)

    def loss():
        yield (first - target).square().sum()
        yield (second + first[0, 0]).square()

    minimum = minimise_parameters(loss, [first, second], tol=1e-6)
    torch.testing.assert_close(first.detach(), target, atol=1e-5, rtol=0)
    assert float(second.detach()) == pytest.approx(-1, abs=1e-5)
    assert minimum.objective == pytest.approx(0, abs=1e-10)
    assert first.grad is None
    assert minimum.gap < 1e-5


def test_summands_are_added_up_and_freed(quadratic):
    Q, G, _, _ = quadratic
    alive = []

    def parts(pieces):
        for rows in torch.arange(D).split(pieces):
            alive.append(sum(ref() is not None for ref in references))
            part = (v @ Q[:, rows] @ v[rows]) / 2 - G[rows] @ v[rows]
            references.append(weakref.ref(part))
            yield part
            del part

    points = []
    for pieces in (D, 3):
        v = torch.zeros(D, dtype=torch.float64, requires_grad=True)
        references = []
        minimum = minimise_parameters(lambda n=pieces: parts(n), [v], tol=1e-9)
        points.append(minimum.point)
        torch.testing.assert_close(v.detach(), minimum.point)
        torch.testing.assert_close(minimum.point, torch.linalg.solve(Q, G))
    assert max(alive) <= 1  # the last one of all, while the next is made


def test_a_parameter_that_no_summand_reads_stays():
    read, unread = (
        torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    minimise_parameters(lambda: [read.square().sum()], [unread, read])
    assert (unread == 1).all()
    assert read.abs().max() < 1e-5


@pytest.mark.parametrize("where", ["value", "gradient"])
def test_a_loss_that_is_not_finite_is_refused(where):
    v = torch.zeros((), dtype=torch.float64, requires_grad=True)
    power = {"value": lambda: v.log() + v, "gradient": lambda: v.sqrt()}[where]
    with pytest.raises(NotFinite, match="its gradient is not finite"):
        minimise_parameters(lambda: [v.square(), power()], [v])


def test_steps_to_singular_matrices_are_taken_back():
    """A line that ends where a matrix is no longer positive definite."""
    v = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    met = []

    def parts():
        with torch.no_grad():
            met.append(float(v) >= 5)
        yield (torch.linalg.cholesky((5 - v)[:, None]).log() * -4 - 10 * v).sum()

    minimum = minimise_parameters(parts, [v], max_iter=50)
    assert any(met)  # the control
    assert float(minimum.point) == pytest.approx(4.8, abs=1e-6)
    with pytest.raises(NotFinite, match="positive-definite"):
        minimise_parameters(lambda: [torch.linalg.cholesky(-v[:, None] - 9).sum()], [v])


def test_steps_beyond_the_finite_region_are_taken_back():
    """A line that ends at a wall, behind which the loss overflows."""
    v = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    values = []

    def parts():
        values.append((-v + (200 * (v - 5)).exp()).sum())
        yield values[-1]

    steps = []
    minimum = minimise_parameters(parts, [v], on_step=steps.append)
    assert not all(value.isfinite() for value in values)  # it did go there
    assert minimum.n_iter == len(steps)
    assert float(v.detach()) == pytest.approx(5 - np.log(200) / 200, abs=1e-6)
    assert minimum.gap < 1e-6
    with torch.no_grad():
        v.zero_()
    assert minimise_parameters(parts, [v], max_iter=4).n_iter <= 5
