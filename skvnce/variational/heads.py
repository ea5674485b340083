"""Families of univariate conditionals: outputs of a network to a distribution.

Every family has a location and a log-scale, to which the linear part of the
conditionals contributes, and further parameters that are initially zero.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Distribution,
    Normal,
    TransformedDistribution,
)

from skvnce.distributions.bounded_normal import BoundedNormal
from skvnce.distributions.portable import PortableNormal
from skvnce.distributions.splines import MonotonicRQSTransform
from skvnce.distributions.univariate_mixture import UnivariateMixture

# exp(12) is 2e5: squares and inverses of scales are far from overflow in float32
_STEEPEST = 12.0  # bound of log-scales


class Head(Protocol):
    """A family."""

    n_parameters: int  # including location and log-scale

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor, columns: Tensor
    ) -> Distribution:
        """Return the distributions, which have quantiles and `rsample`.

        `loc`, `log_scale` (*batch,), `rest` (*batch, n_parameters - 2).  `columns` (int
        (*batch,)): the column of each distribution.
        """
        ...


def _scale(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(-_STEEPEST, _STEEPEST).exp()


class NormalHead:
    """Normal conditionals."""

    n_parameters = 2

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor, columns: Tensor
    ) -> Normal:
        """Return the normals."""
        return PortableNormal(loc, _scale(log_scale), validate_args=False)


class MixtureHead:
    """Mixtures of normals, whose components initially have different locations."""

    def __init__(self, n_components: int = 3) -> None:
        self.n_components = n_components
        self.n_parameters = 2 + 3 * n_components

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor, columns: Tensor
    ) -> UnivariateMixture:
        """Return the mixtures."""
        scale = _scale(log_scale).unsqueeze(-1)
        logits, apart, widths = rest.chunk(3, -1)
        side = torch.linspace(-1, 1, self.n_components).to(loc)
        return UnivariateMixture(
            logits,
            loc.unsqueeze(-1) + scale * (side + apart),
            scale * widths.clamp(-_STEEPEST, _STEEPEST).exp(),
        )


class BoundedHead:
    """Normals truncated to the bounds of their column.

    `low`, `high` (features,): may be infinite.
    """

    n_parameters = 2

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor, columns: Tensor
    ) -> BoundedNormal:
        """Return the truncated normals."""
        low, high = (bound.to(loc)[columns] for bound in (self.low, self.high))
        return BoundedNormal(loc, _scale(log_scale), low, high, validate_args=False)


class SplineHead:
    """A standard normal, transformed by rational-quadratic splines and scalings.

    Each of `n_steps` is an affine map after a spline on [-bound, bound]
    (Simkus et al., section 6.3); the last affine map is location and scale.
    """

    # the defaults are those of the authors
    def __init__(self, n_bins: int = 4, n_steps: int = 3, bound: float = 3.0) -> None:
        self.n_bins, self.n_steps, self.bound = n_bins, n_steps, bound
        self.n_parameters = 2 + n_steps * (3 * n_bins - 1) + 2 * (n_steps - 1)

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor, columns: Tensor
    ) -> TransformedDistribution:
        """Return the transformed normals."""
        k, n = self.n_bins, self.n_steps
        splines, inner = rest.split([n * (3 * k - 1), 2 * (n - 1)], -1)
        shifts = [*inner.chunk(2, -1)[0].unbind(-1), loc]
        scales = [*inner.chunk(2, -1)[1].unbind(-1), log_scale]
        steps = []
        for spline, shift, log_step in zip(
            splines.chunk(n, -1), shifts, scales, strict=True
        ):
            parts = spline.split([k, k, k - 1], -1)
            steps.append(MonotonicRQSTransform(*parts, bound=self.bound))
            steps.append(AffineTransform(shift, _scale(log_step)))
        unit = torch.zeros_like(loc), torch.ones_like(loc)
        base = PortableNormal(*unit, validate_args=False)
        return TransformedDistribution(base, steps, validate_args=False)
