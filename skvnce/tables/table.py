"""The table that `fit` has read, for checks of what it means."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np

from skvnce.tables.column_kinds import Column
from skvnce.tables.schema import Schema

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


def listed(found: Sequence[str], mark: str = ", ") -> str:
    """List the first findings, and the number of others."""
    rest = len(found) - _SHOWN
    return mark.join(found[:_SHOWN]) + (f"{mark}and {rest} more" if rest > 0 else "")
