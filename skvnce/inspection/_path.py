"""Plot of the edges along a path of penalties."""

import numpy as np

from skvnce.inspection._common import (
    axes_or_new,
    check_count,
    finite_numbers,
    fitted,
    room,
    shown_name,
    sign_colours,
    sign_legend,
)

# more lines cannot be followed by eye
_MOST = 300  # maximum number of lines
_TICK = 50  # least distance between ticks in points


class EdgePathDisplay:
    """Plot of the edges between variables along decreasing penalties.

    Each line is a pair of variables that have an edge somewhere on the path, blue for a
    positive and red for a negative association.  The penalty decreases to the right, on
    a log scale whose last tick may be 0; the numbers of edges are above.  Of more than
    300 pairs the strongest are drawn, and the title says so.  The strength of a pair is
    its largest absolute association along the path.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,)
        At least two penalties, decreasing; only the last may be 0.
    path : array-like of shape (n_alphas, n_nodes, n_nodes)
        Signed associations, symmetric; the diagonal is not drawn.
    names : array-like of shape (n_nodes,)
    alpha : float or None, default=None
        The selected penalty; None marks none.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    lines_ : matplotlib.collections.LineCollection
        One line for each pair drawn, weakest first.
    alpha_line_ : matplotlib.lines.Line2D or None
        The mark of the selected penalty.
    labels_ : list of matplotlib.text.Text
        The names of the strongest pairs, strongest first.

    Raises
    ------
    TypeError
        If a table or ``alpha`` is not numeric.
    ValueError
        If shapes do not match, ``alphas`` do not decrease, a value is not finite,
        ``path`` is not symmetric, or ``alpha`` is negative.
    """

    def __init__(self, alphas, path, names, alpha=None):
        self.alphas = _check_alphas(alphas)
        self.names = [shown_name(name) for name in names]
        self.path = _check_path(path, len(self.alphas), len(self.names))
        self.alpha = _check_alpha(alpha)

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, n_labels=10):
        """Draw the path of a learner that has selected its penalty.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator with ``alphas_``, ``path_``, ``alpha_`` and ``nodes_``, such as
            `TruncatedGaussianGraphLearnerCV`.
        ax : matplotlib.axes.Axes or None, default=None
        n_labels : int, default=10
            Number of strongest pairs to name.

        Returns
        -------
        EdgePathDisplay

        Raises
        ------
        TypeError
            If ``n_labels`` is not an integer.
        ValueError
            If the estimator has no path, or ``n_labels`` is negative.
        """
        alphas, path, names, alpha = fitted(
            estimator, "alphas_", "path_", "nodes_", "alpha_"
        )
        return cls(alphas, path, names, alpha).plot(ax=ax, n_labels=n_labels)

    def plot(self, *, ax=None, n_labels=10):
        """Draw the path.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            A new figure by default.
        n_labels : int, default=10
            Number of strongest pairs to name.

        Returns
        -------
        EdgePathDisplay
            Itself.

        Raises
        ------
        TypeError
            If ``n_labels`` is not an integer.
        ValueError
            If ``n_labels`` is negative.
        """
        check_count(n_labels, "n_labels")
        self.ax_ = axes_or_new(ax, 9, 6)
        self.figure_ = self.ax_.figure
        pairs, values = self._linked_pairs()
        drawn = values[-_MOST:]
        place = _log_places(self.alphas, self.alphas)
        self._scale_axes(place, drawn)
        self._count_links(place, values)
        self.lines_ = _draw_lines(self.ax_, place, drawn)
        self.alpha_line_ = self._mark_alpha()
        self.labels_ = self._name_pairs(
            place, pairs[-_MOST:][::-1][:n_labels], drawn[::-1][:n_labels]
        )
        # in a small picture it may cover lines
        frame = {"frameon": True, "framealpha": 0.5, "edgecolor": "none"}
        sign_legend(
            self.ax_, loc="lower left", fontsize="small", handlelength=1, **frame
        )
        if len(values) > _MOST:
            self.ax_.set_title(f"the {_MOST} strongest of {len(values):,} linked pairs")
        return self

    def _linked_pairs(self):
        """Return all pairs with edges, and their associations, weakest first."""
        pairs = np.column_stack(np.tril_indices(len(self.names), -1)[::-1])
        values = self.path[:, pairs[:, 1], pairs[:, 0]].T
        strength = np.abs(values).max(axis=1)
        order = np.argsort(strength, kind="stable")
        order = order[strength[order] > 0]
        return pairs[order], values[order]

    def _scale_axes(self, place, drawn):
        """Let the penalty decrease to the right; fix both ranges of the axes."""
        top = 1.05 * np.abs(drawn).max(initial=0.01)
        self.ax_.set(
            xscale="log",
            xlim=(place[0], place[-1]),
            ylim=(min(-0.2 * top, 1.05 * drawn.min(initial=0)), top),
            xlabel="penalty alpha",
            ylabel="association given all others",
        )
        self.ax_.axhline(0, color="0.6", linewidth=0.8, zorder=3)
        ticks = _tick_places(self.ax_, place)
        self.ax_.set_xticks(place[ticks], [f"{self.alphas[i]:.2g}" for i in ticks])
        self.ax_.minorticks_off()

    def _count_links(self, place, values):
        """Write the number of edges above the penalties that have a tick."""
        ticks = _tick_places(self.ax_, place)
        counts = np.count_nonzero(values, axis=0)
        above = self.ax_.secondary_xaxis("top")
        above.set_xticks(place[ticks], [f"{counts[i]:,}" for i in ticks])
        above.minorticks_off()
        above.set_xlabel("links")

    def _mark_alpha(self):
        """Draw a vertical line at the selected penalty."""
        if self.alpha is None:
            return None
        (x,) = _log_places([self.alpha], self.alphas)
        self.ax_.set_xlim(
            max(x, self.ax_.get_xlim()[0]), min(x, self.ax_.get_xlim()[1])
        )
        return self.ax_.axvline(x, color="0.5", linestyle="--", linewidth=1)

    def _name_pairs(self, place, pairs, values):
        """Write the names of pairs beside the ends of their lines."""
        bottom, top = self.ax_.get_ylim()
        # a row of text is 11 points high
        gap = max(0.04, min(11 / room(self.ax_)[1], 1 / max(len(values), 1)))
        heights = _spread(values[:, -1], gap * (top - bottom), bottom, top)
        return [
            self.ax_.annotate(
                f"{self.names[first]} – {self.names[second]}",
                (place[-1], value),
                xytext=(1.03, height),
                textcoords=self.ax_.get_yaxis_transform(),
                va="center",
                fontsize=9,
                # a $ in a name is no formula
                parse_math=False,
                annotation_clip=False,
                arrowprops={
                    "arrowstyle": "-",
                    "color": "0.7",
                    "linewidth": 0.6,
                    "relpos": (0, 0.5),
                },
            )
            for (first, second), value, height in zip(
                pairs, values[:, -1], heights, strict=True
            )
        ]


def _draw_lines(ax, place, values):
    """Draw a line per pair, in the colour of its strongest association."""
    from matplotlib.collections import LineCollection

    strongest = np.abs(values).argmax(axis=1)
    lines = LineCollection(
        [np.column_stack([place, value]) for value in values],
        colors=sign_colours(ax, values[np.arange(len(values)), strongest]),
        linewidths=1.5 if len(values) <= 60 else 0.8,
        alpha=0.7,
    )
    return ax.add_collection(lines)


def _log_places(alphas, all_alphas):
    """Return positions on a log axis; 0 is one mean step beyond the smallest."""
    positive = np.array([alpha for alpha in all_alphas if alpha > 0])
    step = (positive[0] / positive[-1]) ** (1 / max(len(positive) - 1, 1))
    zero = positive[-1] / (step if len(positive) > 1 else 10.0)
    return np.array([alpha if alpha > 0 else zero for alpha in alphas])


def _tick_places(ax, place):
    """Return indices of positions far enough apart, with the first and the last."""
    place = np.log(place)
    gap = (place[0] - place[-1]) * _TICK / room(ax)[0]
    ticks = [0]
    for i in range(1, len(place) - 1):
        if min(place[ticks[-1]] - place[i], place[i] - place[-1]) >= gap:
            ticks.append(i)
    return [*ticks, len(place) - 1]


def _spread(heights, gap, bottom, top):
    """Move heights apart until neighbours have the gap, near their old positions."""
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    lifted = np.maximum.accumulate(heights[order] - steps) + steps
    lowered = (np.minimum.accumulate(heights[order][::-1] + steps) - steps)[::-1]
    # all four have the gap; so do their means and extremes
    middle = np.maximum((lifted + lowered) / 2, bottom + steps)
    placed = np.empty(len(heights))
    placed[order] = np.minimum(middle, top - steps[::-1])
    return placed


def _check_alphas(alphas):
    """Return the penalties as a decreasing array."""
    alphas = finite_numbers(alphas, "alphas")
    if alphas.ndim != 1 or len(alphas) < 2:
        raise ValueError(
            f"alphas must have shape (n_alphas,) with two or more, got {alphas.shape}; "
            "a single penalty has no path"
        )
    if (np.diff(alphas) >= 0).any() or alphas[-1] < 0:
        raise ValueError(
            f"alphas must fall and not be negative, got {alphas}; sort them, and the "
            "path with them"
        )
    return alphas


def _check_path(path, n_alphas, n_nodes):
    """Return the path as an array of symmetric matrices."""
    path = finite_numbers(path, "path")
    if path.shape != (n_alphas, n_nodes, n_nodes):
        raise ValueError(
            "path must have shape (n_alphas, n_nodes, n_nodes), here "
            f"{(n_alphas, n_nodes, n_nodes)}, got {path.shape}; pass one matrix per "
            "alpha, with one row and column per name"
        )
    if not np.allclose(path, path.transpose(0, 2, 1)):
        raise ValueError(
            "path must hold symmetric matrices, got one that is not; pass associations"
        )
    return path


def _check_alpha(alpha):
    """Return the selected penalty as a float, or None."""
    if alpha is None:
        return None
    alpha = finite_numbers(alpha, "alpha")
    if alpha.ndim or alpha < 0:
        raise ValueError(
            f"alpha must be one number, not negative, got {alpha}; pass the chosen one"
        )
    return float(alpha)
