"""The joint distribution of noisy-OR by enumeration of the causes, for few of them."""

from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from skvnce.noisy_or.model import FLOOR, Evidence, activation, log1mexp


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
