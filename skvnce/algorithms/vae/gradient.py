"""The importance-weighted bound of the default autoencoder, and its gradient, in full.

With draws e_i of a standard normal and the encoder of `skvnce.variational.anchored`,

    v_i = shift + exp(s) e_i,   z_i = m + R v_i                                    (1)
    log w_i = sum_{j observed} log p(x_j | z_i) - |z_i|^2 / 2
              + |e_i|^2 / 2 + sum_k s_k + log det R                                (2)
    bound = log (1/I) sum_i w_i                                                    (3)

and share_i = w_i / sum_l w_l, the gradients in the model's parameters and, doubly
reparametrised, in those of the encoder are

    sum_i share_i d log p(x_obs, z_i) / d theta                                    (4)
    sum_i share_i^2 d v_i / d phi [R' d log p(x_obs, z_i) / d z_i + e_i / exp(s)]  (5)

These are value and gradients of `skvnce.objectives.bounds.miss_iwae`, by a third of its
operations: the tables of a batch are small, so that most of the time of autograd is
spent between operations.

Mattei and Frellsen (2019), MIWAE; Tucker, Lawson, Gu and Maddison (2019), Doubly
reparameterized gradient estimators for Monte Carlo objectives, eq. (8), here (5).
"""

from collections.abc import Callable
from math import log, sqrt

import torch
from torch import Tensor
from torch.nn.functional import threshold

from skvnce.algorithms.vae.batches import Batches
from skvnce.distributions.observed_sum import sum_and_slopes
from skvnce.distributions.quantiles import inside
from skvnce.models.networks import ResidualPerceptron
from skvnce.models.vae import VariationalAutoencoderModel
from skvnce.variational.anchored import AnchoredEncoder
from skvnce.variational.base import global_stream


def is_written_out(batches: Batches) -> bool:
    """Return whether `WeightedBound` computes the bound of an autoencoder."""
    model, posterior = batches.auto
    return (
        isinstance(model, VariationalAutoencoderModel)
        and isinstance(posterior, AnchoredEncoder)
        and posterior.n_components == 1
        and all(isinstance(part.network, ResidualPerceptron) for part in batches.auto)
        and batches.anchor is not None
        and batches.cells is not None
        and all(
            leaf.requires_grad for part in batches.auto for leaf in part.parameters()
        )
    )


class WeightedBound:
    """The mean of eq. (3) over rows, with the opposite sign, as a loss.

    `graph`: the same loss of rows, by autograd.  `batches`: see `is_written_out`.
    `n_draws`: I.
    """

    def __init__(
        self, graph: Callable[[Tensor], Tensor], batches: Batches, n_draws: int
    ) -> None:
        self._graph, self._n_draws = graph, n_draws
        self._model, self._posterior = batches.auto
        anchor, observed = batches.anchor, batches.data.observed
        seen = self._posterior.seen(anchor, observed)
        log_det = anchor.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self._anchors = seen, anchor.mean, anchor.root, log_det
        self._cells = batches.cells.centred(observed)

    def __call__(self, rows: Tensor) -> Tensor:
        """Compute the loss of some rows by autograd."""
        return self._graph(rows)

    @torch.no_grad()
    def differentiate(self, rows: Tensor) -> Tensor:
        """Compute the loss of some rows, and set the gradients of all parameters."""
        seen, mean, root, log_det = (
            part.index_select(0, rows) for part in self._anchors
        )
        shift, log_scale, encoded = self._posterior.encode(seen)
        e, scale = self._noise(mean), log_scale.exp()
        z = _turned(root, torch.addcmul(shift, scale, e)).add_(mean)  # eq. (1)
        *cells, decoded = self._model.decode(z)
        log_prob, *slopes = sum_and_slopes(*cells, self._cells.take(rows))
        apart = e.square().addcmul_(z, z, value=-1.0).sum(-1)
        of_row = log_scale.sum(-1).add_(log_det)
        log_weight = log_prob.add_(apart, alpha=0.5).add_(of_row)  # eq. (2)
        log_share = log_weight.log_softmax(0)
        value = log(self._n_draws) - (log_weight - log_share).mean()
        least = torch.finfo(z.dtype).eps  # products of denormal numbers are slow
        share = threshold(log_share.exp_(), least, 0.0).unsqueeze(-1)
        # minus, because the loss is the negative mean over rows
        weight = share / -len(rows)
        slopes = (slope.mul_(weight) for slope in slopes)
        by_z = self._model.differentiate(decoded, *slopes)  # eq. (4)
        by_v = _turned(root.mT, by_z.addcmul_(weight, z, value=-1.0))
        by_v.addcmul_(weight / scale, e).mul_(share)  # eq. (5)
        by_log_scale = (by_v * e).sum(0).mul_(scale)
        self._posterior.differentiate(encoded, by_v.sum(0), by_log_scale)
        return value

    def _noise(self, mean: Tensor) -> Tensor:
        """Draw e; (n_draws, n, latents)."""
        n, k = mean.shape
        uniform = global_stream(0, mean.new_empty(()).expand(self._n_draws, n, k + 1))
        centred = inside(uniform[..., :-1]).mul_(2.0).sub_(1.0)
        return centred.erfinv_().mul_(sqrt(2.0))  # a quarter of the time of `ndtri`


def _turned(root: Tensor, v: Tensor) -> Tensor:
    """Multiply by matrices (n, k, k) of the rows; v of shape (n_draws, n, k)."""
    found = torch.bmm(v.transpose(0, 1), root.mT)
    return found.transpose(0, 1).contiguous()
