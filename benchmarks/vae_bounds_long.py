"""Figure 2 of the paper on mixture posteriors, with the number of steps of the paper.

    python benchmarks/vae_bounds_long.py --results FILE [--only-report] [--quick]
        [--methods mvae miss-svae miss-vae miwae miss-siwae miss-iwae demiss-vae]
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
from _command import options_of
from _report import Results, Texts, commit, made_by, publish, table

from skvnce.autoencoder.losses import BOUNDS, COMPLETED_BOUNDS

TEXTS = Texts("vae_bounds_long", globals(), vars(_vae_networks))

METHODS = (
    "mvae",
    "miss-svae",
    "miss-vae",
    "miwae",
    "miss-siwae",
    "miss-iwae",
    "demiss-vae",
)
SEEDS = range(20, 23)
BUDGET, RATE, WIDTH = 5, 1e-3, 32
STEPS = (
    500,
    2000,
    8000,
    20000,
    40000,
    80000,
    120000,
    156000,
)  # of which the fits are scored
QUICK = 20, 40
PAIRS = [
    ("miss-svae", "mvae"),
    ("miss-vae", "mvae"),
    ("miss-svae", "miss-vae"),
    ("miwae", "mvae"),
    ("miss-siwae", "miwae"),
    ("miss-iwae", "miwae"),
    ("miss-siwae", "miss-svae"),
    ("demiss-vae", "mvae"),
    ("demiss-vae", "miss-svae"),
    ("demiss-vae", "miwae"),
]


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


def measure(method, seeds, sizes, steps, results, compiles):
    """Fit a method, and add its scores to the results as they come."""
    data = study.simulated(seeds, *sizes)
    here, begin = commit(), time.process_time()

    def score(step, model):
        minutes = (time.process_time() - begin) / 60
        n_fits = len(seeds)
        last = step == steps[-1]
        points = (study.POINTS, 2 * study.POINTS) if last else (study.POINTS,)
        scores = [study.log_likelihood(model, data.test, n_fits, n) for n in points]
        record = {
            "method": method,
            "seeds": list(seeds),
            "step": step,
            "budget": BUDGET,
            "width": WIDTH,
            "rows": sizes[0],
            "scores": scores[-1],
            "minutes": minutes,
            "commit": here,
        }
        if last:
            record["errors"] = np.abs(np.subtract(*scores)).tolist()
        if results.find(method=method, step=step) is None:
            results.add(record)

    fit(method, data, min(seeds), steps, score, compiled(method) if compiles else None)


# Report


def final(results, method):
    """Return the last record of a method, or None."""
    found = [record for record in results.records if record["method"] == method]
    return max(found, key=lambda record: record["step"], default=None)


def score_table(results, truth):
    """Set the scores at the last step in a table."""
    rows = []
    for method in METHODS:
        record = final(results, method)
        if record is None:
            continue
        v = record["scores"]
        each = ", ".join(f"{score:.3f}" for score in v)
        error = np.std(v, ddof=1) / len(v) ** 0.5
        row = [method, record["step"], f"{np.mean(v):.3f} ± {error:.3f}", each]
        rows.append([*row, f"{record['minutes']:.1f}"])
    rows.append(["the truth itself", "", f"{truth:.3f}", "", ""])
    head = ["method", "steps", "mean", "by seed", "CPU minutes, all seeds"]
    return table(head, rows)


def curve_table(results):
    """Set the means over seeds after different numbers of steps in a table."""
    steps = sorted({record["step"] for record in results.records})
    rows = []
    for method in METHODS:
        found = [results.find(method=method, step=step) for step in steps]
        if any(found):
            means = ["" if r is None else f"{np.mean(r['scores']):.2f}" for r in found]
            rows.append([method, *means])
    return table(["steps", *steps], rows)


def pairs(results):
    """Compare methods seed by seed, after equal numbers of steps; the differences."""
    found = {}
    for better, other in PAIRS:
        records = final(results, better), final(results, other)
        if None not in records:
            step = min(record["step"] for record in records)
            both = [results.find(method=m, step=step) for m in (better, other)]
            found[better, other] = step, np.subtract(*(r["scores"] for r in both))
    return found


def pair_table(results):
    """Set the differences in a table, in standard errors over seeds."""
    rows = []
    for (better, other), (step, apart) in pairs(results).items():
        error = apart.std(ddof=1) / len(apart) ** 0.5
        each = ", ".join(f"{d:+.3f}" for d in apart)
        row = [f"{better} - {other}", step, f"{apart.mean():+.3f} ± {error:.3f}"]
        wins = f"{int((apart > 0).sum())} of {len(apart)}"
        rows.append([*row, f"{apart.mean() / error:+.1f}", wins, each])
    head = ["pair", "steps", "mean", "in standard errors", "better", "by seed"]
    return table(head, rows)


def setting(results, sizes):
    """Say what was done, and where it is less than in the paper."""
    commits = ", ".join(sorted({str(one["commit"]) for one in results.records}))
    missing = [name for name in METHODS if final(results, name) is None]
    return (
        TEXTS(
            "normals in columns, rows",
            sizes=sizes,
            first=min(SEEDS),
            last=max(SEEDS),
            steps=STEPS[-1],
        )
        + " "
        + (
            f"Not run, for lack of time: {', '.join(missing)}.\n\n"
            if missing
            else "\n\n"
        )
        + TEXTS(
            "Score: mean log p(x) of",
            locals(),
            side=2 * study.POINTS,
            steps=STEPS[-1],
            changed=changed(results),
            seeds=len(SEEDS),
        )
    )


def changed(results):
    """Say what the finer grid changes, if there are fits of all steps."""
    errors = [e for one in results.records for e in one.get("errors", [])]
    return f", which changes a score by {max(errors):.0e} at most" if errors else ""


def report(results, truth, sizes, found):
    """Write the page."""
    note = "One thread; the seeds are fitted side by side."
    return [
        "# Bounds for variational autoencoders, with the steps of the paper",
        made_by("vae_bounds_long.py", note),
        setting(results, sizes),
        "## Log-likelihood of complete test rows (figure 2)",
        score_table(results, truth),
        "## Differences",
        pair_table(results),
        "## By the number of steps",
        curve_table(results),
        *found,
    ]


FOUND = TEXTS("found")


def main():
    """Measure what is lacking and report."""
    options = options_of(
        __doc__, {}, results=..., only_report=False, methods=[*METHODS]
    )
    quick = options.quick
    sizes = (500, 50) if quick else (study.N_TRAIN, study.N_TEST)
    steps = QUICK if quick else STEPS
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    results = Results(options.results)
    for method in [] if options.only_report else options.methods:
        if results.find(method=method, step=steps[-1]) is None:
            measure(method, SEEDS, sizes, steps, results, not quick)
            print(method, final(results, method)["scores"], flush=True)
    rng = np.random.default_rng(study.DATA_SEED)
    truth = study.bells(rng)
    study.simulate(truth, sizes[0], rng)
    rows = torch.tensor(study.simulate(truth, sizes[1], rng))
    best = study.log_truth(truth, rows.float())
    found = [] if quick else ["## What was found", FOUND]
    publish(report(results, best, sizes, found), options.output)


if __name__ == "__main__":
    main()
