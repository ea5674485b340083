"""Methods of fitted estimators, applied to each part of a table when it is read."""

import copy
import functools
import inspect

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._random import seed_from
from skvnce.estimators._no_table import names_table
from skvnce.estimators._validation import check_sample
from skvnce.sources.chunks import in_parts
from skvnce.tables.completed import decoded
from skvnce.tables.containers import is_in_parts

_KEEP_PARTS = set()  # the decorated methods


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
            if method is not None and method not in _KEEP_PARTS:
                setattr(cls, name, _kept_in_parts(method))

    def _in_turns(self, n_draws, seed):
        """Choose copies of the estimator that have one draw of the parameters each."""
        copies = self._with_one_draw()
        order = np.random.default_rng(seed).permutation(len(copies))
        for number in range(n_draws):
            yield copies[order[number % len(copies)]]

    def _without_training(self, **replaced):
        """Copy the estimator without the rows from which parameters are drawn.

        `replaced` are attributes of the copy.
        """
        found = copy.copy(self)
        if "_training" in vars(found):
            found._training, found._draws = None, []
        vars(found).update(replaced)
        return found

    def _copies_with(self, name, values):
        """Copy the estimator for each value of an attribute."""
        return [self._without_training(**{name: value}) for value in values]

    def _reading_nan(self):
        """Copy the estimator for rows that were made here, whose marker is NaN."""
        found = copy.copy(self)
        if hasattr(found, "missing_values"):
            found.missing_values = np.nan
        for name in ("model", "model_"):
            part = getattr(found, name, None)
            if hasattr(part, "_reading_nan"):
                setattr(found, name, part._reading_nan())
        return found

    def _mapped(self, source, names, fill, *given):
        """Apply a method of number and part, which fills it, to all parts.

        `given` are its first arguments.
        """
        is_frame = getattr(source, "is_frame", False)
        if is_frame and self._schema.columns and hasattr(self, "sample"):
            one = self._with_frames()
            row = _typical_row(one._schema, source.collection._meta)
            made = one._without_equations()._reading_nan()
            meta = source._as_meta(fill(made, *given, 0, row))
            call = functools.partial(_called, functools.partial(fill, one, *given))
            return source._frame(functools.partial(call, meta), meta)
        fills = [
            functools.partial(fill, one, *given) for one in (self, self._reading_nan())
        ]
        return source._tables(functools.partial(_called, *fills), names)

    def _with_frames(self):
        """Let a copy of the estimator return data frames of pandas."""
        if hasattr(self, "_sklearn_output_config"):
            config = dict(self._sklearn_output_config)
            self._sklearn_output_config = config  # not that of the original
        return self.set_output(transform="pandas")

    def _transform_part(self, number, chunk):
        return self.transform(chunk)

    def _score_part(self, number, chunk):
        return self.score_samples(chunk)

    def _sample_part(self, seeds, number, chunk):
        [state] = np.random.SeedSequence([*seeds, number]).generate_state(1)
        [table] = self.sample(chunk, random_state=int(state >> 1))
        return table


def _kept_in_parts(method):
    """Call a method that scikit-learn has decorated, undecorated for parts."""

    @functools.wraps(method)
    def applied(self, X, *args, **options):
        called = method.__wrapped__ if is_in_parts(X) else method
        return called(self, X, *args, **options)

    kept = names_table(applied)
    _KEEP_PARTS.add(kept)
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
        self._check_parameters()
        one = self._without_training()
        if name == "transform":
            names = self.get_feature_names_out()
            return one._mapped(source, names, ResultsInParts._transform_part)
        return source._numbers(functools.partial(_called, one._score_part, np.zeros(0)))

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
            one._mapped(source, names, ResultsInParts._sample_part, (seed, turn))
            for turn, one in enumerate(self._in_turns(n_draws, seed))
        ]

    return applied


def _called(fill, empty, number, chunk):
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


def _typical_row(schema, frame):
    """Make a row of the data types of a data frame, of values that `fit` has seen.

    Levels that the data type of a column does not have are missing.
    """
    [values] = decoded(schema.columns, schema.ends[:1]).tolist()
    cells = {}
    for value, (name, dtype) in zip(values, frame.dtypes.items(), strict=True):
        known = value in getattr(dtype, "categories", [value])
        cells[name] = type(frame[name])([value if known else None], dtype=dtype)
    return type(frame)(cells)
