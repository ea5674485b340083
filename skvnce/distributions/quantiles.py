"""Draws as functions of uniform numbers: quantiles of distributions."""

from math import sqrt

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent


def midpoint_levels(n: int, like: Tensor) -> Tensor:
    """Return levels whose quantiles represent a distribution, (k + 1/2) / n; (n,)."""
    return (torch.arange(n).to(like) + 0.5) / n


def quantile_loss(error: Tensor, level: Tensor) -> Tensor:
    """Compute the loss of a quantile, where `error` is a cell minus the quantile.

    The CRPS is twice its average over levels (Gneiting and Raftery 2007, section 4.2).
    """
    return torch.maximum(level * error, (level - 1) * error)


def weighted_quantiles(values: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """Find quantiles of weighted points, linear between the middles of their weights.

    Parameters
    ----------
    values : Tensor of shape (n_points, *batch)
        At least two points.
    weights : Tensor that broadcasts to (n_points, *batch)
    levels : Tensor of shape (n_levels,)

    Returns
    -------
    Tensor of shape (n_levels, *batch)

    Examples
    --------
    >>> points, equal = torch.tensor([3.0, 0.0, 1.0, 4.0]), torch.ones(4)
    >>> weighted_quantiles(points, equal, torch.tensor([0.0, 0.5]))
    tensor([0., 2.])
    """
    values, order = values.sort(dim=0)
    weights = weights.expand_as(values).gather(0, order)
    middles = (weights.cumsum(0) - weights / 2) / weights.sum(0)
    middles, values = (part.movedim(0, -1).contiguous() for part in (middles, values))
    levels = levels.to(values).expand(*values.shape[:-1], -1).contiguous()
    right = torch.searchsorted(middles, levels).clamp(1, values.shape[-1] - 1)
    low, high = (middles.gather(-1, place) for place in (right - 1, right))
    # points without weight have the same middle
    width = (high - low).clamp(min=torch.finfo(values.dtype).tiny)
    share = ((levels - low) / width).clamp(0, 1)
    before, after = (values.gather(-1, place) for place in (right - 1, right))
    return (before + share * (after - before)).movedim(-1, 0)


def normal_cdf(x: Tensor) -> Tensor:
    """Compute Phi(x), accurately in the lower tail, where `torch.special.ndtr` is not.

    >>> f"{normal_cdf(torch.tensor(-9.0, dtype=torch.float64)):.5g}"
    '1.1286e-19'
    """
    return torch.erfc(-x / sqrt(2)) / 2


def inside(uniform: Tensor) -> Tensor:
    """Keep uniform numbers away from 0 and 1, whose quantiles are infinite."""
    least = torch.finfo(uniform.dtype).eps / 2  # the largest below 1 is 1 - least
    return uniform.clamp(least, 1 - least)


def at_quantiles(q: Distribution, uniform: Tensor) -> Tensor:
    """Map uniform numbers to draws of q.

    Raises TypeError for a distribution that is neither Bernoulli nor has quantiles in
    closed form.
    """
    if isinstance(q, Bernoulli):
        return (uniform < q.probs).to(uniform)
    try:
        return q.icdf(inside(uniform))
    except NotImplementedError as error:
        raise TypeError(
            f"A posterior or a likelihood returns {type(q).__name__}, which has no "
            "quantiles (icdf). Use Normal, Laplace, LogNormal, Uniform, Exponential, "
            "ContinuousBernoulli or Bernoulli."
        ) from error


def draw(q: Distribution, uniform: Tensor) -> Tensor:  # (*sample, *batch, latents)
    """Map uniform numbers to draws of latents.

    `q` (event shape (latents,)): independent given the row, or with a method
    ``at_uniform(uniform)``.  `uniform` (*sample, *batch, latents + 1): the last number
    selects a component if q is a mixture.
    """
    if isinstance(q, Independent) and not hasattr(q, "at_uniform"):
        return at_quantiles(q.base_dist, uniform[..., :-1])
    return q.at_uniform(uniform)
