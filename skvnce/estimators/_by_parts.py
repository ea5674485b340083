"""Methods of fitted estimators, applied to each part of a table when it is read."""

import copy
import functools

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._random import seed_from
from skvnce.estimators._chunks import in_parts


def by_parts(method):
    """Decorate a method of rows so that it accepts tables in parts.

    Its result is then in parts, too, which are computed when they are read.
    """
    name = method.__name__

    @functools.wraps(method)
    def applied(self, X, **options):
        source = in_parts(X)
        if source is None:
            return method(self, X, **options)
        given = [key for key, value in options.items() if value is not None]
        if given:
            raise ValueError(
                f"{given[0]} is not available for a table in parts. Call {name} for "
                "each part, with its own."
            )
        check_is_fitted(self)
        self._check_parameters()
        one = _without_training(self)
        if name == "transform":
            names = self.get_feature_names_out()
            empty = np.zeros((0, len(names)))
            return source._tables(functools.partial(_called, one, name, empty), names)
        return source._numbers(functools.partial(_called, one, name, np.zeros(0)))

    return applied


def samples_by_parts(method):
    """Decorate `sample` so that it accepts tables in parts.

    All parts of a completed table are drawn with the same parameters.
    """

    @functools.wraps(method)
    def applied(self, X, n_draws=1, random_state=None, *, as_array=False, **options):
        source = in_parts(X)
        if source is None:
            options["as_array"] = as_array
            return method(self, X, n_draws, random_state, **options)
        given = [key for key, value in options.items() if value is not None]
        if as_array or given:
            raise ValueError(
                f"{'as_array' if as_array else given[0]} is not available for a table "
                "in parts. Call sample for each part."
            )
        check_is_fitted(self)
        self._check_parameters()
        seed = seed_from(random_state)
        names = self._names_in()[self._columns_kept()]
        empty = np.zeros((0, len(names)))
        return [
            source._tables(functools.partial(_drawn, one, empty, (seed, turn)), names)
            for turn, one in enumerate(_with_one_draw(self, n_draws, seed))
        ]

    return applied


def _with_one_draw(estimator, n_draws, seed):
    """Make copies of an estimator that have one draw of the parameters each."""
    draws = estimator._normals()
    order = np.random.default_rng(seed).permutation(len(draws))
    for number in range(n_draws):
        one = _without_training(estimator)
        one._draws = [draws[order[number % len(draws)]]]
        yield one


def _called(estimator, name, empty, number, chunk):
    return getattr(estimator, name)(chunk) if len(chunk) else empty


def _drawn(estimator, empty, seeds, number, chunk):
    if not len(chunk):
        return empty
    [state] = np.random.SeedSequence([*seeds, number]).generate_state(1)
    [table] = estimator.sample(chunk, random_state=int(state >> 1))
    return table


def _without_training(estimator):
    """Copy a fitted estimator without the rows from which parameters are drawn."""
    found = copy.copy(estimator)
    if hasattr(found, "_training"):
        found._training, found._draws = None, []
    return found
