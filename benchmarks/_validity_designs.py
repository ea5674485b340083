"""Designs of the validity study: what is simulated, hidden and analysed.

Missing values are missing at random given columns that are always observed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from _validity_analyses import linear, term_of
from scipy.optimize import brentq
from scipy.special import expit

ROWS, RATE = 300, 0.3
DESIGNS = {}


class Design(NamedTuple):
    """A table with a true answer, missing cells, and an analysis.

    Attributes
    ----------
    simulate : callable
        Returns a complete table, of a generator of random numbers and a number of rows.
    hide : callable
        Says which cells are missing, of a generator, a table and a rate.
    analyse : callable
        Returns estimates, variances and degrees of freedom of the slopes of a table.
    truth : dict of str to float
        The true slope of each term.
    interest : str
        The term that the design is about.
    incomplete : tuple of str
        The columns with missing cells.
    words : str
        What the design is, for the page.
    rates, sizes : tuple
        Shares of missing cells and numbers of rows.
    formula : str or None
        The analysis as a formula of R, for methods that are told of it.
    group : str or None
        The column that names groups.
    rule : callable or None
        Says which rows agree with a rule that all rows of a complete table agree with.
    """

    simulate: Callable
    hide: Callable
    analyse: Callable
    truth: dict
    interest: str
    incomplete: tuple
    words: str
    rates: tuple = (RATE,)
    sizes: tuple = (ROWS,)
    formula: str | None = None
    group: str | None = None
    rule: Callable | None = None


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


def incomplete_table(name, design, rows, rate, repetition):
    """Return a complete table and a copy with missing cells."""
    rng = np.random.default_rng([repetition, rows, *name.encode()])
    full = design.simulate(rng, rows)
    hidden = design.hide(rng, full, rate)
    return full, full.mask(hidden)


def add(name, words, simulate, truth, interest, incomplete, **options):
    """Add a design; by default y is linear in the terms; z decides what is missing."""
    options.setdefault("analyse", linear("y", *truth))
    options.setdefault("hide", AtRandom(incomplete, "z"))
    flat = tuple(
        np.hstack([list(c) if isinstance(c, tuple) else c for c in incomplete])
    )
    DESIGNS[name] = Design(
        simulate=simulate,
        truth=truth,
        interest=interest,
        incomplete=tuple(map(str, flat)),
        words=words,
        **options,
    )
