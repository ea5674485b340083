"""Picture of a learned graph."""

import numpy as np

_RISE, _FALL = "#2166ac", "#b2182b"  # blue and red that colour-blind readers tell apart


class GraphDisplay:
    """Picture of a graph whose edges have signed weights.

    Nodes stand on a circle in the order that keeps strong links short.  Blue links join
    variables that rise together given all others, red ones those that move against each
    other; width shows strength.

    Parameters
    ----------
    graph : networkx.Graph
        Its edges carry ``weight``.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    """

    def __init__(self, graph):
        self.graph = graph

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, max_edges=60):
        """Draw the graph of a fitted learner.

        Parameters
        ----------
        estimator : fitted estimator with `to_networkx`
        ax : matplotlib.axes.Axes or None, default=None
        max_edges : int, default=60
            The strongest links that are drawn.

        Returns
        -------
        GraphDisplay
        """
        graph = estimator.to_networkx()
        weakest_first = sorted(
            graph.edges(data="weight"), key=lambda edge: abs(edge[2])
        )
        graph.remove_edges_from(weakest_first[: max(0, len(weakest_first) - max_edges)])
        return cls(graph).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the graph.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            A new figure by default.

        Returns
        -------
        GraphDisplay
            Itself.
        """
        import matplotlib.pyplot as plt
        import networkx as nx

        if ax is None:
            _, ax = plt.subplots(figsize=(8, 8), layout="constrained")
        place = nx.circular_layout(_seriate(self.graph))
        weight = np.array([w for *_, w in self.graph.edges(data="weight")])
        nx.draw_networkx_edges(
            self.graph,
            place,
            ax=ax,
            width=1 + 6 * np.abs(weight) / np.abs(weight).max(initial=1e-12),
            edge_color=[_RISE if w > 0 else _FALL for w in weight],
            alpha=0.7,
        )
        nx.draw_networkx_nodes(
            self.graph, place, ax=ax, node_color="white", edgecolors="0.4"
        )
        for node, (x, y) in place.items():
            angle = np.degrees(np.arctan2(y, x))
            flip = abs(angle) > 90
            ax.text(
                1.08 * x,
                1.08 * y,
                str(node),
                rotation=angle + 180 * flip,
                rotation_mode="anchor",
                ha="right" if flip else "left",
                va="center",
            )
        for colour, meaning in ((_RISE, "rise together"), (_FALL, "move apart")):
            ax.plot([], [], color=colour, label=meaning)
        ax.legend(loc="lower left", frameon=False)
        ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")
        ax.set_axis_off()
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _seriate(graph):
    """Order the nodes by the Laplacian's first vectors: linked ones side by side."""
    nodes = list(graph)
    index = {node: i for i, node in enumerate(nodes)}
    laplacian = np.zeros((len(nodes), len(nodes)))
    for source, target, weight in graph.edges(data="weight"):
        i, j = index[source], index[target]
        laplacian[[i, j], [j, i]] -= abs(weight)
        laplacian[[i, j], [i, j]] += abs(weight)
    laplacian += 1e-3 * (np.eye(len(nodes)) - 1 / max(len(nodes), 1))
    vectors = np.linalg.eigh(laplacian)[1][:, 1:3]
    if vectors.shape[1] < 2:
        return nodes
    angle = np.arctan2(vectors[:, 1], vectors[:, 0])
    return [nodes[i] for i in np.argsort(angle, kind="stable")]
