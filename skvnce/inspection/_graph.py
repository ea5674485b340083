"""Plot of a learned graph."""

import numpy as np

from skvnce.inspection._common import (
    axes_or_new,
    check_count,
    fitted,
    room,
    shown_name,
    sign_colours,
    sign_legend,
)

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

    def __init__(self, graph):
        self.graph = graph

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, max_edges=None, n_labels=15):
        """Draw the graph of a fitted learner.

        Parameters
        ----------
        estimator : fitted estimator with `to_networkx`
        ax : matplotlib.axes.Axes or None, default=None
        max_edges : int or None, default=None
            Number of strongest edges to draw; None draws 60, and two per node of a
            graph with more than 40 nodes.
        n_labels : int, default=15
            Number of named nodes in a graph with more than 40.

        Returns
        -------
        GraphDisplay

        Raises
        ------
        TypeError
            If ``max_edges`` or ``n_labels`` is not an integer.
        ValueError
            If the estimator has no graph, a count is negative, or a weight is not
            finite.
        """
        (to_networkx,) = fitted(estimator, "to_networkx")
        graph = to_networkx().copy()
        if max_edges is None:
            max_edges = 60 if len(graph) <= _CIRCLE else 2 * len(graph)
        check_count(max_edges, "max_edges")
        edges = _weakest_first(graph)
        graph.remove_edges_from(edges[: max(0, len(edges) - max_edges)])
        return cls(graph).plot(ax=ax, n_labels=n_labels)

    def plot(self, *, ax=None, n_labels=15):
        """Draw the graph.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            A new figure by default.
        n_labels : int, default=15
            Number of named nodes in a graph with more than 40.

        Returns
        -------
        GraphDisplay
            Itself.

        Raises
        ------
        TypeError
            If ``n_labels`` is not an integer.
        ValueError
            If ``n_labels`` is negative or a weight is not finite.
        """
        import networkx as nx

        check_count(n_labels, "n_labels")
        names = [shown_name(node) for node in self.graph]
        # by number, as a missing value is no safe key
        graph = nx.convert_node_labels_to_integers(nx.Graph(self.graph))
        _weakest_first(graph)
        self.ax_ = axes_or_new(ax, 8, 8)
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
        size = min(300, (0.13 * min(room(self.ax_)) / 3.2) ** 2)
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
        sign_legend(self.ax_, loc="lower left")
        self.ax_.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")

    def _plot_largest_part(self, graph, names, n_labels):
        """Draw the largest connected component, with names of its hubs."""
        import networkx as nx

        part = graph.subgraph(max(nx.connected_components(graph), key=len))
        place = _force_layout(part)
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
        space = " " if room(self.ax_)[0] > 400 else "\n"
        self.ax_.set_title(f"{count}{space}the largest connected component")
        sign_legend(self.ax_, loc="upper left", bbox_to_anchor=(0, 0), ncols=2)
        nodes = list(place)
        hubs = [nodes[i] for i in np.argsort(-degree, kind="stable")[:n_labels]]
        self.labels_ = _label_apart(self.ax_, [(place[i], names[i]) for i in hubs])


def _weakest_first(graph):
    """List the edges with their weights, the strongest last."""
    edges = list(graph.edges(data="weight", default=1.0))
    for source, target, weight in edges:
        if not np.isfinite(weight):
            raise ValueError(
                f"weights must be finite, got {weight} between {shown_name(source)} "
                f"and {shown_name(target)}; remove that edge"
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
        colors=sign_colours(ax, weight),
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


def _overlap(one, other):
    """Return the area of the intersection of two boxes."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(width, 0) * max(height, 0)


def _force_layout(graph):
    """Place connected nodes near each other, reproducibly."""
    import networkx as nx

    if len(graph) > _STRESS:
        return nx.spring_layout(graph, weight=None, seed=0)
    # networkx takes weights as lengths, so that strong edges would be long
    return nx.kamada_kawai_layout(graph, weight=None)


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
