"""Base classes and mixins of the estimators of tables with missing values."""

from functools import partial

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._set_output import _get_container_adapter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skvnce._progress import step
from skvnce._random import seed_from
from skvnce.estimators._by_parts import (
    ResultsInParts,
    samples_by_parts,
)
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._intervals import (
    columns_with_order,
    ordered_draws,
    ranks_of_interval,
    ranks_of_quantiles,
)
from skvnce.estimators._large import check_rows, gather, reader_of, summary_of
from skvnce.estimators._misfit import HeldOutCheck
from skvnce.estimators._no_table import names_table
from skvnce.estimators._parts import check_parameters
from skvnce.estimators._stream import Stream, first_rows, trained, widened
from skvnce.estimators._validation import (
    OF_COLUMNS,
    attributes_of,
    check_deviations,
    check_sample,
    incomplete_array,
    read_table,
    schema_of,
)
from skvnce.estimators._weights import rows_with_data, warn_of_scale
from skvnce.fitted.shift import spreads
from skvnce.sources.chunks import mean_of_rows
from skvnce.tables.cells import is_frame, is_missing
from skvnce.tables.checks import warn_of_table
from skvnce.tables.model_columns import (
    Handling,
    ModelCells,
    observed_columns,
    warn_of_empty,
    without_constants,
)
from skvnce.tables.output import as_given, tables_as_given, values_of
from skvnce.tables.statistics import column_moments
from skvnce.tables.table import Table
from skvnce.tables.valid_values import valid_values

FILLED_BY_CONSTANT = "their missing cells are filled by the constant"
_CHUNK = 2**22  # maximum number of cells, over all chains, in a chunk of rows


class ConstantColumns:
    """Mixin that leaves constant columns out of the model and imputes their value."""

    _schema = property(schema_of)

    def _keeps_empty(self):
        """Return whether `transform` keeps columns that were missing at `fit`."""
        return getattr(self, "keep_empty_features", False)

    def _marker(self):
        """Return what marks missing cells of tables."""
        return getattr(self, "missing_values", np.nan)

    def _read_table(self, X, **options):
        """Validate the table of a fit; see `read_table`."""
        table, schema = read_table(self, X, **options)
        self._set_columns(schema)
        return table

    def _set_columns(self, schema):
        """Set what describes the columns of a table, before those of the model."""
        for name in OF_COLUMNS:
            vars(self).pop(name, None)
        vars(self).update(attributes_of(schema))

    def _read_cells(self, X, weights=None, impossible=None, limits=None):
        """Choose the columns of the model, and return its cells as `ModelCells`.

        `weights` (n_samples,) are checked; see `without_constants` for `impossible`.
        With `limits`, `CellLimits` of X, a row that only has limits is kept.
        """
        known = ~np.isnan(X) if limits is None else ~np.isnan(X) | limits.known
        weights, kept = rows_with_data(X, weights, known)
        table = X[kept]
        self._choose_columns(table, impossible)
        nodes = table[:, self.feature_indices_].astype(np.float64)
        seen = known[kept][:, self.feature_indices_].any(1)
        nodes, kept_weights = nodes[seen], weights[kept][seen]
        if limits is not None:
            limits = limits.of(np.flatnonzero(kept)[seen], self.feature_indices_)
        moments = column_moments(nodes, kept_weights)
        check_deviations(self._schema, self.feature_indices_, moments[1])
        return ModelCells(table, nodes, kept_weights, *moments, weights > 0, limits)

    def _choose_columns(self, X, impossible=None):
        """Choose the columns of the model by training rows, and warn of the others."""
        schema, handling = self._schema, self._handling()
        warn_of_empty(schema, X, handling)
        schema = schema._replace(model_columns=observed_columns(schema, X))
        schema = without_constants(schema, X, handling, impossible)
        self.feature_indices_, self.constants_ = schema.model_columns, schema.constants

    def _handling(self):
        """Say what happens to columns outside of the model; see `Handling`."""
        return Handling("not filled", FILLED_BY_CONSTANT)


class IncompleteTransformer(
    ResultsInParts, ConstantColumns, TransformerMixin, BaseEstimator
):
    """Base class of transformers whose model uses the columns in `feature_indices_`.

    The model does not contain columns that were entirely missing at `fit`.  The
    parameter `keep_empty_features` of the subclass controls whether `transform` keeps
    them.
    """

    def _read_large(self, source, sample_weight=None, impossible=None):
        """Read a table in parts, and choose the columns of the model.

        Parameters
        ----------
        source : Chunks or DaskTable
        sample_weight : Chunks, collection of dask, or None
            With the parts of X.
        impossible : str, default=None
            See `without_constants`.

        Returns
        -------
        LargeTable
        """
        weights, reader = source._weights(sample_weight), reader_of(self, source)
        self._set_columns(reader._schema)
        large = self._gathered(source, reader, weights, impossible)
        warn_of_scale(large.cells.weights, len(large.cells.counted))
        table = Table.of_schema(large.cells.table, self._schema)
        warn_of_table(table, large.summary.n_observed)
        return large

    def _gathered(self, source, reader, weights, impossible=None):
        """Choose columns by a table in parts, and gather rows in memory."""
        summary = summary_of(source, reader, weights)
        check_rows(summary)
        self._column_ends = summary.ends
        self._choose_columns(summary.ends, impossible)
        return gather(source, reader, weights, summary, self._schema)

    def get_feature_names_out(self, input_features=None):
        """Get the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Must equal `feature_names_in_` if the estimator was fitted on named columns.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = self._schema.all_names
        if input_features is not None and list(input_features) != list(names):
            if hasattr(self, "feature_names_in_"):
                raise ValueError("input_features is not equal to feature_names_in_.")
            names = np.asarray(input_features, dtype=object)
            if len(names) != self.n_features_in_:
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({self.n_features_in_}), got {len(names)}."
                )
        return self._names_out(names)

    @available_if(lambda self: hasattr(self, "score_samples"))
    @names_table
    def score(self, X, y=None):
        """Compute the mean of `score_samples` over the rows; larger is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return mean_of_rows(self.score_samples(X))

    def __sklearn_tags__(self):
        """Declare whether NaN is allowed, and that the dtype is preserved."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = is_missing(self._marker())
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_parameters(self):
        """Check each parameter; subclasses add conditions on several parameters."""
        check_parameters(self)

    def _checked(self, X):
        """Validate new rows, and parameters that may have changed since the fit."""
        check_is_fitted(self)
        self._check_parameters()
        return incomplete_array(self, X)

    def _learn_values(self, X, min_value=None, max_value=None, whole=None):
        """Determine the possible values of the columns, within the user's bounds.

        X may be a sample of a table of which `whole` is the `Summary`.
        """
        self._spreads = spreads(self._schema, X)
        self._set_values(valid_values(self._schema, X, min_value, max_value, whole))

    def _set_values(self, found):
        self.feature_ranges_ = found.ranges
        self._valid = tuple(found)  # a plain tuple, which skops can store

    def _widen(self, X):
        """Extend ranges and repeated values to the cells of more rows."""
        found, self._column_ends = widened(self._schema, X)
        self._set_values(found)

    def _start_stream(self, X):
        """Fit to the first table of `partial_fit`, and store its rows."""
        self.fit(X)
        first = first_rows(self._checked(X), seed_from(self.random_state))
        self._stream = first.stored()
        return self

    def _go_on_training(self, members, keep, X):
        """Repeat the fit with all rows of a stream, or train copies of members.

        `keep` is then called with the copies.
        """
        new = Stream.of(self._checked(X))
        widened(self._schema, new.rows)  # raises an error for its rows
        stream = Stream.after(self._stream, new)
        if stream.is_due:
            self._stream = stream.refitted(self).stored()
            return self
        seed = seed_from(self.random_state)
        self._widen(new.rows)
        found, stream = trained(members, stream, seed)
        keep(found)  # before the stream: a copy has that of its original
        self._stream = stream.stored()
        return self

    def _clipped(self, cells):
        """Clip cells (..., n_nodes) to the ranges of their columns."""
        return self._schema.values.clipped(cells, self.feature_indices_)

    def _rounded_to_valid(self, cells):
        """Round cells (..., n_nodes) to the nearest possible values."""
        return self._schema.values.possible(cells, self.feature_indices_)

    def _container(self):
        """Return what makes the container of `set_output`; None for arrays."""
        return _get_container_adapter("transform", self)

    def _handling(self):
        return Handling(self._handling_of_empty(), FILLED_BY_CONSTANT)

    def _handling_of_empty(self):
        found = "dropped by transform"
        if self._keeps_empty():
            found = "filled by 0"
            bounds = [
                name
                for name in ("min_value", "max_value")
                if getattr(self, name, None) is not None
            ]
            if bounds:
                within = " and ".join(bounds)
                found += f", or by the value within {within} that is nearest to 0"
            if any(column.levels == () for column in self._schema.columns or ()):
                found += "; categories stay missing"
        return f"{found} (keep_empty_features)"

    def _parts(self, X, only_incomplete=False, n_chains=1):
        """Yield the indices and float64 values of the nodes, in chunks of rows."""
        nodes = X[:, self.feature_indices_]
        rows, work = np.arange(len(X)), "scoring rows"
        if only_incomplete:
            rows, work = np.flatnonzero(np.isnan(nodes).any(1)), "filling rows"
        if not nodes.shape[1]:
            return
        size = max(1, _CHUNK // (nodes.shape[1] * n_chains))
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            with step(work, first + len(part), len(rows), is_brief=True):
                yield (
                    np.ix_(part, self.feature_indices_),
                    nodes[part].astype(np.float64),
                )

    def _columns_out(self, filled, X):
        """Restore the observed cells exactly, and keep or drop the empty columns."""
        filled = np.where(np.isnan(X), filled, X)
        kept = self._schema.returned
        empty = np.setdiff1d(kept, self.feature_indices_)
        filled[..., empty] = np.nan_to_num(filled[..., empty])
        return filled[..., kept]

    def _rounded(self, tables, checked, X):
        """Round what fills columns of whole numbers, if X is a data frame.

        Parameters
        ----------
        tables : ndarray of shape (..., n_samples, n_features_out)
        checked : ndarray of shape (n_samples, n_features_in_)
            Rows of X; their missing cells are rounded.
        X : array-like

        Returns
        -------
        ndarray of shape (..., n_samples, n_features_out)
        """
        if not is_frame(X):
            return tables
        kept = self._schema.returned
        possible = self._schema.values
        return possible.whole(tables, kept, np.isnan(checked)[:, kept])

    def _whole(self, tables, checked, X):
        """Round whole numbers of complete rows; parameters are those of `_rounded`."""
        return self._rounded(tables, checked, X)

    def _without_equations(self):
        """Return the estimator, or a copy that fills rows that contradict equations."""
        return self

    def _names_out(self, names):
        """Select the names of the columns of `transform` from all names."""
        return names[self._schema.returned]


class CellSampler(HeldOutCheck, IncompleteTransformer):
    """Base class of estimators that draw missing cells."""

    @samples_by_parts
    @shows_progress
    def sample(self, X, n_draws=1, random_state=None, *, as_array=False):
        """Draw the missing cells from their distribution given the observed cells.

        Draws stay within `feature_ranges_`.  In columns whose values repeat they are
        observed values, and in columns of integers they are integers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        n_draws : int, default=1
            Number of completed tables.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.
        as_array : bool, default=False
            Whether to return one array of all tables instead of a list.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_features_out), or ndarray of \
                shape (n_draws, n_samples, n_features_out)
            Completed tables, with the observed cells as they are in X.  Those of a list
            are arrays or data frames, as `transform` returns them (`set_output`).
        """
        check_sample(n_draws, as_array)
        checked = self._checked(X)
        drawn = self._drawn_tables(checked, n_draws, random_state)
        drawn = self._whole(drawn, checked, X)
        return self._as_asked(drawn, checked, X, as_array)

    @shows_progress
    def interval(self, X, level=0.9, n_draws=199, random_state=None):
        """Compute intervals that contain the missing cells with a probability.

        The ends are draws of `sample`, and so values that the cell can have.  If the
        model is right, an interval contains the cell with probability `level`, or with
        a larger one where values repeat, and the cell is equally often below and above.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        level : float, default=0.9
            Between 0 and 1.
        n_draws : int, default=199
            Number of draws.  The probability is `level` if ``(1 - level) / 2 *
            (n_draws + 1)`` is an integer, as it is for 0.9, 0.95 and 0.99 with 199
            draws; else it is larger.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the ends differ between calls.

        Returns
        -------
        lower, upper : ndarray or data frame of shape (n_samples, n_features_out)
            Arrays or data frames, as `sample` returns them.  Observed cells are as in
            X.  Missing cells stay missing in columns whose levels have no order, for
            which imputers of categories have `category_probabilities`, and in columns
            that had no observed cell at `fit`.

        Raises
        ------
        ValueError
            If `level` is not between 0 and 1, or needs more draws.
        TypeError
            If `level` is no number, or `n_draws` no integer.
        """
        ranks = ranks_of_interval(level, n_draws)
        return tuple(self._quantiles(X, ranks, n_draws, random_state))

    @shows_progress
    def quantile(self, X, q=0.5, n_draws=199, random_state=None):
        """Compute quantiles of the distributions of the missing cells.

        They are draws of `sample`, of rank ``q * (n_draws + 1)``, rounded up.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        q : float or array-like of shape (n_quantiles,), default=0.5
            Between 0 and 1.
        n_draws : int, default=199
            Number of draws.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the quantiles differ between calls.

        Returns
        -------
        ndarray or data frame of shape (n_samples, n_features_out), or list of these
            A list if `q` is array-like.  Observed cells, and columns that have no
            quantiles, are as in `interval`.

        Raises
        ------
        ValueError
            If `q` is not between 0 and 1, or needs more draws.
        TypeError
            If `q` is neither a number nor array-like, or `n_draws` no integer.
        """
        ranks = ranks_of_quantiles(q, n_draws)
        found = self._quantiles(X, ranks, n_draws, random_state)
        return found if np.ndim(q) else found[0]

    def _quantiles(self, X, ranks, n_draws, random_state):
        checked = self._checked(X)
        draw = partial(self._drawn_tables, n_draws=n_draws)
        kept = self._schema.returned
        tables = ordered_draws(draw, kept, checked, ranks, n_draws, random_state)
        return self._tables_of_quantiles(tables, checked, X)

    def _tables_of_quantiles(self, tables, checked, X):
        where = np.broadcast_to(columns_with_order(self._schema), checked.shape)
        tables = self._rounded(tables, checked, X)
        return self._as_asked(tables, checked, X, as_array=False, where=where)

    def _with_one_draw(self):
        """Copy the estimator for each draw of the parameters that `sample` uses."""
        return [self._without_training()]

    def _as_asked(self, drawn, checked, X, as_array, where=None):
        """Convert completed tables of validated rows to what `sample` returns."""
        drawn, filled = self._emptied(drawn, checked, where)
        convert = partial(values_of, self._schema)
        if not as_array:
            convert = partial(tables_as_given, self._schema, self._container())
        if filled.ndim == 2:
            return convert(drawn, filled, X)
        pairs = zip(drawn[:, None], filled, strict=True)  # one has its own cells each
        found = [convert(one, cells, X)[0] for one, cells in pairs]
        return np.array(found) if as_array else found

    def _emptied(self, tables, checked, where):
        """Empty the missing cells of tables that are not to be filled.

        Parameters
        ----------
        tables : ndarray of shape (..., n_samples, n_features_out)
            Completed.
        checked : ndarray of shape (n_samples, n_features_in_)
        where : ndarray of bool, of shape (n_samples, n_features_in_), or None
            None fills all missing cells.  It may have the dimensions of `tables`.

        Returns
        -------
        tables : ndarray of shape (..., n_samples, n_features_out)
        filled : ndarray of bool, of the shape of `where`
            The cells that `tables` fill.
        """
        missing = np.isnan(checked)
        if where is None:
            return tables, missing
        empty = (missing & ~where)[..., self._schema.returned]
        return np.where(empty, np.nan, tables), missing & where

    def _drawn_tables(self, X, n_draws, random_state):
        """Draw cells of validated rows; (n_draws, n_samples, n_features_out)."""
        raise NotImplementedError

    def _constants_filled(self, X):
        values = self._values_of_empty()
        values[list(self.constants_)] = self._schema.constant_cells
        return np.where(np.isnan(X), values.astype(X.dtype), X)

    def _values_of_empty(self):
        """Return 0, or the nearest value within the bounds, for each column."""
        return np.clip(np.zeros(self.n_features_in_), *self.feature_ranges_)

    def _completed(self, filled, checked, X):
        """Return filled rows (n_samples, n_features) of X as `transform` does."""
        table = self._whole(self._columns_out(filled, checked), checked, X)
        return as_given(self._schema, self._container(), table, np.isnan(checked), X)
