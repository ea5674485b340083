"""The only loop over epochs: Adam on mini-batches (Kingma and Ba 2015)."""

from collections.abc import Callable, Iterable, Mapping
from math import cos, hypot, inf, isfinite, pi, sqrt
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from skvnce._core.progress import tell

# ----------------------------------------
# Adam on one vector, of which all parameters are views (Kingma and Ba 2015).
#
# A step makes a few operations on long vectors instead of several on each parameter,
# which are many and small here.  `torch.optim` would import torch's compiler, which
# takes a second or more.
#
# Kingma and Ba (2015), Adam: a method for stochastic optimization; Loshchilov and
# Hutter (2019), Decoupled weight decay regularization; Reddi, Kale and Kumar (2018),
# On the convergence of Adam and beyond (AMSGrad).


# the defaults of the paper and of torch
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class Flat:
    """Parameters that are views of one vector, and their gradients likewise."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self._leaves = leaves
        self._sizes = [leaf.numel() for leaf in leaves]
        self.values = torch.cat([leaf.detach().reshape(-1) for leaf in leaves])
        self.gradients = torch.zeros_like(self.values)
        self._views, self._slopes = map(self.parts, (self.values, self.gradients))
        for leaf, view in zip(leaves, self._views, strict=True):
            # through .data, so that modules keep the same Parameter objects
            leaf.data = view
        self.gather()

    def parts(self, vector: Tensor) -> list[Tensor]:
        """Split a vector into views of the shapes of the parameters."""
        pieces = vector.split(self._sizes)
        return [
            piece.view(leaf.shape)
            for piece, leaf in zip(pieces, self._leaves, strict=True)
        ]

    def gather(self) -> None:
        """Let gradients be views again; raise an error for other parameters."""
        for leaf, view, slope in zip(
            self._leaves, self._views, self._slopes, strict=True
        ):
            if leaf.data_ptr() != view.data_ptr():
                raise RuntimeError(
                    "A parameter was replaced after the optimiser was made. Make the "
                    "optimiser after conversions of the module and after others."
                )
            if leaf.grad is not slope:
                slope.zero_() if leaf.grad is None else slope.copy_(leaf.grad)
                leaf.grad = slope


class FlatAdam:
    """Adam with decoupled weight decay; parameters without gradient have gradient 0."""

    def __init__(
        self,
        # parameters; or groups with ``"params"``, and ``"lr"``, ``"weight_decay"`` or
        # ``"amsgrad"`` where they differ from the arguments below
        groups: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float = 1e-3,  # learning rate
        # the parameters are multiplied by ``1 - lr * weight_decay`` in each step
        weight_decay: float = 0.0,
        amsgrad: bool = False,  # whether to divide by the largest second moment so far
    ) -> None:
        groups = list(groups)
        if groups and isinstance(groups[0], Tensor):
            groups = [{"params": groups}]
        shared = {"lr": lr, "weight_decay": weight_decay, "amsgrad": amsgrad}
        self.param_groups = [
            {**shared, **group, "params": list(group["params"])} for group in groups
        ]
        self._pieces = [
            _Piece(groups, Flat(leaves)) for groups, leaves in self._kinds()
        ]
        self.n_steps = 0

    def _kinds(self) -> Iterable[tuple[list[tuple[dict, int]], list[Tensor]]]:
        """List the groups and parameters of each type and device; one of each leaf."""
        kinds: dict[tuple, tuple[list, list]] = {}
        visited: set[int] = set()
        for group in self.param_groups:
            sizes: dict[tuple, int] = {}
            for leaf in group["params"]:
                # modules may share a parameter, which can be a view of one vector only
                if leaf.requires_grad and id(leaf) not in visited:
                    visited.add(id(leaf))
                    kind = leaf.dtype, leaf.device, group["amsgrad"]
                    kinds.setdefault(kind, ([], []))[1].append(leaf)
                    sizes[kind] = sizes.get(kind, 0) + leaf.numel()
            for kind, size in sizes.items():
                kinds[kind][0].append((group, size))
        return kinds.values()

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of all parameters."""
        for piece in self._pieces:
            piece.flat.gather()
        return [piece.flat.gradients for piece in self._pieces]

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        for piece in self._pieces:
            # not None, so that gradients stay views
            piece.flat.gradients.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Make a step, in place."""
        self.n_steps += 1
        first, second = (1 - beta**self.n_steps for beta in _BETAS)
        for piece, slope in zip(self._pieces, self.gradients, strict=True):
            piece.mean.lerp_(slope, 1 - _BETAS[0])
            square = piece.square.mul_(_BETAS[1])
            square.addcmul_(slope, slope, value=1 - _BETAS[1])
            if piece.largest is not None:
                square = torch.maximum(piece.largest, square, out=piece.largest)
            # times the root of the bias correction, which the step contains as a factor
            spread = square.sqrt().add_(_EPSILON * sqrt(second))
            for group, part in piece.groups:
                values, rate = piece.flat.values[part], group["lr"]
                if group["weight_decay"]:
                    values.mul_(1 - rate * group["weight_decay"])
                values.addcdiv_(
                    piece.mean[part], spread[part], value=-rate * sqrt(second) / first
                )


class Schedule:
    """Learning rates that are multiples, by epochs, of their first values."""

    def __init__(self, optimiser: FlatAdam, factor: Callable[[int], float]) -> None:
        self._groups = [(group, group["lr"]) for group in optimiser.param_groups]
        self._factor, self._epoch = factor, -1
        self.step()

    def step(self) -> None:
        """Set the rates of the next epoch."""
        self._epoch += 1
        for group, rate in self._groups:
            group["lr"] = rate * self._factor(self._epoch)


class _Piece:
    """Parameters of one type and device, in groups of some numbers, and moments."""

    def __init__(self, groups: list[tuple[dict, int]], flat: Flat) -> None:
        self.flat, self.groups, end = flat, [], 0
        for group, size in groups:
            self.groups.append((group, slice(end, end + size)))
            end += size
        self.mean, self.square = (torch.zeros_like(flat.values) for _ in range(2))
        amsgrad = groups[0][0]["amsgrad"]
        self.largest = torch.zeros_like(self.square) if amsgrad else None


# ----------------------------------------
# The only loop over epochs: Adam on mini-batches (Kingma and Ba 2015).


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
    """Minimise a mean over n rows in mini-batches, in place; may raise NotFinite.

    The learning rate decreases to zero along half a cosine: the last epochs average out
    the noise of the batches.
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
    optimiser: FlatAdam,
    max_iter: int,  # number of epochs
    # its step is called after each epoch
    schedule: Schedule | None = None,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    on_step: Callable[[], None] = lambda: None,  # called after each step
    max_norm: float = inf,  # gradients are clipped to this norm
) -> list[float]:  # mean losses of the epochs
    """Make the steps of an optimiser, in place; NotFinite names parameters."""
    losses = []
    for epoch in range(1, max_iter + 1):
        values, sizes = [], []
        for n_batch, rows in enumerate(batches(), 1):
            tell("batch", n_batch)
            value, has_gradient = _differentiated(loss, rows, optimiser)
            if has_gradient:
                gradients = optimiser.gradients
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
        pairs = zip(values, sizes, strict=True)
        losses.append(sum(float(value) * size for value, size in pairs) / sum(sizes))
        if on_epoch(epoch, losses[-1]):
            break
    return losses


def _differentiated(
    loss: Loss, rows: Tensor, optimiser: FlatAdam
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


def _checked_norm(
    value: Tensor, gradients: list[Tensor], named: list[tuple[str, Tensor]]
) -> float:
    """Compute the norm of all gradients; raise an error if anything is not finite."""
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
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
