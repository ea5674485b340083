import numpy as np
import pytest
import torch

from skvnce._core.incomplete import Incomplete


@pytest.fixture
def table():
    return np.array([[0.0, np.nan, 0.1], [np.nan, np.nan, -0.0], [1e300, 3.0, 0.3]])


def test_there_and_back(table):
    data = Incomplete.from_array(table)
    np.testing.assert_array_equal(data.to_array(), table)
    assert data.x.dtype == torch.float64
    assert not data.x.isnan().any()


def test_observed_cells_come_back_bit_by_bit(table):
    data = Incomplete.from_array(table)
    filled = data.with_values(torch.full_like(data.x, 7.0))
    assert (filled[~data.observed] == 7).all()
    bits = filled[data.observed].numpy().view(np.int64)
    np.testing.assert_array_equal(bits, table[~np.isnan(table)].view(np.int64))


def test_the_array_is_copied(table):
    before = table.copy()
    data = Incomplete.from_array(table)
    data.x.fill_(5.0)
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: a[::-1], lambda a: a.T])
def test_any_memory_layout(table, make):
    array = make(table)
    array.flags.writeable = False
    np.testing.assert_array_equal(Incomplete.from_array(array).to_array(), array)


def test_rows_are_taken_together(table):
    data = Incomplete.from_array(table).take(torch.tensor([2, 0]))
    np.testing.assert_array_equal(data.to_array(), table[[2, 0]])


@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_values_under_the_mask_are_never_read(table, value):
    data = Incomplete.from_array(table)
    odd = Incomplete(data.x.where(data.observed, torch.tensor(value)), data.observed)
    np.testing.assert_array_equal(odd.to_array(), table)
    zeros = torch.zeros_like(data.x)
    assert torch.equal(odd.with_values(zeros), data.with_values(zeros))


def test_dtypes_are_those_asked_for(table):
    single = Incomplete.from_array(table[:2], dtype=torch.float32)
    assert single.x.dtype == torch.float32
    assert single.observed.dtype == torch.bool
    assert single.to_array().dtype == np.float64
    np.testing.assert_array_equal(single.to_array(), table[:2].astype(np.float32))
