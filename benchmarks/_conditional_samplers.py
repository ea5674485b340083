"""Samplers of missing cells at an equal number of network evaluations.

The methods of figures 5, 6 and 9 of Simkus and Gutmann (2023), Conditional sampling of
variational autoencoders via iterated approximate ancestral sampling, and the ablations
of their appendix D.4.  An evaluation is one completed row through the encoder, or one
latent through the decoder; the decoder's output at a latent that stays is known and is
not counted again, though the package computes it.
"""

import time
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import torch

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import (
    Sampler,
    columns,
    observed_log_prob,
    run_chain,
    unconditional,
)
from skvnce._core.random import global_stream, seeded
from skvnce.autoencoder import samplers
from skvnce.autoencoder.samplers import ac_mwg, add, empty, lair, mwg, pseudo_gibbs
from skvnce.autoencoder.samplers import pooled_draws as draws

N_CHAINS = 5  # and imputations, and proposals K + R
FRACTIONS = 1 / 32, 1 / 8, 1 / 4, 1 / 2, 1  # of the budget
WARM_UP = 1 / 30  # of the iterations of a chain
ACCEPTED = 0.57  # rate of Langevin steps at which they are most efficient


class Problem(NamedTuple):
    """A fitted autoencoder, rows with missing cells, and the settings of a study."""

    vae: object
    data: Incomplete
    n_steps: int  # iterations of N_CHAINS chains: the budget is 2 * N_CHAINS * n_steps
    bounds: tuple  # of pseudo-Gibbs
    eps: float  # share of proposals from the prior, of AC-MWG
    history_size: int  # of AC-MWG

    @property
    def parts(self):
        """The model and the encoder."""
        return self.vae, self.vae.posterior

    @property
    def budget(self):
        """The number of evaluations."""
        return 2 * N_CHAINS * self.n_steps


class Method(NamedTuple):
    """A chain, and what it starts from."""

    make: Callable  # maps a problem to a sampler
    # maps a problem to completed tables and the evaluations they have cost
    warm_up: Callable | None = None

    def __call__(self, problem):
        """Run the chains; {fraction of the budget: tables (N_CHAINS, n, features)}."""
        start, spent = self.warm_up(problem) if self.warm_up else (None, 0)
        sampler, found, done = self.make(problem), {}, 0
        state = sampler.init(problem.data, *([] if start is None else [start]))
        for fraction in FRACTIONS:
            n_steps = int((fraction * problem.budget - spent) / (2 * N_CHAINS))
            if n_steps > done:
                state = run_chain(sampler, state, problem.data, n_steps - done)
                found[fraction], done = state.x, n_steps
        return found


class Resampling(NamedTuple):
    """LAIR with K particles and R proposals from the prior, a run of its own."""

    n_particles: int  # K and R
    n_replenish: int

    @property
    def cost(self):
        """Evaluations of an iteration: K encodings, K + R decodings."""
        return 2 * self.n_particles + self.n_replenish

    def __call__(self, problem):
        """Run it; {fraction of the budget: tables (draws, n, features)}."""
        counts = {"n_particles": self.n_particles, "n_replenish": self.n_replenish}
        data, sampler = problem.data, lair(*problem.parts, **counts)
        found, done, pool = {}, 0, Pooling()
        state = sampler.init(data)
        for fraction in FRACTIONS:
            n_steps = int(fraction * problem.budget / self.cost)
            state = run_chain(sampler, state, data, n_steps - done, pool.visit)
            done = n_steps
            found[fraction] = pool.draws(problem.vae, data)
        return found


class Pooling:
    """The pool of a run of LAIR, and the effective number of its proposals."""

    def __init__(self, n_draws=N_CHAINS):
        self.n_draws, self.pool, self.log_squares = n_draws, None, []

    def visit(self, state, info):
        """Add the proposals of an iteration."""
        value = torch.zeros_like(info.z[..., :1])  # no mean is asked for
        if self.pool is None:
            first = info.z[:1].expand(self.n_draws, *info.z.shape[1:])
            self.pool = empty(first, value[0])
        uniform = torch.rand(*self.pool.z.shape[:-1], 2)
        self.pool = add(self.pool, info, value, uniform)
        self.log_squares.append((2 * info.log_weight).logsumexp(0))

    def draws(self, vae, data):
        """Draw completed tables."""
        return draws(vae, data, self.pool)

    def effective_size(self):
        """Compute (sum of weights)^2 / sum of squares of each row."""
        squares = torch.stack(self.log_squares).logsumexp(0)
        return (2 * self.pool.log_total - squares).exp()


def marginal(problem):
    """Impute by unconditional draws, the baseline of figures 5 and 6."""
    vae, data = problem.vae, problem.data
    u_z, u_x, _ = columns(global_stream, 0, vae, data, (N_CHAINS,))
    return {1: unconditional(vae, data, u_z, u_x)[1]}


# Reference


def reference(problem, *, n_particles, n_replenish, n_steps, n_draws, n_moves):
    """Draw from a long run of LAIR, then move the draws of z by Langevin steps.

    Returns
    -------
    Tensor of shape (n_draws, n, features)
    dict of tensors of shape (n,)
        Effective numbers of proposals, and acceptance rates of the moves.
    """
    sampler = lair(*problem.parts, n_particles=n_particles, n_replenish=n_replenish)
    pool = Pooling(n_draws)
    run_chain(sampler, sampler.init(problem.data), problem.data, n_steps, pool.visit)
    z, accepted = langevin(problem, pool.pool.z, n_moves)
    pool.pool = pool.pool._replace(z=z)
    found = {"sizes": pool.effective_size(), "accepted": accepted}
    return pool.draws(problem.vae, problem.data), found


def langevin(problem, z, n_moves):
    """Move draws (m, n, latents) by Metropolis-adjusted Langevin steps on p(z | x_obs).

    Roberts and Tweedie (1996).  Steps are in units of the encoder's standard
    deviations; their size is adapted in the first half of the moves, row by row.
    Returns the draws, and the acceptance rate of each row in the second half.
    """
    vae, data = problem.vae, problem.data
    drawn = data.with_values(vae.likelihood(z).sample())
    scale = vae.posterior(drawn).base_dist.scale.mean(0)
    log_size = torch.full_like(scale[:, :1], -0.5)
    rates = []
    log_p, drift = slope(vae, data, z, scale)
    for n_move in range(n_moves):
        size = log_size.exp()
        noise = torch.randn_like(z)
        new = z + scale * (size**2 / 2 * drift + size * noise)
        new_log_p, new_drift = slope(vae, data, new, scale)
        back = (z - new) / (scale * size) - size / 2 * new_drift
        log_ratio = new_log_p - log_p + (noise**2 - back**2).sum(-1) / 2
        probability = log_ratio.nan_to_num(nan=-torch.inf).clamp(max=0).exp()
        moved = torch.rand_like(probability) < probability
        z, drift = (
            b.where(moved[..., None], a) for a, b in ((z, new), (drift, new_drift))
        )
        log_p = new_log_p.where(moved, log_p)
        rates.append(probability.mean(0))
        if 2 * n_move < n_moves:
            log_size = log_size + (rates[-1] - ACCEPTED)[:, None] / 2
    return z, torch.stack(rates[n_moves // 2 :]).mean(0)


@torch.enable_grad()
def slope(vae, data, z, scale):
    """Compute log p(z, x_obs) and its gradient in units of the scale."""
    z = z.detach().requires_grad_()
    cells = observed_log_prob(vae.likelihood(z), *data)
    log_p = cells + vae.prior().log_prob(z)
    (gradient,) = torch.autograd.grad(log_p.sum(), z)
    return log_p.detach(), gradient * scale


# Warm-ups


def by_pseudo_gibbs(problem):
    """Run pseudo-Gibbs for a thirtieth of the iterations."""
    n_steps = max(1, int(WARM_UP * problem.n_steps))
    sampler = pseudo_gibbs(*problem.parts, n_chains=N_CHAINS, bounds=problem.bounds)
    state = run_chain(sampler, sampler.init(problem.data), problem.data, n_steps)
    return state.x, 2 * N_CHAINS * n_steps


def by_lair(problem):
    """Run LAIR, K = 4 and R = 1, for each chain: a thirtieth of the iterations.

    Each chain starts from one particle of its own run.
    """
    k, r = 4, 1
    n_steps = max(1, int(WARM_UP * problem.n_steps))
    sampler = lair(*problem.parts, n_particles=k, n_replenish=r)
    u_z, u_x, _ = columns(global_stream, 0, problem.vae, problem.data, (k, N_CHAINS))
    _, x = unconditional(problem.vae, problem.data, u_z, u_x)
    state = run_chain(sampler, sampler.init(problem.data, x), problem.data, n_steps)
    return state.x[0], N_CHAINS * (2 * k + r) * n_steps


# Ablations


def from_the_encoder(sampler, problem):
    """Start AC-MWG from z ~ q(z | x), as the authors do, instead of from the prior.

    Without proposals from the prior a chain that starts where q(z | x) is as good as 0
    rejects all of them.
    """

    def init(data, x):
        state = sampler.init(data, x)
        q = problem.vae.posterior(state.x)
        return state._replace(z=q.sample())

    return Sampler(init, sampler.step)


def with_target_of_mwg(sampler, problem=None):
    """Let AC-MWG accept by p(z | x) of the current imputation, as MWG does."""
    right = samplers.move

    def step(state, data):
        given = Incomplete(state.x, torch.ones_like(state.x, dtype=torch.bool))

        def wrong(model, data, _, *rest):
            return right(model, data, given, *rest)

        with mock.patch.object(samplers, "move", wrong):
            return sampler.step(state, data)

    return Sampler(sampler.init, step)


def adaptive(change=None, eps=None):
    """Make AC-MWG, or an ablation of it."""

    def make(problem):
        sampler = ac_mwg(
            *problem.parts,
            eps=problem.eps if eps is None else eps,
            n_chains=N_CHAINS,
            history_size=problem.history_size,
        )
        return sampler if change is None else change(sampler, problem)

    return make


def gibbs(problem):
    """Make pseudo-Gibbs."""
    return pseudo_gibbs(*problem.parts, n_chains=N_CHAINS, bounds=problem.bounds)


def metropolis(problem):
    """Make Metropolis-within-Gibbs."""
    return mwg(*problem.parts, n_chains=N_CHAINS)


METHODS = {
    "marginal": marginal,
    "pseudo-Gibbs": Method(gibbs),
    "MWG": Method(metropolis, by_pseudo_gibbs),
    "MWG'": Method(metropolis, by_lair),
    "AC-MWG": Method(adaptive()),
    "AC-MWG'": Method(adaptive(), by_lair),
    "LAIR 4 + 1": Resampling(4, 1),
}
ABLATIONS = {
    "AC-MWG', eps = 0": Method(adaptive(from_the_encoder, eps=0.0), by_lair),
    "AC-MWG', target of MWG": Method(adaptive(with_target_of_mwg), by_lair),
    "LAIR 5 + 0": Resampling(5, 0),
    "LAIR 2 + 3": Resampling(2, 3),
    "LAIR 0 + 5": Resampling(0, 5),
}


def imputed(method, problem, seed):
    """Run a method; {fraction of the budget: tables}, and seconds of CPU."""
    begin = time.process_time()
    with seeded(seed), torch.no_grad():
        found = (METHODS | ABLATIONS)[method](problem)
    return found, round(time.process_time() - begin, 1)
