import sys
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from skvnce._core.random import row_keyed, row_lattice, seed_from, seeded
from skvnce._core.runtime import one_thread


@pytest.fixture
def rows(seed):
    table = np.random.default_rng(seed).gamma(2.0, size=(50, 4))
    table[::3, 1] = np.nan
    return table


def like(rows, n_chains=1):
    return torch.empty(n_chains, *rows.shape, dtype=torch.float64)


def test_numbers_belong_to_the_row(rows):
    order = np.random.default_rng(1).permutation(len(rows))[:20]
    for step in (0, 5):
        whole = row_keyed(rows, 3)(step, like(rows))
        part = row_keyed(rows[order], 3)(step, like(rows[order]))
        assert torch.equal(part, whole[:, order])


def test_steps_seeds_columns_chains_and_rows_differ(rows):
    draw = row_keyed(rows, 3)
    first = draw(0, like(rows, 2))
    for other in (draw(1, like(rows, 2)), row_keyed(rows, 4)(0, like(rows, 2))):
        assert not (first == other).any()
    assert first.unique().numel() == first.numel()


def test_every_nan_and_every_zero_is_alike():
    table = np.array([[np.nan, 0.0]])
    odd_nan = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)[0]
    other = np.array([[odd_nan, -0.0]])
    expected = row_keyed(table, 0)(0, like(table))
    assert torch.equal(row_keyed(other, 0)(0, like(table)), expected)


def test_numbers_are_uniform(rows, seed):
    u = torch.stack([row_keyed(rows, seed)(step, like(rows)) for step in range(50)])
    assert ((u >= 0) & (u < 1)).all()
    assert kstest(u.ravel().numpy(), "uniform").pvalue > 1e-4
    assert kstest((u**1.15).ravel().numpy(), "uniform").pvalue < 1e-4  # has power
    lagged = np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]
    assert abs(lagged) < 4 / np.sqrt(u[1:].numel())


def test_the_fence_restores_torch_also_after_an_error():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(0):
        torch.rand(3)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)


def test_kinds_of_random_state():
    assert seed_from(np.random.RandomState(0)) == seed_from(np.random.RandomState(0))
    assert seed_from(np.random.default_rng(0)) == seed_from(np.random.default_rng(0))
    assert seed_from(np.int64(3)) == 3
    with pytest.raises(ValueError, match="seed"):
        seed_from("seven")


def test_none_is_fresh_and_leaves_numpy_alone():
    before = np.random.get_state()[1].copy()
    assert seed_from(None) != seed_from(None)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_a_lattice_is_even_and_belongs_to_the_row():
    rows = np.array([[1.0, np.nan], [2.0, 3.0]])
    template = torch.zeros(64, 2, 3).double()
    drawn = row_lattice(rows, 0)(1, template)
    assert drawn.min() >= 0 and drawn.max() < 1
    alone = row_lattice(rows[1:], 0)(1, template[:, 1:])
    assert (alone[:, 0] == drawn[:, 1]).all()
    # means of a smooth function: far less error than with independent numbers
    rows = np.arange(200.0)[:, None]
    template = torch.zeros(64, 200, 3).double()
    errors = [
        ((torch.exp(make(rows, 0)(0, template)).mean(0) - (np.e - 1)) ** 2).mean()
        for make in (row_lattice, row_keyed)
    ]
    assert errors[0] < errors[1] / 30
    rows, template = np.array([[1.0, np.nan], [2.0, 3.0]]), torch.zeros(64, 2, 3)
    drawn = row_lattice(rows, 0)(1, template)
    assert (row_lattice(rows, 1)(1, template) != drawn).all()
    assert (row_lattice(rows, 0)(2, template) != drawn).all()


@pytest.mark.parametrize("first", [one_thread, partial(seeded, 0)])
def test_the_fence_and_the_limit_are_one_lock(first):
    """Two locks, taken in two orders, would stop both threads for good."""

    def other():
        with one_thread(), seeded(0):
            return True

    with ThreadPoolExecutor(1) as pool:
        with first():
            result = pool.submit(other)
            assert not wait([result], timeout=0.2).done
        assert result.result(timeout=60)


def test_torchs_checks_stay_on():
    """The import of zuko turns them off."""
    import skvnce.vgi.densities  # noqa: F401

    assert "zuko" in sys.modules
    assert torch.distributions.Distribution._validate_args
