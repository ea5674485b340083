"""Cells and rows that are held out, a random share whatever they contain."""

import numpy as np
import pytest
import torch

from skvnce import GaussianImputer, MixtureImputer, TableImputer
from skvnce._imputer.held_out import hold_out, row_folds
from skvnce.columns.fit import hold_out_rows, mask_cells


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
    nodes, hidden = mask_cells(rows)
    assert not np.isnan(nodes[hidden]).any()
    assert sorted(nodes[hidden].tolist()) == sorted(rows[~np.isnan(rows)].tolist())
    assert hidden.any(1).all()  # no copy of a row without a hidden cell
    # of five masks, those that hide at least one of the k cells of a row (occupancy)
    k = (~np.isnan(rows)).sum(1)
    mean, variance = 5 - 5 * 0.8**k, 20 * 0.6**k + 5 * 0.8**k - 25 * 0.64**k
    error = np.sqrt(k**2 @ variance)
    assert abs((~np.isnan(nodes)).sum() - k @ mean) < 4 * error


def binary(rng, n=3000):
    """Make four columns of one factor; a fifth of the last is missing."""
    factor = rng.normal(size=(n, 1))
    nodes = (factor + 0.6 * rng.normal(size=(n, 4)) > 0).astype(float)
    nodes[rng.random(n) < 0.2, 3] = np.nan
    return nodes


def copied(rng, n=3000):
    return np.repeat(rng.integers(3, size=(n, 1)).astype(float), 2, axis=1)


def towns(rng, n=3000):
    town = rng.integers(12, size=n)
    county = np.where(rng.random(n) < 0.2, np.nan, town // 3)
    return np.column_stack([town, county])


def numbers(rng, n=3000):
    return rng.normal(size=(n, 3))


def held_out(nodes, weights=None, share=0.1):
    weights = np.ones(len(nodes)) if weights is None else weights
    return hold_out(nodes, torch.from_numpy(weights), share)[1].numpy()


@pytest.mark.parametrize("make", [binary, copied, towns, numbers])
def test_a_random_tenth_is_held_out_whatever_rows_contain(make, seed):
    """Also of each value, and in each column independently of the others."""
    nodes = make(np.random.default_rng(seed))
    hidden = held_out(nodes)
    for j, (column, held) in enumerate(zip(nodes.T, hidden.T, strict=True)):
        values = np.unique(column[~np.isnan(column)])
        for some in [column == column, *(column == v for v in values[:12])]:
            if some.sum() >= 100:
                error = np.sqrt(0.1 * 0.9 / some.sum())
                assert abs(held[some].mean() - 0.1) < 5 * error
        both = ~np.isnan(nodes[:, [j - 1, j]]).any(1)
        error = np.sqrt(0.01 * 0.99 / both.sum())
        assert abs((held & hidden[:, j - 1])[both].mean() - 0.01) < 5 * error
    shares = np.bincount(row_folds(nodes), minlength=5) / len(nodes)
    assert abs(shares - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / len(nodes))


@pytest.mark.parametrize("make", [binary, copied, towns, numbers])
def test_held_out_cells_do_not_depend_on_orders(make, rng):
    nodes, rows = make(rng), rng.permutation(3000)
    table = np.column_stack([nodes, held_out(nodes)])
    moved = np.column_stack([nodes[rows], held_out(nodes[rows])])

    def in_order(rows):
        rows = np.nan_to_num(rows, nan=-9.0)
        return rows[np.lexsort(rows.T)]

    np.testing.assert_array_equal(in_order(moved), in_order(table))
    if make is not copied:  # equal columns change places
        turned = held_out(nodes[:, ::-1])
        np.testing.assert_array_equal(turned, held_out(nodes)[:, ::-1])


def test_copies_of_a_row_of_numbers_are_not_on_both_sides(rng):
    """As those of a bootstrap sample, of which a copy would tell the hidden cell."""
    nodes, weights = numbers(rng, 300), rng.integers(1, 4, 300)
    rows = np.repeat(np.arange(300), weights)
    hidden = held_out(nodes, weights.astype(float))
    np.testing.assert_array_equal(held_out(nodes[rows]), hidden[rows])


def test_tables_of_few_different_rows_have_a_gain(seed):
    """Random tenths of eight such tables have .386 with a standard deviation of .03."""
    nodes = binary(np.random.default_rng(seed))
    gain = GaussianImputer(random_state=0).fit(nodes).held_out_gain_
    assert 0.386 - 4 * 0.03 < gain < 0.386 + 4 * 0.03


@pytest.mark.quick
@pytest.mark.parametrize("imputer", [GaussianImputer, MixtureImputer, TableImputer])
@pytest.mark.parametrize("n, d", [(80, 3), (200, 3), (500, 5)])
def test_the_order_of_columns_does_not_matter(imputer, n, d, rng):
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    X[rng.random(X.shape) < 0.15] = np.nan
    X = X[~np.isnan(X).all(1)]
    found = imputer(random_state=0).fit_transform(X)
    turned = imputer(random_state=0).fit_transform(X[:, ::-1])
    np.testing.assert_allclose(turned[:, ::-1], found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("places", [[], [1, 2], [0, 1, 2, 3]])
def test_mixtures_of_columns_in_any_order_are_the_same(places, seed):
    """Also of categories, whose rows are often equally far from two clusters."""
    rng, apart = np.random.default_rng(seed), []
    for _ in range(2):
        X = rng.normal(size=(200, 1)) + rng.normal(size=(200, 4))
        X[:, places] = np.digitize(X[:, places], [-1, 0, 1])
        X[:, 0] = np.round(X[:, 0])
        X[rng.random(X.shape) < 0.2] = np.nan
        X, order = X[~np.isnan(X).all(1)], rng.permutation(4)
        moved = np.flatnonzero(np.isin(order, places))
        imputer = MixtureImputer(random_state=0, categorical_features=places)
        found = imputer.fit_transform(X)
        imputer.set_params(categorical_features=moved)
        turned = imputer.fit_transform(X[:, order])
        apart.append(turned - found[:, order])
    np.testing.assert_allclose(np.concatenate(apart), 0, atol=1e-5)
