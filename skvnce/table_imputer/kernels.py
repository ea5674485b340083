"""Compiled loops: conditional normal distributions of rows, and randomised trees.

Trees are extremely randomised (Geurts, Ernst and Wehenkel 2006): a split is the best of
a few random bounds of some random features.
"""

import numpy as np

from skvnce._core.compiled import compiled
from skvnce._core.random import GOLDEN, scramble

Array = np.ndarray
_FEWEST = 5  # rows of a node that is split, as Geurts et al. have it for numbers
_LEAST_PIVOT = 1e-10  # a precision matrix of standardised columns may be singular
_BITS = np.uint64(11)  # that are left out of 64: a float has 53


# Inner loops run along the rows of the factor, which are contiguous.
_SUMS = {"reassoc", "nsz"}  # sums in any order, as vectors


@compiled(fastmath=_SUMS, inline="always")
def _factorise(A: Array, m: int) -> None:
    """Replace the lower triangle of A[:m, :m] by its Cholesky factor L."""
    for i in range(m):
        for j in range(i + 1):
            s = 0.0
            for k in range(j):
                s += A[i, k] * A[j, k]
            s = A[i, j] - s
            A[i, j] = np.sqrt(max(s, _LEAST_PIVOT)) if i == j else s / A[j, j]


@compiled(fastmath=_SUMS, inline="always")
def _solve_lower(L: Array, m: int, b: Array, first: int) -> None:
    """Replace b by L^-1 b, if b is 0 before `first`."""
    for i in range(first, m):
        s = 0.0
        for k in range(first, i):
            s += L[i, k] * b[k]
        b[i] = (b[i] - s) / L[i, i]


@compiled(inline="always")
def _solve_upper(L: Array, m: int, b: Array, first: int) -> None:
    """Replace b from `first` on by L^-T b."""
    for i in range(m - 1, first - 1, -1):
        s = b[i] / L[i, i]
        b[i] = s
        for k in range(first, i):
            b[k] -= L[i, k] * s


@compiled(fastmath=_SUMS)
def complete_rows(
    X: Array,  # (n, d), it is written to
    gone: Array,  # bool (n, d)
    order: Array,
    mean: Array,  # (d,)
    precision: Array,  # (d, d)
    noise: Array,
    weights: Array,  # (n,)
    covariance: Array,
) -> None:
    """Replace the cells `gone` of X by their conditional means given the others.

    `order`, int (n,): of the rows; equal patterns that follow each other share a
    factorisation; `noise` (n, at least the largest number of missing cells of a row):
    standard normal numbers, by which cells are drawn; or of shape (n, 0); `covariance`
    (d, d) or (0, 0): the weighted sum of conditional covariances is added to it.
    """
    d = X.shape[1]
    ix, A = np.empty(d, np.int64), np.empty((d, d))
    b, e = np.empty(d), np.empty(d)
    m, total, last = 0, 0.0, -1
    for q in range(len(order)):
        i = order[q]
        same = last >= 0
        for j in range(d):
            if same and gone[i, j] != gone[last, j]:
                same = False
        if not same:
            _add_inverse(covariance, A, ix, m, total, e)
            m, total = 0, 0.0
            for j in range(d):
                if gone[i, j]:
                    ix[m] = j
                    m += 1
            for a in range(m):
                for c in range(a + 1):
                    A[a, c] = precision[ix[a], ix[c]]
            _factorise(A, m)
        last = i
        total += weights[i]
        for a in range(m):
            X[i, ix[a]] = mean[ix[a]]
        for a in range(m):
            s = 0.0
            for j in range(d):
                s += precision[ix[a], j] * (X[i, j] - mean[j])
            b[a] = s
        _solve_lower(A, m, b, 0)
        _solve_upper(A, m, b, 0)
        for a in range(m):
            e[a] = noise[i, a] if noise.shape[1] else 0.0
        if noise.shape[1]:
            _solve_upper(A, m, e, 0)
        for a in range(m):
            X[i, ix[a]] = mean[ix[a]] - b[a] + e[a]
    _add_inverse(covariance, A, ix, m, total, e)


@compiled(inline="always")
def _add_inverse(C, L, ix, m, weight, e):
    """Add weight times (L L')^-1 to the rows and columns ix[:m] of C."""
    if not C.shape[0] or weight == 0.0:
        return
    for c in range(m):
        e[:m] = 0.0
        e[c] = 1.0
        _solve_lower(L, m, e, c)
        _solve_upper(L, m, e, c)
        C[ix[c], ix[c]] += weight * e[c]
        for a in range(c + 1, m):
            C[ix[a], ix[c]] += weight * e[a]
            C[ix[c], ix[a]] += weight * e[a]


@compiled()
def interpolate(x: Array, knots: Array, values: Array, first: float, last: float):
    """Map numbers (n,) by a piecewise linear function, NaN to NaN.

    `first`, `last`: its slopes beyond the ends of the knots (k,), which increase.
    """
    n, y, places = len(knots), np.empty(len(x)), np.zeros(len(x), np.int64)
    # all numbers are halved together, as vectors: branches would be guessed
    while n > 1:
        half = n // 2
        for i in range(len(x)):
            j = places[i]
            places[i] = j + half if knots[j + half] <= x[i] else j
        n -= half
    for i in range(len(x)):
        v, j = x[i], places[i]
        if v < knots[0]:
            y[i] = values[0] + (v - knots[0]) * first
        elif j == len(knots) - 1:
            y[i] = values[j] + (v - knots[j]) * last
        else:
            slope = (values[j + 1] - values[j]) / (knots[j + 1] - knots[j])
            y[i] = slope * (v - knots[j]) + values[j]
    return y


@compiled(fastmath=True)
def _leaf(G: Array, i: int, feature: Array, bound: Array, left: Array, right: Array):
    """Find the leaf of row i of features G (p, n) in one tree."""
    node = 0
    while feature[node] >= 0:
        is_left = G[feature[node], i] <= bound[node]
        node = left[node] if is_left else right[node]
    return node


@compiled(fastmath=True)
def _sums_below(x: Array, y: Array, w: Array, n: int, bound: float):
    """Sum weights and weighted numbers of the cells up to a bound."""
    total, sums = 0.0, 0.0
    for i in range(n):
        inside = w[i] if x[i] <= bound else 0.0
        total += inside
        sums += inside * y[i]
    return total, sums


@compiled(fastmath=True, inline="always")
def _gather(Y, codes, n_levels, weights, rows, y, w, z, s):
    """Put the cells of a node side by side; sum weights, targets (s) and squares."""
    s[:] = 0.0
    squares, total = 0.0, 0.0
    for i in range(len(rows)):
        r = rows[i]
        w[i] = weights[r]
        total += w[i]
        if n_levels > 2:
            y[i], z[i] = 1.0, codes[r]
            s[z[i]] += w[i]
            squares += w[i]
        else:
            y[i], z[i] = codes[r] if n_levels == 2 else Y[r], 0
            s[0] += w[i] * y[i]
            squares += w[i] * y[i] * y[i]
    return total, squares


# Rows that are summed as vectors, and the length of a vector of bounds: the sums of
# fewer rows would be a branch for each cell, which no machine foresees.
_BLOCK = 8


@compiled(fastmath={"contract"})
def _add_below(lanes, n_lanes, y, w, z, first, n):
    """Add the cells from `first` on to the sums below all bounds of a node."""
    bounds, totals = lanes[0], lanes[1]
    for i in range(first, n):
        x, sums, v, u = lanes[i - n], lanes[2 + z[i]], w[i], y[i]
        for q in range(n_lanes):
            inside = v if x[q] <= bounds[q] else 0.0
            totals[q] += inside
            sums[q] += inside * u


@compiled(fastmath=True)
def _gains(lanes, n_lanes, s, s_left, total, base):
    """Replace the weights below bounds by the gains of these."""
    for q in range(n_lanes):
        w_left, gain = lanes[1, q], -base
        for k in range(len(s)):
            s_left[k] = lanes[2 + k, q]
        for k in range(len(s)):
            rest = s[k] - s_left[k]
            gain += s_left[k] * s_left[k] / w_left
            gain += rest * rest / (total - w_left)
        lanes[1, q] = gain


# SplitMix64 (Steele, Lea and Flood 2014): forests take a fifth less time with it than
# with the generator of numba
_mix = compiled(inline="always")(scramble)


@compiled(inline="always")
def _uniform(state: Array) -> float:
    """Draw a number from 0 up to 1, and step the state (1,), uint64."""
    state[0] += GOLDEN
    return np.float64(_mix(state[0]) >> _BITS) * 2.0**-53


@compiled(fastmath=True)
def _best_split(
    G, rows, x, y, w, z, s, s_left, lanes, total, base, order, n_tried, n_bounds, state
):
    """Choose the best of some random bounds of some features; -1 if none gains.

    Columns of `lanes` are bounds: themselves, the weights and the targets up to them,
    their feature, and the values of the last rows.
    """
    n, width = len(rows), len(s)
    tried, used, last = 0, 0, len(order)
    first = 0 if width > 1 else n - n % _BLOCK  # of levels none is summed so
    while tried < n_tried and last > 0:
        q = int(_uniform(state) * last)
        f = order[q]
        last -= 1
        order[q] = order[last]
        order[last] = f
        low = G[f, rows[0]]
        high = low
        for i in range(n):
            v = G[f, rows[i]]
            x[i] = v
            low, high = min(low, v), max(high, v)
        if high - low <= 1e-9:
            continue
        tried += 1
        for _ in range(n_bounds):
            t = low + (high - low) * _uniform(state)
            if t >= high:
                t = low
            lanes[0, used], lanes[2 + width, used] = t, f
            for k in range(1, 2 + width):
                lanes[k, used] = 0.0
            if first:
                lanes[1, used], lanes[2, used] = _sums_below(x, y, w, first, t)
            for i in range(first, n):
                lanes[i - n, used] = x[i]
            used += 1
    _add_below(lanes, used + -used % _BLOCK, y, w, z, first, n)
    _gains(lanes, used, s, s_left, total, base)
    best, best_feature, best_bound = 1e-12, -1, 0.0
    for q in range(used):
        if lanes[1, q] > best:
            best, best_bound = lanes[1, q], lanes[0, q]
            best_feature = int(lanes[2 + width, q])
    return best_feature, best_bound


@compiled()
def _partition(x: Array, bound: float, rows: Array, above: Array) -> int:
    """Put rows up to a bound of a feature before the others; return their number.

    `above`, int: a buffer.  No row is a branch, which no machine would foresee.
    """
    i, j = 0, 0
    for q in range(len(rows)):
        r = rows[q]
        rows[i], above[j] = r, r
        is_below = x[r] <= bound
        i += is_below
        j += 1 - is_below
    rows[i:] = above[:j]
    return i


@compiled(fastmath=True)
def _grow(G, Y, codes, n_levels, weights, rows, n_tried, n_bounds, state, tree):
    """Grow one tree on some rows, which are permuted; return its number of nodes.

    Its targets are levels `codes` (n,), or numbers Y (n,) if `n_levels` is 0.  Nodes
    of fewer than five rows are leaves.  Two levels are numbers 0 and 1 here.
    """
    feature, bound, left, right, value = tree
    n_all, many = len(rows), n_levels > 2
    width = n_levels if many else 1
    stack = np.empty((n_all + 2, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, n_all
    top, n_nodes = 1, 1
    s, s_left, order = np.empty(width), np.empty(width), np.arange(G.shape[0])
    # cells of a node side by side, which the loops over them read several times
    x, y, w = np.empty(n_all), np.empty(n_all), np.empty(n_all)
    z = np.empty(n_all, np.int64)
    n_rows = 3 + width + (n_all if many else _BLOCK)
    lanes = np.empty((n_rows, n_tried * n_bounds + _BLOCK))
    while top > 0:
        top -= 1
        node, a, b = stack[top, 0], stack[top, 1], stack[top, 2]
        in_node = rows[a:b]
        total, squares = _gather(Y, codes, n_levels, weights, in_node, y, w, z, s)
        base = 0.0
        for k in range(width):
            base += s[k] * s[k] / total
            if many:
                value[node, k] = s[k] / total
        if not many:
            value[node, n_levels - 1 if n_levels else 0] = s[0] / total
            if n_levels:
                value[node, 0] = 1.0 - s[0] / total
        feature[node] = -1
        if b - a < _FEWEST or squares - base <= 1e-9 * total:
            continue
        buffers = x, y, w, z, s, s_left, lanes
        tries = order, n_tried, n_bounds, state
        f, t = _best_split(G, in_node, *buffers, total, base, *tries)
        if f < 0:
            continue
        i = a + _partition(G[f], t, in_node, z)
        feature[node], bound[node] = f, t
        left[node], right[node] = n_nodes, n_nodes + 1
        stack[top, 0], stack[top, 1], stack[top, 2] = n_nodes, a, i
        stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = n_nodes + 1, i, b
        top += 2
        n_nodes += 2
    return n_nodes


@compiled(fastmath=True)
def grow_forest(
    G: Array,  # (C, p, n), features of each completion
    Y: Array,  # (C, n), targets, if `n_levels` is 0
    codes: Array,  # int (n,), targets, if it is not
    n_levels: int,
    weights: Array,  # (n,)
    n_trees: int,
    share: float,
    n_tried: int,  # features of a split, and bounds of each of them
    n_bounds: int,
    seed: int,
):
    """Grow trees, tree t on completion t % C, each on a share of the rows.

    Returns `trees`, tuple of ndarray of shape (n_trees, n_nodes) or (n_trees, n_nodes,
    width): feature (-1 in leaves), bound, left, right and value of each node;
    `held_out` (C, n, width): means over the trees that a row is not in, at the features
    of *each* completion: the mean over completions would reveal the cell from which
    they are drawn; `counts` (n,): number of these trees.
    """
    C, p, n = G.shape
    width = max(n_levels, 1)
    size = min(n, max(2, int(n * share)))
    most, used = 2 * size, 0
    feature, bound = np.full((n_trees, most), -1, np.int32), np.zeros((n_trees, most))
    left, right = np.zeros((2, n_trees, most), np.int32)
    value = np.zeros((n_trees, most, width))
    held_out, counts = np.zeros((C, n, width)), np.zeros(n)
    shuffled, of_rows = np.arange(n), np.array([seed], np.uint64)
    for t in range(n_trees):
        for i in range(size):
            q = i + int(_uniform(of_rows) * (n - i))
            shuffled[i], shuffled[q] = shuffled[q], shuffled[i]
        rows = shuffled[:size].copy()
        tree = feature[t], bound[t], left[t], right[t], value[t]
        # splits do not depend on how often a row is repeated
        of_splits = np.array([seed + 104729 * t + 3], np.uint64)
        target = Y[t % len(Y)], codes, n_levels, weights
        n_nodes = _grow(G[t % C], *target, rows, n_tried, n_bounds, of_splits, tree)
        used = max(used, n_nodes)
        for q in range(size, n):
            i = shuffled[q]
            for c in range(C):
                leaf = _leaf(G[c], i, feature[t], bound[t], left[t], right[t])
                for k in range(width):
                    held_out[c, i, k] += value[t, leaf, k]
            counts[i] += 1
    for i in range(n):
        if counts[i] > 0:
            held_out[:, i] /= counts[i]
    trees = (
        feature[:, :used].copy(),
        bound[:, :used].copy(),
        left[:, :used].copy(),
        right[:, :used].copy(),
        value[:, :used].copy(),
    )
    return trees, held_out, counts


@compiled(fastmath=True)
def predict_forest(G: Array, trees: tuple, chosen: Array) -> Array:
    """Average the trees chosen[m] at features G (M, p, n); (M, n, width)."""
    feature, bound, left, right, value = trees
    M, _, n = G.shape
    width, predicted = value.shape[2], np.zeros((M, n, value.shape[2]))
    for m in range(M):
        for q in range(chosen.shape[1]):
            t = chosen[m, q]
            for i in range(n):
                leaf = _leaf(G[m], i, feature[t], bound[t], left[t], right[t])
                for k in range(width):
                    predicted[m, i, k] += value[t, leaf, k]
    return predicted / chosen.shape[1]
