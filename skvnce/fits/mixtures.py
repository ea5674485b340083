"""Fit a mixture to weighted rows, and what all mixtures of a table start from."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._weights import random_weights
from skvnce.algorithms.gaussian import em as normal_em
from skvnce.algorithms.mixture import em, factors, margins
from skvnce.algorithms.mixture.margins import Points
from skvnce.algorithms.mixture.model import Arranged, Mixture
from skvnce.distributions.normal import Normal
from skvnce.fits.mixture_limits import anchored, limited_rows, redrawing
from skvnce.fitted.mixture import MixtureModel, split_columns
from skvnce.tables.model_columns import ModelCells
from skvnce.tables.schema import Schema

MARGINALS = {
    "normal-scores": (margins.normal_scores,),
    "raw": (margins.standardised,),
    "both": (margins.normal_scores, margins.standardised),
}

STRENGTH = 0.5  # of the prior for covariances, in rows a column
_OF_NORMAL = 0.05  # the same of the normal distribution from which components start
_OF_CLASSES = 1.0  # of the prior for categories, in rows
_ROUNDS_OF_NORMAL = 60
_AT_A_TIME = 3  # rounds of the normal distribution between draws of limited cells
_ROUNDS_OF_LIMITS = 60  # draws of limited cells, the second half of which counts
_MOST_COMPONENTS = 20  # with more, errors of other tables hardly decrease
_ROWS = 10  # rows a component, below which it finds groups in noise
_WIDE = 300  # columns from which a round of EM takes minutes
_BEYOND = 0.1  # standard deviations from the observed cells to cells beyond them
_SHARE_BEYOND = 0.25  # of missing cells; truncation has 0.5, real tables up to 0.18
_FEWEST_BEYOND = 10  # such cells
_NARROW = 40  # columns up to which components have unrestricted covariances


class Shape(NamedTuple):
    """What a mixture consists of."""

    n_components: int
    n_factors: int = 0  # those of each component; 0 leaves covariances unrestricted


class Start(NamedTuple):
    """What the mixtures with a kind of marginals start from."""

    to_scores: Callable  # makes scores, see `margins`
    points: Points  # those of all rows
    prior: em.Prior  # with the moments of a normal distribution of all rows
    # (n, width), scores, filled by the means of this distribution, and indicators of
    # categories, by which rows are clustered
    rows: np.ndarray


def count_components(requested: int | str, n_rows: float, n_columns: int) -> int:
    """Return how many components the table of a fit has."""
    if isinstance(requested, str):
        most = _MOST_COMPONENTS if n_columns < _WIDE else 1
        requested = min(most, max(1, n_rows // _ROWS))
    return min(int(requested), max(1, int(n_rows)))


def has_factors(n_columns: int) -> bool:
    """Return whether components may have factors."""
    return _NARROW < n_columns < _WIDE


def count_factors(cells: ModelCells, n_columns: int, start: Start) -> int:
    """Return how many factors describe the rows; 0 if components have none."""
    if not has_factors(n_columns):
        return 0
    within = start.prior.within + em.LEAST_VARIANCE * np.eye(n_columns)
    n_rows = np.isfinite(cells.nodes).mean() * cells.weights.sum()
    return factors.count_factors(within, n_rows, em.LEAST_VARIANCE)


def posterior_weights(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Draw weights of rows by the Bayesian bootstrap, with the sum of `weights`."""
    drawn = random_weights(rng, len(weights), weights, shape=1.0)
    return drawn * (weights.sum() / drawn.sum())


def start_of(
    cells: ModelCells,
    schema: Schema,
    to_scores: Callable,
    rng: np.random.Generator,
) -> Start:
    """Fit one normal distribution to the scores of all rows.

    `rng` draws cells within limits.
    """
    numbers, codes = split_columns(cells.nodes, schema.is_categorical)
    points = to_scores(numbers, cells.weights)
    scores = points.to_scores(numbers)
    given = limited_rows(cells, schema, points, _valid(points, cells, schema))
    normal, filled = _normal(scores, cells.weights, given, rng)
    n_categories = schema.n_categories[schema.is_categorical]
    shares = _shares(codes, cells.weights, n_categories)
    prior = em.Prior(
        STRENGTH * scores.shape[1],
        normal.covariance.numpy(),
        normal.mean.numpy(),
        tuple(_OF_CLASSES * one for one in shares),
    )
    indicators = map(_indicators, codes.T, shares)
    return Start(to_scores, points, prior, np.column_stack([filled, *indicators]))


def is_beyond(cells: ModelCells, schema: Schema, raw: Start) -> bool:
    """Return whether missing cells of a column are beyond the observed ones.

    Ranks of selected cells are not those of all, so that relations of normal scores
    bend, and no rank says how far beyond the observed cells the others are.  Columns
    of which `raw` has linear scores count.
    """
    are_numbers = ~schema.is_categorical
    numbers, columns = cells.nodes[:, are_numbers], schema.model_columns[are_numbers]
    filled = raw.points.to_cells(raw.rows[:, : len(columns)])
    filled = schema.values.clipped(filled, columns)
    low, high = np.fmin.reduce(numbers), np.fmax.reduce(numbers)
    far, missing = _BEYOND * cells.scale[are_numbers], np.isnan(numbers)
    if cells.limits is not None:  # the normal scores of these are estimated
        missing &= ~cells.limits.known[:, are_numbers]
    beyond = missing & ((filled < low - far) | (filled > high + far))
    count, total = cells.weights @ beyond, cells.weights @ missing
    some = (count >= _FEWEST_BEYOND) & (count >= _SHARE_BEYOND * total)
    return bool((some & (raw.points.counts == 2)).any())


def fit_member(
    cells: ModelCells,
    schema: Schema,
    weights: np.ndarray,  # (n,), they take the place of those of `cells`
    start: Start,
    shape: Shape,
    n_rounds: int,
    rng: np.random.Generator,
) -> MixtureModel:
    """Fit a mixture to weighted rows.

    `rng`: chooses the rows at which clusters start, and draws cells within limits.
    """
    numbers, codes = split_columns(cells.nodes, schema.is_categorical)
    points = start.to_scores(numbers, weights)
    scores, valid = points.to_scores(numbers), _valid(points, cells, schema)
    given = limited_rows(cells, schema, points, valid)
    if shape == (1, 0):
        normal, _ = _normal(scores, weights, given, rng)
        n_categories = schema.n_categories[schema.is_categorical]
        shares = _shares(codes, weights, n_categories)
        mixture = _of_one(normal.mean.numpy(), normal.covariance.numpy(), shares)
    else:
        data, redrawn = Arranged.of(scores, codes), None
        if given is not None:
            one = model_of_start(cells, schema, start).mixture
            data = redrawing(given, rng)(one)
            redrawn = anchored(given, weights, one, rng)
        shares, centres = em.clustered(start.rows, weights, shape.n_components, rng)
        means = centres[:, : scores.shape[1]]  # without those of indicators
        known = weights[data.order], means, shares[data.order], start.prior
        sizes = n_rounds, shape.n_factors
        mixture = em.fit_mixture(data, *known, *sizes, redrawn).mixture
    if not np.isfinite(mixture.covariances).all():
        raise np.linalg.LinAlgError("a covariance is not finite")
    return MixtureModel(mixture, schema.is_categorical, valid, points)


def model_of_start(cells: ModelCells, schema: Schema, start: Start) -> MixtureModel:
    """Return the model of one component from which all mixtures start."""
    shares = [one / one.sum() for one in start.prior.classes]
    mixture = _of_one(start.prior.centre, start.prior.within, shares)
    valid = _valid(start.points, cells, schema)
    return MixtureModel(mixture, schema.is_categorical, valid, start.points)


def _of_one(mean, covariance, classes):
    """Make the mixture of one component, of which EM needs no prior within others."""
    covariance = covariance + em.LEAST_VARIANCE * np.eye(len(mean))
    given = mean[None], covariance[None], tuple(one[None] for one in classes)
    return Mixture(np.ones(1), *given)


def _valid(points, cells, schema):
    """Let cells end where the valid ones do."""
    columns = schema.model_columns[~schema.is_categorical]
    numbers, _ = split_columns(cells.nodes, schema.is_categorical)
    peaks = margins.peaks(numbers, cells.weights, points)
    return points.within(*schema.values.ranges[:, columns]).with_peaks(peaks)


def _normal(scores, weights, given=None, rng=None):
    """Fit one normal distribution, and fill the scores by its conditional means.

    With limits (`given`) by stochastic EM, which starts without them.
    """
    d = scores.shape[1]
    start = Normal(torch.zeros(d).double(), torch.eye(d).double())
    if not d:
        return start, scores
    normal = _continued(scores, weights, start, _ROUNDS_OF_NORMAL)
    if given is not None:
        redrawn = redrawing(given._replace(codes=given.codes[:, :0]), rng)
        found = []
        for _ in range(_ROUNDS_OF_LIMITS):
            data = redrawn(_of_one(*(part.numpy() for part in normal), ()))
            scores = data.restored(np.where(data.observed, data.x, np.nan))
            normal = _continued(scores, weights, normal, _AT_A_TIME)
            found.append(normal)
        parts = zip(*found[_ROUNDS_OF_LIMITS // 2 :], strict=True)
        normal = Normal(*(torch.stack(one).mean(0) for one in parts))
    data = Incomplete.from_array(scores)
    return normal, normal_em.conditional_mean(normal, data).numpy()


def _continued(scores, weights, start, n_rounds):
    """Go on with EM for one normal distribution."""
    given = Incomplete.from_array(scores), torch.from_numpy(weights)
    strength = _OF_NORMAL * scores.shape[1]
    return normal_em.fit_normal(
        *given, strength, start, max_iter=n_rounds, tol=1e-3, on_round=lambda *_: False
    ).normal


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
