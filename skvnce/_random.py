"""Seeds, and the isolation of torch's global stream of random numbers.

`skvnce.variational.base.global_stream` draws from torch's global stream inside
`seeded`; `skvnce._keyed` has numbers that do not depend on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils import check_random_state

from skvnce._threads import PROCESS
from skvnce._torch_defaults import torch_defaults

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
