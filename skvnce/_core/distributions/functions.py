"""Random numbers that are drawn on the CPU and moved: the same on each device."""

from math import sqrt

import torch
from torch import Tensor, searchsorted
from torch.distributions import Bernoulli, Distribution, Independent, Normal


def uniform_numbers(shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """Draw uniform numbers of the type, and on the device, of a tensor."""
    return torch.rand(shape, dtype=like.dtype).to(like.device)


def normal_numbers(shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """Draw standard normal numbers of the type, and on the device, of a tensor."""
    return torch.randn(shape, dtype=like.dtype).to(like.device)


class PortableNormal(Normal):
    """Normal distributions whose draws are the same on each device."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch)."""
        shape = self._extended_shape(sample_shape)
        return self.loc + normal_numbers(shape, self.loc) * self.scale

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw without gradients (*sample, *batch)."""
        with torch.no_grad():
            return self.rsample(sample_shape)


# ----------------------------------------
# Draws as functions of uniform numbers: quantiles of distributions.


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


# ----------------------------------------
# Gamma variables.


def standard_gamma(shape: Tensor) -> Tensor:
    """Draw gamma variables of unit rate, with torch's global stream.

    `torch.distributions.Gamma` takes ten times as long for a few numbers.
    """
    return torch._standard_gamma(shape)


# ----------------------------------------
# Gradients of draws that are computed by numerical inversion.
#
# A draw x at the quantile u solves F(x) = u.  If the parameters of F change and u is
# fixed, ``dx = -dF / f(x)`` (Figurnov, Mohamed and Mnih 2018, eq. 5).


def with_gradient(drawn: Tensor, q: Distribution) -> Tensor:
    """Add the gradient of the quantile to draws without a gradient, first order only.

    `drawn` (*sample, *batch).  `q` (batch shape (*batch,)): univariate, with `cdf` and
    `log_prob`.
    """
    if not torch.is_grad_enabled():
        return drawn
    least = torch.finfo(drawn.dtype).tiny ** 0.5  # below the density of any draw
    step = -q.cdf(drawn) / q.log_prob(drawn).detach().exp().clamp(min=least)
    # zero, with the gradient of the step
    return drawn + (step - step.detach())


# ----------------------------------------
# Look-ups in tables with a row for each column of cells.
#
# Cells have any shape (*batch, features), tables the shape (features, n).


def place(edges: Tensor, x: Tensor) -> Tensor:
    """Count the edges of its column below each cell; (*batch, features)."""
    columns = x.movedim(-1, 0)
    # torch warns of searches in and for tensors that are not contiguous
    flat = columns.reshape(len(edges), -1).contiguous()
    counts = searchsorted(edges.contiguous(), flat)
    return counts.view(columns.shape).movedim(0, -1)


def pick(table: Tensor, places: Tensor) -> Tensor:
    """Look up indices (*batch, features) in the rows of their columns."""
    columns = places.movedim(-1, 0)
    picked = table.gather(1, columns.reshape(len(table), -1))
    return picked.view(columns.shape).movedim(0, -1)


def nearest(values: Tensor, x: Tensor) -> Tensor:
    """Round cells to the nearest of the increasing values of their column."""
    return pick(values, place((values[:, 1:] + values[:, :-1]) / 2, x))
