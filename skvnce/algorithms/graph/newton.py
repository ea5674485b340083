"""Steps of Newton's method for normal log-likelihoods of precision matrices.

With W the inverse of K, the Hessian of ``tr(S K) - log det K`` maps a step D to W D W.
Steps of entries that are free solve

    (W D W + H D)_ij = -gradient_ij,   D_ij = 0 where an entry is not free           (1)

with H the Hessian of a penalty, by conjugate gradients that the diagonal of W D W
preconditions (Dahl, Vandenberghe and Roychowdhury 2008; for graphical lassos Oztoprak,
Nocedal, Rennie and Olsen 2012, Newton-like methods for sparse inverse covariance
estimation).
"""

from collections.abc import Callable

import torch
from torch import Tensor

_RESIDUAL = 0.1  # of conjugate gradients, relative to the gradient


def newton_step(
    inverse: Tensor,  # (latents, latents), W
    gradient: Tensor,  # (latents, latents), symmetric, zero where an entry is not free
    free: Tensor,  # (latents, latents), 1 where an entry is free, else 0
    n_steps: int,  # maximum number of conjugate gradients
    of_penalty: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Solve (1), more exactly as the gradient vanishes; `of_penalty` maps D to H D."""
    diagonal = inverse.diagonal()
    unit = (torch.outer(diagonal, diagonal) + inverse.square()).reciprocal_()
    move, rest = torch.zeros_like(gradient), -gradient
    towards = scaled = rest * unit
    old = _dot(rest, scaled)
    least = old * min(_RESIDUAL, float(old.sqrt())) ** 2
    for _ in range(n_steps):
        if old <= least:
            break
        product = (inverse @ towards @ inverse).mul_(free)
        if of_penalty is not None:
            product += of_penalty(towards)
        step = old / _dot(towards, product)
        move.add_(step * towards)
        rest.sub_(step * product)
        scaled = rest * unit
        new = _dot(rest, scaled)
        towards = torch.addcmul(scaled, new / old, towards)
        old = new
    # exactly symmetric in spite of rounding
    return (move + move.T) / 2


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.vdot(a.flatten(), b.flatten())
