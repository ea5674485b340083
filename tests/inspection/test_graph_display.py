import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
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


def texts(display):
    return {text.get_text() for text in display.ax_.texts}


def test_every_node_is_named_and_signs_have_colours():
    learner = Learner([("a", "b", 0.5), ("b", "c", -0.2)], nodes=["lonely"])
    display = GraphDisplay.from_estimator(learner)
    assert texts(display) == {"a", "b", "c", "lonely"}
    red, blue = display.lines_.get_colors()
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    weak, strong = display.lines_.get_linewidths()
    assert strong > weak


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


@pytest.mark.parametrize("n_nodes", [0, 1, 2, 40])
def test_every_node_of_a_small_graph_is_named(n_nodes):
    display = GraphDisplay.from_estimator(ring(n_nodes))
    assert len(display.labels_) == len(texts(display)) == n_nodes


def ring(n_nodes):
    edges = [(i, (i + 1) % n_nodes, 0.3) for i in range(n_nodes - 1)]
    return Learner(edges, nodes=range(n_nodes))


def test_a_large_graph_without_edges_is_drawn():
    display = GraphDisplay.from_estimator(Learner([], nodes=range(350)))
    assert "1 of 350 nodes" in display.ax_.get_title()
    display.figure_.draw_without_rendering()


@pytest.mark.parametrize("n_lonely", [0, 50])
def test_a_missing_name_is_not_written(n_lonely):
    edges = [(float("nan"), np.nan, 0.1), (np.nan, "$a_1$", 0.2), (pd.NA, pd.NaT, 0.1)]
    edges += [("$a_1$", pd.NA, 0.2)]
    learner = Learner(edges, nodes=range(n_lonely))
    display = GraphDisplay.from_estimator(learner)
    names = [text.get_text() for text in display.labels_]
    assert names.count("unnamed") == 4
    assert "$a_1$" in names
    display.figure_.draw_without_rendering()


def test_an_edge_without_weight_counts_as_one():
    display = GraphDisplay(nx.path_graph(3)).plot()
    assert len(display.lines_.get_segments()) == 2


def test_a_weight_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="finite, got nan between a and b"):
        GraphDisplay.from_estimator(Learner([("a", "b", np.nan)]))


@pytest.mark.parametrize("argument", ["max_edges", "n_labels"])
def test_counts_are_checked(argument):
    with pytest.raises(TypeError, match=f"{argument} must be an integer, got 2.5"):
        GraphDisplay.from_estimator(ring(3), **{argument: 2.5})
    with pytest.raises(ValueError, match=f"{argument} must not be negative, got -1"):
        GraphDisplay.from_estimator(ring(3), **{argument: -1})


def test_an_estimator_without_a_graph_is_refused():
    with pytest.raises(ValueError, match="have to_networkx, got object"):
        GraphDisplay.from_estimator(object())


def test_the_estimator_keeps_its_graph():
    learner = ring(5)
    learner.to_networkx = lambda: learner.graph
    GraphDisplay.from_estimator(learner, max_edges=1)
    assert learner.graph.number_of_edges() == 4
