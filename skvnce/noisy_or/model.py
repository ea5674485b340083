"""Noisy-OR: binary columns that latent binary causes turn on.

With causes z in {0, 1}^K and a_i = leak_i + sum_k weight_ik z_k,

    p(x_i = 0 | z) = exp(-a_i),    p(z_k = 1) = prior_k                            (5)

Missing cells are left out of the likelihood: given z the columns are independent.
Tables are sparse: the cells that are on or missing are listed, and the terms of the
others are a sum over all columns minus the listed ones.

Yan, Ailem and Sha (2019), Amortized inference of variational bounds for
learning noisy-OR.  Numbers of equations are those of this paper.
"""

from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, logsigmoid, softplus

FLOOR = 1e-6  # minimum leak, and so of a_i: no cell is off with probability 1


class Causes(NamedTuple):
    """Parameters of the model."""

    # (features, causes): not negative; ``1 - exp(-weight)`` is the probability that a
    # cause alone turns a column on
    weight: Tensor
    # (features,): not negative; the effect of causes that are not in the model
    leak: Tensor
    prior_logit: Tensor  # (causes,)


class NoisyOrModel(nn.Module):
    """Unconstrained parameters of `Causes`.

    `weight` (features, causes), `leak` (features,).  `prior` (causes,): initial values:
    positive, leak above 1e-6, and prior below 1.
    """

    def __init__(self, weight: Tensor, leak: Tensor, prior: Tensor) -> None:
        super().__init__()
        self.raw_weight = nn.Parameter(_inverse_softplus(weight))
        # the inverse of softplus is -inf at 0
        above = (leak - FLOOR).clamp(min=FLOOR / 100)
        self.raw_leak = nn.Parameter(_inverse_softplus(above))
        self.prior_logit = nn.Parameter(prior.logit())

    def causes(self) -> Causes:
        """Return the constrained parameters."""
        leak = FLOOR + softplus(self.raw_leak)
        return Causes(softplus(self.raw_weight), leak, self.prior_logit)


def _inverse_softplus(value: Tensor) -> Tensor:
    # log(exp(value) - 1), which would overflow for large values
    return value + log1mexp(value)


def log1mexp(s: Tensor) -> Tensor:
    """Compute log(1 - exp(-s)), s > 0, to full precision for small and large s."""
    small = s < log(2)
    near = s.where(small, 1.0)  # so that the unused branch has a finite gradient
    far = s.where(~small, 1.0)
    return torch.where(
        small, (-torch.expm1(-near)).log(), torch.log1p(-torch.exp(-far))
    )


class Cells(NamedTuple):
    """The cells of n rows that are on or missing; all others are off."""

    # int (n, n_listed): indices of the cells; rows with fewer of them are padded
    # arbitrarily
    columns: Tensor
    on: Tensor  # (n, n_listed): 1 if the cell is on, 0 if it is missing or padding
    missing: Tensor  # (n, n_listed): 1 if the cell is missing, else 0


class Evidence(NamedTuple):
    """The terms of the likelihood of n rows: parameters at the cells of each."""

    weight: Tensor  # (n, n_listed, causes)
    # (n, n_listed): of the listed cells; those that are not on do not contribute
    leak: Tensor
    on: Tensor  # (n, n_listed)
    off_weight: Tensor  # (n, causes)
    off_leak: Tensor  # (n,): sums over the cells that are off
    prior_logit: Tensor  # (causes,)


def gather(causes: Causes, cells: Cells) -> Evidence:
    """Gather the parameters of the cells of rows."""
    weight = embedding(cells.columns, causes.weight)  # (n, n_listed, causes)
    leak = causes.leak[cells.columns]
    listed = cells.on + cells.missing
    return Evidence(
        weight,
        leak,
        cells.on,
        causes.weight.sum(0) - (listed[..., None] * weight).sum(-2),
        causes.leak.sum() - (listed * leak).sum(-1),
        causes.prior_logit,
    )


def activation(evidence: Evidence, z: Tensor) -> Tensor:
    """Compute a_i of the listed cells; (*batch, n, causes) -> (*batch, n, n_listed)."""
    return evidence.leak + torch.einsum("...nk,nik->...ni", z, evidence.weight)


# ----------------------------------------
# Bounds of the likelihood of noisy-OR, and the corresponding posteriors.
#
# With f(s) = log(1 - exp(-s)), concave, a cell that is on contributes f(a_i).  A line
# above f, and a chord below it, make the likelihood conjugate to Bernoulli causes:
#
#     f(s) <= psi s - g(psi)                                                         (7)
#     g(psi) = (psi + 1) log(psi + 1) - psi log psi                                  (8)
#     q(z_k = 1) = sigmoid(sum_on psi_i weight_ik - sum_off weight_ik
#                          + logit prior_k)                                         (11)
#     f(a_i) >= f(leak_i) + sum_k z_k r_ik [f(xi_ik) - f(leak_i)],
#     xi_ik = leak_i + weight_ik / r_ik,   sum_k r_ik = 1                        (chord)
#
# The chord is that of Jaakkola and Jordan (1999).  The normaliser, eq. (4) of the
# supplement, lacks an exponential, as enumeration confirms.


# weights are divisors
_LEAST = 1e-12  # minimum of the weights r
# with 0 among them the bound never becomes looser
_SHARES = (1.0, 0.5, 0.1, 0.01, 0.0)  # candidate steps towards the fixed point


def slope(s: Tensor) -> Tensor:
    """Compute f'(s), the slope of the line of eq. (7) that touches f at s."""
    return 1 / torch.expm1(s.clamp(min=FLOOR))


def conjugate_dual(psi: Tensor) -> Tensor:
    """Compute g, eq. (8); psi >= 0."""
    # xlogy is 0 at psi = 0, where psi log psi would be NaN
    return torch.special.xlog1py(psi + 1, psi) - torch.special.xlogy(psi, psi)


def conjugate_shift(evidence: Evidence, psi: Tensor) -> Tensor:
    """Compute the contribution of the cells to the logits of the causes; (n, causes).

    Eq. (11) without the prior; cells that are on add ``psi * weight``.
    """
    shift = torch.einsum("ni,nik->nk", evidence.on * psi, evidence.weight)
    return shift - evidence.off_weight


def upper_bound(evidence: Evidence, psi: Tensor) -> Tensor:
    """Bound log p(x_obs) from above by eq. (7); psi (n, n_listed) -> (n,)."""
    at_zero = evidence.on * (psi * evidence.leak - conjugate_dual(psi))
    shift = conjugate_shift(evidence, psi)
    return at_zero.sum(-1) - evidence.off_leak + _sum_causes(evidence, shift)


def _sum_causes(evidence: Evidence, shift: Tensor) -> Tensor:
    """Sum over k log(1 - prior + prior exp(shift)); (n, causes) -> (n,)."""
    prior = evidence.prior_logit
    return (softplus(prior + shift) - softplus(prior)).sum(-1)


def tighter_line(evidence: Evidence, psi: Tensor) -> Tensor:
    """Make one step of the fixed point of the tightest upper bound, eq. (12), UB-CDI.

    The bound is convex in psi, and the fixed point of its slope lies downhill, but
    possibly too far.  Each row makes the best of several steps towards it.
    """
    q = (evidence.prior_logit + conjugate_shift(evidence, psi)).sigmoid()
    target = slope(activation(evidence, q))
    steps = torch.stack([torch.lerp(psi, target, share) for share in _SHARES])
    bounds = torch.stack([upper_bound(evidence, step) for step in steps])
    return steps[bounds.argmin(0), torch.arange(len(psi), device=psi.device)]


def chord(evidence: Evidence, r: Tensor) -> Tensor:
    """Compute r_ik [f(xi_ik) - f(leak_i)] of the chord; (n, n_listed, causes)."""
    leak = evidence.leak.clamp(min=FLOOR)[..., None]
    r = r.clamp(min=_LEAST)
    return r * (log1mexp(leak + evidence.weight / r) - log1mexp(leak))


def chord_shift(evidence: Evidence, r: Tensor) -> Tensor:
    """Compute the contribution of the cells to the logits by chords; (n, causes)."""
    shift = (evidence.on[..., None] * chord(evidence, r)).sum(-2)
    return shift - evidence.off_weight


def at_leak(evidence: Evidence) -> Tensor:
    """Compute log p(x_obs) without any cause; (n,)."""
    switched = evidence.on * log1mexp(evidence.leak.clamp(min=FLOOR))
    return switched.sum(-1) - evidence.off_leak


def lower_bound(evidence: Evidence, r: Tensor) -> Tensor:
    """Bound log p(x_obs) from below by chords; r (n, n_listed, causes) -> (n,)."""
    return at_leak(evidence) + _sum_causes(evidence, chord_shift(evidence, r))


def lower_elbo(evidence: Evidence, logit: Tensor, r: Tensor) -> Tensor:  # (n,)
    """Bound the ELBO of any q, eq. (2), from below by chords; tight for the best q.

    `r` (n, n_listed, causes).  `evidence`: of n rows.  `logit` (n, causes): of q(z_k =
    1).
    """
    expected = (logit.sigmoid() * chord_shift(evidence, r)).sum(-1)
    return at_leak(evidence) + expected - divergence(evidence.prior_logit, logit)


def tighter_chord(evidence: Evidence, logit: Tensor, r: Tensor) -> Tensor:
    """Make one step of the fixed point of the tightest lower bound, LB-CDI.

    At causes with these logits (n, causes); those of r itself are
    ``prior_logit + chord_shift(evidence, r)``.
    """
    r = r.clamp(min=_LEAST)
    leak = evidence.leak.clamp(min=FLOOR)[..., None]
    falls = evidence.weight * slope(leak + evidence.weight / r)
    # not negative but for rounding, as f is concave
    rise = (chord(evidence, r) - falls).clamp(min=0)
    share = logit.sigmoid()[:, None, :] * rise
    total = share.sum(-1, keepdim=True)
    return torch.where(total > 0, share / total.clamp(min=_LEAST), r)


def divergence(prior_logit: Tensor, logit: Tensor) -> Tensor:
    """Compute KL(q || prior) of eq. (16); (*batch, causes) -> (*batch,)."""
    q = logit.sigmoid()
    on = logsigmoid(logit) - logsigmoid(prior_logit)
    off = logsigmoid(-logit) - logsigmoid(-prior_logit)
    return (q * on + (1 - q) * off).sum(-1)


def elbo(evidence: Evidence, logit: Tensor, z: Tensor) -> Tensor:  # (n,)
    """Average the ELBO, eq. (16), over draws of the causes.

    Only the terms of the cells that are on need the draws.

    `evidence`: of n rows.  `logit` (n, causes): of q(z_k = 1 | x).  `z` (n_draws, n,
    causes): draws of q, or relaxations of them.
    """
    switched = log1mexp(activation(evidence, z).clamp(min=FLOOR)).mean(0)
    silent = evidence.off_leak + (logit.sigmoid() * evidence.off_weight).sum(-1)
    said = (evidence.on * switched).sum(-1) - silent
    return said - divergence(evidence.prior_logit, logit)


# ----------------------------------------
# Networks that read rows of sparse binary tables, for posteriors of binary causes.
#
# Both take the cells of a row that are on or missing, `columns`, `on` and `missing`
# of shape (n, n_listed), as `skvnce.noisy_or.model.Cells` lists them, and their cost
# is proportional to the number of these.
#
# Yan, Ailem and Sha (2019), Amortized inference of variational bounds for learning
# noisy-OR, eqs. (14)-(15).


class RowNetwork(nn.Module):
    """Hidden units of rows: a sum over cells, followed by layers.

    `hidden`: sizes of the layers.  `n_listed`: typical number of listed cells of a row;
    scales the initial weights.
    """

    def __init__(
        self, n_features: int, hidden: tuple[int, ...], n_listed: float
    ) -> None:
        super().__init__()
        # the sum of the weights of the listed cells has then about unit variance
        scale = 1 / sqrt(max(n_listed, 1.0))
        self.on = nn.Parameter(scale * torch.randn(n_features, hidden[0]))
        # initially missing cells are read as cells that are off
        self.missing = nn.Parameter(torch.zeros(n_features, hidden[0]))
        self.bias = nn.Parameter(torch.zeros(hidden[0]))
        self.layers = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(hidden[:-1], hidden[1:], strict=True)
        )

    def forward(self, columns: Tensor, on: Tensor, missing: Tensor) -> Tensor:
        """Map rows to hidden units; (n, hidden[-1])."""
        total = self.bias + _sum_cells(self.on, columns, on)
        # tables without missing cells are spared a sum
        if missing.any():
            total = total + _sum_cells(self.missing, columns, missing)
        for layer in self.layers:
            total = layer(total.relu())
        return total.relu()

    @torch.no_grad()
    def always_missing(self, features: Tensor) -> None:
        """Treat the cells of some columns as missing in all rows, without a list."""
        self.bias += self.missing[features].sum(0)


def _sum_cells(weight: Tensor, columns: Tensor, listed: Tensor) -> Tensor:
    """Sum weights (features, hidden) over the listed cells of each row."""
    return torch.einsum("ni,nih->nh", listed, embedding(columns, weight))


class CauseNetwork(nn.Module):
    """Logits of the causes, independent of the model: amortised inference, AVI.

    `n_hidden`: units of its last layer.
    """

    def __init__(self, rows: RowNetwork, n_hidden: int, n_causes: int) -> None:
        super().__init__()
        self.rows = rows
        self.last = nn.Linear(n_hidden, n_causes)

    def forward(self, columns: Tensor, on: Tensor, missing: Tensor) -> Tensor:
        """Map rows to logits; (n, causes)."""
        return self.last(self.rows(columns, on, missing))


class LineNetwork(nn.Module):
    """Slopes psi > 0 of the lines above the likelihood of cells, eq. (14).

    They are only needed for cells that are on.

    `n_hidden`: units of its last layer.
    """

    def __init__(self, rows: RowNetwork, n_hidden: int, n_features: int) -> None:
        super().__init__()
        self.rows = rows
        scale = 1 / sqrt(n_hidden)
        self.weight = nn.Parameter(scale * torch.randn(n_features, n_hidden))
        self.bias = nn.Parameter(torch.zeros(n_features))

    def forward(self, columns: Tensor, on: Tensor, missing: Tensor) -> Tensor:
        """Map rows to slopes of their listed cells; (n, n_listed)."""
        hidden = self.rows(columns, on, missing)
        weight = embedding(columns, self.weight)  # (n, n_listed, n_hidden)
        return softplus(self.bias[columns] + torch.einsum("nh,nih->ni", hidden, weight))
