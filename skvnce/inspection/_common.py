"""Helpers of the displays: colours, axes, names, and checks of the estimator."""

from typing import NamedTuple

import numpy as np

from skvnce._tables.cells import DAY, TIMES, names_of
from skvnce._tables.frames import reject_parts, to_floats
from skvnce._tables.mixed import columns_by_dtype
from skvnce._tables.schema import Column, encode, place_of

RISE, FALL = "#2166ac", "#b2182b"  # blue and red for colour-blind readers
_LIGHT = "#67a9cf", "#ef8a62"  # the same on dark backgrounds
# grey bands and lines, between light and dark backgrounds
FAINT = {"color": "0.5", "alpha": 0.25}
_NO_NAME = {"nan", "None", "NaT", "<NA>"}


def axes_or_new(ax, width, height):
    """Return the axes, or those of a new figure, its size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def panels(n, most, each):
    """Make a figure of n panels of a size in rows, at most `most` in one."""
    import matplotlib.pyplot as plt

    shape = -(-n // min(n, most)), min(n, most)
    figure, axes = plt.subplots(
        *shape,
        figsize=(1 + each[0] * shape[1], 0.5 + each[1] * shape[0]),
        # always an array of two dimensions
        squeeze=False,
        layout="constrained",
    )
    for ax in axes.ravel()[n:]:
        ax.set_visible(False)
    return figure, axes.ravel()[:n]


def room(ax):
    """Return about the width and the height of axes in points."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi * 72, box.height / ax.figure.dpi * 72


def text_size(points):
    """Return the size of texts in rows of some height, at most the usual one."""
    from matplotlib import rcParams

    return min(max(0.8 * points, 4), rcParams["font.size"])


def colours(ax):
    """Return blue and red, lighter ones on a dark background."""
    from matplotlib.colors import to_rgb

    return _LIGHT if sum(to_rgb(ax.get_facecolor())) < 1.5 else (RISE, FALL)


def sign_colours(ax, values):
    """Return blue for each positive value and red for each other one."""
    rise, fall = colours(ax)
    return [rise if value > 0 else fall for value in values]


def sign_legend(ax, **where):
    """Add a legend of the two colours."""
    meanings = "rise together", "move apart"
    for colour, meaning in zip(colours(ax), meanings, strict=True):
        ax.plot([], [], color=colour, label=meaning)
    ax.legend(**{"frameon": False, **where})


def shown_name(name):
    """Return a name as text; a missing value gives an empty name."""
    text = str(name)
    # a text such as "nan" is a name
    return "unnamed" if text in _NO_NAME and not isinstance(name, str) else text


def fitted_attributes(estimator, *attributes):
    """Return attributes of a fitted estimator."""
    missing = [name for name in attributes if not hasattr(estimator, name)]
    if missing:
        raise ValueError(
            f"estimator must be fitted and have {', '.join(attributes)}, got "
            f"{type(estimator).__name__} without {', '.join(missing)}; fit it first, "
            "or pass one that has them"
        )
    return [getattr(estimator, name) for name in attributes]


# ----------------------------------------
# Tables with missing cells, as the displays read them.


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
    """Read a table, with the levels of `columns` unless None."""
    reject_parts(X, name)
    if columns is None:
        columns = columns_by_dtype(X)
    if columns is None:
        try:
            cells = to_floats(X, name)
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
    labels = keys or [f"x{j}" for j in range(cells.shape[1])]
    return Read(cells, list(map(shown_name, labels)), list(columns), keys)


def missing_patterns(missing):
    """List the patterns of missing cells, the most frequent first, and their counts."""
    # compared as bytes of eight cells, as there may be many columns; padded for none
    packed = np.packbits(np.pad(missing, ((0, 0), (0, 1))), axis=1)
    rows = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}")[:, 0]
    _, first, counts = np.unique(rows, return_index=True, return_counts=True)
    patterns = missing[first]
    # of equally frequent patterns, that with fewer missing cells comes first
    order = np.lexsort((patterns.sum(1), -counts))
    return patterns[order], counts[order]


def set_date_axis(axis, column):
    """Show the numbers of an axis as dates if they are days since 1970."""
    if column.dtype in ("date", "datetime"):
        axis.axis_date()
