"""Pictures of graphs: paths of edges, curves of edges, and edges between nodes."""

from itertools import combinations
from types import SimpleNamespace

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from errors import refused

from skvnce.inspection import EdgePathDisplay, GraphDisplay

#


ALPHAS = [1.0, 0.1, 0.01]


def path_of(values, n_nodes=3):
    """Return symmetric matrices that hold, per pair, its values along the path."""
    path = np.zeros((3, n_nodes, n_nodes))
    for (i, j), value in values.items():
        path[:, i, j] = path[:, j, i] = value
    return path


def learner(alphas=ALPHAS, alpha=0.1, **changes):
    path = path_of({(0, 1): [0, 0.2, 0.5], (1, 2): [0, 0, -0.3]})
    fitted = {"alphas_": np.array(alphas), "path_": path, "alpha_": alpha}
    return SimpleNamespace(**{**fitted, "nodes_": np.array(["a", "b", "c"]), **changes})


def random_learner(n_nodes, n_alphas=15):
    rng = np.random.default_rng(0)
    alphas = np.append(np.geomspace(1, 0.01, n_alphas - 1), 0)
    end = np.tril(rng.uniform(-1, 1, (n_nodes, n_nodes)), -1)
    path = np.sign(end) * np.maximum(np.abs(end) - alphas[:, None, None], 0)
    names = [f"x{i}" for i in range(n_nodes)]
    path = path + path.transpose(0, 2, 1)
    return SimpleNamespace(alphas_=alphas, path_=path, alpha_=0.1, nodes_=names)


def test_every_linked_pair_is_a_line_weakest_first():
    display = EdgePathDisplay.from_estimator(learner())
    weak, strong = display.lines_.get_segments()
    np.testing.assert_allclose(weak, np.column_stack([ALPHAS, [0, 0, -0.3]]))
    np.testing.assert_allclose(strong, np.column_stack([ALPHAS, [0, 0.2, 0.5]]))


def test_alpha_zero_stands_one_step_beyond_the_smallest():
    display = EdgePathDisplay.from_estimator(learner([1.0, 0.1, 0.0], alpha=0.0))
    np.testing.assert_allclose(display.lines_.get_segments()[0][:, 0], ALPHAS)
    assert [text.get_text() for text in display.ax_.get_xticklabels()][-1] == "0"
    np.testing.assert_allclose(display.alpha_line_.get_xdata(), 0.01)


def test_the_chosen_alpha_is_marked():
    display = EdgePathDisplay.from_estimator(learner())
    np.testing.assert_allclose(display.alpha_line_.get_xdata(), 0.1)
    assert EdgePathDisplay(ALPHAS, path_of({}), "abc").plot().alpha_line_ is None


def test_a_chosen_alpha_outside_the_path_is_seen():
    display = EdgePathDisplay.from_estimator(learner(alpha=10.0))
    assert display.ax_.get_xlim()[0] == 10.0


def test_the_strongest_pairs_are_named():
    display = EdgePathDisplay.from_estimator(learner())
    assert [text.get_text() for text in display.labels_] == ["a – b", "b – c"]
    assert [text.xy for text in display.labels_] == [(0.01, 0.5), (0.01, -0.3)]
    display = EdgePathDisplay.from_estimator(learner(), n_labels=1)
    assert [text.get_text() for text in display.labels_] == ["a – b"]


def test_the_numbers_of_links_stand_above():
    (above,) = EdgePathDisplay.from_estimator(learner()).ax_.child_axes
    assert [t.get_text() for t in above.get_xticklabels()] == ["0", "1", "2"]


def test_of_many_pairs_the_strongest_are_drawn():
    big = random_learner(350)
    display = EdgePathDisplay.from_estimator(big)
    ends = np.abs([segment[-1, 1] for segment in display.lines_.get_segments()])
    pairs = np.abs(big.path_[-1][np.tril_indices(350, -1)])
    np.testing.assert_allclose(ends, np.sort(pairs)[-300:])
    assert display.ax_.get_title() == "the 300 strongest of 61,075 linked pairs"
    assert len(display.labels_) == 10


#


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
    assert red[0] > red[2] and blue[2] > blue[0]
    weak, strong = display.lines_.get_linewidths()
    assert strong > weak


def test_only_the_strongest_edges_are_drawn():
    pairs = list(combinations(range(12), 2))
    learner = Learner([(*pair, (-1) ** k * k) for k, pair in enumerate(pairs)])
    display = GraphDisplay.from_estimator(learner)
    edges = {frozenset(edge) for edge in display.graph.edges}
    assert edges == set(map(frozenset, pairs[-60:]))
    assert learner.graph.number_of_edges() == len(pairs) == 66


def test_draws_into_given_axes_and_without_edges():
    _, ax = plt.subplots()
    display = GraphDisplay.from_estimator(Learner([], nodes=["a", "b"]), ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure


def ring(n_nodes):
    edges = [(i, (i + 1) % n_nodes, 0.3) for i in range(n_nodes - 1)]
    return Learner(edges, nodes=range(n_nodes))


@pytest.mark.parametrize("n_lonely", [0, 50])
def test_a_missing_name_is_not_written(n_lonely):
    edges = [(float("nan"), np.nan, 0.1), (np.nan, "$a_1$", 0.2), (pd.NA, pd.NaT, 0.1)]
    edges += [("$a_1$", pd.NA, 0.2)]
    display = GraphDisplay.from_estimator(Learner(edges, nodes=range(n_lonely)))
    names = [text.get_text() for text in display.labels_]
    assert names.count("unnamed") == 4 and "$a_1$" in names
    display.figure_.draw_without_rendering()


def test_an_edge_without_weight_counts_as_one():
    display = GraphDisplay(nx.path_graph(3)).plot()
    assert len(display.lines_.get_segments()) == 2


def test_the_estimator_keeps_its_graph():
    learner = Learner([(*pair, 1.0) for pair in combinations(range(12), 2)])
    learner.to_networkx = lambda: learner.graph
    GraphDisplay.from_estimator(learner)
    assert learner.graph.number_of_edges() == 66


PATH, GRAPH = EdgePathDisplay.from_estimator, GraphDisplay.from_estimator
WITHOUT_PATH = SimpleNamespace(alphas_=ALPHAS, nodes_="abc", alpha_=0.1)
ERRORS = [
    (PATH, learner(alphas_=[1.0]), {}, ValueError, "single penalty"),
    (PATH, WITHOUT_PATH, {}, ValueError, "SimpleNamespace without path_; fit it"),
    (PATH, learner(), {"n_labels": "all"}, TypeError, "n_labels must be an integer"),
    (GRAPH, Learner([("a", "b", np.nan)]), {}, ValueError, "got nan between a and b"),
    (GRAPH, object(), {}, ValueError, "have to_networkx, got object"),
    (GRAPH, ring(3), {"n_labels": 2.5}, TypeError, "n_labels must be an integer.* 2.5"),
    (GRAPH, ring(3), {"n_labels": -1}, ValueError, "n_labels must be finite and at"),
]


@pytest.mark.parametrize(("draw", "estimator", "options", "error", "words"), ERRORS)
def test_errors(draw, estimator, options, error, words):
    refused(error, words, draw, estimator, **options)
