"""Pictures of graphs: paths of edges, curves of edges, and edges between nodes."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import pytest

from skvnce.inspection import EdgePathDisplay, EdgeRocDisplay, GraphDisplay
from skvnce.metrics import edge_auc

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
    return SimpleNamespace(
        alphas_=alphas, path_=path + path.transpose(0, 2, 1), alpha_=0.1, nodes_=names
    )


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


def test_a_single_penalty_is_refused():
    with pytest.raises(ValueError, match="single penalty"):
        EdgePathDisplay.from_estimator(learner(alphas_=[1.0]))


def test_an_estimator_without_a_path_is_refused():
    estimator = learner()
    del estimator.path_
    with pytest.raises(ValueError, match="SimpleNamespace without path_; fit it"):
        EdgePathDisplay.from_estimator(estimator)


def test_the_number_of_labels_is_checked():
    with pytest.raises(TypeError, match="n_labels must be an integer"):
        EdgePathDisplay.from_estimator(learner(), n_labels="all")


#


TRUTH = np.array([[1.0, -0.5, 0.0], [-0.5, 1.0, 0.2], [0.0, 0.2, 1.0]])
STRENGTHS = np.array([[0.0, 0.9, 0.3], [0.9, 0.0, 0.1], [0.3, 0.1, 0.0]])
NAMES = ["a", "b", "c"]


def learner_roc(**changes):
    fitted = {"edge_strengths_": STRENGTHS, "nodes_": np.array(NAMES)}
    return SimpleNamespace(**{**fitted, **changes})


def random_case(seed, n_nodes=30, decimals=9):
    rng = np.random.default_rng(seed)
    truth = np.tril(rng.random((n_nodes, n_nodes)) < 0.2, -1)
    strengths = np.tril(rng.exponential(size=truth.shape) + truth, -1).round(decimals)
    return truth + truth.T, strengths + strengths.T


def test_one_point_per_score():
    display = EdgeRocDisplay.from_predictions(TRUTH, STRENGTHS)
    np.testing.assert_array_equal(display.line_.get_xdata(), [0, 0, 1, 1])
    np.testing.assert_array_equal(display.line_.get_ydata(), [0, 0.5, 0.5, 1])
    assert display.roc_auc == 0.5


@pytest.mark.parametrize("decimals", [9, 1, 0])
@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_that_of_the_metric(seed, decimals):
    truth, strengths = random_case(seed, decimals=decimals)
    display = EdgeRocDisplay.from_predictions(truth, strengths)
    assert display.roc_auc == pytest.approx(edge_auc(truth * 1.0, strengths), abs=1e-12)


def test_rounding_errors_of_an_inverse_are_no_edges():
    noisy = TRUTH + 1e-9
    display = EdgeRocDisplay.from_predictions(noisy, STRENGTHS)
    assert display.roc_auc == edge_auc(noisy, STRENGTHS) == 0.5


@pytest.mark.parametrize(
    ("scores", "attribute"),
    [
        ("strength", "edge_strengths_"),
        ("probability", "edge_probabilities_"),
        ("frequency", "edge_frequencies_"),
    ],
)
def test_the_scores_are_chosen_by_name(scores, attribute):
    better = np.abs(TRUTH)
    estimator = learner_roc(**{"edge_strengths_": STRENGTHS, attribute: better})
    display = EdgeRocDisplay.from_estimator(estimator, TRUTH, scores=scores)
    assert display.roc_auc == 1


def test_unknown_or_absent_scores_are_refused():
    with pytest.raises(ValueError, match="scores must be one of .*got 'rank'"):
        EdgeRocDisplay.from_estimator(learner_roc(), TRUTH, scores="rank")
    with pytest.raises(ValueError, match="without edge_frequencies_"):
        EdgeRocDisplay.from_estimator(learner_roc(), TRUTH, scores="frequency")


def shuffled(truth):
    """Return the truth as graph and as dataframe, nodes in another order, one more."""
    order = [2, 0, 1]
    table = pd.DataFrame(truth, index=NAMES, columns=NAMES).iloc[order, order]
    table.loc["other"] = 1.0
    table["other"] = 1.0
    graph = nx.Graph()
    graph.add_nodes_from(["other", "c", "a", "b"])
    graph.add_edges_from([("b", "a"), ("b", "c"), ("other", "a")])
    return table, graph


@pytest.mark.parametrize("truth", shuffled(TRUTH), ids=["dataframe", "graph"])
def test_nodes_are_matched_by_name(truth):
    strengths = np.array([[0, 3, 2], [3, 0, 1], [2, 1, 0.0]])
    expected = edge_auc(TRUTH, strengths)
    estimator = learner_roc(edge_strengths_=strengths)
    assert EdgeRocDisplay.from_estimator(estimator, truth).roc_auc == expected
    named = pd.DataFrame(strengths, NAMES, NAMES)
    assert EdgeRocDisplay.from_predictions(truth, named).roc_auc == expected


@pytest.mark.parametrize("truth", shuffled(TRUTH), ids=["dataframe", "graph"])
def test_missing_nodes_are_named(truth):
    with pytest.raises(ValueError, match="none named x, y; rename"):
        EdgeRocDisplay.from_estimator(learner_roc(nodes_=["a", "x", "y"]), truth)
    many = [f"x{i}" for i in range(12)]
    with pytest.raises(ValueError, match="x8, x9 and 2 more"):
        EdgeRocDisplay.from_estimator(learner_roc(nodes_=many), truth)


def test_without_names_tables_are_read_in_order():
    frame = pd.DataFrame(TRUTH, NAMES, NAMES)
    assert EdgeRocDisplay.from_predictions(frame, STRENGTHS).roc_auc == 0.5
    assert (
        EdgeRocDisplay.from_estimator(learner_roc(), pd.DataFrame(TRUTH)).roc_auc == 0.5
    )
    graph = nx.path_graph(3)
    assert EdgeRocDisplay.from_predictions(graph, STRENGTHS).roc_auc == 0.5


def changed(matrix, value, where=(1, 0)):
    matrix = matrix.copy()
    matrix[where] = value
    return matrix


@pytest.mark.parametrize(
    ("error", "message", "truth", "strengths"),
    [
        (ValueError, "got 0 edges among 3 pairs", np.eye(3), STRENGTHS),
        (ValueError, "got 3 edges among 3 pairs", np.ones((3, 3)), STRENGTHS),
        (ValueError, r"truth must have shape .*\(2, 2\)", np.eye(2), STRENGTHS),
        (ValueError, "strengths must have shape", TRUTH, np.ones((3, 2))),
        (ValueError, "truth must be finite", changed(TRUTH, np.nan), STRENGTHS),
        (ValueError, "truth must be finite", changed(TRUTH, np.nan, (0, 1)), STRENGTHS),
        (ValueError, "strengths must be finite", TRUTH, changed(STRENGTHS, np.nan)),
        (ValueError, "truth must be symmetric", changed(TRUTH, 0), STRENGTHS),
        (ValueError, "strengths must be symmetric", TRUTH, changed(STRENGTHS, 0)),
        (ValueError, "strengths must not be negative", TRUTH, -STRENGTHS),
        (TypeError, "truth must be numeric", TRUTH.astype(str), STRENGTHS),
        (
            ValueError,
            "truth must be symmetric",
            nx.DiGraph([(0, 1), (1, 2)]),
            STRENGTHS,
        ),
    ],
)
def test_what_has_no_curve_is_refused(error, message, truth, strengths):
    with pytest.raises(error, match=message):
        EdgeRocDisplay.from_predictions(truth, strengths)


def test_the_diagonal_is_not_read():
    strengths = changed(STRENGTHS, np.nan, np.diag_indices(3))
    assert EdgeRocDisplay.from_predictions(TRUTH, strengths).roc_auc == 0.5


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


def ring(n_nodes):
    edges = [(i, (i + 1) % n_nodes, 0.3) for i in range(n_nodes - 1)]
    return Learner(edges, nodes=range(n_nodes))


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
