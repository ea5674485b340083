"""The only loop over epochs: Adam on mini-batches (Kingma and Ba 2015)."""

from collections.abc import Callable, Iterable
from math import cos, hypot, inf, isfinite, pi
from typing import Protocol

import torch
from torch import Tensor, nn

from skvnce._progress import tell
from skvnce.training.flat_adam import FlatAdam, Schedule


class Diverged(ArithmeticError):
    """A fit cannot go on; estimators turn it into an error that names a remedy."""


class NotFinite(Diverged):
    """The loss, or a gradient, is NaN or infinite."""


class WrittenOut(Protocol):
    """A loss that also has its gradients without autograd."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the mean loss of rows, with a graph."""
        ...

    def differentiate(self, rows: Tensor) -> Tensor:
        """Return the mean loss of rows, and set the gradients of all parameters."""
        ...


Loss = Callable[[Tensor], Tensor] | WrittenOut


class Optimiser(Protocol):
    """What makes steps: `FlatAdam`, or an optimiser of torch."""

    def zero_grad(self) -> None:
        """Forget the gradients."""
        ...

    def step(self) -> None:
        """Make a step along the gradients, in place."""
        ...


def train(
    # mean loss of the rows with the given indices, a tensor
    loss: Callable[[Tensor], Tensor],
    parameters: Iterable[tuple[str, Tensor]],  # (name, Tensor)
    n: int,
    *,
    batch_size: int,
    learning_rate: float,  # initial learning rate
    max_iter: int,  # number of epochs
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool],
) -> list[float]:  # mean losses of the epochs
    """Minimise a mean over n rows in mini-batches, in place.

    The learning rate decreases to zero along half a cosine: the last epochs average out
    the noise of the batches.

    Raises NotFinite: the message names the parameters whose gradient is not finite.
    """
    named = list(parameters)
    optimiser = FlatAdam([leaf for _, leaf in named], lr=learning_rate)
    schedule = Schedule(optimiser, lambda n: (1 + cos(pi * n / max_iter)) / 2)
    return descend(
        loss,
        named,
        lambda: torch.randperm(n).split(batch_size),
        optimiser=optimiser,
        schedule=schedule,
        max_iter=max_iter,
        on_epoch=on_epoch,
    )


def descend(
    loss: Loss,  # mean loss of the rows with the given indices, a tensor
    named: list[tuple[str, Tensor]],  # (name, Tensor): parameters of the optimiser
    # returns the batches of indices of an epoch
    batches: Callable[[], Iterable[Tensor]],
    *,
    optimiser: Optimiser,
    max_iter: int,  # number of epochs
    # a `Schedule` or a scheduler of torch, whose step is called after each epoch
    schedule: Schedule | None = None,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    on_step: Callable[[], None] = lambda: None,  # called after each step
    max_norm: float = inf,  # gradients are clipped to this norm
) -> list[float]:  # mean losses of the epochs
    """Make the steps of an optimiser, in place; `train` is a simple special case.

    Raises NotFinite: the message names the parameters whose gradient is not finite.
    """
    losses = []
    for epoch in range(1, max_iter + 1):
        values, sizes = [], []
        for n_batch, rows in enumerate(batches(), 1):
            tell("batch", n_batch)
            value, has_gradient = _differentiated(loss, rows, optimiser)
            if has_gradient:
                gradients = _gradients(optimiser, named)
                norm = _checked_norm(value, gradients, named)
                if norm > max_norm:
                    torch._foreach_mul_(gradients, max_norm / norm)
                optimiser.step()
            else:
                _checked_norm(value, [], named)
            on_step()
            values.append(value)
            sizes.append(len(rows))
        if schedule is not None:
            schedule.step()
        losses.append(_weighted_mean(values, sizes))
        if on_epoch(epoch, losses[-1]):
            break
    return losses


def _differentiated(
    loss: Loss, rows: Tensor, optimiser: Optimiser
) -> tuple[Tensor, bool]:
    """Compute a loss and set the gradients; return it and whether there are any."""
    if hasattr(loss, "differentiate"):
        return loss.differentiate(rows), True
    optimiser.zero_grad()
    value = loss(rows)
    if value.requires_grad:  # some batches may not depend on any parameter
        value.backward()
    return value.detach(), value.requires_grad


def named_leaves(parts: dict[str, nn.Module]) -> list[tuple[str, Tensor]]:
    """List the parameters of several modules, named after these."""
    return [
        (f"{part}.{name}", leaf)
        for part, module in parts.items()
        for name, leaf in module.named_parameters()
    ]


def _gradients(optimiser: Optimiser, named: list[tuple[str, Tensor]]) -> list[Tensor]:
    """Get all gradients, as few vectors if the optimiser has them so."""
    if isinstance(optimiser, FlatAdam):
        return optimiser.gradients
    return [leaf.grad for _, leaf in named if leaf.grad is not None]


def _weighted_mean(values: list[Tensor], sizes: list[int]) -> float:
    pairs = zip(values, sizes, strict=True)
    return sum(float(value) * size for value, size in pairs) / sum(sizes)


def _checked_norm(
    value: Tensor, gradients: list[Tensor], named: list[tuple[str, Tensor]]
) -> float:
    """Compute the norm of all gradients; raise an error if anything is not finite."""
    norms = [torch.linalg.vector_norm(one) for one in gradients]
    # one transfer: reading each number alone would wait for the device each time
    value, *norms = torch.stack([part.double() for part in (value, *norms)]).tolist()
    if isfinite(value + sum(norms)):
        return hypot(*norms)
    bad = [
        name
        for name, leaf in named
        if leaf.grad is not None and not leaf.grad.isfinite().all()
    ]
    if bad or not isfinite(value):
        where = ", ".join(bad) or "none"
        raise NotFinite(f"the loss is {value}; gradients that are not finite: {where}")
    # gradients are finite, and only their norm overflows: clipping sets them to zero
    return inf
