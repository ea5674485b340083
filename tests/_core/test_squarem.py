"""SQUAREM against linear iterations, whose fixed points are exact."""

import numpy as np
import pytest

from skvnce._core.squarem import extrapolate


def linear_points(rate, start=0.0, limit=3.0):
    """Make three points that approach a limit at a rate."""
    return [(np.full(4, limit + (start - limit) * rate**k),) for k in range(3)]


@pytest.mark.parametrize("rate", [0.5, 0.99, 0.9999])
def test_an_iteration_of_one_rate_ends_in_a_jump(rate):
    points = linear_points(rate)
    (x,) = extrapolate(*points, lambda x: True)
    np.testing.assert_allclose(x, 3.0, rtol=1e-6)
    assert abs(points[2][0] - 3.0).max() > 0.1  # control: without the jump


def test_steps_are_halved_until_the_point_is_valid():
    points = linear_points(0.99)
    (x,) = extrapolate(*points, lambda x: x.max() < 1)
    assert points[2][0].max() < x.max() < 1


def test_without_a_valid_jump_the_last_point_stays():
    points = linear_points(0.99)
    assert extrapolate(*points, lambda x: False) is points[2]
