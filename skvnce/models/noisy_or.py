"""Noisy-OR: binary columns, each switched on by hidden binary causes.

With causes z in {0, 1}^K and a_i = leak_i + sum_k weight_ik z_k,

    p(x_i = 0 | z) = exp(-a_i),    p(z_k = 1) = prior_k                            (1)

Cells that were not observed are left out of the likelihood: given z the columns are
independent.

References
----------
Shu, Naradowsky, Chen and Sha (2019), Amortized inference of variational bounds for
learning noisy-OR, eqs. (4)-(5).
"""

from itertools import product
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

FLOOR = 1e-6  # of a_i, where its logarithm is taken


class Causes(NamedTuple):
    """Parameters of the model.

    Attributes
    ----------
    weight : Tensor of shape (features, causes)
        Not negative; ``1 - exp(-weight)`` is the probability that a cause alone
        switches a column on.
    leak : Tensor of shape (features,)
        Not negative; of the causes that the model does not have.
    prior_logit : Tensor of shape (causes,)
    """

    weight: Tensor
    leak: Tensor
    prior_logit: Tensor


class NoisyOrModel(nn.Module):
    """Parameters of `Causes`, free of bounds.

    Parameters
    ----------
    weight : Tensor of shape (features, causes)
    leak : Tensor of shape (features,)
    prior : Tensor of shape (causes,)
        Where learning starts: positive, and prior below 1.
    """

    def __init__(self, weight: Tensor, leak: Tensor, prior: Tensor) -> None:
        super().__init__()
        self.raw_weight = nn.Parameter(_inverse_softplus(weight))
        self.raw_leak = nn.Parameter(_inverse_softplus(leak))
        self.prior_logit = nn.Parameter(prior.logit())

    def causes(self) -> Causes:
        """Return the parameters under their bounds."""
        return Causes(
            softplus(self.raw_weight), softplus(self.raw_leak), self.prior_logit
        )


def _inverse_softplus(value: Tensor) -> Tensor:
    return value + log1mexp(value)


def log1mexp(s: Tensor) -> Tensor:
    """Compute log(1 - exp(-s)), s > 0, to full precision for small and large s."""
    small = s < log(2)
    near = s.where(small, 1.0)  # so that the branch not taken has a finite gradient
    far = s.where(~small, 1.0)
    return torch.where(
        small, (-torch.expm1(-near)).log(), torch.log1p(-torch.exp(-far))
    )


class Cells(NamedTuple):
    """Which cells of rows were observed to be on, and which to be off.

    Attributes
    ----------
    on, off : Tensor of shape (n, features)
        Of zeros and ones; both are zero where nothing was observed.
    """

    on: Tensor
    off: Tensor

    @classmethod
    def of(cls, x: Tensor, observed: Tensor) -> "Cells":
        """Read a table of zeros and ones; (n, features) each."""
        on = (x > 0) & observed
        return cls(on.to(x), (observed & ~on).to(x))


def activation(causes: Causes, z: Tensor) -> Tensor:
    """Compute a_i; (*batch, causes) -> (*batch, features)."""
    return causes.leak + z @ causes.weight.T


def log_likelihood(causes: Causes, cells: Cells, z: Tensor) -> Tensor:
    """Compute log p(x_obs | z); z (*batch, n, causes) -> (*batch, n)."""
    a = activation(causes, z)
    return (cells.on * log1mexp(a.clamp(min=FLOOR)) - cells.off * a).sum(-1)


def log_prior(causes: Causes, z: Tensor) -> Tensor:
    """Compute log p(z); (*batch, causes) -> (*batch,)."""
    on, off = logsigmoid(causes.prior_logit), logsigmoid(-causes.prior_logit)
    return (z * on + (1 - z) * off).sum(-1)


def all_states(n_causes: int) -> Tensor:
    """List all z; (2 ** causes, causes)."""
    return torch.tensor(list(product([0.0, 1.0], repeat=n_causes))).double()


def enumerate_joint(causes: Causes, cells: Cells) -> Tensor:
    """Compute log p(x_obs, z) of all z; (2 ** causes, n).  For few causes."""
    z = all_states(len(causes.prior_logit)).to(causes.weight)[:, None]
    z = z.expand(-1, len(cells.on), -1)
    return log_likelihood(causes, cells, z) + log_prior(causes, z)
