"""Scores on hidden cells and of graphs, against their definitions."""

import numpy as np
import pandas as pd
import pytest
from errors import refused
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skvnce.metrics import (
    _samples,
    coverage,
    crps,
    edge_auc,
    energy_distance,
    imputation_mae,
    imputation_rmse,
    split_r_hat,
)
from skvnce.metrics._chains import enough_steps

VALUES = st.floats(-1e3, 1e3, allow_subnormal=False)
SEVERAL = [crps, lambda *args: coverage(*args, level=0.5)]


@pytest.fixture
def rng(seed):
    """Return the generator of a test."""
    return np.random.default_rng([seed, 2])


# One imputed table


def test_errors_by_hand():
    true = np.array([[0.0, 10.0], [0.0, 20.0]])
    imputed = np.array([[3.0, 10.0], [0.0, 24.0]])
    hidden = np.array([[True, False], [False, True]])
    assert imputation_mae(true, imputed, hidden) == 3.5
    assert imputation_rmse(true, imputed, hidden) == np.sqrt(12.5)
    assert imputation_mae(true, imputed, hidden, scale=[3.0, 2.0]) == 1.5
    assert imputation_rmse(true, imputed, hidden, scale=0.5) == np.sqrt(50.0)


@pytest.mark.parametrize("score", [imputation_rmse, imputation_mae, *SEVERAL])
@pytest.mark.parametrize("filler", [np.nan, 1e6, np.inf])
def test_only_hidden_cells_are_read(score, filler, rng):
    """Of one table, or of seven draws of it."""
    shape = (7, 5, 4) if score in SEVERAL else (5, 4)
    true, imputed = rng.standard_normal((5, 4)), rng.standard_normal(shape)
    hidden = rng.random((5, 4)) < 0.5
    expected = score(true, imputed, hidden)
    true[~hidden] = imputed[..., ~hidden] = filler
    assert score(true, imputed, hidden) == expected


def test_dataframes_count_like_arrays():
    true = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [3.0, 4.0]})
    imputed = pd.DataFrame({"a": [2.0, 9.0], "b": [5.0, 4.0]})
    hidden = pd.DataFrame({"a": [True, False], "b": [True, False]})
    assert imputation_mae(true, imputed, hidden) == 1.5
    assert crps(true, [imputed, imputed], hidden) == 1.5


# CRPS


def crps_by_definition(true, draws):
    """Return eq. (1) for one cell by all pairs."""
    pairs = np.abs(draws[:, None] - draws[None, :]).sum()
    m = len(draws)
    return np.abs(draws - true).mean() - pairs / (2 * m * (m - 1))


@given(
    hnp.arrays(float, st.tuples(st.integers(3, 12), st.integers(1, 5)), elements=VALUES)
)
def test_crps_is_its_definition(values):
    true, draws = values[:1], values[1:, None, :]
    pairs = zip(true[0], values[1:].T, strict=True)
    expected = np.mean([crps_by_definition(*pair) for pair in pairs])
    score = crps(true, draws, np.ones(true.shape, bool))
    assert score == pytest.approx(expected, abs=1e-9)


def test_crps_of_many_draws_needs_no_memory_in_their_square():
    draws = np.arange(100_000.0).reshape(-1, 1, 1)
    m = len(draws)
    # At truth 0 the mean error is (m - 1) / 2; the mean distance of pairs (m + 1) / 3.
    expected = (m - 1) / 2 - (m + 1) / 6
    assert crps([[0.0]], draws, [[True]]) == pytest.approx(expected, rel=1e-12)


# Coverage


@pytest.mark.parametrize(
    "n_draws, level, low, high",
    [(19, 0.9, 1, 19), (39, 0.9, 2, 38), (3, 0.5, 1, 3), (99, 0.8, 10, 90)],
)
def test_coverage_by_hand(n_draws, level, low, high):
    true = np.arange(0.0, n_draws + 2)[:, None]
    draws = np.tile(np.arange(1.0, n_draws + 1)[::-1, None, None], (1, n_draws + 2, 1))
    inside = coverage(true, draws, np.ones(true.shape, bool), level=level)
    assert inside == np.mean((true >= low) & (true <= high))


def test_coverage_between_draws():
    # Rank 21 * 0.05 = 1.05: the interval of the draws 1..20 is [1.05, 19.95].
    draws = np.tile(np.arange(1.0, 21.0)[:, None, None], (1, 4, 1))
    true = [[1.04], [1.06], [19.94], [19.96]]
    assert coverage(true, draws, np.ones((4, 1), bool)) == 0.5


@given(st.integers(19, 99), st.sampled_from([0.3, 0.5, 0.8, 0.9]))
def test_coverage_of_draws_equal_to_the_truth_is_full(n_draws, level):
    true = np.array([[0.1, 1e9]])
    draws = np.tile(true, (n_draws, 1, 1))
    assert coverage(true, draws, [[True, True]], level=level) == 1


# Energy distance


def energy_by_definition(x, y):
    """Return eq. (2) by all pairs at once."""

    def mean(a, b):
        return np.linalg.norm(a[:, None] - b[None], axis=-1).mean()

    return 2 * mean(x, y) - mean(x, x) - mean(y, y)


@given(
    hnp.arrays(float, st.tuples(st.integers(1, 8), st.just(3)), elements=VALUES),
    hnp.arrays(float, st.tuples(st.integers(1, 8), st.just(3)), elements=VALUES),
)
def test_energy_distance_is_its_definition(x, y):
    distance = energy_distance(x, y)
    assert distance == pytest.approx(energy_by_definition(x, y), abs=1e-9)
    assert distance == pytest.approx(energy_distance(y, x), abs=1e-9) and distance >= 0
    assert energy_distance(x, x[::-1]) < 1e-9


@pytest.mark.parametrize("block", [1, 50, 10_000])
def test_energy_distance_does_not_depend_on_blocks(block, monkeypatch, rng):
    x, y = rng.standard_normal((2, 31, 4))
    monkeypatch.setattr(_samples, "_BLOCK", block)
    assert energy_distance(x, y) == pytest.approx(energy_by_definition(x, y), rel=1e-9)


# Graphs


def symmetric(pairs, size):
    """Return a symmetric matrix with these entries below its diagonal."""
    matrix = np.zeros((size, size))
    matrix[np.tril_indices(size, -1)] = pairs
    return matrix + matrix.T + np.eye(size)


@given(
    hnp.arrays(float, 10, elements=st.sampled_from([0.0, 1e-7, -1e-5, 0.3, -2.0])),
    hnp.arrays(float, 10, elements=st.integers(0, 4).map(float)),
)
def test_edge_auc_counts_pairs_in_order(true, strengths):
    edge = np.abs(true) > 1e-5
    assume(edge.any() and not edge.all())
    difference = strengths[edge][:, None] - strengths[~edge]
    expected = np.mean((difference > 0) + 0.5 * (difference == 0))
    result = edge_auc(symmetric(true, 5), symmetric(strengths, 5))
    assert result == pytest.approx(expected)


def test_edge_auc_reads_only_below_the_diagonal():
    true, strengths = symmetric([0.5, 0.0, 0.0], 3), symmetric([0.9, 0.1, 0.2], 3)
    true[np.triu_indices(3)] = strengths[np.triu_indices(3)] = np.nan
    assert edge_auc(true, strengths) == 1


# Errors name the parameter

TRUE = np.zeros((2, 2))
ALL = np.ones((2, 2), bool)


@pytest.mark.parametrize("score", [imputation_rmse, imputation_mae])
@pytest.mark.parametrize(
    "true, imputed, hidden, scale, error, message",
    [
        (TRUE, TRUE[:1], ALL, None, ValueError, r"X_imputed must .*\(1, 2\)"),
        (TRUE, TRUE * np.nan, ALL, None, ValueError, "X_imputed must be finite.*4"),
        (TRUE * np.nan, TRUE, ALL, None, ValueError, "X_true must be finite"),
        (TRUE[0], TRUE, ALL, None, ValueError, "X_true must be a table"),
        (TRUE, TRUE, ~ALL, None, ValueError, "hidden must mark at least one cell"),
        (TRUE, TRUE, ALL[:1], None, ValueError, "hidden must have the shape"),
        (TRUE, TRUE, TRUE, None, TypeError, "hidden must be boolean"),
        (TRUE, TRUE, ALL, [1.0, 0.0], ValueError, "scale must be positive"),
        (TRUE, TRUE, ALL, np.nan, ValueError, "scale must be positive"),
        (TRUE, TRUE, ALL, [1.0] * 3, ValueError, "scale must be one number or 2"),
        (TRUE, TRUE, ALL, "sd", TypeError, "scale must be a number .* got 'sd'"),
    ],
)
def test_errors_of_one_table(score, true, imputed, hidden, scale, error, message):
    refused(error, message, score, true, imputed, hidden, scale=scale)


@pytest.mark.parametrize("score", SEVERAL)
@pytest.mark.parametrize(
    "draws, message",
    [
        (TRUE, r"draws must have shape .* got \(2, 2\)"),
        (TRUE[None], "draws must hold at least . tables for this score, got 1"),
        (np.zeros((9, 2, 3)), r"draws must .* X_true, \(2, 2\), got shape \(9, 2, 3\)"),
        (np.full((9, 2, 2), np.nan), "draws must be finite"),
    ],
)
def test_errors_of_draws(score, draws, message):
    refused(ValueError, message, score, TRUE, draws, ALL)


@pytest.mark.parametrize("level, n_min", [(0.9, 19), (0.95, 39), (0.5, 3), (0.8, 9)])
def test_coverage_needs_enough_draws(level, n_min):
    coverage(TRUE, np.zeros((n_min, 2, 2)), ALL, level=level)
    with pytest.raises(ValueError, match=f"at least {n_min} .*got {n_min - 1}"):
        coverage(TRUE, np.zeros((n_min - 1, 2, 2)), ALL, level=level)


def test_shared_ties_give_discrete_draws_the_level(rng):
    """Truth and draws of one Bernoulli law are exchangeable, in spite of ties."""
    n = 20000
    true, draws = rng.binomial(1, 0.3, (n, 1)), rng.binomial(1, 0.3, (99, n, 1))
    hidden, error = np.ones((n, 1), bool), np.sqrt(0.9 * 0.1 / n)
    assert abs(coverage(true, draws, hidden, ties="shared") - 0.9) < 4 * error
    assert coverage(true, draws, hidden) > 0.9 + 4 * error
    assert coverage(1 - true, draws, hidden, ties="shared") < 0.9 - 4 * error


@pytest.mark.parametrize("n_draws", [19, 99, 25])
def test_shared_ties_change_nothing_without_ties(n_draws, rng):
    true, draws = rng.normal(size=(500, 1)), rng.normal(size=(n_draws, 500, 1))
    hidden = np.ones((500, 1), bool)
    shared = coverage(true, draws, hidden, ties="shared")
    if (n_draws + 1) % 20 == 0:  # whole ranks
        assert shared == pytest.approx(coverage(true, draws, hidden), abs=1e-12)
    assert abs(shared - 0.9) < 0.05


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ties": "split"}, ValueError, "ties must be"),
        ({"level": 0}, ValueError, "level must be between 0 and 1"),
        ({"level": 1}, ValueError, "level must be between 0 and 1"),
        ({"level": 90}, ValueError, "level must be between 0 and 1"),
        ({"level": np.nan}, ValueError, "level must be between 0 and 1"),
        ({"level": "a"}, TypeError, "level must be a number, got 'a'"),
    ],
)
def test_errors_of_coverage(options, error, words):
    refused(error, words, coverage, TRUE, np.zeros((99, 2, 2)), ALL, **options)


@pytest.mark.parametrize(
    ("X", "Y", "words"),
    [
        (TRUE, np.zeros((4, 3)), "X and Y must .* got 2 and 3 columns"),
        (TRUE * np.nan, TRUE, "X must be finite"),
        (TRUE, TRUE[0], "Y must be a table"),
    ],
)
def test_errors_of_energy_distance(X, Y, words):
    refused(ValueError, words, energy_distance, X, Y)


GRAPH = symmetric([0.5, 0.0, 0.0], 3)


@pytest.mark.parametrize(
    "true, strengths, message",
    [
        (GRAPH, GRAPH[:2], r"precision_true and strengths must .*\(2, 3\)"),
        (GRAPH[:2], GRAPH[:2], "must be square"),
        (np.eye(3), GRAPH, "precision_true must .* got 0 edges among 3 pairs"),
        (np.ones((3, 3)), GRAPH, "precision_true must .* got 3 edges"),
        (GRAPH, -GRAPH, "strengths must not be negative"),
        (GRAPH, GRAPH * np.nan, "strengths must be finite"),
        (GRAPH * np.nan, GRAPH, "precision_true must be finite"),
    ],
)
def test_errors_of_edge_auc(true, strengths, message):
    refused(ValueError, message, edge_auc, true, strengths)


# Convergence of chains


def test_r_hat_by_hand():
    """Halves 0, 2 and 4, 6 and 1, 1 and 1, 3, without the first step of an odd number.

    Means are 1, 5, 1, 2, and W = (2 + 2 + 0 + 2) / 4.
    """
    chains = [[9.0, 0.0, 2.0, 4.0, 6.0], [9.0, 1.0, 1.0, 1.0, 3.0]]
    within, between = 1.5, np.var([1, 5, 1, 2], ddof=1)
    expected = np.sqrt((within / 2 + between) / within)
    assert split_r_hat(chains) == pytest.approx(expected, rel=1e-14)
    assert np.isnan(split_r_hat(np.ones((1, 4))))


@pytest.mark.parametrize("n_steps", [20, 200, 5000])
def test_chains_are_as_long_as_r_hat_needs(n_steps):
    """With autocorrelation time tau, B / n is tau W / n: R-hat is known for each n."""
    tau = 40.0
    r_hat = np.sqrt((n_steps - 1 + tau) / n_steps)
    expected = (tau - 1) / (1.05**2 - 1)
    assert enough_steps([np.nan, 1.0, r_hat], n_steps) == pytest.approx(expected, abs=1)
    assert enough_steps([0.99, 1.0], n_steps) <= n_steps
