"""Whether a model predicts cells that its fit did not see better than their means do.

Some observed cells are held out, the model is fitted to the others and fills them.
``held_out_gain_`` is one minus the ratio of the mean squared errors, of the model and
of the means of the other cells of each column, for columns scaled to unit standard
deviation: 1 is perfect, 0 as good as the means, negative worse.  Columns that are
predicted worse than by their means, by more than the noise of so few cells, are imputed
from their marginal distributions: `transform` fills in their means, `sample` draws from
their observed values.
"""

from typing import NamedTuple

import numpy as np

from skvnce.estimators._validation import column_name
from skvnce.exceptions import MisfitWarning

_ERRORS = 3.0  # standard errors by which a column is predicted worse beyond chance
_FAR = 10.0  # over the root of the number of cells: few cells that are very far off
_NOISE = 2.0  # the same over all columns that are left
_LISTED = 8  # names of columns in a message


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


def judge(nodes, hidden, filled, mean, scale):
    """Compare a model with column means on held-out cells.

    A column is predicted worse beyond chance where the differences of its squared
    errors exceed zero by three standard errors, or where their ratio is so large that
    few cells are enough; and where it is predicted worse at all if that is so of all
    columns together.

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

    Returns
    -------
    Judgement
    """
    counts = hidden.sum(0)
    if not counts.any():
        return Judgement(np.nan, np.zeros(nodes.shape[1], dtype=bool))
    with np.errstate(over="ignore", invalid="ignore"):
        own, means = (
            np.where(hidden, ((guess - nodes) / scale) ** 2, 0.0)
            for guess in (filled, mean)
        )
        own = np.nan_to_num(own, nan=np.inf)
        excess = own - means
        marginal = excess.sum(0) > _ERRORS * np.sqrt(np.square(excess).sum(0))
    own, means = own.sum(0), means.sum(0)
    marginal |= own > means * (1 + _FAR / np.sqrt(np.maximum(counts, 1)))
    rest = ~marginal
    if own[rest].sum() > means[rest].sum() * (1 + _NOISE / np.sqrt(counts.sum())):
        marginal = own > means
    return Judgement(float(1 - own.sum() / means.sum()), marginal)


def announce(messages, on_misfit, warn):
    """Warn of each of some messages, or raise them all.

    Parameters
    ----------
    messages : list of str
    on_misfit : {"warn", "raise"}
    warn : callable
        (message, category), which warns at the user's line.

    Raises
    ------
    ValueError
        If there is a message and ``on_misfit="raise"``.
    """
    if messages and on_misfit == "raise":
        raise ValueError(" ".join(messages))
    for message in messages:
        warn(message, MisfitWarning)


def listed(estimator, columns):
    """Name some columns; the first of many."""
    names = [column_name(estimator, column) for column in columns[:_LISTED]]
    more = len(columns) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def misfit_messages(estimator, judgement, remedy):
    """Say which columns the model does not predict, and what is done about it."""
    places = estimator.node_indices_[judgement.marginal]
    if not len(places):
        return []
    return [
        f"Held-out cells of {listed(estimator, places)} are predicted worse than by "
        f"their means (held_out_gain_={judgement.gain:.2g}, over all columns): these "
        f"columns are imputed from their marginal distributions. {remedy}"
    ]
