"""The history of AC-MWG: past imputations in bounded memory.

Algorithm 1 of Simkus and Gutmann (2023) keeps all T imputations of a row and proposes
from those made before the current z was accepted, because these do not depend on it.
Here a reservoir of `size` slots contains all imputations as long as they fit, and then
a simple random sample of them (algorithm R of Vitter 1985).  It is copied whenever a
proposal is accepted.  A random slot of the copy is a uniform draw from all available
imputations.  The sampler stays exact: the target of the chain is stationary because a
proposal, given the past, is independent of the current z (Holden, Hauge and Holden
2009), and so are the copy and the random numbers that filled it.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class History(NamedTuple):
    """Imputations of each row."""

    # (size, *chains, n, features): a sample of all imputations so far, and of those
    # that can be proposed
    stored: Tensor
    available: Tensor  # (size, *chains, n, features)
    # int (*chains, n): number of imputations made before the last proposal was accepted
    n_available: Tensor
    n_stored: int  # number of imputations made


def begin(x: Tensor, size: int) -> History:
    """Start from one imputation (*chains, n, features), independent of the latents."""
    stored = x.new_zeros(size, *x.shape)
    stored[0] = x
    # one tensor for both, because nothing is changed in place
    return History(stored, stored, torch.ones_like(x[..., 0], dtype=torch.long), 1)


def pick(history: History, uniform: Tensor) -> Tensor:
    """Draw an available imputation of each row; (*chains, n) -> (..., features)."""
    filled = history.n_available.clamp(max=len(history.available))
    # a uniform number may be 1 after it is rounded to single precision
    slot = (uniform * filled).long().minimum(filled - 1)
    index = slot[None, ..., None].expand(1, *history.available.shape[1:])
    return history.available.gather(0, index)[0]


def record(history: History, accepted: Tensor, x: Tensor, uniform: Tensor) -> History:
    """Add an imputation; rows with an accepted proposal first update the available.

    `accepted` (bool (*chains, n)), `x` (*chains, n, features).  `uniform` (*chains, n):
    chooses the slot to replace.
    """
    stored, n = history.stored, history.n_stored
    # without the new imputation, which depends on the accepted latents
    available = stored.where(accepted[..., None], history.available)
    n_available = torch.where(accepted, n, history.n_available)
    if n < len(stored):
        slot = torch.full_like(n_available, n)
    else:
        slot = (uniform * (n + 1)).long()  # beyond the slots x is not stored
    slots = torch.arange(len(stored), device=x.device)
    replaced = slots.view(-1, *[1] * slot.dim()) == slot
    stored = x.where(replaced[..., None], stored)
    return History(stored, available, n_available, n + 1)
