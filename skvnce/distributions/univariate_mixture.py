"""Univariate mixtures of normals with quantiles that are differentiable.

The quantile at u solves F(x) = u, by bisection; its gradient is the implicit one, see
`skvnce.distributions.implicit`.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints

from skvnce.distributions.implicit import with_gradient
from skvnce.distributions.portable import uniform_numbers

_HALVINGS = {torch.float32: 26, torch.float64: 52}  # to full precision
# the probability beyond is 2e-33, below all uniform numbers
_REACH = 12.0  # standard deviations beyond the outermost components


class UnivariateMixture(Distribution):
    """A mixture of normals of one variable.

    `logits`, `loc`, `scale` (*batch, components).
    """

    arg_constraints = {
        "logits": constraints.real_vector,
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, logits: Tensor, loc: Tensor, scale: Tensor) -> None:
        self.logits, self.loc, self.scale = logits, loc, scale
        super().__init__(loc.shape[:-1], validate_args=False)

    def _parts(self) -> Normal:
        return Normal(self.loc, self.scale, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log q(x); (*sample, *batch)."""
        inside = self._parts().log_prob(value.unsqueeze(-1))
        return torch.logsumexp(self.logits.log_softmax(-1) + inside, -1)

    def cdf(self, value: Tensor) -> Tensor:
        """Compute P(x <= value); (*sample, *batch)."""
        below = self._parts().cdf(value.unsqueeze(-1))
        return (self.logits.softmax(-1) * below).sum(-1)

    @property
    def mean(self) -> Tensor:
        """The mean; (*batch,)."""
        return (self.logits.softmax(-1) * self.loc).sum(-1)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles at probabilities in (0, 1); (*sample, *batch)."""
        with torch.no_grad():
            shape = torch.broadcast_shapes(value.shape, self.batch_shape)
            low = (self.loc - _REACH * self.scale).amin(-1).expand(shape)
            high = (self.loc + _REACH * self.scale).amax(-1).expand(shape)
            for _ in range(_HALVINGS[value.dtype]):
                middle = (low + high) / 2
                below = self.cdf(middle) < value
                low, high = middle.where(below, low), high.where(below, middle)
            found = (low + high) / 2
        return with_gradient(found, self)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch)."""
        least = torch.finfo(self.loc.dtype).eps
        shape = self._extended_shape(sample_shape)
        # the quantiles of 0 and 1 are infinite
        return self.icdf(uniform_numbers(shape, self.loc).clamp(least, 1 - least))
