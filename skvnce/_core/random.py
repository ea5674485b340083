"""Random numbers and quantiles: draws, seeds, streams, and numbers keyed by rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import sqrt

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, searchsorted
from torch.distributions import Bernoulli, Distribution, Independent, Normal
from torch.quasirandom import SobolEngine

from skvnce._core.runtime import PROCESS, torch_defaults

# ----------------------------------------
# Random numbers that are drawn on the CPU and moved: the same on each device.


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
    """Map uniform numbers to draws of q, Bernoulli or with quantiles in closed form."""
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
    """Map uniform numbers to draws of latents; the last one selects a component."""
    if isinstance(q, Independent) and not hasattr(q, "at_uniform"):
        return at_quantiles(q.base_dist, uniform[..., :-1])
    return q.at_uniform(uniform)


# ----------------------------------------
# Gamma variables.


def standard_gamma(shape: Tensor) -> Tensor:
    """Draw gamma variables of unit rate, ten times as fast as torch for a few."""
    return torch._standard_gamma(shape)


# ----------------------------------------
# Gradients of draws that are computed by numerical inversion.
#
# A draw x at the quantile u solves F(x) = u.  If the parameters of F change and u is
# fixed, ``dx = -dF / f(x)`` (Figurnov, Mohamed and Mnih 2018, eq. 5).


def with_gradient(drawn: Tensor, q: Distribution) -> Tensor:
    """Add the gradient of the quantile to draws of univariate q, first order only."""
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


# ----------------------------------------
# Seeds, and the isolation of torch's global stream of random numbers.
#
# `global_stream` draws from torch's global stream inside `seeded`; keyed numbers do not
# depend on it.

# (step, template) -> uniform numbers in [0, 1) of the shape of the template
Uniforms = Callable[[int, Tensor], Tensor]
_LARGEST = 2**32 - 1  # largest seed of numpy; making a stream only to check takes .1 ms


def seed_from(random_state: object) -> int:
    """Convert a `random_state` to an integer; None gives fresh entropy."""
    if random_state is None:  # does not change numpy's global stream
        # 31 bits, as the seeds below
        return int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, int | np.integer):
        if not 0 <= random_state <= _LARGEST:
            check_random_state(random_state)  # raises the error of scikit-learn
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def seeded(random_state: object) -> Iterator[int]:
    """Seed torch's global stream, and restore it on exit; yields the seed.

    Other threads of this package wait meanwhile, so that a seed reproduces the draws,
    which have torch's own data type and device unless the algorithm names others.
    """
    seed = seed_from(random_state)
    with PROCESS, torch_defaults():
        before = torch.get_rng_state()
        try:
            _set_seed(seed)
            yield seed
        finally:
            torch.set_rng_state(before)


def _set_seed(seed: int) -> None:
    """Seed as `torch.manual_seed`, which takes a millisecond if no device is in use."""
    if torch.cuda.is_initialized():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


# ----------------------------------------
# Streams of uniform random numbers.


def stream(seed: int) -> Uniforms:
    """Make uniform numbers of a seed, the same in every call of one step."""

    def uniforms(step: int, template: Tensor) -> Tensor:
        # 256 steps have numbers of their own before those of the next seed begin
        generator = torch.Generator().manual_seed((seed << 8) + step)
        shape, dtype = template.shape, template.dtype
        # drawn on the CPU, so that the numbers are the same on each device
        return torch.rand(shape, generator=generator, dtype=dtype).to(template)

    return uniforms


def global_stream(step: int, template: Tensor) -> Tensor:
    """Draw uniform numbers from torch's global stream, the same on each device."""
    return uniform_numbers(template.shape, template)


def shifted_lattice(shift: Uniforms) -> Uniforms:
    """Make quasi-random uniform numbers: Sobol points, with given shifts."""

    def uniforms(step: int, x: Tensor) -> Tensor:
        points = SobolEngine(x.shape[-1]).draw(len(x), dtype=torch.float64)
        points = points.view(len(x), *[1] * (x.dim() - 2), -1)
        # one shift for all points: separate shifts would make them independent
        first = shift(step, x[:1])
        return ((first + points.to(first.device)) % 1.0).to(x)

    return uniforms


# ----------------------------------------
# Uniform random numbers that are functions of the content, or the number, of a row.
#
# Samplers take uniform numbers as a callable ``uniforms(step, x) -> Tensor`` of the
# shape of ``x``.  With those of `row_keyed`, deterministic methods return the same
# values in any row order and batch.

# odd and near 2**64 over the golden ratio: its multiples modulo 2**64 differ, and are
# far apart (increment of splitmix64)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# multipliers of the finaliser of splitmix64
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def row_keyed(rows: np.ndarray, seed: int) -> Uniforms:
    """Make uniform numbers that are functions of (row content, column, step, seed)."""
    clean = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one kind of NaN and zero
    with np.errstate(over="ignore"):
        key = np.full(len(rows), scramble(np.uint64(seed) + GOLDEN))
        for column in np.ascontiguousarray(clean.T, np.float64).view(np.uint64):
            # after each column, or equal cells in two columns would cancel
            key = scramble(key ^ column)

    def uniforms(step: int, x: Tensor) -> Tensor:
        counter = np.arange(x[..., 0, :].numel(), dtype=np.uint64)
        counter = counter.reshape(*x.shape[:-2], 1, x.shape[-1])
        with np.errstate(over="ignore"):
            # successive steps take successive numbers, so that none is used twice
            counter = counter + np.uint64(step) * np.uint64(counter.size)
            bits = scramble(key[:, None] + GOLDEN * (counter + np.uint64(1)))
        # 53 bits are what float64 holds, so that all numbers are exact and below 1
        unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return torch.from_numpy(unit).to(x)

    return uniforms


def row_lattice(rows: np.ndarray, seed: int) -> Uniforms:
    """Make quasi-random uniform numbers: Sobol points, shifted by `row_keyed`.

    Means over the first dimension converge faster than with independent numbers,
    especially if its size is a power of two.
    """
    return shifted_lattice(row_keyed(rows, seed))


def numbered(numbers: np.ndarray) -> np.ndarray:
    """Make uniform numbers that are functions of integers, in their shape."""
    bits = mixed(numbers.astype(np.uint64))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Map 64-bit integers to others that look random."""
    with np.errstate(over="ignore"):
        # one more, because `scramble` maps 0 to 0
        return scramble(GOLDEN * (numbers + np.uint64(1)))


def scramble(bits: np.ndarray) -> np.ndarray:
    """Mix 64-bit integers (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return bits ^ (bits >> np.uint64(31))
