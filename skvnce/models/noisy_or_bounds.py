"""Bounds of the likelihood of noisy-OR, and the posteriors that belong to them.

With f(s) = log(1 - exp(-s)), concave, a cell that is on contributes f(a_i).  A line
above f, and a chord below it, make the likelihood conjugate to Bernoulli causes:

    f(s) <= psi s - g(psi),   g(psi) = (psi + 1) log(psi + 1) - psi log psi        (1)
    f(a_i) >= f(leak_i) + sum_k z_k r_ik [f(xi_ik) - f(leak_i)],
    xi_ik = leak_i + weight_ik / r_ik,   sum_k r_ik = 1                            (2)

References
----------
Shu, Naradowsky, Chen and Sha (2019), eqs. (6)-(12) and (16); its supplement's eq. (4)
lacks an exponential, and is here as enumeration has it.  Jaakkola and Jordan (1999).
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from skvnce.models.noisy_or import FLOOR, Causes, Cells, activation, log1mexp

_LEAST = 1e-12  # of the weights r
_SHARES = (1.0, 0.5, 0.1, 0.01, 0.0)  # of the way to the fixed point


def slope(s: Tensor) -> Tensor:
    """Compute f'(s), at which the line of eq. (1) touches f."""
    return 1 / torch.expm1(s.clamp(min=FLOOR))


def conjugate_dual(psi: Tensor) -> Tensor:
    """Compute g of eq. (1); psi >= 0."""
    return torch.special.xlog1py(psi + 1, psi) - torch.special.xlogy(psi, psi)


def conjugate_shift(causes: Causes, cells: Cells, psi: Tensor) -> Tensor:
    """Compute what the cells add to the logits of the causes; (n, causes).

    Eq. (11) of the paper less the prior; cells that are on add ``psi * weight``.
    """
    on, off = cells
    return (on * psi - off) @ causes.weight


def upper_bound(causes: Causes, cells: Cells, psi: Tensor) -> Tensor:
    """Bound log p(x_obs) from above by eq. (1); psi (n, features) -> (n,)."""
    on, off = cells
    at_zero = on * (psi * causes.leak - conjugate_dual(psi)) - off * causes.leak
    shift = conjugate_shift(causes, cells, psi)
    return at_zero.sum(-1) + _summed_causes(causes, shift)


def _summed_causes(causes: Causes, shift: Tensor) -> Tensor:
    """Sum over k log(1 - prior + prior exp(shift)); (n, causes) -> (n,)."""
    prior = causes.prior_logit
    return (softplus(prior + shift) - softplus(prior)).sum(-1)


def tighter_line(causes: Causes, cells: Cells, psi: Tensor) -> Tensor:
    """Make one step of the fixed point of the tightest upper bound, UB-CDI.

    The bound is convex in psi, and the fixed point of its slope lies downhill, but
    maybe too far: of some shares of the way each row takes the best.
    """
    q = (causes.prior_logit + conjugate_shift(causes, cells, psi)).sigmoid()
    target = slope(activation(causes, q))
    ways = torch.stack([torch.lerp(psi, target, share) for share in _SHARES])
    bounds = torch.stack([upper_bound(causes, cells, way) for way in ways])
    return ways[bounds.argmin(0), torch.arange(len(psi))]


def chord(causes: Causes, r: Tensor) -> Tensor:
    """Compute r_ik [f(xi_ik) - f(leak_i)]; (*batch, features, causes)."""
    leak = causes.leak.clamp(min=FLOOR)[:, None]
    r = r.clamp(min=_LEAST)
    return r * (log1mexp(leak + causes.weight / r) - log1mexp(leak))


def chord_shift(causes: Causes, cells: Cells, r: Tensor) -> Tensor:
    """Compute what the cells add to the logits by eq. (2); (n, causes)."""
    on, off = cells
    return (on[..., None] * chord(causes, r)).sum(-2) - off @ causes.weight


def lower_bound(causes: Causes, cells: Cells, r: Tensor) -> Tensor:
    """Bound log p(x_obs) from below by eq. (2); r (n, features, causes) -> (n,)."""
    on, off = cells
    at_zero = on * log1mexp(causes.leak.clamp(min=FLOOR)) - off * causes.leak
    shift = chord_shift(causes, cells, r)
    return at_zero.sum(-1) + _summed_causes(causes, shift)


def tighter_chord(causes: Causes, cells: Cells, r: Tensor) -> Tensor:
    """Make one step of the fixed point of the tightest lower bound, LB-CDI."""
    q = (causes.prior_logit + chord_shift(causes, cells, r)).sigmoid()
    r = r.clamp(min=_LEAST)
    falls = causes.weight * slope(
        causes.leak.clamp(min=FLOOR)[:, None] + causes.weight / r
    )
    share = q[..., None, :] * (chord(causes, r) - falls).clamp(min=0)
    total = share.sum(-1, keepdim=True)
    return torch.where(total > 0, share / total.clamp(min=_LEAST), r)


def divergence(causes: Causes, logit: Tensor) -> Tensor:
    """Compute KL(q || prior) of Bernoulli causes; (*batch, causes) -> (*batch,)."""
    q, prior = logit.sigmoid(), causes.prior_logit
    on = logsigmoid(logit) - logsigmoid(prior)
    off = logsigmoid(-logit) - logsigmoid(-prior)
    return (q * on + (1 - q) * off).sum(-1)


def elbo(causes: Causes, cells: Cells, logit: Tensor, z: Tensor) -> Tensor:
    """Average eq. (16) of the paper over draws of the causes.

    Only what the cells that are on say needs the draws.

    Parameters
    ----------
    causes : Causes
    cells : Cells
        Of n rows.
    logit : Tensor of shape (n, causes)
        Of q(z_k = 1 | x).
    z : Tensor of shape (n_draws, n, causes)
        Draws of q, or relaxations of them.

    Returns
    -------
    Tensor of shape (n,)
    """
    on, off = cells
    switched = log1mexp(activation(causes, z).clamp(min=FLOOR)).mean(0)
    silent = activation(causes, logit.sigmoid())
    return (on * switched - off * silent).sum(-1) - divergence(causes, logit)
