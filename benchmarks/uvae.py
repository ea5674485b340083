"""Intervals for shares of rows above the mean: the protocol of U-VAE.

    python benchmarks/uvae.py [--only table=banknote rate=0.1] [--results FILE]
        [--only-report] [--output doc/benchmarks/uvae.md] [--quick]

Four fifths of a table are kept, and cells of all columns are missing: MCAR, or in 70 %
of the columns with a probability logistic in the others, which are complete (MAR,
Muzellec et al. 2020). The estimand of each column of numbers is the share of rows above
its mean; intervals are 1.96 standard errors of Rubin's rules on either side, and should
contain the share of the complete rows. A line of the results is a run; what is there is
not repeated.
"""

from itertools import product
from pathlib import Path

import numpy as np
from _data import load
from _report import by, grid, mean, specs, table
from _runner import main_of
from _validity_methods import NAMES, completed
from protocol_tables import mar_columns
from sklearn.model_selection import train_test_split

from skvnce.pooling import pool

RESULTS = Path(__file__).with_name("results") / "uvae.jsonl"
MECHANISMS, RATES = ("MCAR", "MAR"), (0.1, 0.3, 0.5, 0.7, 0.9)
DRAWS = 20  # completed tables
# coverage and bias, the mean over eleven tables that the authors report
REPORTED = specs("uvae")  # (mechanism and share, or table): coverage and bias
TABLES = REPORTED["classes"]


def complete_rows(name, seed):
    """Return the rows to impute, and the columns of numbers that are analysed."""
    frame = load(name).drop(columns=["id"] if name == "wdbc" else [])
    classes = TABLES[name]
    frame, _ = train_test_split(frame, test_size=0.2, random_state=seed)
    frame = frame.reset_index(drop=True)
    columns = [column for column in frame if column != classes]
    if classes and name != "wine_red":
        frame = frame.assign(**{classes: "class " + frame[classes].map(str)})
    return frame.astype(dict.fromkeys(columns, float)), columns


def hidden_cells(frame, mechanism, rate, seed):
    """Say which cells are missing."""
    rng = np.random.default_rng([seed, MECHANISMS.index(mechanism), int(100 * rate)])
    if mechanism == "MCAR":
        return rng.random(frame.shape) < rate
    codes = [column.rank(method="dense").to_numpy() for _, column in frame.items()]
    numbers = [
        column.to_numpy() if column.dtype.kind == "f" else code
        for (_, column), code in zip(frame.items(), codes, strict=True)
    ]
    X = np.column_stack(numbers).astype(float)
    X = (X - X.mean(0)) / X.std(0)
    return mar_columns(X, rng, rate)


def shares(frame, columns):
    """Return the share of rows above the mean, and its variance, of each column."""
    X = frame[columns].to_numpy(float)
    share = (X > X.mean(0)).mean(0)
    return share, share * (1 - share) / len(X)


def scores_of(tables, full, columns):
    """Return coverage, bias and width."""
    truth = shares(full, columns)[0]
    estimates, variances = map(
        np.array, zip(*(shares(one, columns) for one in tables), strict=True)
    )
    if len(tables) == 1:
        estimate, error = estimates[0], np.sqrt(variances[0])
    else:
        pooled = pool(estimates, variances)
        estimate, error = pooled.estimate, pooled.standard_error
    distance = np.abs(estimate - truth)
    return {
        "coverage": float((distance < 1.96 * error).mean()),
        "bias": round(float(distance.mean()), 5),
        "width": round(float(2 * 1.96 * error.mean()), 5),
    }


def measured(key, options):
    """Impute and analyse."""
    place, method, seed = [key["mechanism"], key["rate"]], key["method"], key["seed"]
    full, columns = complete_rows(key["table"], seed)
    hidden = hidden_cells(full, *place, seed)
    rows = full if method == "complete" else full.mask(hidden)
    tables, seconds = completed(method, rows, seed, options.draws)
    found = {"draws": options.draws, "seconds": round(seconds, 2)}
    if isinstance(tables, Exception):
        return found | {"error": str(tables)[:200]}
    return found | scores_of(tables, full, columns)


def cell(coverage, bias, width=None):
    """Write coverage, bias and width."""
    end = "" if width is None else f", {width:.3f}"
    return f"{coverage:.3f} ({bias:.4f}{end})"


def mean_cell(records):
    """Write the means of records over tables, and how many tables or failures."""
    answers = by([one for one in records if "coverage" in one], "table").values()
    if not answers:
        return "-"
    scores = ("coverage", "bias", "width")
    means = [np.mean([mean(some, score) for some in answers]) for score in scores]
    failures = sum("coverage" not in record for record in records)
    return cell(*means) + (f", {failures} failures" if failures else "")


def extent(results, method):
    """Name a method with the number of its tables and seeds."""
    records = results.of(method=method)
    counts = {key: len({r[key] for r in records}) for key in ("table", "seed")}
    words = [f"{n} {key}{'s' if n > 1 else ''}" for key, n in counts.items()]
    return f"{NAMES[method]} ({', '.join(words)})"


def tables(results):
    """Write the tables over tables, and by table."""
    methods = [m for m in NAMES if results.has(method=m)]
    for mechanism in MECHANISMS:
        rates = [r for r in RATES if results.has(mechanism=mechanism, rate=r)]
        keys = {f"{r:.0%} missing": {"mechanism": mechanism, "rate": r} for r in rates}
        rows = {extent(results, m): m for m in methods}
        places = [f"{mechanism} {r}" for r in rates]
        others = reported("shares", places, "reported (11 tables)")
        yield f"## {mechanism}, mean over tables"
        yield scores(results, rows, keys, others)
    for mechanism, rate in product(MECHANISMS, (0.3, 0.7)):
        key = {"mechanism": mechanism, "rate": rate}
        keys = {name: key | {"table": name} for name in TABLES}
        is_theirs = (mechanism, rate) == ("MCAR", 0.3)
        others = reported("tables", TABLES, "reported") if is_theirs else ()
        yield f"## {mechanism}, {rate:.0%} missing"
        yield scores(results, {NAMES[m]: m for m in methods}, keys, others)


def scores(results, methods, keys, others):
    """Write a table of methods and keys, with lines of others."""
    lines = [
        [label, *(mean_cell(results.of(method=m, **key)) for key in keys.values())]
        for label, m in methods.items()
    ]
    return table(["method", *keys], [*lines, *others])


def reported(kind, places, words):
    """Yield the lines of figures that others report."""
    for name, of in REPORTED[kind].items():
        pairs = [of.get(place) for place in places]
        yield [f"{name}, {words}", *(cell(*pair) if pair else "" for pair in pairs)]


def seconds_table(results):
    """Set the seconds in a table."""

    def seconds(method, name):
        some = [r["seconds"] for r in results.of(method=method, table=name)]
        return f"{np.median(some):.1f}" if some else ""

    timed = {
        n: m for m, n in NAMES.items() if m != "complete" and results.has(method=m)
    }
    return grid("method", timed, TABLES.keys(), seconds)


CASES = {
    "seed": range(5),
    "method": ["complete", "table", "gaussian", "mice", "iterative"],
    "table": TABLES,
    "mechanism": MECHANISMS,
    "rate": RATES,
}
QUICK = {"results": None, "seed": [0], "draws": 5, "table": ["banknote"], "rate": [0.3]}
QUICK |= {"method": ["complete", "gaussian"]}
main = main_of(globals(), QUICK, draws=DRAWS, results=str(RESULTS))
