"""The page of `prediction.py`: several draws against other ways, and all scores."""

import numpy as np
from _report import Texts, made_by, table

TEXTS = Texts("prediction", globals())

MODELS = "linear", "trees"
COMPLETE, RAW, FILLED = "complete data", "raw NaN", "one filled table"
ONE, DRAWS = "one draw", "several draws"
WAYS = COMPLETE, RAW, FILLED, ONE, DRAWS
ERRORS = {True: "log-loss", False: "RMSE"}


def place(record):
    """Return the cell of a record."""
    return record["table"], record["mechanism"], record["seed"]


def pairs(results, way, other, **key):
    """Return the errors of two ways in the cells that have both, (n_cells, 2)."""
    first = {place(r): r["error"] for r in results.of(way=way, **key)}
    second = {place(r): r["error"] for r in results.of(way=other, **key)}
    return np.array([(first[c], second[c]) for c in first if c in second])


def comparison(results):
    """Compare several draws with the other ways, by models and targets."""
    rows = []
    for model in MODELS:
        for classes, error in ERRORS.items():
            for other in WAYS[:-1]:
                key = {"model": model, "classes": classes}
                found = pairs(results, DRAWS, other, **key)
                if not len(found):
                    continue
                ratio = np.exp(np.log(found[:, 0] / found[:, 1]).mean())
                lower = int((found[:, 0] < found[:, 1]).sum())
                cells = [f"{ratio:.3f}", f"{lower} of {len(found)}"]
                rows.append([model, error, other, *cells])
    header = ["model", "error", "several draws against", "ratio", "smaller in"]
    return table(header, rows)


def mean(records, name):
    """Average a score over records."""
    return float(np.mean([r[name] for r in records]))


def detail(results, classes, names):
    """Write the scores of each table, averaged over the splits."""
    rows = []
    tables = dict.fromkeys(r["table"] for r in results.of(classes=classes))
    mechanisms = dict.fromkeys(r["mechanism"] for r in results.records)
    for name in tables:
        for mechanism in mechanisms:
            for model in MODELS:
                for way in WAYS:
                    key = {"table": name, "mechanism": mechanism}
                    some = results.of(model=model, way=way, **key)
                    if some:
                        cells = [f"{mean(some, score):.3f}" for score in names]
                        seconds = f"{mean(some, 'seconds'):.1f}"
                        rows.append([name, mechanism, model, way, *cells, seconds])
    header = ["table", "missing", "model", "from", *names.values(), "CPU, s"]
    return table(header, rows)


def intervals(results):
    """Average coverage and length of intervals over tables and splits."""
    rows = []
    for model in MODELS:
        for way in WAYS:
            some = results.of(model=model, way=way, classes=False)
            if some:
                shares = [r["coverage"] for r in some]
                rows.append(
                    [
                        model,
                        way,
                        f"{np.mean(shares):.3f}",
                        f"{min(shares):.3f} to {max(shares):.3f}",
                        f"{mean(some, 'length'):.2f}",
                    ]
                )
    return table(["model", "from", "coverage", "in single cells", "length"], rows)


def calibration(results):
    """Average scores of probabilities over tables and splits."""
    rows = []
    for model in MODELS:
        for way in WAYS:
            some = results.of(model=model, way=way, classes=True)
            if some:
                names = ("error", "brier", "ece")
                rows.append([model, way, *(f"{mean(some, n):.3f}" for n in names)])
    return table(["model", "from", "log-loss", "Brier", "ECE"], rows)


def page(results, notes):
    """Write the page."""
    numbers = {"error": "RMSE", "coverage": "coverage", "length": "length"}
    classes = {"error": "log-loss", "brier": "Brier", "ece": "ECE"}
    seeds = len({r["seed"] for r in results.records})
    made = f"{notes} {seeds} splits, commits {results.commits()}."
    return [
        "# Prediction with missing values",
        made_by("prediction.py", made),
        TEXTS("RMSE and lengths of"),
        TEXTS("The rows of classes are"),
        "## Several draws against other ways",
        TEXTS("Geometric mean of ratios"),
        comparison(results),
        "## Probabilities of classes",
        calibration(results),
        "## Intervals of 90 %",
        intervals(results),
        "## Classification, by table",
        detail(results, True, classes),
        "## Regression, by table",
        detail(results, False, numbers),
    ]
