"""How well do autoencoders that are fitted to incomplete tables describe complete rows?

    python benchmarks/vae_likelihood.py --results FILE [--only-report] [--quick]
        [--only table=uci_power method=mvae]
        [--output FILE]

Figure 3 of Simkus and Gutmann (2024), Improving variational autoencoder estimation from
incomplete data with mixture variational families.  Cells of training and validation
rows are hidden completely at random, under three masks, and a model for each mask is
trained side by side.  The score is the log-likelihood of complete test rows, by
importance sampling.  Each result is a line of FILE.  Those that are there are not
computed again, and the report is written from FILE alone.  `--quick` runs a simulated
table and needs no FILE.
"""

import math
import time
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from _autoencoders import adam_steps, independent
from _paper import each
from _report import table
from _runner import main_of
from _vae_networks import COMPLETING, Autoencoder, Store, encoder_of, loss_of
from vae_tables import rows_of

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import draw_latents, iwelbo, log_joint
from skvnce._core.random import global_stream
from skvnce.autoencoder.losses import averaged_log_prob, miss_iwae, miss_vae
from skvnce.missingness import mcar

TABLES = "uci_power", "miniboone"
METHODS = "mvae", "miss-svae", "miwae", "demiss-vae", "miss-siwae"
MASKS = range(3)
HIDDEN, BUDGET, BATCH, RATE, WIDTH = 0.5, 5, 128, 1e-3, 64
MAX_NORM = {"demiss-vae": 1.0}  # of gradients; 5 for the others
CHECKS = 20  # number of times that validation rows are scored
VALIDATED, REFITTED, SCORED = 50, 10, 10000  # draws of the latents of a row
descend = partial(adam_steps, amsgrad=True, fused=True)  # all fits do
LATENTS = {"uci_power": 16, "miniboone": 32, "simulated": 2}


class Sizes(NamedTuple):
    """Numbers of rows and of steps."""

    validation: int
    test: int
    steps: int
    refit: int
    rowwise: int
    draws: int


FULL = Sizes(500, 300, 3000, 600, 300, SCORED)
QUICK = Sizes(100, 30, 40, 20, 20, 50)


def incomplete(rows, masks):
    """Hide cells of rows under each mask, by NaN; (fits, n, d).

    Rows without an observed cell keep their first one.
    """
    hidden = np.stack([mcar(rows.numpy(), HIDDEN, random_state=m) for m in masks])
    hidden[..., 0] &= ~hidden.all(-1)
    observed = ~torch.tensor(hidden)
    return Incomplete(
        rows.expand(len(masks), -1, -1).where(observed, torch.nan), observed
    )


def split(name, sizes):
    """Return training and validation rows, incomplete, and complete test rows."""
    rows, test = rows_of(name)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    parts = rows[order[sizes.validation :]], rows[order[: sizes.validation]]
    masks = [[2 * mask + k for mask in MASKS] for k in range(2)]
    train, validation = map(incomplete, parts, masks)
    return train, validation, test[: sizes.test]


# Training


def clip(leaves, limit):
    """Limit the norm of the gradient of each fit."""
    slopes = [leaf.grad for leaf in leaves]
    norm = torch.cat([slope.flatten(1) for slope in slopes], 1).norm(dim=1)
    factor = (limit / norm).clamp(max=1.0)
    for slope in slopes:
        slope.mul_(factor.view(-1, *[1] * (slope.ndim - 1)))


@torch.no_grad()
def log_seen(model, posterior, part, store=None):
    """Estimate log p(x_obs) by importance sampling; the mean of each fit."""
    x, observed = part
    if store is None:
        q = posterior(x, observed)
        z = draw_latents(q, global_stream, VALIDATED, x.nan_to_num())
        log_q = q.log_prob(z)
    else:
        for _ in range(3):
            completed = store.update(model, posterior, torch.arange(x.shape[1]))
        q = posterior(completed, torch.ones_like(completed).bool())
        z = draw_latents(q, global_stream, VALIDATED // BUDGET, completed)
        log_q = averaged_log_prob(q, z).flatten(0, 1)
        z = z.flatten(0, 1)
    return iwelbo(log_joint(model, x, observed, z) - log_q).mean(1)


class Kept:
    """The weights of each fit that were the best for validation rows."""

    def __init__(self, model):
        self.model, self.best = model, torch.full((1,), -torch.inf)
        self.weights = [leaf.detach().clone() for leaf in model.parameters()]
        self.curve, self.steps = [], None

    def evaluate(self, step, scores):
        """Keep the weights of the fits with better scores (fits,)."""
        better = scores > self.best
        self.best = scores.maximum(self.best)
        at = torch.full(scores.shape, step)
        self.steps = at if self.steps is None else at.where(better, self.steps)
        for kept, leaf in zip(self.weights, self.model.parameters(), strict=True):
            kept[better] = leaf.detach()[better]
        self.curve.append(scores.tolist())

    def restore(self):
        """Give the model the weights that were kept."""
        with torch.no_grad():
            for kept, leaf in zip(self.weights, self.model.parameters(), strict=True):
                leaf.copy_(kept)


def fit(method, train, validation, n_latents, n_steps, seed=0):
    """Train a model for each mask, and return the best ones for validation rows.

    Hidden cells are NaN, so that no method can use them.  The learning rate decreases
    to zero along half a cosine.

    Returns
    -------
    model : Autoencoder
    kept : Kept
    """
    torch.manual_seed(seed)
    n_fits, n, d = train.x.shape
    model = Autoencoder(n_fits, WIDTH, d, n_latents)
    posterior = encoder_of(method, n_fits, BUDGET, WIDTH, d, n_latents)
    store = Store(*validation, BUDGET) if method in COMPLETING else None
    leaves = [*model.parameters(), *posterior.parameters()]  # (fits, ...)
    loss = loss_of(method, model, posterior, *train, BUDGET)
    kept = Kept(model)

    def loss_of_some():
        return loss(torch.randint(n, (BATCH,)))

    def evaluated(step):
        if step % (n_steps // CHECKS) == 0:
            kept.evaluate(step, log_seen(model, posterior, validation, store))

    limited = partial(clip, leaves, MAX_NORM.get(method, 5.0))
    descend(loss_of_some, leaves, RATE, n_steps, limited, evaluated)
    kept.restore()
    return model, kept


# Score


def proposals(model, rows, sizes):
    """Fit normal posteriors of complete rows to models that are held fixed.

    An encoder is trained by the ELBO.  From there, the means and deviations of each row
    are optimised by the ELBO and then by the importance-weighted bound: rows that the
    encoder does not reach would dominate the mean.
    """
    torch.manual_seed(0)
    n_fits, d = len(model.network.first.weight), rows.shape[1]
    model.requires_grad_(False)
    encoder = encoder_of("demiss-vae", n_fits, 1, WIDTH, d, model.n_latents)

    def of_encoder():
        some = rows[torch.randint(len(rows), (BATCH // 2,))].expand(n_fits, -1, -1)
        seen = torch.ones_like(some).bool()
        return -n_fits * miss_vae(model, encoder, some, seen, global_stream, 2).mean()

    descend(of_encoder, [*encoder.parameters()], RATE, sizes.refit)
    x = rows.expand(n_fits, -1, -1)
    seen = torch.ones_like(x).bool()
    with torch.no_grad():
        q = encoder(x, seen).base_dist
    loc, log_scale = (v.clone().requires_grad_() for v in (q.loc, q.scale.log()))

    def posterior(x, observed):
        return independent(loc, log_scale.exp())

    for bound in (miss_vae, miss_iwae):

        def of_rows(bound=bound):
            return -bound(model, posterior, x, seen, global_stream, REFITTED).sum()

        descend(of_rows, [loc, log_scale], 0.05, sizes.rowwise // 2)
    return posterior(x, seen)


@torch.no_grad()
def log_likelihood(model, q, rows, n_draws):
    """Estimate log p(x) of complete rows, and by half of the draws; (2, fits, n).

    Every fifth draw is from the posterior with twice its deviations, and all are
    weighted by the mixture of both.
    """
    found, n_fits = [], len(model.network.first.weight)
    wide = torch.arange(n_draws) % 10 < 2  # of every other draw, too
    factor = torch.where(wide, 2.0, 1.0).view(-1, 1, 1, 1)
    for at in torch.arange(len(rows)).split(2):  # larger tables are slow to allocate
        x = rows[at].expand(n_fits, -1, -1)
        everything = torch.ones_like(x).bool()
        loc, scale = (v[:, at].detach() for v in (q.base_dist.loc, q.base_dist.scale))
        z = loc + factor * scale * torch.randn(n_draws, *loc.shape)
        parts = [
            math.log(share) + independent(loc, k * scale).log_prob(z)
            for share, k in ((0.8, 1.0), (0.2, 2.0))
        ]
        log_q = torch.logaddexp(*parts)
        weight = (log_joint(model, x, everything, z) - log_q).double()
        found.append(torch.stack([iwelbo(weight), iwelbo(weight[::2])]))
    return torch.cat(found, -1)


def measured(key, options):
    """Fit a method to a table under all masks, and score test rows."""
    torch.distributions.Distribution.set_default_validate_args(False)
    name, begin = key["table"], time.process_time()
    sizes = QUICK if options.quick else FULL
    train, validation, test = split(name, sizes)
    model, kept = fit(key["method"], train, validation, LATENTS[name], sizes.steps)
    minutes = (time.process_time() - begin) / 60
    q = proposals(model, test, sizes)
    log_p, half = log_likelihood(model, q, test, sizes.draws)
    return {
        "rows": [[round(v, 3) for v in one] for one in log_p.tolist()],
        "gain of twice the draws": (log_p - half).mean(1).tolist(),
        "best step": kept.steps.tolist(),
        "validation": [[round(v, 3) for v in one] for one in kept.curve],
        "training rows": train.x.shape[1],
        "minutes": round(minutes, 2),
        "all minutes": round((time.process_time() - begin) / 60, 2),
    }


# Report


def scores(results):
    """Write the scores of all masks, and their errors over rows."""

    def row(record):
        by_row = np.mean(record["rows"], 0)
        error = f"{by_row.std(ddof=1) / len(by_row) ** 0.5:.3f}"
        gain = f"{max(record['gain of twice the draws']):.3f}"
        found = [*each(np.mean(record["rows"], 1)), error, gain, record["minutes"]]
        return [record["table"], record["method"], *found]

    header = ["table", "method", "median", "by mask", "error over rows"]
    header += ["gain of the last draws", "CPU minutes"]
    return table(header, map(row, results.records))


CASES = {"table": TABLES, "method": METHODS, "steps": [FULL.steps]}
main = main_of(globals(), {"table": ["simulated"], "steps": [QUICK.steps]})
