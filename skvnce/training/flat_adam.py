"""Adam on one vector, of which all parameters are views (Kingma and Ba 2015).

A step makes a few operations on long vectors instead of several on each parameter,
which are many and small here.  `torch.optim` would import torch's compiler, which takes
a second or more.

References
----------
Kingma and Ba (2015), Adam: a method for stochastic optimization; Loshchilov and Hutter
(2019), Decoupled weight decay regularization; Reddi, Kale and Kumar (2018), On the
convergence of Adam and beyond (AMSGrad).
"""

from collections.abc import Callable, Iterable, Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
_STATE = "exp_avg", "exp_avg_sq"


class Flat:
    """Parameters that are views of one vector, and their gradients likewise.

    Parameters
    ----------
    leaves : list of Tensor
        Of one type and one device.

    Attributes
    ----------
    values, gradients : Tensor of shape (n_parameters,)
    """

    def __init__(self, leaves: list[Tensor]) -> None:
        self._leaves = leaves
        self._sizes = [leaf.numel() for leaf in leaves]
        self.values = torch.cat([leaf.detach().reshape(-1) for leaf in leaves])
        self.gradients = torch.zeros_like(self.values)
        self._views, self._slopes = map(self.parts, (self.values, self.gradients))
        for leaf, view in zip(leaves, self._views, strict=True):
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
        """Let gradients be views again, where something has replaced them.

        Raises
        ------
        RuntimeError
            If a parameter is no view any more: it would not be trained.
        """
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
    """Adam with decoupled weight decay.

    A parameter without a gradient in a step has the gradient 0.

    Parameters
    ----------
    groups : iterable of Tensor, or of dict
        Parameters; or groups with ``"params"``, and ``"lr"``, ``"weight_decay"`` or
        ``"amsgrad"`` where they differ from the arguments below.
    lr : float
        Learning rate.
    weight_decay : float
        The parameters are multiplied by ``1 - lr * weight_decay`` in each step.
    amsgrad : bool
        Whether to divide by the largest second moment so far.

    Attributes
    ----------
    param_groups : list of dict
        Their ``"lr"`` may be changed between steps.
    gradients : list of Tensor
        All gradients, as few vectors.
    """

    def __init__(
        self,
        groups: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        groups = list(groups)
        if groups and isinstance(groups[0], Tensor):
            groups = [{"params": groups}]
        shared = {"lr": lr, "weight_decay": weight_decay, "amsgrad": amsgrad}
        self.param_groups = [
            {**shared, **group, "params": list(group["params"])} for group in groups
        ]
        self._pieces = [
            (group, flat, torch.zeros_like(flat.values), torch.zeros_like(flat.values))
            for group in self.param_groups
            for flat in _flats(group["params"])
        ]
        self._largest = {
            place: torch.zeros_like(square)
            for place, (group, *_, square) in enumerate(self._pieces)
            if group["amsgrad"]
        }
        self.n_steps = 0

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of all parameters."""
        for _, flat, *_ in self._pieces:
            flat.gather()
        return [flat.gradients for _, flat, *_ in self._pieces]

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        for _, flat, *_ in self._pieces:
            flat.gradients.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Make a step, in place."""
        self.n_steps += 1
        first, second = (1 - beta**self.n_steps for beta in _BETAS)
        pairs = zip(self._pieces, self.gradients, strict=True)
        for place, ((group, flat, mean, square), slope) in enumerate(pairs):
            mean.lerp_(slope, 1 - _BETAS[0])
            square.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
            if place in self._largest:
                square = torch.maximum(
                    self._largest[place], square, out=self._largest[place]
                )
            spread = square.sqrt().div_(sqrt(second)).add_(_EPSILON)
            if group["weight_decay"]:
                flat.values.mul_(1 - group["lr"] * group["weight_decay"])
            flat.values.addcdiv_(mean, spread, value=-group["lr"] / first)

    def state(self) -> list[dict[str, Tensor]]:
        """Return the moments of each parameter of the only group, and the step."""
        ((_, flat, *moments),) = self._pieces
        pairs = zip(*map(flat.parts, moments), strict=True)
        step = torch.tensor(float(self.n_steps))
        return [
            {"step": step, **dict(zip(_STATE, pair, strict=True))} for pair in pairs
        ]

    def restore(self, state: list[Mapping[str, Tensor]]) -> None:
        """Continue from a state."""
        ((_, flat, *moments),) = self._pieces
        for name, moment in zip(_STATE, moments, strict=True):
            for part, one in zip(flat.parts(moment), state, strict=True):
                part.copy_(one[name])
        self.n_steps = int(state[0]["step"])


class Schedule:
    """Learning rates that are multiples of their first values.

    Parameters
    ----------
    optimiser : FlatAdam
        Or any with ``param_groups``.
    factor : callable
        Maps the number of completed epochs to a factor of the learning rates.
    """

    def __init__(self, optimiser: FlatAdam, factor: Callable[[int], float]) -> None:
        self._groups = [(group, group["lr"]) for group in optimiser.param_groups]
        self._factor, self._epoch = factor, -1
        self.step()

    def step(self) -> None:
        """Set the rates of the next epoch."""
        self._epoch += 1
        for group, rate in self._groups:
            group["lr"] = rate * self._factor(self._epoch)


def _flats(leaves: list[Tensor]) -> list[Flat]:
    """Join the parameters that require gradients, by type and device."""
    kinds: dict[tuple, dict[int, Tensor]] = {}
    for leaf in leaves:
        if leaf.requires_grad:
            kinds.setdefault((leaf.dtype, leaf.device), {})[id(leaf)] = leaf
    return [Flat(list(one.values())) for one in kinds.values()]
