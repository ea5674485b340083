"""Designs with normal columns, with categories, and with missing values in one tail."""

import numpy as np
import pandas as pd
from _report import Texts
from _validity_analyses import binary
from _validity_designs import AtRandom, BelowQuantile, add, correlated, with_outcome
from scipy.special import expit
from scipy.stats import norm

TEXTS = Texts("validity_basic", globals())

RATES = 0.3, 0.5, 0.7
TOWNS, LETTERS = 12, np.array(list("abcd"))

# Normal columns

NORMAL = {"x1": 0.4, "x2": 0.5, "x3": 0.3, "x4": -0.4}


def normal(rng, n):
    """Draw four covariates with correlation .4; R2 is about .4."""
    frame = pd.DataFrame(correlated(rng, n, 4, 0.4), columns=list(NORMAL))
    return with_outcome(rng, frame, NORMAL, 0.8)


add(
    "normal",
    "y on four normal covariates with correlation .4; all but x1 are incomplete",
    normal,
    NORMAL,
    "x2",
    ("x2", "x3", "x4", "y"),
    hide=AtRandom(("x2", "x3", "x4", "y"), "x1"),
    rates=RATES,
)

_LOADINGS = np.random.default_rng(5).normal(size=(29, 3))
_WIDE_COLUMNS = tuple(f"x{k}" for k in range(1, 29))
WIDE = {"x1": 0.6, "x2": 0.5, "x3": -0.4}


def wide(rng, n):
    """Draw 29 normal columns of three factors."""
    X = rng.normal(size=(n, 3)) @ _LOADINGS.T / np.sqrt(3) + rng.normal(size=(n, 29))
    return with_outcome(rng, pd.DataFrame(X, columns=[*_WIDE_COLUMNS, "z"]), WIDE)


add(
    "wide",
    TEXTS("60 rows of 30 columns"),
    wide,
    WIDE,
    "x1",
    (*_WIDE_COLUMNS, "y"),
    sizes=(60,),
)

# Categories among the covariates

MIXED = {"b": 0.8, "o": 0.4, "x": 0.5, "z": 0.3}


def mixed(rng, n):
    """Draw a binary, an ordinal and a normal column."""
    L = correlated(rng, n, 4, 0.4)
    levels = np.searchsorted([-1.2, -0.4, 0.3, 1.0], L[:, 1]).astype(float)
    columns = {"b": (L[:, 0] > 0.2).astype(float), "o": levels, "x": L[:, 2]}
    return with_outcome(rng, pd.DataFrame(columns | {"z": L[:, 3]}), MIXED)


add(
    "mixed",
    "y on a binary, an ordinal (5 levels, codes) and two normal covariates",
    mixed,
    MIXED,
    "b",
    ("b", "o", "x", "y"),
    rates=RATES,
)

NOMINAL = {"g=b": 0.6, "g=c": -0.6, "g=d": 1.0, "x": 0.5}


def levels_of(rng, x, slopes, intercepts, names):
    """Draw levels by a multinomial logistic model."""
    scores = np.outer(x, slopes) + intercepts + rng.gumbel(size=(len(x), len(slopes)))
    return np.asarray(names, dtype=object)[scores.argmax(1)]


def nominal(rng, n):
    """Draw a text column with four levels."""
    x, z = correlated(rng, n, 2, 0.4).T
    g = levels_of(rng, x, [0, 0.8, -0.6, 0.4], [0.3, 0, 0.2, -0.5], LETTERS)
    frame = pd.DataFrame({"g": g, "x": x, "z": z})
    return with_outcome(rng, frame.astype({"g": "str"}), NOMINAL)


add(
    "nominal",
    "y on a text column of four levels and a normal covariate",
    nominal,
    NOMINAL,
    "g=c",
    ("g", "x", "y"),
)

RARE = {"r": 1.5, "w": 0.4, "z": 0.3}


def rare(rng, n):
    """Draw a binary column with 5 % ones, and a lognormal column."""
    L = correlated(rng, n, 3, 0.4)
    r = (L[:, 0] > norm.isf(0.05)).astype(float)
    frame = pd.DataFrame({"r": r, "w": np.exp(L[:, 1]), "z": L[:, 2]})
    return with_outcome(rng, frame, RARE)


add(
    "rare",
    "y on a binary column with 5 % ones, a lognormal and a normal covariate",
    rare,
    RARE,
    "r",
    ("r", "w", "y"),
)

LOGISTIC = {"x1": 0.7, "x2": -0.5, "z": 0.4}


def logistic_table(rng, n):
    """Draw a binary outcome of normal covariates."""
    frame = pd.DataFrame(correlated(rng, n, 3, 0.3), columns=["x1", "x2", "z"])
    score = sum(slope * frame[name] for name, slope in LOGISTIC.items()) - 0.3
    return frame.assign(y=(rng.random(n) < expit(score)).astype(float))


add(
    "logistic",
    "logistic regression of a binary y on three normal covariates",
    logistic_table,
    LOGISTIC,
    "x1",
    ("x1", "x2", "y"),
    analyse=binary("y", *LOGISTIC),
)

DUMMIES = {"d1": 0.8, "d2": -0.6, "d3": 0.5, "t=b": 0.5, "t=c": -0.5}


def dummies(rng, n):
    """Draw three 0/1 columns, of which one at most is 1, and a text column."""
    x, z = correlated(rng, n, 2, 0.5).T
    state = levels_of(rng, x, [0, 0.6, -0.6, 0.3], [0.2, 0, 0, 0], np.arange(4))
    t = levels_of(rng, x, [0, 0.5, -0.5], [0, 0, 0], LETTERS[:3])
    columns = {f"d{k}": (state == k).astype(float) for k in (1, 2, 3)}
    frame = pd.DataFrame(columns | {"t": t, "z": z}).astype({"t": "str"})
    return with_outcome(rng, frame, DUMMIES)


def exclusive(frame):
    """Say which rows have at most one of the three columns equal to 1."""
    return frame[["d1", "d2", "d3"]].sum(axis=1).isin((0, 1)).to_numpy()


add(
    "dummies",
    TEXTS("y on three 0/1 columns"),
    dummies,
    DUMMIES,
    "d1",
    (("d1", "d2", "d3"), "t", "y"),
    rule=exclusive,
)

HIERARCHY = {"county=b": 0.8, "county=c": -0.6, "county=d": 0.4, "z": 0.3}


def hierarchy(rng, n):
    """Draw towns, each of which is in a county."""
    z = rng.normal(size=n)
    slopes = np.repeat([0, 0.6, -0.6, 0.3], TOWNS // 4)
    town = levels_of(rng, z, slopes, np.zeros(TOWNS), np.arange(TOWNS)).astype(int)
    county = LETTERS[town // (TOWNS // 4)]
    names = np.array([f"town {k}" for k in range(TOWNS)])
    frame = pd.DataFrame({"town": names[town], "county": county, "z": z})
    frame = frame.astype({"town": "str", "county": "str"})
    return with_outcome(rng, frame, HIERARCHY)


def in_county(frame):
    """Say which rows have a town of their county."""
    number = frame["town"].str.removeprefix("town ").astype(int).to_numpy()
    return frame["county"].to_numpy(dtype=str) == LETTERS[number // (TOWNS // 4)]


add(
    "hierarchy",
    "y on four counties; a column of twelve towns decides the county",
    hierarchy,
    HIERARCHY,
    "county=b",
    ("town", "county", "y"),
    rule=in_county,
)

# Missing where a covariate is low

TRUNCATED = {"x": 3.0}


def truncated(grid=None, *, is_skewed=False):
    """Make a simulation of y = 50 + 3 x + 3 noise."""

    def simulate(rng, n):
        x = rng.gamma(2, 10, size=n) if is_skewed else rng.normal(20, 5, size=n)
        y = 50 + 3 * x + 3 * rng.normal(size=n)
        y = y if grid is None else np.round(np.round(y / grid) * grid, 6)
        return pd.DataFrame({"x": x, "y": y})

    return simulate


for _name, _how, _options in (
    ("truncated", "", {}),
    ("truncated, whole", ", y rounded to whole numbers", {"grid": 1.0}),
    ("truncated, grid .2", ", y rounded to multiples of .2", {"grid": 0.2}),
    ("truncated, grid .1", ", y rounded to one decimal", {"grid": 0.1}),
    ("truncated, skewed", ", x has a gamma distribution", {"is_skewed": True}),
):
    add(
        _name,
        f"y = 50 + 3 x + 3 noise, missing where x is below its 30 % quantile{_how}",
        truncated(**_options),
        TRUNCATED,
        "x",
        ("y",),
        hide=BelowQuantile("y", "x"),
    )
add(
    "soft selection",
    "y = 50 + 3 x + 3 noise, missing with a probability logistic in x (slope -2)",
    truncated(),
    TRUNCATED,
    "x",
    ("y",),
    hide=AtRandom(("y",), "x", -2.0),
    rates=(0.5, 0.7, 0.3),
)
