"""Whether a model predicts cells that its fit did not see better than their means do.

Some observed cells are held out, the model is fitted to the others and fills them.
``held_out_gain_`` is one minus the ratio of the mean squared errors, of the model and
of the means of the other cells of each column, for columns scaled to unit standard
deviation: 1 is perfect, 0 as good as the means, negative worse.  Columns that are
predicted worse than by their means, by more than the noise of so few cells, are imputed
from their marginal distributions: `transform` fills in their means, `sample` draws from
their observed values.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri

from skvnce._progress import step
from skvnce._random import row_keyed
from skvnce._warnings import warn_user
from skvnce.estimators._tables import column_moments, distinct_rows, hold_out
from skvnce.estimators._tails import heavy_tailed
from skvnce.estimators._validation import check_choice, column_name
from skvnce.exceptions import MisfitWarning

HELD_OUT = 0.1  # share of the observed cells

_TOLERANCE = 1.1  # times the squared errors of the means: a model of noise has some
_ERRORS = 3.0  # standard errors at least by which a column is worse beyond chance
_ALARMS = 0.01  # how often one of the columns of a table may be so by chance
_FAR = 10.0  # over the root of the number of cells: few cells that are very far off
_NOISE = 3.0  # the same over all columns together
_ALONE = 4.0  # ratio to which errors of one column count there
_CLIP = 3 * 1.4826  # median errors of the means: 3 standard deviations of normal ones
_LISTED = 8  # names of columns in a message
_JUDGED = 1000  # rows at most in which cells are predicted


class HeldOutCheck:
    """Mixin: columns that a model does not predict are imputed from their marginals.

    The estimator has the parameter `on_misfit`.  Its `fit` calls `_announce_tails`
    before the model is fitted, `_check_held_out` and `_announce_misfit` afterwards; its
    `transform` calls `_fill_marginal`, its `sample` `_draw_marginal`.
    """

    def _check_on_misfit(self):
        check_choice(self.on_misfit, "on_misfit", ["warn", "raise", "ignore"])

    def _announce_tails(self, X, columns):
        """Warn of columns of which a few cells decide the squared errors, or raise.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        columns : sequence of int
            Places of the columns of the model.
        """
        if self.on_misfit != "ignore":
            announce(tail_messages(self, X, columns), self.on_misfit)

    def _check_held_out(self, nodes, predict, *, weights=None, hidden=None):
        """Hold out cells, predict them, and keep what that says of the model.

        Sets `held_out_gain_` and `marginal_columns_`.  With ``on_misfit="ignore"``
        nothing is predicted.

        Parameters
        ----------
        nodes : ndarray of shape (n, n_nodes)
            Rows of the fit, in the units of X; NaN marks missing cells.
        predict : callable
            (kept, rows): `nodes` with NaN for held-out cells, too, and the places of
            at most 1000 different rows that have some.  It fits the model without these
            cells, and returns the rows (n_rows, n_nodes) in the units of X, filled;
            NaN, or None for all of them, says that it has no prediction.
        weights : ndarray of shape (n,), default=None
            Of the rows; None is one for each.
        hidden : ndarray of bool, of shape (n, n_nodes), default=None
            The cells that are held out; None chooses a tenth.
        """
        weights = np.ones(len(nodes)) if weights is None else weights
        found = Judgement(np.nan, np.zeros(nodes.shape[1], dtype=bool))
        if self.on_misfit != "ignore" and nodes.shape[1]:
            with step("judging the model by held-out cells"):
                found = _judged(nodes, predict, weights, hidden)
        self.held_out_gain_, self.marginal_columns_ = found
        self._marginals_of_columns = {
            int(j): _marginal(nodes[:, j], weights) for j in np.flatnonzero(found[1])
        }

    def _announce_misfit(self, remedy, others=()):
        """Warn of columns that are not predicted, and of what `others` say, or raise.

        Parameters
        ----------
        remedy : str
            What the user can do about columns that are predicted worse than by means.
        others : sequence of str
            Messages that come first.
        """
        announce([*others, *misfit_messages(self, remedy)], self.on_misfit)

    def _fill_marginal(self, cells):
        """Put means into marginal columns of cells (..., n_nodes), in place."""
        for column, (mean, _, _) in self._marginals_of_columns.items():
            cells[..., column] = mean
        return cells

    def _draw_marginal(self, cells):
        """Put draws of observed values, by torch's stream, as `_fill_marginal` does."""
        for column, (_, values, below) in self._marginals_of_columns.items():
            uniform = torch.rand(cells.shape[:-1], dtype=torch.float64).numpy()
            cells[..., column] = values[np.searchsorted(below, uniform, side="right")]
        return cells


def _marginal(column, weights):
    """Describe the observed cells: mean, sorted values, share of weight below each."""
    seen = ~np.isnan(column)
    order = np.argsort(column[seen], kind="stable")
    values, weight = column[seen][order], weights[seen][order]
    share = weight / weight.sum()
    return float(share @ values), values, share.cumsum()[:-1]


def _some_rows(nodes, rows):
    """Choose about 1000 of the rows by their content, equal ones together."""
    if len(rows) <= _JUDGED:
        return rows
    key = row_keyed(nodes[rows], 0)(0, torch.empty(len(rows), 1))[:, 0].numpy()
    return rows[key <= np.unique(key)[:_JUDGED][-1]]


def _judged(nodes, predict, weights, hidden):
    """Predict held-out cells, and judge by columns divided by their largest value."""
    nothing = Judgement(np.nan, np.zeros(nodes.shape[1], dtype=bool))
    if hidden is None:
        hidden = hold_out(nodes, torch.from_numpy(weights), HELD_OUT)[1].numpy()
    kept = np.where(hidden, np.nan, nodes)
    hidden = hidden & ~(np.fmax.reduce(kept) <= np.fmin.reduce(kept))
    hidden &= ~np.isnan(kept).all(0)
    rows = _some_rows(nodes, np.flatnonzero(hidden.any(1)))
    if not len(rows):
        return nothing
    kept = np.where(hidden, np.nan, nodes)
    filled = predict(kept, rows)
    if filled is None:
        filled = np.full((len(rows), nodes.shape[1]), np.nan)
    unit = np.nanmax(abs(nodes), 0)
    mean, _ = column_moments(kept / unit, weights)
    _, scale = column_moments(nodes / unit, weights)
    first, group = distinct_rows(nodes[rows])
    weight = np.bincount(group, weights[rows])
    parts = nodes[rows][first] / unit, hidden[rows][first], filled[first] / unit
    heavy = np.zeros(len(scale), dtype=bool)
    heavy[heavy_tailed(nodes, range(len(scale)))] = True
    return judge(*parts, mean, scale, weight, heavy)


class Judgement(NamedTuple):
    """What held-out cells say of a model.

    Attributes
    ----------
    gain : float
        NaN where no cell was held out.
    marginal : ndarray of bool, of shape (n_nodes,)
        Columns that are to be imputed from their marginal distributions.
    """

    gain: float
    marginal: np.ndarray


def judge(nodes, hidden, filled, mean, scale, weights=None, heavy=None):
    """Compare a model with column means on held-out cells.

    A column is predicted worse beyond chance where its squared errors exceed 1.1 times
    those of the means by three standard errors, more with many columns, or by so much
    that few cells are enough; and where it is predicted worse at all if that is so of
    all columns together, beyond chance: where a model fails some columns, the cells of
    one column are too few to tell which others it fails.  Means are 1.1 times better
    (5 % in root mean squares) than a regression on noise with ten rows a column.

    A few large errors make standard errors large.  So a column is also one where it is
    predicted worse at all, and beyond chance by squared errors that are clipped at what
    is far for errors of the means.  Of a heavy-tailed column, where a few cells decide,
    nothing is beyond chance: the model has to be better than the means, with and
    without the cell that is farthest from the mean.

    Parameters
    ----------
    nodes : ndarray of shape (n, n_nodes)
        Cells of the columns of the model; NaN marks missing cells.
    hidden : ndarray of bool, of shape (n, n_nodes)
        The held-out ones.
    filled : ndarray of shape (n, n_nodes)
        With the model's predictions in place of them; NaN says that it has none.
    mean, scale : ndarray of shape (n_nodes,)
        Means of the other observed cells, and standard deviations.
    weights : ndarray of shape (n,), default=None
        Of the rows, which are all different; a weight of k counts as k equal rows, of
        which the same cells are held out.  None is one for each.
    heavy : ndarray of bool, of shape (n_nodes,), default=None
        The heavy-tailed columns; None is none.

    Returns
    -------
    Judgement
    """
    weights = np.ones(len(nodes)) if weights is None else weights
    heavy = np.zeros(len(scale), dtype=bool) if heavy is None else heavy
    if not hidden.any():
        return Judgement(np.nan, np.zeros(nodes.shape[1], dtype=bool))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        own, means = (
            np.where(hidden, ((guess - nodes) / scale) ** 2, 0.0)
            for guess in (filled, mean)
        )
        own = np.nan_to_num(own, nan=np.inf)
        marginal = _worse_beyond_chance(own, means, weights)
        clipped = _clipped(own, means, hidden, weights)
        without = _worse_without_farthest(own, means, weights)
        own, means, counts = weights @ own, weights @ means, hidden.sum(0)
    marginal |= (own > means) & _worse_beyond_chance(*clipped, weights)
    marginal |= heavy & ((own > means) | without)
    # a few cells lie at their mean by chance
    expected = np.maximum(means, weights @ hidden)
    marginal |= own > expected * (1 + _FAR / np.sqrt(np.maximum(counts, 1)))
    together, noise = np.minimum(own, _ALONE * means).sum(), _NOISE / sqrt(counts.sum())
    if together > means.sum() * max(1 + noise, _TOLERANCE + noise / 3):
        marginal |= own > means
    gain = 1 - own.sum() / means.sum() if means.any() else np.nan
    return Judgement(float(gain), marginal)


def _worse_beyond_chance(own, means, weights):
    """Tell which columns of squared errors (n, n_nodes) are worse than the means'."""
    excess = own - _TOLERANCE * means
    error = np.sqrt(np.square(weights) @ np.square(excess))
    level = max(_ERRORS, ndtri(1 - _ALARMS / own.shape[1]))
    return weights @ excess > level * error


def _clipped(own, means, hidden, weights):
    """Clip squared errors (n, n_nodes) at the square of large errors of the means."""
    most = np.zeros(own.shape[1])
    for j in np.flatnonzero(hidden.any(0)):
        some = hidden[:, j]
        order = means[some, j].argsort()
        total = weights[some][order].cumsum()
        middle = order[np.searchsorted(total, total[-1] / 2)]
        most[j] = _CLIP**2 * means[some, j][middle]
    return np.minimum(own, most), np.minimum(means, most)


def _worse_without_farthest(own, means, weights):
    """Tell likewise, without the cell of each column that is farthest from its mean."""
    rest = np.ones_like(means)
    rest[means.argmax(0), np.arange(means.shape[1])] = 0
    own = np.where(rest, own, 0.0)
    return weights @ own > weights @ (rest * means)


def announce(messages, on_misfit):
    """Warn of each of some messages, or raise them all.

    Parameters
    ----------
    messages : list of str
    on_misfit : {"warn", "raise", "ignore"}

    Raises
    ------
    ValueError
        If there is a message and ``on_misfit="raise"``.
    """
    if messages and on_misfit == "raise":
        raise ValueError(" ".join(messages))
    for message in messages if on_misfit == "warn" else []:
        warn_user(message, MisfitWarning)


def listed(estimator, columns):
    """Name some columns; the first of many."""
    names = [column_name(estimator, column) for column in columns[:_LISTED]]
    more = len(columns) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def misfit_messages(estimator, remedy):
    """Say which columns the model does not predict, and what is done about it."""
    places = estimator.node_indices_[estimator.marginal_columns_]
    if not len(places):
        return []
    fate = "these columns are imputed from their marginal distributions"
    if len(places) == 1:
        fate = "this column is imputed from its marginal distribution"
    return [
        f"Held-out cells of {listed(estimator, places)} are predicted worse than by "
        f"their means (held_out_gain_={estimator.held_out_gain_:.2g}, over all "
        f"columns): {fate}. {remedy}"
    ]


def tail_messages(estimator, X, columns):
    """Name the columns of which a few cells decide the squared errors."""
    found = heavy_tailed(X, columns)
    if not len(found):
        return []
    return [
        f"A few cells of {listed(estimator, found)} are so far from the others that "
        "they decide the squared errors: the fit follows them, and other cells may be "
        "predicted far off. Make cells that are errors missing (NaN); else take "
        "logarithms of such columns, or transform them by scikit-learn's "
        "PowerTransformer or QuantileTransformer."
    ]
