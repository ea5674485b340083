"""Displays of graphs: edges, and paths of the penalty."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.numbers import check_count
from skvnce.inspection import _common

# ----------------------------------------
# Plot of a learned graph.

_CIRCLE = 40  # maximum number of nodes on a circle with readable names
_STRESS = 400  # maximum number of nodes of the better layout, cubic in time
# in order of preference: the first of equally free sides is taken
_SIDES = (  # positions of a label beside its node: direction and alignment
    ((0, 1), "center", "bottom"),
    ((0, -1), "center", "top"),
    ((1, 0), "left", "center"),
    ((-1, 0), "right", "center"),
    ((1, 1), "left", "bottom"),
    ((-1, 1), "right", "bottom"),
    ((1, -1), "left", "top"),
    ((-1, -1), "right", "top"),
)


class GraphDisplay:
    """Plot of a graph whose edges have signed weights.

    Blue edges connect variables with a positive association given all others, red edges
    those with a negative one; width shows strength.  Edges without a sign, of nominal
    columns, are blue.  Up to 40 nodes are placed on a circle, in an order in which
    strong edges are short.  Of a larger graph the largest connected component is drawn,
    with connected nodes near each other and larger nodes for more edges.  Only the
    nodes with the most edges are named, and the title gives the number of nodes shown.

    Parameters
    ----------
    graph : networkx.Graph
        Its edges carry ``weight``; an edge without one counts as 1.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    lines_ : matplotlib.collections.LineCollection
        The edges, weakest first.
    points_ : matplotlib.collections.PathCollection
        The nodes.
    labels_ : list of matplotlib.text.Text
        The names; in a large graph those of the nodes with the most edges first.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        ax: Any = None,
        max_edges: int | None = None,
        n_labels: int = 15,
    ) -> Self:
        """Draw the graph of a fitted learner.

        Parameters
        ----------
        estimator : fitted estimator
            A learner with `to_networkx`, such as `CopulaGraphLearner`.
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.
        max_edges : int or None, default=None
            Number of strongest edges to draw; None draws 60, and two per node of a
            graph with more than 40 nodes.
        n_labels : int, default=15
            Number of named nodes in a graph with more than 40.

        Returns
        -------
        GraphDisplay
        """
        (to_networkx,) = _common.fitted_attributes(estimator, "to_networkx")
        graph = to_networkx().copy()
        if max_edges is None:
            max_edges = 60 if len(graph) <= _CIRCLE else 2 * len(graph)
        check_count(max_edges, "max_edges")
        edges = _weakest_first(graph)
        graph.remove_edges_from(edges[: max(0, len(edges) - max_edges)])
        return cls(graph).plot(ax=ax, n_labels=n_labels)

    def plot(self, *, ax: Any = None, n_labels: int = 15) -> Self:
        """Draw the graph.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.
        n_labels : int, default=15
            Number of named nodes in a graph with more than 40.

        Returns
        -------
        GraphDisplay
            Itself.
        """
        import networkx as nx

        check_count(n_labels, "n_labels")
        names = [_common.shown_name(node) for node in self.graph]
        # by number, as a missing value is no safe key
        graph = nx.convert_node_labels_to_integers(nx.Graph(self.graph))
        _weakest_first(graph)
        self.ax_ = _common.axes_or_new(ax, 8, 8)
        self.figure_ = self.ax_.figure
        self.ax_.set_axis_off()
        if len(graph) <= _CIRCLE:
            self._plot_circle(graph, names)
        else:
            self._plot_largest_part(graph, names, n_labels)
        return self

    def _plot_circle(self, graph, names):
        """Draw all nodes on a circle, their names around it."""
        import networkx as nx

        place = nx.circular_layout(_seriate(graph))
        self.lines_ = _draw_links(self.ax_, graph, place, widest=7)
        # names begin at 0.08 of the 3.2 units of the axes from the centre of a node
        size = min(300, (0.13 * min(_common.room(self.ax_)) / 3.2) ** 2)
        self.points_ = self.ax_.scatter(
            *_columns(place),
            s=size,
            color=self.ax_.get_facecolor(),
            edgecolors="0.5",
            zorder=2,
        )
        self.labels_ = [
            _radial_label(self.ax_, xy, names[node]) for node, xy in place.items()
        ]
        _common.sign_legend(self.ax_, loc="lower left")
        self.ax_.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")

    def _plot_largest_part(self, graph, names, n_labels):
        """Draw the largest connected component, with names of its hubs."""
        import networkx as nx

        part = graph.subgraph(max(nx.connected_components(graph), key=len))
        if len(part) > _STRESS:
            place = nx.spring_layout(part, weight=None, seed=0)
        else:
            # networkx takes weights as lengths, so that strong edges would be long
            place = nx.kamada_kawai_layout(part, weight=None)
        degree = np.array([part.degree[node] for node in place])
        self.lines_ = _draw_links(self.ax_, part, place, widest=2.5)
        self.points_ = self.ax_.scatter(
            *_columns(place),
            s=8 + 3 * degree,
            color="0.5",
            edgecolors=self.ax_.get_facecolor(),
            linewidths=0.4,
            zorder=2,
        )
        count = f"{len(part)} of {len(graph)} nodes, {part.number_of_edges()} edges:"
        space = " " if _common.room(self.ax_)[0] > 400 else "\n"
        self.ax_.set_title(f"{count}{space}the largest connected component")
        _common.sign_legend(self.ax_, loc="upper left", bbox_to_anchor=(0, 0), ncols=2)
        nodes = list(place)
        hubs = [nodes[i] for i in np.argsort(-degree, kind="stable")[:n_labels]]
        self.labels_ = _label_apart(self.ax_, [(place[i], names[i]) for i in hubs])


def _weakest_first(graph):
    """List the edges with their weights, the strongest last."""
    edges = list(graph.edges(data="weight", default=1.0))
    for source, target, weight in edges:
        if not np.isfinite(weight):
            ends = map(_common.shown_name, (source, target))
            raise ValueError(
                f"weights must be finite, got {weight} between {' and '.join(ends)}; "
                "remove that edge"
            )
    return sorted(edges, key=lambda edge: abs(edge[2]))


def _columns(place):
    """Return the x and the y of all nodes."""
    return np.reshape(list(place.values()), (-1, 2)).T


def _draw_links(ax, graph, place, widest):
    """Draw the edges, strong ones wide and above weak ones."""
    from matplotlib.collections import LineCollection

    edges = _weakest_first(graph)
    weight = np.array([weight for *_, weight in edges])
    lines = LineCollection(
        [(place[source], place[target]) for source, target, _ in edges],
        linewidths=widest
        # initial: all weights may be 0, and there may be no edge
        * (0.15 + 0.85 * np.abs(weight) / np.abs(weight).max(initial=1e-12)),
        colors=_common.sign_colours(ax, weight),
        alpha=0.7,
        zorder=1,
    )
    return ax.add_collection(lines)


def _radial_label(ax, xy, name):
    """Write a name outside the unit circle, readable from its centre."""
    angle = np.degrees(np.arctan2(*xy[::-1]))
    flip = abs(angle) > 90
    return ax.text(
        *(1.08 * xy),
        name,
        rotation=angle + 180 * flip,
        rotation_mode="anchor",
        ha="right" if flip else "left",
        va="center",
        # a $ in a name is no formula
        parse_math=False,
    )


def _label_apart(ax, labels):
    """Place each name on the side of its node where it overlaps least."""
    ax.figure.draw_without_rendering()  # the extent of a text depends on its place
    texts, boxes = [], []
    for xy, name in labels:
        tried = [_label(ax, xy, name, *side) for side in _SIDES]
        extents = [text.get_window_extent() for text in tried]
        covered = [sum(_overlap(box, other) for other in boxes) for box in extents]
        best = int(np.argmin(covered))
        for text in tried[:best] + tried[best + 1 :]:
            text.remove()
        texts.append(tried[best])
        boxes.append(extents[best])
    return texts


def _label(ax, xy, name, side, ha, va):
    """Write a name beside a point, with an outline like the background."""
    from matplotlib.patheffects import withStroke

    return ax.annotate(
        name,
        xy,
        xytext=(6 * side[0], 6 * side[1]),
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=9,
        parse_math=False,
        path_effects=[withStroke(linewidth=2.5, foreground=ax.get_facecolor())],
        zorder=3,
    )


def _overlap(box, other):
    """Return the area of the intersection of two boxes."""
    width = min(box.x1, other.x1) - max(box.x0, other.x0)
    height = min(box.y1, other.y1) - max(box.y0, other.y0)
    return max(width, 0) * max(height, 0)


def _seriate(graph):
    """Order the nodes by the Laplacian's first vectors: neighbours are adjacent."""
    laplacian = np.zeros((len(graph), len(graph)))
    for i, j, weight in graph.edges(data="weight", default=1.0):
        laplacian[[i, j], [j, i]] -= abs(weight)
        laplacian[[i, j], [i, j]] += abs(weight)
    # weak edges between all nodes: else each component has an eigenvalue of 0
    laplacian += 1e-3 * (np.eye(len(graph)) - 1 / max(len(graph), 1))
    vectors = np.linalg.eigh(laplacian)[1][:, 1:3]
    if vectors.shape[1] < 2:
        return list(graph)
    angle = np.arctan2(vectors[:, 1], vectors[:, 0])
    return np.argsort(angle, kind="stable").tolist()


# ----------------------------------------
# Plot of the edges along a path of penalties.

# more lines cannot be followed by eye
_MOST = 300  # maximum number of lines
_TICK = 50  # least distance between ticks in points
_TO_NAME = {"arrowstyle": "-", "color": "0.7", "linewidth": 0.6, "relpos": (0, 0.5)}


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
        Names of the variables.
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
    """

    def __init__(
        self,
        alphas: ArrayLike,
        path: ArrayLike,
        names: ArrayLike,
        alpha: float | None = None,
    ) -> None:
        self.alphas, self.path = np.asarray(alphas), np.asarray(path)
        if len(self.alphas) < 2:
            raise ValueError(f"A single penalty has no path, got alphas={alphas}.")
        self.names, self.alpha = [_common.shown_name(name) for name in names], alpha

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, n_labels: int = 10
    ) -> Self:
        """Draw the path of a learner that has selected its penalty.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator with ``alphas_``, ``path_``, ``alpha_`` and ``nodes_``, such as
            `TruncatedGaussianGraphLearnerCV`.
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.
        n_labels : int, default=10
            Number of strongest pairs to name.

        Returns
        -------
        EdgePathDisplay
        """
        alphas, path, names, alpha = _common.fitted_attributes(
            estimator, "alphas_", "path_", "nodes_", "alpha_"
        )
        return cls(alphas, path, names, alpha).plot(ax=ax, n_labels=n_labels)

    def plot(self, *, ax: Any = None, n_labels: int = 10) -> Self:
        """Draw the path.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.
        n_labels : int, default=10
            Number of strongest pairs to name.

        Returns
        -------
        EdgePathDisplay
            Itself.
        """
        check_count(n_labels, "n_labels")
        self.ax_ = _common.axes_or_new(ax, 9, 6)
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
        style = {"frameon": True, "framealpha": 0.5, "edgecolor": "none"}
        style |= {"loc": "lower left", "fontsize": "small", "handlelength": 1}
        _common.sign_legend(self.ax_, **style)
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
        first, last = self.ax_.get_xlim()
        self.ax_.set_xlim(max(x, first), min(x, last))
        return self.ax_.axvline(x, color="0.5", linestyle="--", linewidth=1)

    def _name_pairs(self, place, pairs, values):
        """Write the names of pairs beside the ends of their lines."""
        bottom, top = self.ax_.get_ylim()
        # a row of text is 11 points high
        gap = max(0.04, min(11 / _common.room(self.ax_)[1], 1 / max(len(values), 1)))
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
                arrowprops=_TO_NAME,
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
        colors=_common.sign_colours(ax, values[np.arange(len(values)), strongest]),
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
    gap = (place[0] - place[-1]) * _TICK / _common.room(ax)[0]
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
