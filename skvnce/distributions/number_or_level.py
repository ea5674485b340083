"""Cells that are numbers or levels, and means over them that are differentiable.

A mean over a level x is a sum over all of its K levels,

    E_q f(x) = sum_k q_k f(k)                                                      (1)

which is exact, and so is its gradient in q and f.  With many levels the n - 1 most
probable ones are summed, T, and one draw represents the others (sum and sample),

    E_q f(x) = sum_(k in T) q_k f(k) + r E f(l),   l ~ q_l / r,                    (2)

where r is the probability of the others.  In eq. (2) the weight of the draw is
``r q_l / s(q_l)``, with s the identity without a gradient: its value is r, and its
gradient makes that of eq. (2) in q unbiased.

Liu, Regier, Tripuraneni, Jordan and McAuliffe (2019), Rao-Blackwellized stochastic
gradients for discrete distributions.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution


class Candidates(NamedTuple):
    """Weighted values of cells, which represent means over a distribution."""

    values: Tensor  # (*batch, n_candidates): values of weight 0 are arbitrary
    weights: Tensor  # (*batch, n_candidates)
    entropy: Tensor  # (*batch,): of the distribution, or an unbiased estimate


def entropy(q: Distribution, drawn: Tensor) -> Tensor:
    """Compute the entropy, in closed form, or else by -log q at a draw of q."""
    try:
        return q.entropy()
    except NotImplementedError:
        return -q.log_prob(drawn)


def drawn_once(q: Distribution) -> Candidates:
    """Represent a distribution by one draw, which has a gradient."""
    drawn = q.rsample()
    one = torch.ones_like(drawn).unsqueeze(-1)
    return Candidates(drawn.unsqueeze(-1), one, entropy(q, drawn))


class NumberOrLevel(Distribution):
    """Cells of which each has a distribution of numbers, or probabilities of levels.

    `n_levels` (int (*batch,)).  `number` (batch shape (*batch,)): used where `n_levels`
    is 0.  `logits` (*batch, most_levels): of levels 0, 1, ...; those beyond `n_levels`
    are not used.
    """

    arg_constraints: dict = {}

    def __init__(self, number: Distribution, logits: Tensor, n_levels: Tensor) -> None:
        self.number, self.n_levels = number, n_levels
        places = torch.arange(logits.shape[-1])
        # numbers have one "level", because the softmax of none is NaN
        self._present = places < n_levels.clamp(min=1).unsqueeze(-1)
        logits = logits.where(self._present, -torch.inf)
        self.log_probabilities = logits.log_softmax(-1)
        super().__init__(n_levels.shape, validate_args=False)

    @property
    def is_level(self) -> Tensor:
        """Which cells are levels; (*batch,)."""
        return self.n_levels > 0

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities of numbers, log-probabilities of levels."""
        shape = torch.broadcast_shapes(value.shape, self.batch_shape)
        # numbers are looked up, too, where their result is not used
        code = value.round().long().clamp(min=0).minimum((self.n_levels - 1).clamp(0))
        table = self.log_probabilities.expand(*shape, -1)
        level = table.gather(-1, code.expand(shape).unsqueeze(-1)).squeeze(-1)
        return level.where(self.is_level, self.number.log_prob(value))

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles, levels as numbers; (*sample, *batch)."""
        below = self.log_probabilities.exp().cumsum(-1)
        level = (value.unsqueeze(-1) > below).sum(-1)
        level = level.minimum((self.n_levels - 1).clamp(0)).to(value)
        return level.where(self.is_level, self.number.icdf(value))

    def candidates(self, most: int) -> Candidates:
        """Represent means by one draw of a number, and by up to `most` levels, eq. (2).

        `most`: at least 2.
        """
        number = drawn_once(self.number)
        probabilities = self.log_probabilities.exp()
        codes, weights = _levels(probabilities, most)
        # 0 times -inf would be NaN
        inside = self.log_probabilities.where(self._present, 0.0)
        uncertainty = -(probabilities * inside).sum(-1)
        first = torch.eye(codes.shape[-1])[0].to(weights)
        level = self.is_level.unsqueeze(-1)
        return Candidates(
            codes.to(weights).where(level, number.values),
            weights.where(level, first),
            uncertainty.where(self.is_level, number.entropy),
        )


def _levels(probabilities: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Choose levels, and their weights in eq. (1) or (2).

    `probabilities` (*batch, n_levels).  Returns `codes`, `weights` (*batch, n_levels)
    or (*batch, most).
    """
    n_levels = probabilities.shape[-1]
    if n_levels <= most:
        return torch.arange(n_levels).expand(probabilities.shape), probabilities
    fixed = probabilities.detach()
    top = fixed.topk(most - 1).indices
    others = fixed.scatter(-1, top, 0.0)
    rest = others.sum(-1, keepdim=True)
    tiny = torch.finfo(fixed.dtype).tiny
    # torch rejects rows in which all weights are zero
    drawn = torch.multinomial((others + tiny).flatten(0, -2), 1)
    drawn = drawn.view(*rest.shape)
    codes = torch.cat([top, drawn], -1)
    chosen = probabilities.gather(-1, codes)
    share = rest / fixed.gather(-1, drawn).clamp(min=tiny)
    factors = torch.ones_like(chosen.detach())
    factors[..., -1:] = share.where(rest > 0, 0.0)
    return codes, chosen * factors
