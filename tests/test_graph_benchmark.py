"""The benchmarks of graph recovery, but for the package's parts."""

from functools import partial

import graph_figures as figures
import graph_recovery as recovery
import graph_simulation
import numpy as np
import pytest

TRUTH = np.eye(4) + np.diag([0.5, 0.5, 0.5], 1) + np.diag([0.5, 0.5, 0.5], -1)


def result(auc, ranking="1100"):
    return recovery.Result(auc, 0.1, [], 0.1, 0.2, 0.3, ranking)


@pytest.fixture
def small(monkeypatch):
    """Tables of a few rows, and the fits that were made."""
    made, draw = [], graph_simulation.draw
    monkeypatch.setattr(graph_simulation, "draw", partial(draw, n_sweeps=5))

    def of_few_rows(graph, seed):
        made.append((graph, seed))
        return graph_simulation.simulate(graph, seed, n_samples=60)

    monkeypatch.setattr(recovery, "simulated", of_few_rows)
    return made


def test_rankings_name_the_edges():
    strengths = np.abs(TRUTH)
    strengths[2, 1] = strengths[1, 2] = 0
    assert recovery.ranking(TRUTH, strengths) == "110100"


def test_roc_curves_have_the_area():
    grid = np.array([0, 0.49, 0.5, 1])
    np.testing.assert_array_equal(figures.roc("1010", grid), [0.5, 0.5, 1, 1])
    np.testing.assert_array_equal(figures.roc("0011", grid), [0, 0, 0, 1])


def test_errors_are_distinguished():
    found = recovery.Estimate(TRUTH, TRUTH + np.eye(4), np.full(4, 2.0))
    data = graph_simulation.simulate("thesis", 0, n_samples=5, n_features=4)
    data = data._replace(precision=TRUTH, linear=np.zeros(4))
    assert recovery.errors(found, data) == (4, 1, 0)
    assert recovery.errors(recovery.Estimate(TRUTH), data) == (None,) * 3


def test_a_run_goes_on_where_it_stopped(tmp_path, small):
    path = tmp_path / "found.jsonl"
    places = recovery.chosen(["mean-filled marginal corr."], "ring")
    jobs = [("ring", seed, 0.3, places[0]) for seed in (0, 1)]
    first = recovery.Store(path).run(jobs[:1])
    second = recovery.Store(path).run(jobs)
    assert small == [("ring", 0), ("ring", 1)]
    key = "ring", 0.3, "mean-filled marginal corr."
    assert second.cells[key][0] == first.cells[key][0]
    assert recovery.Store(path).cells == second.cells


def test_methods_are_compared_on_the_sets_of_both():
    ours = {0: result(0.9), 1: result(0.8), 2: result(0.1)}
    theirs = {0: result(0.7), 1: result(0.8), 5: result(1.0)}
    medians, sets, word = recovery.against(ours, theirs)
    assert medians == pytest.approx((0.85, 0.75))
    assert (sets, word) == ("1, 1, 0", "ahead")
    assert recovery.against(theirs, ours)[2] == "**behind**"


def test_goals_are_missed_and_failures_counted():
    goal = recovery.Goal("ring", 0.5, "auc", False, 0.86)
    row = recovery.goal_row(goal, {"a": {0: result(0.85)}, "b": {0: result(0.8)}})
    assert row[-4:] == ["0.8500", "a", 1, "**missed**"]
    cell = dict(enumerate(map(result, (0.9, 0.9, 0.6))))
    assert recovery.failure_cells({"ring": cell})[-3:] == [1, 0, 0]


def test_labels_are_unique():
    labels = [method.label for method in recovery.METHODS]
    assert len(labels) == len(set(labels))
    assert set(figures.STYLES) <= set(recovery.NAMES)
