"""Time of fit, transform and sample of each estimator, in two versions of the package.

    python benchmarks/estimator_times.py --before ../old --repetitions 5

`--before` is the folder of another checkout.  The versions take turns, each in a
process of its own, so that other processes slow both.  The result is the ratio of the
medians of the repetitions, for each estimator, shape and method; without `--before` it
is the time of the processor in seconds.  Deep models are trained for one round.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from _report import made_by, publish, table

SHAPES = {"small": (150, 4), "medium": (5000, 20), "large": (200_000, 20)}
DRAWN = {"n_estimators": 1, "n_steps": 2, "n_draws": 8}
LARGE = {"GaussianImputer", "IncompleteFactorAnalysis"}  # others take minutes
ROOT = Path(__file__).parents[1]


def estimators():
    """Make one of each class, with few rounds."""
    public = import_module("skvnce")
    try:  # of the version before, whose options were in the package
        options = import_module("skvnce.options")
    except ImportError:
        options = public
    vae = {"max_iter": 1, "hidden_layer_sizes": (8,), "random_state": 0}
    fixed = {"random_state": 0}
    density = options.IncompleteDensity("vae", max_iter=1)
    found = {
        "GaussianImputer": public.GaussianImputer(n_parameter_draws=3, **fixed),
        "CopulaGraphLearner": public.CopulaGraphLearner(max_iter=8, **fixed),
        "TruncatedGaussianGraphLearner": public.TruncatedGaussianGraphLearner(
            max_iter=5, n_steps=5, **fixed
        ),
        "VNCEEstimator": public.VNCEEstimator(max_iter=3, **fixed),
        "VariationalAutoencoder": public.VariationalAutoencoder(**vae),
        "LAIRImputer": public.LAIRImputer(
            public.VariationalAutoencoder(**vae), **DRAWN, **fixed
        ),
        "VGIImputer": public.VGIImputer(density, **DRAWN, **fixed),
        "IncompleteFactorAnalysis": public.IncompleteFactorAnalysis(2),
    }
    if hasattr(public, "MixtureImputer"):  # a version before has none
        found["MixtureImputer"] = public.MixtureImputer(
            5, n_estimators=2, max_iter=3, **fixed
        )
    return found


def example(shape):
    """Make a positive table of correlated columns, a fifth of it missing."""
    rng = np.random.default_rng(0)
    X = np.exp((rng.normal(size=(shape[0], 1)) + rng.normal(size=shape)) / 3)
    X[rng.random(shape) < 0.2] = np.nan
    return X


def calls(one, X):
    """Yield the methods of an estimator, and functions that call them."""
    one.fit(X[:100]).transform(X[:100])  # loads modules, and compiled loops
    yield "fit", partial(one.fit, X)
    yield "transform", partial(one.transform, X)
    if hasattr(one, "sample"):
        yield "sample", partial(one.sample, X, 2, random_state=0)


def times(shapes, names):
    """Measure this version: seconds by estimator, shape and method."""
    found = {}
    warnings.simplefilter("ignore")
    for name, one in estimators().items():
        if names and name not in names:
            continue
        for size in shapes:
            if size == "large" and name not in LARGE:
                continue
            repeats = 20 if size == "small" else 1
            for method, call in calls(one, example(SHAPES[size])):
                if size == "small":
                    call()  # loads what only this method uses
                start = time.process_time()
                for _ in range(repeats):
                    call()
                seconds = (time.process_time() - start) / repeats
                found[f"{name} {size} {method}"] = seconds
    return found


def measured(folder, shapes, names):
    """Run this script in a process with the version in a folder."""
    command = [sys.executable, __file__, "--measure"]
    command += ["--shapes", *shapes, "--names", *names]
    path = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=path, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--names", nargs="*", default=[], help="default: all")
    parser.add_argument("--quick", action="store_true", help="small tables, once")
    parser.add_argument("--output")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(times(given.shapes, given.names)))
        return
    if given.quick:
        given.shapes, given.repetitions = ["small"], 1
    folders = [ROOT] if given.before is None else [given.before.resolve(), ROOT]
    runs = [
        [measured(folder, given.shapes, given.names) for folder in folders]
        for _ in range(given.repetitions)
    ]
    publish(report(runs), given.output)


def report(runs):
    """Compare the versions: the parts of the page.

    An estimator that the version before has not got has no ratio.
    """
    rows, ratios = [], []
    for key in runs[0][-1]:
        before, now = (
            np.median([run[k].get(key, np.nan) for run in runs]) for k in (0, -1)
        )
        ratios.append(now / before)
        ratio = "" if np.isnan(before) else f"{now / before:.2f}"
        rows.append([*key.split(), f"{now:.3g}", ratio])
    mean, largest = np.exp(np.nanmean(np.log(ratios))), np.nanmax(ratios)
    return [
        "# Time of estimators before and after the redesign",
        made_by("estimator_times.py", "Seconds of the processor, one thread."),
        "Before is the commit 4f6f29c. Rows and columns: 150 x 4 (small, mean of 20 "
        "calls), 5,000 x 20 (medium), 200,000 x 20 (large). A fifth of the cells is "
        f"missing. Deep models train for one round. Medians of {len(runs)} runs, in "
        "which the versions take turns.",
        table(["estimator", "shape", "method", "seconds", "ratio to before"], rows),
        f"Geometric mean {mean:.3f} (goal: at most 1.02), largest {largest:.2f} (goal: "
        "at most 1.10).",
    ]


if __name__ == "__main__":
    main()
