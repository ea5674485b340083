"""log p(x_obs) of a normal decoder, by importance sampling around the mode of each row.

The proposal of a row is a normal at the mode of p(z | x_obs), with the Fisher
information there as its precision: no encoder is asked.
"""

import math

import torch
from torch.distributions import MultivariateNormal
from torch.func import jvp, vmap

DAMPED = 1e-2  # share of the diagonal that scoring adds at first
WIDER = 1.15  # the proposal's deviations over those at the mode


def log_joint(model, x, observed, z):
    """Compute log p(x_obs, z); z (*sample, n, latents)."""
    seen = (model.likelihood(z).log_prob(x) * observed).sum(-1)
    return seen + model.prior().log_prob(z)


def information(model, observed, z):
    """Compute the Fisher information of z in rows, that of its prior included.

    Of a normal of mean m(z) and log-variance v(z), the sum over observed columns of
    dm dm' / variance + dv dv' / 2, plus the identity; (n, latents, latents).
    """
    eye = torch.eye(z.shape[-1]).to(z)
    slopes = vmap(lambda e: jvp(model.network, (z,), (e.expand_as(z),))[1])(eye)
    slopes = slopes.movedim(0, -1) * torch.cat([observed, observed], -1)[..., None]
    of_mean, of_log_variance = slopes.chunk(2, 1)  # (n, features, latents)
    of_mean = of_mean / model.likelihood(z).scale[..., None]
    return (
        of_mean.mT @ of_mean + of_log_variance.mT @ of_log_variance / 2 + eye
    ).detach()


def climb(model, x, observed, z, n_steps):
    """Climb log p(x_obs, z) by damped Fisher scoring; z and its value."""
    with torch.no_grad():
        height = log_joint(model, x, observed, z)
    damped = torch.full_like(height, DAMPED)
    for _ in range(n_steps):
        at = z.detach().requires_grad_()
        with torch.enable_grad():
            total = log_joint(model, x, observed, at).sum()
            (slope,) = torch.autograd.grad(total, at)
        matrix = information(model, observed, z)
        diagonal = matrix.diagonal(dim1=-2, dim2=-1) * damped[:, None]
        moved = z + torch.linalg.solve(matrix + diagonal.diag_embed(), slope)
        with torch.no_grad():
            found = log_joint(model, x, observed, moved)
        taken = found > height
        z = moved.where(taken[:, None], z)
        height = found.where(taken, height)
        damped = (damped * torch.where(taken, 0.2, 5.0)).clamp(1e-6, 1e6)
    return z, height


def highest(model, x, observed, starts, n_steps):
    """Climb from starts (n_starts, n, latents); the highest mode of each row."""
    ends = [climb(model, x, observed, start, n_steps) for start in starts]
    z, height = (torch.stack(part) for part in zip(*ends, strict=True))
    return z[height.argmax(0), torch.arange(z.shape[1])]


@torch.no_grad()
def log_likelihood(model, x, observed, modes, n_draws, at_once=100):
    """Estimate log p(x_obs) of rows; (n,), and effective numbers of draws (n,)."""
    found, sizes = [], []
    matrix = information(model, observed, modes) / WIDER**2
    matrix = (matrix + matrix.mT) / 2  # exactly, as torch asks for
    for rows in torch.arange(len(x)).split(at_once):
        q = MultivariateNormal(modes[rows], precision_matrix=matrix[rows])
        weights = []
        for some in torch.arange(n_draws).split(at_once):
            z = q.sample((len(some),))
            joint = log_joint(model, x[rows], observed[rows], z)
            weights.append(joint - q.log_prob(z))
        weights = torch.cat(weights)
        found.append(weights.logsumexp(0) - math.log(n_draws))
        sizes.append(1 / weights.softmax(0).square().sum(0))
    return torch.cat(found), torch.cat(sizes)
