"""The default network of models and encoders."""

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

_OF_BLOCK = 6  # number of weights and biases of a block


class ResidualPerceptron(nn.Module):
    """A perceptron with a residual block of two layers at each hidden size.

    Its outputs are initially zero.

    Parameters
    ----------
    n_inputs : int
    hidden : sequence of int
        Sizes of the successive blocks.
    n_outputs : int
    dropout : float
        Dropout rate inside a block.  Draws of a row share what is dropped: all leading
        dimensions but the last, the rows, have the same.

    References
    ----------
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
        kept = [self._kept(block, x) for block in self.blocks]
        linear = [
            layer
            for joint, (_, first, _, _, second) in zip(
                self.joints, self.blocks, strict=True
            )
            for layer in (joint, first, second)
        ]
        weights = [part for one in (*linear, self.last) for part in one.parameters()]
        found = _Residual.apply(x.reshape(-1, x.shape[-1]), kept, *weights)
        return found.view(*x.shape[:-1], self.last.out_features)

    def _kept(self, block: nn.Sequential, x: Tensor) -> Tensor | None:
        """Draw the factors of the units of a block, (n, width); None for ones."""
        rate, size = block[3].p, block[1].out_features
        if not self.training or not rate or not x.numel():
            return None
        n = x.shape[-2] if x.dim() > 1 else 1
        kept = torch.rand(n, size, dtype=x.dtype) >= rate  # the same on each device
        return kept.to(x).div_(1 - rate)


def _block(size: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.SiLU(),
        nn.Linear(size, size),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(size, size),
    )


class _Residual(torch.autograd.Function):
    """The network as one function: a graph of its operations takes twice as long."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        x: Tensor,
        kept: list[Tensor | None],
        *weights: Tensor,
    ) -> Tensor:
        saved = []
        for number, factor in enumerate(kept):
            w, b, w1, b1, w2, b2 = weights[_OF_BLOCK * number :][:_OF_BLOCK]
            joint = torch.addmm(b, x, w.T)
            first = silu(joint)
            inner = torch.addmm(b1, first, w1.T)
            second = silu(inner)
            if factor is not None:
                second.view(-1, *factor.shape).mul_(factor)
            saved += [x, joint, first, inner, second]
            x = torch.addmm(b2, second, w2.T).add_(joint)
        last = silu(x)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*weights, *saved, x, last)
            ctx.kept = kept
        return torch.addmm(weights[-1], last, weights[-2].T)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, slope: Tensor
    ) -> tuple[Tensor | None, ...]:
        n_blocks = len(ctx.kept)
        weights = ctx.saved_tensors[: _OF_BLOCK * n_blocks + 2]
        *saved, x, last = ctx.saved_tensors[len(weights) :]
        found = [slope.T @ last, slope.sum(0)]
        slope = _through(slope @ weights[-2], x)
        for number, factor in reversed(list(enumerate(ctx.kept))):
            w, _, w1, _, w2, _ = weights[_OF_BLOCK * number :][:_OF_BLOCK]
            x, joint, first, inner, second = saved[5 * number :][:5]
            into = slope @ w2
            if factor is not None:
                into.view(-1, *factor.shape).mul_(factor)
            into = _through(into, inner)
            of_second = slope.T @ second, slope.sum(0)
            slope = slope + _through(into @ w1, joint)
            of_first = into.T @ first, into.sum(0)
            found = [slope.T @ x, slope.sum(0), *of_first, *of_second, *found]
            if number or ctx.needs_input_grad[0]:
                slope = slope @ w
        return slope if ctx.needs_input_grad[0] else None, None, *found


def _through(slope: Tensor, x: Tensor) -> Tensor:
    """Multiply by the derivative of silu at x."""
    return torch.ops.aten.silu_backward(slope, x)
