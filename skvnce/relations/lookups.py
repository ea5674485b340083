"""Sets of which one is 1, lookups by one or two columns, and steps."""

from itertools import chain
from math import comb, lgamma, log
from typing import NamedTuple

import numpy as np

from skvnce.relations.candidates import linear
from skvnce.relations.columns import Columns
from skvnce.relations.fits import CHANCE, FEWEST, INFORMATIVE
from skvnce.relations.formulas import OTHER, Checked

_TWO_KEYS = -9.0  # rare combinations of two columns name rows: less chance
_PAIRS = 12_000  # of rows that agree in a column, over all columns
_ROWS_OF_STEPS, _LEVELS_OF_STEPS = 40, 20
_REPEATS = 0.3  # share of cells of a key, at least, beside others of the same value
_PER_TARGET = 3  # lookups by two columns of a column
_CHUNK = 1000


def _places(values: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return places of cells among ascending values, and which cells are there."""
    place = np.searchsorted(values, cells).clip(max=len(values) - 1)
    return place, values[place] == cells


class Lookup(NamedTuple):
    """The values of a column by those of others."""

    columns: tuple[int, ...]  # the first one is looked up, by others or a set
    # different cells of the other columns, ascending, by the last column first
    keys: tuple[tuple[float, ...], ...]
    results: tuple[float, ...]

    kind, rank, is_set = "lookup", OTHER, False  # see `Rule`

    def text(self, names: list[str]) -> str:
        """Write which columns determine another one."""
        name, *keys = (names[j] for j in self.columns)
        return f"{', '.join(keys)} -> {name}"

    def solve(self, part: np.ndarray, place: int = 0) -> np.ndarray:
        """Look up the first of `columns` (rows,); NaN for other keys."""
        keys, cells = np.array(self.keys).T[::-1], part[:, :0:-1].T
        of_keys, number = np.zeros(len(self.keys), int), np.zeros(len(part), int)
        is_key = np.ones(len(part), dtype=bool)
        # numbers of all combinations of many columns would overflow
        for column, of_rows in zip(keys, cells, strict=True):
            values = np.unique(column)
            place, is_value = _places(values, of_rows)
            of_keys = len(values) * of_keys + np.searchsorted(values, column)
            present, of_keys = np.unique(of_keys, return_inverse=True)
            number, is_present = _places(present, len(values) * number + place)
            is_key &= is_value & is_present
        return np.where(is_key, np.array(self.results)[number], np.nan)


class Steps(NamedTuple):
    """A column that is constant between cut points of a number."""

    columns: tuple[int, int]  # the column, and the number
    first: tuple[float, ...]  # the smallest number of each block, ascending
    last: tuple[float, ...]  # the largest one
    results: tuple[float, ...]

    kind, rank, is_set = "steps", OTHER, False  # see `Rule`

    def text(self, names: list[str]) -> str:
        """Write which column determines another one."""
        name, number = (names[j] for j in self.columns)
        return f"cut points of {number} -> {name}"

    def solve(self, part: np.ndarray, place: int = 0) -> np.ndarray:
        """Return the value of the block (rows,); NaN between blocks."""
        number = part[:, 1]
        block = np.searchsorted(self.first, number, side="right").clip(1) - 1
        last = np.append(self.last[:-1], np.inf)[block]  # beyond all is in the last one
        return np.where(number <= last, np.array(self.results)[block], np.nan)


# ----------------------------------------
# Sets of 0/1 columns of which one is 1: few rows need to be complete


def one_of_sets(columns: Columns) -> list[Checked]:
    """Find sets of 0/1 columns that never coincide and whose means add up to 1."""
    places = [j for j in columns.numbers if columns.bounds.is_dummy[j]]
    if len(places) < 2:
        return []
    M = columns.observed[:, places]
    X = np.where(M, columns.cells[:, places], 0)
    together, n = X.T @ X, M.sum(0)
    mean = X.sum(0) / n
    expected = (M.T.astype(float) @ M) * np.outer(mean, mean)
    free, sets = np.argsort(-mean, kind="stable").tolist(), []
    while free:
        group = [free.pop(0)]
        for j in free:
            room = 1 - mean[group].sum() + 3 * np.sqrt(mean[j] / n[j])
            if not together[j, group].any() and mean[j] <= room:
                group.append(j)
        usual = [j for j in group if X[:, j].sum() >= INFORMATIVE]
        for members in (group, usual)[: 1 + (usual != group)]:
            pairs = expected[np.ix_(members, members)]
            if _is_set(X[:, members], M[:, members], pairs, len(places)):
                free = [j for j in free if j not in members]
                whole = linear([places[j] for j in members], 1.0, constant=1.0)
                whole = whole._replace(is_set=True)
                support = int(M[:, members].all(1).sum())
                sets.append(Checked(whole, support, 0, whole.columns))
                break
    return sets


def _is_set(X: np.ndarray, M: np.ndarray, expected: np.ndarray, tried: int) -> bool:
    """Tell whether 0/1 columns add up to 1, and not by chance."""
    n, k = M.sum(0), X.shape[1]
    mean = X.sum(0) / n
    error = np.sqrt((mean * (1 - mean) / n).sum())
    full = M.all(1)
    if k < 2 or abs(mean.sum() - 1) > 0.01 + 4 * error or full.sum() < FEWEST:
        return False
    if (X[full].sum(1) != 1).any() or _chance_of_rare(X, M, tried) > CHANCE:
        return False
    none = np.prod(1 - mean)  # the probability that no member is 1
    pairs = expected[np.triu_indices(k, 1)].sum()
    chance = full.sum() * np.log10(1 - none) - pairs / log(10) + 3 + np.log10(tried)
    return chance <= CHANCE and full.sum() * none >= 5


def _chance_of_rare(X: np.ndarray, M: np.ndarray, tried: int) -> float:
    """Return log10 of the chance that members of few ones have them in these rows.

    If they are shuffled, all are beside no 1 of others, and in each complete row that
    needs one there is one.
    """
    total = 0.0
    for j in np.flatnonzero(X.sum(0) < INFORMATIVE):
        n, ones, least = M[:, j].sum(), X[:, j].sum(), X[M.all(1), j].sum()
        free = (M[:, j] & (np.delete(X, j, 1).sum(1) == 0)).sum()
        if not least:
            return 0.0
        ways = comb(int(free - least), int(ones - least)), comb(int(n), int(ones))
        total += np.log10(tried * ways[0] / ways[1])
    return total or 2 * CHANCE


# ----------------------------------------
# Lookups


def lookups(columns: Columns, sources: list[int], *, wide: bool) -> list[Checked]:
    """Find lookups by one of the sources and, unless the table is wide, by two."""
    n_rows, p = columns.cells.shape
    n_values, n_observed = columns.n_values, columns.observed.sum(0)
    is_target = (n_values >= 2) & ~columns.names_rows
    # keys repeat in 30 % of the cells; both cells of a pair are observed more rarely
    repeats = n_observed - n_values >= _REPEATS * n_observed**2 / n_rows
    is_key = is_target & repeats & (n_observed >= 15) & np.isin(range(p), sources)
    if not is_key.any():
        return []
    agree, differ = _pairs_of_rows(columns, np.flatnonzero(is_key))
    shown = (agree.T @ differ == 0) & (agree.T @ agree >= 5) & ~np.eye(p, dtype=bool)
    rules, is_open = [], is_target & ~np.eye(p, dtype=bool)  # by a key and another one
    for x, y in np.argwhere(shown & is_key[:, None] & is_target).tolist():
        lookup = _lookup(columns, (x,), y, is_key.sum() * is_target.sum())
        rules += [lookup] * (lookup is not None)
        is_open[x, y] = lookup is None
    few = np.flatnonzero(is_key & (n_values <= max(200, n_rows // 20)))
    a, b = few[np.stack(np.triu_indices(len(few), 1))]
    pairs = np.stack([a, b], 1)[is_open[a, b] & is_open[b, a]][: 0 if wide else None]
    for y, pairs_of_y in _targets_of_pairs(agree, differ, pairs, is_open).items():
        best = sorted(pairs_of_y, reverse=True)[:8]
        tried = len(pairs) * is_target.sum()
        of_y = [_lookup(columns, (u, v), y, tried) for _, u, v in best]
        rules += [lookup for lookup in of_y if lookup is not None][:_PER_TARGET]
    return rules


def _targets_of_pairs(
    agree: np.ndarray, differ: np.ndarray, pairs: np.ndarray, is_open: np.ndarray
) -> dict[int, list[tuple]]:
    """List (support, a, b) of pairs of keys by the columns that they may determine."""
    by_target = {}
    for start in range(0, len(pairs), _CHUNK):
        a, b = pairs[start : start + _CHUNK].T
        both = agree[:, a] * agree[:, b]
        support = both.T @ agree
        good = (both.T @ differ == 0) & (support >= 10) & is_open[a] & is_open[b]
        for i, y in np.argwhere(good).tolist():
            by_target.setdefault(y, []).append((support[i, y], int(a[i]), int(b[i])))
    return by_target


def names_of_sets(rules: list[Checked]) -> list[Checked]:
    """Look up columns that determine a set of which one is 1, and follow from it."""
    lookups = {
        checked.columns: checked
        for checked in rules
        if isinstance(checked.rule, Lookup)
    }
    names = []
    for places in [checked.columns for checked in rules if checked.rule.is_set]:
        for name in sorted({pair[-1] for pair in lookups} - set(places)):
            by_name = [lookups[j, name] for j in places if (j, name) in lookups]
            ones = [
                [
                    key
                    for (key,), cell in zip(*lookup.rule[1:], strict=True)
                    if cell == 1
                ]
                for lookup in by_name
            ]
            if len(ones) == len(places) and all(len(keys) == 1 for keys in ones):
                keys = tuple(map(tuple, np.eye(len(places)).tolist()))
                rule = Lookup((name, *places), keys, tuple(chain(*ones)))
                support = min(lookup.support for lookup in by_name)
                names.append(Checked(rule, support, 0, (name,)))
    return names


def _pairs_of_rows(columns: Columns, keys: np.ndarray) -> tuple:
    """Pair rows that agree in a column; say where they agree, and where they differ."""
    firsts, seconds = [], []
    for j in keys:
        rows = columns.complete([j])
        rows = columns.rng.permutation(rows)[:3000]
        rows = rows[np.argsort(columns.codes[rows, j], kind="stable")]
        same = np.flatnonzero(np.diff(columns.codes[rows, j]) == 0)
        most = max(100, _PAIRS // columns.cells.shape[1])
        same = columns.rng.permutation(same)[:most]
        firsts.append(rows[same])
        seconds.append(rows[same + 1])
    first, second = (columns.codes[np.concatenate(side)] for side in (firsts, seconds))
    both = (first >= 0) & (second >= 0)
    equal = first == second
    return (both & equal).astype(np.float32), (both & ~equal).astype(np.float32)


def _lookup(columns: Columns, sources: tuple, y: int, tried: int) -> Checked | None:
    """Check a lookup in all rows."""
    places = [y, *sources]
    rows = columns.complete(places)
    if len(rows) < FEWEST + 5:
        return None
    order = np.lexsort(columns.codes[np.ix_(rows, places)].T)  # by the last key first
    rows = rows[order]
    codes = columns.codes[np.ix_(rows, places)]
    begin = np.flatnonzero(np.r_[True, (np.diff(codes[:, 1:], axis=0) != 0).any(1)])
    results = codes[:, 0]
    lowest = np.minimum.reduceat(results, begin)
    if (lowest != np.maximum.reduceat(results, begin)).any():
        return None
    sizes = np.diff(np.r_[begin, len(rows)])
    is_usual = lowest == np.bincount(results).argmax()
    support = len(rows) - len(sizes)
    if support < FEWEST or (sizes - 1)[~is_usual].sum() < INFORMATIVE:
        return None
    limit = CHANCE if len(sources) == 1 else _TWO_KEYS
    if _chance(codes, begin, sizes) + np.log10(tried) > limit:
        return None
    cells = columns.cells[np.ix_(rows[begin], places)]
    keys = tuple(map(tuple, cells[:, 1:].tolist()))
    rule = Lookup(tuple(places), keys, tuple(cells[:, 0].tolist()))
    return Checked(rule, support, 0, (y,))


def _chance(codes: np.ndarray, begin: np.ndarray, sizes: np.ndarray) -> float:
    """Bound log10 of the probability that shuffled values agree within keys.

    With two sources values are shuffled within each of them, so that a key that nearly
    determines the column needs the second one.
    """
    results, sources = codes[:, 0], codes[:, 1:].T
    if len(sources) == 1:
        return _log_agreement(results, sizes)
    bounds = []
    for source in sources:
        groups = np.argsort(source, kind="stable")
        edges = np.flatnonzero(np.diff(source[groups])) + 1
        first = source[begin]
        bounds.append(
            sum(
                _log_agreement(results[rows], sizes[first == source[rows[0]]])
                for rows in np.split(groups, edges)
            )
        )
    return max(bounds)


def _log_agreement(results: np.ndarray, sizes: np.ndarray) -> float:
    """Bound log10 of the probability that shuffled results agree within keys.

    It is at most prod over keys of sum_v p_v^(size of the key), and the number of ways
    to give keys results by that of orders of the results: less for rare ones.
    """
    if (sizes == 1).all():  # shuffled results agree, too
        return 0.0
    counts = np.bincount(results)
    counts = counts[counts > 0]
    orders = lgamma(len(results) + 1) - sum(lgamma(n + 1) for n in counts.tolist())
    ways = len(sizes) * log(len(counts))
    sizes, n_keys = np.unique(sizes[sizes > 1], return_counts=True)
    shares = (counts / len(results))[:, None]
    logs = np.log10(np.maximum((shares**sizes).sum(0), 1e-300))
    return min(float((logs * n_keys).sum()), (ways - orders) / log(10))


# ----------------------------------------
# Steps


def steps(columns: Columns, sources: list[int]) -> list[Checked]:
    """Find columns that are constant between cut points of a number."""
    n_values = columns.n_values
    xs = [j for j in sources if n_values[j] >= 8 and not columns.names_rows[j]]
    ys = np.flatnonzero((n_values >= 2) & (n_values <= _LEVELS_OF_STEPS)).tolist()
    rules = []
    for x in xs:
        rows = columns.sample[columns.codes[columns.sample, x] >= 0]
        rows = rows[np.argsort(columns.codes[rows, x], kind="stable")]
        sorted_codes = columns.codes[rows]
        for y in ys:
            codes = sorted_codes[:, y]
            codes = codes[codes >= 0]
            few = np.count_nonzero(np.diff(codes)) <= n_values[y] - 1
            if x != y and few and 2 * n_values[y] <= n_values[x]:
                rule = _steps(columns, x, y, len(xs) * len(ys))
                rules += [rule] * (rule is not None)
    return rules


def _steps(columns: Columns, x: int, y: int, tried: int) -> Checked | None:
    rows = columns.complete([x, y])
    rows = rows[np.lexsort(columns.codes[np.ix_(rows, [y, x])].T)]
    codes, key = columns.codes[rows, y], columns.codes[rows, x]
    change = np.flatnonzero(np.diff(codes)) + 1
    if len(change) >= len(np.unique(codes)) or (key[change] == key[change - 1]).any():
        return None
    begin = np.r_[0, change]
    sizes = np.diff(np.r_[begin, len(codes)])
    n, k = len(codes), len(sizes)
    if n - sizes.max() < INFORMATIVE + k or n < _ROWS_OF_STEPS + 2 * k:
        return None
    orders = lgamma(k + 1) - lgamma(n + 1) + sum(lgamma(size + 1) for size in sizes)
    if orders / log(10) + np.log10(tried) > CHANCE:
        return None
    cells = columns.cells[rows]
    parts = cells[begin, x], cells[np.r_[change, n] - 1, x], cells[begin, y]
    rule = Steps((y, x), *(tuple(part.tolist()) for part in parts))
    return Checked(rule, n, 0, (y,))
