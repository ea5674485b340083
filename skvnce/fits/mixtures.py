"""Fit the members of an ensemble of mixtures, each to randomly weighted rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em as normal_em
from skvnce.algorithms.mixture import em, margins
from skvnce.algorithms.mixture.model import Arranged
from skvnce.distributions.normal import Normal
from skvnce.fitted.mixture import MixtureModel
from skvnce.tables.model_columns import ModelCells
from skvnce.tables.schema import Schema

MARGINALS = {
    "normal-scores": (margins.normal_scores,),
    "raw": (margins.standardised,),
    "both": (margins.normal_scores, margins.standardised),
}

_STRENGTH = 1.0  # of the prior for covariances, in rows a column
_OF_NORMAL = 0.05  # the same of the normal distribution from which components start
_OF_CLASSES = 1.0  # of the prior for categories, in rows
_ROUNDS_OF_NORMAL = 60
_MOST_COMPONENTS = 20


class Settings(NamedTuple):
    """How a member is fitted.

    Attributes
    ----------
    n_components : int
    max_iter : int
    to_scores : callable
        Makes scores, see `margins`.
    """

    n_components: int
    max_iter: int
    to_scores: Callable


def count_components(requested: int | str, n_rows: int, n_columns: int) -> int:
    """Return how many components a table is fitted by."""
    if isinstance(requested, str):
        requested = _MOST_COMPONENTS
    return max(1, min(int(requested), n_rows))


def posterior_weights(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Draw weights of rows by the Bayesian bootstrap (Rubin 1981).

    The weight of a row that counts k times is distributed as a sum of k weights.
    """
    drawn = np.maximum(rng.gamma(weights), 1e-9 * weights)
    return drawn * (weights.sum() / drawn.sum())


def fit_member(
    cells: ModelCells,
    schema: Schema,
    weights: np.ndarray,
    settings: Settings,
    rng: np.random.Generator,
    on_round: Callable,
) -> MixtureModel:
    """Fit a mixture to weighted rows.

    Parameters
    ----------
    cells : ModelCells
    schema : Schema
    weights : ndarray of shape (n,)
    settings : Settings
    rng : numpy.random.Generator
    on_round : callable

    Returns
    -------
    MixtureModel
    """
    is_categorical = schema.is_categorical
    numbers = cells.nodes[:, ~is_categorical]
    codes = np.nan_to_num(cells.nodes[:, is_categorical], nan=-1).astype(np.int64)
    points = settings.to_scores(numbers, weights)
    scores = points.to_scores(numbers)
    normal, filled = _normal(scores, weights)
    n_categories = schema.n_categories[is_categorical]
    shares = _shares(codes, weights, n_categories)
    prior = em.Prior(
        _STRENGTH * max(scores.shape[1], 1),
        normal.covariance.numpy(),
        normal.mean.numpy(),
        tuple(_OF_CLASSES * one for one in shares),
    )
    data = Arranged.of(scores, codes)
    indicators = [_indicators(code, one) for code, one in zip(codes.T, shares)]
    clustered = np.column_stack([filled, *indicators])
    first = em.first_shares(clustered, settings.n_components, rng)
    fit = em.fit_mixture(
        data,
        weights[data.order],
        filled[data.order],
        first[data.order],
        prior,
        settings.max_iter,
        on_round,
    )
    ranges = schema.values.ranges[:, schema.model_columns][:, ~is_categorical]
    valid = points.within(*ranges)
    return MixtureModel(fit.mixture, is_categorical, points, valid)


def _normal(scores, weights):
    """Fit one normal distribution, and fill the scores by its conditional means."""
    d = scores.shape[1]
    start = Normal(torch.zeros(d).double(), torch.eye(d).double())
    if not d:
        return start, scores
    data = Incomplete.from_array(scores)
    given = data, torch.from_numpy(weights), _OF_NORMAL * d, start
    normal = normal_em.fit_normal(
        *given, max_iter=_ROUNDS_OF_NORMAL, tol=1e-3, on_round=lambda *_: False
    ).normal
    return normal, normal_em.conditional_mean(normal, data).numpy()


def _shares(codes, weights, n_categories):
    """Compute shares of the categories of each column, each positive."""
    counts = [
        np.bincount(code[code >= 0], weights[code >= 0], minlength=n) + 0.5
        for code, n in zip(codes.T, n_categories, strict=True)
    ]
    return [one / one.sum() for one in counts]


def _indicators(code, shares):
    """Code categories by indicators, and missing ones by their shares."""
    found = np.eye(len(shares))[code]
    found[code < 0] = shares
    return found
