"""The base class of the transformers of tables with missing values."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils._set_output import _get_container_adapter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skvnce._core.progress import step
from skvnce._imputer import validation
from skvnce._imputer.determined import determined_columns
from skvnce._imputer.fitted import get_state, relations_listed, set_state, without_fit
from skvnce._imputer.parts import summary, tables
from skvnce._imputer.parts.chunks import mean_of_rows
from skvnce._imputer.parts.summary import AsRead, LargeTable
from skvnce._tables import model_columns, values
from skvnce._tables.cells import is_frame, is_missing, names_of, without_marker
from skvnce._tables.findings import check_non_negative, warn_of_table
from skvnce._tables.frames import readable
from skvnce._tables.model_columns import FILLED_BY_CONSTANT, Handling, ModelCells
from skvnce._tables.schema import Schema, Table, reject_categories
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce._types import TableLike

# ----------------------------------------
# Readers of tables in parts: each part is validated as a table in memory is.


class TableReader(BaseEstimator):
    """Reads the parts of a table, of the columns of some rows; errors name the part."""

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
        with tables.part_named(number):
            # scikit-learn rejects tables without rows
            if not len(X):
                return np.zeros((0, self.n_features_in_)), np.zeros(0)
            table = validation.incomplete_array(self, X)
            weights = _weights_of_part(table, weights)
        return table, weights


def _weights_of_part(table, weights):
    """Validate the weights of a part, which may all be zero."""
    if weights is None:
        return np.ones(len(table))
    raw = np.asarray(readable(weights, "sample_weight"))
    if raw.shape == (len(table),) and (raw == 0).all():
        return np.zeros(len(table))
    return model_columns.checked_weights(raw, table)


def reader_of(settings, source):
    """Make the reader of a table in parts, by the parameters of an estimator."""
    head, marker = source._head(), getattr(settings, "missing_values", np.nan)
    if not hasattr(settings, "categorical_features"):
        return TableReader(without_marker(head, marker), missing_values=marker)
    with step("reading levels"):
        kinds = settings.categorical_features
        columns = tables.columns_of_parts(source, head, kinds, marker)
    head = without_marker(head, marker)
    return TableReader(
        head, columns, settings.handle_unknown, tables.TEXT_IN_PARTS, marker
    )


# ----------------------------------------
# The base class of the transformers of tables with missing values.


_BOUNDS = "min_value", "max_value"  # parameters: bounds of columns


class TrainingTable(NamedTuple):
    """The table of a fit, and the columns of the model."""

    schema: Schema
    cells: ModelCells  # of a sample of the rows, if the table is in parts and large
    rows: np.ndarray  # (n_samples, n_features), as read; in parts those of the sample
    report: dict  # the attribute of the indicator of missing cells, if there is one
    limits: Limits = NO_LIMITS  # of the missing cells of `rows`
    large: LargeTable | None = None  # if the table is not, or not all, in memory


class IncompleteTransformer(TransformerMixin, BaseEstimator):
    """Base class of transformers whose model uses the columns in `feature_indices_`.

    The model contains neither constant columns nor columns that were entirely missing
    at `fit`, which `keep_empty_features` keeps in `transform`.  Results of tables in
    parts are in parts, too, whatever the container of `set_output`.
    """

    _parts: ClassVar[dict[str, Callable]] = {}  # see `set_nested`
    set_params = validation.set_nested
    _is_positive = False  # whether the model is for non-negative columns

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # attributes that `fit` sets

    def __init_subclass__(cls, **kwargs):
        """Decorate the methods that scikit-learn has decorated."""
        super().__init_subclass__(**kwargs)
        for name in ("transform", "fit_transform"):
            method = getattr(cls, name, None)
            # an inherited method has been decorated already
            if method is not None and method not in tables.KEEP_PARTS:
                setattr(cls, name, tables.kept_in_parts(method))

    @property
    def _schema(self):
        """What the last fit has learned about the columns; see `Schema`."""
        fitted = vars(self).get("_fitted")
        schema = Schema(0) if fitted is None else fitted.schema
        # parameters that may have changed since
        return schema._replace(keeps_empty=self._keeps_empty(), marker=self._marker())

    __getstate__, __setstate__ = get_state, set_state

    def _new(self):
        """Copy the estimator without fitted attributes."""
        new = object.__new__(type(self))
        vars(new).update(without_fit(vars(self)))
        return new

    def _copy(self):
        """Copy the estimator; attributes are shared, and are replaced, not changed."""
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        return new

    def _publish(self, fitted):
        """Store the value of a fit and its report; a failed fit changes nothing."""
        report = {**fitted.report, **self._attributes_of(fitted.schema)}
        fitted, others = fitted._replace(report=report), without_fit(vars(self))
        self.__dict__ = {**others, **report, "_fitted": fitted}
        return self

    def _in_turns(self, n_draws, seed):
        """Choose copies of the estimator that have one draw of the parameters each."""
        copies = self._with_one_draw()
        order = np.random.default_rng(seed).permutation(len(copies))
        for number in range(n_draws):
            yield copies[order[number % len(copies)]]

    def _without_training(self, **replaced):
        """Copy the estimator without the rows from which parameters are drawn."""
        copy = self._copy()
        fitted = self._fitted
        if hasattr(fitted.model, "without_training"):
            copy._fitted = fitted._replace(model=fitted.model.without_training())
        vars(copy).update(replaced)
        return copy

    def _copies_with(self, name, options):
        """Copy the estimator for each value of an attribute."""
        return [self._without_training(**{name: value}) for value in options]

    def _reading_nan(self):
        """Copy the estimator for rows that were made here, whose marker is NaN."""
        copy = self._copy()
        if hasattr(copy, "missing_values"):
            copy.missing_values = np.nan
        for name in ("model", "model_"):
            inner = getattr(copy, name, None)
            if hasattr(inner, "_reading_nan"):
                setattr(copy, name, inner._reading_nan())
        return copy

    def _mapped(self, source, names, fill, *arguments):
        """Apply a method of number and part, which fills it, to all parts."""
        frame = getattr(source, "frame", None)  # of dask
        if frame is not None and self._schema.columns and hasattr(self, "sample"):
            estimator = self._with_frames()
            row = tables.typical_row(estimator._schema, frame._meta)
            filler = estimator._without_equations()._reading_nan()
            meta = source._as_meta(fill(filler, *arguments, 0, row))
            call = partial(tables.call_with_rows, partial(fill, estimator, *arguments))
            return source._frame(partial(call, meta), meta)
        copies = self, self._reading_nan()
        fills = [partial(fill, copy, *arguments) for copy in copies]
        return source._tables(partial(tables.call_with_rows, *fills), names)

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
        # each part has a stream of its own, whichever worker draws it
        [state] = np.random.SeedSequence([*seeds, number]).generate_state(1)
        # 31 bits, as numpy's legacy seeds
        [table] = self.sample(chunk, random_state=int(state >> 1))
        return table

    def _keeps_empty(self):
        """Return whether `transform` keeps columns that were missing at `fit`."""
        return getattr(self._settings(), "keep_empty_features", False)

    def _settings(self):
        """Return the estimator whose parameters say how columns are read."""
        return self

    def _marker(self):
        """Return the marker of missing cells."""
        return getattr(self._settings(), "missing_values", np.nan)

    def _read(self, X, sample_weight=None, lower=None, upper=None):
        """Check the parameters, read a table, and choose the columns of the model."""
        self._check_parameters()
        source = validation.in_parts(X)
        if source is not None:
            values.reject_limits(lower, upper, summary.LIMITS_IN_PARTS)
            validation.reject_listed_relations(self, "a table in parts")
            schema, large = self._large_table(source, sample_weight)
            return self._training_of_parts(schema, large)
        table, schema = validation.read_table(self, X, weights=sample_weight)
        limits = values.limits_of(schema, lower, upper, X, table)
        return self._chosen(schema, table, limits, sample_weight, is_whole=is_frame(X))

    def _kept_columns(self, schema):
        """List columns that are in the model even if they follow from others."""
        return range(schema.n_columns)

    def _chosen(self, schema, table, limits=NO_LIMITS, sample_weight=None, *, is_whole):
        """Choose the columns of the model by a table in memory; see `_read`."""
        cells, schema = validation.read_cells(
            schema, self._handling(schema), table, sample_weight, limits=limits
        )
        model_columns.check_scale(cells.weights, len(table))
        schema = self._with_values(schema, cells.table)
        places = values.limited_columns(schema, limits, is_whole=is_whole)
        valid = schema.values.reaching(cells.limits, schema.model_columns)
        schema = schema._replace(limited=places, values=valid)
        report = self._report_of_missing(schema, self._rows_of_indicator(table, cells))
        return TrainingTable(schema, cells, table, report, limits)

    def _training_of_parts(self, schema, large):
        """Choose the valid values of a table in parts; return a `TrainingTable`."""
        schema = self._with_values(schema, large.cells.table, large.summary)
        # one row that has the missing columns stands for all
        report = self._report_of_missing(
            schema, np.where(large.summary.missing, np.nan, 0.0)[None]
        )
        return TrainingTable(
            schema, large.cells, large.cells.table, report, large=large
        )

    def _rows_of_indicator(self, table, cells):
        """Select the rows whose missing cells decide which columns are indicated."""
        return cells.table

    def _report_of_missing(self, schema, X):
        """Return the attribute of the indicator of missing cells, if there is one."""
        if not hasattr(self, "add_indicator"):
            return {}
        indicator = None
        if self.add_indicator:
            if schema.relations is not None:  # cells that follow are missing, too
                X = np.where(schema.relations.gaps, np.nan, X)
            indicator = MissingIndicator(error_on_new=False)
            indicator.set_output(transform="default").fit(X)
        return {"indicator_": indicator}

    def _with_values(self, schema, X, whole=None):
        """Determine valid values in bounds, by a sample if `whole` sums all rows."""
        schema = schema._replace(spreads=values.spreads(schema, X))
        valid = values.valid_values(schema, X, *self._bounds(), whole)
        schema = schema._replace(values=valid)
        return schema._replace(determined=determined_columns(schema, X))

    def _bounds(self):
        """List the parameters that bound columns."""
        return [getattr(self, name, None) for name in _BOUNDS]

    def _large_table(self, source, sample_weight=None, impossible=None):
        """Read a table in parts, and choose the columns of the model."""
        weights, reader = source._weights(sample_weight), reader_of(self, source)
        schema, large = self._gather_rows(
            reader._schema, source, reader, weights, impossible
        )
        model_columns.check_scale(large.cells.weights, len(large.cells.counted))
        table = Table.of_schema(large.cells.table, schema)
        warn_of_table(table, large.summary.n_observed)
        return schema, large

    def _large_array(self, schema, X, sample_weight=None):
        """Choose the columns of the model by a large array, and gather rows."""
        weights = model_columns.checked_weights(sample_weight, X)
        model_columns.check_scale(weights, len(X))
        parts, chunks = summary.in_chunks(X, weights)
        schema, large = self._gather_rows(schema, parts, AsRead(), chunks)
        return schema, summary.with_all_rows(large, X, weights, schema.model_columns)

    def _gather_rows(self, schema, source, reader, weights, impossible=None):
        """Choose columns by a table in parts, and gather rows in memory."""
        sums = summary.summary_of(source, reader, weights)
        summary.check_rows(sums)
        schema = schema._replace(ends=sums.ends)
        schema = validation.with_model_columns(
            schema, self._handling(schema), sums.ends, impossible
        )
        return schema, summary.gather(source, reader, weights, sums, schema)

    def _attributes_of(self, schema):
        """List the public attributes that describe the columns of a table."""
        attributes = validation.attributes_of(schema)
        attributes["feature_indices_"] = schema.model_columns
        attributes["constants_"] = schema.constants
        if schema.values is not None:
            attributes["feature_ranges_"] = schema.values.ranges
        if hasattr(self, "relations"):
            attributes["relations_"] = relations_listed(schema)
        return attributes

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> NDArray[np.object_]:
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
    def score(self, X: TableLike, y: object = None) -> float:
        """Compute the mean of `score_samples` over the rows; larger is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None, default=None
            Ignored.

        Returns
        -------
        float
        """
        return mean_of_rows(self.score_samples(X))

    def __sklearn_tags__(self):
        """Declare whether NaN is allowed, and that the dtype is preserved."""
        tags = super().__sklearn_tags__()
        # with another marker, NaN is an error
        tags.input_tags.allow_nan = is_missing(self._marker())
        tags.input_tags.positive_only = self._is_positive
        tags.input_tags.categorical = hasattr(self._settings(), "categorical_features")
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_parameters(self):
        """Check each parameter; subclasses add conditions on several parameters."""
        validation.check_parameters(self)

    def _checked(self, X):
        """Validate new rows, and parameters that may have changed since the fit."""
        check_is_fitted(self)
        self._check_parameters()
        table = validation.incomplete_array(self, X)
        if self._is_positive:
            check_non_negative(self._schema, table, type(self).__name__)
        return table

    def _container(self):
        """Return the adapter of the container of `set_output`; None for arrays."""
        return _get_container_adapter("transform", self)

    def _handling(self, schema):
        empty = "dropped by transform"
        if self._keeps_empty():
            empty = "filled by 0"
            bounds = [name for name in _BOUNDS if getattr(self, name, None) is not None]
            if bounds:
                within = " and ".join(bounds)
                empty += f", or by the value within {within} that is nearest to 0"
            if any(column.levels == () for column in schema.columns or ()):
                empty += "; categories stay missing"
        return Handling(f"{empty} (keep_empty_features)", FILLED_BY_CONSTANT)

    def _rounded(self, filled, checked, X):
        """Round filled cells in columns of whole numbers, if X is a data frame."""
        if not is_frame(X):
            return filled
        columns = self._schema.returned
        possible = self._schema.values
        return possible.whole(filled, columns, np.isnan(checked)[:, columns])

    def _whole(self, filled, checked, X):
        """Round as `_rounded` does; subclasses also solve equations of rows."""
        return self._rounded(filled, checked, X)

    def _without_equations(self):
        """Return the estimator, or a copy that fills rows that contradict equations."""
        return self

    def _names_out(self, names):
        """Select the names of the columns of `transform` from all names."""
        return names[self._schema.returned]
