import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest

from skvnce.inspection import GraphDisplay


class Learner:
    """Stands for any estimator with `to_networkx`."""

    def __init__(self, edges, nodes=()):
        self.graph = nx.Graph()
        self.graph.add_nodes_from(nodes)
        self.graph.add_weighted_edges_from(edges)

    def to_networkx(self):
        return self.graph.copy()


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def texts(display):
    return {text.get_text() for text in display.ax_.texts}


def test_every_node_is_named_and_signs_have_colours():
    learner = Learner([("a", "b", 0.5), ("b", "c", -0.2)], nodes=["lonely"])
    display = GraphDisplay.from_estimator(learner)
    assert texts(display) == {"a", "b", "c", "lonely"}
    edges = display.ax_.collections[0]
    colours, widths = edges.get_edgecolors(), edges.get_linewidths()
    assert not np.array_equal(colours[0], colours[1])
    assert widths[0] > widths[1]


def test_only_the_strongest_edges_are_drawn():
    learner = Learner([("a", "b", 0.1), ("b", "c", -0.9), ("a", "c", 0.5)])
    display = GraphDisplay.from_estimator(learner, max_edges=2)
    assert {frozenset(edge) for edge in display.graph.edges} == {
        frozenset("bc"),
        frozenset("ac"),
    }
    assert learner.graph.number_of_edges() == 3


def test_draws_into_given_axes_and_without_edges():
    _, ax = plt.subplots()
    display = GraphDisplay.from_estimator(Learner([], nodes=["a", "b"]), ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure


@pytest.mark.parametrize("n_nodes", [1, 2, 350])
def test_any_number_of_nodes(n_nodes):
    edges = [(i, (i + 1) % n_nodes, 0.3) for i in range(n_nodes - 1)]
    display = GraphDisplay.from_estimator(Learner(edges, nodes=range(n_nodes)))
    assert len(texts(display)) == n_nodes


def test_linked_nodes_stand_side_by_side():
    """The two parts of a graph are not interleaved on the circle."""
    chain = [("a", "b", 1.0), ("b", "c", 1.0), ("x", "y", 1.0), ("y", "z", 1.0)]
    display = GraphDisplay.from_estimator(Learner(chain, nodes="axbycz"))
    at = {t.get_text(): np.array(t.get_position()) for t in display.ax_.texts}
    apart = np.linalg.norm
    assert apart(at["a"] - at["b"]) < apart(at["a"] - at["y"])
