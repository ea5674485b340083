"""Random intercepts from clustered tables with missing cells: bias and coverage.

    python benchmarks/groups_simulation.py [--methods complete ours flat id jomo pan
        mice_2lpan] [--repetitions 40] [--groups 30] [--rows 10] [--icc 0.3]
        [--mechanisms MCAR MAR] [--outcome number] [--results FILE] [--quick] [--check]
    python benchmarks/groups_report.py --output doc/benchmarks/groups.md

y = 1 + x / 2 + w / 2 + u + e; x varies within groups (ICC .2), w does not, u is of the
group. z = .4 x + .4 y + noise is known always and not analysed. 30 % of x and of y are
missing, at random (MCAR) or with a probability proportional to the rank of z (MAR). A
binary outcome is y > 1, and an ordinal one has four grades, divided at 0, 1 and 2; both
are analysed as numbers, with the truth from a large table. 20 completed tables are
analysed by REML with random intercepts and pooled by Rubin's rules. A line of the
results is a repetition of a method; what is there is not repeated.
"""

import warnings
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _groups_methods import METHODS, complete_tables, data_of_r, measure, numbers
from _runner import Some, options_of
from _validity_analyses import random_intercept
from scipy.stats import t as student

from skvnce.pooling import pool

RESULTS = Path(__file__).with_name("results") / "groups_simulation.jsonl"
ROLES = {"g": "group", "y": "row", "x": "row", "w": "group level", "z": "row"}
BETA, ICC_OF_X, SHARE, DRAWS = (1.0, 0.5, 0.5), 0.2, 0.3, 20
CUTS = {"binary": [0], "ordinal": [-1, 0, 1]}  # of y less its mean
DEFAULT = "complete", "ours", "flat", "id", "jomo", "pan", "mice_2lpan"
MECHANISMS = "MCAR", "MAR"


def simulate(rng, groups, rows, icc, outcome):
    """Draw a complete table."""
    g = np.repeat(np.arange(groups), rows)

    def clustered(share):
        between = rng.normal(size=groups)[g] * np.sqrt(share)
        return between + rng.normal(size=len(g)) * np.sqrt(1 - share)

    x, w = clustered(ICC_OF_X), rng.normal(size=groups)[g]
    y = np.column_stack([np.ones(len(g)), x, w]) @ BETA + clustered(icc)
    z = 0.4 * x + 0.4 * y + rng.normal(size=len(g))
    if outcome in CUTS:
        cuts = CUTS[outcome]
        grades = np.searchsorted(cuts, y - BETA[0])
        y = pd.Categorical(grades, range(len(cuts) + 1), ordered=len(cuts) > 1)
    return pd.DataFrame({"g": g, "y": y, "x": x, "w": w, "z": z})


def hide(rng, frame, mechanism):
    """Hide cells of x and y."""
    chance = np.full(len(frame), SHARE)
    if mechanism == "MAR":
        chance = 2 * SHARE * frame["z"].rank().to_numpy() / len(frame)
    hidden = rng.random((len(frame), 2)) < chance[:, None]
    cells = {name: frame[name].mask(hidden[:, k]) for k, name in enumerate(("x", "y"))}
    return frame.assign(**cells)


def analyse(cells, columns):
    """Fit y to x and w; coefficients, squared errors, variances and ICC."""
    g, y, x, w = (cells[:, columns.index(name)] for name in "gyxw")
    design = np.column_stack([np.ones(len(y)), x, w])
    beta, covariance, group, row = random_intercept(y, design, g.astype(int))
    return beta, np.diag(covariance), [group, row, group / (group + row)]


def pooled(draws, columns):
    """Analyse tables and pool; an interval of one table is that of Student's t.

    Degrees of freedom are those of groups, or of rows within them for x.
    """
    found = [analyse(one, columns) for one in draws]
    beta, squares, variances = (np.array(part) for part in zip(*found, strict=True))
    rows, groups = draws.shape[1], len(np.unique(draws[0, :, columns.index("g")]))
    ends = []
    for j, dof in enumerate([groups - 2, rows - groups - 1, groups - 2]):
        if len(draws) == 1:
            half = student.ppf(0.975, dof) * np.sqrt(squares[0, j])
            ends.append([beta[0, j] - half, beta[0, j] + half])
        else:
            ends.append(pool(beta[:, j], squares[:, j], dof).interval(0.95))
    low, high = np.array(ends, dtype=float).T
    estimate = [*beta.mean(0), *variances.mean(0)]
    return {"estimate": estimate, "low": low.tolist(), "high": high.tolist()}


@cache
def truth(icc, outcome):
    """Return the true coefficients, variances and ICC."""
    if outcome == "number":
        return [*BETA, icc, 1 - icc, icc]
    frame = simulate(np.random.default_rng(0), 50_000, 20, icc, outcome)
    beta, _, variances = analyse(numbers(frame), list(frame))
    return [*beta, *variances]


def measured(method, key, draws):
    """Simulate, complete and analyse."""
    sizes = key["groups"], key["rows"], key["icc"], key["outcome"]
    rng = np.random.default_rng([key["repetition"], *sizes[:2], int(1000 * key["icc"])])
    full = simulate(rng, *sizes)
    incomplete = hide(rng, full, key["mechanism"])
    if method == "complete":
        return pooled(numbers(full)[None], list(full)) | {"seconds": 0.0}
    tables, _, costs = complete_tables(
        method, incomplete, ROLES, draws, key["repetition"] + 1
    )
    return pooled(tables, list(full)) | costs


def run(results, options):
    """Compute what the results lack."""
    ways = product(range(options.repetitions), options.mechanisms, options.methods)
    names = "groups", "rows", "icc", "outcome"
    for repetition, mechanism, method in ways:
        key = {name: getattr(options, name) for name in names}
        key |= {"mechanism": mechanism, "repetition": repetition}
        if not results.has(**key, method=method):
            found = measured(method, key, options.draws)
            found["estimate"] = [float(value) for value in found["estimate"]]
            results.add(key | {"method": method, "draws": options.draws} | found)


def check(repetitions=5):
    """Compare the analysis with statsmodels, and standard errors with R's lme4.

    Those of statsmodels are from another information matrix.
    """
    from statsmodels.api import MixedLM

    for seed in range(repetitions):
        frame = simulate(np.random.default_rng(seed), 30, 8, 0.3, "number")
        beta, squares, (group, row, _) = analyse(numbers(frame), list(frame))
        design = np.column_stack([np.ones(len(frame)), frame["x"], frame["w"]])
        other = MixedLM(frame["y"].to_numpy(), design, groups=frame["g"]).fit()
        theirs = [*other.fe_params, other.cov_re[0, 0], other.scale]
        np.testing.assert_allclose([*beta, group, row], theirs, atol=1e-3)
        with TemporaryDirectory() as folder:
            file = Path(folder, "table.csv")
            frame.to_csv(file, index=False)
            model = f"lmer(y ~ x + w + (1 | g), read.csv('{file}'))"
            found = data_of_r("lme4", f"summary({model})$coefficients")
        theirs = found[["Estimate", "Std. Error"]].to_numpy().T
        np.testing.assert_allclose([beta, np.sqrt(squares)], theirs, rtol=1e-4)
    print(f"{repetitions} fits agree with statsmodels and lme4.")


def main():
    """Measure."""
    options = options_of(
        __doc__,
        {"results": None, "repetitions": 2, "draws": 5},
        methods=Some(DEFAULT, ["complete", *METHODS]),
        repetitions=40,
        groups=30,
        rows=10,
        icc=0.3,
        mechanisms=[*MECHANISMS],
        outcome="number",
        draws=DRAWS,
        results=str(RESULTS),
        check=False,
    )
    warnings.simplefilter("ignore")
    if options.check:
        return check()
    measure(run, options)
    return None


if __name__ == "__main__":
    main()
