"""Tables with missing cells, as the displays read them."""

from typing import NamedTuple

import numpy as np

from skvnce.inspection._common import shown_name
from skvnce.tables.cells import DAY, TIMES
from skvnce.tables.column_kinds import Column, encode, names_of, place_of
from skvnce.tables.containers import reject_parts
from skvnce.tables.mixed import columns_by_dtype


class Read(NamedTuple):
    """A table as numbers."""

    # (n_samples, n_features), numbers, codes of levels, and dates in days since 1970;
    # NaN where missing
    cells: np.ndarray
    names: list  # list of str: as they are shown
    columns: list  # list of n_features Column
    keys: list  # the names of a data frame; none of an array

    def place(self, name):
        """Find a column by its name, or by its index if the table has no names."""
        if not self.keys and name in self.names:
            return self.names.index(name)
        return place_of(name, self.keys, len(self.names), "columns")


def read(X, columns=None, name="X"):
    """Read a table, with the levels of `columns` if they are given."""
    reject_parts(X, name)
    if columns is None:
        columns = columns_by_dtype(X)
    if columns is None:
        try:
            cells = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} must be a table of numbers or a data frame: {error}"
            ) from error
        if cells.ndim != 2:
            raise ValueError(
                f"{name} must be a table of rows and columns, got shape {cells.shape}"
            )
        columns = [Column("numeric")] * cells.shape[1]
    else:
        cells = encode(X, columns)
        are_times = [column.dtype in TIMES for column in columns]
        # matplotlib counts days since 1970
        cells[:, are_times] /= DAY
    if not cells.size:
        raise ValueError(f"{name} must have a row and a column, got {cells.shape}")
    keys = names_of(X)
    names = keys or [f"x{j}" for j in range(cells.shape[1])]
    return Read(cells, [shown_name(one) for one in names], list(columns), keys)


def set_date_axis(axis, column):
    """Show the numbers of an axis as dates if they are days since 1970."""
    if column.dtype in ("date", "datetime"):
        axis.axis_date()
