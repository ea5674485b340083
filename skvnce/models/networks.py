"""The default network of models and encoders."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

_OF_BLOCK = 6  # number of weights and biases of a block


class ResidualPerceptron(nn.Module):
    """A perceptron with a residual block of two layers at each hidden size.

    Its outputs are initially zero.

    `hidden`: sizes of the successive blocks.  `dropout`: dropout rate inside a block.
    Draws of a row share what is dropped: all leading dimensions but the last, the rows,
    have the same.

    He, Zhang, Ren and Sun (2016), Identity mappings in deep residual networks.
    """

    def __init__(
        self, n_inputs: int, hidden: tuple[int, ...], n_outputs: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = [n_inputs, *hidden]
        self.joints = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(sizes[:-1], hidden, strict=True)
        )
        self.blocks = nn.ModuleList(_block(size, dropout) for size in hidden)
        self.last = nn.Linear(sizes[-1], n_outputs)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (*batch, n_inputs) to (*batch, n_outputs); differentiable once."""
        found = _Residual.apply(x.reshape(-1, x.shape[-1]), self.kept(x), *self.leaves)
        return found.view(*x.shape[:-1], self.last.out_features)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Forget the parameters, which may be replaced."""
        vars(self).pop("leaves", None)
        return super()._apply(fn, recurse)

    @cached_property
    def leaves(self) -> list[Tensor]:
        """Weights and biases of the layers, in their order."""
        inner = [
            layer
            for joint, (_, first, _, _, second) in zip(
                self.joints, self.blocks, strict=True
            )
            for layer in (joint, first, second)
        ]
        every = (*inner, self.last)
        return [part for layer in every for part in (layer.weight, layer.bias)]

    def kept(self, x: Tensor) -> list[Tensor | None]:
        """Draw the factors of the units of each block, (n, width); None for ones."""
        n = x.shape[-2] if x.dim() > 1 else 1
        return [
            _dropped(n, block[1].out_features, block[3].p, x)
            if self.training and block[3].p and x.numel()
            else None
            for block in self.blocks
        ]

    def evaluate(self, x: Tensor) -> tuple[Tensor, tuple]:
        """Map (*batch, n_inputs) to outputs of all rows, (n, n_outputs), without graph.

        Also returns what `differentiate` needs.
        """
        kept = self.kept(x)
        found, saved = evaluate(self.leaves, kept, x.reshape(-1, x.shape[-1]))
        return found, (kept, saved)

    def differentiate(
        self, saved: tuple, slope: Tensor, needs_input: bool = False
    ) -> Tensor | None:  # (n, n_inputs): the gradient in the inputs, if it is needed
        """Set the gradients of the parameters, given that of the outputs.

        `slope` (n, n_outputs).  `saved`: of `evaluate`.
        """
        into = [leaf.grad for leaf in self.leaves]
        return differentiate(self.leaves, *saved, slope, into, needs_input)


def _block(size: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.SiLU(),
        nn.Linear(size, size),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(size, size),
    )


def _dropped(n: int, size: int, rate: float, like: Tensor) -> Tensor:
    """Draw factors of units, which are the same on each device."""
    kept = torch.rand(n, size, dtype=like.dtype).ge_(rate)
    return kept.div_(1 - rate).to(like.device)


class _Residual(torch.autograd.Function):
    """The network as one function: a graph of its operations takes twice as long."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        x: Tensor,
        kept: list[Tensor | None],
        *weights: Tensor,
    ) -> Tensor:
        found, saved = evaluate(weights, kept, x)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*weights, *saved)
            ctx.kept = kept
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, slope: Tensor
    ) -> tuple[Tensor | None, ...]:
        n_weights = _OF_BLOCK * len(ctx.kept) + 2
        weights, saved = ctx.saved_tensors[:n_weights], ctx.saved_tensors[n_weights:]
        found = [torch.empty_like(weight) for weight in weights]
        needed = ctx.needs_input_grad[0]
        slope = differentiate(weights, ctx.kept, saved, slope, found, needed)
        return slope, None, *found


def evaluate(
    weights: Sequence[Tensor], kept: list[Tensor | None], x: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Evaluate a network of some `leaves`.

    `x` (n, n_inputs).  Returns (n, n_outputs); `saved`, for `differentiate`.
    """
    saved = []
    for number, factor in enumerate(kept):
        w, b, w1, b1, w2, b2 = weights[_OF_BLOCK * number :][:_OF_BLOCK]
        joint = linear(x, w, b)
        first = silu(joint)
        inner = linear(first, w1, b1)
        second = silu(inner)
        if factor is not None:
            # in place, because the derivative of silu needs its input only
            second.view(-1, *factor.shape).mul_(factor)
        saved += [x, joint, first, inner, second]
        x = linear(second, w2, b2).add_(joint)
    last = silu(x)
    return linear(last, *weights[-2:]), [*saved, x, last]


def differentiate(
    weights: Sequence[Tensor],  # those of `evaluate`
    kept: list[Tensor | None],
    saved: Sequence[Tensor],
    slope: Tensor,  # (n, n_outputs)
    into: Sequence[Tensor],  # receives the slopes of the weights
    needs_input: bool,
) -> Tensor | None:  # (n, n_inputs): slopes of the inputs, if they are needed
    """Multiply slopes by the derivatives of the outputs of `evaluate`."""
    *saved, x, last = saved
    _differentiate_layer(slope, last, into[-2:])
    slope = _through(slope @ weights[-2], x)
    for number, factor in reversed(list(enumerate(kept))):
        block = slice(_OF_BLOCK * number, _OF_BLOCK * (number + 1))
        (w, _, w1, _, w2, _), here = weights[block], into[block]
        # `evaluate` saves five tensors of each block
        x, joint, first, inner, second = saved[5 * number :][:5]
        _differentiate_layer(slope, second, here[4:])
        through = slope @ w2
        if factor is not None:
            through.view(-1, *factor.shape).mul_(factor)
        through = _through(through, inner)
        _differentiate_layer(through, first, here[2:4])
        slope = slope.add_(_through(through @ w1, joint))
        _differentiate_layer(slope, x, here[:2])
        if number or needs_input:
            slope = slope @ w
    return slope if needs_input else None


def _differentiate_layer(slope: Tensor, x: Tensor, into: Sequence[Tensor]) -> None:
    """Compute the slopes of weight and bias of a linear layer with inputs x."""
    # written into the gradients, which may be views of one vector of the optimiser
    torch.mm(slope.T, x, out=into[0])
    torch.sum(slope, 0, out=into[1])


def _through(slope: Tensor, x: Tensor) -> Tensor:
    """Multiply by the derivative of silu at x."""
    return torch.ops.aten.silu_backward(slope, x)
