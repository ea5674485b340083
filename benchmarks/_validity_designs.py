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

    # returns covariates, of a generator of random numbers and a number of rows
    simulate: Callable
    truth: dict  # the true slope of each term
    interest: str  # the term that the design is about
    outcome: Callable  # adds an outcome, of a generator, covariates and the truth
    hide: Callable  # says which cells are missing, of a generator, a table and a rate
    # returns estimates, variances and degrees of freedom of the slopes of a table
    analyse: Callable
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
    score = 1 + sum(slope * term_of(frame, term) for term, slope in truth.items())
    return frame.assign(y=score + noise * rng.normal(size=len(frame)))


def with_binary_outcome(rng, frame, truth, intercept):
    """Add an outcome y of 0 and 1, whose log-odds are linear in terms."""
    score = sum(slope * term_of(frame, term) for term, slope in truth.items())
    is_one = rng.random(len(frame)) < expit(score + intercept)
    return frame.assign(y=is_one.astype(float))


def simulated(rng, frame, truth):
    """Leave an outcome as it was simulated."""
    return frame


def incomplete_table(name, design, rows, rate, repetition):
    """Return a complete table and a copy with missing cells."""
    rng = np.random.default_rng([repetition, rows, *name.encode()])
    full = design.outcome(rng, design.simulate(rng, rows), design.truth)
    hidden = design.hide(rng, full, rate)
    return full, full.mask(hidden)


def add(
    name, truth, interest, incomplete, driver="z", slope=1.0, log_odds=None, **options
):
    """Make a decorator that adds a design of its covariates.

    By default y is linear in the terms, or of 0 and 1 where its log-odds have an
    intercept, `log_odds`; the driver decides what is missing, z unless another is
    named.
    """
    outcome, analyse = with_outcome, linear
    if log_odds is not None:
        outcome, analyse = partial(with_binary_outcome, intercept=log_odds), binary
    options = {
        "outcome": outcome,
        "hide": AtRandom(incomplete, driver, slope),
        "analyse": analyse("y", *truth),
    } | options

    def added(simulate):
        DESIGNS[name] = Design(simulate, truth, interest, **options)
        return simulate

    return added


SIZES, RATES = (300, 1000, 2000), (0.3, 0.5, 0.7)
TOWNS, LETTERS = 12, np.array(list("abcd"))

# Normal columns

_FOUR = {"x1": 0.4, "x2": 0.5, "x3": 0.3, "x4": -0.4}
_OPTIONS = {"outcome": partial(with_outcome, noise=0.8), "rates": RATES}


@add("normal", _FOUR, "x2", ("x2", "x3", "x4", "y"), "x1", **_OPTIONS)
def normal(rng, n):
    """Draw four covariates with correlation .4; R2 is about .4."""
    return pd.DataFrame(correlated(rng, n, 4, 0.4), columns=[*_FOUR])


_LOADINGS = np.random.default_rng(5).normal(size=(29, 3))
_WIDE_COLUMNS = tuple(f"x{k}" for k in range(1, 29))
_WIDE = {"x1": 0.6, "x2": 0.5, "x3": -0.4}


@add("wide", _WIDE, "x1", (*_WIDE_COLUMNS, "y"), sizes=(60,))
def wide(rng, n):
    """Draw 29 normal columns of three factors."""
    X = rng.normal(size=(n, 3)) @ _LOADINGS.T / np.sqrt(3) + rng.normal(size=(n, 29))
    return pd.DataFrame(X, columns=[*_WIDE_COLUMNS, "z"])


# Categories among the covariates

_MIXED = {"b": 0.8, "o": 0.4, "x": 0.5, "z": 0.3}


@add("mixed", _MIXED, "b", ("b", "o", "x", "y"), rates=RATES)
def mixed(rng, n):
    """Draw a binary, an ordinal and a normal column."""
    L = correlated(rng, n, 4, 0.4)
    levels = np.searchsorted([-1.2, -0.4, 0.3, 1.0], L[:, 1]).astype(float)
    columns = {"b": (L[:, 0] > 0.2).astype(float), "o": levels, "x": L[:, 2]}
    return pd.DataFrame(columns | {"z": L[:, 3]})


def levels_of(rng, x, slopes, intercepts, names):
    """Draw levels by a multinomial logistic model."""
    scores = np.outer(x, slopes) + intercepts + rng.gumbel(size=(len(x), len(slopes)))
    return np.asarray(names, dtype=object)[scores.argmax(1)]


_NOMINAL = {"g=b": 0.6, "g=c": -0.6, "g=d": 1.0, "x": 0.5}


@add("nominal", _NOMINAL, "g=c", ("g", "x", "y"))
def nominal(rng, n):
    """Draw a text column with four levels."""
    x, z = correlated(rng, n, 2, 0.4).T
    g = levels_of(rng, x, [0, 0.8, -0.6, 0.4], [0.3, 0, 0.2, -0.5], LETTERS)
    return pd.DataFrame({"g": g, "x": x, "z": z}).astype({"g": "str"})


@add("rare", {"r": 1.5, "w": 0.4, "z": 0.3}, "r", ("r", "w", "y"))
def rare(rng, n):
    """Draw a binary column with 5 % ones, and a lognormal column."""
    L = correlated(rng, n, 3, 0.4)
    r = (L[:, 0] > norm.isf(0.05)).astype(float)
    return pd.DataFrame({"r": r, "w": np.exp(L[:, 1]), "z": L[:, 2]})


_LOGISTIC = {"x1": 0.7, "x2": -0.5, "z": 0.4}


@add("logistic", _LOGISTIC, "x1", ("x1", "x2", "y"), log_odds=-0.3)
def three_normal(rng, n):
    """Draw the normal covariates of a binary outcome."""
    return pd.DataFrame(correlated(rng, n, 3, 0.3), columns=["x1", "x2", "z"])


_AND = {"a": 0.5, "b": 0.5, "a*b": 1.5}
_TWO = {"sizes": SIZES[:2]}


@add("logistic, interaction", _AND, "a*b", ("a", "b", "y"), log_odds=-1, **_TWO)
def both_needed(rng, n):
    """Draw two columns of 0 and 1; an outcome is most frequent where both are 1."""
    z = rng.normal(size=n)
    a, b = rng.random((2, n)) < expit(0.5 * z)
    return pd.DataFrame({"a": a * 1.0, "b": b * 1.0, "z": z})


_CURVED, _BY_GROUP = {"x": 0.5, "x^2": 0.8}, {"x": 0.3, "g": 0.3, "x*g": 1.0}


@add("logistic, group", _BY_GROUP, "x*g", ("x", "g", "y"), log_odds=-0.3, **_TWO)
@add("logistic, square", _CURVED, "x^2", ("x", "g", "y"), log_odds=-1, **_TWO)
def curved(rng, n):
    """Draw a normal covariate of a binary outcome, and a group that may matter."""
    x, noise = rng.normal(size=(2, n))
    group = (rng.random(n) < 0.5).astype(float)
    return pd.DataFrame({"x": x, "g": group, "z": x + noise})


def spread_outcome(rng, frame, truth):
    """Add an outcome whose standard deviations are 1 and 3 in two groups."""
    return with_outcome(rng, frame, truth, 1 + 2 * frame["g"])


@add("spreads", {"g": 1.0, "x": 0.5}, "g", ("g", "x", "y"), outcome=spread_outcome)
def two_groups(rng, n):
    """Draw two groups, and a normal column."""
    x, z = correlated(rng, n, 2, 0.4).T
    return pd.DataFrame({"g": (rng.random(n) < 0.5).astype(float), "x": x, "z": z})


def exclusive(frame):
    """Say which rows have at most one of the three columns equal to 1."""
    return frame[["d1", "d2", "d3"]].sum(axis=1).isin((0, 1)).to_numpy()


_DUMMIES = {"d1": 0.8, "d2": -0.6, "d3": 0.5, "t=b": 0.5, "t=c": -0.5}


@add("dummies", _DUMMIES, "d1", (("d1", "d2", "d3"), "t", "y"), rule=exclusive)
def dummies(rng, n):
    """Draw three 0/1 columns, of which one at most is 1, and a text column."""
    x, z = correlated(rng, n, 2, 0.5).T
    state = levels_of(rng, x, [0, 0.6, -0.6, 0.3], [0.2, 0, 0, 0], np.arange(4))
    t = levels_of(rng, x, [0, 0.5, -0.5], [0, 0, 0], LETTERS[:3])
    columns = {f"d{k}": (state == k).astype(float) for k in (1, 2, 3)}
    return pd.DataFrame(columns | {"t": t, "z": z}).astype({"t": "str"})


def in_county(frame):
    """Say which rows have a town of their county."""
    number = frame["town"].str.removeprefix("town ").astype(int).to_numpy()
    return frame["county"].to_numpy(dtype=str) == LETTERS[number // (TOWNS // 4)]


_COUNTIES = {"county=b": 0.8, "county=c": -0.6, "county=d": 0.4, "z": 0.3}


@add("hierarchy", _COUNTIES, "county=b", ("town", "county", "y"), rule=in_county)
def hierarchy(rng, n):
    """Draw towns, each of which is in a county."""
    z = rng.normal(size=n)
    slopes = np.repeat([0, 0.6, -0.6, 0.3], TOWNS // 4)
    town = levels_of(rng, z, slopes, np.zeros(TOWNS), np.arange(TOWNS)).astype(int)
    county = LETTERS[town // (TOWNS // 4)]
    names = np.array([f"town {k}" for k in range(TOWNS)])
    frame = pd.DataFrame({"town": names[town], "county": county, "z": z})
    return frame.astype({"town": "str", "county": "str"})


# Missing where a covariate is low


def truncated(grid=None, *, is_skewed=False):
    """Make a simulation of y = 50 + 3 x + 3 noise."""

    def simulate(rng, n):
        x = rng.gamma(2, 10, size=n) if is_skewed else rng.normal(20, 5, size=n)
        y = 50 + 3 * x + 3 * rng.normal(size=n)
        y = y if grid is None else np.round(np.round(y / grid) * grid, 6)
        return pd.DataFrame({"x": x, "y": y})

    return simulate


_ONE = {"x": 3.0}, "x", ("y",), "x", -2.0
for _name, _simulate in {
    "truncated": truncated(),
    "truncated, whole": truncated(1.0),
    "truncated, grid .2": truncated(0.2),
    "truncated, grid .1": truncated(0.1),
    "truncated, skewed": truncated(is_skewed=True),
}.items():
    add(_name, *_ONE, outcome=simulated, hide=BelowQuantile("y", "x"))(_simulate)
add("soft selection", *_ONE, outcome=simulated, rates=(0.5, 0.7, 0.3))(truncated())

# Distributions of covariates; u is uniform, and correlates with x and z


def shaped(shape):
    """Make a simulation with a column w of a shape, and normal columns x and z."""

    def simulate(rng, n):
        L = correlated(rng, n, 3, 0.4)
        w = shape(norm.cdf(L[:, 0]))
        return pd.DataFrame({"w": w, "x": L[:, 1], "z": L[:, 2]})

    return simulate


def lognormal(u):
    """Return values of a lognormal distribution."""
    return np.exp(norm.ppf(u))


def percent(u):
    """Return values between 0 and 100, few of them near the ends."""
    return 100 * beta.ppf(u, 2, 1.5)


def percent_ends(u):
    """Return values in [0, 100], with mass at both ends."""
    return np.clip(50 + 50 * norm.ppf(u) + 10, 0, 100)


def zero_inflated(u):
    """Return zeros in 40 % of the rows, and otherwise gamma values."""
    return np.where(u < 0.4, 0, gamma.ppf(np.clip((u - 0.4) / 0.6, 0, 1), 2.0))


for _name, _shape, _term, _slope in (
    ("lognormal", lognormal, "w", 0.4),
    ("gamma", lambda u: gamma.ppf(u, 1.0), "w", 0.7),
    ("percent", percent, "w", 0.03),
    ("percent, ends", percent_ends, "w", 0.02),
    ("zero-inflated", zero_inflated, "w", 0.5),
    ("counts, mean 2", lambda u: poisson.ppf(u, 2).astype(float), "w", 0.5),
    ("counts, mean 8", lambda u: poisson.ppf(u, 8).astype(float), "w", 0.25),
    ("counts, wide", lambda u: nbinom.ppf(u, 1, 1 / 7).astype(float), "w", 0.1),
    ("log scale", lognormal, "log w", 0.7),
):
    add(_name, {_term: _slope, "x": 0.4}, _term, ("w", "x", "y"))(shaped(_shape))


_OPTIONS = {"slope": 2, "outcome": simulated}


@add("log outcome", {"z": 0.5}, "z", ("y",), analyse=linear("log y", "z"), **_OPTIONS)
def wages(rng, n):
    """Make z, and y, whose logarithm is linear in it."""
    z, noise = rng.normal(size=(2, n))
    return pd.DataFrame({"z": z, "y": np.exp(0.5 * z + 0.5 * noise)})


@add("skewed outcome", {"z": 2.0}, "z", ("y",), sizes=SIZES[:2], **_OPTIONS)
def skewed(rng, n):
    """Make z, and y, which is linear in it with noise that is skewed."""
    z = rng.normal(size=n)
    return pd.DataFrame({"z": z, "y": 2 * z + rng.chisquare(3, n)})


# by Stein's lemma, of the four places where grades change
_slope = sum(norm.pdf(np.array([-1.5, -0.5, 0.5, 1.5]), scale=np.sqrt(2)))


@add("grade outcome", {"z": _slope}, "z", ("y",), sizes=SIZES[:2], **_OPTIONS)
def marks(rng, n):
    """Make z, and y, a grade from 1 to 5 of a normal variable of variance 2."""
    z, noise = rng.normal(size=(2, n))
    return pd.DataFrame({"z": z, "y": (3 + z + noise).round().clip(1, 5)})


# Products and squares, of which methods are not told, but smcfcs is


def product(other):
    """Make a simulation with x, another covariate b, and z, which decides."""

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
        return frame.drop(columns="b") if other == "square" else frame

    return simulate


def with_proxy(rng, frame, truth):
    """Add an outcome, and it with noise, which no analysis has."""
    frame = with_outcome(rng, frame, truth)
    return frame.assign(p=frame["y"] + rng.normal(size=len(frame)))


class AlsoByOutcome(AtRandom):
    """Hide cells of x given z and y, which have no missing cells."""

    def __call__(self, rng, frame, rate):
        both = frame["z"] + frame["y"] / frame["y"].std()
        return super().__call__(rng, frame.assign(z=both), rate)


_SELECTED = {"hide": AlsoByOutcome(("x",), "z", 2.0), "sizes": SIZES[:1]}
_KINDS = {
    "": {"sizes": SIZES},
    "absent": {"sizes": SIZES},
    "selected": _SELECTED,
    "selected, absent": _SELECTED,
    "proxy": {"outcome": with_proxy, "sizes": SIZES[:1]},
}
for _name, _other, _term, _formula, _slope in (
    ("interaction, 0/1", "binary", "x*b", "y ~ x + b + x:b", 1.0),
    ("interaction, numbers", "number", "x*b", "y ~ x + b + x:b", 0.5),
    ("interaction, grades", "grade", "x*b", "y ~ x + b + x:b", 0.5),
    ("square", "square", "x^2", "y ~ x + I(x^2)", 0.5),
):
    _covariates = ("x",) if _other == "square" else ("x", "b")
    for _kind, _options in _KINDS.items():
        _truth = dict.fromkeys(_covariates, 1.0)
        _truth[_term] = 0.0 if "absent" in _kind else _slope
        _name_of_kind = f"{_name}, {_kind}".removesuffix(", ")
        _given = _truth, _term, (*_covariates, "y")
        add(_name_of_kind, *_given, formula=_formula, **_options)(product(_other))

_LEVELS = {"x": 0.5, "g=b": 0.5, "g=c": -0.5}
_OPTIONS = {"formula": "y ~ x * g", "sizes": SIZES[:2]}
for _name, _slopes in (
    ("interaction, levels", {"x*g=b": 0.5, "x*g=c": 1.0}),
    ("interaction, levels, absent", {"x*g=b": 0.0, "x*g=c": 0.0}),
):
    _given = _LEVELS | _slopes, "x*g=c", ("x", "g", "y")
    add(_name, *_given, **_OPTIONS)(product("levels"))

# Columns that follow from others, and are in the analysis


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
        return pd.DataFrame(frame | {"z": z})

    return simulate


_REGIONS = {"north": 1.0, "south": -0.5, "west": 0.5}
_OPTIONS = {"sizes": SIZES[:2], "has_relations": True}
for _kind, *_given in (
    ("square", {"x": 1.0, "xx": 0.5}, "xx", (("x", "xx"), "y")),
    ("total", {"a": 1.0, "total": 0.5}, "total", ("a", "b", "total")),
    ("set", _REGIONS, "west", (("east", *_REGIONS), "y")),
):
    add(f"derived {_kind}", *_given, **_OPTIONS)(derived(_kind))

# Groups of rows

_CLUSTERED = {"x": 0.5, "v": 0.5}
_OPTIONS = {
    "outcome": simulated,
    "analyse": clustered("y", *_CLUSTERED, group="g", between=("v",)),
    "group": "g",
}


@add("clustered", _CLUSTERED, "x", ("x", "y"), **_OPTIONS)
def groups(rng, n):
    """Draw groups of ten rows, with random intercepts; v is constant within groups."""
    g = np.repeat(np.arange(n // 10), 10)
    intercepts, v = rng.normal(size=(2, n // 10))
    z = rng.normal(size=n)
    x = 0.5 * z + 0.5 * rng.normal(size=n // 10)[g] + 0.7 * rng.normal(size=n)
    frame = pd.DataFrame({"g": [f"group {k}" for k in g], "x": x, "v": v[g], "z": z})
    frame = with_outcome(rng, frame.astype({"g": "str"}), _CLUSTERED, 0.8)
    return frame.assign(y=frame["y"] + 0.7 * intercepts[g])
