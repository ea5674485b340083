"""Fit the members of an ensemble of mixtures, each to randomly weighted rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em as normal_em
from skvnce.algorithms.mixture import em, margins
from skvnce.algorithms.mixture.model import Arranged, Mixture
from skvnce.distributions.normal import Normal
from skvnce.fitted.mixture import MixtureModel
from skvnce.tables.model_columns import ModelCells
from skvnce.tables.schema import Schema

MARGINALS = {
    "normal-scores": (margins.normal_scores,),
    "raw": (margins.standardised,),
    "both": (margins.normal_scores, margins.standardised),
}

_STRENGTH = 0.5  # of the prior for covariances, in rows a column
_OF_NORMAL = 0.05  # the same of the normal distribution from which components start
_OF_CLASSES = 1.0  # of the prior for categories, in rows
_ROUNDS_OF_NORMAL = 60
_TINY = 1e-300  # a divisor of sums that are 0
_MOST_COMPONENTS = 20  # with more, errors of other tables hardly decrease
_ROWS = 10  # rows a component, below which it finds groups in noise
_WIDE = 100  # columns from which a round of EM takes minutes


class Start(NamedTuple):
    """What the members with a kind of marginals start from.

    Attributes
    ----------
    to_scores : callable
        Makes scores, see `margins`.
    prior : Prior
        With the moments of a normal distribution of all rows.
    filled : ndarray of shape (n, d)
        Scores, filled by the means of this distribution.
    rows : ndarray of shape (n, width)
        The same with indicators of categories, by which rows are clustered.
    """

    to_scores: Callable
    prior: em.Prior
    filled: np.ndarray
    rows: np.ndarray


def count_components(requested: int | str, n_rows: int, n_columns: int) -> int:
    """Return how many components the table of a fit has."""
    if isinstance(requested, str):
        most = _MOST_COMPONENTS if n_columns < _WIDE else 1
        requested = min(most, max(1, n_rows // _ROWS))
    return min(int(requested), n_rows)


def posterior_weights(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Draw weights of rows by the Bayesian bootstrap (Rubin 1981).

    The weight of a row that counts k times is distributed as a sum of k weights.
    """
    drawn = np.maximum(rng.gamma(weights), 1e-9 * weights)
    return drawn * (weights.sum() / drawn.sum())


def start_of(cells: ModelCells, schema: Schema, to_scores: Callable) -> Start:
    """Fit one normal distribution to the scores of all rows."""
    numbers, codes = _split(cells.nodes, schema.is_categorical)
    scores = to_scores(numbers, cells.weights).to_scores(numbers)
    normal, filled = _normal(scores, cells.weights)
    n_categories = schema.n_categories[schema.is_categorical]
    shares = _shares(codes, cells.weights, n_categories)
    prior = em.Prior(
        _STRENGTH * scores.shape[1],
        normal.covariance.numpy(),
        normal.mean.numpy(),
        tuple(_OF_CLASSES * one for one in shares),
    )
    indicators = map(_indicators, codes.T, shares)
    return Start(to_scores, prior, filled, np.column_stack([filled, *indicators]))


def fit_member(
    cells: ModelCells,
    schema: Schema,
    weights: np.ndarray,
    start: Start,
    n_components: int,
    n_rounds: int,
    rng: np.random.Generator,
) -> MixtureModel:
    """Fit a mixture to weighted rows.

    Parameters
    ----------
    cells : ModelCells
    schema : Schema
    weights : ndarray of shape (n,)
        They take the place of those of `cells`.
    start : Start
    n_components, n_rounds : int
    rng : numpy.random.Generator
        Chooses the rows at which clusters start.

    Returns
    -------
    MixtureModel
    """
    numbers, codes = _split(cells.nodes, schema.is_categorical)
    points = start.to_scores(numbers, weights)
    scores = points.to_scores(numbers)
    if n_components == 1:
        normal, _ = _normal(scores, weights)
        n_categories = schema.n_categories[schema.is_categorical]
        mixture = _of_one(normal, _shares(codes, weights, n_categories))
    else:
        data = Arranged.of(scores, codes)
        shares = em.clustered(start.rows, weights, n_components, rng)
        mass = shares * weights[:, None]
        means = (mass.T @ start.filled) / np.maximum(mass.sum(0), _TINY)[:, None]
        given = weights[data.order], means, shares[data.order], start.prior
        mixture = em.fit_mixture(data, *given, n_rounds).mixture
    if not np.isfinite(mixture.covariances).all():
        raise np.linalg.LinAlgError("a covariance is not finite")
    valid = points.within(*_ends(numbers, schema))
    return MixtureModel(mixture, schema.is_categorical, valid, points)


def _of_one(normal, classes):
    """Make the mixture of one component, of which EM needs no prior within others."""
    noise = em.LEAST_VARIANCE * np.eye(len(normal.mean))
    covariance = normal.covariance.numpy() + noise
    means = normal.mean.numpy()[None]
    return Mixture(np.ones(1), means, covariance[None], tuple(s[None] for s in classes))


def _split(nodes, is_categorical):
    """Return the numbers (n, d), and the codes of categories, -1 where missing."""
    codes = np.nan_to_num(nodes[:, is_categorical], nan=-1)
    return nodes[:, ~is_categorical], codes.astype(np.int64)


def _ends(numbers, schema):
    """Return the ends of the cells of numbers: observed ones, or the user's bounds."""
    columns = schema.model_columns[~schema.is_categorical]
    ends = np.stack([np.fmin.reduce(numbers, 0), np.fmax.reduce(numbers, 0)])
    values = schema.values
    return np.where(values.given[:, columns], values.ranges[:, columns], ends)


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
