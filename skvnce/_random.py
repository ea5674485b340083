"""Random numbers: isolation of torch's global stream, and numbers keyed by rows.

Samplers take uniform numbers as a callable ``uniforms(step, x) -> Tensor`` of the
shape of ``x``.  `skvnce.variational.base.global_stream` draws from torch's global
stream inside `seeded`.  `row_keyed` makes the numbers of a row a function of the row
alone, so that deterministic methods return the same values in any row order and batch.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from skvnce._forks import PROCESS
from skvnce._torch_defaults import torch_defaults
from skvnce.variational.base import Uniforms, shifted_lattice

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def seed_from(random_state: object) -> int:
    """Convert a `random_state` to an integer; None gives fresh entropy."""
    if random_state is None:  # does not change numpy's global stream
        return int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, int | np.integer):
        check_random_state(random_state)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def seeded(random_state: object) -> Iterator[int]:
    """Seed torch's global stream, and restore it on exit; yields the seed.

    Other threads of this package wait meanwhile, so that a seed reproduces the draws,
    which have torch's own data type and device unless the algorithm names others.  A
    child that another thread forks gets the state of the stream before the context.
    """
    seed = seed_from(random_state)
    with PROCESS, torch_defaults(), ExitStack() as stream:
        restore = partial(torch.set_rng_state, torch.get_rng_state())
        stream.enter_context(PROCESS.undone_in_child(restore))
        stream.callback(restore)
        torch.manual_seed(seed)
        yield seed


def row_keyed(rows: np.ndarray, seed: int) -> Uniforms:
    """Make uniform numbers that are functions of (row content, column, step, seed).

    Parameters
    ----------
    rows : ndarray of shape (n, features)
        NaN marks missing cells; all NaN are equivalent.
    seed : int

    Returns
    -------
    callable
        Takes the step and a tensor of shape (..., n, features).
    """
    clean = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one kind of NaN and zero
    with np.errstate(over="ignore"):
        key = np.full(len(rows), _scramble(np.uint64(seed) + _GOLDEN))
        for column in np.ascontiguousarray(clean.T, np.float64).view(np.uint64):
            key = _scramble(key ^ column)
    return _keyed(key)


def number_keyed(numbers: np.ndarray, seed: int) -> Uniforms:
    """Make uniform numbers that are functions of (row number, column, step, seed).

    Parameters
    ----------
    numbers : ndarray of int, of shape (n,)
    seed : int

    Returns
    -------
    callable
        See `row_keyed`.
    """
    return _keyed(mixed(numbers.astype(np.uint64) ^ mixed(np.uint64(seed))))


def _keyed(key: np.ndarray) -> Uniforms:
    """Make uniform numbers from random integers (n,), one for each row."""

    def uniforms(step: int, x: Tensor) -> Tensor:
        PROCESS.let_forks_pass()  # at each step of chains
        counter = np.arange(x[..., 0, :].numel(), dtype=np.uint64)
        counter = counter.reshape(*x.shape[:-2], 1, x.shape[-1])
        with np.errstate(over="ignore"):
            counter = counter + np.uint64(step) * np.uint64(counter.size)
            bits = _scramble(key[:, None] + _GOLDEN * (counter + np.uint64(1)))
        unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return torch.from_numpy(unit).to(x)

    return uniforms


def row_lattice(rows: np.ndarray, seed: int) -> Uniforms:
    """Make evenly distributed uniform numbers: Sobol points, shifted by `row_keyed`.

    Means over the first dimension converge faster than with independent numbers,
    especially if its size is a power of two.
    """
    return shifted_lattice(row_keyed(rows, seed))


def numbered(rows: np.ndarray) -> np.ndarray:
    """Make uniform numbers that are functions of the numbers of rows; (n,)."""
    bits = mixed(rows.astype(np.uint64))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Map 64-bit integers to others that look random."""
    with np.errstate(over="ignore"):
        return _scramble(_GOLDEN * (numbers + np.uint64(1)))


def _scramble(bits: np.ndarray) -> np.ndarray:
    """Mix 64-bit integers (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return bits ^ (bits >> np.uint64(31))
