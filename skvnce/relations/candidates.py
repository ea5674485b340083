"""Candidates for formulas, by matrix products over a sample of the rows."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from skvnce.relations.columns import Columns, blocks
from skvnce.relations.formulas import FUNCTIONS, Formula

# least correlations of a column with a function, or a product, of others; digits in
# which they differ; rows of the sample
_CURVE = 0.985, 4, 800
_PRODUCT = 0.998, 6, 600
_UNEXPLAINED = 2e-3  # share of the variance that two columns leave, at most
_LOOSE, _MOST_LEFT = 0.2, 0.3  # the same of many columns, with filled cells
_TRIPLE_ROWS = 500
_CHUNK = 2000
_LONGEST = 24  # columns of a linear relation
_FARTHEST = 6  # standard deviations, beyond which cells would dominate moments

Pairs = list[tuple[int, int]]


def curves(columns: Columns) -> tuple[int, list[Formula]]:
    """List y = a + b g(x).

    As all lists, it is sorted, the strongest and simplest formulas first, and comes
    with the number of those from which they are chosen.
    """
    terms = [
        ((x, g),)
        for x in columns.curved
        for g, function in FUNCTIONS.items()
        if columns.sign(x) in function.signs
    ]
    return _by_terms(columns, terms, columns.curved, _CURVE)


def products(columns: Columns, pairs: Pairs) -> tuple[int, list[Formula]]:
    """List y = a + b u v and y = a + b u / v, of pairs that may be factors."""
    curved, bounds = set(columns.curved), columns.bounds
    # there may be zeros, where a ratio is undefined
    divisors = {j for j in curved if bounds.low[j] * bounds.high[j] >= 0}
    ratios = [(u, v) for u, v in pairs if u in curved and v in divisors]
    ratios += [(v, u) for u, v in pairs if v in curved and u in divisors]
    terms = [((u, "same"), (v, "same")) for u, v in pairs]
    terms += [((u, "same"), (v, "inverse")) for u, v in ratios]
    return _by_terms(columns, terms, columns.numbers, _PRODUCT)


def _by_terms(
    columns: Columns, terms: list[tuple], places: list[int], screen: tuple
) -> tuple[int, list[Formula]]:
    """List y = a + b t, of products t of functions (column, key of FUNCTIONS)."""
    least, digits, n_rows = screen
    if not terms:
        return 0, []
    sample, order = columns.cells[columns.sample[:n_rows]], list(FUNCTIONS)
    factors = sorted({factor for term in terms for factor in term})
    values = np.stack([FUNCTIONS[g].of(sample[:, j]) for j, g in factors], 1)
    number = {factor: k for k, factor in enumerate(factors)}
    numbers = np.array([[number[factor] for factor in term] for term in terms])
    parts = [(rows, _standard(sample[rows][:, places])) for rows in blocks(len(sample))]
    hits = []
    for start in range(0, len(terms), _CHUNK):
        features = values[:, numbers[start : start + _CHUNK]].prod(2)
        correlations = [
            _correlations(_standard(features[rows]), part) for rows, part in parts
        ]
        strength = abs(np.stack(correlations)).max(0)
        for i, k in np.argwhere(strength > least).tolist():
            term, y = terms[start + i], places[k]
            if y not in [j for j, _ in term]:
                rank = -round(strength[i, k], digits), order.index(term[-1][1])
                hits.append((*rank, term, y))
    formulas = []
    for *_, term, y in sorted(hits):
        right = tuple((k, g) for k, (_, g) in enumerate(term, 1))
        formulas.append(Formula((y, *(j for j, _ in term)), (((0, "same"),), right)))
    return len(terms) * len(places), formulas


def triples(columns: Columns, pairs: Pairs, g: str) -> tuple[int, list[Formula]]:
    """List z = a + b x + c y, or the same of logs (free exponents), by pairs x, y."""
    targets = [(j, "same") for j in columns.numbers]
    if g == "log":
        positive = {j for j in columns.curved if columns.sign(j) == "+"}
        targets = [(j, "log") for j in sorted(positive)]
        targets += [(j, "same") for j in columns.curved]
        pairs = [(u, v) for u, v in pairs if u in positive and v in positive]
    if not pairs or not targets:
        return 0, []
    sample = columns.cells[columns.sample[:_TRIPLE_ROWS]]
    sources, hits = FUNCTIONS[g].of(sample), []
    left_sides = np.stack([FUNCTIONS[t].of(sample[:, z]) for z, t in targets], 1)
    parts = [
        (_standard(sources[rows]), _standard(left_sides[rows]))
        for rows in blocks(len(sample))
    ]
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        least = np.ones((len(chunk), len(targets)))
        for part in parts:
            residual, alone = _residuals_by_pairs(*part, np.array(chunk))
            more = (alone > 20 * residual + 1e-9) & (alone > 1e-5)
            good = (residual < _UNEXPLAINED) & more
            least = np.where(good, np.minimum(least, residual), least)
        hits += [
            (least[i, k], *chunk[i], *targets[k])
            for i, k in np.argwhere(least < _UNEXPLAINED).tolist()
        ]
    formulas = [
        Formula((z, x, y), (((0, t),), ((1, g),), ((2, g),)))
        for _, x, y, z, t in sorted(hits)
        if z not in (x, y)
    ]
    return len(pairs) * len(targets), formulas


def explained(filled: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """List the columns that many others may explain linearly, the best explained first.

    `filled` (rows, places): cells of a sample, of which some are missing.  Also returns
    their correlations.
    """
    gram = _ridge_gram(filled)
    residual = 1 / np.diag(np.linalg.inv(gram + 1e-6 * np.eye(len(gram))))
    targets = np.argsort(residual, kind="stable")
    return gram, targets[residual[targets] <= _LOOSE].tolist()


def pursued(
    columns: Columns, places: list[int], gram: np.ndarray, t: int, excluded: set[int]
) -> Iterator[Formula]:
    """Add sources of a target one by one; yield formulas that complete rows confirm.

    `t` and `excluded`, which are no sources: indices of `places`, as those of `gram`.
    """
    chosen, swept = [], gram.copy()
    pool = np.array([k not in excluded | {t} for k in range(len(places))])
    while len(chosen) < _LONGEST:
        variances = np.diag(swept)
        gain = swept[t] ** 2 / np.maximum(variances, 1e-9)
        gain[~pool | (variances < 1e-3)] = 0
        k = int(gain.argmax())
        if gain[k] < 1e-5:
            return
        chosen.append(k)
        pool[k] = False
        swept = swept - np.outer(swept[:, k], swept[k]) / swept[k, k]
        limit = 0.02 if len(chosen) < 3 else _MOST_LEFT
        if len(chosen) < 2 or swept[t, t] > limit:
            continue
        related = [places[t], *(places[k] for k in chosen)]
        residual = _residual_share(columns, related)
        if residual is None:
            return
        if residual < _UNEXPLAINED:
            yield linear(related)
        if residual < 1e-7:
            return


def _residual_share(columns: Columns, places: list[int]) -> float | None:
    """Return the share of the first column that the others leave; None of few rows."""
    rows, fewest = columns.complete(places)[:1500], 10 + 2 * len(places)
    if len(rows) < fewest:
        return None
    whole, shares = columns.cells[np.ix_(rows, places)], [1.0]
    for block in blocks(len(rows), max(100, fewest)):
        part = whole[block] - whole[block].mean(0)
        size = part.std(0)
        if size.all():
            part = part / size
            beta = np.linalg.lstsq(part[:, 1:], part[:, 0], rcond=1e-10)[0]
            shares.append(float((part[:, 0] - part[:, 1:] @ beta).var()))
    return min(shares)


def linear(places: list[int], *coefs: float, constant: float = 0.0) -> Formula:
    """Relate columns linearly; the last of coefficients is that of all further ones."""
    terms = tuple(((k, "same"),) for k in range(len(places)))
    coefs += coefs[-1:] * (len(places) - len(coefs))
    return Formula(tuple(places), terms, coefs, constant)


def pairs_of(places: list[int], same: np.ndarray) -> Pairs:
    """List pairs of columns that do not repeat each other."""
    return [(u, v) for u, v in combinations(places, 2) if same[u] != same[v]]


# ----------------------------------------
# Moments over the rows that observe both columns, or all three


Standard = tuple[np.ndarray, np.ndarray]


def _standard(cells: np.ndarray) -> Standard:
    """Centre and scale columns: undefined cells become 0, with a weight of 0, not 1."""
    finite = np.isfinite(cells)
    n = np.maximum(finite.sum(0), 1)  # a sample may observe no cell of a column
    centred = cells - np.where(finite, cells, 0).sum(0) / n
    centred = np.where(finite & np.isfinite(centred), centred, 0)
    size = np.sqrt((centred**2).sum(0) / n)
    scaled = centred / np.where((size > 0) & np.isfinite(size), size, 1)
    return scaled, finite.astype(float)


def _correlations(features: Standard, targets: Standard) -> np.ndarray:
    """Correlate columns over the rows that observe both (features, targets)."""
    (X, M), (Y, N) = features, targets
    n = np.maximum(M.T @ N, 1)
    x, y = X.T @ N / n, M.T @ Y / n
    covariance = X.T @ Y / n - x * y
    vx, vy = (X**2).T @ N / n - x**2, M.T @ (Y**2) / n - y**2
    correlation = covariance / np.sqrt(vx * vy)
    good = (vx >= 1e-12) & (vy >= 1e-12) & (n >= 6) & np.isfinite(correlation)
    return np.where(good, correlation, 0)


def _residuals_by_pairs(left: Standard, right: Standard, pairs: np.ndarray) -> tuple:
    """Return shares of columns on the right that pairs, and their better one, leave.

    Both are (pairs, columns on the right).
    """
    (X, M), (Z, N), (a, b) = left, right, pairs.T
    m = M[:, a] * M[:, b]
    xi, xj = X[:, a] * m, X[:, b] * m
    n = np.maximum(m.T @ N, 1)
    si, sj, sk = xi.T @ N / n, xj.T @ N / n, m.T @ Z / n
    cii, cjj = (xi**2).T @ N / n - si**2, (xj**2).T @ N / n - sj**2
    cij = (xi * xj).T @ N / n - si * sj
    cik, cjk = xi.T @ Z / n - si * sk, xj.T @ Z / n - sj * sk
    ckk = m.T @ Z**2 / n - sk**2
    det = cii * cjj - cij**2
    residual = 1 - (cik**2 * cjj - 2 * cik * cjk * cij + cjk**2 * cii) / det / ckk
    alone = 1 - np.maximum(cik**2 / cii, cjk**2 / cjj) / ckk
    bad = (n < 14) | (ckk < 1e-9) | (det < 1e-9 * cii * cjj) | ~np.isfinite(residual)
    residual, alone = np.where(bad, 1, residual), np.where(bad, 0, alone)
    return np.maximum(residual, 0), np.nan_to_num(alone)


def _ridge_gram(cells: np.ndarray, rounds: int = 12) -> np.ndarray:
    """Correlate columns, whose missing cells ridge regressions fill."""
    cells = np.where(abs(_standard(cells)[0]) > _FARTHEST, np.nan, cells)
    standard, observed = _standard(cells)
    missing, filled, eye = observed == 0, standard, np.eye(cells.shape[1])
    for r in range(rounds if missing.any() else 0):
        gram = filled.T @ filled / len(filled)
        inverse = np.linalg.inv(gram + max(0.3 * 0.5**r, 1e-3) * eye)
        weights = eye - inverse / inverse.diagonal()  # of the others
        guess = (filled @ weights).clip(-_FARTHEST, _FARTHEST)
        filled = np.where(missing, 0.3 * filled + 0.7 * guess, standard)
    filled = filled - filled.mean(0)
    filled = filled / np.maximum(filled.std(0), 1e-9)
    return filled.T @ filled / len(filled)
