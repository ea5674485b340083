"""Windows of similar predictions, of which many are equal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statistical import FAILURE, p_mean

from skvnce._core.windows import sorted_predictions, windows


@given(
    st.lists(st.integers(-5, 5), min_size=3, max_size=40),
    st.integers(1, 3),
    st.integers(-7, 7),
)
def test_windows_hold_all_equal_predictions(values, size, at):
    order, predictions = sorted_predictions(np.array(values, float))
    np.testing.assert_array_equal(np.array(values, float)[order], np.sort(values))
    _, [first], [last] = windows(predictions, np.array([float(at)]), size)
    assert 0 <= first < last <= len(values) and last - first >= size
    assert (predictions[first:last] == at).sum() == values.count(at)
    is_near = np.zeros(len(values), bool)
    is_near[first:last] = True
    # no other prediction is nearer than the size of a window asks for
    if last - first > size:
        assert (predictions[is_near] == at).all()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_predictions_that_differ_by_rounding_errors_are_equal(rng, scale):
    exact = np.repeat([-1.0, 0.5, 2.0], 50)
    noisy = scale * exact * (1 + 1e-14 * rng.normal(size=150))
    _, predictions = sorted_predictions(noisy)
    _, first, last = windows(predictions, scale * np.array([-1.0, 0.5, 2.0]), 5)
    np.testing.assert_array_equal(first, [0, 50, 100])
    np.testing.assert_array_equal(last, [50, 100, 150])


def test_equal_predictions_are_in_random_order():
    """Near a block of equal predictions a window has a part of it."""
    trend = np.arange(2000.0)
    predictions = np.append(np.zeros(2000), np.linspace(1, 2, 20))
    order, sorted_ones = sorted_predictions(predictions)
    _, [first], [last] = windows(sorted_ones, np.array([1.0]), 200)
    part = order[first:last]
    part = part[part < 2000]
    assert 80 < len(part) < 200
    assert p_mean(trend[part], trend.mean()) > FAILURE
    stable = np.argsort(predictions, kind="stable")[first:last]  # control
    assert p_mean(trend[stable[stable < 2000]], trend.mean()) < FAILURE


def test_windows_beyond_the_ends():
    predictions = np.linspace(0, 1, 101)
    is_at_end, first, last = windows(predictions, np.array([-3.0, 0.5, 1.0]), 11)
    assert is_at_end.tolist() == [True, False, True]
    assert first.tolist() == [0, 45, 90] and last.tolist() == [11, 56, 101]
