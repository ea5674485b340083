"""Plot of the missing cells of a table."""

import numpy as np

from skvnce.inspection._common import (
    axes_or_new,
    check_count,
    colours,
    read,
    room,
    text_size,
)

KINDS = ("pattern", "pairs")


class MissingnessDisplay:
    """Plot of which cells of a table are missing, and which together.

    ``kind="pattern"`` draws the patterns of missing cells, the most frequent one at the
    top: observed cells are blue and missing ones red.  The number of rows with a
    pattern is at the right, and the number of missing cells of a column at the top.

    ``kind="pairs"`` draws, for each two columns that have missing cells, the share of
    rows with the one (left) missing in which the other (below) is missing, too.  Where
    columns are missing independently of each other, this is the share of the other.

    Parameters
    ----------
    missing : ndarray of bool, of shape (n_samples, n_features)
    names : list of n_features str

    Attributes
    ----------
    patterns : ndarray of bool, of shape (n_patterns, n_features)
        The distinct rows of `missing`, the most frequent one first.
    counts : ndarray of shape (n_patterns,)
        Numbers of rows.
    pairs : ndarray of shape (n_features, n_features)
        The share of rows in which the second column is missing, of those in which the
        first one is; NaN if it has no missing cell.
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If `missing` is no table of booleans, or names do not match.
    """

    def __init__(self, missing, names):
        missing = np.asarray(missing)
        if missing.dtype != bool or missing.ndim != 2 or not missing.size:
            raise ValueError(
                "missing must be a table of booleans, got "
                f"{missing.dtype} of shape {missing.shape}"
            )
        if len(names) != missing.shape[1]:
            raise ValueError(
                f"names must have one name per column, {missing.shape[1]}, got "
                f"{len(names)}"
            )
        self.missing, self.names = missing, list(names)
        patterns, counts = np.unique(missing, axis=0, return_counts=True)
        # of equally frequent patterns, that with fewer missing cells comes first
        order = np.lexsort((patterns.sum(1), -counts))
        self.patterns, self.counts = patterns[order], counts[order]
        own = missing.sum(0)
        # the product of booleans would be boolean
        together = missing.T.astype(float) @ missing
        self.pairs = np.full(together.shape, np.nan)
        np.divide(together, own[:, None], out=self.pairs, where=own[:, None] > 0)

    @classmethod
    def from_frame(cls, X, *, kind="pattern", max_patterns=20, ax=None):
        """Draw the missing cells of a table.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        kind : {"pattern", "pairs"}, default="pattern"
        max_patterns : int, default=20
            The number of patterns that are drawn, the most frequent ones.
        ax : matplotlib.axes.Axes or None, default=None

        Returns
        -------
        MissingnessDisplay

        Raises
        ------
        ValueError
            If `kind` is another one, or, with ``kind="pairs"``, no cell is missing.

        Examples
        --------
        >>> from skvnce.datasets import load_nhanes
        >>> from skvnce.inspection import MissingnessDisplay
        >>> df = load_nhanes(as_frame=True, categories=True).data
        >>> display = MissingnessDisplay.from_frame(df)
        >>> int(display.counts[0]), display.patterns.shape
        (430, (338, 25))
        """
        table = read(X)
        display = cls(np.isnan(table.cells), table.names)
        return display.plot(kind=kind, max_patterns=max_patterns, ax=ax)

    def plot(self, *, kind="pattern", max_patterns=20, ax=None):
        """Draw patterns, or pairs; parameters as of `from_frame`.

        Returns
        -------
        MissingnessDisplay
            Itself.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
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
        self.ax_ = axes_or_new(ax, 3.3 + 0.3 * width, 2 + 0.22 * len(shown))
        self.ax_.pcolormesh(
            shown,
            cmap=ListedColormap(colours(self.ax_)),
            vmin=0,
            vmax=1,
            edgecolors=self.ax_.get_facecolor(),
            linewidth=1,
        )
        self.ax_.set_ylim(len(shown), 0)
        across, down = room(self.ax_)
        size = text_size(down / max(len(shown), 1))
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
            fontsize=min(text_size(across / width), 8),
        )
        above.set_xlabel("missing cells")
        above.tick_params(length=0)

    def _draw_pairs(self, ax):
        places = np.flatnonzero(self.missing.any(0))
        if not len(places):
            raise ValueError("X has no missing cell, so there are no pairs to draw")
        names = [self.names[place] for place in places]
        size = 3 + 0.35 * len(names)
        self.ax_ = axes_or_new(ax, size + 1, size)
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
            fontsize=text_size(0.8 * room(self.ax_)[1] / len(names)),
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

    meanings = zip(colours(ax), ("observed", "missing"), strict=True)
    ax.legend(
        handles=[Patch(color=colour, label=text) for colour, text in meanings],
        **{"loc": "upper right", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2},
        **{"fontsize": "small", "frameon": False, "handlelength": 0.7},
    )


def _label_columns(ax, names, share=1.0):
    size = text_size(share * room(ax)[0] / len(names))
    places = np.arange(len(names)) + 0.5
    ax.set_xticks(places, names, rotation=90, fontsize=size, parse_math=False)
    ax.tick_params(length=0)
