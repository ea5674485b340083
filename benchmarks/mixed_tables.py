"""Mixed tables, with cells hidden, for `mixed.py`."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from _data import load

SHARE, TEST = 0.3, 0.3  # of the observed cells that are hidden, of the rows that test
STEEP = 2.0  # slope of the log-odds of MAR, a standard deviation of the driver
MECHANISMS = "MCAR", "MAR"


class Kinds(NamedTuple):
    """Columns of a table by kind; all others are left out."""

    numeric: tuple
    ordinal: tuple = ()
    nominal: tuple = ()


TABLES = {
    "adult": Kinds(
        ("age", "education_num", "capital_gain", "hours_per_week"),
        (),
        (
            *("workclass", "marital_status", "occupation", "relationship", "race"),
            *("sex", "income"),
        ),
    ),
    "titanic": Kinds(
        ("Age", "Fare"), ("Pclass", "SibSp", "Parch"), ("Embarked", "Survived", "Sex")
    ),
    "horse_colic": Kinds(
        (
            *("rectal_temp", "pulse", "respiratory_rate", "packed_cell_volume"),
            "total_protein",
        ),
        (
            *("capillary_refill", "pain", "peristalsis", "abdominal_distension"),
            "nasogastric_reflux",
        ),
        (
            *("surgery", "age", "temp_extremities", "peripheral_pulse"),
            *("mucous_membranes", "nasogastric_tube", "rectal_exam", "abdomen"),
            *("abdominocentesis_appearance", "outcome", "surgical_lesion", "cp_data"),
        ),
    ),
    "penguins": Kinds(
        ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"),
        (),
        ("species", "island", "sex", "year"),
    ),
    "nhanes": Kinds(
        (
            *("Age", "Poverty", "HomeRooms", "Weight", "Height", "BMI", "Pulse"),
            *("BPSysAve", "BPDiaAve", "Testosterone", "DirectChol", "TotChol"),
            *("UrineVol1", "UrineFlow1", "DaysPhysHlthBad", "DaysMentHlthBad"),
            *("SleepHrsNight", "AlcoholDay"),
        ),
        ("Education", "PhysActiveDays"),
        ("SurveyYr", "Gender", "Race1", "Diabetes", "SmokeNow"),
    ),
    "hepatitis": Kinds(
        ("age", "bilirubin", "alk_phosphate", "sgot", "albumin", "protime"),
        (),
        (
            *("class", "sex", "steroid", "antivirals", "fatigue", "malaise"),
            *("anorexia", "liver_big", "liver_firm", "spleen_palpable", "spiders"),
            *("ascites", "varices", "histology"),
        ),
    ),
    "soybean": Kinds(
        (),
        ("date", "precip", "temp", "sever", "germ", "leaf.size"),
        (
            *("Class", "plant.stand", "hail", "crop.hist", "area.dam", "seed.tmt"),
            *("plant.growth", "leaves", "leaf.halo", "leaf.marg", "leaf.shread"),
            *("leaf.malf", "leaf.mild", "stem", "lodging", "stem.cankers"),
            *("canker.lesion", "fruiting.bodies", "ext.decay", "mycelium"),
            *("int.discolor", "sclerotia", "fruit.pods", "fruit.spots", "seed"),
            *("mold.growth", "seed.discolor", "seed.size", "shriveling", "roots"),
        ),
    ),
    "boys": Kinds(("age", "hgt", "wgt", "bmi", "hc", "tv"), ("gen", "phb"), ("reg",)),
}
FILES = {"adult": "adult6k", "nhanes": "nhanes_adults"}
ROWS = 1200  # at most
ORDERS = {
    "Education": [
        *("8th Grade", "9 - 11th Grade", "High School", "Some College"),
        "College Grad",
    ],
}


class Case(NamedTuple):
    """A table with hidden cells.

    Attributes
    ----------
    kinds : list of str
        "numeric", "ordinal" or "nominal".
    levels : list of list or None
        Levels of each column in the order of their codes.
    names : list of str
    full, masked : pair of ndarray of shape (n, d)
        Rows to learn from and rows to test, NaN where missing; levels are codes.
    """

    kinds: list
    levels: list
    names: list
    full: tuple
    masked: tuple

    @property
    def hidden(self):
        """The cells that are scored: hidden cells of the test rows."""
        return np.isnan(self.masked[1]) & ~np.isnan(self.full[1])


def encoded(name):
    """Read a table: codes, kinds, levels, names."""
    frame = load(FILES.get(name, name))
    if name == "adult":
        frame["capital_gain"] = np.log1p(frame["capital_gain"])
    asked, columns, levels = TABLES[name], [], []
    names = [c for some in asked for c in some]
    kinds = [
        kind for kind, some in zip(Kinds._fields, asked, strict=True) for _ in some
    ]
    for column, kind in zip(names, kinds, strict=True):
        cells = frame[column]
        known = None
        if kind != "numeric":
            known = ORDERS.get(column) or sorted(cells.dropna().unique())
            codes = {level: code for code, level in enumerate(known)}
            cells = cells.map(codes, na_action="ignore")
        columns.append(pd.to_numeric(cells).to_numpy(float))
        levels.append(known)
    return np.column_stack(columns), kinds, levels, names


def split(name, mechanism, seed):
    """Hide cells of a table, and split its rows."""
    rng = np.random.default_rng([seed, *map(ord, name)])
    x, kinds, levels, names = encoded(name)
    x = x[rng.permutation(len(x))[:ROWS]]
    masked = np.where(hidden_cells(x, mechanism, rng), np.nan, x)
    masked[np.isnan(masked).all(1)] = x[np.isnan(masked).all(1)]
    cut = round((1 - TEST) * len(x))
    parts = (x[:cut], x[cut:]), (masked[:cut], masked[cut:])
    return Case(kinds, levels, names, *parts)


def hidden_cells(x, mechanism, rng):
    """Choose observed cells completely at random, or by complete columns."""
    chance = np.full(x.shape, SHARE)
    if mechanism == "MAR":
        complete = np.flatnonzero(~np.isnan(x).any(0) & (np.nanstd(x, 0) > 0))
        count = max(1, round(0.3 * len(complete)))
        drivers = rng.choice(complete, count, replace=False)
        score = ((x - x.mean(0)) / x.std(0))[:, drivers] @ rng.normal(
            size=(count, x.shape[1])
        )
        score *= STEEP / np.maximum(score.std(0), 1e-9)
        chance = 1 / (1 + np.exp(-score - _intercepts(score)))
        chance[:, drivers] = 0.0
    return (rng.random(x.shape) < chance) & ~np.isnan(x)


def _intercepts(score):
    """Find the intercepts with which the mean chance of each column is SHARE."""
    low, high = np.full(score.shape[1], -50.0), np.full(score.shape[1], 50.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = (1 / (1 + np.exp(-score - middle))).mean(0) > SHARE
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return middle
