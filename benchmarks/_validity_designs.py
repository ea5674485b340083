"""Designs of the validity study: what is simulated, hidden and analysed.

Missing values are missing at random given columns that are always observed.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from _validity_analyses import binary, clustered, linear, term_of
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta, gamma, nbinom, norm, poisson

ROWS, RATE = 300, 0.3
DESIGNS = {}


class Design(NamedTuple):
    """A table with a true answer, missing cells, and an analysis."""

    # returns a complete table, of a generator of random numbers and a number of rows
    simulate: Callable
    hide: Callable  # says which cells are missing, of a generator, a table and a rate
    # returns estimates, variances and degrees of freedom of the slopes of a table
    analyse: Callable
    truth: dict  # the true slope of each term
    interest: str  # the term that the design is about
    rates: tuple = (RATE,)  # shares of missing cells and numbers of rows
    sizes: tuple = (ROWS,)
    # the analysis as a formula of R, for methods that are told of it
    formula: str | None = None
    group: str | None = None  # the column that names groups
    # says which rows agree with a rule that all rows of a complete table agree with
    rule: Callable | None = None
    has_relations: bool = False  # whether columns follow from others


def chances(driver, rate, slope):
    """Return probabilities of mean `rate`, logistic in a column."""
    driver = np.asarray(driver, dtype=float)
    scores = slope * (driver - driver.mean()) / driver.std()
    return expit(scores + brentq(lambda a: expit(scores + a).mean() - rate, -60, 60))


class AtRandom:
    """Hide cells of columns, or of several together, given another column.

    Of every second column low values of the driver are missing instead of high ones.
    """

    def __init__(self, columns, driver, slope=1.0):
        self.columns, self.driver, self.slope = columns, driver, slope

    def __call__(self, rng, frame, rate):
        hidden = pd.DataFrame(False, frame.index, frame.columns)
        for k, names in enumerate(self.columns):
            share = chances(frame[self.driver], rate, self.slope * (-1) ** k)
            cells = rng.random(len(frame)) < share
            for name in [names] if isinstance(names, str) else names:
                hidden[name] = cells
        return hidden


class BelowQuantile:
    """Hide the cells of a column in rows where another column is low."""

    def __init__(self, column, driver):
        self.column, self.driver = column, driver

    def __call__(self, rng, frame, rate):
        hidden = pd.DataFrame(False, frame.index, frame.columns)
        hidden[self.column] = frame[self.driver] < frame[self.driver].quantile(rate)
        return hidden


def correlated(rng, n, columns, correlation):
    """Draw standard normal columns that share a correlation."""
    shared = rng.normal(size=(n, 1)) * np.sqrt(correlation)
    return shared + rng.normal(size=(n, columns)) * np.sqrt(1 - correlation)


def with_outcome(rng, frame, truth, noise=1.0):
    """Add an outcome y that is linear in terms."""
    mean = 1 + sum(slope * term_of(frame, term) for term, slope in truth.items())
    return frame.assign(y=mean + noise * rng.normal(size=len(frame)))


def with_binary_outcome(rng, frame, truth, intercept):
    """Add an outcome y of 0 and 1, whose log-odds are linear in terms."""
    score = sum(slope * term_of(frame, term) for term, slope in truth.items())
    is_one = rng.random(len(frame)) < expit(score + intercept)
    return frame.assign(y=is_one.astype(float))


def incomplete_table(name, design, rows, rate, repetition):
    """Return a complete table and a copy with missing cells."""
    rng = np.random.default_rng([repetition, rows, *name.encode()])
    full = design.simulate(rng, rows)
    hidden = design.hide(rng, full, rate)
    return full, full.mask(hidden)


def add(name, simulate, truth, interest, incomplete, **options):
    """Add a design; by default y is linear in the terms; z decides what is missing."""
    options.setdefault("analyse", linear("y", *truth))
    options.setdefault("hide", AtRandom(incomplete, "z"))
    options |= {"simulate": simulate, "truth": truth, "interest": interest}
    DESIGNS[name] = Design(**options)


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


add("wide", wide, WIDE, "x1", (*_WIDE_COLUMNS, "y"), sizes=(60,))

# Categories among the covariates

MIXED = {"b": 0.8, "o": 0.4, "x": 0.5, "z": 0.3}


def mixed(rng, n):
    """Draw a binary, an ordinal and a normal column."""
    L = correlated(rng, n, 4, 0.4)
    levels = np.searchsorted([-1.2, -0.4, 0.3, 1.0], L[:, 1]).astype(float)
    columns = {"b": (L[:, 0] > 0.2).astype(float), "o": levels, "x": L[:, 2]}
    return with_outcome(rng, pd.DataFrame(columns | {"z": L[:, 3]}), MIXED)


add("mixed", mixed, MIXED, "b", ("b", "o", "x", "y"), rates=RATES)

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


add("nominal", nominal, NOMINAL, "g=c", ("g", "x", "y"))

RARE = {"r": 1.5, "w": 0.4, "z": 0.3}


def rare(rng, n):
    """Draw a binary column with 5 % ones, and a lognormal column."""
    L = correlated(rng, n, 3, 0.4)
    r = (L[:, 0] > norm.isf(0.05)).astype(float)
    frame = pd.DataFrame({"r": r, "w": np.exp(L[:, 1]), "z": L[:, 2]})
    return with_outcome(rng, frame, RARE)


add("rare", rare, RARE, "r", ("r", "w", "y"))

LOGISTIC = {"x1": 0.7, "x2": -0.5, "z": 0.4}


def logistic_table(rng, n):
    """Draw a binary outcome of normal covariates."""
    frame = pd.DataFrame(correlated(rng, n, 3, 0.3), columns=["x1", "x2", "z"])
    return with_binary_outcome(rng, frame, LOGISTIC, -0.3)


add(
    "logistic",
    logistic_table,
    LOGISTIC,
    "x1",
    ("x1", "x2", "y"),
    analyse=binary("y", *LOGISTIC),
)

AND = {"a": 0.5, "b": 0.5, "a*b": 1.5}


def both_needed(rng, n):
    """Draw a binary outcome, most frequent where both of two columns are 1."""
    z = rng.normal(size=n)
    a, b = rng.random((2, n)) < expit(0.5 * z)
    frame = pd.DataFrame({"a": a * 1.0, "b": b * 1.0, "z": z})
    return with_binary_outcome(rng, frame, AND, -1)


add(
    "logistic, interaction",
    both_needed,
    AND,
    "a*b",
    ("a", "b", "y"),
    analyse=binary("y", *AND),
    sizes=(300, 1000),
)

CURVED = {"x": 0.5, "x^2": 0.8}
BY_GROUP = {"x": 0.3, "g": 0.3, "x*g": 1.0}


def curved(rng, n, truth, intercept):
    """Draw a binary outcome of a normal covariate, and of a group that may matter."""
    x, noise = rng.normal(size=(2, n))
    group = (rng.random(n) < 0.5).astype(float)
    frame = pd.DataFrame({"x": x, "g": group, "z": x + noise})
    return with_binary_outcome(rng, frame, truth, intercept)


for _name, _truth, _interest, _intercept in (
    ("logistic, square", CURVED, "x^2", -1.0),
    ("logistic, group", BY_GROUP, "x*g", -0.3),
):
    add(
        _name,
        partial(curved, truth=_truth, intercept=_intercept),
        _truth,
        _interest,
        ("x", "g", "y"),
        analyse=binary("y", *_truth),
        sizes=(300, 1000),
    )

SPREADS = {"g": 1.0, "x": 0.5}


def spreads(rng, n):
    """Draw two groups, whose outcomes have standard deviations of 1 and 3."""
    x, z = correlated(rng, n, 2, 0.4).T
    frame = pd.DataFrame({"g": (rng.random(n) < 0.5).astype(float), "x": x, "z": z})
    return with_outcome(rng, frame, SPREADS, 1 + 2 * frame["g"])


add("spreads", spreads, SPREADS, "g", ("g", "x", "y"))

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


add("dummies", dummies, DUMMIES, "d1", (("d1", "d2", "d3"), "t", "y"), rule=exclusive)

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


for _name, _options in (
    ("truncated", {}),
    ("truncated, whole", {"grid": 1.0}),
    ("truncated, grid .2", {"grid": 0.2}),
    ("truncated, grid .1", {"grid": 0.1}),
    ("truncated, skewed", {"is_skewed": True}),
):
    add(
        _name,
        truncated(**_options),
        TRUNCATED,
        "x",
        ("y",),
        hide=BelowQuantile("y", "x"),
    )
add(
    "soft selection",
    truncated(),
    TRUNCATED,
    "x",
    ("y",),
    hide=AtRandom(("y",), "x", -2.0),
    rates=(0.5, 0.7, 0.3),
)


SIZES = 300, 1000, 2000

# Distributions of covariates; u is uniform, and correlates with x and z


def shaped(shape, truth, noise=1.0):
    """Make a simulation with a column w of a shape, and normal columns x and z."""

    def simulate(rng, n):
        L = correlated(rng, n, 3, 0.4)
        w = shape(rng, norm.cdf(L[:, 0]))
        frame = pd.DataFrame({"w": w, "x": L[:, 1], "z": L[:, 2]})
        return with_outcome(rng, frame, truth, noise)

    return simulate


def lognormal(rng, u):
    """Return values of a lognormal distribution."""
    return np.exp(norm.ppf(u))


def percent(rng, u):
    """Return values between 0 and 100, few of them near the ends."""
    return 100 * beta.ppf(u, 2, 1.5)


def percent_ends(rng, u):
    """Return values in [0, 100], with mass at both ends."""
    return np.clip(50 + 50 * norm.ppf(u) + 10, 0, 100)


def zero_inflated(rng, u):
    """Return zeros in 40 % of the rows, and otherwise gamma values."""
    return np.where(u < 0.4, 0, gamma.ppf(np.clip((u - 0.4) / 0.6, 0, 1), 2.0))


for _name, _shape, _slope in (
    ("lognormal", lognormal, 0.4),
    ("gamma", lambda _, u: gamma.ppf(u, 1.0), 0.7),
    ("percent", percent, 0.03),
    ("percent, ends", percent_ends, 0.02),
    ("zero-inflated", zero_inflated, 0.5),
    ("counts, mean 2", lambda _, u: poisson.ppf(u, 2).astype(float), 0.5),
    ("counts, mean 8", lambda _, u: poisson.ppf(u, 8).astype(float), 0.25),
    ("counts, wide", lambda _, u: nbinom.ppf(u, 1, 1 / 7).astype(float), 0.1),
):
    _truth = {"w": _slope, "x": 0.4}
    add(_name, shaped(_shape, _truth), _truth, "w", ("w", "x", "y"))
_truth = {"log w": 0.7, "x": 0.4}
add("log scale", shaped(lognormal, _truth), _truth, "log w", ("w", "x", "y"))


def wages(rng, n):
    """Make z, and y, whose logarithm is linear in it."""
    z, noise = rng.normal(size=(2, n))
    return pd.DataFrame({"z": z, "y": np.exp(0.5 * z + 0.5 * noise)})


_options = {"hide": AtRandom(("y",), "z", 2), "analyse": linear("log y", "z")}
add("log outcome", wages, {"z": 0.5}, "z", ("y",), **_options)


def skewed(rng, n):
    """Make z, and y, which is linear in it with noise that is skewed."""
    z = rng.normal(size=n)
    return pd.DataFrame({"z": z, "y": 2 * z + rng.chisquare(3, n)})


def marks(rng, n):
    """Make z, and y, a grade from 1 to 5 of a normal variable of variance 2."""
    z, noise = rng.normal(size=(2, n))
    return pd.DataFrame({"z": z, "y": (3 + z + noise).round().clip(1, 5)})


# by Stein's lemma, of the four places where grades change
_slope = sum(norm.pdf(np.array([-1.5, -0.5, 0.5, 1.5]), scale=np.sqrt(2)))
for _name, _simulate, _truth in (
    ("skewed outcome", skewed, {"z": 2.0}),
    ("grade outcome", marks, {"z": _slope}),
):
    add(
        _name,
        _simulate,
        _truth,
        "z",
        ("y",),
        hide=AtRandom(("y",), "z", 2),
        sizes=(300, 1000),
    )

# Products and squares, of which methods are not told, but smcfcs is


def product(truth, other, has_proxy):
    """Make a simulation with x, another covariate b, and z, which decides.

    A proxy is the outcome with noise, has no missing cells and is not in the analysis.
    """

    def simulate(rng, n):
        z = rng.normal(size=n)
        x = 0.5 * z + np.sqrt(0.75) * rng.normal(size=n)
        b = 0.5 * z + np.sqrt(0.75) * rng.normal(size=n)
        if other == "binary":
            b = (rng.random(n) < expit(0.8 * z)).astype(float)
        if other == "grade":
            b = b.round().clip(-2, 2)
        frame = pd.DataFrame({"x": x, "b": b, "z": z})
        if other == "levels":
            names = LETTERS[np.digitize(b, (-0.5, 0.5))]
            frame = frame.drop(columns="b").assign(g=names).astype({"g": "str"})
        if other == "square":
            frame = frame.drop(columns="b")
        frame = with_outcome(rng, frame, truth)
        proxy = {"p": frame["y"] + rng.normal(size=n)} if has_proxy else {}
        return frame.assign(**proxy)

    return simulate


class AlsoByOutcome(AtRandom):
    """Hide cells of x given z and y, which have no missing cells."""

    def __call__(self, rng, frame, rate):
        both = frame["z"] + frame["y"] / frame["y"].std()
        return super().__call__(rng, frame.assign(z=both), rate)


for _name, _other, _term, _formula, _slope in (
    ("interaction, 0/1", "binary", "x*b", "y ~ x + b + x:b", 1.0),
    ("interaction, numbers", "number", "x*b", "y ~ x + b + x:b", 0.5),
    ("interaction, grades", "grade", "x*b", "y ~ x + b + x:b", 0.5),
    ("square", "square", "x^2", "y ~ x + I(x^2)", 0.5),
):
    for _kind in ("", "absent", "selected", "selected, absent", "proxy"):
        _truth = {"x": 1.0, "b": 1.0, _term: 0.0 if "absent" in _kind else _slope}
        if _other == "square":
            del _truth["b"]
        _covariates = tuple(name for name in _truth if name != _term)
        _selected, _has_proxy = "selected" in _kind, _kind == "proxy"
        add(
            f"{_name}, {_kind}".removesuffix(", "),
            product(_truth, _other, _has_proxy),
            _truth,
            _term,
            ("x",) if _selected else (*_covariates, "y"),
            hide=AlsoByOutcome(("x",), "z", 2.0)
            if _selected
            else AtRandom((*_covariates, "y"), "z"),
            formula=_formula,
            sizes=SIZES[:1] if _selected or _has_proxy else SIZES,
        )

for _kind, _slopes in (("", (0.5, 1.0)), ("absent", (0.0, 0.0))):
    _truth = {"x": 0.5, "g=b": 0.5, "g=c": -0.5}
    _truth |= dict(zip(("x*g=b", "x*g=c"), _slopes, strict=True))
    add(
        f"interaction, levels, {_kind}".removesuffix(", "),
        product(_truth, "levels", has_proxy=False),
        _truth,
        "x*g=c",
        ("x", "g", "y"),
        formula="y ~ x * g",
        sizes=SIZES[:2],
    )

# Columns that follow from others, and are in the analysis

DERIVED = {
    "square": {"x": 1.0, "xx": 0.5},
    "total": {"a": 1.0, "total": 0.5},
    "set": {"north": 1.0, "south": -0.5, "west": 0.5},
}


def derived(kind):
    """Make a simulation with a column, or columns, that follow from others."""

    def simulate(rng, n):
        z, noise = rng.normal(size=(2, n))
        x = 0.5 * z + np.sqrt(0.75) * noise
        if kind == "square":
            frame = {"x": x, "xx": x**2}
        elif kind == "total":
            b = np.exp(0.5 * rng.normal(size=n) + 0.3 * z)
            frame = {"a": x + 3, "b": b, "total": x + 3 + b}
        else:
            region = np.digitize(x + 0.5 * rng.normal(size=n), (-1, 0.2, 1))
            names = enumerate(("east", "north", "south", "west"))
            frame = {name: (region == k).astype(float) for k, name in names}
        return with_outcome(rng, pd.DataFrame(frame | {"z": z}), DERIVED[kind])

    return simulate


for _kind, _term, _incomplete in (
    ("square", "xx", (("x", "xx"), "y")),
    ("total", "total", ("a", "b", "total")),
    ("set", "west", (("east", "north", "south", "west"), "y")),
):
    add(
        f"derived {_kind}",
        derived(_kind),
        DERIVED[_kind],
        _term,
        _incomplete,
        sizes=SIZES[:2],
        has_relations=True,
    )

# Groups of rows

CLUSTERED = {"x": 0.5, "v": 0.5}


def groups(rng, n):
    """Draw groups of ten rows, with random intercepts; v is constant within groups."""
    g = np.repeat(np.arange(n // 10), 10)
    intercepts, v = rng.normal(size=(2, n // 10))
    z = rng.normal(size=n)
    x = 0.5 * z + 0.5 * rng.normal(size=n // 10)[g] + 0.7 * rng.normal(size=n)
    frame = pd.DataFrame({"g": [f"group {k}" for k in g], "x": x, "v": v[g], "z": z})
    frame = with_outcome(rng, frame.astype({"g": "str"}), CLUSTERED, 0.8)
    return frame.assign(y=frame["y"] + 0.7 * intercepts[g])


add(
    "clustered",
    groups,
    CLUSTERED,
    "x",
    ("x", "y"),
    analyse=clustered("y", *CLUSTERED, group="g", between=("v",)),
    group="g",
)
