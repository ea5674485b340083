"""Clustered tables of R packages, read from R for each run, and what is hidden."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from _groups_rivals import data_of_r

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
