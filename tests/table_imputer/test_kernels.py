"""Compiled loops against dense algebra, and trees against plain walks."""

import numpy as np
import pytest
from oracles import normal_means

from skvnce.table_imputer.kernels import complete_rows, grow_forest, predict_forest

MEAN = np.array([1.0, -2.0, 0.5, 0.0])


def covariance_of(rng, d=4):
    A = rng.normal(size=(d, d))
    return A @ A.T + 0.3 * np.eye(d)


def table_with_gaps(rng, n=40):
    X = rng.normal(size=(n, 4)) + MEAN
    X[rng.random(X.shape) < 0.4] = np.nan
    X[0] = np.nan
    return X


def filled(X, S, order=None, noise=None, weights=None, gone=None, total=None):
    X, n = X.copy(), len(X)
    gone = np.isnan(X) if gone is None else gone
    order = np.arange(n) if order is None else order
    noise = np.zeros((n, 0)) if noise is None else noise
    weights = np.ones(n) if weights is None else weights
    total = np.zeros((0, 0)) if total is None else total
    complete_rows(X, gone, order, MEAN, np.linalg.inv(S), noise, weights, total)
    return X


def test_means_are_those_of_dense_algebra_in_any_order_of_rows(rng):
    X, S = table_with_gaps(rng), covariance_of(rng)
    exact = normal_means(MEAN, S, X)
    sorted_ = np.lexsort(np.isnan(X).T)
    for order in (np.arange(len(X)), sorted_, rng.permutation(len(X))):
        np.testing.assert_allclose(filled(X, S, order), exact, atol=1e-10)
    # control
    assert abs(filled(X, np.eye(4)) - exact).max() > 0.1


def test_values_under_the_mask_do_not_matter(rng):
    X, S = table_with_gaps(rng), covariance_of(rng)
    gone = np.isnan(X)
    for value in (0.0, -1e6, np.inf):
        other = np.where(gone, value, X)
        np.testing.assert_array_equal(filled(other, S, gone=gone), filled(X, S))


@pytest.mark.parametrize("is_sorted", [False, True])
def test_conditional_covariances_are_summed(rng, is_sorted):
    X, S = table_with_gaps(rng), covariance_of(rng)
    weights = rng.integers(0, 4, len(X)).astype(float)
    exact, total = np.zeros((4, 4)), np.full((4, 4), 0.25)
    for row, weight in zip(X, weights, strict=True):
        m = np.isnan(row)
        pull = S[np.ix_(m, ~m)] @ np.linalg.inv(S[np.ix_(~m, ~m)])
        exact[np.ix_(m, m)] += weight * (S[np.ix_(m, m)] - pull @ S[np.ix_(~m, m)])
    order = np.lexsort(np.isnan(X).T) if is_sorted else None
    filled(X, S, order, weights=weights, total=total)
    np.testing.assert_allclose(total - 0.25, exact, atol=1e-10)


def test_draws_have_the_conditional_covariance(rng):
    """Noise of each unit vector in turn: outer products sum to the covariance."""
    S = covariance_of(rng)
    X = np.tile([np.nan, 0.3, np.nan, np.nan], (3, 1))
    deviations = filled(X, S, noise=np.eye(3)) - filled(X, S)
    m = np.array([0, 2, 3])
    exact = S[np.ix_(m, m)] - np.outer(S[m, 1], S[1, m]) / S[1, 1]
    found = deviations[:, m].T @ deviations[:, m]
    np.testing.assert_allclose(found, exact, atol=1e-10)
    assert (deviations[:, 1] == 0).all()


# Trees

N, P = 30, 3


def forest(G, target, n_levels=0, weights=None, n_trees=6, share=0.7, seed=5):
    """Grow trees of numbers (C, n), or of levels (n,)."""
    n = G.shape[2]
    weights = np.ones(n) if weights is None else weights
    Y = np.zeros((1, 1)) if n_levels else target
    codes = target if n_levels else np.zeros(n, np.int64)
    return grow_forest(G, Y, codes, n_levels, weights, n_trees, share, 2, 2, seed)


def leaf_of(tree, x):
    """Walk down a tree; return the nodes on the way."""
    feature, bound, left, right = tree
    nodes = [0]
    while feature[nodes[-1]] >= 0:
        node = nodes[-1]
        is_left = x[feature[node]] <= bound[node]
        nodes.append(int(left[node] if is_left else right[node]))
    return nodes


def walks(G, trees, t):
    tree = [one[t] for one in trees[:4]]
    return [leaf_of(tree, x) for x in G.T]


def node_means(G, trees, t, Y, weights):
    """Average rows (n, width) of Y in each node of a tree of all rows."""
    sums, total = np.zeros(trees[4][t].shape), np.zeros(trees[4].shape[1])
    for nodes, y, w in zip(walks(G, trees, t), Y, weights, strict=True):
        sums[nodes] += w * y
        total[nodes] += w
    used = total > 0
    return used, sums[used] / total[used, None]


@pytest.mark.parametrize("n_levels", [0, 2, 3])
def test_values_of_nodes_are_weighted_means_of_their_rows(rng, n_levels):
    C = 2
    G, weights = rng.normal(size=(C, P, N)), rng.uniform(0.5, 2, N)
    if n_levels:
        target = rng.integers(0, n_levels, N)
        Y = np.tile(np.eye(n_levels)[target], (C, 1, 1))
    else:
        target = rng.normal(size=(C, N))
        Y = target[..., None]
    trees, _, counts = forest(G, target, n_levels, weights, share=1.0)
    assert (counts == 0).all()
    for t in range(6):
        c = t % C
        used, means = node_means(G[c], trees, t, Y[c], weights)
        np.testing.assert_allclose(trees[4][t][used], means, atol=1e-10)
        assert used.sum() > 5
    # control: the tree of another completion
    used, means = node_means(G[1], trees, 0, Y[1], weights)
    assert abs(trees[4][0][used] - means).max() > 0.01


def test_two_levels_are_numbers(rng):
    G, codes = rng.normal(size=(1, P, N)), rng.integers(0, 2, N)
    levels, held_out, counts = forest(G, codes, 2)
    numbers, of_numbers, _ = forest(G, codes[None].astype(float))
    for one, other in zip(levels[:4], numbers[:4], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(levels[4][..., 1:], numbers[4], atol=1e-12)
    np.testing.assert_allclose(held_out[..., 1:], of_numbers, atol=1e-12)
    np.testing.assert_allclose(held_out[0].sum(-1), counts > 0)


def test_held_out_predictions_are_of_trees_without_the_row(rng):
    """Targets are powers of two, so that the mean of a root tells its rows."""
    G, powers = rng.normal(size=(1, P, N)), np.arange(N)
    trees, held_out, counts = forest(G, 2.0 ** powers[None])
    sums = (trees[4][:, 0, 0] * int(0.7 * N)).round().astype(np.int64)
    with_row = (sums[:, None] >> powers) % 2 == 1
    assert (with_row.sum(1) == int(0.7 * N)).all()
    np.testing.assert_array_equal((~with_row).sum(0), counts)
    alone = (np.array([[t]]) for t in range(6))
    each = np.array([predict_forest(G, trees, one)[0, :, 0] for one in alone])
    exact = np.where(with_row, 0, each).sum(0)
    np.testing.assert_allclose(held_out[0, :, 0] * counts, exact, rtol=1e-10)


@pytest.mark.parametrize("n_levels", [0, 2, 4])
def test_weights_are_repeated_rows(rng, n_levels):
    G, weights = rng.normal(size=(1, P, N)), np.repeat(rng.integers(1, 4, N), 5)
    # sums are exact, so that ties between splits are ties in both
    codes, Y = rng.integers(0, max(n_levels, 1), N), rng.integers(-50, 50, N) / 8
    target = codes if n_levels else Y[None]
    # nodes of fewer than five rows are leaves
    G, target = np.repeat(G, 5, axis=2), np.repeat(target, 5, axis=-1)
    repeated = np.repeat(G, weights, axis=2), np.repeat(target, weights, axis=-1)
    weighted, *_ = forest(G, target, n_levels, weights.astype(float), share=1.0)
    counted, *_ = forest(*repeated, n_levels, share=1.0)
    plain, *_ = forest(G, target, n_levels, share=1.0)
    used = weighted[4].shape[1]
    for one, other in zip(weighted, counted, strict=True):
        np.testing.assert_allclose(one, other[:, :used], atol=1e-10)
    assert not np.array_equal(weighted[1], plain[1])  # control


@pytest.mark.parametrize("n_levels", [0, 3])
def test_forests_predict_as_plain_walks(rng, n_levels):
    G, codes = rng.normal(size=(1, P, N)), rng.integers(0, 3, N)
    trees, *_ = forest(G, codes if n_levels else rng.normal(size=(1, N)), n_levels)
    new, chosen = rng.normal(size=(2, P, 7)), np.array([[0, 1, 5], [2, 2, 3]])
    found = predict_forest(new, trees, chosen)
    for m in range(2):
        ends = [[walk[-1] for walk in walks(new[m], trees, t)] for t in chosen[m]]
        each = [trees[4][t][rows] for t, rows in zip(chosen[m], ends, strict=True)]
        np.testing.assert_allclose(found[m], np.mean(each, 0), atol=1e-12)


def test_trees_of_constant_features_or_targets_are_roots(rng):
    G, Y = rng.normal(size=(1, P, N)), rng.normal(size=(1, N))
    for features, target in ((np.ones_like(G), Y), (G, np.full((1, N), 3.0))):
        trees, held_out, counts = forest(features, target)
        assert (trees[0] == -1).all() and trees[0].shape[1] == 1
        assert np.isfinite(held_out).all()
