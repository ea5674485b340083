"""Designs with skewed columns, counts, products, squares, and groups of rows."""

import numpy as np
import pandas as pd
from _validity_analyses import clustered
from _validity_designs import AtRandom, add, correlated, with_outcome
from scipy.special import expit
from scipy.stats import beta, gamma, norm, poisson

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


def gammas(rng, u):
    """Return values of a gamma distribution of shape 1."""
    return gamma.ppf(u, 1.0)


def percent(rng, u):
    """Return values between 0 and 100, few of them near the ends."""
    return 100 * beta.ppf(u, 2, 1.5)


def percent_ends(rng, u):
    """Return values in [0, 100], with mass at both ends."""
    return np.clip(50 + 50 * norm.ppf(u) + 10, 0, 100)


def zero_inflated(rng, u):
    """Return zeros in 40 % of the rows, and otherwise gamma values."""
    return np.where(u < 0.4, 0, gamma.ppf(np.clip((u - 0.4) / 0.6, 0, 1), 2.0))


def few(rng, u):
    """Return counts of mean 2."""
    return poisson.ppf(u, 2).astype(float)


def many(rng, u):
    """Return counts of mean 8."""
    return poisson.ppf(u, 8).astype(float)


for _name, _words, _shape, _slope in (
    ("lognormal", "a lognormal covariate w", lognormal, 0.4),
    ("gamma", "an exponential covariate w", gammas, 0.7),
    ("percent", "w in 0 to 100, few values near the ends", percent, 0.03),
    ("percent, ends", "w in 0 to 100, with mass at both ends", percent_ends, 0.02),
    (
        "zero-inflated",
        "w is 0 in 40 % of the rows, otherwise gamma",
        zero_inflated,
        0.5,
    ),
    ("counts, mean 2", "w is a Poisson count of mean 2", few, 0.5),
    ("counts, mean 8", "w is a Poisson count of mean 8", many, 0.25),
):
    _truth = {"w": _slope, "x": 0.4}
    add(
        _name,
        f"y on w and a normal covariate; {_words}",
        shaped(_shape, _truth),
        _truth,
        "w",
        ("w", "x", "y"),
    )
_truth = {"log w": 0.7, "x": 0.4}
add(
    "log scale",
    "y on the logarithm of a lognormal w, which is imputed as it is, and on x",
    shaped(lognormal, _truth),
    _truth,
    "log w",
    ("w", "x", "y"),
)

# Products and squares, of which methods are not told, but smcfcs is


def product(truth, other):
    """Make a simulation with x, another covariate b, and z, which decides."""

    def simulate(rng, n):
        z = rng.normal(size=n)
        x = 0.5 * z + np.sqrt(0.75) * rng.normal(size=n)
        b = 0.5 * z + np.sqrt(0.75) * rng.normal(size=n)
        if other == "binary":
            b = (rng.random(n) < expit(0.8 * z)).astype(float)
        frame = pd.DataFrame({"x": x, "b": b, "z": z})
        if other == "square":
            frame = frame.drop(columns="b")
        return with_outcome(rng, frame, truth)

    return simulate


class AlsoByOutcome(AtRandom):
    """Hide cells of x given z and y, which have no missing cells."""

    def __call__(self, rng, frame, rate):
        both = frame["z"] + frame["y"] / frame["y"].std()
        return super().__call__(rng, frame.assign(z=both), rate)


for _name, _other, _term, _formula, _slope in (
    ("interaction, 0/1", "binary", "x*b", "y ~ x + b + x:b", 1.0),
    ("interaction, numbers", "number", "x*b", "y ~ x + b + x:b", 0.5),
    ("square", "square", "x^2", "y ~ x + I(x^2)", 0.5),
):
    for _kind in ("", "absent", "selected", "selected, absent"):
        _truth = {"x": 1.0, "b": 1.0, _term: 0.0 if "absent" in _kind else _slope}
        if _other == "square":
            del _truth["b"]
        _covariates = tuple(name for name in _truth if name != _term)
        _words = {"binary": "a 0/1 column b", "number": "a normal b", "square": "x^2"}
        _selected = "selected" in _kind
        add(
            f"{_name}, {_kind}".removesuffix(", "),
            f"y on x, {_words[_other]}"
            + ("" if _other == "square" else ", and their product")
            + (f", whose slope is {_truth[_term]:g}")
            + ("; x is missing given z and the complete y" if _selected else ""),
            product(_truth, _other),
            _truth,
            _term,
            ("x",) if _selected else (*_covariates, "y"),
            hide=AlsoByOutcome(("x",), "z", 2.0)
            if _selected
            else AtRandom((*_covariates, "y"), "z"),
            formula=_formula,
            sizes=SIZES[:1] if _selected else SIZES,
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
    "30 groups of ten rows, random intercepts (ICC .43), analysed by REML; x and y are "
    "incomplete",
    groups,
    CLUSTERED,
    "x",
    ("x", "y"),
    analyse=clustered("y", *CLUSTERED, group="g", between=("v",)),
    group="g",
)
