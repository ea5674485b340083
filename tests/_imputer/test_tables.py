"""What fits of whole tables need: the half-sample mode, and different rows."""

import numpy as np
import pytest
import torch

from skvnce._imputer.held_out import hold_out
from skvnce._tables.values import distinct_rows, half_sample_mode


def brute_force(draws):
    """Follow Bickel and Fruehwirth to the letter, one cell at a time."""
    draws = sorted(draws)
    if len(draws) <= 2:
        return np.mean(draws)
    half = -(-len(draws) // 2)
    runs = [draws[i : i + half] for i in range(len(draws) - half + 1)]
    return brute_force(min(runs, key=lambda run: run[-1] - run[0]))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 17, 100])
def test_the_mode_of_every_cell_by_brute_force(n, seed):
    draws = np.random.default_rng(seed).normal(size=(n, 3, 4)) ** 3
    found = half_sample_mode(draws)
    assert found.shape == (3, 4)
    expected = np.apply_along_axis(brute_force, 0, draws)
    np.testing.assert_array_equal(found, expected)
    shuffled = np.random.default_rng(seed + 1).permutation(draws, axis=0)
    np.testing.assert_array_equal(half_sample_mode(shuffled), found)


@pytest.mark.parametrize("n", [5, 20])
def test_ties_are_settled_as_by_brute_force(n, seed):
    draws = np.random.default_rng(seed).integers(0, 4, size=(n, 50)).astype(float)
    expected = np.apply_along_axis(brute_force, 0, draws)
    np.testing.assert_array_equal(half_sample_mode(draws), expected)


# Cells held out


def test_columns_of_few_cells_lose_none(seed):
    X = np.random.default_rng(seed).normal(size=(40, 3))
    X[9:, 1], X[10:, 2] = np.nan, np.nan
    weights = torch.ones(40).double()
    for weight, expected in ((1, [40, 0, 10]), (2, [40, 9, 10]), (0.5, [40, 0, 0])):
        in_sample, hidden = hold_out(X, weight * weights, 1.0)
        assert in_sample.all()
        assert hidden.sum(0).tolist() == expected


# Containers


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_distinct_rows_are_equal_in_numbers_not_in_bits(dtype):
    X = np.array([[0.0, 1.0], [2.0, np.nan], [-0.0, 1.0], [2.0, np.nan]], dtype)
    X[3, 1] = -X[3, 1]  # another NaN
    assert len({X[row].tobytes() for row in range(4)}) == 4
    first, group = distinct_rows(X)
    assert sorted(first) == [0, 1]
    np.testing.assert_array_equal(X[first[group]], X)
    assert len(distinct_rows(X[:0])[0]) == 0
