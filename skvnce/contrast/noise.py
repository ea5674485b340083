"""Noise distributions: easy to sample, with a density of any observed part of a row.

Gutmann and Hyvarinen (2012), section 2.4; Rhodes and Gutmann (2019), section 5.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, MultivariateNormal
from torch.distributions import Normal as UnivariateNormal

from skvnce._core.distributions.normal import (
    Normal,
    cholesky,
    log_prob_observed,
    prepare,
)
from skvnce._core.distributions.truncated_normal import TruncatedNormal, fit_moments
from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.models import observed_log_prob
from skvnce.contrast.objective import Contrast, Rows

REAL, POSITIVE, BINARY = 0, 1, 2  # kinds of columns
_ROUNDING = 1e-15  # below this share of the location, cells are zeros in other units


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


class DistributionNoise(NamedTuple):
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

        Raises ValueError if cells are missing and the columns are not
        independent.
        """
        if self.columns is not None:
            filled = x.where(observed, self.inside.to(x))
            return self.columns.log_prob(filled).where(observed, 0.0).sum(-1)
        if observed.all():
            return self.joint.log_prob(x.to(self.inside)).to(x)
        raise ValueError(
            f"noise={type(self.joint).__name__} has no density of a part of a row, and "
            "cells are missing. Pass a MultivariateNormal or independent columns, or "
            "use noise='marginal' or noise='gaussian'."
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


def wrap_distribution(noise: Distribution, n_features: int) -> Noise:
    """Wrap a distribution that the user passed.

    Raises ValueError for a distribution of rows of another width.
    """
    if isinstance(noise, MultivariateNormal):
        normal = Normal(noise.loc.double(), noise.covariance_matrix.double())
        wrapped, width = GaussianNoise(normal), noise.loc.shape
    else:
        inside = noise
        while isinstance(inside, Independent):
            inside = inside.base_dist
        # only torch distributions have an event shape
        event = getattr(inside, "event_shape", (n_features,))
        columns = None if len(event) else inside
        is_distribution = isinstance(noise, Distribution)
        drawn = noise.sample() if is_distribution else noise.sample((1,))[0]
        width = drawn.shape
        wrapped = DistributionNoise(noise, columns, drawn)
    if width != (n_features,):
        raise ValueError(
            f"noise draws arrays of shape {tuple(width)}; rows of the model have "
            f"shape ({n_features},)."
        )
    return wrapped


# ----------------------------------------
# Statistics of the columns of a table.


class ColumnSummary(NamedTuple):
    """Statistics of columns."""

    kind: Tensor  # (features,), int64, `REAL`, `POSITIVE` or `BINARY`
    mean: Tensor  # (features,)
    scale: Tensor  # (features,)
    # (features,), half of the smallest positive value, which replaces zero in
    # logarithms
    floor: Tensor

    @classmethod
    def of(cls, nodes: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> Self:
        """Compute the statistics of a table (n, features) with NaN."""
        binary = (np.isnan(nodes) | (nodes == 0) | (nodes == 1)).all(0)
        positive = np.nanmin(nodes, 0) >= 0
        kind = np.where(binary, BINARY, np.where(positive, POSITIVE, REAL))
        floor = np.nanmin(np.where(nodes > 0, nodes, np.inf), 0) / 2
        floor = np.where(np.isfinite(floor), floor, 1.0)
        return cls(*map(torch.from_numpy, (kind, mean, scale, floor)))

    @classmethod
    def standard(cls, width: int) -> Self:
        """Describe standardised columns, which have no bounds."""
        zeros, ones = torch.zeros(width).double(), torch.ones(width).double()
        return cls(torch.full((width,), REAL), zeros, ones, ones)

    def marginals(self, counts: Tensor) -> Marginals:
        """Fit the product of marginals, by the numbers (features,) of their cells."""
        return Marginals.fit(self.kind, self.mean, self.scale.square(), counts)


# ----------------------------------------
# Rows of noise for rows of data.


class FittedNoise(NamedTuple):
    """Noise of a fit."""

    distribution: Noise
    parameters: dict[str, np.ndarray]  # in the units of the user


def fit_noise(
    kind: str | Distribution | nn.Module,
    marginals: Marginals,  # in the units of the user
    units: Units,
    normal: Callable[[], Normal],
) -> FittedNoise:
    """Choose the noise.

    `kind`: "marginal", "gaussian", Distribution or nn.Module, which returns a
    distribution when it is called. `normal`: returns the normal distribution of rows in
    the scale of the model.
    """
    if not isinstance(kind, str):
        joint = _joint(kind)
        check_density(joint)
        wrapped = wrap_distribution(joint, len(units.scale))
        return FittedNoise(Rescaled(wrapped, *units.tensors()), {})
    if kind == "gaussian":
        mean, covariance = units.moments(normal())
        parameters = {"mean": mean, "covariance": covariance}
        return FittedNoise(GaussianNoise(normal()), parameters)
    arrays = {name: part.numpy() for name, part in marginals._asdict().items()}
    return FittedNoise(Rescaled(marginals, *units.tensors()), arrays)


def _joint(kind: Distribution | nn.Module) -> Distribution:
    """Call a module that returns a distribution."""
    if not isinstance(kind, nn.Module) or hasattr(kind, "log_prob"):
        return kind
    try:
        return kind()
    except TypeError as error:
        raise TypeError(
            "noise must return a distribution when it is called without arguments; "
            f"{type(kind).__name__}() fails: {error}"
        ) from error


def check_density(noise: object) -> None:
    """Check that noise can be drawn and has a density."""
    if isinstance(noise, type):
        raise TypeError(
            f"noise must be a distribution, got the class {noise.__name__}. Pass an "
            "object of it, with its parameters."
        )
    for method in ("sample", "log_prob"):
        if not callable(getattr(noise, method, None)):
            raise TypeError(
                f"noise must have a density: {type(noise).__name__} has no method "
                f"{method}. Pass one of 'auto', 'marginal', 'gaussian', a torch "
                "Distribution or a zuko flow."
            )


@torch.no_grad()
def contrast_with(noise: Noise, data: Incomplete, noise_ratio: int) -> Contrast:
    """Draw rows of noise for each row, with its missing cells."""
    n, d = data.x.shape
    y = noise.sample(noise_ratio * n).view(noise_ratio, n, d)
    pairs = (
        (data.x, log_noise_of_data(noise, data)),
        (y, noise.log_prob(y, data.observed)),
    )
    return Contrast(*(Rows(x, data.observed, log_noise) for x, log_noise in pairs))


def log_noise_of_data(noise: Noise, data: Incomplete) -> Tensor:
    """Compute log p_y of rows; raises ValueError for rows outside its support."""
    try:
        log_noise = noise.log_prob(*data)
    except ValueError as error:
        # torch's check of arguments names the support
        if "support" not in str(error):
            raise
        raise ValueError(
            "noise has no density at some rows of the data: they lie outside the "
            "support of the distribution. Use noise that covers the data."
        ) from error
    if not log_noise.isfinite().all():
        row = int((~log_noise.isfinite()).nonzero()[0, 0])
        raise ValueError(
            f"noise gives row {row} of the training data (rows that are entirely "
            f"missing not counted) the log-density {float(log_noise[row])}. Use noise "
            "that covers the data."
        )
    return log_noise
