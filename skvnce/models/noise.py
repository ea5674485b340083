"""Noise distributions: easy to sample, with a density of any observed part of a row.

Gutmann and Hyvarinen (2012), section 2.4; Rhodes and Gutmann (2019), section 5; Ceylan
and Gutmann (2018) for `neighbours`.
"""

from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Distribution,
    Independent,
    MultivariateNormal,
)
from torch.distributions import Normal as UnivariateNormal

from skvnce.distributions.normal import (
    Normal,
    cholesky,
    log_prob_observed,
    prepare,
)
from skvnce.distributions.truncated_normal import TruncatedNormal, fit_moments
from skvnce.models.base import observed_log_prob

REAL, POSITIVE, BINARY = 0, 1, 2  # kinds of columns
_ROUNDING = 1e-15  # below this share of the location, cells are zeros in other units


class UnsuitableNoise(ValueError):
    """A distribution cannot be the noise of these rows."""


class NotANoise(UnsuitableNoise, TypeError):
    """An object cannot be sampled, or has no density."""


class NoPartialDensity(UnsuitableNoise):
    """A distribution has no density of a part of a row."""


class Noise(Protocol):
    """The interface of noise."""

    def sample(self, n: int) -> Tensor:
        """Draw complete rows (n, features) from torch's stream."""
        ...

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute log p_y(x_obs); (*batch, n, d), (n, d) -> (*batch, n)."""
        ...


class Marginals(NamedTuple):
    """A product of fitted marginals: normal, truncated normal or Bernoulli."""

    kind: Tensor  # int64 (features,): `REAL`, `POSITIVE` or `BINARY`
    # (features,): of the normal, before its truncation; the probability of 1, and
    # arbitrary
    location: Tensor
    spread: Tensor  # (features,)

    @classmethod
    def fit(cls, kind: Tensor, mean: Tensor, variance: Tensor, n: Tensor) -> Self:
        """Match means and variances; columns with n (features,) observed cells."""
        # any positive mean, because the result is not used for other kinds
        positive = fit_moments(mean.where(kind == POSITIVE, 1.0), variance)
        location = positive.loc.where(kind == POSITIVE, mean)
        share = (mean * n + 0.5) / (n + 1)  # never 0 or 1
        return cls(
            kind,
            share.where(kind == BINARY, location),
            positive.scale.where(kind == POSITIVE, variance.sqrt()),
        )

    def _distributions(self) -> list[tuple[int, Distribution]]:
        # any probability, because the result is not used for other kinds
        share = self.location.where(self.kind == BINARY, 0.5)
        normal = self.location, self.spread
        return [
            (REAL, UnivariateNormal(*normal, validate_args=False)),
            (POSITIVE, TruncatedNormal(*normal, validate_args=False)),
            (BINARY, Bernoulli(share, validate_args=False)),
        ]

    def sample(self, n: int) -> Tensor:
        """Draw rows (n, features)."""
        drawn = self.location.new_zeros(n, len(self.kind))
        for kind, marginals in self._distributions():
            if (self.kind == kind).any():
                drawn = marginals.sample((n,)).where(self.kind == kind, drawn)
        return drawn

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Sum log p(x_j) over the observed cells."""
        return sum(
            observed_log_prob(marginals, x, observed & (self.kind == kind))
            for kind, marginals in self._distributions()
            if (self.kind == kind).any()
        )


class GaussianNoise(NamedTuple):
    """A normal distribution of whole rows."""

    normal: Normal

    def sample(self, n: int) -> Tensor:
        """Draw rows (n, features)."""
        mean, covariance = self.normal
        eps = torch.randn(n, len(mean), dtype=mean.dtype)
        return mean + eps @ cholesky(covariance).T

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute the normal density of the observed cells."""
        return log_prob_observed(prepare(self.normal), x, observed)


class GivenNoise(NamedTuple):
    """A distribution of rows that the user passed."""

    joint: Distribution  # with ``sample(shape)`` and ``log_prob(x)``
    # if the columns are independent: that of each, batch shape (features,)
    columns: Distribution | None
    # (features,): a draw, which is in the support; some distributions have no density
    # at 1
    inside: Tensor

    def sample(self, n: int) -> Tensor:
        """Draw rows (n, features)."""
        return self.joint.sample((n,)).double()

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute the density of the observed cells.

        Raises NoPartialDensity if cells are missing and the columns are not
        independent.
        """
        if self.columns is not None:
            filled = x.where(observed, self.inside.to(x))
            return self.columns.log_prob(filled).where(observed, 0.0).sum(-1)
        if observed.all():
            return self.joint.log_prob(x.to(self.inside)).to(x)
        raise NoPartialDensity(
            f"{type(self.joint).__name__} has no density of a part of a row, and cells "
            "are missing."
        )


class Rescaled(NamedTuple):
    """Noise of rows in other units: (y - location) / scale for y of some noise."""

    noise: Noise
    location: Tensor
    scale: Tensor

    def sample(self, n: int) -> Tensor:
        """Draw rows (n, features)."""
        return (self.noise.sample(n) - self.location) / self.scale

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute the density of the observed cells."""
        units = observed.to(x) @ self.scale.log()
        rows = x * self.scale + self.location
        # zeros that rounding makes negative have no density in positive columns
        is_zero = rows.abs() <= _ROUNDING * self.location.abs()
        return self.noise.log_prob(rows.where(~is_zero, 0.0), observed) + units


def given(noise: Distribution, n_features: int) -> Noise:
    """Wrap a distribution that the user passed.

    Raises UnsuitableNoise for a distribution of rows of another width.
    """
    if isinstance(noise, MultivariateNormal):
        normal = Normal(noise.loc.double(), noise.covariance_matrix.double())
        found, width = GaussianNoise(normal), noise.loc.shape
    else:
        inside = noise
        while isinstance(inside, Independent):
            inside = inside.base_dist
        event = inside.event_shape
        columns = None if len(event) else inside
        drawn = noise.sample()
        width = drawn.shape
        found = GivenNoise(noise, columns, drawn)
    if width != (n_features,):
        raise UnsuitableNoise(
            f"noise draws arrays of shape {tuple(width)}; rows of the model have "
            f"shape ({n_features},)."
        )
    return found


def neighbours(x: Tensor, kind: Tensor, spread: Tensor, n: int) -> Tensor:
    """Draw n rows around each row by a symmetric kernel; (n, n_rows, features).

    Normal steps of standard deviation `spread`, folded at zero if a column is positive;
    for columns of zeros and ones, flips of probability `spread`.
    """
    steps = torch.randn(n, *x.shape, dtype=x.dtype) * spread
    flipped = (x - (torch.rand(n, *x.shape, dtype=x.dtype) < spread).to(x)).abs()
    moved = x + steps
    moved = moved.abs().where(kind == POSITIVE, moved)
    return flipped.where(kind == BINARY, moved)
