"""The page of the study of flows."""

import _flows
import numpy as np
from _flows import BINS, FLOW, table_of
from _report import Texts, made_by, table

TEXTS = Texts("vgi_flows", globals(), vars(_flows))

NEAR_END = 0.1  # nats below the best validation score
LAST = 20  # seconds
SECONDS = 10, 20, 40, 80, 120
EPOCHS = 50, 150, 200, 300, 400, 600, 800
HEADS = {"normal": "normal, by EM", "complete": "flow, complete rows"}


def chosen(records, **key):
    """Select the records with these entries, in the order of their masks."""
    found = [r for r in records if all(r.get(k) == v for k, v in key.items())]
    return sorted(found, key=lambda record: record.get("mask", 0))


def cells(records):
    """List tables and fractions."""
    found = {(r["table"], r["fraction"]) for r in records if r.get("fraction")}
    return sorted(found, key=lambda cell: (cell[1], cell[0] != "uci_power", cell[0]))


def percent(fraction):
    """Write a fraction."""
    return f"{100 * fraction:.0f} %"


def mean_and_error(values):
    """Compute a mean and its standard error."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return values.mean(), error


def written(values):
    """Write a mean with its standard error, if there is one."""
    if len(values) < 2:
        return ", ".join(f"{value:.2f}" for value in values)
    return "{:.2f} ({:.2f})".format(*mean_and_error(values))


def of_cell(records, name, fraction, method):
    """Select the records of a method in a cell."""
    at = 0.0 if method == "complete" else fraction
    return chosen(records, table=name, fraction=at, method=method)


def score_table(records, methods):
    """Set the scores at the end in a table (figure 10)."""
    shown = [m for m in (*methods, "normal", "complete") if chosen(records, method=m)]
    rows = [
        [
            name,
            percent(fraction),
            *(
                written([r["score"] for r in of_cell(records, name, fraction, method)])
                for method in shown
            ),
        ]
        for name, fraction in cells(records)
    ]
    return table(["table", "missing", *(HEADS.get(m, m) for m in shown)], rows)


def differences(records, name, fraction, method, rival):
    """Subtract the scores of a rival, mask by mask."""
    first, second = (
        {r["mask"]: r["score"] for r in of_cell(records, name, fraction, m)}
        for m in (method, rival)
    )
    return [first[mask] - second[mask] for mask in sorted(first.keys() & second.keys())]


def verdict(values):
    """Write a mean difference, its standard error, and who is ahead."""
    mean, error = mean_and_error(values)
    if len(values) < 2:
        return f"{mean:+.2f}"
    if not abs(mean) > 2 * error:
        who = "level"
    else:
        who = "ahead" if mean > 0 else "**behind**"
    each = ", ".join(f"{value:+.2f}" for value in values)
    return f"{mean:+.2f} ({error:.2f}), {who}; {each}"


def difference_table(records, rivals, method="VGI"):
    """Compare a method with others on the same masks."""
    rows = []
    for name, fraction in cells(records):
        found = [differences(records, name, fraction, method, m) for m in rivals]
        rows.append(
            [name, percent(fraction), *(verdict(v) if v else "" for v in found)]
        )
    return table(["table", "missing", *(f"{method} - {m}" for m in rivals)], rows)


def arrival(record):
    """Find time and epoch at which the validation score is near its best."""
    looks = np.array(record["curve"])
    first = (looks[:, 2] >= looks[:, 2].max() - NEAR_END).argmax()
    return looks[first, 0], int(looks[first, 1])


def last_rise(record):
    """Find by how much the best validation score rose in the last seconds."""
    looks = np.array(record["curve"])
    before = looks[looks[:, 0] <= looks[-1, 0] - LAST]
    return looks[:, 2].max() - before[:, 2].max() if len(before) else np.nan


def epoch_seconds(record):
    """Compute the mean time of an epoch of the main stage."""
    first, last = record["curve"][0], record["curve"][-1]
    return (last[0] - first[0]) / max(1, last[1] - first[1])


def spans(values, form="{:.0f}"):
    """Write the mean of several numbers, and the smallest and the largest."""
    mean, *ends = (form.format(v) for v in (np.mean(values), *_ends(values)))
    return f"{mean} ({ends[0]} to {ends[1]})"


def _ends(values):
    return min(values), max(values)


def time_table(records, methods):
    """Set times to converge in a table."""
    rows = []
    for name, fraction in cells(records):
        for method in (*methods, "complete"):
            found = of_cell(records, name, fraction, method)
            if not found:
                continue
            near = [arrival(record) for record in found]
            ends = [record["curve"][-1] for record in found]
            stopped = sum(record["ended"] == "rule" for record in found)
            rows.append(
                [
                    name,
                    percent(fraction),
                    HEADS.get(method, method),
                    spans([seconds for seconds, _ in near]),
                    spans([epoch for _, epoch in near]),
                    spans([end[0] for end in ends]),
                    f"{stopped} of {len(found)}",
                    spans([last_rise(record) for record in found], "{:.2f}"),
                    f"{np.mean([epoch_seconds(record) for record in found]):.3f}",
                    percent(np.mean([record["imputing"] for record in found])),
                ]
            )
    header = ["table", "missing", "method", f"seconds to within {NEAR_END:g} nat"]
    header += ["epochs to there", "seconds in all", "ended by the rule"]
    header += [f"rise in the last {LAST} s"]
    return table([*header, "seconds an epoch", "of it drawing"], rows)


def along(record, axis, point):
    """Find the test score at a time (axis 0) or an epoch (axis 1)."""
    before = [look for look in record["curve"] if look[axis] <= point]
    if not before:
        return np.nan
    over = point > record["curve"][-1][axis]
    return record["score"] if over else before[-1][3]


def curve_table(records, methods, axis, points):
    """Set the scores along the training in a table (figure 11)."""
    rows = []
    for name, fraction in cells(records):
        for method in methods:
            found = of_cell(records, name, fraction, method)
            if not found:
                continue
            means = [
                np.mean([along(r, axis, point) for r in found]) for point in points
            ]
            written = ["" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
            rows.append([name, percent(fraction), method, *written])
    unit = "s" if axis == 0 else "epochs"
    heads = [f"{point} {unit}" for point in points]
    return table(["table", "missing", "method", *heads], rows)


def chains_line(records):
    """Describe the chains of MCEM."""
    found = [r["steps"] for r in chosen(records, method="MCEM")]
    if not found:
        return ""
    counts, lengths = [len(s) for s in found], {n for s in found for n in s}
    return (
        f"MCEM drew the missing cells {min(counts)} to {max(counts)} times in a fit, "
        f"by chains of {' and '.join(map(str, sorted(lengths)))} steps."
    )


def cost_table(seconds, per_epoch):
    """Set the seconds of an epoch in a table (figure 12)."""
    found = {
        kind: np.array([one, plain + per_epoch * step, plain, step])
        for kind, (one, plain, step) in seconds.items()
    }
    rows = [[kind, *(f"{v:.2f}" for v in row)] for kind, row in found.items()]
    ratios = found["autoregressive"] / found["coupling"]
    rows.append(["ratio", *(f"{ratio:.1f}" for ratio in ratios)])
    header = ["flow", "VGI, an epoch", f"MCEM, an epoch and {per_epoch} steps"]
    return table([*header, "its training", "a step of its chains"], rows)


def looks_table(record):
    """Set what chains have reached in a table."""
    rows = [
        [f"{step:g}", f"{accepted:.2f}", f"{apart:.2f}"]
        for step, accepted, apart in record["looks"]
    ]
    return table(["steps", "acceptance", "largest difference"], rows)


PER_EPOCH = 10  # steps of chains an epoch, in figure 12


def setting(records, study):
    """Describe what was done."""
    done = [r for r in records if "limit" in r]
    names = dict.fromkeys(name for name, _ in cells(records))
    limits = {r["limit"] for r in done}
    sizes = "; ".join(
        f"{name} {len(table_of(name).train)} rows of "
        f"{table_of(name).train.shape[1]} columns"
        for name in names
    )
    settings, (warm_q, warm_p) = study.SETTINGS, study.WARM_UP
    lengths = ", ".join(f"{n} from epoch {e} on" for e, n in study.LENGTHS.items())
    return TEXTS(
        "Tables: ; and other rows",
        locals(),
        units=" and ".join(map(str, FLOW["hidden"])),
        stacked=_stacked(study) if chosen(done, method="IterativeImputer") else "",
        limits=" or ".join(f"{v:g}" for v in sorted(limits)),
        commits=", ".join(sorted({str(r["commit"]) for r in done})),
    )


def _stacked(study):
    """Describe the flow of chained regressions."""
    return (
        f" IterativeImputer: {study.STACKED} draws of posteriors, {study.ROUNDS} "
        "rounds each, on which the flow is trained."
    )


def report(records, study):
    """Write the parts of the page."""
    methods = [m for m in study.METHODS if chosen(records, method=m)]
    pair = [m for m in methods if m in ("VGI", "MCEM")]
    (cost,) = chosen(records, kind="cost") or [None]
    (chains,) = chosen(records, kind="chains") or [None]
    parts = [
        "# Normalising flows of incomplete rows",
        made_by("vgi_flows.py", "One thread."),
        setting(records, study),
        "## Log-density of complete test rows (figure 10)",
        "Nats a row: mean over masks, and its standard error.",
        score_table(records, methods),
        TEXTS("VGI minus the others on"),
        difference_table(records, [m for m in (*methods[1:], "normal")]),
        "## Times to converge",
        "CPU seconds, means over masks with the smallest and the largest.",
        time_table(records, methods),
        chains_line(records),
        "## Along the training (figure 11)",
        TEXTS("Log-density of the test"),
        curve_table(records, pair, 0, SECONDS),
        curve_table(records, pair, 1, EPOCHS),
    ]
    if chains:
        parts += [
            "## How far chains come",
            TEXTS("PL-MCMC on rows of ", chains=chains),
            looks_table(chains),
        ]
    if cost:
        parts += [
            "## Coupling and autoregressive steps (figure 12)",
            TEXTS(
                "CPU seconds, rows of",
                cost=cost,
                bins=BINS.get(cost["name"], FLOW["n_bins"]),
            ),
            cost_table(cost["seconds"], PER_EPOCH),
        ]
    return [part for part in parts if part]
