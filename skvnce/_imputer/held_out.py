"""Checks that a model predicts held-out cells better than the column means do.

Some observed cells are held out, and the model is fitted to the others and predicts
them.  ``held_out_gain_`` is one minus the ratio of two mean squared errors: of the
model, and of the means of the other cells of each column, for columns scaled to unit
standard deviation.  It is 1 for perfect predictions, 0 if the model is as good as the
means, and negative if it is worse.  In columns of categories log-losses take the place
of squared errors, and shares of levels that of means.  Columns that the model predicts
significantly worse
than the means do are imputed from their marginal distributions: `transform` fills in
their means, and `sample` draws from their observed values.
"""

from math import sqrt
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.special import ndtri

from skvnce._core.progress import step
from skvnce._core.random import mixed, numbered
from skvnce._core.warnings import warn_user
from skvnce._imputer.fill import Marginal
from skvnce._tables.findings import heavy_tailed
from skvnce._tables.values import column_moments, distinct_rows
from skvnce.exceptions import MisfitWarning

# ----------------------------------------
# Splits of tables: cells that are held out, and folds of rows.


_FEWEST = 10  # minimum number of observed cells of a column from which to hold out
_ROWS = 5000  # approximate number of rows that suffice to choose a parameter
# rows of weight one a value: a row that is drawn with replacement from others of unique
# values occurs 1.6 times, so that a column with more repeats tells no rows apart
_REPEATS = 3


class Keys(NamedTuple):
    """Random integers of rows and columns, which are functions of their cells.

    They depend neither on units nor on the order of rows or columns.
    """

    # uint64 (n,), equal rows have different ones, unless a value in them is so rare
    # that they are copies of one row, which must not be on both sides of a split
    rows: np.ndarray
    columns: np.ndarray  # uint64 (n_nodes,), all are different

    @classmethod
    def of(cls, nodes: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """Make the keys of the rows of a table (n, n_nodes), of weight 1 by default."""
        weights = np.ones(len(nodes)) if weights is None else weights
        ranks, columns = _ranks(nodes), np.zeros(nodes.shape[1], np.uint64)
        content = np.zeros(len(nodes), np.uint64)
        for _ in range(2):  # columns of equal counts differ by the rows of their values
            columns = _column_keys(ranks, content, weights)
            content = _row_keys(ranks, columns)
        columns = mixed(columns + occurrences(columns))
        copies = occurrences(content, weights)
        copies[_are_unique(nodes, weights)] = 0
        return cls(mixed(_row_keys(ranks, columns) + mixed(copies)), columns)

    def uniform(self, step: int) -> np.ndarray:
        """Make uniform numbers in [0, 1) of rows; (n,)."""
        return numbered(self.rows + _salt(step))

    def uniform_cells(self, step: int) -> np.ndarray:
        """Make uniform numbers in [0, 1) of cells; (n, n_nodes)."""
        return numbered(self.rows[:, None] ^ (self.columns + _salt(step)))


def hold_out(nodes, weights, share, joined=None):
    """Choose rows, and hold out a share of their observed cells; see `Keys`.

    Columns of equal numbers in `joined` are held out together.  Returns which rows (n,)
    and which cells (n, n_nodes), bool.
    """
    keys, observed = Keys.of(nodes, weights.numpy()), torch.from_numpy(~np.isnan(nodes))
    key = torch.from_numpy(keys.uniform(0))
    in_sample = key <= key.unique()[:_ROWS][-1]
    enough = (weights * in_sample) @ observed.double() >= _FEWEST
    chosen = keys.uniform_cells(1) < share
    if joined is not None:
        _, first, place = np.unique(joined, return_index=True, return_inverse=True)
        chosen = chosen[:, first[place]]
    return in_sample, torch.from_numpy(chosen) & observed & enough


def row_folds(nodes, n_folds=5):
    """Split rows into folds by their ranks, as `hold_out` does; (n,)."""
    return torch.from_numpy((Keys.of(nodes).uniform(2) * n_folds).astype(np.int64))


def _salt(step):
    return mixed(np.array([step], np.uint64))


def _ranks(nodes):
    """Mix dense ranks, 0 where cells are missing; (n, n_nodes)."""
    ranks = [np.unique(column, return_inverse=True)[1] for column in nodes.T]
    ranks = np.array(ranks, np.uint64).reshape(nodes.shape[::-1]).T
    return np.where(np.isnan(nodes), np.uint64(0), mixed(ranks))


def _column_keys(ranks, content, weights):
    """Sum numbers of weights over the different cells and their rows; (n_nodes,)."""
    keys = []
    for column in ranks.T:
        observed = column > 0
        digests = mixed(column[observed] + content[observed])
        cells, place = np.unique(digests, return_inverse=True)
        # rounded, as sums of weights depend on their order in the last bits
        total = np.bincount(place, weights[observed]).astype(np.float32).view(np.uint32)
        keys.append(mixed(cells + mixed(total)).sum(dtype=np.uint64))
    return np.array(keys, np.uint64)


def _row_keys(ranks, columns):
    """Sum numbers of the cells of rows, in any order of the columns; (n,)."""
    content = np.zeros(len(ranks), np.uint64)
    for key, column in zip(columns, ranks.T, strict=True):
        content += mixed(key + column)
    return content


def occurrences(keys, weights=None):
    """Count the earlier items of the same key, of smaller weights first; (n,)."""
    order = np.lexsort((keys,) if weights is None else (weights, keys))
    first = np.flatnonzero(np.diff(keys[order], prepend=~keys[order][:1]))
    counts = np.diff(first, append=len(keys))
    count = np.empty(len(keys), np.uint64)
    count[order] = np.arange(len(keys)) - np.repeat(first, counts)
    return count


def _are_unique(nodes, weights):
    """Return which rows are empty, or have a cell whose column hardly repeats; (n,)."""
    are = np.isnan(nodes).all(1)
    for column in nodes.T:
        observed = ~np.isnan(column)
        n = max(weights[observed].sum(), observed.sum())
        if _REPEATS * len(np.unique(column[observed])) >= n:
            are |= observed
    return are


# ----------------------------------------
# Checks that a model predicts held-out cells better than the column means do.


HELD_OUT = 0.1  # share of the observed cells that are held out

_TOLERANCE = 1.1  # ratio of squared errors that a model fitted to noise may reach
_ERRORS = 3.0  # minimum number of standard errors of a significant difference
_ALARMS = 0.01  # probability of a false alarm in any column of a table
_FAR = 10.0  # limit, over the root of the number of cells, for very large errors
_NOISE = 3.0  # the same limit for all columns together
_ALONE = 4.0  # upper bound of the error ratio of a column in that sum
_CLIP = 3 * 1.4826  # in median errors of the means: 3 normal standard deviations
MOST_LISTED = 8  # maximum number of column names in a message
_LEAST = 1e-6  # probability of a held-out level that has none
_PREDICTED = 1000  # maximum number of rows in which cells are predicted


def held_out_result(nodes, predict, weights, hidden=None, scale=None, joined=None):
    """Hold out cells, predict them, and compare with the means of columns.

    `predict` maps (training, rows) to predictions: `training` is `nodes` with NaN in
    place of held-out cells, and `rows` are the indices of at most 1000 different rows
    with such cells.  It fits the model to `training` and returns the filled rows
    (n_rows, n_nodes) and the probabilities (n_rows, n_levels) of levels, a dict by
    node.  NaN, or None for all rows, marks what is not predicted.  Without `hidden`, a
    tenth of the cells is held out.
    """
    nothing = HeldOutResult(np.nan, np.zeros(nodes.shape[1], dtype=bool))
    if predict is None or not nodes.shape[1]:
        return nothing
    hidden = cells_to_hide(nodes, weights, joined, hidden)
    rows = some_rows(nodes, np.flatnonzero(hidden.any(1)))
    if not len(rows):
        return nothing
    training = np.where(hidden, np.nan, nodes)
    with step("predicting held-out cells"):
        filled, probabilities = predict(training, rows)
    if filled is None:
        filled = np.full((len(rows), nodes.shape[1]), np.nan)
    unit = np.nanmax(abs(nodes), 0)
    mean, _ = column_moments(training / unit, weights)
    if scale is None:
        scale = column_moments(nodes, weights)[1]
    scale = scale / unit
    first, group = distinct_rows(np.column_stack([nodes[rows], hidden[rows]]))
    weight = np.bincount(group, weights[rows])
    parts = nodes[rows][first] / unit, hidden[rows][first], filled[first] / unit
    losses = {
        j: _level_losses(nodes[rows, j][first], p[first], training[:, j], weights)
        for j, p in probabilities.items()
    }
    result = compare_errors(*parts, mean, scale, weight, losses)
    for j in heavy_tailed(nodes, set(range(len(scale))) - set(probabilities)):
        gaps = parts[1][:, j]
        if not gaps.any():
            continue
        pair = (cells[first, j][gaps] for cells in (filled, nodes[rows]))
        pair = (_normal_scores(cells, training[:, j], weights) for cells in pair)
        result.marginal[j] |= _is_worse_than_none(*pair, weight[gaps])
    return result


def checked_schema(schema, nodes, predict, weights=None, hidden=None, scale=None):
    """Predict held-out cells, and keep marginals of columns that are not predicted."""
    weights = np.ones(len(nodes)) if weights is None else weights
    result = held_out_result(nodes, predict, weights, hidden, scale, schema.joined)
    levels = schema.is_categorical
    marginals = {
        int(j): Marginal.of(nodes[:, j], weights, is_category=levels[j])
        for j in np.flatnonzero(result.marginal)
    }
    return schema._replace(marginals=marginals), result


def some_rows(nodes, rows, most=_PREDICTED):
    """Select about `most` of the rows by their content; copies stay together."""
    if len(rows) <= most:
        return rows
    key = Keys.of(nodes[rows]).uniform(0)
    return rows[key <= np.unique(key)[:most][-1]]


def cells_to_hide(nodes, weights, joined=None, hidden=None):
    """Select a tenth of the observed cells, if the rest of their column varies."""
    if hidden is None:
        weights = torch.from_numpy(weights)
        hidden = hold_out(nodes, weights, HELD_OUT, joined)[1].numpy()
    training = np.where(hidden, np.nan, nodes)
    hidden = hidden & ~(np.fmax.reduce(training) <= np.fmin.reduce(training))
    return hidden & ~np.isnan(training).all(0)


def _normal_scores(cells, column, weights):
    """Map cells (n,) to normal scores, by the distribution of an observed column."""
    observed = ~np.isnan(column)
    values, place = np.unique(column[observed], return_inverse=True)
    mass = np.bincount(place, weights[observed])
    return ndtri(np.interp(cells, values, (mass.cumsum() - mass / 2) / mass.sum()))


def _is_worse_than_none(filled, truth, weights):
    """Say whether errors of scores vary more than the scores, by a standard error.

    Their mean does not count, as means of skewed columns lie above the middle.
    """
    errors, none = (
        (x - np.average(x, weights=weights)) ** 2 for x in (filled - truth, truth)
    )
    excess = errors - none
    # no prediction, which is NaN, is worse
    return not weights @ excess <= np.sqrt(weights**2 @ excess**2)


def _level_losses(codes, probabilities, training, weights):
    """Compute log-losses of a model (n, n_levels), and of the shares of levels."""
    observed, width = ~np.isnan(training), probabilities.shape[1]
    levels = training[observed].astype(int)
    mass = np.bincount(levels, weights[observed], minlength=width) + 0.5
    codes = np.nan_to_num(codes).astype(int)
    likelihood = probabilities[np.arange(len(codes)), codes]
    return -np.log(np.maximum(likelihood, _LEAST)), -np.log(mass / mass.sum())[codes]


class HeldOutResult(NamedTuple):
    """Result of predicting held-out cells by a model."""

    gain: float  # NaN if no cell was held out
    # bool (n_nodes,), columns to impute from their marginal distributions
    marginal: np.ndarray

    def report(self):
        """List the attributes of an imputer that report the result."""
        return {"held_out_gain_": self.gain, "marginal_columns_": self.marginal}


def compare_errors(nodes, hidden, filled, mean, scale, weights=None, losses=None):
    """Compare a model with column means on held-out cells.

    Three criteria mark a column as predicted significantly worse than by its mean.
    First, its squared errors exceed 1.1 times those of the mean by three standard
    errors (more if there are many columns).  Second, they exceed them so much that few
    cells suffice.  Third, its errors are larger than those of the mean, and the errors
    of all columns together are significantly larger; then a single column has too few
    cells to decide.  The factor 1.1 (5 % in root mean squares) is the advantage of the
    means over a regression on noise with ten rows a column.

    A few large errors make standard errors large.  So the first criterion is also
    applied to squared errors that are clipped where errors of the means are extreme,
    provided that the unclipped errors are larger than those of the mean.

    Rows are all different; one of weight k counts as k.  `losses` of columns, pairs
    (n,) of the model and of the marginals, replace squared errors.
    """
    weights = np.ones(len(nodes)) if weights is None else weights
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        errors, means = (
            np.where(hidden, ((guess - nodes) / scale) ** 2, 0.0)
            for guess in (filled, mean)
        )
        for j, pair in (losses or {}).items():
            errors[:, j], means[:, j] = np.where(hidden[:, j], pair, 0.0)
        errors = np.nan_to_num(errors, nan=np.inf)
        marginal = _worse_beyond_chance(errors, means, weights)
        clipped = _clipped(errors, means, hidden, weights)
        errors, means, counts = weights @ errors, weights @ means, hidden.sum(0)
    marginal |= (errors > means) & _worse_beyond_chance(*clipped, weights)
    # by chance a few cells may lie at their mean
    expected = np.maximum(means, weights @ hidden)
    marginal |= errors > expected * (1 + _FAR / np.sqrt(np.maximum(counts, 1)))
    together = np.minimum(errors, _ALONE * means).sum()
    noise = _NOISE / sqrt(counts.sum())
    if together > means.sum() * max(1 + noise, _TOLERANCE + noise / 3):
        marginal |= errors > means
    gain = 1 - errors.sum() / means.sum() if means.any() else np.nan
    return HeldOutResult(float(gain), marginal)


def _worse_beyond_chance(errors, means, weights):
    """Find columns whose squared errors (n, n_nodes) exceed those of the means."""
    excess = errors - _TOLERANCE * means
    error = np.sqrt(np.square(weights) @ np.square(excess))
    level = max(_ERRORS, ndtri(1 - _ALARMS / errors.shape[1]))
    return weights @ excess > level * error


def _clipped(errors, means, hidden, weights):
    """Clip squared errors (n, n_nodes) at extreme squared errors of the means."""
    most = np.zeros(errors.shape[1])
    for j in np.flatnonzero(hidden.any(0)):
        cells = hidden[:, j]
        order = means[cells, j].argsort()
        total = weights[cells][order].cumsum()
        middle = order[np.searchsorted(total, total[-1] / 2)]
        most[j] = _CLIP**2 * means[cells, j][middle]
    return np.minimum(errors, most), np.minimum(means, most)


def warn_or_raise(messages, on_misfit):
    """Issue messages as warnings, or raise one ValueError with all of them."""
    if messages and on_misfit == "raise":
        raise ValueError(" ".join(messages))
    for message in messages if on_misfit == "warn" else []:
        warn_user(message, MisfitWarning)


def misfit_messages(schema, result, remedy):
    """Describe which columns the model does not predict, and how they are imputed."""
    places = schema.model_columns[result.marginal]
    if not len(places):
        return []
    handling = "these columns are imputed from their marginal distributions"
    if len(places) == 1:
        handling = "this column is imputed from its marginal distribution"
    means = "their means"
    if schema.is_categorical[result.marginal].any():
        means += ", or the shares of their levels,"
    return [
        f"Held-out cells of {schema.labels(places, MOST_LISTED)} are predicted worse "
        f"than by {means} (held_out_gain_={result.gain:.2g}, over all columns): "
        f"{handling}. {remedy}"
    ]


def tail_messages(schema, X, columns):
    """Describe the columns whose squared errors are dominated by a few cells."""
    heavy = heavy_tailed(X, columns)
    if not len(heavy):
        return []
    return [
        f"A few cells of {schema.labels(heavy, MOST_LISTED)} are so far from the "
        "others that they dominate the squared errors: the fit depends mainly on "
        "them, and other cells may be predicted badly. Set cells that are errors to "
        "NaN; otherwise take logarithms of such columns, or transform them by "
        "scikit-learn's PowerTransformer or QuantileTransformer."
    ]
