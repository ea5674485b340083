r"""Scores of imputations of the cells that are missing, without their truth.

An imputation is good if it makes the rows in which column j is missing like those in
which it is observed, given the columns that are observed in both. With :math:`O_j` the
columns that are observed wherever j is, :math:`L_j` the rows in which j is observed and
:math:`\tilde x` the table that the imputer completes, the energy-I-score of Näf,
Grzesiak and Scornet (2025) hides column j in the rows :math:`L_j`, lets the imputer
learn from the columns j and :math:`O_j` of :math:`\tilde x`, and scores its draws
:math:`x'_{ij}, x''_{ij}` of the observed cells,

.. math:: S_j = \frac{1}{|L_j|} \sum_{i \in L_j} \left( E |x'_{ij} - x_{ij}|
    - \tfrac12 E |x'_{ij} - x''_{ij}| \right). \qquad (1)

The score of the imputer is the mean of :math:`S_j` with weights
:math:`|L_j| \, (n - |L_j|) / n^2`.
"""

import warnings
from numbers import Integral
from typing import NamedTuple

import narwhals as nw
import numpy as np

from skvnce import metrics
from skvnce._tables.cells import is_frame
from skvnce._tables.frames import column_label
from skvnce._tables.mixed import columns_by_dtype, select_columns
from skvnce.evaluation._imputers import (
    check_imputer,
    drawn,
    fitted,
    of_columns,
    unfilled_by,
)
from skvnce.exceptions import TableWarning
from skvnce.missingness import _generator, _numbers, hide


class EnergyIScore(NamedTuple):
    """The result of `energy_i_score`.

    Attributes
    ----------
    score : float
        The weighted mean of the scores of columns; smaller is better.
    columns : dict of str to float
        Scores of columns with missing cells, by name or index.
    weights : dict of str to float
        Their weights.
    """

    score: float
    columns: dict[str, float]
    weights: dict[str, float]


def energy_i_score(imputer, X, *, n_draws=20, random_state=None):
    r"""Score an imputer by the cells that are really missing: energy-I-score.

    No cell is hidden from the imputation that is scored, and no truth is needed. The
    imputer is fitted once to ``X``, and once for each column with missing cells to a
    table of that column and :math:`O_j`, eq. (1) of this module.

    Parameters
    ----------
    imputer : estimator
        With ``fit`` and ``sample``, or with ``transform`` only, whose one table counts
        as the draws. It is not modified. Of its parameters only `categorical_features`
        may name columns.
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table with missing cells, with two columns or more. Columns
        that the imputer passes through, as identifiers, free text and what
        ``categorical_features`` calls ``"passthrough"``, neither have a score nor
        predict others.
    n_draws : int, default=20
        Draws of each column, two or more.
    random_state : int, RandomState, Generator or None, default=None
        Source of the draws. The imputer keeps its own.

    Returns
    -------
    EnergyIScore
        In standard deviations of columns of numbers. For categories, differences of
        levels count as distances of indicators, so that (1) is the Brier score divided
        by the root of 2. The sign is opposite to that of Näf et al.: smaller is better.

    Raises
    ------
    TypeError
        If ``imputer`` is no estimator.
    ValueError
        If no cell of ``X`` is missing in a column that the imputer fills, a column of
        dates has missing cells, or ``n_draws`` is below 2.

    Notes
    -----
    The score compares imputers of one table with each other; its value says little. It
    is proper if the distribution of column j given :math:`O_j` is the same in rows
    where j is observed and where it is missing. With values missing not at random it
    prefers imputers that are as wrong as the observed cells suggest. If no column is
    observed wherever j is, the column that is observed most often there takes their
    place, and rows with j but without it are left out. Draws are scored without bias
    for any number of them (the fair score of Ferro, 2014).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.impute import SimpleImputer
    >>> from skvnce import GaussianImputer
    >>> from skvnce.evaluation import energy_i_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=300)
    >>> X[:100, 1] = np.nan
    >>> draws = energy_i_score(GaussianImputer(random_state=0), X, random_state=0)
    >>> means = energy_i_score(SimpleImputer(), X, random_state=0)
    >>> round(draws.score, 1), round(means.score, 1)
    (0.2, 0.8)
    """
    check_imputer(imputer, "imputer")
    if not isinstance(n_draws, Integral) or n_draws < 2:
        raise ValueError(f"n_draws must be an integer of at least 2, got {n_draws!r}")
    x = _numbers(X)[0]
    observed, used = ~np.isnan(x), ~unfilled_by([imputer], X)
    scored = np.flatnonzero(used & observed.any(0) & ~observed.all(0))
    if not len(scored):
        raise ValueError(
            "X must have columns with missing and observed cells, got none; use "
            "imputation_report, which hides some"
        )
    _check_no_dates(X, scored)
    rng = _generator(random_state)
    seed = int(rng.integers(2**31))
    model = fitted(imputer, X)
    tables = drawn(model, X, 1, seed)
    completed = model.transform(X) if tables is None else tables[0]
    if np.shape(completed) != np.shape(X):
        raise ValueError(
            f"imputer must complete all columns of X, {np.shape(X)}, got a table of "
            f"shape {np.shape(completed)}; leave out empty columns and indicators"
        )
    columns, weights = {}, {}
    for j in scored:
        label = column_label(X, j).strip("'")
        places = [j, *_predictors(observed, j, used)]
        rows = ~observed[:, j] | observed[:, places].all(1)
        table = _select_rows(select_columns(completed, places), rows)
        hidden = np.zeros(np.shape(table), dtype=bool)
        hidden[:, 0] = observed[rows, j]
        incomplete = hide(table, hidden)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)  # the first fit has warned
            model = fitted(of_columns(imputer, X, places, incomplete), incomplete)
        scale = np.std(x[observed[:, j], j])
        columns[label] = _score(model, table, hidden, scale or 1.0, n_draws, rng)
        weights[label] = float(observed[:, j].mean() * (~observed[:, j]).mean())
    score = np.average([*columns.values()], weights=[*weights.values()])
    return EnergyIScore(float(score), columns, weights)


def _predictors(observed, j, used):
    """Return the used columns observed wherever j is, or the most observed of them."""
    others = [k for k in np.flatnonzero(used) if k != j]
    counts = observed[observed[:, j]].sum(0)
    full = [k for k in others if counts[k] == counts[j]]
    return full or sorted(others, key=lambda k: -counts[k])[:1]


def _select_rows(table, rows):
    if is_frame(table):
        frame = nw.from_native(table, eager_only=True)
        return frame.filter(rows.tolist()).to_native()
    return table[rows]


def _score(model, table, hidden, scale, n_draws, rng):
    """Score the first column of a table by eq. (1)."""
    incomplete = hide(table, hidden)
    columns = columns_by_dtype(table)
    is_number = columns is None or columns[0].is_plain
    draws = drawn(model, incomplete, n_draws, int(rng.integers(2**31)))
    if draws is None:
        # an imputer that does not draw has a distribution of one point
        draws = [model.transform(incomplete)] * n_draws
    if is_number:
        scales = np.ones(hidden.shape[1])
        scales[0] = scale
        return metrics.crps(table, draws, hidden, scale=scales)
    # eq. (1) for indicators of levels, which are sqrt(2) apart
    return metrics.brier_score(table, draws, hidden) / float(np.sqrt(2))


def _check_no_dates(X, places):
    for j in places:
        column = (columns_by_dtype(X) or [None] * (j + 1))[j]
        if column is not None and not column.is_plain and column.levels is None:
            raise ValueError(
                f"Column {column_label(X, j)} has dates with missing cells, which have "
                "no score: turn them into numbers, or leave them out."
            )
