"""
==================================================
What shape the posterior of VNCE takes, and when
==================================================

Where no q(z | x) of the family is exact, an objective has to choose what to get wrong.
The evidence lower bound (ELBO) spreads q as the Kullback-Leibler divergence says.
Variational NCE keeps q closer to one mode while noise is scarce, and comes to the
ELBO's q as noise grows.
"""

# %%
# The model
# ---------
# Two latent variables, of which a row shows the product, twice, with noise of variance
# 0.3.  A product does not determine its factors: the true posterior is a cross or a
# pair of arcs.  We look at three rows.

from math import log

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Ellipse
from torch.distributions import Independent, MultivariateNormal, Normal

from skvnce.contrast.objective import divergence

VARIANCE = 0.3
LANDMARKS = (0.0, -1.0, 4.0)  # both coordinates of x


def log_joint(x, z):
    """Compute log p(x, z)."""
    log_prior = Normal(0.0, 1.0).log_prob(z).sum(-1)
    product = Normal(z.prod(-1, keepdim=True), VARIANCE**0.5)
    return log_prior + product.log_prob(x).sum(-1)


def plane(line, weights):
    """Make a rule for integrals over the plane from one for the line."""
    pairs = torch.cartesian_prod(*[torch.arange(len(line))] * 2)
    return line[pairs], weights[pairs].prod(-1)


side = torch.linspace(-6, 6, 401).double()
GRID, CELLS = plane(side, torch.full_like(side, float(side[1] - side[0])))
nodes, weights = map(torch.tensor, np.polynomial.hermite_e.hermegauss(40))
NODES, WEIGHTS = plane(nodes, weights / weights.sum())


def log_evidence(x):
    """Compute log p(x), by summing over a grid."""
    return torch.logsumexp(log_joint(x, GRID) + CELLS.log(), 0)


# %%
# Two divergences
# ---------------
# q is a normal with independent coordinates: a mean and two scales for each row.  Both
# objectives are a divergence of q from the true posterior; that of VNCE depends on how
# rare the noise is at the row.  The noise here is diffuse, N(0, 30 I).


def normal(v):
    """Make q from its four numbers."""
    return Independent(Normal(v[:2], v[2:].exp()), 1)


def log_q_over_joint(v, x):
    """Compute log q(z | x) - log p(x, z) at the nodes; (n_nodes, 1)."""
    q = normal(v)
    z = q.mean + q.stddev * NODES
    return (q.log_prob(z) - log_joint(x, z))[:, None]


def fit(loss, x):
    """Minimise from a start on one arm of the posterior."""
    sign = 1.0 if x[0] >= 0 else -1.0
    v = torch.tensor([1.5, sign, -0.5, -0.7]).double().requires_grad_()
    solver = torch.optim.LBFGS([v], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        value = loss(v)
        value.backward()
        return value

    solver.step(closure)
    return normal(v.detach())


def fit_elbo(x):
    """Maximise the ELBO."""
    return fit(lambda v: (WEIGHTS[:, None] * log_q_over_joint(v, x)).sum(), x)


NOISE = MultivariateNormal(torch.zeros(2).double(), 30 * torch.eye(2).double())


def fit_vnce(x, nu):
    """Minimise the divergence of VNCE, at nu rows of noise for each row of data."""
    evidence, log_weight = log_evidence(x), WEIGHTS.log()[:, None]
    log_ratio = (evidence - NOISE.log_prob(x))[None]

    def loss(v):
        log_q_over_p = log_q_over_joint(v, x) + evidence
        return divergence(log_q_over_p, log_ratio, nu, log_weight)[0]

    return fit(loss, x)


# %%
# Side by side
# ------------
# The shade is the true posterior; each ellipse holds 90 % of a q.  The posterior at
# x = (4, 4) has a second arc beyond the edge, at negative factors, and that at (-1, -1)
# has one in the opposite corner: a normal can take only one.

COLORS = {1: "#D55E00", 10: "#E69F00", 100: "#009E73"}
REACH = (2 * log(10)) ** 0.5  # of 90 % of a normal in the plane, in standard deviations
ROWS = {f"x = ({value:g}, {value:g})": value for value in LANDMARKS}


def ellipse(q, **style):
    """Outline 90 % of q."""
    width, height = (2 * REACH * q.stddev).tolist()
    return Ellipse(q.mean.tolist(), width, height, fill=False, lw=2, **style)


fig, axes = plt.subplots(1, 3, figsize=(10, 3.8), layout="constrained")
for ax, (title, coordinate) in zip(axes, ROWS.items(), strict=True):
    x = torch.full((2,), coordinate).double()
    density = log_joint(x, GRID).exp().view(len(side), -1).T
    ax.contourf(side, side, density / density.max(), 12, cmap="Greys", alpha=0.7)
    for nu, color in COLORS.items():
        ax.add_patch(ellipse(fit_vnce(x, nu), ec=color, label=f"VNCE, nu = {nu}"))
    best = fit_elbo(x)
    ax.add_patch(ellipse(best, ec="#0072B2", ls="--", label="ELBO"))
    middle, reach = best.mean, 3.5 * best.stddev.max()
    low, high = (middle - reach).tolist(), (middle + reach).tolist()
    ax.set(title=title, xlabel="$z_1$", aspect="equal")
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
axes[0].set_ylabel("$z_2$")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %%
# How much narrower
# -----------------
# Where the model is much denser than nu times the noise, the divergence of VNCE is in
# proportion to chi-squared, the mean of q / p less one: it punishes a q that spills
# over the posterior harder than Kullback and Leibler do.

ratios = np.logspace(-1, 4, 11)
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for (name, coordinate), marker in zip(ROWS.items(), "osD", strict=True):
    x = torch.full((2,), coordinate).double()
    target = fit_elbo(x).stddev.mean()
    spreads = [float(fit_vnce(x, nu).stddev.mean() / target) for nu in ratios]
    ax.semilogx(ratios, spreads, marker=marker, label=name)
    print(name, np.round(spreads, 3))
ax.axhline(1, color="0.6", lw=1, zorder=0)
ax.set(xlabel="nu, rows of noise for each row of data")
ax.set(ylabel="standard deviation of q, ELBO's = 1")
ax.legend(frameon=False)
plt.show()

# %%
# The standard deviation grows with the noise, to that of the ELBO.  How much noise
# this needs depends on the row: at x = (4, 4) the model is no denser than this diffuse
# noise, and the two agree early.
