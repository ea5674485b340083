"""Do sensitivity curves pass through the truth at the true shift?

    python benchmarks/sensitivity.py [--repetitions 200] [--output FILE]

Tables are those of `pooling_models.py` with cells missing at random (MAR, 30 % of x and
of the group), and then the missing values of x are lowered by one standard deviation of
the observed ones: they are missing not at random (MNAR). `sensitivity_curve` with
`GaussianImputer`, and delta adjustment by R's mice, assume shifts of 0 to -1.5 standard
deviations. The truth of the regressions is that of a table of a million rows.
"""

import argparse
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from _mice import installed
from _report import made_by, publish, table
from pooling_models import linear, logistic, simulate

from skvnce import GaussianImputer
from skvnce.pooling import sensitivity_curve

TRUE = -1.0
SHIFTS = (0.0, -0.5, TRUE, -1.5)
ANSWERS = ("mean of x", "y: x", "z: x")
DRAWS = 20


def lowered(full, incomplete, shift=TRUE):
    """Lower the values of x that are missing."""
    spread = incomplete["x"].std()
    return full.assign(x=full["x"] + incomplete["x"].isna() * shift * spread)


def mean_of_x(frame):
    """Fit a constant to x."""
    return smf.ols("x ~ 1", frame).fit()


def three_answers(frame):
    """Return the three estimates of a complete table, and variances."""
    fits = [mean_of_x(frame), linear(frame), logistic(frame)]
    both = list(zip(fits, ["Intercept", "x", "x"], strict=True))
    estimates = np.array([fit.params[name] for fit, name in both])
    return estimates, np.array([fit.bse[name] ** 2 for fit, name in both])


def truth(rows=1_000_000):
    """Return the answers of a table that is so large that they hardly vary."""
    full, incomplete = simulate(np.random.default_rng(1), "MAR", n=rows)
    return three_answers(lowered(full, incomplete))[0]


def ours(incomplete, seed):
    """Return estimates and intervals (shifts, 3, answers), and seconds of a shift."""
    start = time.process_time()
    imputer = GaussianImputer(random_state=seed).set_output(transform="pandas")
    imputer.fit(incomplete)
    shifts = [{"x": shift} for shift in SHIFTS]
    curve = sensitivity_curve(imputer, incomplete, three_answers, shifts, DRAWS, seed)
    seconds = (time.process_time() - start) / len(SHIFTS)
    found = [(one.estimate, *one.interval(0.95)) for one in curve.pooled]
    return np.array(found), seconds


def mice(incompletes):
    """Return those of delta adjustment by mice, for all tables."""
    script = Path(__file__).with_name("_sensitivity_mice.R")
    with TemporaryDirectory() as folder:
        tables, out = Path(folder, "tables.csv"), Path(folder, "out.csv")
        numbered = [one.assign(table=k) for k, one in enumerate(incompletes)]
        pd.concat(numbered).to_csv(tables, index=False)
        asked = [str(DRAWS), ",".join(map(str, SHIFTS))]
        subprocess.run(["Rscript", script, tables, out, *asked], check=True)
        answers = pd.read_csv(out)
    shape = len(incompletes), len(SHIFTS), len(ANSWERS), 3
    found = answers[["estimate", "low", "high"]].to_numpy().reshape(shape)
    return found.swapaxes(2, 3), answers["seconds"].mean()


def crossing(estimates, value):
    """Find the shift at which the line through estimates (shifts,) has a value."""
    slope, start = np.polyfit(SHIFTS, estimates, 1)
    return (value - start) / slope


def rows_of(way, found, right):
    """Write the lines of one way; found is (repetitions, shifts, 3, answers)."""
    lines = []
    for k, shift in enumerate(SHIFTS):
        estimate, low, high = found[:, k].swapaxes(0, 1)
        bias = estimate.mean(0) - right
        covered = ((low < right) & (right < high)).mean(0)
        pairs = zip(bias, covered, strict=True)
        cells = [f"{one:+.3f}, {share:.1%}" for one, share in pairs]
        lines.append([way, f"{shift:g}" + " (true)" * (shift == TRUE), *cells])
    middle = found[:, :, 0].mean(0)
    places = [crossing(middle[:, k], right[k]) for k in range(len(right))]
    return lines, [way, *(f"{place:.2f}" for place in places)]


def main():
    """Run the simulation and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--output")
    options = parser.parse_args()
    rng, right = np.random.default_rng(0), truth()
    pairs = [simulate(rng, "MAR") for _ in range(options.repetitions)]
    found = [ours(part, seed) for seed, (_, part) in enumerate(pairs)]
    ways = {"GaussianImputer": np.array([one for one, _ in found])}
    seconds = {"GaussianImputer": np.mean([spent for _, spent in found])}
    if installed():
        ways["mice"], seconds["mice"] = mice([part for _, part in pairs])
    cells, crossings = [], []
    for way, one in ways.items():
        lines, places = rows_of(way, one, right)
        cells += lines
        crossings.append([*places, f"{seconds[way]:.1f}"])
    error = np.sqrt(0.95 * 0.05 / options.repetitions)
    notes = f"{options.repetitions} repetitions; standard error of a cell {error:.1%}."
    parts = [
        "# Sensitivity curves where values are missing not at random",
        made_by("sensitivity.py", notes),
        "n = 300. x and a group of three levels miss 30 % of their cells, more where y "
        "and z are large. The missing values of x are then lowered by one standard "
        "deviation of the observed ones. Analyses: the mean of x, and its coefficients "
        "in a linear (y) and in a logistic (z) regression on x and the group. Cells: "
        "bias, and coverage of 95 % intervals.",
        table(["", "assumed shift of x", *ANSWERS], cells),
        "Where the line through the mean estimates has the true value (the shift is "
        f"{TRUE:g}), and seconds of CPU for one shift with {DRAWS} draws; those of "
        "GaussianImputer contain the analyses, those of mice do not:",
        table(["", *ANSWERS, "seconds"], crossings),
    ]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
