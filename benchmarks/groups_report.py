"""The page of clustered tables, from the results of a simulation and of real tables.

    python benchmarks/groups_simulation.py
    python benchmarks/groups_real.py
    python benchmarks/groups_report.py [--simulation FILE] [--real FILE]
        [--output doc/benchmarks/groups.md]

Methods that lack a repetition or a table are shown with the number of those they have.
"""

import groups_real
import groups_simulation
import numpy as np
from _groups_methods import METHODS
from _report import Results, Texts, made_by, publish, table
from _runner import options_of
from groups_real import SETTINGS, TABLES
from groups_simulation import truth

TEXTS = Texts("groups", globals())

NAMES = {
    "complete": "complete data",
    "ours": "GaussianImputer(groups)",
    "ours_slopes": "GaussianImputer, slopes on time",
    "flat": "GaussianImputer, no group",
    "id": "GaussianImputer, group as category",
    "wide": "GaussianImputer, a row a group",
    "jomo": "jomo",
    "jomo_200": "jomo, 200 between draws",
    "pan": "pan",
    "mice_2lpan": "mice, 2l.pan",
    "mice_2lnorm": "mice, 2l.norm",
    "mice_pmm": "mice, pmm",
}
COEFFICIENTS = "b0", "b1 (x)", "b2 (w)"
VARIANCES = "variance of groups", "of rows", "ICC"
KEYS = "groups", "rows", "icc", "outcome", "mechanism"
REFERENCE = "flat"
SIMULATED = TEXTS("simulated")
REAL = TEXTS("real", names=NAMES[REFERENCE])
RIVALS = TEXTS("rivals")


def ordered(records):
    """List the methods of records, in the order of `NAMES`."""
    found = {one["method"] for one in records}
    return [name for name in NAMES if name in found]


def errors_of(values):
    """Return a mean as text, with its standard error."""
    values = np.asarray(values)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():+.3f} ({error:.3f})"


def arrays(results, method, key):
    """Return estimates and ends of intervals of a method, a row a repetition."""
    found = results.of(**key, method=method)
    names = "estimate", "low", "high", "seconds"
    return [np.array([one[name] for one in found]) for name in names]


def simulated(results, key):
    """Write the tables of a setting of the simulation."""
    true = np.array(truth(key["icc"], key["outcome"]))
    bias, cover = [], []
    complete = arrays(results, "complete", key)
    wide = (complete[2] - complete[1]).mean(0) if len(complete[0]) else np.nan
    for method in ordered(results.of(**key)):
        estimate, low, high, seconds = arrays(results, method, key)
        errors = [errors_of(one) for one in (estimate - true).T]
        bias.append([NAMES[method], len(estimate), *errors])
        covered = ((low < true[:3]) & (true[:3] < high)).mean(0)
        width = (high - low).mean(0) / wide
        shares = [f"{value:.1%}" for value in (*covered, covered.mean())]
        ratios = [f"{value:.2f}" for value in width]
        time = "" if method == "complete" else f"{seconds.mean():.2f}"
        cover.append([NAMES[method], *shares, *ratios, time])
    sizes = f"{key['groups']} groups of {key['rows']} rows, ICC {key['icc']:g}"
    title = f"### {sizes}, {key['mechanism']}"
    if key["outcome"] != "number":
        title += f", {key['outcome']} outcome"
    header = ["method", "repetitions", *COEFFICIENTS, *VARIANCES]
    widths = [f"width {name}" for name in COEFFICIENTS]
    words = ["method", *COEFFICIENTS, "mean", *widths, "seconds"]
    return [
        title,
        "Bias (standard error):",
        table(header, bias),
        "Coverage of 95 % intervals, and their widths:",
        table(words, cover),
    ]


def settings(results):
    """List the settings of the simulation."""
    found = {tuple(one[name] for name in KEYS) for one in results.records}
    return [dict(zip(KEYS, values, strict=True)) for values in sorted(found)]


def ratios(results, method, score, setting, tables):
    """List the ratio of a method to the reference of each table, a mean over seeds."""
    found = {}
    for one in results.of(method=method, setting=setting):
        same = {name: one[name] for name in ("table", "setting", "seed")}
        other = results.find(method=REFERENCE, **same)
        if one["table"] in tables and other:
            found.setdefault(one["table"], []).append(one[score] / other[score])
    return [geometric_mean(values) for values in found.values()]


def geometric_mean(values):
    """Return a geometric mean."""
    return np.exp(np.mean(np.log(values)))


def geometric(values):
    """Return a geometric mean as text."""
    return f"{geometric_mean(values):.3f}" if len(values) else "-"


def real(results, setting):
    """Write the tables of a setting of the real tables."""
    records = results.of(setting=setting)
    tables = [name for name in TABLES if any(one["table"] == name for one in records)]
    visits = {one["table"] for one in records if one["method"] == "wide"}
    parts = [f"### {setting}"]
    for score, title in (("crps", "CRPS"), ("rmse", "RMSE of the mean of the draws")):
        lines = []
        for method in ordered(records):
            own = [results.of(setting=setting, method=method, table=t) for t in tables]
            cells = [
                f"{np.mean([one[score] for one in part]):.3f}" if part else "-"
                for part in own
            ]
            means = [
                geometric(ratios(results, method, score, setting, some))
                if all(
                    results.has(setting=setting, method=method, table=t) for t in some
                )
                else "-"
                for some in (tables, visits)
            ]
            lines.append([NAMES[method], *cells, *means])
        header = ["method", *tables, "ratio", "ratio, planned visits"]
        parts += [f"{title}:", table(header, lines)]
    return [
        *parts,
        *single_values(results, setting),
        *seconds(results, setting, tables),
    ]


def single_values(results, setting):
    """Compare `transform` with the mean of the draws, in numeric columns."""
    lines = []
    for method in ordered(results.of(setting=setting)):
        both = [
            one["rmse_transform"] / one["rmse_numbers"]
            for one in results.of(setting=setting, method=method)
            if "rmse_transform" in one
        ]
        if both:
            lines.append([NAMES[method], geometric(both)])
    title = "RMSE of `transform` over that of the mean of the draws, numeric columns:"
    return [title, table(["method", "ratio"], lines)]


def seconds(results, setting, tables):
    """Write seconds of CPU."""
    lines = []
    for method in ordered(results.of(setting=setting)):
        cells = []
        for name in tables:
            part = results.of(setting=setting, method=method, table=name)
            spent = np.mean([one["seconds"] for one in part]) if part else None
            cells.append("-" if spent is None else f"{spent:.2f}")
        lines.append([NAMES[method], *cells])
    title = "Seconds of CPU, fit and 20 draws:"
    return [title, table(["method", *tables], lines)]


def page(simulation, observed):
    """Write the page."""
    versions = {
        one["version"]
        for one in simulation.records + observed.records
        if "version" in one
    }
    parts = ["# Clustered tables: random intercepts"]
    notes = "Measured by `groups_simulation.py` and `groups_real.py`."
    parts += [made_by("groups_report.py", notes)]
    commits = sorted(
        {str(one["commit"]) for one in simulation.records + observed.records}
    )
    parts += [f"Commits: {', '.join(commits)}. R: {', '.join(sorted(versions))}."]
    parts += [RIVALS, "## Simulation", SIMULATED]
    for key in settings(simulation):
        parts += simulated(simulation, key)
    parts += ["## Real tables", REAL]
    for setting in SETTINGS:
        if observed.has(setting=setting):
            parts += real(observed, setting)
    return parts


def main():
    """Report."""
    options = options_of(
        __doc__,
        simulation=str(groups_simulation.RESULTS),
        real=str(groups_real.RESULTS),
    )
    assert {*METHODS, "complete"} == {*NAMES}
    parts = page(Results(options.simulation), Results(options.real))
    publish(parts, options.output)


if __name__ == "__main__":
    main()
