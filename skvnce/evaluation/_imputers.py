"""Imputers of this package and of scikit-learn, as the scores use them."""

import numpy as np
from sklearn.base import clone

from skvnce._core.warnings import without_pooling
from skvnce._tables.cells import is_frame, names_of
from skvnce._tables.column_kinds import (
    FROM_DTYPE,
    PASSED,
    asked_kinds,
    column_of_groups,
    place_of,
)
from skvnce._tables.findings.columns import modelled_columns
from skvnce._tables.frames import reject_parts


def fitted(imputer, table):
    """Fit a copy of an imputer, which returns data frames if it gets one."""
    imputer = clone(imputer)
    if is_frame(table) and hasattr(imputer, "set_output"):
        imputer.set_output(transform="pandas" if hasattr(table, "iloc") else "polars")
    return imputer.fit(table)


def drawn(imputer, table, n_draws, seed):
    """Draw completed tables, or return None if the imputer does not draw."""
    if not hasattr(imputer, "sample"):
        return None
    with without_pooling():
        return imputer.sample(table, n_draws=n_draws, random_state=seed)


def check_imputer(imputer, name):
    """Raise an error for what is no imputer."""
    if isinstance(imputer, type) or not (
        hasattr(imputer, "fit") and hasattr(imputer, "transform")
    ):
        raise TypeError(
            f"{name} must be an estimator with fit and transform, with its parameters, "
            f"got {imputer!r}"
        )


def unfilled_by(imputers, X):
    """Return which columns stay missing: identifiers, free text, or as asked for.

    `imputers` sequence of estimators: those that do not say what columns are count as
    those that nobody names; `X` (n_samples, n_features). Returns bool (n_features,):
    columns that one of the imputers or more passes through.
    """
    reject_parts(X)
    settings = {}
    for imputer in imputers:
        given = [
            (one.categorical_features, getattr(one, "groups", None))
            for one in _readers(imputer).values()
        ]
        # by repr, because settings such as dicts have no hash
        settings |= {repr(one): one for one in given or [(FROM_DTYPE, None)]}
    passed = np.zeros(np.shape(X)[1], dtype=bool)
    for given, groups in settings.values():
        if is_frame(X) or not isinstance(given, str) or groups is not None:
            passed[_passed(X, given, groups)] = True
    return passed


def with_slopes(imputers, X):
    """Return which columns have random slopes: none of their cells may be missing.

    Parameters are those of `unfilled_by`, which has the shape of the result.
    """
    found, names = np.zeros(np.shape(X)[1], dtype=bool), names_of(X)
    for imputer in imputers:
        for one in _readers(imputer).values():
            slopes = column_of_groups(getattr(one, "groups", None)).slopes
            found[[place_of(name, names, len(found), "groups") for name in slopes]] = 1
    return found


def of_columns(imputer, X, places, table):
    """Return a copy of an imputer for some columns, of the kinds that they had.

    `X` (n_samples, n_features); `places` sequence of int: the columns of `table`, none
    of which is passed through in X; `table` (n_rows, n_places): fewer cells, so that
    categories can look like identifiers. Returns estimator.
    """
    imputer, names = clone(imputer), names_of(X)
    labels = [names[j] for j in places] if names else list(range(len(places)))
    for prefix, reader in _readers(imputer).items():
        given = reader.categorical_features
        asked = asked_kinds(X, np.shape(X)[1], given)
        kinds = {a: asked[j] for a, j in zip(labels, places, strict=True) if j in asked}
        if isinstance(given, str | dict):
            passed = _passed(table, kinds)
            kinds = dict.fromkeys([labels[k] for k in passed], "nominal") | kinds
        if kinds or not isinstance(given, str | None):
            kinds = kinds if isinstance(given, str | dict) else list(kinds)
            imputer.set_params(**{f"{prefix}categorical_features": kinds})
    return imputer


def _passed(X, given, groups=None):
    """List the columns of a table that are passed through."""
    columns = modelled_columns(X, given, groups) or ()
    return [j for j, column in enumerate(columns) if column.kind == PASSED]


def _readers(imputer):
    """Map prefixes of parameters to the models that get the kinds of columns."""
    parts = getattr(imputer, "get_params", dict)()
    found = {"": imputer} | {f"{name}__": part for name, part in parts.items()}
    return {
        prefix: part
        for prefix, part in found.items()
        if hasattr(part, "sample") and hasattr(part, "categorical_features")
    }
