"""A model and its encoder, and what is computed once for the rows of a table."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce._progress import tell
from skvnce.distributions.cells import Cells
from skvnce.distributions.observed_sum import Intervals
from skvnce.models.vae import VariationalAutoencoderModel
from skvnce.variational.anchored import Anchor, AnchoredEncoder

_KEPT = 2**25  # maximum size of the linear part of the posteriors of all rows
_AT_ONCE = 2**21  # maximum size of the draws of a chunk of rows


class Autoencoder(NamedTuple):
    """A model and its encoder."""

    model: VariationalAutoencoderModel
    posterior: AnchoredEncoder

    @property
    def device(self) -> torch.device:
        """The device of the parameters; the CPU if there are none."""
        leaves = (
            leaf for part in self for leaf in (*part.parameters(), *part.buffers())
        )
        return next(leaves, torch.zeros(0)).device

    def on(self, device: torch.device) -> "Autoencoder":
        """Move to a device, in place."""
        return Autoencoder(*(part.to(device) for part in self))

    def evaluated(self) -> "Autoencoder":
        """Turn off dropout and gradients."""
        return Autoencoder(*(part.eval().requires_grad_(False) for part in self))


class KnownRows(NamedTuple):
    """A model of rows whose cells are known, for the protocol of models."""

    model: VariationalAutoencoderModel
    cells: Intervals  # of these rows

    def prior(self) -> Distribution:
        """Return p(z), of event shape (latents,)."""
        return self.model.prior()

    def likelihood(self, z: Tensor) -> Cells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return self.model.likelihood(z).given(self.cells)


def of_known(model: nn.Module, x: Tensor) -> nn.Module | KnownRows:
    """Return a model for rows x (n, features) only, which is faster for rounded cells.

    Other models than `VariationalAutoencoderModel` are returned as they are.
    """
    if not isinstance(model, VariationalAutoencoderModel):
        return model
    return KnownRows(model, model.families.intervals(x))


class Batches:
    """Model and encoder for batches of rows; what does not change is computed once.

    Training changes neither the posteriors of the linear model, which take a
    factorisation for each row, nor the intervals of rounded cells.  Tables of many rows
    and latents are not kept.

    `anchor` (Anchor or None), `cells` (Intervals or None).
    """

    def __init__(self, auto: Autoencoder, data: Incomplete) -> None:
        self.auto, self.data, self.anchor, self.cells = auto, data, None, None
        k = auto.model.prior().event_shape[0]
        fits = data.x.numel() + len(data.x) * k * (k + 1) <= _KEPT
        if fits and getattr(auto.posterior, "has_fixed_anchor", False):
            with torch.no_grad():
                self.anchor = auto.posterior.infer(*data)
        if isinstance(auto.model, VariationalAutoencoderModel):
            self.cells = auto.model.families.intervals(data.x)

    def of(self, rows: Tensor | slice) -> tuple[Autoencoder, Incomplete]:
        """Return them and the rows; they may be called with these rows only."""
        model, posterior = self.auto
        if self.anchor is not None:
            anchor = Anchor(*(part[rows] for part in self.anchor))
            posterior = partial(_at, posterior, anchor)
        if self.cells is not None:
            model = KnownRows(model, self.cells.take(rows))
        return Autoencoder(model, posterior), self.data.take(rows)


def _at(
    posterior: AnchoredEncoder, anchor: Anchor, x: Tensor, observed: Tensor
) -> Distribution:
    return posterior.at(anchor, observed)


def chunks(auto: Autoencoder, n: int, n_draws: int) -> Iterator[slice]:
    """Split n rows into chunks whose draws are bounded in memory."""
    d, k, hidden = auto.model.sizes
    size = max(1, _AT_ONCE // (n_draws * (2 * d + k + sum(hidden)) + k * k))
    return slices(n, size)


def slices(n: int, size: int) -> Iterator[slice]:
    """Split n rows into slices of some size."""
    for first in range(0, n, size):
        tell("rows", min(first + size, n), n)
        yield slice(first, first + size)
