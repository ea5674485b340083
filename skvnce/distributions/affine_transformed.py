"""Affine transformed distributions: z = loc + root v.

With v ~ N(0, I) it is a normal distribution of covariance root root'.  With another v
it corrects such a normal in the coordinates in which that is standard.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from skvnce.distributions.quantiles import draw

_NARROW = 12  # number of latents up to which sums of products are faster


class AffineTransformed(Distribution):
    """The distribution of loc + root v, of event shape (latents,).

    `loc` (*batch, latents).  `base` (event shape (latents,) and batch shape (*batch,)):
    of v: `Independent` of a `Normal`, or with ``at_uniform``.  `root` (*batch, latents,
    latents): upper triangular.
    """

    arg_constraints: dict = {}
    support = constraints.real_vector

    def __init__(self, base: Distribution, loc: Tensor, root: Tensor) -> None:
        self.base, self.loc, self.root = base, loc, root
        self._last: tuple[Tensor, Tensor] | None = None  # a draw z and its v
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    @property
    def has_rsample(self) -> bool:
        """Whether draws carry gradients."""
        return self.base.has_rsample

    @property
    def log_weights(self) -> Tensor:
        """The log-weights of the components; (*batch, components)."""
        return self.base.log_weights

    def components(self) -> "AffineTransformed":
        """Return the components, of batch shape (*batch, components)."""
        parts = self.base.components()
        return AffineTransformed(parts, self.loc.unsqueeze(-2), self.root.unsqueeze(-3))

    def expand(
        self, batch_shape: torch.Size, _instance: None = None
    ) -> "AffineTransformed":
        """Return the distribution, repeated to a larger batch shape."""
        width = self.event_shape[0]
        return AffineTransformed(
            self.base.expand(batch_shape),
            self.loc.expand(*batch_shape, width),
            self.root.expand(*batch_shape, width, width),
        )

    @property
    def mean(self) -> Tensor:
        """Means; (*batch, latents)."""
        return self.loc + self._turned(self.base.mean)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log q(z); (*sample, *batch, latents) -> (*sample, *batch)."""
        log_det = self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.base.log_prob(self.source(value)) - log_det

    def source(self, value: Tensor) -> Tensor:
        """Return the v of z, (*sample, *batch, latents).

        That of the last draw is known.  If loc and root have no gradient, all gradients
        of a draw pass through it.
        """
        if self._last is not None and value is self._last[0]:
            return self._last[1]
        apart, shared = value - self.loc, _shared(self.root)
        if shared is not None:
            columns = apart.reshape(-1, apart.shape[-1]).T
            v = torch.linalg.solve_triangular(shared, columns, upper=True)
            return v.T.reshape(apart.shape)
        n_sample = apart.dim() - self.loc.dim()  # its dimensions share one root
        sample = apart.shape[:n_sample]
        columns = apart.reshape(-1, *apart.shape[n_sample:]).movedim(0, -1)
        v = torch.linalg.solve_triangular(self.root, columns, upper=True)
        return v.movedim(-1, 0).reshape(*sample, *v.shape[:-1])

    def at_uniform(self, uniform: Tensor) -> Tensor:
        """Map uniform numbers (*sample, *batch, latents + 1) to draws."""
        v = draw(self.base, uniform)
        z = self.loc + self._turned(v)
        if not (self.loc.requires_grad or self.root.requires_grad):
            self._last = z, v
        return z

    def _turned(self, v: Tensor) -> Tensor:
        """Multiply by the root of each row, shared by the sample dimensions."""
        shared, batch = _shared(self.root), self.root.shape[:-1]
        if shared is not None:
            return v @ shared.T
        if batch[-1] <= _NARROW or not v.numel():
            return (self.root * v.unsqueeze(-2)).sum(-1)
        columns = v.reshape(-1, *batch).movedim(0, -2)
        return (columns @ self.root.mT).movedim(-2, 0).reshape(v.shape)


def _shared(root: Tensor) -> Tensor | None:
    """Return the matrix (k, k) that all rows share, if they were expanded from one."""
    batch = root.stride()[:-2]
    if not root.numel() or not batch or any(batch):
        return None
    return root[(0,) * len(batch)]
