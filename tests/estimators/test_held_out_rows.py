"""Rows that are held out, and their cells, each of which is hidden once."""

import numpy as np

from skvnce.fits.held_out_rows import hold_out_rows, masked


def table(seed, n=400):
    rng = np.random.default_rng(seed)
    nodes = rng.normal(size=(n, 4))
    nodes[rng.random(nodes.shape) < 0.3] = np.nan
    return nodes


def test_a_tenth_of_the_rows_is_held_out(seed):
    held = hold_out_rows(table(seed, 4000))
    # the standard deviation of the number is 19
    assert 300 < held.sum() < 500
    assert hold_out_rows(table(seed, 20_000)).sum() == 400  # the most that are needed


def test_the_rows_depend_neither_on_their_order_nor_on_units(seed):
    nodes = table(seed)
    held, order = hold_out_rows(nodes), np.random.default_rng(1).permutation(400)
    np.testing.assert_array_equal(hold_out_rows(nodes[order]), held[order])
    moved = np.column_stack([np.exp(nodes[:, 0]), 5 * nodes[:, 1:] - 2])
    np.testing.assert_array_equal(hold_out_rows(moved), held)


def test_columns_vary_without_the_held_out_rows(seed):
    """Of two columns each cell is needed, so that their rows are not held out."""
    nodes = table(seed)
    everywhere = hold_out_rows(nodes).nonzero()[0]
    assert len(everywhere) > 5
    nodes[:, 1], nodes[:, 2] = np.nan, 3.0
    nodes[everywhere[:2], 1] = 1.0, 2.0
    nodes[everywhere[2], 2] = 4.0
    held = hold_out_rows(nodes)
    assert len(np.unique(nodes[~held & ~np.isnan(nodes[:, 1]), 1])) == 2
    assert len(np.unique(nodes[~held, 2])) == 2


def test_each_cell_is_hidden_once(seed):
    rows = table(seed, 50)
    found = masked(rows)
    assert not np.isnan(found.nodes[found.hidden]).any()
    hidden = sorted(found.nodes[found.hidden].tolist())
    assert hidden == sorted(rows[~np.isnan(rows)].tolist())
    assert found.hidden.any(1).all()  # no copy of a row without a hidden cell
    # a fifth at a time: the standard deviation of the mean of 140 cells is .034
    assert 0.1 < found.hidden[~np.isnan(found.nodes)].mean() < 0.45
