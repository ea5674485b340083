"""Figure 2 of the paper on mixture posteriors, with the number of steps of the paper.

    python benchmarks/vae_bounds_long.py --results FILE [--only-report] [--quick]
        [--only method=mvae]
        [--output doc/benchmarks/vae_bounds_long.md]

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families: 500 epochs of 20000 rows in batches of 64.
Data, masks and score are those of `vae_bounds.py`; the networks are narrower, three
seeds are fitted side by side, and the bounds are compiled.  Each result is a line of
FILE.  Those that are there are not computed again, and the report is written from FILE
alone.
"""

import math
import time

import _vae_networks
import numpy as np
import torch
import vae_bounds as study
from _report import Texts, differences, grid, table
from _runner import main_of

from skvnce.autoencoder.losses import BOUNDS, COMPLETED_BOUNDS

TEXTS = Texts("vae_bounds_long", globals(), vars(_vae_networks))

METHODS = (
    *("mvae", "miss-svae", "miss-vae", "miwae", "miss-siwae", "miss-iwae"),
    "demiss-vae",
)
SEEDS = range(20, 23)
BUDGET, RATE, WIDTH = 5, 1e-3, 32
# after which the fits are scored
STEPS = 500, 2000, 8000, 20000, 40000, 80000, 120000, 156000
QUICK = 20, 40


def compiled(method):
    """Compile the bound of a method for batches of one shape."""
    return torch.compile({**BOUNDS, **COMPLETED_BOUNDS}[method], dynamic=False)


def batches(n):
    """Draw rows without end: whole batches of all rows in random order, again."""
    while True:
        whole = torch.randperm(n)[: n - n % study.BATCH]
        yield from whole.split(study.BATCH)


def fit(method, data, seed, steps, on_score, bound=None):
    """Train a model for each seed, side by side, at a constant learning rate.

    Parameters
    ----------
    method : str
    data : vae_bounds.Table
        Hidden cells of x and the test rows are not used.
    seed : int
    steps : tuple of int
        Numbers of steps after which ``on_score(step, model)`` is called.
    bound : callable or None
        The compiled bound.
    """
    torch.manual_seed(seed)
    n_fits, n = data.x.shape[:2]
    model = study.Autoencoder(n_fits, WIDTH)
    posterior = study.encoder_of(method, n_fits, BUDGET, WIDTH)
    leaves = [*model.parameters(), *posterior.parameters()]
    adam = torch.optim.Adam(leaves, lr=RATE, amsgrad=True, fused=True)
    move = study.importance_resampled
    parts = model, posterior, data.x, data.observed
    loss = study.loss_of(method, *parts, BUDGET, move, bound)
    for step, rows in zip(range(1, steps[-1] + 1), batches(n), strict=False):
        adam.zero_grad()
        value = loss(rows)
        value.backward()
        adam.step()
        if step in steps:
            if not math.isfinite(float(value.detach())):
                raise ArithmeticError(f"{method}: the loss is {float(value)}.")
            on_score(step, model)
    return model


def measured(key, options):
    """Fit a method, and keep its scores after several numbers of steps."""
    torch.distributions.Distribution.set_default_validate_args(False)
    method, steps, records = key["method"], steps_of(options), []
    sizes = study.sizes_of(options)
    data = study.simulated(tuple(SEEDS), *sizes)
    begin = time.process_time()

    def score(step, model):
        minutes = (time.process_time() - begin) / 60
        last = step == steps[-1]
        points = (study.POINTS, 2 * study.POINTS) if last else (study.POINTS,)
        scores = [study.log_likelihood(model, data.test, len(SEEDS), n) for n in points]
        record = {"seeds": list(SEEDS), "step": step, "budget": BUDGET, "width": WIDTH}
        record |= {"rows": sizes[0], "scores": scores[-1], "minutes": minutes}
        if last:
            record["errors"] = np.abs(np.subtract(*scores)).tolist()
        records.append(record)

    bound = None if options.quick else compiled(method)
    fit(method, data, min(SEEDS), steps, score, bound)
    return records


def steps_of(options):
    """Return the numbers of steps after which fits are scored."""
    return QUICK if options.quick else STEPS


# Report


def final(results, method):
    """Return the last record of a method, or None."""
    found = results.of(method=method)
    return max(found, key=lambda record: record["step"], default=None)


def score_table(results, options):
    """Set the scores at the last step in a table."""
    rows = []
    for method in METHODS:
        if record := final(results, method):
            v = record["scores"]
            each = ", ".join(f"{score:.3f}" for score in v)
            error = np.std(v, ddof=1) / len(v) ** 0.5
            row = [method, record["step"], f"{np.mean(v):.3f} ± {error:.3f}", each]
            rows.append([*row, f"{record['minutes']:.1f}"])
    rows.append(["the truth itself", "", f"{study.best_score(options):.3f}", "", ""])
    head = ["method", "steps", "mean", "by seed", "CPU minutes, all seeds"]
    return table(head, rows)


def curve_table(results):
    """Set the means over seeds after different numbers of steps in a table."""

    def cell(method, step):
        record = results.find(method=method, step=step)
        return f"{np.mean(record['scores']):.2f}" if record else ""

    steps = sorted({record["step"] for record in results.records})
    return grid("steps", METHODS, steps, cell)


def pair_table(results):
    """Compare methods seed by seed, after equal numbers of steps."""
    rows = []
    for pair in study.SPECS["long"]["pairs"]:
        records = [final(results, method) for method in pair]
        if None not in records:
            step = min(record["step"] for record in records)
            both = [results.find(method=m, step=step)["scores"] for m in pair]
            apart = np.subtract(*both)
            error = apart.std(ddof=1) / len(apart) ** 0.5
            row = [" - ".join(pair), step, f"{apart.mean():+.3f} ± {error:.3f}"]
            rows.append([*row, f"{apart.mean() / error:+.1f}", *differences(apart)])
    head = ["pair", "steps", "mean", "in standard errors", "better", "by seed"]
    return table(head, rows)


def values(results, options):
    """Return what the page names besides."""
    missing = [name for name in METHODS if final(results, name) is None]
    absent = f"Not run, for lack of time: {', '.join(missing)}." if missing else ""
    errors = [e for one in results.records for e in one.get("errors", [])]
    changed = f", which changes a score by {max(errors):.0e} at most" if errors else ""
    seeds = {"first": SEEDS[0], "last": SEEDS[-1], "seeds": len(SEEDS)}
    sizes = {"sizes": study.sizes_of(options), "steps": STEPS[-1]}
    side = 2 * study.POINTS
    return seeds | sizes | {"side": side, "absent": absent, "changed": changed}


CASES = {"method": METHODS, "step": STEPS[-1:]}
main = main_of(globals(), {"step": QUICK[-1:]})
