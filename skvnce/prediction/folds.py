"""Predictions of training rows by models that were fitted without them."""

from numbers import Integral

import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)
from sklearn.utils import _safe_indexing


def splits(cv, y, rng, *, by_class=False, groups=None):
    """Split rows into folds; an integer is a number of folds, in random order.

    Parameters
    ----------
    cv : int, cross-validation generator or iterable
    y : ndarray of shape (n_samples,)
    rng : numpy.random.Generator
    by_class : bool, default=False
        Whether y are classes, which each fold then has in equal shares.
    groups : ndarray of shape (n_samples,), default=None
        Numbers of groups whose rows stay in one fold.

    Yields
    ------
    train, test : ndarray of int
    """
    if isinstance(cv, Integral):
        kinds = (KFold, StratifiedKFold), (GroupKFold, StratifiedGroupKFold)
        kind = kinds[groups is not None][by_class]
        n = int(cv) if groups is None else min(int(cv), len(np.unique(groups)))
        cv = kind(n, shuffle=True, random_state=int(rng.integers(2**31 - 1)))
    # splitters read no cells, only the number of rows
    given = np.empty((len(y), 1)), y, groups
    yield from check_cv(cv, y, classifier=by_class).split(*given)


def fold_predictions(folds, tables, y, given, fit, predict):
    """Predict each fold of the training rows by models that are fitted without it.

    `y` (n_samples,).  `folds` (iterable of tuple of ndarray of int): rows to fit to,
    and rows to predict.  `tables` (n_samples, n_features_out): draws of the training
    rows; a model is fitted to each, and predicts it.  `given`: parameters of `fit` of
    the model: weights of the rows.  `fit`: maps tables, y and `given` to a list of
    models.  `predict`: maps a model and a table to numbers of shape (n, ...).  Returns
    `predictions` (n_tables, n_predicted, ...); `rows` (int (n_predicted,)), in
    increasing order.
    """
    found = {}
    for train, test in folds:
        learned = [_safe_indexing(table, train) for table in tables]
        some = {name: cells[train] for name, cells in given.items()}
        models = fit(learned, y[train], some)
        held_out = [_safe_indexing(table, test) for table in tables]
        own = np.array(list(map(predict, models, held_out)))
        # a row may be in several folds of the user's splitter
        found |= zip(test.tolist(), np.moveaxis(own, 1, 0), strict=True)
    rows = np.array(sorted(found), dtype=int)
    return np.stack([found[row] for row in rows.tolist()], 1), rows
