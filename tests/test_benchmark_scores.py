"""Scores of benchmarks that decide something, against values by hand."""

import copula_graph
import mixed
import mixed_scores
import numpy as np
import prediction
import protocol_tables
import pytest
from _beside import DEFAULT, by_place, written
from _validity_analyses import random_intercept
from numpy.testing import assert_allclose

KINDS, LEVELS = ["numeric", "nominal", "ordinal"], [None, list("abc"), list("xy")]
TABLES = {
    DEFAULT: {("a", 0): 2.0, ("a", 1): 1.0, ("b", 0): 1.0, ("c", 0): 0.0},
    "better": {("a", 0): 1.0, ("a", 1): 0.5, ("b", 0): 0.25, ("c", 0): 1.0},
    "worse": {("a", 0): 8.0, ("b", 0): 2.0},
    "absent": {("d", 0): 1.0},
}


def test_ratios_are_of_seeds_that_both_have():
    assert by_place(TABLES[DEFAULT], TABLES["worse"]) == {"a": 0.25, "b": 0.5}


def test_scores_of_zero_are_left_out():
    ratios = by_place(TABLES[DEFAULT], TABLES["better"])
    assert ratios == pytest.approx({"a": 2.0, "b": 4.0})


def test_losses_are_bold_and_counted():
    assert written({"a": 2.0, "b": 8.0}) == "**4.000** (2 of 2)"
    assert written({"a": 1.01, "b": 0.5}) == "0.711 (0 of 2)"
    assert written({}) == "-"


def test_errors_of_hand_made_tables():
    """Ranges are 2 and 10; the last column has three levels."""
    full = np.array([[0.0, 0.0, 0.0], [2.0, 10.0, 1.0], [1.0, 5.0, 2.0]])
    hidden = np.array([[True, False, True], [True, True, False], [False] * 3])
    one, two = full.copy(), full.copy()
    one[0] = 1.0, 0.0, 2.0  # half of the range, and a wrong level
    one[1] = 2.0, 5.0, 1.0
    two[0] = 0.5, 0.0, 0.0
    two[1] = 0.0, 0.0, 1.0
    both = np.stack([one, two])
    errors = protocol_tables.row_errors(both, full, (2,))
    assert errors == pytest.approx(np.array([[1.5, 0.5, 0], [0.25, 2, 0]]))
    assert protocol_tables.min_mae(both, full, hidden, (2,)) == pytest.approx(0.75 / 4)
    assert protocol_tables.avg_mae(both, full, hidden, (2,)) == pytest.approx(
        4.25 / 2 / 4
    )
    assert protocol_tables.avg_mae(both[:1], full, hidden, (2,)) == pytest.approx(2 / 4)
    assert protocol_tables.wasserstein([[0.0], [3.0]], [[3.0], [1.0]]) == pytest.approx(
        0.5
    )


def test_two_levels_count_as_a_number():
    full = np.array([[0.0], [1.0]])
    assert protocol_tables.row_errors(1 - full[None], full, (0,)) == pytest.approx(1)


def case_of_numbers():
    full = np.arange(12.0).reshape(6, 2)
    masked = full.copy()
    masked[2, 0] = masked[4, 1] = np.nan
    return protocol_tables.Case(("A", "some", "MCAR", 0), (full,), (masked,), ())


def test_truth_has_no_error_and_draws_are_proper_scores():
    case = case_of_numbers()
    (full,) = case.full
    right = protocol_tables.score_a(
        case, protocol_tables.Answer([full], [np.stack([full] * 20)], 0.0)
    )
    zero = ("min_mae", "avg_mae", "avg_mae_draws", "mae_median", "rmse", "crps")
    assert [right[name] for name in (*zero, "energy", "w_train")] == [0] * 8
    assert right["coverage"] == pytest.approx(0.9)
    point = protocol_tables.score_a(case, protocol_tables.Answer([full + 1], None, 0.0))
    assert point["min_mae"] == point["avg_mae"] > 0 and "crps" not in point
    draws = np.stack([full + k for k in (-1, 0, 1, 2, 3)])
    drawn = protocol_tables.score_a(case, protocol_tables.Answer(None, [draws], 0.0))
    assert drawn["min_mae"] == 0 and drawn["rmse"] == pytest.approx(0.1)
    assert "coverage" not in drawn


def test_parts_are_scored_apart():
    full, masked = np.ones((3, 2)), np.full((3, 2), np.nan)
    case = protocol_tables.Case(("B", "x", "MCAR", 0), (full,) * 2, (masked,) * 2, ())
    found = protocol_tables.score_b(
        case, protocol_tables.Answer([full + 1, full + 3], None, 0.0)
    )
    assert [found[f"{s}_{p}"] for p in ("in", "out") for s in ("mae", "rmse")] == [
        *(1, 1, 3, 3)
    ]
    drawn = [np.stack([full, full + 2])] * 2
    assert (
        protocol_tables.score_b(case, protocol_tables.Answer(None, drawn, 0.0))[
            "mae_in"
        ]
        == 1
    )


def mixed_table(seed, n=200):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return np.column_stack([z, np.digitize(z, [-0.5, 0.5]), z > 0.2]).astype(float)


def mixed_case(seed=0):
    x, rng = mixed_table(seed), np.random.default_rng(seed)
    masked = np.where(mixed.hidden_cells(x, "MCAR", rng), np.nan, x)
    return mixed.Case(
        KINDS, LEVELS, list("pqr"), (x[:140], x[140:]), (masked[:140], masked[140:])
    )


def test_methods_do_not_see_hidden_cells():
    """A method that is given other true values in the hidden cells answers equally."""
    one = mixed_case()
    full = tuple(
        np.where(np.isnan(m), 1 - (x > 0), x)
        for m, x in zip(one.masked, one.full, strict=True)
    )
    other = one._replace(full=full)
    for method in (mixed.marginal, mixed.iterative):
        first, second = method(one, 0), method(other, 0)
        assert np.array_equal(first.points, second.points)
        assert np.array_equal(first.draws, second.draws)
    leaky = np.nan_to_num(one.full[1]), np.nan_to_num(other.full[1])
    assert not np.array_equal(*leaky)


def test_scores_of_the_truth_and_of_its_opposite():
    one = mixed_case()
    truth = one.full[1]
    sure = {j: np.eye(len(LEVELS[j]))[truth[:, j].astype(int)] for j in (1, 2)}
    right = mixed_scores.score(
        one, mixed_scores.Answer(truth, sure, np.repeat(truth[None], 20, 0))
    )
    assert right["pfc"] == right["rmse"] == 0 and abs(right["crps"]) < 1e-12
    assert right["brier"] == right["rps"] == right["ece"] == 0
    assert right["coverage"] == pytest.approx(0.9) and right["auc"] <= 0.5
    wrong = truth.copy()
    wrong[:, 1], wrong[:, 2] = (truth[:, 1] + 1) % 3, 1 - truth[:, 2]
    wrong[:, 0] += 3
    mistaken = {j: np.roll(p, 1, 1) for j, p in sure.items()}
    found = mixed_scores.score(
        one, mixed_scores.Answer(wrong, mistaken, np.repeat(wrong[None], 20, 0))
    )
    assert found["pfc"] == 1 and found["brier"] > 1.8 and found["coverage"] == 0
    assert found["ece"] > 0.9 and found["auc"] > 0.6


def test_classes_are_scored_as_by_their_formulas():
    classes, target = np.array([2, 5, 7]), np.array([2, 7, 7, 5])
    probabilities = np.array(
        [[0.5, 0.2, 0.3], [0, 0, 1], [0.2, 0.2, 0.6], [0.1, 0.9, 0]]
    )
    found = prediction.scores_of_classes(probabilities, target, classes)
    assert found["error"] == pytest.approx(-np.log([0.5, 1, 0.6, 0.9]).mean())
    assert found["brier"] == pytest.approx(np.mean([0.38, 0, 0.24, 0.02]))
    assert found["ece"] == pytest.approx(np.mean([0.5, 0, 0.4, 0.1]))


def test_numbers_are_scored_in_standard_deviations():
    target = np.array([1.0, 3.0])
    ends = np.array([0.0, 0.0]), np.array([2.0, 2.0])
    found = prediction.scores_of_numbers(np.array([1.0, 1.0]), target, ends)
    assert found == pytest.approx({"error": np.sqrt(2), "coverage": 0.5, "length": 2.0})


def test_f1_is_that_of_the_pairs():
    truth = np.zeros((4, 4), dtype=bool)
    for i, j in ((0, 1), (1, 2), (2, 3)):
        truth[i, j] = truth[j, i] = True
    edges = np.zeros_like(truth)
    for i, j in ((0, 1), (0, 2)):
        edges[i, j] = edges[j, i] = True
    assert copula_graph.f1(edges, truth) == pytest.approx(2 * 1 / (2 + 3))
    assert copula_graph.f1(truth, truth) == 1
    assert copula_graph.f1(np.zeros_like(truth), truth) == 0


def test_pairs_are_ranked_by_entry_and_then_by_strength():
    first, second = np.zeros((2, 3, 3))
    first[0, 1] = 0.1
    second[0, 1], second[0, 2], second[1, 2] = 0.2, 0.9, 0.8
    order = copula_graph.ranked(np.array([first, second]))
    assert order[0, 1] > order[0, 2] > order[1, 2] > order[1, 0] == 0


def test_random_intercepts_maximise_the_restricted_likelihood(seed):
    """Against the density of a multivariate normal, with the coefficients profiled."""
    rng, g = np.random.default_rng([seed, 2]), np.repeat(np.arange(15), 6)
    X = np.column_stack([np.ones(90), rng.normal(size=(90, 2))])
    y = X.sum(1) + rng.normal(size=15)[g] + rng.normal(size=90)

    def restricted(group, row):
        inverse = np.linalg.inv(group * (g[:, None] == g) + row * np.eye(len(y)))
        information = X.T @ inverse @ X
        beta = np.linalg.solve(information, X.T @ inverse @ y)
        rest = y - X @ beta
        logs = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(information)[1]
        return (logs - rest @ inverse @ rest) / 2, beta, np.linalg.inv(information)

    beta, covariance, group, row = random_intercept(y, X, g)
    best, expected, spread = restricted(group, row)
    assert_allclose(beta, expected, rtol=1e-6)
    assert_allclose(covariance, spread, rtol=1e-6)
    for more in (0.97, 1.03):
        assert restricted(group * more, row)[0] <= best + 1e-9
        assert restricted(group, row * more)[0] < best


def test_groups_without_variance_have_none():
    x = np.tile([-1.0, 1.0], 10)
    y = np.tile([0.0, 2.0, 3.0, 3.5], 5)
    X = np.column_stack([np.ones(20), x])
    *_, group, row = random_intercept(y, X, np.repeat(np.arange(5), 4))
    assert group == 0 and row > 0
