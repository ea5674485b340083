"""The only loop over epochs: Adam on mini-batches (Kingma and Ba 2015)."""

from collections.abc import Callable, Iterable
from math import inf

import torch
from torch import Tensor, nn

from skvnce._progress import tell


class Diverged(ArithmeticError):
    """A fit cannot go on; estimators turn it into an error that names a remedy."""


class NotFinite(Diverged):
    """The loss, or a gradient, is NaN or infinite."""


def train(
    loss: Callable[[Tensor], Tensor],
    parameters: Iterable[tuple[str, Tensor]],
    n: int,
    *,
    batch_size: int,
    learning_rate: float,
    max_iter: int,
    on_epoch: Callable[[int, float], bool],
) -> list[float]:
    """Minimise a mean over n rows in mini-batches, in place.

    The learning rate decreases to zero along half a cosine: the last epochs average out
    the noise of the batches.

    Parameters
    ----------
    loss : callable
        Mean loss of the rows with the given indices, a tensor.
    parameters : iterable of (name, Tensor)
    n : int
    batch_size : int
    learning_rate : float
        Initial learning rate.
    max_iter : int
        Number of epochs.
    on_epoch : callable
        Called with the epoch and its mean loss; stops by returning True.

    Returns
    -------
    list of float
        Mean losses of the epochs.

    Raises
    ------
    NotFinite
        The message names the parameters whose gradient is not finite.
    """
    named = list(parameters)
    optimiser = torch.optim.Adam([leaf for _, leaf in named], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max_iter)
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
    loss: Callable[[Tensor], Tensor],
    named: list[tuple[str, Tensor]],
    batches: Callable[[], Iterable[Tensor]],
    *,
    optimiser: torch.optim.Optimizer,
    max_iter: int,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    max_norm: float = inf,
) -> list[float]:
    """Make the steps of an optimiser, in place; `train` is a simple special case.

    Parameters
    ----------
    loss : callable
        Mean loss of the rows with the given indices, a tensor.
    named : list of (name, Tensor)
        Parameters of the optimiser.
    batches : callable
        Returns the batches of indices of an epoch.
    optimiser
        A torch optimiser.
    max_iter : int
        Number of epochs.
    schedule : optional
        A torch scheduler, whose step is called after each epoch.
    on_epoch : callable
        Called with the epoch and its mean loss; stops by returning True.
    max_norm : float
        Gradients are clipped to this norm.

    Returns
    -------
    list of float
        Mean losses of the epochs.

    Raises
    ------
    NotFinite
        The message names the parameters whose gradient is not finite.
    """
    losses, leaves = [], [leaf for _, leaf in named]
    for epoch in range(1, max_iter + 1):
        total, count = 0.0, 0
        for n_batch, rows in enumerate(batches(), 1):
            tell("batch", n_batch)
            optimiser.zero_grad()
            value = loss(rows)
            if value.requires_grad:  # some batches may not depend on any parameter
                value.backward()
            _check_finite(value, named)
            if max_norm < inf:
                torch.nn.utils.clip_grad_norm_(leaves, max_norm)
            optimiser.step()
            total += float(value.detach()) * len(rows)
            count += len(rows)
        if schedule is not None:
            schedule.step()
        losses.append(total / count)
        if on_epoch(epoch, losses[-1]):
            break
    return losses


def named_leaves(parts: dict[str, nn.Module]) -> list[tuple[str, Tensor]]:
    """List the parameters of several modules, named after these."""
    return [
        (f"{part}.{name}", leaf)
        for part, module in parts.items()
        for name, leaf in module.named_parameters()
    ]


def _check_finite(value: Tensor, named: list[tuple[str, Tensor]]) -> None:
    """Raise an error if the loss or a gradient is not finite."""
    bad = [
        name
        for name, leaf in named
        if leaf.grad is not None and not leaf.grad.isfinite().all()
    ]
    if bad or not value.isfinite():
        where = ", ".join(bad) or "none"
        raise NotFinite(
            f"the loss is {float(value.detach())}; gradients that are not finite: "
            f"{where}"
        )
