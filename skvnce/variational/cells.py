"""Posteriors of missing cells, as steps: draws, mask, uniform numbers -> draws.

`NormalCells` is the conditional of one joint normal: for all patterns of missing cells,
its mean and precision are the only parameters (Rhodes and Gutmann 2019, section 5, with
logarithms of the columns that are positive: the joint lognormal).  With w the columns,
or their logarithms, and P the precision,

    w_m | w_o ~ N(mean_m - P_mm^-1 P_mo (w_o - mean_o), P_mm^-1)                   (1)
    log q(x_m | x_o) = log N(w_m) - sum over positive m of w_j                     (2)
"""

import copy
from math import log, pi

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli

from skvnce.distributions.free_normal import FreeNormal
from skvnce.distributions.normal import (
    ByMissing,
    Normal,
    arrange,
    jittered_cholesky,
    log_prob_observed,
)
from skvnce.distributions.quantiles import inside
from skvnce.variational.base import Draws, Uniforms, with_missing
from skvnce.variational.encoder import Perceptron

_TINY = 1e-12  # replaces zeros in logarithms


class NormalCells(nn.Module):
    """Draw the missing cells from the conditionals of a joint normal, eq. (1)."""

    def __init__(
        self,
        initial: Normal,  # of the columns, or their logarithms; the initial parameters
        # bool (features,): columns of which the logarithms are normal
        positive: Tensor,
        # bool (features,): columns that an earlier step draws: q is conditional on
        # their cells
        drawn: Tensor | None = None,
        # (features,): of the positive columns: smaller observed values are replaced by
        # this in logarithms, as there may be zeros
        floor: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.free = FreeNormal(initial)
        self.register_buffer("positive", positive)
        self.register_buffer(
            "drawn", torch.zeros_like(positive) if drawn is None else drawn
        )
        tiny = torch.full(positive.shape, _TINY).double()
        self.register_buffer("floor", tiny if floor is None else floor)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; the mask has shape (n, features)."""
        observed = observed | self.drawn
        if observed.all():
            return draws
        (x,) = draws.values
        # cells under the mask may be NaN, and 1 has a logarithm
        w = normal_scale(x.where(observed, 1.0), self.positive, self.floor)
        eps = torch.special.ndtri(inside(uniforms(0, x)))
        drawn, log_q = self._conditional(w, observed, eps)
        # 0 in other columns, whose exp could overflow and make gradients NaN
        logs = drawn.where(self.positive, 0.0)
        log_q = log_q - logs.where(~observed, 0.0).sum(-1)  # eq. (2)
        cells = torch.where(self.positive, logs.exp(), drawn)
        return draws._replace(
            values=(x.where(observed, cells),), log_prob=draws.log_prob + log_q
        )

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute log q of the missing cells of completed rows; (*batch, n)."""
        observed = observed | self.drawn
        w = normal_scale(x, self.positive, self.floor)
        normal, d = self.free.factored(), x.shape[-1]
        joint = -(self.free.square(w) + normal.log_det + d * log(2 * pi)) / 2
        logs = w.where(self.positive & ~observed, 0.0).sum(-1)
        return joint - log_prob_observed(normal, w, observed, _factor) - logs

    def _conditional(
        self, w: Tensor, observed: Tensor, eps: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Complete rows by eq. (1), and compute log q; all patterns in batches."""
        normal, batches = self.free.factored(), arrange(w, observed, kinds=1)
        completed, log_q = [], []
        for batch in batches:
            found = ByMissing.of(normal, batch, _factor)
            noise = batch.gather_cells(eps[..., batch.rows, :])
            completed.append(found.at(noise) + normal.mean)
            own = batch.block < w.shape[-1]
            density = ((noise.square() + log(2 * pi)) * own).sum(-1) / 2
            log_det = found.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            log_q.append(log_det - density)
        order = torch.cat([batch.rows for batch in batches]).argsort()
        return torch.cat(completed, -2)[..., order, :], torch.cat(log_q, -1)[..., order]


def _factor(precision: Tensor) -> Tensor:
    """Factorise, with jitter if a training step gives a singular matrix."""
    return jittered_cholesky(precision)[0]


def normal_scale(x: Tensor, positive: Tensor, floor: Tensor | float = _TINY) -> Tensor:
    """Take logarithms of the positive columns, after clipping them to the floor."""
    return torch.where(positive, x.clamp(min=floor).log(), x)


class DefensiveCells(nn.Module):
    """Draw the missing cells from a mixture of a learned normal and of its initial one.

    Half of the draws come from each, with the density of the mixture.  A learned q may
    concentrate on one of several modes; the initial one covers all of them, so that
    importance weights stay bounded (Hesterberg 1995, defensive importance sampling).

    `learnt`: before training, still equal to its initial normal.
    """

    def __init__(self, learnt: NormalCells) -> None:
        super().__init__()
        self.learnt = learnt
        self.fixed = copy.deepcopy(learnt).requires_grad_(False)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; a single draw is of the learned normal alone."""
        n_draws = len(draws.log_prob)
        if (observed | self.learnt.drawn).all() or n_draws == 1:
            return self.learnt(draws, observed, uniforms)
        first, second = slice((n_draws + 1) // 2), slice((n_draws + 1) // 2, None)
        rest = draws, observed, uniforms
        first = _part(self.learnt, self.fixed, first, *rest)
        second = _part(self.fixed, self.learnt, second, *rest)
        return Draws(
            (torch.cat([first.values[0], second.values[0]]),),
            torch.cat([first.log_prob, second.log_prob]),
            torch.cat([first.log_weight, second.log_weight]),
            draws.log_score,
        )


def _part(
    own: NormalCells,
    other: NormalCells,
    some: slice,
    draws: Draws,
    observed: Tensor,
    uniforms: Uniforms,
) -> Draws:
    """Make some of the draws from one of two normals, with the density of both."""
    (x,) = draws.values
    before, weight = draws.log_prob[some], draws.log_weight[some]
    made = own(Draws((x[some],), before, weight), observed, uniforms)
    densities = made.log_prob - before, other.log_prob(made.values[0], observed)
    # both parts have half of the weight, even if their numbers of draws differ by one
    share = log(len(x) / (2 * len(before)))
    return made._replace(
        log_prob=before + torch.logaddexp(*densities) - log(2),
        log_weight=weight + share,
    )


class BinaryCells(nn.Module):
    """Draw the missing cells of columns of zeros and ones, by a network.

    `network`: (rows, mask) to logits (*rows, features).  `binary` (bool (features,)):
    the columns that it draws; others stay missing.
    """

    def __init__(self, network: Perceptron, binary: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("binary", binary)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; the mask has shape (n, features)."""
        if (observed | ~self.binary).all():
            return draws
        (x,) = draws.values
        q = Bernoulli(logits=self.network(x, observed), validate_args=False)
        return with_missing(draws, observed | ~self.binary, q, uniforms(1, x))
