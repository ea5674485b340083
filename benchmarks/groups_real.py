"""Hidden cells of clustered tables of R: errors of draws and of single values.

    python benchmarks/groups_real.py [--only method=ours table=popmis setting=cells]
        [--results FILE] [--only-report] [--quick]
        [--output doc/benchmarks/groups.md]

20 % of the cells are hidden at random ("cells"), or all cells that vary within groups
of 20 % of the rows ("rows"): whole visits. Groups and times are always known. "wide", a
row a group, is for tables with planned visits. A line of the results is a seed of a
method; what is there is not repeated.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import groups_simulation
import numpy as np
import pandas as pd
from _groups_methods import (
    NAMES,
    complete_tables,
    data_of_r,
    is_categorical,
    methods_of,
    numbers,
)
from _report import Results, Texts, average, geometric_mean, grid, table
from _runner import main_of

from skvnce.metrics import crps

TEXTS = Texts("groups", globals())

SHARE, SCHOOLS = 0.2, 60


class Clustered(NamedTuple):
    """A table, the role of each column, and the number of each row's planned visit."""

    frame: pd.DataFrame
    roles: dict
    visit: np.ndarray | None = None


def _table(frame, group, rows=(), levels=(), design=(), binary=(), visit=None):
    """Keep columns with a role; the two values of a binary column become 0 and 1."""
    roles = {group: "group"} | dict.fromkeys(rows, "row")
    roles |= dict.fromkeys(levels, "group level") | dict.fromkeys(design, "design")
    kept = frame[list(roles)].reset_index(drop=True)
    kept[group] = pd.factorize(kept[group], sort=True)[0]
    for name in binary:
        codes = pd.factorize(kept[name], sort=True)[0]
        kept[name] = pd.Categorical.from_codes(codes, [0, 1])
    kept = kept.astype({name: float for name in roles if name not in (group, *binary)})
    if visit is not None:
        visit = pd.factorize(np.asarray(visit), sort=True)[0]
    order = np.argsort(kept[group].to_numpy(), kind="stable")
    visit = visit if visit is None else visit[order]
    return Clustered(kept.iloc[order].reset_index(drop=True), roles, visit)


def brandsma():
    """Pupils in schools, SCHOOLS of 216 taken at random."""
    frame = data_of_r("mice", "brandsma")
    schools = np.random.default_rng(0).permutation(frame["sch"].unique())[:SCHOOLS]
    rows = "iqv", "iqp", "ses", "lpr", "lpo", "apr", "apo", "sex", "min"
    frame = frame[frame["sch"].isin(schools)]
    return _table(frame, "sch", rows, ["ssi"], binary=["sex", "min"])


def popmis():
    """Pupils in classes; the popularity of 42 % is missing."""
    frame = data_of_r("mice", "popmis")
    rows = "popular", "teachpop", "sex"
    return _table(frame, "school", rows, ["texp"], binary=["sex"])


def potthoffroy():
    """Four measurements of children."""
    frame = data_of_r("mice", "potthoffroy")
    frame = frame.melt(["id", "sex"], var_name="age", value_name="distance")
    age = frame["age"].str[1:].astype(float)
    frame = frame.assign(age=age)
    return _table(frame, "id", ["distance"], ["sex"], ["age"], ["sex"], age)


def toenail2():
    """Up to seven visits of patients, with a binary outcome."""
    frame, both = data_of_r("mice", "toenail2"), ("outcome", "treatment")
    return _table(
        frame, "patientID", both[:1], both[1:], ["time"], both, frame["visit"]
    )


def sleepstudy():
    """Ten days of subjects."""
    frame = data_of_r("lme4", "sleepstudy")
    return _table(frame, "Subject", ["Reaction"], design=["Days"], visit=frame["Days"])


def pastes():
    """Samples of batches; a single column besides the batch."""
    return _table(data_of_r("lme4", "Pastes"), "batch", ["strength"])


def oxboys():
    """Nine occasions of boys."""
    frame = data_of_r("nlme", "Oxboys")
    return _table(frame, "Subject", ["height"], design=["age"], visit=frame["Occasion"])


TABLES = {
    "brandsma": brandsma,
    "popmis": popmis,
    "potthoffroy": potthoffroy,
    "toenail2": toenail2,
    "sleepstudy": sleepstudy,
    "Pastes": pastes,
    "Oxboys": oxboys,
}
SETTINGS = "cells", "rows"


def has_setting(table, setting):
    """Say whether a table has a setting: hidden cells of one column are hidden rows."""
    hideable = [role for role in table.roles.values() if role in ("row", "group level")]
    return setting == "rows" or len(hideable) > 1


def mask(table, setting, seed):
    """Return which cells to hide, and which of these to score: those observed.

    "cells": of each column, of columns of groups in all rows of a group, which are
    scored once; "rows": the cells of a row that vary within groups, all at once.
    """
    rng = np.random.default_rng([seed, len(table.frame), SETTINGS.index(setting)])
    [group] = [name for name, role in table.roles.items() if role == "group"]
    groups = table.frame[group].to_numpy()
    first = ~table.frame[group].duplicated().to_numpy()
    hidden = np.zeros(table.frame.shape, dtype=bool)
    scored, whole = hidden.copy(), rng.random(len(groups)) < SHARE
    for j, name in enumerate(table.frame):
        role = table.roles[name]
        if role == "row":
            own = rng.random(len(groups)) < SHARE
            hidden[:, j] = scored[:, j] = whole if setting == "rows" else own
        elif role == "group level" and setting == "cells":
            hidden[:, j] = (rng.random(groups.max() + 1) < SHARE)[groups]
            scored[:, j] = hidden[:, j] & first
    return hidden, scored & table.frame.notna().to_numpy()


RESULTS = Path(__file__).with_name("results") / "groups_real.jsonl"
DRAWS, REFERENCE = 20, "flat"


def hide(frame, hidden):
    """Make cells missing."""
    cells = {name: frame[name].mask(hidden[:, j]) for j, name in enumerate(frame)}
    return frame.assign(**cells)


def scores(frame, draws, filled, scored):
    """Score cells in units of the standard deviation of each column.

    RMSE are those of the mean of the draws, and of `transform` in numeric columns,
    beside that of the mean of the draws in them.
    """
    truth = numbers(frame)
    scale = np.nanstd(truth, axis=0)
    found = {"crps": crps(truth, draws, scored, scale=np.where(scale > 0, scale, 1))}
    mean, cells = draws.mean(0), {"rmse": scored}
    numeric = scored & ~np.array([is_categorical(frame[name]) for name in frame])
    if numeric.any():
        cells["rmse_numbers"] = numeric
    for name, where in cells.items():
        found[name] = _rmse(truth, mean, scale, where)
    if filled is not None and numeric.any():
        found["rmse_transform"] = _rmse(truth, filled, scale, numeric)
    return {name: float(value) for name, value in found.items()}


def _rmse(truth, values, scale, where):
    errors = (values - truth)[where] / np.broadcast_to(scale, truth.shape)[where]
    return np.sqrt((errors**2).mean())


def measured(key, options):
    """Hide, complete and score."""
    table, seed = table_of(key["table"]), key["seed"]
    hidden, scored = mask(table, key["setting"], seed)
    rows = hide(table.frame, hidden), table.roles, options.draws, seed + 1, table.visit
    draws, filled, costs = complete_tables(key["method"], *rows)
    found = scores(table.frame, draws, filled, scored)
    return {"draws": options.draws} | found | costs


@cache
def table_of(name):
    """Load a table."""
    return TABLES[name]()


def ratios(results, method, score, setting, tables):
    """List the ratio of a method to the reference of each table, a mean over seeds."""
    found = {}
    for one in results.of(method=method, setting=setting):
        same = {name: one[name] for name in ("table", "setting", "seed")}
        other = results.find(method=REFERENCE, **same)
        if one["table"] in tables and other:
            found.setdefault(one["table"], []).append(one[score] / other[score])
    return [geometric_mean(values) for values in found.values()]


def geometric(values):
    """Return a geometric mean as text."""
    return f"{geometric_mean(values):.3f}" if len(values) else "-"


def setting_tables(results, setting):
    """Write the tables of a setting."""
    records, key = results.of(setting=setting), {"setting": setting}
    tables = [name for name in TABLES if results.has(**key, table=name)]
    visits = {one["table"] for one in records if one["method"] == "wide"}
    methods = {NAMES[method]: method for method in methods_of(records)}
    parts = [f"### {setting}"]
    for score, title in (("crps", "CRPS"), ("rmse", "RMSE of the mean of the draws")):
        lines = []
        for label, method in methods.items():
            own = [results.of(**key, method=method, table=name) for name in tables]
            of_tables = dict(zip(tables, own, strict=True))
            means = [
                geometric(ratios(results, method, score, setting, some))
                if all(of_tables[name] for name in some)
                else "-"
                for some in (tables, visits)
            ]
            lines.append([label, *(average(some, score) for some in own), *means])
        header = ["method", *tables, "ratio", "ratio, planned visits"]
        parts += [f"{title}:", table(header, lines)]

    def single_values(method, _):
        return geometric(
            [
                one["rmse_transform"] / one["rmse_numbers"]
                for one in results.of(**key, method=method)
                if "rmse_transform" in one
            ]
        )

    def seconds(method, name):
        some = results.of(**key, method=method, table=name)
        return average(some, "seconds", 2)

    return [
        *parts,
        "RMSE of `transform` over that of the mean of the draws, numeric columns:",
        grid("method", methods, ["ratio"], single_values),
        "Seconds of CPU, fit and 20 draws:",
        grid("method", methods, tables, seconds),
    ]


def simulation(results):
    """Write the part of the simulation."""
    records = Results()
    records.records = [one for one in results.records if "repetition" in one]
    return groups_simulation.page(records)


def tables(results):
    """Write the tables of all settings."""
    settings = [setting for setting in SETTINGS if results.has(setting=setting)]
    return [part for one in settings for part in setting_tables(results, one)]


def possible(key):
    """Say whether a table has a setting, and planned visits for rows of groups."""
    table = table_of(key["table"])
    visits = key["method"] != "wide" or table.visit is not None
    return visits and has_setting(table, key["setting"])


CASES = {
    "table": TABLES,
    "seed": range(3),
    "setting": SETTINGS,
    "method": [
        "ours",
        "ours_slopes",
        "flat",
        "id",
        "wide",
        "jomo_200",
        "pan",
        "mice_2lpan",
    ],
}
QUICK = {"results": None, "seed": range(2), "also": []}
ALSO = [str(groups_simulation.RESULTS)]
main = main_of(globals(), QUICK, draws=DRAWS, results=str(RESULTS), also=ALSO)
