"""What a table is: its columns, and what `fit` has learned about them."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np

from skvnce._tables.column_kinds import (
    PASSED,
    Column,
    in_words,
    microseconds_of,
    place_of,
)


class Schema(NamedTuple):
    """What `fit` has learned about the columns of a table."""

    n_columns: int
    # (n_columns,), None if the table has no names, or names that are not text
    names: np.ndarray | None = None
    # list of n_columns Column: None if all columns are numbers
    columns: list[Column] | None = None
    # (2, n_columns), smallest and largest observed cell of each column, NaN if it has
    # none
    ends: np.ndarray | None = None
    # int (n_model_columns,), indices of the columns that the model uses, increasing
    model_columns: np.ndarray = np.arange(0)
    # dict of int to number or category: the columns that were constant where they were
    # observed
    constants: dict = {}  # noqa: RUF012  it is never written to
    values: tuple | None = None  # ValidValues: which values cells of a column may have
    # (n_columns,), standard deviations of the observed cells
    spreads: np.ndarray | None = None
    # the columns of categories that others determine, see `skvnce._imputer.determined`
    determined: tuple = ()
    # Related: the relations of columns, see `skvnce._imputer.related`; None if there
    # are none
    relations: tuple | None = None
    # sequence of int: the columns of which missing cells had limits
    limited: Sequence[int] = ()
    # dict of int to Marginal: the columns of the model that are filled by their
    # marginal distributions
    marginals: dict = {}  # noqa: RUF012  it is never written to
    keeps_empty: bool = False  # whether columns without an observed cell are returned
    # int, float, str, NaN, None or NA: what marks missing cells
    marker: object = np.nan
    # list of n_columns names: those of a data frame, if they are not text, such as
    # integers
    other_names: list | None = None

    @property
    def as_read(self) -> Self:
        """The schema of a table of which no model has chosen columns."""
        first = self.n_columns, self.names, self.columns, self.ends
        return Schema(*first, other_names=self.other_names)

    @property
    def joined(self) -> np.ndarray:
        """Numbers of the columns of the model; those that follow from others share one.

        Their cells are missing together, as if one is, others tell it.
        """
        if self.relations is None:
            return np.arange(len(self.model_columns))
        return self.relations.joined(self.model_columns)

    def label(self, column: int) -> str:
        """Format the name or the index of a column for messages."""
        name = repr(self.keys[column]) if self.keys else column
        return f"column {name}"

    def shown(self, column: int, value: float, form: str = "") -> str:
        """Format a number of a column for messages, a date as such."""
        if self.columns and self.columns[column].is_time:
            return in_words(self.columns[column], value)
        return f"{value:{form}}"

    def number_of(self, column: int, value: object, name: str) -> object:
        """Convert a date of a column to its number; others stay as they are."""
        if not self.columns:
            return value
        return microseconds_of(self.columns[column], value, name)

    def labels(self, columns: np.ndarray, most: int | None = None) -> str:
        """List the names or the indices of columns for messages, the first ones."""
        shown = columns[:most]
        more = len(columns) - len(shown)
        return ", ".join(map(self.label, shown)) + (f" and {more} more" if more else "")

    @property
    def keys(self) -> list:
        """The names of the columns of a data frame; none of an array."""
        return self.other_names or [] if self.names is None else list(self.names)

    def index_of(self, key: object, parameter: str) -> int:
        """Find the column of a name, or of an index if the columns have no names."""
        return place_of(key, self.keys, self.n_columns, parameter)

    @property
    def all_names(self) -> np.ndarray:
        """The names of all columns; x0, x1, ... if the table has none."""
        if self.names is not None:
            return self.names
        return np.array([f"x{j}" for j in range(self.n_columns)], dtype=object)

    @property
    def passed(self) -> np.ndarray:
        """Indices of the columns that are passed through."""
        columns = self.columns or ()
        places = [j for j, column in enumerate(columns) if column.kind == PASSED]
        return np.array(places, dtype=int)

    @property
    def group_columns(self) -> list[int]:
        """The column that names the groups of rows, or none."""
        return [j for j, one in enumerate(self.columns or ()) if one.is_group]

    @property
    def node_columns(self) -> np.ndarray:
        """Indices of the columns of the model, and then that of groups."""
        return np.array([*self.model_columns, *self.group_columns], dtype=int)

    @property
    def n_categories(self) -> np.ndarray:
        """Number of categories of each column of the model; 0 for numbers."""
        if self.columns is None:
            return np.zeros(len(self.model_columns), dtype=int)
        counts = [len(self.columns[j].levels or ()) for j in self.model_columns]
        return np.array(counts, dtype=int)

    @property
    def is_categorical(self) -> np.ndarray:
        """Which columns of the model have categories; bool."""
        return self.n_categories > 0

    @property
    def constant_cells(self) -> list:
        """The numbers, or the codes, of the columns in `constants`."""
        if not self.columns:
            return list(self.constants.values())
        return [self.columns[j].code(one) for j, one in self.constants.items()]

    @property
    def with_data(self) -> np.ndarray:
        """Indices of the columns of the model and of the constant ones."""
        return np.union1d(self.model_columns, list(self.constants)).astype(int)

    @property
    def returned(self) -> np.ndarray:
        """Indices of the columns that `transform` returns."""
        if self.keeps_empty:
            return np.arange(self.n_columns)
        return np.union1d(self.with_data, self.passed).astype(int)


class Encoded(NamedTuple):
    """A table that `fit` of an estimator has read, for `fit` of another one."""

    table: np.ndarray  # (n, features), as `read_table` has returned it
    schema: Schema


# ----------------------------------------
# The table that `fit` has read, for checks of what it means.

_SHOWN = 5  # findings that a message lists


class Table(NamedTuple):
    """A table that `fit` has read."""

    # (n_samples, n_features), codes of levels, and numbers; NaN marks missing cells
    cells: np.ndarray
    columns: Sequence[Column]  # list of n_features Column
    names: Sequence[str]  # list of n_features str: as messages show them
    # (2, n_features), the smallest and the largest cell of each column, NaN if it has
    # none
    ends: np.ndarray
    n_observed: np.ndarray  # int (n_features,)
    # (n_samples,) by column: codes of the levels of columns that are passed through,
    # whose `cells` are 0
    passed: Mapping = MappingProxyType({})

    @classmethod
    def of(
        cls, cells: np.ndarray, columns: Sequence[Column] | None, names: Sequence[str]
    ) -> Self:
        """Describe a table; None instead of columns means that all are numbers."""
        # fmin and fmax ignore NaN without a warning of empty columns
        ends = np.stack([np.fmin.reduce(cells, 0), np.fmax.reduce(cells, 0)])
        ends = ends.astype(np.float64)  # whose range holds differences of float32
        columns = columns or [Column("numeric")] * len(names)
        return cls(cells, columns, names, ends, (~np.isnan(cells)).sum(0))

    @classmethod
    def of_schema(cls, cells: np.ndarray, schema: Schema) -> Self:
        """Describe a table of which a schema is known."""
        names = [schema.label(j) for j in range(cells.shape[1])]
        return cls.of(cells, schema.columns, names)

    def observed(self, place: int) -> np.ndarray:
        """Return the observed cells of a column (n,), as codes."""
        cells = self.cells[:, place]
        return cells[~np.isnan(cells)]

    def with_levels(self) -> Iterator[tuple[int, tuple]]:
        """Yield the columns of categories, and their levels."""
        for place, column in enumerate(self.columns):
            if column.levels:
                yield place, column.levels


def listed(items: Sequence[str], mark: str = ", ") -> str:
    """List the first items, and the number of others."""
    rest = len(items) - _SHOWN
    return mark.join(items[:_SHOWN]) + (f"{mark}and {rest} more" if rest > 0 else "")


def if_any(items: Sequence[str], sentence: str, mark: str = ", ") -> list[str]:
    """Put items in place of the first {} of a sentence; say nothing without items."""
    return [sentence.replace("{}", listed(items, mark), 1)] if items else []
