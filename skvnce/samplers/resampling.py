"""Weights of importance sampling, and draws in proportion to them."""

import torch
from torch import Tensor


def counted(log_weight: Tensor) -> Tensor:
    """Set weights that are NaN to zero, for example if densities overflow."""
    return log_weight.where(~log_weight.isnan(), -torch.inf)


def normalised(log_weight: Tensor) -> Tensor:
    """Make weights that sum to 1 over the first dimension; equal if all are zero."""
    return counted(log_weight).softmax(0).nan_to_num(nan=1 / len(log_weight))


def effective_size(log_weight: Tensor) -> Tensor:
    """Compute the effective sample size, 1 / sum of squared weights, of dimension 0."""
    return normalised(log_weight).square().sum(0).reciprocal()


def resample(log_weight: Tensor, uniform: Tensor) -> Tensor:  # int (k, *batch)
    """Draw indices with replacement, in proportion to the weights (multinomial).

    `log_weight` (m, *batch), `uniform` (k, *batch).
    """
    cumulated = normalised(log_weight).movedim(0, -1).cumsum(-1)
    # rounding makes the sum of the weights differ slightly from 1
    total = cumulated[..., -1:]
    last = (cumulated < total).sum(-1)  # the last index of positive weight
    at = uniform.movedim(0, -1) * total
    # to the right of equal sums, so that an index of weight 0 is never drawn
    index = torch.searchsorted(cumulated, at.contiguous(), right=True)
    return index.movedim(-1, 0).minimum(last)


def take(values: Tensor, index: Tensor) -> Tensor:
    """Get values (m, *batch, columns) at indices (k, *batch) of dimension 0."""
    return values.gather(0, index[..., None].expand(*index.shape, values.shape[-1]))
