from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from skvnce.inspection import EdgeRocDisplay
from skvnce.metrics import edge_auc

TRUTH = np.array([[1.0, -0.5, 0.0], [-0.5, 1.0, 0.2], [0.0, 0.2, 1.0]])
STRENGTHS = np.array([[0.0, 0.9, 0.3], [0.9, 0.0, 0.1], [0.3, 0.1, 0.0]])
NAMES = ["a", "b", "c"]


def learner(**changes):
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


def test_ties_are_crossed_in_a_straight_line():
    display = EdgeRocDisplay.from_predictions(TRUTH, np.ones((3, 3)))
    np.testing.assert_array_equal(display.fpr, [0, 1])
    np.testing.assert_array_equal(display.tpr, [0, 1])
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
    estimator = learner(**{"edge_strengths_": STRENGTHS, attribute: better})
    display = EdgeRocDisplay.from_estimator(estimator, TRUTH, scores=scores)
    assert display.roc_auc == 1


def test_unknown_or_absent_scores_are_refused():
    with pytest.raises(ValueError, match="scores must be one of .*got 'rank'"):
        EdgeRocDisplay.from_estimator(learner(), TRUTH, scores="rank")
    with pytest.raises(ValueError, match="without edge_frequencies_"):
        EdgeRocDisplay.from_estimator(learner(), TRUTH, scores="frequency")


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
    estimator = learner(edge_strengths_=strengths)
    assert EdgeRocDisplay.from_estimator(estimator, truth).roc_auc == expected
    named = pd.DataFrame(strengths, NAMES, NAMES)
    assert EdgeRocDisplay.from_predictions(truth, named).roc_auc == expected


@pytest.mark.parametrize("truth", shuffled(TRUTH), ids=["dataframe", "graph"])
def test_missing_nodes_are_named(truth):
    with pytest.raises(ValueError, match="none named x, y; rename"):
        EdgeRocDisplay.from_estimator(learner(nodes_=["a", "x", "y"]), truth)
    many = [f"x{i}" for i in range(12)]
    with pytest.raises(ValueError, match="x8, x9 and 2 more"):
        EdgeRocDisplay.from_estimator(learner(nodes_=many), truth)


def test_without_names_tables_are_read_in_order():
    frame = pd.DataFrame(TRUTH, NAMES, NAMES)
    assert EdgeRocDisplay.from_predictions(frame, STRENGTHS).roc_auc == 0.5
    assert EdgeRocDisplay.from_estimator(learner(), pd.DataFrame(TRUTH)).roc_auc == 0.5
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


def test_rates_are_checked():
    with pytest.raises(ValueError, match=r"one shape \(n_points,\)"):
        EdgeRocDisplay([0, 1], [0, 0.5, 1])
    with pytest.raises(TypeError, match="fpr must be numeric"):
        EdgeRocDisplay(["0", "1"], [0, 1])
