"""The only L-BFGS driver: smooth functions plus an L1 term and lower bounds.

Each penalised entry is split into its positive and negative part, which makes the L1
term linear with bounds; so L-BFGS-B finds exact zeros.

Byrd, Lu, Nocedal and Zhu (1995), through ``scipy.optimize.minimize``.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from skvnce._core.progress import tell
from skvnce._core.training.adam import NotFinite
from skvnce._core.training.proximal import Certified

# each one makes the first step ten times shorter
_RESTARTS = 10  # maximum number after steps to points where the loss is not finite


class Lowest(NamedTuple):
    """The lowest loss so far, and its parameters (n_parameters,)."""

    loss: float
    point: Tensor


# the loss and its gradient (n_parameters,) at a point (n_parameters,)
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


def minimise(
    value: Callable[[Tensor], Tensor],  # smooth, differentiated by autograd
    # (n_parameters,): an entry with a finite lower bound has no L1 weight
    start: Tensor,
    weight: Tensor,  # (n_parameters,)
    lower: Tensor,  # (n_parameters,)
    *,
    tol: float = 1e-6,  # largest entry of the projected gradient at which to stop
    max_iter: int = 1000,
) -> Certified:  # its gap is the largest violation of the optimality conditions
    """Minimise ``value(v) + sum weight |v|`` subject to ``v >= lower``."""

    def evaluate(at: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(at).requires_grad_()
        loss = value(point)
        (gradient,) = torch.autograd.grad(loss, point)
        return float(loss.detach()), gradient.numpy()

    options = {"tol": tol, "max_iter": max_iter}
    return _minimise(evaluate, start, weight, lower, **options)


def _minimise(
    evaluate: Evaluate,
    start: Tensor,
    weight: Tensor,
    lower: Tensor,
    *,
    tol: float,
    max_iter: int,
    # called with the objective after each iteration
    on_step: Callable[[float], bool] = lambda loss: False,
) -> Certified:
    split = (weight > 0).nonzero().squeeze(-1).numpy()
    penalty = weight.numpy()[split]
    bounds = [(None if b == -np.inf else b, None) for b in lower.tolist()]
    first = np.concatenate([start.numpy(), np.zeros(len(split))])
    # negative parts first, because the next line overwrites the signs
    first[len(start) :] = np.maximum(-first[split], 0)
    first[split] = np.maximum(first[split], 0)
    for entry in split:
        bounds[entry] = (0, None)

    def joined(parts: np.ndarray) -> np.ndarray:
        whole = parts[: len(start)].copy()
        whole[split] -= parts[len(start) :]
        return whole

    def objective(parts: np.ndarray) -> tuple[float, np.ndarray]:
        tell("evaluating the objective")
        loss, gradient = evaluate(joined(parts))
        l1 = penalty @ (parts[split] + parts[len(start) :])
        # the loss depends on the difference of the two parts, the L1 term on their sum
        by_negative = penalty - gradient[split]
        gradient = gradient.copy()
        gradient[split] += penalty
        return loss + l1, np.concatenate([gradient, by_negative])

    # scipy passes the objective only to a parameter of this name
    def shown(intermediate_result: OptimizeResult) -> None:
        if on_step(float(intermediate_result.fun)):
            # scipy catches it, and returns the current point
            raise StopIteration

    result = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds + [(0, None)] * len(split),
        # without `ftol`, as a small decrease of the loss does not bound the gradient
        options={"gtol": tol, "ftol": 0.0, "maxiter": max_iter, "maxcor": 20},
        callback=shown,
    )
    point = torch.from_numpy(joined(result.x))
    violation = _violation(evaluate, point, weight, lower)
    return Certified(point, float(result.fun), violation, int(result.nit))


def minimise_parameters(
    # evaluates summands at the current values, one at a time, so that the memory of one
    # is freed before the next.  They must be deterministic and have their exact
    # gradients: the line search fails with detached terms
    parts: Callable[[], Iterable[Tensor]],
    parameters: Iterable[Tensor],  # leaves that require gradients
    *,
    tol: float = 1e-6,  # as in `minimise`
    max_iter: int = 1000,
    on_step: Callable[[float], bool] = lambda loss: False,
) -> Certified:
    """Minimise a smooth function of the parameters of modules, in place.

    Raises NotFinite if the sum is NaN or infinite, or a matrix in it singular, at the
    start or repeatedly after restarts from the best previous point.
    """
    leaves = list(parameters)
    best = Lowest(inf, flat([leaf.detach() for leaf in leaves]))

    def move(vector: Tensor) -> None:
        with torch.no_grad():
            sizes = [leaf.numel() for leaf in leaves]
            for leaf, part in zip(leaves, vector.split(sizes), strict=True):
                leaf.copy_(part.view_as(leaf))

    def evaluate(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        vector = torch.from_numpy(scaled) * unit
        move(vector)
        at, slope = torch.zeros((), dtype=torch.float64), torch.zeros_like(vector)
        try:
            for part in parts():
                if not part.requires_grad:  # rows without draws train no posterior
                    at = at + part
                    continue
                # zeros instead of None: a part need not depend on all parameters
                gradients = torch.autograd.grad(part, leaves, materialize_grads=True)
                at, slope = at + part.detach().to(at), slope + flat(gradients)
        except torch.linalg.LinAlgError as error:  # a scale too small or too large
            raise NotFinite(str(error)) from error
        if not (at.isfinite() and slope.isfinite().all()):
            raise NotFinite(f"the loss is {float(at)}, or its gradient is not finite")
        if at < best.loss:
            best = Lowest(float(at), vector)
        # the gradient in the scaled parameters is `unit` times that in the parameters
        return float(at), (slope * unit).numpy()

    free = torch.zeros_like(best.point), torch.full_like(best.point, -inf)
    shown: list[float] = []

    def count(loss: float) -> bool:
        shown.append(loss)
        return on_step(loss)

    for restart in range(_RESTARTS + 1):
        unit = 0.1**restart  # the length of the first step of L-BFGS
        n_remaining = max(1, max_iter - len(shown))
        options = {"tol": tol * unit, "max_iter": n_remaining, "on_step": count}
        try:
            minimum = _minimise(evaluate, best.point / unit, *free, **options)
            break
        except NotFinite:  # the step was too long
            # the modules are left at the best point if this raises an error
            move(best.point)
            if restart == _RESTARTS or best.loss == inf:
                raise
    point, gap = minimum.point * unit, minimum.gap / unit
    move(point)
    return Certified(point, minimum.objective, gap, len(shown))


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Join tensors into a vector of float64 on the CPU."""
    return torch.cat([tensor.flatten().double().cpu() for tensor in tensors])


def _violation(
    evaluate: Evaluate, point: Tensor, weight: Tensor, lower: Tensor
) -> float:
    """Bound the distance of minus the gradient from the subdifferential."""
    gradient = torch.from_numpy(evaluate(point.numpy())[1])
    at_zero = (gradient.abs() - weight).clamp(min=0)
    elsewhere = (gradient + weight * point.sign()).abs()
    violation = torch.where((point == 0) & (weight > 0), at_zero, elsewhere)
    at_bound = point <= lower
    return float(violation.where(~at_bound, (-gradient).clamp(min=0)).max())
