"""Do pooled 95 % intervals of linear and logistic regressions cover the truth?

    python benchmarks/pooling_models.py [--repetitions 200] [--output FILE]

y is linear and z (yes or no) logistic in a number x and in a group of three levels,
n = 300. Cells of x and of the group are missing: 30 % of each completely at random
(MCAR), or 34 % with a probability that grows with y and z (MAR). 20 tables are
completed by `GaussianImputer`, by `MixtureImputer`, and by R's mice with its default
methods, which also pools them.
"""

import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from _mice import installed
from _report import Texts, made_by, publish, table
from _runner import options_of
from scipy.special import expit, logit

from skvnce import GaussianImputer, MixtureImputer
from skvnce.missingness import hide
from skvnce.pooling import fit_each, pool_models

TEXTS = Texts("pooling_models", globals())

LINEAR, LOGISTIC = (1.0, 0.5, -0.5, 0.5), (-0.3, 0.6, -0.5, 0.7)
TRUTH = np.array([*LINEAR, *LOGISTIC])
TERMS = ("intercept", "group b", "group c", "x")
LEVELS = np.array(["a", "b", "c"])
IN_R = [0, 2, 3, 1, 4, 6, 7, 5]  # where R has the coefficients: it puts x second
DRAWS = 20
OURS = (GaussianImputer, MixtureImputer)


def simulate(rng, mechanism, n=300):
    """Draw a complete table, and a copy with missing cells."""
    x = rng.normal(size=n)
    scores = np.column_stack([np.zeros(n), 0.8 * x - 0.3, -0.6 * x - 0.2])
    codes = (scores + rng.gumbel(size=(n, 3))).argmax(1)
    design = np.column_stack([np.ones(n), codes == 1, codes == 2, x])
    y = design @ LINEAR + rng.normal(size=n)
    z = rng.uniform(size=n) < expit(design @ LOGISTIC)
    frame = pd.DataFrame(
        {
            "x": x,
            "group": pd.Categorical.from_codes(codes, LEVELS),
            "y": y,
            "z": pd.Categorical(np.where(z, "yes", "no"), ["no", "yes"]),
        }
    )
    chance = np.full(n, 0.3)
    if mechanism == "MAR":
        chance = expit(logit(0.3) + 0.8 * (y - 1) + 0.8 * (z - 0.45))
    hidden = np.zeros((n, 4), dtype=bool)
    hidden[:, :2] = rng.uniform(size=(n, 2)) < chance[:, None]
    return frame, hide(frame, hidden)


def linear(frame):
    """Regress y."""
    return smf.ols("y ~ group + x", frame).fit()


def logistic(frame):
    """Regress z."""
    frame = frame.assign(yes=(frame["z"] == "yes").astype(float))
    return smf.glm("yes ~ group + x", frame, family=sm.families.Binomial()).fit()


def pooled_intervals(draws):
    """Return both ends of the intervals of all coefficients."""
    pooled = [pool_models(fit_each(one, draws)) for one in (linear, logistic)]
    return np.hstack([one.interval(0.95) for one in pooled])


def intervals_alone(frame):
    """Return both ends of the intervals of one table."""
    return np.vstack([one(frame).conf_int() for one in (linear, logistic)]).T


def ours(make, incomplete, seed):
    """Return intervals from draws of an imputer, and its seconds of CPU."""
    start = time.process_time()
    imputer = make(random_state=seed).set_output(transform="pandas")
    draws = imputer.fit(incomplete).sample(incomplete, n_draws=DRAWS, random_state=seed)
    seconds = time.process_time() - start
    return pooled_intervals(draws), seconds


def mice(incompletes):
    """Return intervals from mice, for all tables, and its seconds of CPU."""
    script = Path(__file__).with_name("_pooling_mice.R")
    with TemporaryDirectory() as folder:
        tables, out = Path(folder, "tables.csv"), Path(folder, "out.csv")
        numbered = [one.assign(table=k) for k, one in enumerate(incompletes)]
        pd.concat(numbered).to_csv(tables, index=False)
        subprocess.run(["Rscript", script, tables, out, str(DRAWS)], check=True)
        answers = pd.read_csv(out)
    found = [one for _, one in answers.groupby("table")]
    ends = [one[["low", "high"]].to_numpy().T[:, IN_R] for one in found]
    return ends, [one["seconds"].iloc[0] for one in found]


def covers(ends):
    """Say which intervals hold the truth."""
    low, high = ends
    return (low < TRUTH) & (TRUTH < high)


def study(mechanism, repetitions):
    """Return intervals (repetitions, 2, coefficients) by way, and seconds."""
    rng = np.random.default_rng(0)
    pairs = [simulate(rng, mechanism) for _ in range(repetitions)]
    found = {"complete data": [intervals_alone(full) for full, _ in pairs]}
    seconds = {}
    for make in OURS:
        answers = [ours(make, one, seed) for seed, (_, one) in enumerate(pairs)]
        seconds[make.__name__] = np.mean([answer[1] for answer in answers])
        found[make.__name__] = [answer[0] for answer in answers]
    if installed():
        found["mice"], spent = mice([incomplete for _, incomplete in pairs])
        seconds["mice"] = np.mean(spent)
    found["complete rows only"] = [intervals_alone(part.dropna()) for _, part in pairs]
    return {way: np.array(ends) for way, ends in found.items()}, seconds


def rows_of(mechanism, found, seconds):
    """Write the lines of the two tables of one mechanism."""
    coverage, width = [], []
    reference = np.diff(found["complete data"], axis=1).mean((0, 1))
    for way, ends in found.items():
        share = np.mean([covers(one) for one in ends], axis=0)
        spent = f"{seconds[way]:.1f}" if way in seconds else ""
        cells = [f"{value:.1%}" for value in (*share, share.mean())]
        coverage.append([mechanism, way, *cells, spent])
        ratio = np.diff(ends, axis=1).mean((0, 1)) / reference
        width.append([mechanism, way, *(f"{value:.2f}" for value in ratio)])
    return coverage, width


def main():
    """Run the simulation and report."""
    options = options_of(__doc__, repetitions=200)
    coverage, width = [], []
    for mechanism in ("MCAR", "MAR"):
        lines = rows_of(mechanism, *study(mechanism, options.repetitions))
        coverage += lines[0]
        width += lines[1]
    names = [f"{model}: {term}" for model in ("y", "z") for term in TERMS]
    error = np.sqrt(0.95 * 0.05 / options.repetitions)
    notes = f"{options.repetitions} repetitions; standard error of a cell {error:.1%}."
    parts = [
        "# Coverage of pooled linear and logistic regressions",
        made_by("pooling_models.py", notes),
        TEXTS("Of x and of the"),
        table(["missing", "analysis", *names, "mean", "seconds"], coverage),
        "Mean widths of the intervals, in those of the complete data:",
        table(["missing", "analysis", *names], width),
    ]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
