"""Fit mixtures to weighted rows, from the marginals and moments of the table."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.special import gammaincinv

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import steps
from skvnce._core.random import seeded
from skvnce._imputer.fitted import CellModel
from skvnce._imputer.held_out import Keys, cells_to_hide, some_rows
from skvnce._tables.model_columns import ModelCells
from skvnce._tables.schema import Schema
from skvnce._tables.values import fair_scores
from skvnce.gaussian import em as normal_em
from skvnce.mixture import em, margins
from skvnce.mixture.density import Arranged
from skvnce.mixture.margins import Points
from skvnce.mixture.model import MixtureModel, split_columns

MARGINALS = {
    "normal-scores": (margins.normal_scores,),
    "raw": (margins.standardised,),
    "both": (margins.normal_scores, margins.standardised),
}

STRENGTH = 0.5  # of the prior for covariances, in rows a column
_OF_NORMAL = 0.05  # the same of the normal distribution from which components start
_OF_CLASSES = 1.0  # of the prior for categories, in rows
_ROUNDS_OF_NORMAL = 60
_MOST_COMPONENTS = 20  # with more, errors of other tables hardly decrease
_ROWS = 10  # rows a component, below which it finds groups in noise
_WIDE = 300  # columns from which a round of EM takes minutes
_BEYOND = 0.1  # standard deviations from the observed cells to cells beyond them
_SHARE_BEYOND = 0.25  # of missing cells; truncation has 0.5, real tables up to 0.18
_FEWEST_BEYOND = 10  # such cells
_LEAST = 1e-9  # random weight, as a share of the weight: levels may underflow
_NARROW = 40  # columns up to which components have unrestricted covariances


class Shape(NamedTuple):
    """The numbers of components and factors of a mixture."""

    n_components: int
    n_factors: int = 0  # those of each component; 0 leaves covariances unrestricted


class Start(NamedTuple):
    """Marginals, prior and filled rows from which mixtures start."""

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
    return em.count_factors(within, n_rows, em.LEAST_VARIANCE)


def posterior_weights(
    rng: np.random.Generator, weights: np.ndarray, n_sets: int, n_kinds: int
) -> np.ndarray:
    """Draw weights of rows for members by the Bayesian bootstrap.

    Each set has the sum of `weights`.  Sets have different parts of the distribution of
    a row, and so have those of one kind among themselves, so that averages over members
    hardly depend on `rng` (Latin hypercube sampling: McKay, Beckman and Conover 1979;
    sliced for kinds: Qian 2012).  The mean of a row over sets is its weight, up to the
    sums of sets; variances over sets remain those of the bootstrap.  Returns (n_sets,
    n_kinds, n).
    """
    shape = (n_sets, n_kinds, len(weights))
    parts = rng.permuted(
        np.broadcast_to(np.arange(n_sets)[:, None, None], shape), axis=0
    )
    kinds = rng.permuted(np.broadcast_to(np.arange(n_kinds)[:, None], shape), axis=1)
    places = parts * n_kinds + np.take_along_axis(kinds, parts, 0)
    levels = (places + rng.random(shape)) / (n_sets * n_kinds)
    drawn = np.fmax(gammaincinv(weights, levels), _LEAST * weights)
    drawn *= weights / drawn.mean((0, 1))
    return drawn * (weights.sum() / drawn.sum(2, keepdims=True))


def start_of(cells: ModelCells, schema: Schema, to_scores: Callable) -> Start:
    """Fit one normal distribution to the scores of all rows."""
    numbers, codes = split_columns(cells.nodes, schema.is_categorical)
    points = to_scores(numbers, cells.weights)
    normal, filled = _normal(points.to_scores(numbers), cells.weights)
    shares = _shares(codes, cells.weights, schema)
    prior = em.Prior(
        STRENGTH * filled.shape[1],
        normal.covariance.numpy(),
        normal.mean.numpy(),
        tuple(_OF_CLASSES * share for share in shares),
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
    beyond = missing & ((filled < low - far) | (filled > high + far))
    count, total = cells.weights @ beyond, cells.weights @ missing
    enough = (count >= _FEWEST_BEYOND) & (count >= _SHARE_BEYOND * total)
    return bool((enough & (raw.points.counts == 2)).any())


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

    `rng`: chooses the rows at which clusters start.
    """
    numbers, codes = split_columns(cells.nodes, schema.is_categorical)
    points = start.to_scores(numbers, weights)
    scores = points.to_scores(numbers)
    if shape == (1, 0):
        normal, _ = _normal(scores, weights)
        shares = _shares(codes, weights, schema)
        mixture = em.of_one(normal.mean.numpy(), normal.covariance.numpy(), shares)
    else:
        data = Arranged.of(scores, codes)
        shares, centres = em.cluster(start.rows, weights, shape.n_components, rng)
        means = centres[:, : numbers.shape[1]]  # without those of indicators
        mixture = em.fit_mixture(
            data,
            weights[data.order],
            means,
            shares[data.order],
            start.prior,
            n_rounds,
            shape.n_factors,
        ).mixture
    if not np.isfinite(mixture.covariances).all():
        raise np.linalg.LinAlgError("a covariance is not finite")
    valid = _valid(points, cells, schema)
    return MixtureModel(mixture, schema.is_categorical, valid, points)


def model_of_start(cells: ModelCells, schema: Schema, start: Start) -> MixtureModel:
    """Return the model of one component from which all mixtures start."""
    valid = _valid(start.points, cells, schema)
    shares = [counts / counts.sum() for counts in start.prior.classes]
    mixture = em.of_one(start.prior.centre, start.prior.within, shares)
    return MixtureModel(mixture, schema.is_categorical, valid, start.points)


def _valid(points, cells, schema):
    """Let cells end where the valid ones do."""
    columns = schema.model_columns[~schema.is_categorical]
    numbers, _ = split_columns(cells.nodes, schema.is_categorical)
    peaks = margins.peaks(numbers, cells.weights, points)
    signs = schema.values.signs(schema.ends)[columns]
    least = schema.values.least_sizes()[columns]
    low, high = schema.values.ranges[:, columns]
    low, high = np.where(signs > 0, -np.inf, low), np.where(signs < 0, np.inf, high)
    valid = points.within(low, high)
    valid = valid.with_signs(numbers, cells.weights, signs, least)
    return valid.with_peaks(peaks)


def _normal(scores, weights):
    """Fit one normal distribution, and fill the scores by its conditional means.

    Returns the normal distribution and the filled scores (n, d).
    """
    d = scores.shape[1]
    start = Normal(torch.zeros(d).double(), torch.eye(d).double())
    if not d:
        return start, scores
    data = Incomplete.from_array(scores)
    normal = normal_em.fit_normal(
        data,
        torch.from_numpy(weights),
        _OF_NORMAL * d,
        start,
        max_iter=_ROUNDS_OF_NORMAL,
        tol=1e-3,
        on_round=lambda *_: False,
    ).normal
    return normal, normal_em.conditional_mean(normal, data).numpy()


def _shares(codes, weights, schema):
    """Compute shares of the categories of each column, each positive."""
    n_categories = schema.n_categories[schema.is_categorical]
    counts = [
        np.bincount(code[code >= 0], weights[code >= 0], minlength=n) + 0.5
        for code, n in zip(codes.T, n_categories, strict=True)
    ]
    return [count / count.sum() for count in counts]


def _indicators(code, shares):
    """Code categories by indicators, and missing ones by their shares."""
    indicators = np.eye(len(shares))[code]
    indicators[code < 0] = shares
    return indicators


# ----------------------------------------
# Scores of draws of held-out cells, by which models are compared.


_DRAWS = 40  # the score is fair to any number; with 40 noise of draws hardly adds
_SCORED_ROWS = 300  # in which cells are drawn; more are rarely needed for a decision


def draw_score(
    models: Sequence[CellModel],
    nodes: np.ndarray,  # (n, n_nodes), rows with the held-out cells
    hidden: np.ndarray,  # bool (n, n_nodes)
    scale: np.ndarray,  # (n_nodes,), standard deviations
    is_categorical: np.ndarray,  # bool (n_nodes,)
) -> float:
    """Score draws of held-out cells: the mean energy score of single cells.

    With m draws x_k of a cell of truth y, and distances d, it is

        sum_k d(x_k, y) / m - sum_kl d(x_k, x_l) / (2 m (m - 1)),                   (1)

    the fair score of Ferro (2014).  d is the distance of numbers in standard deviations
    of the column, for which eq. (1) is the continuous ranked probability score, and 1
    for different categories, for which it is half of the Brier score (Gneiting and
    Raftery 2007).

    `models`: fitted without the held-out cells; draws are of each equally often.
    Returns the mean over at most 300 rows, smaller is better; NaN without held-out
    cells.  Random numbers are of torch's global stream.
    """
    rows = some_rows(nodes, np.flatnonzero(hidden.any(1)), _SCORED_ROWS)
    if not len(rows):
        return np.nan
    nodes, hidden = nodes[rows], hidden[rows]
    with torch.no_grad():
        visible, number = np.where(hidden, np.nan, nodes), _DRAWS // len(models)
        drawn = np.concatenate([model.draw(visible, number) for model in models])
    numbers, levels = hidden & ~is_categorical, hidden & is_categorical
    unit = np.broadcast_to(scale, nodes.shape)[numbers]
    of_numbers = fair_scores((drawn[:, numbers] - nodes[numbers]) / unit)
    drawn, truth = _level_indicators(drawn[:, levels], nodes[levels])
    total = of_numbers.sum() + fair_scores(drawn - truth).sum() / 2
    return float(total / hidden.sum())


def _level_indicators(
    draws: np.ndarray, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Code categories by indicators; the distance of different ones is then 2."""
    levels = np.arange(int(max(draws.max(initial=0), truth.max(initial=0))) + 1)
    draws, truth = (codes[..., None] == levels for codes in (draws, truth))
    return draws.astype(float), truth.astype(float)


# ----------------------------------------
# Fit an ensemble of mixtures, and choose the numbers of components and factors.


_FEWER = 2  # how many times fewer rounds decide on the number of components
_NEXT = 4  # how many times fewer components categories may have, and those with factors


class Settings(NamedTuple):
    """The parameters of `MixtureImputer` that the fit of an ensemble uses."""

    n_components: int | str
    n_members: int
    marginals: str
    n_rounds: int
    n_jobs: int | None
    is_checked: bool  # whether mixtures are fitted without the held-out cells, too


class Ensemble(NamedTuple):
    """Fitted mixtures."""

    members: list[MixtureModel]
    hidden: np.ndarray  # bool (n, n_nodes), observed cells
    # one with each kind of marginals, fitted without these cells
    without: list[MixtureModel]
    shape: Shape  # of all of them


class _Fits(NamedTuple):
    """Fits of mixtures to one table."""

    schema: Schema
    starts: list[Start]
    settings: Settings
    rng: np.random.Generator

    def members(
        self,
        cells: ModelCells,
        weights: Sequence[np.ndarray],
        shape: Shape,
        n_rounds: int,
    ) -> list[MixtureModel]:
        """Fit a mixture to each of the weights of the rows."""
        streams, n = self.rng.spawn(len(weights)), len(weights)
        starts = [self.starts[i % len(self.starts)] for i in range(n)]
        jobs = (
            delayed(fit_member)(cells, self.schema, weight, start, shape, n_rounds, rng)
            for weight, start, rng in zip(weights, starts, streams, strict=True)
        )
        run = Parallel(self.settings.n_jobs, prefer="threads", return_as="generator")
        return [*steps("member", run(jobs), n)]

    def of_each_kind(self, cells: ModelCells, shape: Shape) -> list[MixtureModel]:
        """Fit a mixture with each kind of marginals, in fewer rounds."""
        if shape == (1, 0):  # which `starts` have fitted
            return [model_of_start(cells, self.schema, start) for start in self.starts]
        few = -(-self.settings.n_rounds // _FEWER)
        return self.members(cells, [cells.weights] * len(self.starts), shape, few)


def fit_ensemble(
    cells: ModelCells, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Ensemble:
    """Fit an ensemble of mixtures.

    One mixture with each kind of marginals is fitted without a tenth of the cells, by
    which the numbers of components and of factors are chosen if they are open.

    `rng`: draws the weights of rows, and the rows at which components start.
    """
    n_numbers = np.count_nonzero(~schema.is_categorical)
    size = count_components(settings.n_components, cells.weights.sum(), n_numbers)
    size, is_auto = min(size, len(cells.nodes)), isinstance(settings.n_components, str)
    is_open = size > 1 and (is_auto or has_factors(n_numbers))
    hidden = np.zeros(cells.nodes.shape, dtype=bool)
    if is_open or settings.is_checked:
        hidden = cells_to_hide(cells.nodes, cells.weights, schema.joined)
    visible = cells._replace(nodes=np.where(hidden, np.nan, cells.nodes))
    by_rank = margins.have_peaks(cells.nodes[:, ~schema.is_categorical], cells.weights)
    # chosen once, as random weights of members make peaks of single rows
    raw = partial(margins.standardised, by_rank=by_rank)
    starts = [
        start_of(visible, schema, raw if kind is margins.standardised else kind)
        for kind in MARGINALS[settings.marginals]
    ]
    # the last of both kinds has the columns as they are
    if len(starts) > 1 and is_beyond(cells, schema, starts[-1]):
        starts = starts[-1:]
    starts = starts[: settings.n_members]
    fits, without, shape = _Fits(schema, starts, settings, rng), [], Shape(size)
    weights = _weights_of_members(cells, settings.n_members, len(starts), rng)
    if hidden.any():
        shapes = [shape]
        if is_open:
            sizes = _sizes(size, schema) if is_auto else [size]
            shapes = _candidates(sizes, count_factors(visible, n_numbers, starts[0]))
        # all seeds choose the same shape, as the held-out cells are the same
        choosing = fits._replace(rng=np.random.default_rng(0))
        candidates = {
            option: choosing.of_each_kind(visible, option) for option in shapes
        }
        if is_open:
            shape = _best(candidates, cells, hidden, schema.is_categorical)
        without = candidates[shape]
    members = fits.members(cells, weights, shape, settings.n_rounds)
    return Ensemble(members, hidden, without, shape)


def _sizes(size, schema):
    """List the numbers of components that are compared."""
    few = size // _NEXT if schema.is_categorical.any() else 1
    return [size, few, 1] if few > 1 else [size, 1]


def _candidates(sizes, n_factors):
    """List the mixtures that are compared."""
    if not n_factors:
        return [Shape(size) for size in sizes]
    several = max(1, sizes[0] // _NEXT) if len(sizes) > 1 else sizes[0]
    few = -(-n_factors // _NEXT)  # components describe much without factors
    pairs = [(several, few), (several, n_factors), (sizes[-1], n_factors)]
    pairs = [*product(sizes, [0]), *pairs]
    return [Shape(*pair) for pair in dict.fromkeys(pairs)]


def _weights_of_members(cells, n_members, n_kinds, rng):
    """Draw weights of the rows for each member, but for a single one."""
    if n_members == 1:
        return [cells.weights]
    n_sets = -(-n_members // n_kinds)
    weights = posterior_weights(rng, cells.weights, n_sets, n_kinds)
    return [*weights.reshape(-1, len(cells.weights))[:n_members]]


def _best(fits, cells, hidden, is_categorical):
    """Return the mixture whose draws of held-out cells are closest.

    Random numbers of draws belong to places of columns, which are sorted by content.
    """
    order = Keys.of(cells.nodes, cells.weights).columns.argsort()
    held_out = cells.nodes, hidden, cells.scale, is_categorical
    held_out = [part[..., order] for part in held_out]

    def score(shape):
        with seeded(0):
            return draw_score([model.take(order) for model in fits[shape]], *held_out)

    return min(fits, key=score)
