"""Warnings before Gibbs sampling of columns of many levels that takes minutes.

A nominal column has a latent variable for each level.  A sweep multiplies matrices of
the size of their number: its time grows with the square of the number of levels and the
number of rows, and that of a draw of the covariance with the cube of the former.
"""

from math import ceil
from time import perf_counter

import torch

from skvnce._progress import heard_by, step
from skvnce._random import seeded
from skvnce._warnings import warn_user
from skvnce.algorithms.mixed import gibbs
from skvnce.algorithms.mixed.columns import NOMINAL
from skvnce.estimators._duration import LONG, in_words
from skvnce.exceptions import DurationWarning

MANY = 100  # levels below which no time is measured: it would be a large share
_ROWS = 1000  # that are swept to measure the time


def columns_of_many_levels(names, kinds, sizes):
    """Choose the nominal columns whose sweeps may take long; a dict, as below.

    Parameters
    ----------
    names, kinds, sizes : sequence of length n_nodes
        Of the columns of a model, and the numbers of their levels.
    """
    return {
        name: size
        for name, kind, size in zip(names, kinds, sizes, strict=True)
        if kind == NOMINAL and size >= MANY
    }


def warn_of_many_levels(name, columns, n, seconds):
    """Warn if sweeps of columns of many levels will take more than a minute.

    Parameters
    ----------
    name : str
        Of the class whose fit begins.
    columns : dict of str to int
        Nominal columns of many levels, and the numbers of their levels.
    n : int
        Number of rows that are swept.
    seconds : float

    Warns
    -----
    DurationWarning
    """
    if seconds > LONG:
        listed = ", ".join(f"{one!r} has {k:,} levels" for one, k in columns.items())
        warn_user(
            f"{name}.fit to {n:,} rows will take about {in_words(seconds)}, because "
            f"each level of a nominal column has a latent variable: {listed}. Merge "
            "rare levels, or leave such a column out of the model by "
            'categorical_features={column: "passthrough"}.',
            DurationWarning,
        )


def seconds_of_sweep(latents, data, weights, n):
    """Estimate the time of a Gibbs sweep of n rows, from sweeps of one and of 1000.

    The global stream of random numbers stays as it was.

    Parameters
    ----------
    latents : Latents
    data : Incomplete
    weights : Tensor of shape (n_rows,)
    n : int

    Returns
    -------
    float
    """
    some = torch.arange(0, len(weights), ceil(len(weights) / _ROWS))
    with step("estimating the time of the fit"), seeded(0), heard_by(None):
        parameters, together = (
            _measured(latents, data.take(rows), weights[rows])
            for rows in (some[:1], some)
        )
    return parameters + max(together - parameters, 0.0) * n / len(some)


def _measured(latents, data, weights):
    """Measure the second sweep of a chain."""
    ends = []

    def on_round(number, loss, change):
        ends.append(perf_counter())
        return number == 2

    effort = {"n_draws": 1, "max_iter": 3, "on_round": on_round}
    gibbs.posterior_draws(latents, data, weights, float(latents.size), **effort)
    return ends[1] - ends[0]
