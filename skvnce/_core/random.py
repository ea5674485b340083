"""Seeds, and the isolation of torch's global stream of random numbers.

`global_stream` draws from torch's global stream inside `seeded`; keyed numbers do not
depend on it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor
from torch.quasirandom import SobolEngine

from skvnce._core.distributions.functions import uniform_numbers
from skvnce._core.runtime import PROCESS, torch_defaults

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
    """Seed torch's streams as `torch.manual_seed` does.

    That takes a millisecond if no device is in use, to note the call for later.
    """
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
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# multipliers of the finaliser of splitmix64
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def row_keyed(rows: np.ndarray, seed: int) -> Uniforms:
    """Make uniform numbers that are functions of (row content, column, step, seed).

    `rows` (n, features): NaN marks missing cells; all NaN are equivalent. The
    callable takes the step and a tensor of shape (..., n, features).
    """
    clean = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one kind of NaN and zero
    with np.errstate(over="ignore"):
        key = np.full(len(rows), _scramble(np.uint64(seed) + _GOLDEN))
        for column in np.ascontiguousarray(clean.T, np.float64).view(np.uint64):
            # after each column, or equal cells in two columns would cancel
            key = _scramble(key ^ column)
    return _keyed(key)


def number_keyed(numbers: np.ndarray, seed: int) -> Uniforms:
    """Make uniform numbers that are functions of (row number, column, step, seed).

    `numbers` int (n,); see `row_keyed`.
    """
    # the seed is mixed first, or two seeds would permute the same keys
    return _keyed(mixed(numbers.astype(np.uint64) ^ mixed(np.uint64(seed))))


def _keyed(key: np.ndarray) -> Uniforms:
    """Make uniform numbers from random integers (n,), one for each row."""

    def uniforms(step: int, x: Tensor) -> Tensor:
        counter = np.arange(x[..., 0, :].numel(), dtype=np.uint64)
        counter = counter.reshape(*x.shape[:-2], 1, x.shape[-1])
        with np.errstate(over="ignore"):
            # successive steps take successive numbers, so that none is used twice
            counter = counter + np.uint64(step) * np.uint64(counter.size)
            bits = _scramble(key[:, None] + _GOLDEN * (counter + np.uint64(1)))
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
        # one more, because `_scramble` maps 0 to 0
        return _scramble(_GOLDEN * (numbers + np.uint64(1)))


def _scramble(bits: np.ndarray) -> np.ndarray:
    """Mix 64-bit integers (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return bits ^ (bits >> np.uint64(31))
