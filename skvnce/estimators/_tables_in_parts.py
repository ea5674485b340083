"""Methods of fitted estimators, applied to each part of a table when it is read."""

import functools
import inspect

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._random import seed_from
from skvnce.estimators._missing_table import names_table
from skvnce.estimators._validation import check_sample
from skvnce.sources.chunks import in_parts
from skvnce.tables.completed import decoded
from skvnce.tables.containers import is_in_parts

KEEP_PARTS = set()  # the decorated methods


def kept_in_parts(method):
    """Call a method that scikit-learn has decorated, undecorated for parts."""

    @functools.wraps(method)
    def applied(self, X, *args, **options):
        # scikit-learn's wrapper would convert parts to the container of set_output
        called = method.__wrapped__ if is_in_parts(X) else method
        return called(self, X, *args, **options)

    kept = names_table(applied)
    # so that subclasses do not decorate it again
    KEEP_PARTS.add(kept)
    return kept


def by_parts(method):
    """Decorate a method of rows so that it accepts tables in parts.

    Its result is then in parts, too, which are computed when they are read.
    """
    name, signature = method.__name__, inspect.signature(method)
    defaults = {key: one.default for key, one in signature.parameters.items()}

    @names_table
    @functools.wraps(method)
    def applied(self, X, *args, **options):
        source = in_parts(X)
        if source is None:
            return method(self, X, *args, **options)
        options = signature.bind(self, X, *args, **options).arguments
        given = [key for key, value in options.items() if value is not defaults[key]]
        if len(given) > 2:  # more than self and X
            raise ValueError(
                f"{given[2]} is not available for a table in parts. Call {name} for "
                "each part, with its own."
            )
        check_is_fitted(self)
        _check_groups(self)
        self._check_parameters()
        one = self._without_training()
        if name == "transform":
            names = self.get_feature_names_out()
            return one._mapped(source, names, type(one)._transform_part)
        return source._numbers(functools.partial(called, one._score_part, np.zeros(0)))

    return applied


def _check_groups(fitted):
    schema = getattr(fitted, "_schema", None)
    if schema is not None:
        reject_groups(schema.group)


def samples_by_parts(method):
    """Decorate `sample` so that it accepts tables in parts.

    All parts of a completed table are drawn with the same parameters.
    """
    signature = inspect.signature(method)

    @names_table
    @functools.wraps(method)
    def applied(self, X, n_draws=1, random_state=None, *, as_array=False, **options):
        source = in_parts(X)
        if source is None:
            options["as_array"] = as_array
            return method(self, X, n_draws, random_state, **options)
        # raises Python's error for unknown arguments
        signature.bind(self, X, **options)
        check_sample(n_draws, as_array)
        given = [key for key, value in options.items() if value is not None]
        if as_array or given:
            raise ValueError(
                f"{'as_array' if as_array else given[0]} is not available for a table "
                "in parts. Parts that are drawn by calls of their own would not share "
                "a draw of the parameters."
            )
        check_is_fitted(self)
        _check_groups(self)
        self._check_parameters()
        seed = seed_from(random_state)
        names = self._schema.all_names[self._schema.returned]
        return [
            one._mapped(source, names, type(one)._sample_part, (seed, turn))
            for turn, one in enumerate(self._in_turns(n_draws, seed))
        ]

    return applied


def called(fill, empty, number, chunk):
    if len(chunk):
        return fill(number, chunk)
    if callable(empty):  # what it returns is of the type of other parts
        return empty(number, _missing_row(chunk))[:0]
    return empty


def _missing_row(chunk):
    """Make a row without an observed cell, in the container of a part without rows."""
    if hasattr(chunk, "reindex"):  # of pandas
        return chunk.reindex([0])
    if hasattr(chunk, "clear"):  # of polars
        return chunk.clear(1)
    return np.full((1, np.shape(chunk)[1]), np.nan)


def typical_row(schema, frame):
    """Make a row of the data types of a data frame, of values that `fit` has seen.

    Levels that the data type of a column does not have are missing.
    """
    [values] = decoded(schema.columns, schema.ends[:1]).tolist()
    cells = {}
    for value, (name, dtype) in zip(values, frame.dtypes.items(), strict=True):
        known = value in getattr(dtype, "categories", [value])
        cells[name] = type(frame[name])([value if known else None], dtype=dtype)
    return type(frame)(cells)


def reject_groups(groups):
    """Raise an error for a table in parts, whose groups may be in several."""
    if groups is not None:
        raise ValueError(
            "groups is not available for a table in parts, as the rows of a group may "
            "be in several. Fit to a table in memory, of whole groups if there are too "
            "many; then call the methods for one table of whole groups after the "
            "other, such as the computed partitions of ddf.shuffle(on=groups) of dask."
        )
