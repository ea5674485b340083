"""Methods of fitted estimators, applied to each part of a table when it is read."""

import copy
import functools
import inspect

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._random import seed_from
from skvnce.estimators._chunks import in_parts
from skvnce.estimators._no_table import names_table
from skvnce.estimators._validation import check_sample
from skvnce.tables.completed import decoded
from skvnce.tables.containers import is_in_parts


class ResultsInParts:
    """Mixin of transformers whose results of tables in parts are in parts.

    It keeps scikit-learn from converting them to the container of `set_output`, which
    holds for each part of `Chunks`.
    """

    def __init_subclass__(cls, **kwargs):
        """Decorate the methods that scikit-learn has decorated."""
        super().__init_subclass__(**kwargs)
        for name in ("transform", "fit_transform"):
            method = getattr(cls, name, None)
            if method is not None and not hasattr(method, "_keeps_parts"):
                setattr(cls, name, _kept_in_parts(method))


def _kept_in_parts(method):
    """Call a method that scikit-learn has decorated, undecorated for parts."""

    @functools.wraps(method)
    def applied(self, X, *args, **options):
        called = method.__wrapped__ if is_in_parts(X) else method
        return called(self, X, *args, **options)

    applied._keeps_parts = True
    return names_table(applied)


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
        self._check_parameters()
        one = without_training(self)
        if name == "transform":
            return _mapped(source, one, self.get_feature_names_out(), _transformed)
        call = functools.partial(_called, _scored, one, np.zeros(0))
        return source._numbers(call)

    return applied


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
        self._check_parameters()
        seed = seed_from(random_state)
        names = self._schema.all_names[self._schema.returned]
        return [
            _mapped(source, one, names, functools.partial(_drawn, (seed, turn)))
            for turn, one in enumerate(_in_turns(self, n_draws, seed))
        ]

    return applied


def _in_turns(estimator, n_draws, seed):
    """Choose copies of an estimator that have one draw of the parameters each."""
    copies = estimator._with_one_draw()
    order = np.random.default_rng(seed).permutation(len(copies))
    for number in range(n_draws):
        yield copies[order[number % len(copies)]]


def _mapped(source, estimator, names, fill):
    """Apply a function of estimator, number and part that fills the part."""
    is_frame = getattr(source, "is_frame", False)
    if is_frame and estimator._schema.columns and hasattr(estimator, "sample"):
        estimator = _with_frames(estimator)
        row = _typical_row(estimator, source.collection._meta)
        meta = source._as_meta(fill(estimator._without_equations(), 0, row))
        return source._frame(functools.partial(_called, fill, estimator, meta), meta)
    return source._tables(functools.partial(_called, fill, estimator, None), names)


def _called(function, estimator, empty, number, chunk):
    if len(chunk):
        return function(estimator, number, chunk)
    if empty is None:  # of the type of other parts
        return function(estimator, number, _missing_row(chunk))[:0]
    return empty


def _missing_row(chunk):
    """Make a row without an observed cell, in the container of a part without rows."""
    if hasattr(chunk, "reindex"):  # of pandas
        return chunk.reindex([0])
    if hasattr(chunk, "clear"):  # of polars
        return chunk.clear(1)
    return np.full((1, np.shape(chunk)[1]), np.nan)


def _transformed(estimator, number, chunk):
    return estimator.transform(chunk)


def _scored(estimator, number, chunk):
    return estimator.score_samples(chunk)


def _drawn(seeds, estimator, number, chunk):
    [state] = np.random.SeedSequence([*seeds, number]).generate_state(1)
    [table] = estimator.sample(chunk, random_state=int(state >> 1))
    return table


def _with_frames(estimator):
    """Let a copy of an estimator return data frames of pandas."""
    if hasattr(estimator, "_sklearn_output_config"):
        config = dict(estimator._sklearn_output_config)
        estimator._sklearn_output_config = config  # not that of the original
    return estimator.set_output(transform="pandas")


def _typical_row(estimator, frame):
    """Make a row of the data types of a data frame, of values that `fit` has seen.

    Levels that the data type of a column does not have are missing.
    """
    [values] = decoded(estimator._schema.columns, estimator._column_ends[:1]).tolist()
    cells = {}
    for value, (name, dtype) in zip(values, frame.dtypes.items(), strict=True):
        known = value in getattr(dtype, "categories", [value])
        cells[name] = type(frame[name])([value if known else None], dtype=dtype)
    return type(frame)(cells)


def copies_with(estimator, name, values):
    """Copy a fitted estimator for each value of an attribute."""
    return [without_training(estimator, **{name: value}) for value in values]


def without_training(estimator, **replaced):
    """Copy a fitted estimator without the rows from which parameters are drawn.

    `replaced` are attributes of the copy.
    """
    found = copy.copy(estimator)
    if hasattr(found, "_training"):
        found._training, found._draws = None, []
    vars(found).update(replaced)
    return found
