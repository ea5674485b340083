"""The base class of predictors that learn from several draws of the missing cells."""

from contextlib import nullcontext
from itertools import cycle

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, metadata_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_y,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from skvnce._memory import needs_memory
from skvnce._random import seed_from
from skvnce._threads import one_thread
from skvnce._warnings import without_pooling
from skvnce._weights import checked_weights
from skvnce.estimators._gaussian import GaussianImputer
from skvnce.estimators._missing_table import names_table
from skvnce.estimators._options import check_parameters
from skvnce.fitted.fitted import (
    Fitted,
    set_by_fit,
    with_fit,
    with_plain_fit,
    without_fit,
)
from skvnce.tables.cells import is_frame, is_missing
from skvnce.tables.column_kinds import PASSED, encode

# 128 MiB of float64
_CHUNK = 2**24  # maximum number of cells, over all draws, that are predicted at once
_MOST = 2**31 - 1  # of seeds
_MOST_LEVELS = 255  # of nominal columns of trees; codes of others count as numbers


class MultipleImputation(BaseEstimator):
    """Base class: an imputer, and a model for each of several completed tables."""

    # weights are requested by those that use them
    __metadata_request__fit = {"sample_weight": metadata_routing.UNUSED}

    @names_table
    def fit(self, X, y, sample_weight=None):
        """Fit the imputer, and a model to each of several completed tables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : array-like of shape (n_samples,)
            Target, without missing values.  The imputer does not see it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for `estimator`, and for `imputer` if its `fit` takes
            them, as frequencies; divide sampling weights by their mean.  If
            scikit-learn's metadata routing is enabled, they are passed to those that
            request them.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            As `fit` of the imputer and of the model do, if values of y are missing, or
            if a parameter is out of range.
        TypeError
            If a parameter has a wrong type, or the model takes no weights.
        """
        return self._set(self._new()._fit(X, y, sample_weight))

    def _fit(self, X, y, sample_weight):
        """Do what `fit` does, on a copy that has no other user."""
        self._check_parameters()
        given = {"X": X, "y": y, "sample_weight": sample_weight}
        for name, one in given.items():
            # before scikit-learn's checks, which would load tables in parts
            needs_memory(type(self), one, reset=True, name=name)
        check_consistent_length(X, y, sample_weight)
        y = self._target(y)
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, np.empty(len(y)))
        of_imputer, of_model = self._routed(sample_weight)
        rng = np.random.default_rng(seed_from(self.random_state))
        self._fit_imputer(X, of_imputer, rng)
        tables = self._drawn(X, int(self.n_estimators), rng)
        self.estimators_ = self._fitted_models(tables, y, of_model, rng)
        # stored, so that predictions of a table can be repeated
        self._seed = _seed(rng)
        self._fit_target(tables, y, of_model, rng, self._groups_of(X))
        return self

    def _new(self):
        """Copy the parameters, without what an earlier fit has set."""
        new = object.__new__(type(self))
        vars(new).update(without_fit(vars(self)))
        return new

    def _set(self, fitted):
        """Take over the attributes of a copy that a fit has finished, all at once."""
        report = set_by_fit(self, fitted)
        kept = without_fit(vars(self))
        self.__dict__ = {**kept, **report, "_fitted": Fitted(None, None, report)}
        return self

    def __getstate__(self):
        """Return the state with plain values, which skops can store."""
        return with_plain_fit(super().__getstate__())

    def __setstate__(self, state):
        """Restore the values of the state."""
        super().__setstate__(with_fit(state))

    def get_metadata_routing(self):
        """Get the metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        fit = metadata_routing.MethodMapping().add(caller="fit", callee="fit")
        router = metadata_routing.MetadataRouter(owner=self)
        return router.add(imputer=self._imputer(), method_mapping=fit).add(
            estimator=self._model(), method_mapping=fit
        )

    def __sklearn_tags__(self):
        """Declare that NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_parameters(self):
        check_parameters(self)
        if self.n_draws < self.n_estimators:
            raise ValueError(
                f"n_draws={self.n_draws} must be at least "
                f"n_estimators={self.n_estimators}, so that each model predicts."
            )

    def _imputer(self):
        return asking(GaussianImputer()) if self.imputer is None else self.imputer

    def _model(self):
        """Return the model, or the default."""
        raise NotImplementedError

    def _target(self, y):
        """Check the target."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        y = column_or_1d(y, warn=True)
        missing = np.isnan(y) if y.dtype.kind == "f" else np.array(map_missing(y))
        if missing.any():
            raise ValueError(
                f"Input y contains NaN, the first in row {missing.argmax()}. Leave out "
                "the rows without a target: nothing can be learned from them."
            )
        return _check_y(y, estimator=self)

    def _fit_target(self, tables, y, of_model, rng, groups):
        """Set attributes that depend on the target."""

    def _routed(self, sample_weight):
        """Return the parameters of `fit` of the imputer and of the model."""
        imputer, model = self._imputer(), self._model()
        if metadata_routing._routing_enabled():
            given = metadata_routing.process_routing(
                self, "fit", sample_weight=sample_weight
            )
            return given.imputer.fit, given.estimator.fit
        if sample_weight is None:
            return {}, {}
        if not has_fit_parameter(model, "sample_weight"):
            raise TypeError(
                f"fit of {type(model).__name__} does not take sample_weight. For a "
                "Pipeline, enable metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True), and let its step "
                "request the weights by set_fit_request(sample_weight=True)."
            )
        weights = {"sample_weight": sample_weight}
        takes = has_fit_parameter(imputer, "sample_weight")
        return (weights if takes else {}), weights

    def _fit_imputer(self, X, given, rng):
        """Fit a clone of the imputer, which returns data frames if X is one."""
        self.imputer_ = clone(self._imputer())
        if not isinstance(self.imputer_, FrozenEstimator):
            config = getattr(self.imputer_, "_sklearn_output_config", {})
            if is_frame(X) and "transform" not in config:
                is_polars = nw.from_native(X).implementation.is_polars()
                library = "polars" if is_polars else "pandas"
                self.imputer_.set_output(transform=library)
            _reseeded(self.imputer_, rng).fit(X, **given)
        vars(self).pop("feature_names_in_", None)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.imputer_, name):
                setattr(self, name, getattr(self.imputer_, name))

    def _groups_of(self, X):
        """Return the groups of rows that the imputer has; (n_samples,), or None."""
        schema = getattr(self.imputer_, "_schema", None)
        if schema is None or schema.group is None:
            return None
        return self.imputer_._checked(X)[:, schema.group]

    def _drawn(self, X, n_draws, rng):
        """Draw completed tables; those of the default model have numbers only."""
        with without_pooling():
            tables = self.imputer_.sample(X, n_draws, _seed(rng))
        columns = None if self.estimator is not None else self._returned_columns()
        if columns is None:
            return tables
        used = [k for k, column in enumerate(columns) if column.kind != PASSED]
        return [_numbers(table, columns)[:, used] for table in tables]

    def _returned_columns(self):
        """List the columns that the imputer returns; None if all are numbers."""
        schema = self.imputer_._schema
        return schema.columns and [schema.columns[j] for j in schema.returned]

    def _threads(self):
        """Return a context of one thread for the default model: several mostly wait."""
        return one_thread if self.estimator is None else nullcontext

    def _of_model(self, model, method, table):
        """Call a method of a fitted model."""
        with self._threads()():
            return getattr(model, method)(table)

    def _fitted_models(self, tables, y, given, rng):
        """Fit a clone of the model to each of some tables of the same rows."""
        model, weights = self._model(), given.get("sample_weight")
        if self.estimator is None and weights is not None:
            rows = np.flatnonzero(weights)  # others would be borders of bins
            tables = [_safe_indexing(table, rows) for table in tables]
            y, given = y[rows], given | {"sample_weight": weights[rows]}
        columns = None if self.estimator is not None else self._returned_columns()
        if columns is not None:
            model.set_params(categorical_features=_are_nominal(columns))
        models = [_reseeded(clone(model), rng) for _ in tables]
        threads = self._threads()
        return Parallel(n_jobs=self.n_jobs)(
            delayed(_fit)(threads, model, table, y, given)
            for model, table in zip(models, tables, strict=True)
        )

    def _predictions(self, X, method):
        """Predict from draws of new rows, each model from its share of the draws.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        method : str
            Of the models.

        Yields
        ------
        ndarray of shape (n_draws, n, ...)
            For a chunk of the rows.
        """
        check_is_fitted(self)
        self._check_parameters()
        needs_memory(type(self), X, reset=False)
        n_draws, rng = int(self.n_draws), np.random.default_rng(self._seed)
        size = max(1, _CHUNK // (n_draws * self.n_features_in_))
        n_rows = _num_samples(X)
        for first in range(0, max(n_rows, 1), size):
            rows = np.arange(first, min(first + size, n_rows))
            part = X if n_rows <= size else _safe_indexing(X, rows)
            tables = self._drawn(part, n_draws, rng)
            models = cycle(self.estimators_)
            found = [self._of_model(next(models), method, table) for table in tables]
            yield np.array(found)


def asking(default):
    """Let a default imputer or model request weights, if requests are needed."""
    if metadata_routing._routing_enabled():
        default.set_fit_request(sample_weight=True)
    return default


def map_missing(y):
    """Tell which values of a target of any type are missing."""
    return [is_missing(value) for value in y.tolist()]


def _seed(rng):
    return int(rng.integers(_MOST))


def _reseeded(estimator, rng):
    """Set each `random_state` of an estimator and of those within it."""
    names = [
        name
        # sorted, so that each parameter gets the same seed in every run
        for name in sorted(estimator.get_params())
        if name == "random_state" or name.endswith("__random_state")
    ]
    if names:
        estimator.set_params(**{name: _seed(rng) for name in names})
    return estimator


def _numbers(table, columns):
    """Convert a completed table: levels that are no numbers become codes."""
    cells = encode(table, columns)
    for place, column in enumerate(columns):
        if column.levels is not None and column.is_number and column.kind != "nominal":
            levels = np.array(column.levels, dtype=np.float64)
            cells[:, place] = levels[cells[:, place].astype(int)]
    return cells


def _are_nominal(columns):
    """Say which columns of the default model are categories without an order."""
    used = [column for column in columns if column.kind != PASSED]
    return [
        column.kind == "nominal" and len(column.levels) <= _MOST_LEVELS
        for column in used
    ]


def _fit(threads, model, table, y, given):
    with threads():
        return model.fit(table, y, **given)
