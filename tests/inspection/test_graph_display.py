import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

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


def test_linked_nodes_stand_side_by_side():
    """The two parts of a graph are not interleaved on the circle."""
    chain = [("a", "b", 1.0), ("b", "c", 1.0), ("x", "y", 1.0), ("y", "z", 1.0)]
    display = GraphDisplay.from_estimator(Learner(chain, nodes="axbycz"))
    at = {t.get_text(): np.array(t.get_position()) for t in display.ax_.texts}
    apart = np.linalg.norm
    assert apart(at["a"] - at["b"]) < apart(at["a"] - at["y"])


def large(seed=0):
    """Two random parts of 300 and 45 nodes, and five lonely nodes."""
    parts = nx.disjoint_union(
        nx.barabasi_albert_graph(300, 2, seed=seed), nx.path_graph(45)
    )
    weights = np.random.default_rng(seed).laplace(size=parts.number_of_edges())
    edges = [
        (f"x{i}", f"x{j}", w) for (i, j), w in zip(parts.edges, weights, strict=True)
    ]
    return Learner(edges, nodes=[f"x{i}" for i in range(350)])


@pytest.mark.slow
@pytest.mark.sampled
def test_of_a_large_graph_the_largest_part_is_drawn_and_its_hubs_are_named():
    learner = large()
    display = GraphDisplay.from_estimator(learner, n_labels=7)
    assert len(display.points_.get_offsets()) == 300
    assert len(display.lines_.get_segments()) == 596
    assert display.ax_.get_title().startswith("300 of 350 nodes, 596 edges")
    hubs = sorted(dict(learner.graph.degree).items(), key=lambda item: -item[1])[:7]
    assert [text.get_text() for text in display.labels_] == [name for name, _ in hubs]
    assert len(display.ax_.texts) == 7


@pytest.mark.slow
def test_hubs_are_large_and_strong_links_are_wide_and_on_top():
    display = GraphDisplay.from_estimator(large())
    assert np.ptp(display.points_.get_sizes()) > 0
    assert (np.diff(display.lines_.get_linewidths()) >= 0).all()


def test_the_layout_of_a_large_graph_is_the_same_each_time():
    one, two = (GraphDisplay.from_estimator(ring(60)) for _ in range(2))
    np.testing.assert_array_equal(one.points_.get_offsets(), two.points_.get_offsets())


@pytest.mark.parametrize(("n_nodes", "n_kept"), [(40, 60), (41, 82)])
def test_more_edges_are_kept_of_a_larger_graph(n_nodes, n_kept):
    full = nx.complete_graph(n_nodes)
    display = GraphDisplay.from_estimator(Learner([(*e, 0.1) for e in full.edges]))
    assert display.graph.number_of_edges() == n_kept


def test_names_of_hubs_do_not_cover_each_other():
    star = [("hub", f"leaf {i}", 0.2) for i in range(30)]
    other = [("next", f"end {i}", -0.2) for i in range(25)]
    learner = Learner([*star, *other, ("hub", "next", 0.5)])
    display = GraphDisplay.from_estimator(learner, n_labels=12)
    display.figure_.draw_without_rendering()
    boxes = [text.get_window_extent() for text in display.labels_]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


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


def test_a_column_may_be_called_nan():
    display = GraphDisplay.from_estimator(Learner([("nan", "None", 1.0)]))
    assert texts(display) == {"nan", "None"}


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


def test_names_and_nodes_have_the_background_of_the_axes():
    figure, ax = plt.subplots(subplot_kw={"facecolor": "black"})
    display = GraphDisplay(nx.path_graph(50)).plot(ax=ax)
    [outline] = display.labels_[0].get_path_effects()
    assert to_rgb(outline._gc["foreground"]) == (0, 0, 0)
    display = GraphDisplay(nx.path_graph(3)).plot(ax=ax)
    assert to_rgb(display.points_.get_facecolor()[0]) == (0, 0, 0)


def test_nodes_of_a_small_picture_leave_room_for_names():
    sizes = []
    for inches in (3, 8):
        _, ax = plt.subplots(figsize=(inches, inches))
        sizes += [GraphDisplay(nx.path_graph(9)).plot(ax=ax).points_.get_sizes()[0]]
    assert sizes[0] < 60 and sizes[1] == 300
