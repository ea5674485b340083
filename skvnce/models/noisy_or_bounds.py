"""Bounds of the likelihood of noisy-OR, and the corresponding posteriors.

With f(s) = log(1 - exp(-s)), concave, a cell that is on contributes f(a_i).  A line
above f, and a chord below it, make the likelihood conjugate to Bernoulli causes:

    f(s) <= psi s - g(psi),   g(psi) = (psi + 1) log(psi + 1) - psi log psi        (1)
    f(a_i) >= f(leak_i) + sum_k z_k r_ik [f(xi_ik) - f(leak_i)],
    xi_ik = leak_i + weight_ik / r_ik,   sum_k r_ik = 1                            (2)

Yan, Ailem and Sha (2019), eqs. (6)-(12) and (16); its supplement's eq. (4)
lacks an exponential, which enumeration confirms.  Jaakkola and Jordan (1999).
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from skvnce.models.noisy_or import FLOOR, Evidence, activation, log1mexp

# weights are divisors
_LEAST = 1e-12  # minimum of the weights r
# with 0 among them the bound never becomes looser
_SHARES = (1.0, 0.5, 0.1, 0.01, 0.0)  # candidate steps towards the fixed point


def slope(s: Tensor) -> Tensor:
    """Compute f'(s), at which the line of eq. (1) touches f."""
    return 1 / torch.expm1(s.clamp(min=FLOOR))


def conjugate_dual(psi: Tensor) -> Tensor:
    """Compute g of eq. (1); psi >= 0."""
    # xlogy is 0 at psi = 0, where psi log psi would be NaN
    return torch.special.xlog1py(psi + 1, psi) - torch.special.xlogy(psi, psi)


def conjugate_shift(evidence: Evidence, psi: Tensor) -> Tensor:
    """Compute the contribution of the cells to the logits of the causes; (n, causes).

    Eq. (11) of the paper minus the prior; cells that are on add ``psi * weight``.
    """
    shift = torch.einsum("ni,nik->nk", evidence.on * psi, evidence.weight)
    return shift - evidence.off_weight


def upper_bound(evidence: Evidence, psi: Tensor) -> Tensor:
    """Bound log p(x_obs) from above by eq. (1); psi (n, n_listed) -> (n,)."""
    at_zero = evidence.on * (psi * evidence.leak - conjugate_dual(psi))
    shift = conjugate_shift(evidence, psi)
    return at_zero.sum(-1) - evidence.off_leak + _summed_causes(evidence, shift)


def _summed_causes(evidence: Evidence, shift: Tensor) -> Tensor:
    """Sum over k log(1 - prior + prior exp(shift)); (n, causes) -> (n,)."""
    prior = evidence.prior_logit
    return (softplus(prior + shift) - softplus(prior)).sum(-1)


def tighter_line(evidence: Evidence, psi: Tensor) -> Tensor:
    """Make one step of the fixed point of the tightest upper bound, UB-CDI.

    The bound is convex in psi, and the fixed point of its slope lies downhill, but
    possibly too far.  Each row uses the best of several steps towards it.
    """
    q = (evidence.prior_logit + conjugate_shift(evidence, psi)).sigmoid()
    target = slope(activation(evidence, q))
    ways = torch.stack([torch.lerp(psi, target, share) for share in _SHARES])
    bounds = torch.stack([upper_bound(evidence, way) for way in ways])
    return ways[bounds.argmin(0), torch.arange(len(psi), device=psi.device)]


def chord(evidence: Evidence, r: Tensor) -> Tensor:
    """Compute r_ik [f(xi_ik) - f(leak_i)]; (n, n_listed, causes)."""
    leak = evidence.leak.clamp(min=FLOOR)[..., None]
    r = r.clamp(min=_LEAST)
    return r * (log1mexp(leak + evidence.weight / r) - log1mexp(leak))


def chord_shift(evidence: Evidence, r: Tensor) -> Tensor:
    """Compute the contribution of the cells to the logits by eq. (2); (n, causes)."""
    shift = (evidence.on[..., None] * chord(evidence, r)).sum(-2)
    return shift - evidence.off_weight


def at_leak(evidence: Evidence) -> Tensor:
    """Compute log p(x_obs) without any cause; (n,)."""
    switched = evidence.on * log1mexp(evidence.leak.clamp(min=FLOOR))
    return switched.sum(-1) - evidence.off_leak


def lower_bound(evidence: Evidence, r: Tensor) -> Tensor:
    """Bound log p(x_obs) from below by eq. (2); r (n, n_listed, causes) -> (n,)."""
    return at_leak(evidence) + _summed_causes(evidence, chord_shift(evidence, r))


def lower_elbo(evidence: Evidence, logit: Tensor, r: Tensor) -> Tensor:  # (n,)
    """Bound the ELBO of any q from below by eq. (2); tight for the best q.

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
    """Compute KL(q || prior) of Bernoulli causes; (*batch, causes) -> (*batch,)."""
    q = logit.sigmoid()
    on = logsigmoid(logit) - logsigmoid(prior_logit)
    off = logsigmoid(-logit) - logsigmoid(-prior_logit)
    return (q * on + (1 - q) * off).sum(-1)


def elbo(evidence: Evidence, logit: Tensor, z: Tensor) -> Tensor:  # (n,)
    """Average eq. (16) of the paper over draws of the causes.

    Only the terms of the cells that are on need the draws.

    `evidence`: of n rows.  `logit` (n, causes): of q(z_k = 1 | x).  `z` (n_draws, n,
    causes): draws of q, or relaxations of them.
    """
    switched = _log_on(evidence, z).mean(0)
    silent = evidence.off_leak + (logit.sigmoid() * evidence.off_weight).sum(-1)
    said = (evidence.on * switched).sum(-1) - silent
    return said - divergence(evidence.prior_logit, logit)


def standard_error(evidence: Evidence, z: Tensor) -> Tensor:
    """Estimate the error of `elbo` from the variance over the draws z; (n,)."""
    terms = (evidence.on * _log_on(evidence, z)).sum(-1)
    return terms.std(0) / len(z) ** 0.5


def _log_on(evidence: Evidence, z: Tensor) -> Tensor:
    """Compute log p(x_i = 1 | z) of the cells that are on; (n_draws, n, cells)."""
    return log1mexp(activation(evidence, z).clamp(min=FLOOR))
