"""Displays of imputations, of missing cells, and of the convergence of a fit."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.numbers import check_count
from skvnce._tables.frames import reject_parts
from skvnce.inspection import _common

# ----------------------------------------
# Plot of observed cells beside drawn ones.

KINDS = ("density", "strip", "scatter")
_MOST = 12  # maximum number of panels that are chosen without being asked for
_PER_ROW = 4
_PANEL = 2.6, 2.2  # width and height in inches
_JITTER = 0.35  # half of the width of a strip
_FEWEST = 20  # cells of a density; of fewer ones a mark each is drawn


class ImputationDisplay:
    """Plot of the observed cells of columns (blue) beside drawn ones (red).

    Drawn cells need not be distributed like observed ones: where values are missing at
    random, rows with missing cells can differ from the others in all columns.  Values
    that cannot be, or a second mode, are a reason to look again.

    ``kind="density"`` draws a kernel density estimate of the observed cells and one of
    the cells of each draw, or of fewer than 20 cells a mark for each at the bottom of
    the panel, ``"strip"`` all cells side by side, and ``"scatter"`` two columns
    against each other: observed pairs, and pairs of which a cell is drawn.  In columns
    of categories all but the last draw the shares of levels: bars for observed cells,
    and a dot for each draw.

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

    def __init__(
        self,
        X: ArrayLike,
        draws: Sequence[Any],
        columns: Sequence[str | int] | None = None,
    ) -> None:
        table, draws = _common.read(X), list(draws)
        missing = np.isnan(table.cells)
        for k, draw in enumerate(draws):
            reject_parts(draw, f"draws[{k}]")
            shape = getattr(draw, "shape", np.shape(draw))
            if tuple(shape) != missing.shape:
                raise ValueError(
                    f"draws[{k}] has the shape {tuple(shape)}, and X {missing.shape}; "
                    "pass a list of tables, and keep_empty_features=True to keep "
                    "columns without observed cells"
                )
        draws = [
            _common.read(draw, table.columns, f"draws[{k}]").cells
            for k, draw in enumerate(draws)
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
    def from_draws(
        cls,
        X: ArrayLike,
        draws: Sequence[Any],
        *,
        columns: Sequence[str | int] | None = None,
        kind: Literal["density", "strip", "scatter"] = "density",
    ) -> Self:
        """Draw observed and drawn cells.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            The table with missing cells.
        draws : sequence of n_draws tables
            Completed tables, as ``sample`` returns them.
        columns : list of str or int, default=None
            As of the class; two columns with ``kind="scatter"``.
        kind : {"density", "strip", "scatter"}, default="density"
            Densities or dots of each column, or dots of two columns.

        Returns
        -------
        ImputationDisplay

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
        return cls(X, draws, columns).plot(kind=kind)

    def plot(self, *, kind: Literal["density", "strip", "scatter"] = "density") -> Self:
        """Draw a panel for each column, or one of two columns.

        Parameters
        ----------
        kind : {"density", "strip", "scatter"}, default="density"
            Densities or dots of each column, or dots of two columns.

        Returns
        -------
        ImputationDisplay
            Itself.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if kind == "scatter":
            return self._scatter()
        self.figure_, self.axes_ = _common.panels(len(self._places), _PER_ROW, _PANEL)
        draw = {"density": _density, "strip": _strip}[kind]
        for ax, place in zip(self.axes_, self._places, strict=True):
            column, groups = self._table.columns[place], self._groups(place)
            if column.levels is not None:
                _shares(ax, groups, column.levels)
            else:
                draw(ax, groups)
                _common.set_date_axis(
                    ax.xaxis if kind == "density" else ax.yaxis, column
                )
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
        style = {"marker": "o", "ls": ""} if kind == "strip" else {}
        handles = [
            Line2D([], [], color=colour, label=label, **style)
            for colour, label in zip(
                _common.colours(self.axes_[0]), labels, strict=True
            )
        ]
        self.figure_.legend(
            handles=handles, loc="outside upper center", ncols=2, frameon=False
        )

    def _groups(self, place):
        """List the observed cells of a column, and the drawn ones of each draw."""
        missing = self._missing[:, place]
        observed = self._table.cells[~missing, place]
        return [observed, *(draw[missing, place] for draw in self._draws)]

    def _scatter(self):
        if len(self._places) != 2:
            raise ValueError(
                'kind="scatter" draws two columns against each other, got '
                f"{len(self._places)}; pass columns=[..., ...]"
            )
        self.figure_, self.axes_ = _common.panels(1, 1, (4.0, 4.0))
        [ax], (rise, fall) = self.axes_, _common.colours(self.axes_[0])
        cells = self._table.cells[:, self._places]
        drawn = self._missing[:, self._places].any(1)
        columns = [self._table.columns[place] for place in self._places]
        # a constant seed, so that the picture is the same each time
        rng = np.random.default_rng(0)
        widths = [0.0 if column.levels is None else 0.25 for column in columns]

        def spread(table):
            return (table + rng.uniform(-1, 1, table.shape) * widths).T

        ax.plot(
            *spread(cells[~drawn]), "o", color=rise, ms=3, alpha=0.5, label="observed"
        )
        label = "a cell drawn"
        for draw in self._draws:
            points = spread(draw[drawn][:, self._places])
            ax.plot(*points, "o", color=fall, ms=2, alpha=0.4, label=label)
            # one entry of the legend for all draws
            label = None
        for axis, column, name in zip(
            (ax.xaxis, ax.yaxis), columns, self.columns, strict=True
        ):
            axis.set_label_text(name, parse_math=False)
            _common.set_date_axis(axis, column)
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
    from scipy.stats import gaussian_kde

    pooled = np.concatenate(groups)
    low, high = pooled.min(), pooled.max()
    margin = 0.1 * (high - low)
    rise, fall = _common.colours(ax)
    grid = np.linspace(low - margin, high + margin, 200)
    for k, cells in enumerate(groups):
        colour, width = (rise, 2.0) if k == 0 else (fall, 0.7)
        if len(cells) >= _FEWEST and np.ptp(cells) > 0:
            ax.plot(grid, gaussian_kde(cells)(grid), color=colour, lw=width)
        else:
            # a row of marks for observed cells, and one below for all draws
            height = np.full(len(cells), 0.05 if k else 0.14)
            across = ax.get_xaxis_transform()
            ax.plot(cells, height, "|", color=colour, ms=9, alpha=0.7, transform=across)
    ax.set_ylim(bottom=0)
    ax.set_yticks([])


def _name_axes(ax, kind, column):
    """Write the labels of the axes."""
    if column.levels is not None:
        labels = "level", "share of cells"
    elif kind == "density":
        labels = "value", "density"
    else:
        labels = "draw", "value"
    ax.set_xlabel(labels[0], fontsize="small")
    ax.set_ylabel(labels[1], fontsize="small")


def _strip(ax, groups):
    """Draw all cells; place 0 has the observed ones."""
    rng = np.random.default_rng(0)
    for k, cells in enumerate(groups):
        places = k + rng.uniform(-_JITTER, _JITTER, len(cells))
        ax.plot(places, cells, "o", color=_common.colours(ax)[k > 0], ms=2, alpha=0.5)
    _number_draws(ax, len(groups))


def _shares(ax, groups, levels):
    """Draw shares of levels."""
    places, (rise, fall) = np.arange(len(levels)), _common.colours(ax)
    for k, codes in enumerate(groups):
        if not len(codes):
            continue
        counts = np.bincount(np.rint(codes).astype(int), minlength=len(levels))
        shares = counts / len(codes)
        if k == 0:
            ax.bar(places, shares, color=rise, alpha=0.5)
        else:
            ax.plot(places, shares, "o", color=fall, ms=4, alpha=0.5)
    _name_levels(ax.xaxis, levels)
    ax.set_ylim(0, 1)


def _number_draws(ax, n_groups):
    ax.set_xlim(-0.7, n_groups - 0.3)
    every = max(1, (n_groups - 1) // (5 if _common.room(ax)[0] > 120 else 2))
    numbers = [0, *range(every, n_groups, every)]
    ax.set_xticks(numbers, ["obs.", *numbers[1:]])


def _name_levels(axis, levels):
    texts, places = [str(level) for level in levels], range(len(levels))
    # a letter of a small text takes about 6 points
    longest = _common.room(axis.axes)[0] / 6
    turned = axis.axis_name == "x" and sum(map(len, texts)) > min(longest, 20)
    axis.set_ticks(
        places, texts, rotation=90 if turned else 0, fontsize="small", parse_math=False
    )


# ----------------------------------------
# Plot of the missing cells of a table.

_LAYOUTS = ("pattern", "pairs")


class MissingnessDisplay:
    """Plot of which cells of a table are missing, and which together.

    ``kind="pattern"`` draws the patterns of missing cells, the most frequent one at the
    top: observed cells are blue and missing ones red.  The number of rows with a
    pattern is at the right, and the number of missing cells of a column at the top.

    ``kind="pairs"`` draws, for each two columns that have missing cells, the proportion
    of rows with the first (left) missing in which the second (below) is missing, too.
    Where columns are missing independently of each other, it is that among all rows.

    Parameters
    ----------
    missing : ndarray of bool, of shape (n_samples, n_features)
        True at the missing cells.
    names : list of n_features str
        Names of the columns.

    Attributes
    ----------
    patterns : ndarray of bool, of shape (n_patterns, n_features)
        The distinct rows of `missing`, the most frequent one first.
    counts : ndarray of shape (n_patterns,)
        Numbers of rows.
    pairs : ndarray of shape (n_features, n_features)
        The proportion of rows in which the second column is missing, of those in which
        the first one is; NaN if it has no missing cell.
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    """

    def __init__(self, missing: ArrayLike, names: Sequence[str]) -> None:
        missing = np.asarray(missing, dtype=bool)
        self.missing, self.names = missing, list(names)
        self.patterns, self.counts = _common.missing_patterns(missing)
        n_missing = missing.sum(0)
        # the product of booleans would be boolean
        together = missing.T.astype(float) @ missing
        self.pairs = np.full(together.shape, np.nan)
        np.divide(
            together, n_missing[:, None], out=self.pairs, where=n_missing[:, None] > 0
        )

    @classmethod
    def from_frame(
        cls,
        X: ArrayLike,
        *,
        kind: Literal["pattern", "pairs"] = "pattern",
        max_patterns: int = 20,
        ax: Any = None,
    ) -> Self:
        """Draw the missing cells of a table.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            The table with missing cells.
        kind : {"pattern", "pairs"}, default="pattern"
            What is drawn, as of the class.
        max_patterns : int, default=20
            The number of patterns that are drawn, the most frequent ones.
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        MissingnessDisplay

        Examples
        --------
        >>> from skvnce.datasets import load_nhanes
        >>> from skvnce.inspection import MissingnessDisplay
        >>> df = load_nhanes(as_frame=True, categories=True).data
        >>> display = MissingnessDisplay.from_frame(df)
        >>> int(display.counts[0]), display.patterns.shape
        (430, (338, 25))
        """
        table = _common.read(X)
        display = cls(np.isnan(table.cells), table.names)
        return display.plot(kind=kind, max_patterns=max_patterns, ax=ax)

    def plot(
        self,
        *,
        kind: Literal["pattern", "pairs"] = "pattern",
        max_patterns: int = 20,
        ax: Any = None,
    ) -> Self:
        """Draw patterns, or pairs.

        Parameters
        ----------
        kind : {"pattern", "pairs"}, default="pattern"
            What is drawn, as of the class.
        max_patterns : int, default=20
            The number of patterns that are drawn, the most frequent ones.
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        MissingnessDisplay
            Itself.
        """
        if kind not in _LAYOUTS:
            raise ValueError(f"kind must be one of {', '.join(_LAYOUTS)}, got {kind!r}")
        check_count(max_patterns, "max_patterns")
        if kind == "pairs":
            self._draw_pairs(ax)
        else:
            self._draw_patterns(max_patterns, ax)
        self.figure_ = self.ax_.figure
        return self

    def _draw_patterns(self, max_patterns, ax):
        from matplotlib.colors import ListedColormap

        shown = self.patterns[:max_patterns]
        width = len(self.names)
        self.ax_ = _common.axes_or_new(ax, 3.3 + 0.3 * width, 2 + 0.22 * len(shown))
        self.ax_.pcolormesh(
            shown,
            cmap=ListedColormap(_common.colours(self.ax_)),
            vmin=0,
            vmax=1,
            edgecolors=self.ax_.get_facecolor(),
            linewidth=1,
        )
        self.ax_.set_ylim(len(shown), 0)
        across, down = _common.room(self.ax_)
        size = _common.text_size(down / max(len(shown), 1))
        counts = self.counts[: len(shown)]
        self.ax_.set_yticks(np.arange(len(shown)) + 0.5, counts, fontsize=size)
        self.ax_.yaxis.tick_right()
        self.ax_.yaxis.set_label_position("right")
        hidden = len(self.patterns) - len(shown)
        more = f" ({hidden} more patterns)" if hidden else ""
        self.ax_.set_ylabel(f"rows{more}")
        _label_columns(self.ax_, self.names)
        _explain(self.ax_)
        above = self.ax_.secondary_xaxis("top")
        above.set_xticks(
            np.arange(width) + 0.5,
            self.missing.sum(0),
            rotation=90,
            fontsize=min(_common.text_size(across / width), 8),
        )
        above.set_xlabel("missing cells")
        above.tick_params(length=0)

    def _draw_pairs(self, ax):
        places = np.flatnonzero(self.missing.any(0))
        if not len(places):
            raise ValueError("X has no missing cell, so there are no pairs to draw")
        names = [self.names[place] for place in places]
        size = 3 + 0.35 * len(names)
        self.ax_ = _common.axes_or_new(ax, size + 1, size)
        image = self.ax_.pcolormesh(
            self.pairs[np.ix_(places, places)], cmap="Blues", vmin=0, vmax=1
        )
        shares = self.missing[:, places].mean(0)
        labels = [
            f"{name} ({share:.0%})" for name, share in zip(names, shares, strict=True)
        ]
        self.ax_.set_ylim(len(names), 0)
        self.ax_.set_yticks(
            np.arange(len(names)) + 0.5,
            labels,
            fontsize=_common.text_size(0.8 * _common.room(self.ax_)[1] / len(names)),
            parse_math=False,
        )
        self.ax_.set_ylabel("if this one is missing\n(share of rows)")
        # the bar of colours takes about a quarter of the width
        _label_columns(self.ax_, names, 0.7)
        self.ax_.set_xlabel("share of rows in which\nthis one is missing, too")
        self.ax_.figure.colorbar(image, ax=self.ax_)


def _explain(ax):
    """Add a legend at the left, where a plot of patterns has no ticks."""
    from matplotlib.patches import Patch

    meanings = zip(_common.colours(ax), ("observed", "missing"), strict=True)
    ax.legend(
        handles=[Patch(color=colour, label=text) for colour, text in meanings],
        **{"loc": "upper right", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2},
        **{"fontsize": "small", "frameon": False, "handlelength": 0.7},
    )


def _label_columns(ax, names, share=1.0):
    size = _common.text_size(share * _common.room(ax)[0] / len(names))
    places = np.arange(len(names)) + 0.5
    ax.set_xticks(places, names, rotation=90, fontsize=size, parse_math=False)
    ax.tick_params(length=0)


# ----------------------------------------
# Plot of the rounds of a fit.

_LABELS = ("mean", "explained variance")
_TRACES = 5  # maximum number of parameters that are drawn
_CURVE_PANEL = 3.0, 2.2  # width and height in inches
_CONVERGED = 1.05  # as in `skvnce.metrics.split_r_hat`


class ConvergenceDisplay:
    """Plot of the loss of a fit and, where there is a Markov chain, of its parameters.

    The first panel is the loss of each round.  `GaussianImputer` fits tables with
    categories by a Markov chain; further panels show those of its parameters whose
    split R-hat is largest, with the burn-in in grey.  A chain that has converged looks
    like noise around a line.  If it drifts, raise ``max_iter``.  The titles say R-hat;
    chains with one above 1.05 are red, as their titles, and others are blue.

    Parameters
    ----------
    loss_curve : array-like of shape (n_iter,)
        The loss of each round.
    trace : array-like of shape (n_iter, 2, n_latents), default=None
        Means of latent variables, and the R² of each given the others.
    r_hat : array-like of shape (2, n_latents), default=None
        Their split R-hat.
    names : sequence of n_latents str, default=()
        Names of the latent variables.
    n_burn_in : int, default=0
        Number of rounds before those that count.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_panels,)
    figure_ : matplotlib.figure.Figure
    """

    def __init__(
        self,
        loss_curve: ArrayLike,
        trace: ArrayLike | None = None,
        r_hat: ArrayLike | None = None,
        names: Sequence[str] = (),
        n_burn_in: int = 0,
    ) -> None:
        self.loss_curve = np.asarray(loss_curve, dtype=np.float64)
        self.trace = None if trace is None else np.asarray(trace, dtype=np.float64)
        self.r_hat = None if trace is None else np.asarray(r_hat, dtype=np.float64)
        self.names, self.n_burn_in = list(names), n_burn_in

    @classmethod
    def from_estimator(cls, estimator: Any) -> Self:
        """Draw the rounds of a fit.

        Parameters
        ----------
        estimator : fitted estimator
            With ``loss_curve_``, and perhaps ``trace_`` (`GaussianImputer` fitted to a
            table with categories).  Ensembles have them in ``estimators_``, and
            `ColumnImputer` in ``model_``.

        Returns
        -------
        ConvergenceDisplay

        Warns
        -----
        ConvergenceWarning
            If an R-hat is above 1.05; names how many sweeps would do.

        Examples
        --------
        >>> from skvnce import GaussianImputer
        >>> from skvnce.datasets import load_nhanes
        >>> from skvnce.inspection import ConvergenceDisplay
        >>> df = load_nhanes(as_frame=True, categories=True).data[::40]
        >>> columns = ["Age", "BMI", "SmokeNow"]
        >>> imputer = GaussianImputer(random_state=0).fit(df[columns])
        >>> ConvergenceDisplay.from_estimator(imputer).axes_.shape
        (6,)
        """
        (losses,) = _common.fitted_attributes(estimator, "loss_curve_")
        chain = {}
        if hasattr(estimator, "trace_"):
            trace, r_hat, names, burn_in = _common.fitted_attributes(
                estimator, "trace_", "r_hat_", "latent_names_", "n_burn_in_"
            )
            chain = dict(trace=trace, r_hat=r_hat, names=names, n_burn_in=burn_in)
        display = cls(losses, **chain).plot()
        if chain:
            estimator._warn_of_slow_chain(vars(estimator))
        return display

    def plot(self) -> Self:
        """Draw the loss and the slowest parameters, as of `from_estimator`.

        Returns
        -------
        ConvergenceDisplay
            Itself.
        """
        chosen = self._slowest()
        self.figure_, self.axes_ = _common.panels(1 + len(chosen), 3, _CURVE_PANEL)
        rise, fall = _common.colours(self.axes_[0])
        rounds = np.arange(1, 1 + len(self.loss_curve))
        self.axes_[0].plot(rounds, self.loss_curve, color=rise, lw=1)
        self.axes_[0].set_title("loss", fontsize="medium")
        for ax, (part, place) in zip(self.axes_[1:], chosen, strict=True):
            r_hat = self.r_hat[part, place]
            is_slow = r_hat > _CONVERGED
            colour = fall if is_slow else rise
            ax.plot(rounds, self.trace[:, part, place], color=colour, lw=1)
            ax.set_title(
                f"{self.names[place]}: {_LABELS[part]}\n{_in_words(r_hat)}",
                fontsize="medium",
                **({"color": fall} if is_slow else {}),
                # a $ in a name is no formula
                parse_math=False,
            )
        for ax in self.axes_:
            if self.n_burn_in:
                ax.axvspan(1, self.n_burn_in, lw=0, zorder=0, **_common.FAINT)
            ax.set_xlabel("round")
        return self

    def _slowest(self):
        """List the (part, latent) with the largest R-hat, NaN left out."""
        if self.trace is None:
            return []
        order = np.argsort(-self.r_hat, axis=None)  # NaN last
        order = order[np.isfinite(self.r_hat.ravel()[order])][:_TRACES]
        return [tuple(map(int, np.unravel_index(k, self.r_hat.shape))) for k in order]


def _in_words(r_hat):
    """Format R-hat, with enough digits that it is above the limit if it is."""
    if r_hat <= _CONVERGED:
        return f"R-hat {r_hat:.2f}"
    text = f"{r_hat:.2f}" if r_hat >= _CONVERGED + 0.005 else f"{r_hat:.4f}"
    return f"R-hat {text}, above {_CONVERGED}"
