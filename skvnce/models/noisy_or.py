"""Noisy-OR: binary columns that latent binary causes turn on.

With causes z in {0, 1}^K and a_i = leak_i + sum_k weight_ik z_k,

    p(x_i = 0 | z) = exp(-a_i),    p(z_k = 1) = prior_k                            (1)

Missing cells are left out of the likelihood: given z the columns are independent.
Tables are sparse: the cells that are on or missing are listed, and the terms of the
others are a sum over all columns minus the listed ones.

Yan, Ailem and Sha (2019), Amortized inference of variational bounds for
learning noisy-OR, eqs. (4)-(5).
"""

from itertools import product
from math import log
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


def log_likelihood(evidence: Evidence, z: Tensor) -> Tensor:
    """Compute log p(x_obs | z); (*batch, n, causes) -> (*batch, n)."""
    switched = log1mexp(activation(evidence, z).clamp(min=FLOOR))
    silent = evidence.off_leak + (z * evidence.off_weight).sum(-1)
    return (evidence.on * switched).sum(-1) - silent


def log_prior(prior_logit: Tensor, z: Tensor) -> Tensor:
    """Compute log p(z); (*batch, causes) -> (*batch,)."""
    return (z * logsigmoid(prior_logit) + (1 - z) * logsigmoid(-prior_logit)).sum(-1)


def all_states(n_causes: int) -> Tensor:
    """List all z; (2 ** causes, causes)."""
    return torch.tensor(list(product([0.0, 1.0], repeat=n_causes))).double()


def enumerate_joint(evidence: Evidence) -> Tensor:
    """Compute log p(x_obs, z) of all z; (2 ** causes, n).  For few causes."""
    z = all_states(len(evidence.prior_logit)).to(evidence.weight)[:, None]
    z = z.expand(-1, len(evidence.on), -1)
    return log_likelihood(evidence, z) + log_prior(evidence.prior_logit, z)
