"""Which cases of a matrix the default run has (`conftest.py`)."""

from itertools import product

import pytest
from conftest import covering, in_turn


@pytest.mark.parametrize("sizes", [(10, 6), (3, 7), (4, 4, 4), (5,)])
def test_few_cases_have_each_value(sizes):
    cases = [set(enumerate(one)) for one in product(*map(range, sizes))]
    found = [*covering(cases)]
    assert len(found) == max(sizes)
    assert set().union(*(cases[place] for place in found)) == set().union(*cases)
    assert not [*covering(cases, found)]


def test_cases_in_turn_are_a_share_of_each_value():
    cases = [set(enumerate(one)) for one in product(range(15), range(40))]
    found = [*in_turn(cases, 4)]
    assert len(found) == 150
    for value in set().union(*cases):
        assert sum(value in cases[place] for place in found) >= 3
