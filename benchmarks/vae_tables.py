"""Which sampler completes rows of real tables best, given a variational autoencoder?

    python benchmarks/vae_tables.py --results FILE [--only-report] [--quick]
        [--only table=uci_power seed=0]
        [--output FILE]

Figures 5, 9, 14 and 15 of Simkus and Gutmann (2023), Conditional sampling of
variational autoencoders via iterated approximate ancestral sampling: an autoencoder is
trained on complete rows; half of the cells of test rows are hidden, and each sampler
draws them with an equal number of network evaluations.  Each result is a line of FILE.
Those that are there are not computed again, and the report is written from FILE alone.
`--quick` runs a simulated table and needs no FILE.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from _autoencoders import trained
from _conditional_samplers import (
    ABLATIONS,
    FRACTIONS,
    METHODS,
    Problem,
    imputed,
    reference,
)
from _conditional_scores import (
    laplacian,
    rmse,
    rounded,
    row_energy,
    sinkhorn,
    squared_errors,
)
from _data import load, load_array
from _paper import along, medians, of_curve
from _report import specs
from _runner import main_of

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.metrics import energy_distance
from skvnce.missingness import mcar

HIDDEN = 0.5
EPS = 0.3  # of AC-MWG, as in the paper
HISTORY = 100
LOW = torch.tensor([0.0, 0.05, 0.5])  # quantiles of rows
DRAW_SEED = 100  # of the rows; samplers have seeds 0, 1, ...


class Study(NamedTuple):
    """Sizes of the study of one table."""

    n_latents: int  # of the autoencoder
    width: int
    dropout: float
    training: dict  # arguments of `_autoencoders.train`
    n_rows: int  # test rows
    n_steps: int  # iterations of five chains
    exact: dict  # arguments of `reference`


STUDIES = {name: Study(**one) for name, one in specs("vae_tables").items()}


# Tables


def power(rng):
    """Prepare POWER as Papamakarios, Pavlakou and Murray (2017) do."""
    frame = load("uci_power")
    names = [
        "Global_active_power",
        "Voltage",
        *(f"Sub_metering_{k}" for k in (1, 2, 3)),
    ]
    x = frame[[*names, "minute_of_day"]].dropna().to_numpy(float)
    x = x + rng.uniform(size=x.shape) * [1e-3, 1e-2, 1.0, 1.0, 1.0, 0.0]
    return np.split(rng.permutation(x), [len(x) * 9 // 10])


def simulated(rng):
    """Simulate rows around a curve in five columns, with two branches."""
    u = rng.uniform(-2, 2, size=2000)
    branch = rng.choice([-1, 1], size=2000)
    x = np.stack([u, branch * u**2, np.sin(2 * u), branch * u, u + branch], 1)
    return np.split(x + 0.1 * rng.normal(size=x.shape), [1600])


@cache
def rows_of(name):
    """Return standardised training and test rows, the latter in random order."""
    rng = np.random.default_rng(0)
    if name == "miniboone":
        both = [load_array(name, part).astype(float) for part in ("train", "test")]
        train_rows, test_rows = both[0], rng.permutation(both[1])
    else:
        train_rows, test_rows = {"uci_power": power, "simulated": simulated}[name](rng)
    mean, std = train_rows.mean(0), train_rows.std(0)
    return tuple(
        torch.tensor((x - mean) / std).float() for x in (train_rows, test_rows)
    )


def incomplete(name, n_rows):
    """Hide half of the cells of test rows; the truth and the incomplete rows."""
    _, rows = rows_of(name)
    hidden = mcar(rows.numpy(), HIDDEN, random_state=DRAW_SEED)
    some = torch.tensor(hidden.any(1))
    truth, observed = rows[some][:n_rows], ~torch.tensor(hidden)[some][:n_rows]
    return truth, Incomplete(truth * observed, observed)


@cache
def fitted(name):
    """Train the autoencoder of a table; with the bounds of training and test rows."""
    study, (train_rows, test_rows) = STUDIES[name], rows_of(name)
    parts = train_rows[: len(test_rows)], test_rows
    return trained(study, train_rows, parts, DRAW_SEED)


@cache
def exact_draws(name, seed):
    """Draw from p(x_mis | x_obs) by a long run; and what is known about it."""
    problem = problem_of(name)
    with seeded(1000 + seed), torch.no_grad():
        return reference(problem, **STUDIES[name].exact)


@cache
def problem_of(name):
    """Return the fitted autoencoder with the rows to complete."""
    study, (train_rows, _) = STUDIES[name], rows_of(name)
    bounds = 2 * train_rows.amin(0), 2 * train_rows.amax(0)
    _, data = incomplete(name, study.n_rows)
    return Problem(fitted(name)[0], data, study.n_steps, bounds, EPS, HISTORY)


# Measurements


def scores(name, x):
    """Score imputations row by row: squared errors, energy distances."""
    truth, _ = incomplete(name, STUDIES[name].n_rows)
    exact, _ = exact_draws(name, 0)
    return squared_errors(x, truth), row_energy(x, exact)


def measured(key, options):
    """Run one sampler and score it at all fractions of the budget."""
    name, method = key["table"], key["method"]
    if method == "exact":
        return of_exact(name)
    truth, data = incomplete(name, STUDIES[name].n_rows)
    problem, hidden = problem_of(name), ~data.observed
    exact_draws(name, 0)
    found, seconds = imputed(method, problem, key["seed"])
    curve = []
    for fraction, x in found.items():
        errors, energy = scores(name, x)
        curve.append([fraction, *rounded([rmse(errors, hidden), energy.mean()])])
    ended = final(x, truth, errors, energy)
    mae = sum(ended["absolute"]) / int(hidden.sum())
    return {"curve": curve, **ended, "mae": mae, "seconds": seconds}


def final(x, truth, errors, energy):
    """Score the imputations at the end, and by their distances to the true rows."""
    distances = {  # figures 5 and 15
        "sinkhorn": sinkhorn,
        "energy to truth": lambda one, y: energy_distance(one.numpy(), y.numpy()),
        "laplacian": laplacian,
    }
    found = {
        name: rounded([np.mean([distance(one, truth) for one in x])])[0]
        for name, distance in distances.items()
    }
    return found | {
        "absolute": rounded((x - truth).abs().sum(-1).mean(0).tolist()),
        "squared": rounded(errors.tolist()),
        "energy": rounded(energy.tolist()),
    }


def of_exact(name):
    """Score five draws of the reference, and those of another run of it."""
    truth, data = incomplete(name, STUDIES[name].n_rows)
    x, found = exact_draws(name, 1)
    x = x[:: len(x) // 5][:5]
    errors, energy = scores(name, x)
    vae, bounds, seconds = fitted(name)
    return {
        **{k: rounded(v.quantile(LOW).tolist()) for k, v in found.items()},
        "bounds": rounded(bounds),
        "training seconds": round(seconds, 1),
        "hidden": (~data.observed).sum(1).tolist(),
        "curve": [[1, *rounded([rmse(errors, ~data.observed), energy.mean()])]],
        **final(x, truth, errors, energy),
    }


def values(results, options):
    """Make medians of scores, at the end and along the budget."""
    given = results.records, ("table", "method")
    ends = {"sinkhorn": "Sinkhorn", "energy to truth": "energy to the truth"}
    ends |= {"laplacian": "Laplacian to the truth", "mae": "MAE", "seconds": "CPU s"}
    return {
        "ends": medians(*given, ends),
        "rmse": along(*given, FRACTIONS, of_curve(0)),
        "energy": along(*given, FRACTIONS, of_curve(1)),
    }


CASES = {
    "seed": range(3),
    "table": ["uci_power", "miniboone"],
    "method": ["exact", *METHODS, *ABLATIONS],
}


def possible(key):
    """Say that the reference has one seed."""
    return key["method"] != "exact" or not key["seed"]


main = main_of(globals(), {"seed": range(2), "table": ["simulated"]})
