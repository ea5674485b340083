"""
==========================================================
Expectation maximisation for noise-contrastive estimation
==========================================================

Noise-contrastive estimation (NCE) needs the density of a row, and a latent variable
hides it.  Variational NCE needs only the joint density: it raises a lower bound, first
in the posterior q(z | x), then in the model.  Here we watch it climb to the maximum of
NCE itself.
"""

# %%
# The model
# ---------
# A mixture of two normals around zero in equal parts.  The width of one is known, 1,
# that of the other is sought; the latent variable says which of the two a value came
# from.  The noise is one normal value for each value of the data.

import copy
from math import log

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

from skvnce.contrast.objective import Contrast, Problem, Rows, evaluate, variational_em
from skvnce.contrast.posteriors import ExactStates, SequentialPosterior

TRUE_WIDTH, FIRST_WIDTH, N = 4.0, 9.0, 5000
rng = np.random.default_rng(0)
noise = Normal(torch.tensor(0.0).double(), TRUE_WIDTH)


def rows(values):
    """Pack values, all of them observed."""
    u = torch.tensor(values)[..., None]
    observed = torch.ones(N, 1, dtype=torch.bool)
    return Rows(u, observed, noise.log_prob(u).squeeze(-1))


widths = np.where(rng.uniform(size=N) < 0.5, TRUE_WIDTH, 1.0)
contrast = Contrast(
    rows(rng.normal(size=N) * widths), rows(rng.normal(size=(1, N)) * TRUE_WIDTH)
)


class Mixture(nn.Module):
    """Two normals in equal parts: z = 0 is the wide one, z = 1 has width 1."""

    states = torch.tensor([[0.0], [1.0]]).double()

    def __init__(self, width):
        super().__init__()
        self.log_width = nn.Parameter(torch.tensor(width).double().log())

    def log_density(self, x, z):
        """Compute log p(x, z)."""
        log_width = torch.where(z == 0, self.log_width, 0.0)
        return (Normal(0.0, log_width.exp()).log_prob(x) - log(2)).squeeze(-1)


def exact_posterior(model):
    """Enumerate the states of the latent variable, with their probabilities."""
    return SequentialPosterior([ExactStates(model)], 1)


# %%
# The climb
# ---------
# Each round takes the exact posterior of the model as it stands (the E-step), and then
# the width that maximises the objective at that posterior (the M-step).  We write down
# the model before each round.

model = Mixture(FIRST_WIDTH)
visited = [copy.deepcopy(model)]


def write_down(n_round, loss, change):
    """Keep a copy of the model."""
    visited.append(copy.deepcopy(model))


problem = Problem(model.log_density, exact_posterior(model), contrast)
variational_em(problem, model.parameters(), on_round=write_down, tol=1e-9)


def objective(model, posterior):
    """Compute the objective of VNCE for a model and a posterior."""
    return float(
        evaluate(Problem(model.log_density, posterior, contrast)).values.mean()
    )


def nce(model):
    """Compute the objective of NCE: that of VNCE at the exact posterior."""
    return objective(model, exact_posterior(model))


path = np.array([float(m.log_width.detach().exp()) for m in visited])
climbed = np.array([nce(m) for m in visited])
for n_round, (width, value) in enumerate(zip(path, climbed, strict=True)):
    print(f"round {n_round}: width {width:.4f}, NCE objective {value:.8f}")

# %%
# The bound touches NCE's objective at the width it was made for and lies below it
# elsewhere; whatever raises the bound therefore raises NCE, too.  The maximum of the
# bound is where the next round begins.

grid = np.linspace(2.5, 10, 100)
of_nce = np.array([nce(Mixture(width)) for width in grid])

shown = 0, 1, len(path) - 2
fig, axes = plt.subplots(1, 3, figsize=(10, 3.8), sharey=True, layout="constrained")
for ax, k in zip(axes, shown, strict=True):
    posterior = exact_posterior(visited[k])
    bound = [objective(Mixture(width), posterior) for width in grid]
    top = objective(visited[k + 1], posterior)
    ax.plot(grid, of_nce, color="#0072B2", label="NCE")
    ax.plot(grid, bound, color="#D55E00", label="bound, VNCE")
    ax.axvline(TRUE_WIDTH, color="0.6", lw=1, zorder=0, label="truth")
    ax.plot(path[k], climbed[k], "o", color="0.2", label="the round begins")
    ax.plot(path[k + 1], top, "s", color="#D55E00", label="maximum of the bound")
    ax.set(title=f"round {k + 1}", xlabel="width")
axes[0].set_ylabel("objective")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
plt.show()

# %%
# One round covers most of the way.  At the end the two curves meet in a common maximum:
# with the exact posterior, VNCE gives the estimate of NCE.  It is not quite the true
# width, since data and noise are samples.
