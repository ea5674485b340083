"""Rows of noise for rows of data: from a distribution, or around each row."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce._units import Units
from skvnce.algorithms.vnce.columns import ColumnSummary
from skvnce.distributions.normal import Normal
from skvnce.models.noise import (
    BINARY,
    GaussianNoise,
    Marginals,
    Noise,
    NotANoise,
    Rescaled,
    UnsuitableNoise,
    given,
    neighbours,
)
from skvnce.objectives.vnce import Contrast, Rows

# over the root of d, so that the distance from a row does not grow with d
_STEP = 1.0  # of the conditional-NCE kernel, in standard deviations over the root of d


class FittedNoise(NamedTuple):
    """Noise of a fit."""

    distribution: Noise | None  # None if rows of noise are drawn around rows of data
    parameters: dict[str, np.ndarray]  # in the units of the user


def fit_noise(
    kind: str | Distribution | nn.Module,
    marginals: Marginals,  # in the units of the user
    units: Units,
    normal: Callable[[], Normal],
) -> FittedNoise:
    """Choose the noise.

    `kind`: "marginal", "gaussian", "conditional", Distribution or nn.Module, which
    returns a distribution when it is called. `normal`: returns the normal distribution
    of rows in the scale of the model. Raises UnsuitableNoise.
    """
    if not isinstance(kind, str):
        joint = kind() if isinstance(kind, nn.Module) else kind
        check_density(joint)
        found = given(joint, len(units.scale))
        return FittedNoise(Rescaled(found, *units.tensors()), {})
    if kind == "gaussian":
        mean, covariance = units.moments(normal())
        parameters = {"mean": mean, "covariance": covariance}
        return FittedNoise(GaussianNoise(normal()), parameters)
    if kind == "conditional":
        return FittedNoise(None, {})
    arrays = {name: part.numpy() for name, part in marginals._asdict().items()}
    return FittedNoise(Rescaled(marginals, *units.tensors()), arrays)


def check_density(noise: object) -> None:
    """Check that noise can be drawn and has a density; raises NotANoise."""
    for method in ("sample", "log_prob"):
        if not callable(getattr(noise, method, None)):
            raise NotANoise(f"{type(noise).__name__} has no method {method}.")


def draw_contrast(
    noise: Noise | None, data: Incomplete, summary: ColumnSummary, noise_ratio: int
) -> Contrast:
    """Draw rows of noise, around the rows of data if there is no distribution."""
    if noise is None:
        return contrast_around(data, summary, noise_ratio)
    return contrast_with(noise, data, noise_ratio)


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
    """Compute log p_y of rows; raises UnsuitableNoise for rows outside its support."""
    try:
        found = noise.log_prob(*data)
    except ValueError as error:
        # torch's check of arguments names the support
        if "support" not in str(error):
            raise
        raise UnsuitableNoise(
            "noise has no density at some rows of the data: they lie outside the "
            "support of the distribution."
        ) from error
    if not found.isfinite().all():
        row = int((~found.isfinite()).nonzero()[0, 0])
        raise UnsuitableNoise(
            f"noise gives row {row} of the training data (rows that are entirely "
            f"missing not counted) the log-density {float(found[row])}."
        )
    return found


def contrast_around(
    data: Incomplete, summary: ColumnSummary, noise_ratio: int
) -> Contrast:
    """Draw rows of noise around each row, without a density."""
    n, d = data.x.shape
    step = _STEP * summary.scale / d**0.5
    # two cells of a binary row flip on average; above 1/2 the kernel would invert rows
    scale = step.where(summary.kind != BINARY, min(0.5, 2 / d))
    y = neighbours(data.x, summary.kind, scale, noise_ratio)
    return Contrast(
        Rows(data.x, data.observed, data.x.new_zeros(n)),
        Rows(y, data.observed, data.x.new_zeros(noise_ratio, n)),
    )
