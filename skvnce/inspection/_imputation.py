"""Plot of observed cells beside drawn ones."""

import numpy as np

from skvnce._tables.frames import reject_parts
from skvnce.inspection._common import colours, panels, read, room, set_date_axis

KINDS = ("density", "strip", "box", "scatter")
_MOST = 12  # maximum number of panels that are chosen without being asked for
_PER_ROW = 4
_PANEL = 2.6, 2.2, 1.8  # width, height and least width in inches
_JITTER = 0.35  # half of the width of a strip
_FEWEST = 20  # cells of a density; of fewer ones a mark each is drawn


class ImputationDisplay:
    """Plot of the observed cells of columns (blue) beside drawn ones (red).

    Drawn cells need not be distributed like observed ones: where values are missing at
    random, rows with missing cells can differ from the others in all columns.  Values
    that cannot be, or a second mode, are a reason to look again.

    ``kind="density"`` draws a kernel density estimate of the observed cells and one of
    the cells of each draw, or of fewer than 20 cells a mark for each at the bottom of
    the panel, ``"strip"`` all cells side by side, ``"box"`` boxes with
    quartiles, and ``"scatter"`` two columns against each other: observed pairs, and
    pairs of which a cell is drawn.  In columns of categories all but the last draw the
    shares of levels: bars for observed cells, and a dot for each draw.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
        NaN marks missing cells.
    draws : list of tables of the shape of X
        From ``sample`` of an imputer.
    columns : list of str or int, default=None
        Names, or indices of an array.  None takes those with missing cells that a draw
        fills, at most 12, and those with most of them.

    Attributes
    ----------
    columns : list of str
        The names of the columns that are drawn.
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_panels,)
    figure_ : matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no draw, or one has another shape than X or other observed cells, or
        misses cells of the columns, or if X does not have one of the columns.
    TypeError
        If `columns` is not a list.
    """

    def __init__(self, X, draws, columns=None):
        table, draws = read(X), list(draws)
        missing = np.isnan(table.cells)
        for k, one in enumerate(draws):
            reject_parts(one, f"draws[{k}]")
            shape = getattr(one, "shape", np.shape(one))
            if tuple(shape) != missing.shape:
                raise ValueError(
                    f"draws[{k}] has the shape {tuple(shape)}, and X {missing.shape}; "
                    "pass a list of tables, and keep_empty_features=True to keep "
                    "columns without observed cells"
                )
        draws = [
            read(one, table.columns, f"draws[{k}]").cells for k, one in enumerate(draws)
        ]
        if not draws:
            raise ValueError("draws must have a table or more, got none")
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of columns, got {columns!r}")
        if columns is not None and not len(columns):
            raise ValueError("columns must name a column or more, got none")
        if columns is None:
            places = _places_of_drawn(missing, draws)
        else:
            places = [table.place(name) for name in columns]
        for k, draw in enumerate(draws):
            _check_draw(table, draw, k, places)
        self.columns = [table.names[place] for place in places]
        self._places, self._table, self._missing = places, table, missing
        self._draws = np.array(draws)

    @classmethod
    def from_draws(cls, X, draws, *, columns=None, kind="density", width=None):
        """Draw observed and drawn cells.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            NaN marks missing cells.
        draws : list of tables of the shape of X
            From ``sample`` of an imputer.
        columns : list of str or int, default=None
            Names, or indices of an array; two of them with ``kind="scatter"``.  None
            takes those with missing cells, at most 12, and those with most of them.
        kind : {"density", "strip", "box", "scatter"}, default="density"
        width : float or None, default=None
            Of the figure in inches, which has fewer panels in a row if it is narrow;
            None chooses it.

        Returns
        -------
        ImputationDisplay

        Raises
        ------
        ValueError
            As the class, and if `kind` is another one, a scatter does not have two
            columns, or `width` is not positive.

        Examples
        --------
        >>> from skvnce import GaussianImputer
        >>> from skvnce.datasets import load_nhanes
        >>> from skvnce.inspection import ImputationDisplay
        >>> df = load_nhanes(as_frame=True).data[["Age", "Height", "TotChol"]][::10]
        >>> draws = GaussianImputer(random_state=0).fit(df).sample(df, 5, 0)
        >>> ImputationDisplay.from_draws(df, draws).columns
        ['Height', 'TotChol']
        """
        return cls(X, draws, columns).plot(kind=kind, width=width)

    def plot(self, *, kind="density", width=None):
        """Draw a panel for each column, or one of two columns.

        Parameters
        ----------
        kind : {"density", "strip", "box", "scatter"}, default="density"
        width : float or None, default=None
            Of the figure in inches, which has fewer panels in a row if it is narrow;
            None chooses it.

        Returns
        -------
        ImputationDisplay
            Itself.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if kind == "scatter":
            return self._scatter(width)
        self.figure_, self.axes_ = panels(len(self._places), _PER_ROW, _PANEL, width)
        draw = {"density": _density, "strip": _strip, "box": _box}[kind]
        for ax, place in zip(self.axes_, self._places, strict=True):
            column, groups = self._table.columns[place], self._groups(place)
            if column.levels is not None:
                _shares(ax, groups, column.levels)
            else:
                draw(ax, groups)
                set_date_axis(ax.xaxis if kind == "density" else ax.yaxis, column)
            # a $ in a name is no formula
            ax.set_title(self._table.names[place], fontsize="medium", parse_math=False)
            _name_axes(ax, kind, column)
        self._explain(kind)
        return self

    def _explain(self, kind):
        """Add one legend for all panels."""
        from matplotlib.lines import Line2D

        count = "1 draw" if len(self._draws) == 1 else f"{len(self._draws)} draws"
        labels = "observed", f"imputed, {count}"
        style = {"density": {}, "strip": {"marker": "o", "ls": ""}, "box": {}}[kind]
        handles = [
            Line2D([], [], color=colour, label=label, **style)
            for colour, label in zip(colours(self.axes_[0]), labels, strict=True)
        ]
        self.figure_.legend(
            handles=handles, loc="outside upper center", ncols=2, frameon=False
        )

    def _groups(self, place):
        """List the observed cells of a column, and the drawn ones of each draw."""
        missing = self._missing[:, place]
        observed = self._table.cells[~missing, place]
        return [observed, *(draw[missing, place] for draw in self._draws)]

    def _scatter(self, width):
        if len(self._places) != 2:
            raise ValueError(
                'kind="scatter" draws two columns against each other, got '
                f"{len(self._places)}; pass columns=[..., ...]"
            )
        self.figure_, self.axes_ = panels(1, 1, (4.0, 4.0, 1.0), width)
        [ax], (rise, fall) = self.axes_, colours(self.axes_[0])
        cells, drawn = (
            self._table.cells[:, self._places],
            self._missing[:, self._places],
        )
        drawn = drawn.any(1)
        columns = [self._table.columns[place] for place in self._places]
        # a constant seed, so that the picture is the same each time
        rng = np.random.default_rng(0)
        widths = [0.0 if one.levels is None else 0.25 for one in columns]

        def spread(table):
            return (table + rng.uniform(-1, 1, table.shape) * widths).T

        ax.plot(
            *spread(cells[~drawn]), "o", color=rise, ms=3, alpha=0.5, label="observed"
        )
        label = "a cell drawn"
        for draw in self._draws:
            some = draw[drawn][:, self._places]
            ax.plot(*spread(some), "o", color=fall, ms=2, alpha=0.4, label=label)
            # one entry of the legend for all draws
            label = None
        for axis, column, name in zip(
            (ax.xaxis, ax.yaxis), columns, self.columns, strict=True
        ):
            axis.set_label_text(name, parse_math=False)
            set_date_axis(axis, column)
            if column.levels is not None:
                _name_levels(axis, column.levels)
        ax.legend(frameon=False)
        return self


def _places_of_drawn(missing, draws):
    """List the columns with most missing cells, without those that no draw fills."""
    filled = ~np.logical_and.reduce([np.isnan(draw) for draw in draws])
    counts = missing.sum(0)
    if not counts.any():
        raise ValueError("X has no missing cell, so there is nothing to draw")
    if (missing & filled).any():  # else nothing tells identifiers from the others
        counts *= (missing & filled).any(0)
    order = np.argsort(-counts, kind="stable")[:_MOST]
    return sorted(order[counts[order] > 0].tolist())


def _check_draw(table, draw, k, places):
    """Raise an error for draws of another table, or without values in some columns."""
    unfilled = [
        table.names[place] for place in places if np.isnan(draw[:, place]).any()
    ]
    if unfilled:
        raise ValueError(
            f"draws[{k}] has missing cells in {unfilled[0]!r}; pass completed tables, "
            "for example of sample of an imputer, and no columns that it passes "
            "through, as identifiers and free text"
        )
    # single precision has about seven digits
    same = np.isclose(draw, table.cells, rtol=1e-5, atol=0, equal_nan=True)
    same |= np.isnan(table.cells)
    if not same.all():
        row, place = np.argwhere(~same)[0]
        raise ValueError(
            f"draws[{k}] has other observed cells than X, the first in row {row} of "
            f"{table.names[place]!r}; pass the table that was completed, with the same "
            "order of rows"
        )


def _density(ax, groups):
    """Draw kernel density estimates, or marks of few or equal cells."""
    pooled = np.concatenate(groups)
    low, high = pooled.min(), pooled.max()
    margin = 0.1 * (high - low)
    rise, fall = colours(ax)
    grid = np.linspace(low - margin, high + margin, 200)
    for k, cells in enumerate(groups):
        colour, width = (rise, 2.0) if k == 0 else (fall, 0.7)
        if len(cells) >= _FEWEST and np.ptp(cells) > 0:
            ax.plot(grid, _kernel_density(cells, grid), color=colour, lw=width)
        else:
            # a row of marks for observed cells, and one below for all draws
            height = np.full(len(cells), 0.05 if k else 0.14)
            across = ax.get_xaxis_transform()
            ax.plot(cells, height, "|", color=colour, ms=9, alpha=0.7, transform=across)
    ax.set_ylim(bottom=0)
    ax.set_yticks([])


def _name_axes(ax, kind, column):
    """Write what is on the axes."""
    if column.levels is not None:
        labels = "level", "share of cells"
    elif kind == "density":
        labels = "value", "density"
    else:
        labels = "draw", "value"
    ax.set_xlabel(labels[0], fontsize="small")
    ax.set_ylabel(labels[1], fontsize="small")


def _kernel_density(cells, grid):
    from scipy.stats import gaussian_kde

    return gaussian_kde(cells)(grid)


def _strip(ax, groups):
    """Draw all cells; place 0 has the observed ones."""
    rng = np.random.default_rng(0)
    for k, cells in enumerate(groups):
        places = k + rng.uniform(-_JITTER, _JITTER, len(cells))
        ax.plot(places, cells, "o", color=colours(ax)[k > 0], ms=2, alpha=0.5)
    _number_draws(ax, len(groups))


def _box(ax, groups):
    """Draw quartiles; place 0 has the observed cells."""
    for k, cells in enumerate(groups):
        colour = colours(ax)[k > 0]
        lines = {"color": colour}
        ax.boxplot(
            [cells],
            positions=[k],
            widths=0.6,
            boxprops=lines,
            whiskerprops=lines,
            capprops=lines,
            medianprops=lines,
            flierprops={"marker": "o", "markersize": 2, "markeredgecolor": colour},
        )
    _number_draws(ax, len(groups))


def _shares(ax, groups, levels):
    """Draw shares of levels."""
    places, (rise, fall) = np.arange(len(levels)), colours(ax)
    for k, codes in enumerate(groups):
        if not len(codes):
            continue
        shares = np.bincount(np.rint(codes).astype(int), minlength=len(levels))
        shares = shares / len(codes)
        if k == 0:
            ax.bar(places, shares, color=rise, alpha=0.5)
        else:
            ax.plot(places, shares, "o", color=fall, ms=4, alpha=0.5)
    _name_levels(ax.xaxis, levels)
    ax.set_ylim(0, 1)


def _number_draws(ax, n_groups):
    ax.set_xlim(-0.7, n_groups - 0.3)
    every = max(1, (n_groups - 1) // (5 if room(ax)[0] > 120 else 2))
    numbers = [0, *range(every, n_groups, every)]
    ax.set_xticks(numbers, ["obs.", *numbers[1:]])


def _name_levels(axis, levels):
    texts, places = [str(level) for level in levels], range(len(levels))
    # a letter of a small text takes about 6 points
    longest = room(axis.axes)[0] / 6
    turned = axis.axis_name == "x" and sum(map(len, texts)) > min(longest, 20)
    axis.set_ticks(
        places, texts, rotation=90 if turned else 0, fontsize="small", parse_math=False
    )
