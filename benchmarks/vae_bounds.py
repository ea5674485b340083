"""Which bound fits a variational autoencoder best when half of the cells are missing?

    python benchmarks/vae_bounds.py [--results benchmarks/results/vae_bounds.jsonl]
        [--only-report] [--quick] [--output FILE]

Figures 2, 5 and 6 of Simkus and Gutmann (2024), Improving variational autoencoder
estimation from incomplete data with mixture variational families, at a smaller budget:
a mixture of 15 normals in five columns, half of the cells missing completely at random,
two latents.  The score is log p(x) of complete test rows, integrated over the plane of
the latents.  Fits that the file of results lacks are made, and added to it.
"""

import time
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from _paper import each
from _report import specs, table
from _runner import main_of
from _vae_networks import (
    COMPLETING,
    Autoencoder,
    D,
    encoder_of,
    half_cosine,
    imputers,
    log_seen,
    loss_of,
    minimise,
)
from torch.distributions import Normal

N_BELLS, MISSING = 15, 0.5
N_TRAIN, N_TEST = 20000, 1000
BATCH, RATE = 64, 3e-3
SEEDS = range(20, 25)  # the setting was chosen at others, 10 to 12
REACH, POINTS = 5.0, 160  # of the grid of latents
# the first from 2024 at which no bell makes half of the variance of a column: else the
# other fourteen are specks in it
DATA_SEED = 2027


class Study(NamedTuple):
    """A part of the page."""

    methods: list
    epochs: int
    budget: int  # draws, components or imputations of a row: the same for all
    # of the completing methods; see `_vae_networks.imputers`
    imputers: list | tuple = ("LAIR",)
    n_seeds: int = len(SEEDS)


STUDIES = {name: Study(**one) for name, one in specs("vae_bounds").items()}


def bells(rng):
    """Draw the mixture; weights, means (15, 5), roots of the covariances (15, 5, 5)."""
    weights = rng.dirichlet(np.ones(N_BELLS))
    means = 3 * rng.normal(size=(N_BELLS, D))
    squares = rng.normal(size=(N_BELLS, D, D))  # inverse Wishart, D degrees of freedom
    covariances = np.linalg.inv(squares @ squares.transpose(0, 2, 1))
    centre = weights @ means
    apart = means - centre
    second = covariances + apart[:, :, None] * apart[:, None]
    std = np.sqrt(np.einsum("k,kdd->d", weights, second))
    return weights, apart / std, np.linalg.cholesky(covariances) / std[:, None]


def simulate(truth, n, rng):
    """Draw rows of the mixture; (n, 5)."""
    weights, means, roots = truth
    which = rng.choice(N_BELLS, size=n, p=weights)
    noise = rng.normal(size=(n, D, 1))
    return means[which] + (roots[which] @ noise)[..., 0]


def log_truth(truth, x):
    """Compute the mean log-density of rows under the mixture itself."""
    weights, means, roots = map(torch.tensor, truth)
    q = torch.distributions.MultivariateNormal(means, scale_tril=roots)
    inside = q.log_prob(x.double().unsqueeze(1)) + weights.log()
    return float(inside.logsumexp(1).mean())


def hidden(x, rng):
    """Hide exactly half of the cells, by NaN; drop rows of which nothing is left."""
    order = rng.permutation(x.numel()).reshape(x.shape)
    observed = torch.tensor(order >= MISSING * x.numel())
    kept = observed.any(1)
    return x.where(observed, torch.nan)[kept], observed[kept]


def fit(method, x, observed, seed, epochs, budget, move):
    """Train models by a method, one to each of x (fits, n, D), side by side.

    Values of hidden cells are not used.
    """
    torch.manual_seed(seed)
    model, posterior = Autoencoder(len(x)), encoder_of(method, len(x), budget)
    minimise(
        loss_of(method, model, posterior, x, observed, budget, move),
        (model, posterior),
        lambda: torch.randperm(x.shape[1]).split(BATCH),
        epochs,
        RATE,
        half_cosine(epochs),
        amsgrad=True,
    )
    return model


@torch.no_grad()
def log_likelihood(model, x, n_fits, n_points=POINTS):
    """Integrate log p(x) of rows over the latents on a grid; the mean of each fit."""
    line = torch.linspace(-REACH, REACH, n_points)
    z = torch.cartesian_prod(line, line)
    cells = model.likelihood(z.expand(n_fits, -1, -1))
    cells = Normal(cells.loc.double(), cells.scale.double(), validate_args=False)
    log_mass = model.prior().log_prob(z) + 2 * torch.log(line[1] - line[0])
    found = []
    for part in x.double().split(20):  # larger tables are slow to allocate
        rows = part.expand(n_fits, -1, -1)
        log_p = log_seen(cells, rows, torch.ones_like(rows)) + log_mass
        found.append(log_p.logsumexp(-1))
    return torch.cat(found, -1).mean(-1).tolist()


class Table(NamedTuple):
    """What is fitted and scored: masked tables of all seeds, test rows, the truth."""

    truth: tuple
    x: torch.Tensor
    observed: torch.Tensor
    test: torch.Tensor


@lru_cache(1)
def simulated(seeds, n_train=N_TRAIN, n_test=N_TEST):
    """Make the tables; a seed has its own mask and start, the rows are the same."""
    rng = np.random.default_rng(DATA_SEED)
    truth = bells(rng)
    x, test = (torch.tensor(simulate(truth, n, rng)).float() for n in (n_train, n_test))
    data = [hidden(x, np.random.default_rng([DATA_SEED, seed])) for seed in seeds]
    n = min(len(kept) for kept, _ in data)  # a few rows less, to lie side by side
    parts = (torch.stack([part[:n] for part in one]) for one in zip(*data, strict=True))
    return Table(truth, *parts, test)


def sizes_of(options):
    """Return the numbers of rows to learn from and to test."""
    return (500, 50) if options.quick else (N_TRAIN, N_TEST)


def cells(options):
    """List the fits of the studies."""
    for name in options.studies:
        study, seeds = STUDIES[name], list(SEEDS)
        if options.quick:
            study, seeds = (
                study._replace(epochs=2, imputers=study.imputers[:2]),
                seeds[:2],
            )
        for imputer, method in product(study.imputers, study.methods):
            yield {
                "study": name,
                "imputer": imputer if method in COMPLETING else None,
                "method": method,
                "seeds": seeds[: study.n_seeds],
                "epochs": study.epochs,
                "budget": study.budget,
                "rows": sizes_of(options)[0],
            }


def measured(key, options):
    """Fit a method to all seeds; test log-likelihoods, errors of the grid, minutes."""
    seeds, begin = key["seeds"], time.perf_counter()
    data = simulated(tuple(seeds), *sizes_of(options))
    move = imputers(data.truth)[key["imputer"] or "LAIR"]
    effort = min(seeds), key["epochs"], key["budget"]
    model = fit(key["method"], data.x, data.observed, *effort, move)
    minutes = (time.perf_counter() - begin) / 60
    at, scores = (
        log_likelihood(model, data.test, len(seeds), n) for n in (POINTS, 2 * POINTS)
    )
    errors = np.abs(np.subtract(at, scores)).tolist()
    return {"scores": scores, "errors": errors, "minutes": minutes}


def values(results, options):
    """Make the score of the truth, and those of all seeds."""

    def row(record):
        names = [record["study"], record["imputer"] or "", record["method"]]
        return [*names, *each(record["scores"]), f"{record['minutes']:.1f}"]

    best = log_truth(*simulated(tuple(SEEDS[:1]), *sizes_of(options))[::3])
    header = ["study", "imputations", "method", "median", "by seed", "minutes"]
    return {"best": best, "scores": table(header, map(row, results.records))}


main = main_of(globals(), {}, studies=[*STUDIES])
