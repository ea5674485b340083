"""Rows of noise for rows of data: from a distribution, or around each row."""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vnce.columns import ColumnSummary
from skvnce.models.noise import BINARY, Noise, UnsuitableNoise, neighbours
from skvnce.objectives.vnce import Contrast, Rows

_STEP = 1.0  # of the conditional-NCE kernel, in standard deviations over the root of d


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
    """Compute log p_y of rows of data.

    Raises
    ------
    UnsuitableNoise
        If rows lie outside its support.
    """
    try:
        found = noise.log_prob(*data)
    except ValueError as error:
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
    scale = step.where(summary.kind != BINARY, min(0.5, 2 / d))
    y = neighbours(data.x, summary.kind, scale, noise_ratio)
    return Contrast(
        Rows(data.x, data.observed, data.x.new_zeros(n)),
        Rows(y, data.observed, data.x.new_zeros(noise_ratio, n)),
    )
