"""Mixtures of tables of 44 to 200 columns: with factors, of one component, and before.

    python benchmarks/wide_mixtures.py

Simulated tables have normal clusters with means and three factors of their own.  Real
tables are random rows and columns; columns in which one value has 70 % of the cells,
or of which half is missing, are left out.  Of faces and digits the means of 2 x 2
pixels are taken, of counts the logarithm of one more.  Cells are hidden completely at
random, and scores are of these cells of the training rows, in standard deviations of
the columns: RMSE of `transform`, and CRPS of 20 draws.

`--before` measures `MixtureImputer()` of the package that is imported as the one before
factors, which has one component from 100 columns on; results accumulate in `--results`.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from _data import load, load_array
from _report import made_by, publish
from _report import table as markdown
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from skvnce import GaussianImputer, MixtureImputer
from skvnce.metrics import crps, imputation_rmse

SIZES = "500x60x4 1000x100x4 1000x200x4 500x60x1 1000x100x1 500x200x1".split()
METHODS = {
    "GaussianImputer": GaussianImputer,
    "one component": lambda **more: MixtureImputer(1, **more),
    "MixtureImputer": MixtureImputer,
}
BEFORE = "before"
SHARES = 0.3, 0.5
SITES = ["ID", "XCOO", "YCOO", "ELEV", "COUN", "ASP", "TOPC", "LITO"]


def clusters(size, seed=0, n_factors=3):
    """Draw a table of a size such as 500x60x4: rows, columns and clusters."""
    n, d, n_clusters = map(int, size.split("x"))
    rng = np.random.default_rng(seed)
    of = rng.integers(n_clusters, size=n)
    loadings = rng.normal(size=(n_clusters, d, n_factors)) / n_factors**0.5
    means = 0.7 * rng.normal(size=(n_clusters, d))
    factors = rng.normal(size=(n, n_factors))
    common = np.einsum("ndq,nq->nd", loadings[of], factors)
    return means[of] + common + 0.6 * rng.normal(size=(n, d))


def some(X, n=1000, d=120, seed=0):
    """Choose rows, and columns that vary."""
    rng = np.random.default_rng(seed)
    X = np.asarray(X, dtype=float)[rng.permutation(len(X))[:n]]
    kept = [j for j, x in enumerate(X.T) if most(x[~np.isnan(x)]) < 0.7 * len(X)]
    kept = [j for j in kept if np.isnan(X[:, j]).mean() < 0.5]
    return X[:, np.sort(rng.permutation(kept)[:d])]


def most(x):
    """Count the cells of the most frequent value."""
    return np.unique(x, return_counts=True)[1].max(initial=0)


def numbers(name):
    """Read the columns of numbers of a table."""
    return load(name).drop(columns=SITES, errors="ignore").select_dtypes("number")


def pixels(name, width):
    """Read images, and average 2 x 2 pixels."""
    images = load_array(name, "x").astype(float)
    parts = images.reshape(len(images), -1, 2, width // 2, 2)
    return parts.mean((2, 4)).reshape(len(images), -1)


REAL = {
    "miniboone": lambda: some(load_array("miniboone", "train"), 2000),
    "digits": lambda: some(load_digits().data, 1797),
    "kola_chorizon": lambda: some(numbers("kola_chorizon")),
    "american_gut": lambda: some(numbers("american_gut")),
    "tcga_brca_rnaseq": lambda: some(np.log1p(numbers("tcga_brca_rnaseq"))),
    "tcga_breast_multiomics": lambda: some(numbers("tcga_breast_multiomics")),
    "zeisel_scrna": lambda: some(np.log1p(numbers("zeisel_scrna"))),
    "frey_faces": lambda: some(pixels("frey_faces", 20)),
    "mnist": lambda: some(pixels("mnist", 28), 2000),
}


def measured(name, share, method):
    """Fit, fill and draw."""
    full = REAL[name]() if name in REAL else clusters(name)
    hidden = np.random.default_rng(1).random(full.shape) < share
    hidden &= ~np.isnan(full)
    X, unit = np.where(hidden, np.nan, full), {"scale": np.nanstd(full, 0)}
    imputer = METHODS.get(method, MixtureImputer)(random_state=0)
    begin = time.process_time()
    filled = imputer.fit_transform(X)
    seconds = time.process_time() - begin
    draws = imputer.sample(X, 20, random_state=0, as_array=True)
    kind = [getattr(imputer, f"n_{key}_", 0) for key in ("components", "factors")]
    return {
        "table": name,
        "share": share,
        "method": method,
        "size": "x".join(map(str, full.shape)),
        "RMSE": imputation_rmse(full, filled, hidden, **unit),
        "CRPS": crps(full, draws, hidden, **unit),
        "seconds": seconds,
        "kind": kind,
    }


def report(lines):
    """Write a table of each score, and geometric means of ratios."""
    found = {(x["table"], x["share"], x["method"]): x for x in lines}
    for key, one in [*found.items()]:
        if key[2] == "one component" and int(one["size"].split("x")[1]) >= 100:
            found[*key[:2], BEFORE] = one
    methods = [*METHODS, BEFORE]
    keys = [key for key in dict.fromkeys(k[:2] for k in found)]
    keys = [key for key in keys if all((*key, one) in found for one in methods)]
    for score, digits in (("RMSE", 3), ("CRPS", 3), ("seconds", 1)):
        rows = []
        for key in keys:
            own = found[*key, "MixtureImputer"]
            cells = [f"{found[*key, one][score]:.{digits}f}" for one in methods]
            size, kind = own["size"], "{}, {}".format(*own["kind"])
            rows.append([f"{key[0]} {size} {key[1]:.0%}", *cells, kind])
        yield f"## {score}"
        yield markdown(["table", *methods, "components, factors"], rows)
        yield markdown(["MixtureImputer to", *methods], ratios(found, keys, score))


def ratios(found, keys, score):
    """Compute geometric means of ratios over kinds of tables."""
    kinds = {
        "real": lambda name: name in REAL,
        "clusters": lambda name: name.endswith("x4"),
        "one cluster": lambda name: name.endswith("x1"),
    }
    for kind, has in kinds.items():
        row = [kind]
        for method in (*METHODS, BEFORE):
            logs = [
                np.log(
                    found[*key, "MixtureImputer"][score] / found[*key, method][score]
                )
                for key in keys
                if has(key[0])
            ]
            row.append(f"{np.exp(np.mean(logs)):.3f} (most {np.exp(max(logs)):.3f})")
        yield row


def main(arguments=None):
    """Measure what is lacking, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default="benchmarks/results/wide_mixtures.jsonl")
    parser.add_argument("--tables", nargs="+", default=[*REAL, *SIZES])
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args(arguments)
    path = Path(options.results)
    lines = [*map(json.loads, path.read_text().splitlines())] if path.exists() else []
    done = {(one["table"], one["share"], one["method"]) for one in lines}
    warnings.simplefilter("ignore")
    todo = [
        (name, share, method)
        for name in options.tables
        for share in SHARES
        for method in ([BEFORE] if options.before else METHODS)
        if (name, share, method) not in done and not options.only_report
    ]
    for one in todo:
        with threadpool_limits(1):
            lines.append(measured(*one))
        with path.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
        print(lines[-1], flush=True)
    notes = " ".join(__doc__.split("\n\n")[2].split())
    parts = ["# Mixtures of many columns", made_by("wide_mixtures.py", notes)]
    publish([*parts, *report(lines)], options.output)


if __name__ == "__main__":
    main()
