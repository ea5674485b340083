"""Predictions of held-out cells, which choose how long an autoencoder is trained."""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae.batches import Autoencoder, Batches, chunks
from skvnce.distributions.observed_sum import log_probs
from skvnce.variational.base import draw_latents, stream

_N_DRAWS = 32
_IN_CACHE = 64  # number of rows whose draws fit a cache


class HeldOut:
    """Predictions of held-out cells, with the same random numbers in every call.

    `auto`: is put in the mode of evaluation.  `data`: all observed cells.  `hidden`
    (bool (n, features)): which are held out.
    """

    def __init__(self, auto: Autoencoder, data: Incomplete, hidden: Tensor) -> None:
        self.auto, self.hidden = Autoencoder(*(part.eval() for part in auto)), hidden
        kept = data.observed & ~hidden
        self._batches = Batches(self.auto, Incomplete(data.x, kept))
        self._observed, cells = data.observed, self._batches.cells
        self._cells = None if cells is None else cells.centred(data.observed)

    @torch.no_grad()
    def log_prob(self) -> Tensor:
        """Sum log p(x_j | cells not held out) over held-out cells of each row; (n,).

        By importance sampling.
        """
        found = []
        for rows in chunks(self.auto, len(self.hidden), _N_DRAWS):
            (_, posterior), (x, kept) = self._batches.of(rows)
            q = posterior(x, kept)
            # the same numbers in each round, so that gains are not those of the draws
            z = draw_latents(q, stream(0), _N_DRAWS, x)
            log_ratio = self.auto.model.prior().log_prob(z) - q.log_prob(z)
            for first in range(0, len(x), _IN_CACHE):
                part = slice(first, min(first + _IN_CACHE, len(x)))
                which = slice(rows.start + part.start, rows.start + part.stop)
                inside = self._inside(z[:, part], which)
                log_weight = (inside * kept[part]).sum(-1) + log_ratio[:, part]
                found.append(_of_held(inside, log_weight, self.hidden[which]))
        return torch.cat(found)

    def _inside(self, z: Tensor, rows: slice) -> Tensor:
        """Compute log p(x_j | z) of observed cells; (n_draws, n_rows, features)."""
        if self._cells is not None:
            loc, log_scale, _ = self.auto.model.decode(z)
            return log_probs(loc, log_scale, self._cells.take(rows))
        x, seen = self._batches.data.x[rows], self._observed[rows]
        return self.auto.model.likelihood(z).log_prob(x).where(seen, 0.0)


def _of_held(inside: Tensor, log_weight: Tensor, held: Tensor) -> Tensor:
    """Sum logs of weighted means of densities over the held-out cells of rows."""
    row, column = held.nonzero(as_tuple=True)
    log_share = log_weight.log_softmax(0)
    log_mean = (log_share[:, row] + inside[:, row, column]).logsumexp(0)
    return log_mean.new_zeros(len(held)).index_add_(0, row, log_mean)


def held_out_log_prob(auto: Autoencoder, data: Incomplete, hidden: Tensor) -> Tensor:
    """Compute `HeldOut.log_prob` once, and leave the modes of the modules; (n,)."""
    training = [part.training for part in auto]
    found = HeldOut(auto, data, hidden).log_prob()
    # `HeldOut` has turned dropout off
    for part, mode in zip(auto, training, strict=True):
        part.train(mode)
    return found
