"""
======================================================
Filling missing values by a variational autoencoder
======================================================

A variational autoencoder gives p(x | z) and an encoder q(z | x) of complete rows.  To
fill the missing cells of a row one needs p(z | x_obs), which it does not give.  Two
samplers that walk from one completed row to the next get stuck; AC-MWG and LAIR, which
leave the missing cells out of the decision about z, do not (Simkus and Gutmann 2023).
"""

# %%
# The model
# ---------
# Thirteen clusters in the plane, and one latent variable that runs through them along a
# path, there and back.  We write the decoder down rather than train it, so that all
# answers are known: each cluster has its own thirteenth of the prior.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.distributions import Independent, Normal

from skvnce.autoencoder.samplers import (
    Incomplete,
    ac_mwg,
    lair,
    mwg,
    observed_log_prob,
    pseudo_gibbs,
)

PATH = [(0, -2, 0.13)]
PATH += [(x, -1, 0.11) for x in (1, 0, -1)]
PATH += [(x, 0, 0.1) for x in (-2, -1, 0, 1, 2)]
PATH += [(x, 1, 0.08) for x in (0.5, 0, -0.5)]
PATH += [(0, 2, 0.06)]
CENTRES, SPREADS = torch.tensor(PATH).double().split((2, 1), 1)


class Path:
    """A latent variable model: a prior of z, and p(x | z) of independent columns."""

    def prior(self):
        """Return p(z), standard normal."""
        return Independent(Normal(torch.zeros(1).double(), 1.0), 1)

    def likelihood(self, z):
        """Return p(x | z), the cluster that z belongs to."""
        share = torch.special.ndtr(z[..., 0])
        cluster = (13 * share).long().clamp(max=12)
        return Normal(CENTRES[cluster], SPREADS[cluster])


# %%
# The encoder is what training would lead to at best: the normal distribution with the
# mean and the variance of p(z | x), here from the mean and the mean square of z in each
# cluster, which come from a grid of 20 points.  We make it a little wider, as trained
# encoders are not exact.

MODEL = Path()
CLUSTERS = Normal(CENTRES, SPREADS)
GRID = torch.special.ndtri((torch.arange(260) + 0.5).double() / 260).view(13, 20)
MEAN = GRID.mean(1, keepdim=True)
SQUARE = GRID.square().mean(1, keepdim=True)


def encoder(x, observed):
    """Return q(z | x) of completed rows."""
    weight = CLUSTERS.log_prob(x[..., None, :]).sum(-1).softmax(-1)
    mean = weight @ MEAN
    variance = weight @ SQUARE - mean.square()
    return Independent(Normal(mean, 1.2 * variance.sqrt()), 1)


# %%
# Three rows to fill
# ------------------
# In the first row the candidates are five clusters next to each other on the path, in
# the second five that are far apart; in the third all chains start far from any
# candidate.  Chains are the first dimension of all tables.  The tables are small, and
# one thread is quicker than two that wait for each other.

torch.set_num_threads(1)
ROWS = np.array([[np.nan, 0.0], [0.0, np.nan], [np.nan, 1.0]])
TITLES = ["near modes, $x_1 = 0$", "far modes, $x_0 = 0$", "poor start, $x_1 = 1$"]
START = torch.tensor([[0.0, 0.0], [0.0, 0.0], [2.0, 0.0]]).double()
DATA = Incomplete.from_array(ROWS)
SAMPLERS = {
    "pseudo-Gibbs": (pseudo_gibbs(MODEL, encoder), 100, 1000),
    "MWG": (mwg(MODEL, encoder), 100, 1000),
    "AC-MWG": (ac_mwg(MODEL, encoder, eps=0.01), 100, 3000),
    "LAIR": (lair(MODEL, encoder, n_particles=19), 19, 2500),
}


def fill(sampler, n_chains, n_steps):
    """Run chains and keep the missing cell in each half-way on; (3, n_draws)."""
    kept = []
    state = sampler.init(DATA, START.expand(n_chains, 3, 2))
    torch.manual_seed(0)
    for n_step in range(n_steps):
        state, _ = sampler.step(state, DATA)
        if n_step >= n_steps // 2:
            kept.append(state.x[~DATA.observed.expand_as(state.x)].view(-1, 3))
    return torch.cat(kept).T.numpy()


# %%
# The right answer
# ----------------
# The density p(x_mis | x_obs) is a mean over the clusters.  Distances are divergences
# between histograms, after Jensen and Shannon: 0.69 is the largest there is, and 0.42
# means that one of five modes was found.

BINS = np.linspace(-2.8, 2.8, 141)
MIDPOINTS = torch.tensor(BINS[1:] + BINS[:-1]) / 2


def exact(x, observed):
    """Compute p(x_mis | x_obs) of one row at the midpoints of the bins."""
    weight = observed_log_prob(CLUSTERS, x, observed).softmax(0)
    density = CLUSTERS.log_prob(MIDPOINTS[:, None, None]).exp()
    return (density[..., ~observed].squeeze(-1) @ weight).numpy()


def divergence(p, q):
    """Compute the Jensen-Shannon divergence of two densities, in nats."""
    p, q = p / p.sum(), q / q.sum()
    middle = np.maximum((p + q) / 2, 1e-300)
    terms = [side * np.log(np.maximum(side, 1e-300) / middle) for side in (p, q)]
    return np.sum(terms) / 2


fig, axes = plt.subplots(4, 3, figsize=(10, 7), sharex=True, layout="constrained")
for (name, setting), panels in zip(SAMPLERS.items(), axes, strict=True):
    found = fill(*setting)
    for ax, x, observed, draws in zip(panels, *DATA, found, strict=True):
        truth = exact(x, observed)
        heights, *_ = ax.hist(draws, BINS, density=True, color="#56B4E9")
        ax.plot(MIDPOINTS, truth, color="black", lw=1)
        ax.set(yticks=[], ylim=(0, 1.6 * truth.max()))
        distance = divergence(heights, truth)
        ax.text(0.98, 0.88, f"{distance:.3f}", ha="right", transform=ax.transAxes)
    panels[0].set_ylabel(name)
for ax, title in zip(axes[0], TITLES, strict=True):
    ax.set_title(title)
for ax in axes[-1]:
    ax.set_xlabel("the missing value")
plt.show()

# %%
# MWG accepts a z only if it explains the filled value of before, and so stays in its
# mode, however poor.  Pseudo-Gibbs accepts all, wanders to near modes, but neither
# weighs them rightly nor sees those which its encoder does not propose.  AC-MWG and
# LAIR ask of z to explain what was observed, and propose from the prior now and then.
