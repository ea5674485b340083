"""Readers of tables in parts: each part is validated as a table in memory is."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from skvnce._progress import step
from skvnce._weights import checked_weights
from skvnce.estimators._validation import incomplete_array
from skvnce.sources.columns_of_parts import (
    TEXT_IN_PARTS,
    columns_of_parts,
    part_named,
)
from skvnce.tables.column_kinds import names_of, reject_categories
from skvnce.tables.containers import readable
from skvnce.tables.missing_values import without_marker
from skvnce.tables.schema import Schema


class TableReader(BaseEstimator):
    """Reads the parts of a table; errors name the part.

    Parameters
    ----------
    head : array-like of shape (n_samples, n_features)
        Some rows, to learn the columns from.
    columns : list of n_features Column, default=None
        None if each cell is a number.
    handle_unknown : {"error", "missing"}, default="error"
    text_remedy : str, default=None
        What errors say of text in a table of numbers; None for the usual advice.
    missing_values : int, float, str, NaN, None or NA, default=NaN
        What marks missing cells.
    """

    def __init__(
        self,
        head,
        columns=None,
        handle_unknown="error",
        text_remedy=None,
        missing_values=np.nan,
    ):
        shape = head.shape if hasattr(head, "shape") else np.shape(head)
        if len(shape) != 2:
            raise ValueError(
                "Parts of X must be tables with rows and columns, got "
                f"{type(head).__name__} of shape {shape}."
            )
        if columns is None:
            reject_categories(head)
            head = readable(head)
        else:  # `incomplete_array` reads categories
            self.categorical_features, self.handle_unknown = None, handle_unknown
        self.text_remedy, self.missing_values = text_remedy, missing_values
        # for names and the number of columns alone
        validate_data(self, head, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None)
        ends = np.full((2, self.n_features_in_), np.nan)
        others = names_of(head) or None if names is None else None
        schema = Schema(self.n_features_in_, names, columns, ends, other_names=others)
        self._schema = schema._replace(marker=missing_values)

    def read(self, number, X, weights=None):
        """Validate a part; return its cells (n, n_features) and weights (n,)."""
        with part_named(number):
            # scikit-learn rejects tables without rows
            if not len(X):
                return np.zeros((0, self.n_features_in_)), np.zeros(0)
            table = incomplete_array(self, X)
            weights = _weights_of_part(table, weights)
        return table, weights


def _weights_of_part(table, weights):
    """Validate the weights of a part, which may all be zero."""
    if weights is None:
        return np.ones(len(table))
    given = np.asarray(readable(weights, "sample_weight"))
    if given.shape == (len(table),) and (given == 0).all():
        return np.zeros(len(table))
    return checked_weights(given, table)


def reader_of(settings, source):
    """Make the reader of a table in parts, by the parameters of an estimator."""
    head, marker = source._head(), getattr(settings, "missing_values", np.nan)
    if not hasattr(settings, "categorical_features"):
        return TableReader(without_marker(head, marker), missing_values=marker)
    with step("reading levels"):
        asked = settings.categorical_features
        columns = columns_of_parts(source, head, asked, marker)
    head = without_marker(head, marker)
    return TableReader(head, columns, settings.handle_unknown, TEXT_IN_PARTS, marker)
