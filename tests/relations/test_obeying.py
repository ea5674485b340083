"""Filled cells that are changed until formulas hold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvnce.relations.columns import Bounds
from skvnce.relations.expressions import Expression, sum_of
from skvnce.relations.formulas import Checked
from skvnce.relations.obeying import Filled, obeyed, which_hold

POSITIVE = np.array([0.0, np.inf])


def solved(rules, rows, free, bounds=None, ends=POSITIVE):
    """Solve rules for the free columns of rows; returns cells, and which rules hold."""
    values = np.array(rows, dtype=float)
    d = values.shape[1]
    bounds = bounds or Bounds.none(d)._replace(deviation=np.ones(d))
    free = np.tile(np.asarray(free, dtype=bool), (len(values), 1))
    ranges = ends[:, None, None] * np.ones(values.shape)
    cells, all_hold = obeyed(bounds, rules, Filled(values, free, ranges, values))
    assert_array_equal(cells[~free], values[~free])
    holds = which_hold(bounds, rules, cells, free)
    assert_array_equal(holds.all(1), all_hold)
    return cells, holds


def test_positive_parts_of_a_total_stay_positive():
    """A surplus of 2.6 is twice the distance of the smaller part from 0."""
    rows = [[0.2, 5.0, 2.6], [3.0, 5.0, 7.0]]
    [small, large], _ = solved([sum_of(2, [0, 1])], rows, [1, 1, 0])
    assert_allclose(small, [0.1, 2.5, 2.6])
    assert_allclose(large, [2.5, 4.5, 7.0])  # the control: with room, by variances


def test_parts_without_room_stay_at_their_ends():
    cells, holds = solved([sum_of(2, [0, 1])], [[0.0, 0.0, -1.0]], [1, 1, 0])
    assert_array_equal(cells, [[0.0, 0.0, -1.0]])
    assert not holds.any()


SUMS_OF_SUMS = [sum_of(4, [0, 1]), sum_of(6, [4, 5]), sum_of(5, [2, 3])]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_sums_of_sums_are_solved_together(order):
    """An observed part of 4 needs a subtotal beyond 4, which the total sets to 2."""
    rows = [[4.0, 1.0, 2.0, 2.0, 2.0, 4.0, 6.0], [4.0, 1.0, 2.0, 2.0, 2.0, 4.0, 3.0]]
    rules = [SUMS_OF_SUMS[k] for k in order]
    cells, holds = solved(rules, rows, [0, 1, 1, 1, 1, 1, 0])
    assert_array_equal(holds.all(1), [True, False])  # the control: a total below 4
    assert (cells[0] >= 0).all()
    assert_allclose(cells[0, 4:], [cells[0, :2].sum(), cells[0, 2:4].sum(), 6.0])


def test_sums_and_functions_are_solved_together():
    """A share of 0.25 of a total, whose rest is known, determines both others."""
    bounds = Bounds.none(4)._replace(deviation=np.ones(4))
    ranges = POSITIVE[:, None] * np.ones(4)
    share = Expression((3, 2, 0), np.divide, "share", bounds, ranges)
    rules = [sum_of(2, [0, 1]), Checked(share, 0, 0, (3, 2, 0))]
    rows = [[2.0, 6.0, 9.0, 0.25], [2.0, 6.0, 9.0, 1.5]]
    cells, holds = solved(rules, rows, [1, 0, 1, 0])
    assert_allclose(cells[0], [2.0, 6.0, 8.0, 0.25])
    assert_array_equal(holds.all(1), [True, False])  # no share is above 1


def test_whole_numbers_stay_whole_where_another_cell_agrees():
    bounds = Bounds.none(3)._replace(unit=np.array([1.0, 0, 0]), deviation=np.ones(3))
    sums, rows = [sum_of(2, [0, 1])], [[2.3, 1.0, 4.7]]
    cells, _ = solved(sums, rows, [1, 1, 0], bounds)
    assert_allclose(cells, [[3.0, 1.7, 4.7]])
    cells, _ = solved(sums, rows, [1, 0, 0], bounds)  # the control: no other cell
    assert_allclose(cells, [[3.7, 1.0, 4.7]])


def test_cells_do_not_leave_the_observed_ones_for_a_solution():
    """As a typo in a total would ask for; within three ranges they may."""
    given = {"deviation": np.ones(3), "low": np.zeros(3), "high": np.full(3, 10.0)}
    bounds = Bounds.none(3)._replace(**given)
    rows = [[4.0, 5.0, 1e6], [4.0, 5.0, 30.0]]
    cells, holds = solved([sum_of(2, [0, 1])], rows, [0, 1, 0], bounds)
    assert (cells[:, 1] <= 40).all()
    assert_array_equal(holds[:, 0], [False, True])
