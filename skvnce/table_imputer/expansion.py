"""The expanded table: the standardised columns that the normal distribution is of.

Numbers are there as they are, and by normal scores where these differ; grades (numbers
of few values) by their values; levels by indicators, or by embeddings where there are
many; and products of columns.  All columns that are functions of a column of the table
are missing together.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from scipy.special import boxcox, inv_boxcox, ndtri

from skvnce._core.numbers import MOST_CODES
from skvnce.table_imputer.kernels import interpolate

MOST_INDICATORS = 20  # levels, up to which each has an indicator
_MOST_LEVELS = 300  # levels, from which on a column is in no model
_MOST_DIFFERENT = 0.9  # different levels, as a share of the cells, likewise
_N_EMBEDDED = 3  # numbers that stand for a level of many
_PRIOR_CELLS = 3.0  # at the overall mean, in the mean of an embedded level
_SAME = 0.995  # correlation of a column and its normal scores, above which one will do
_QUANTILE = 1.645  # of a normal distribution, at a level of .05
_FEWEST_OF_TEST = 5.0  # numbers
# of which the likeliest one is the scale of a column; 0: logarithms.  Few counts,
# amounts and durations have a tail as long as that of lognormal numbers
EXPONENTS = 0.0, 0.25, 0.5
# correlation of powers and normal scores, from which on powers are the scores: beyond
# the observed cells they go on as amounts of money do
_NORMAL = 0.95
# standard deviation of logarithms, below which they and the numbers differ in the tails
# alone, where cells that are missing by a covariate make any column skewed
_LEAST_SPREAD = 0.2
_LEAST_OF_ZERO = 1e-9  # of the smallest other number, which has a logarithm
_BELOW = 0.1  # of the smallest observed cell, where draws of other scales have no sign
# observed ranges beyond the ends, to which a factor of a product counts: there nothing
# shows whether it goes on, and a row far away would be filled by its square
_BEYOND = 2.0
# the same of powers, in standard deviations: a line from there is as far as numbers go
# that are predicted as they are
_BEYOND_POWERS = 0.5
_MOST_CORRELATED = 0.999  # of the prior: a number and its scores
_LEAST_SHARE = 1e-4  # variance of an indicator

NUMBER, GRADE, LEVELS, EMBEDDED, ALONE = range(5)


class Ranks(NamedTuple):
    """Normal scores of a column, by a piecewise linear function."""

    knots: np.ndarray  # (n,), standardised numbers, increasing
    values: np.ndarray  # (n,), their scores

    def of(self, x):
        """Map standardised numbers to scores; see `follow`."""
        return follow(x, *self)

    def numbers(self, scores):
        """Map scores to standardised numbers."""
        return follow(scores, self.values, self.knots)


class Power(NamedTuple):
    """Standardised powers or logarithms of numbers that are not negative.

    That is the transformation of Box and Cox (1964).
    """

    exponent: float  # 0: logarithms
    origin: float  # 0, as a standardised number
    least: float  # distance from it, to which powers go
    zero: float  # distance from it, below which numbers are 0
    centre: float
    scale: float
    end: float  # of predictions; beyond it numbers go on linearly

    @property
    def lowest(self):
        """Distance from the origin of the smallest number that is drawn."""
        return 0.0 if self.zero else self.least

    def of(self, x):
        """Map standardised numbers to powers."""
        size = np.maximum(x - self.origin, self.least)
        return (boxcox(size, self.exponent) - self.centre) / self.scale

    def numbers(self, scores):
        """Map powers to standardised numbers."""
        inside = np.minimum(scores, self.end)
        size = _size_of(inside * self.scale + self.centre, self.exponent)
        if self.exponent and not self.zero:
            size = np.maximum(size, self.least)
        slope = self.scale * size ** (1 - self.exponent)
        size = np.where(size < self.zero, 0.0, size + slope * (scores - inside))
        return size + self.origin

    def log_slopes(self, x):
        """Compute logarithms of slopes at observed numbers; near zero, between them."""
        size = np.maximum(x - self.origin, 2 * self.least)
        return (self.exponent - 1) * np.log(size) - np.log(self.scale)


def _size_of(powers, exponent):
    """Invert the transformation of Box and Cox; below its range sizes are 0."""
    lowest = -1 / exponent if exponent else -np.inf
    return inv_boxcox(np.maximum(powers, lowest), exponent)


class Part(NamedTuple):
    """How a column of the table is in the matrix."""

    kind: int
    base: np.ndarray  # its columns of the matrix
    block: np.ndarray  # those, then functions of them: all are missing together
    values: np.ndarray  # of levels, increasing; of numbers, all observed cells
    shares: np.ndarray  # of the levels; of numbers empty
    centre: np.ndarray  # of the columns in base, in the units of the table
    scale: np.ndarray
    coded: np.ndarray  # (n_levels, len(base)): the cells of the matrix of each level
    are_codes: bool  # whether the table has places of levels, and not their values
    # the second column of its block, if any; on powers it is predicted and drawn
    score: Ranks | Power | None
    # columns that are linear in such a column, and not in its powers: draws of its
    # cells know them as those of factors of products know their targets
    tells: tuple = ()
    # whether its regression on them bends, so that products would stand for that
    bends: bool = False
    # of two values: its products and all functions of their factors, by which its
    # log-odds bend: slopes on all indicators, or on a number and its scores, are
    # certain together, and each alone is noise
    bent: tuple = ()
    logit: tuple | None = None  # Logit of a column whose log-odds bend
    # whether its numbers have the sign of those that are observed
    has_sign: bool = True

    @property
    def is_number(self):
        """Whether it is drawn as a number, and not as a level."""
        return self.kind == NUMBER

    @property
    def is_positive(self):
        """Whether its numbers are not to be negative."""
        return self.has_sign and self.values[0] >= 0

    @property
    def is_binary(self):
        """Whether each of its columns of the matrix has two values."""
        return self.kind == LEVELS or self.n_levels == 2

    @property
    def link(self):
        """Scale on which it is predicted and drawn; None: as it is."""
        return self.score if isinstance(self.score, Power) else None

    def on_scale(self, x):
        """Map standardised numbers to the scale on which they are predicted."""
        return x if self.link is None else self.link.of(x)

    def off_scale(self, x):
        """Map numbers of that scale to standardised ones."""
        return x if self.link is None else self.link.numbers(x)

    @property
    def place(self):
        """Place of the scale of a number among its responses."""
        return 0 if self.link is None else 1

    @property
    def responses(self):
        """Columns of the matrix that are predicted."""
        return self.block[: len(self.base) + self.place]

    @property
    def functions(self):
        """Columns of the matrix that are functions of it alone."""
        return self.block[: len(self.base) + (self.score is not None)]

    @property
    def n_levels(self):
        """Number of levels; 0 for numbers."""
        return 0 if self.is_number else len(self.values)

    def codes(self, cells):
        """Find the places of observed cells among the levels; int."""
        if self.are_codes:
            return cells.astype(np.int64)
        halves = (self.values[1:] + self.values[:-1]) / 2
        return np.searchsorted(halves, cells)

    def probabilities(self, L):
        """Convert linear predictions of indicators (..., n_base) to probabilities.

        Of two levels that are numbers, the column itself is one of 0 and 1, scaled.
        """
        if self.n_levels > 2:
            p = (L * self.scale + self.centre).clip(1e-4)
            return p / p.sum(-1, keepdims=True)
        low, high = self.coded[:, 0]
        p = ((L - low) / (high - low)).clip(0, 1)
        return np.concatenate([1 - p, p], -1)

    def numbers(self):
        """Return the values of levels, as numbers."""
        return np.arange(float(self.n_levels)) if self.are_codes else self.values


class Product(NamedTuple):
    """A product of two columns of the matrix, as a further one."""

    at: int
    first: int
    second: int
    target: int  # the column that asks for it
    centre: float
    scale: float
    probability: float  # that it belongs to the target's regression
    ends: np.ndarray  # (2, 2), smallest and largest factors that count
    # columns that draws of the factors know: the target, and what depends on it
    tells: tuple

    def of(self, first, second):
        """Multiply factors, and standardise."""
        low, high = self.ends
        x = first.clip(low[0], high[0]) * second.clip(low[1], high[1])
        return (x - self.centre) / self.scale


class Expansion(NamedTuple):
    """How tables become matrices of standardised columns."""

    parts: list  # of Part, a column of the table each
    owners: np.ndarray  # int, the place of the part of each column in its base
    products: list  # of Product

    @classmethod
    def of(cls, parts):
        """Make an expansion without products, whose base is columns 0, 1, ..."""
        base = [(j, q) for q, part in enumerate(parts) for j in part.base.tolist()]
        return cls(parts, np.array([q for _, q in sorted(base)], int), [])

    @property
    def n_base(self):
        """Number of columns of the matrix without scores and products."""
        return len(self.owners)

    @property
    def width(self):
        """Number of columns of the matrix."""
        last = [part.block.max() for part in self.parts if len(part.block)]
        return max([-1, *last, *(product.at for product in self.products)]) + 1

    def matrix(self, cells):
        """Expand rows (n, n_parts), with NaN in missing cells."""
        X = np.full((len(cells), self.width), np.nan)
        for part, column in zip(self.parts, cells.T, strict=True):
            if part.kind == ALONE:
                continue
            if part.is_number or not part.are_codes:
                X[:, part.base[0]] = (column - part.centre) / part.scale
                self.put_scores(X, part)
            else:
                rows = np.flatnonzero(~np.isnan(column))
                X[np.ix_(rows, part.base)] = part.coded[part.codes(column[rows])]
        self.multiply(X)
        return X

    def correlation(self, X):
        """Return the identity (width, width), but for numbers and their scores.

        A prior without this correlation would attenuate differences of their slopes,
        and by that a line that is observed on one side would bend.
        """
        R = np.eye(self.width)
        for part in self.parts:
            if part.score:
                pair = part.block[:2]
                rows = X[~np.isnan(X[:, pair[0]])][:, pair]
                R[np.ix_(pair, pair)] = _correlation(rows)
        return R

    def put_scores(self, X, part, rows=slice(None)):
        """Compute the normal scores of a column in X."""
        if part.score:
            X[..., rows, part.block[1]] = part.score.of(X[..., rows, part.base[0]])

    def multiply(self, X, rows=slice(None), changed=None):
        """Compute products in X, or only those of some columns."""
        for product in self.products:
            j, k = product.first, product.second
            if changed is None or {j, k} & changed:
                X[..., rows, product.at] = product.of(X[..., rows, j], X[..., rows, k])

    def functions(self, part, x, X):
        """List columns of X that are functions of a column, with their values.

        `x` (..., n, n_base): other cells of it.  Returns list of (int, ndarray).
        """
        cells = {j: x[..., b] for b, j in enumerate(part.base.tolist())}
        functions = list(cells.items())
        if part.score:
            functions.append((part.block[1], part.score.of(x[..., 0])))
        for product in self.products:
            j, k = product.first, product.second
            if j in cells or k in cells:
                factors = (cells.get(i, X[..., i]) for i in (j, k))
                functions.append((product.at, product.of(*factors)))
        return functions

    def interactions(self, products):
        """Group places of products of the same columns with one target."""
        groups = {}
        for place, product in enumerate(products):
            factors = self.owners[product.first], self.owners[product.second]
            key = *factors, product.target
            groups.setdefault(key, []).append(place)
        return list(groups.values())

    def with_products(self, X, weights, chosen):
        """Add products of columns of a matrix.

        `X` (n, d); `weights` (n,); `chosen`, list of products.Candidate.  Returns
        Expansion.
        """
        parts, products, at = list(self.parts), list(self.products), X.shape[1]
        for first, second, target, probability, *_, tells in chosen:
            x = X[:, first] * X[:, second]
            mean, scale = _moments(x, weights)
            low, high = (f(X[:, [first, second]], 0) for f in (np.nanmin, np.nanmax))
            ends = np.stack([low, high]) + (high - low) * [[-_BEYOND], [_BEYOND]]
            products.append(
                Product(
                    at,
                    first,
                    second,
                    target,
                    centre=mean,
                    scale=scale,
                    probability=probability,
                    ends=ends,
                    tells=(target,) if tells else (),
                )
            )
            for q in {self.owners[first], self.owners[second]}:
                parts[q] = parts[q]._replace(block=np.append(parts[q].block, at))
            q = self.owners[target]
            if parts[q].n_levels == 2:
                factors = (parts[self.owners[j]].functions for j in (first, second))
                bent = dict.fromkeys([*parts[q].bent, *np.concatenate([*factors]), at])
                parts[q] = parts[q]._replace(bent=tuple(bent))
            at += 1
        return self._replace(parts=parts, products=products)


def content_order(cells):
    """Order columns (n, p) by their ranks, so that results depend on no other order."""
    keys = []
    for column in cells.T:
        ranks = np.unique(column, return_inverse=True)[1]
        ranks[np.isnan(column)] = -1
        keys.append(blake2b(ranks.astype(np.int64).tobytes()).digest())
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), int)


def expand(cells, weights, n_categories, is_ordered, have_sign=True):
    """Choose how each column of a table is in the matrix.

    `cells` (n, p): numbers, and codes of categories; NaN marks missing cells; `weights`
    (n,); `n_categories`, int (p,): 0 for numbers; `is_ordered`, list of p ndarray or
    None: the values of levels of ordinal columns; None of others; `have_sign`, bool
    or bool (p,): see `Part`.  Returns Expansion.
    """
    parts, n_base = [], 0
    have_sign = np.broadcast_to(have_sign, cells.shape[1:])
    described = zip(cells.T, n_categories, is_ordered, have_sign, strict=True)
    for column, k, values, has_sign in described:
        observed = ~np.isnan(column)
        part = _part(column[observed], weights[observed], k, values, n_base)
        parts.append(part._replace(has_sign=has_sign))
        n_base += len(part.base)
    parts, n_base = _with_embeddings(parts, n_base, cells, weights)
    at = n_base
    for q, part in enumerate(parts):
        if part.is_number:
            observed = ~np.isnan(cells[:, q])
            x = (cells[observed, q] - part.centre) / part.scale
            if score := _score(x, weights[observed]):
                block = np.append(part.block, at)
                parts[q], at = part._replace(score=score, block=block), at + 1
    return Expansion.of(parts)


def _part(x, weights, n_levels, values, at):
    """Describe a column by its observed cells (n,)."""
    if not n_levels:
        different, codes = np.unique(x, return_inverse=True)
        mean, scale = _moments(x, weights)
        base = np.array([at])
        part = Part(
            NUMBER,
            base,
            base,
            values=np.sort(x),
            shares=np.zeros(0),
            centre=np.array([mean]),
            scale=np.array([scale]),
            coded=np.zeros((0, 1)),
            are_codes=False,
            score=None,
        )
        if len(different) > MOST_CODES:
            return part
        shares = np.bincount(codes, weights) / weights.sum()
        coded = ((different - mean) / scale)[:, None]
        return part._replace(kind=GRADE, values=different, shares=shares, coded=coded)
    codes = x.astype(np.int64)
    shares = np.bincount(codes, weights, n_levels) / weights.sum()
    is_alone = n_levels > max(2, min(_MOST_LEVELS, _MOST_DIFFERENT * len(x)))
    if values is not None:
        mean = shares @ values
        scale = np.sqrt(shares @ (values - mean) ** 2)
        coded, kind = ((values - mean) / scale)[:, None], GRADE
        mean, scale = np.array([mean]), np.array([scale])
    elif is_alone or n_levels > MOST_INDICATORS:
        kind, coded = ALONE if is_alone else EMBEDDED, np.zeros((n_levels, 0))
        mean = scale = np.zeros(0)
    else:
        levels = np.arange(1, 2) if n_levels == 2 else np.arange(n_levels)
        mean = shares[levels]
        scale = np.sqrt(np.maximum(mean * (1 - mean), _LEAST_SHARE))
        coded, kind = ((np.arange(n_levels)[:, None] == levels) - mean) / scale, LEVELS
    base, values = at + np.arange(coded.shape[1]), np.arange(n_levels)
    return Part(kind, base, base, values, shares, mean, scale, coded, True, None)


def _with_embeddings(parts, n_base, cells, weights):
    """Embed columns of many levels: shrunken means of principal components."""
    many = [q for q, part in enumerate(parts) if part.kind == EMBEDDED]
    if not many:
        return parts, n_base
    if not n_base:
        return [p._replace(kind=ALONE) if p.kind == EMBEDDED else p for p in parts], 0
    X = np.nan_to_num(Expansion.of(parts).matrix(cells))
    root = np.sqrt(weights)[:, None]
    U, s, V = np.linalg.svd(
        root * (X - weights @ X / weights.sum()), full_matrices=False
    )
    size = min(_N_EMBEDDED, len(s))
    components = (
        (X - weights @ X / weights.sum()) @ V[:size].T / np.maximum(s[:size], 1e-9)
    )
    components *= np.sqrt(weights.sum())
    for q in many:
        observed = ~np.isnan(cells[:, q])
        codes, w = cells[observed, q].astype(np.int64), weights[observed]
        k = parts[q].n_levels
        count = np.bincount(codes, w, k) + _PRIOR_CELLS
        E = np.stack(
            [np.bincount(codes, w * v, k) / count for v in components[observed].T], 1
        )
        mean, scale = np.moveaxis([_moments(e[codes], w) for e in E.T], 1, 0)
        base = n_base + np.arange(size)
        parts[q] = parts[q]._replace(
            base=base,
            block=base,
            centre=np.zeros(size),
            scale=np.ones(size),
            coded=(E - mean) / np.maximum(scale, 1e-9),
        )
        n_base += size
    return parts, n_base


def _correlation(rows):
    """Compute the correlation (2, 2) of two columns, below 1; of no rows it is 0."""
    Z = rows - rows.sum(0) / max(len(rows), 1)
    root = np.sqrt(np.maximum((Z**2).sum(0), 1e-300))
    R = _MOST_CORRELATED * (Z.T @ Z) / np.outer(root, root)
    np.fill_diagonal(R, 1.0)
    return R


def _moments(x, weights):
    """Return mean and standard deviation of numbers, without NaN."""
    observed = ~np.isnan(x)
    x, w = x[observed], weights[observed]
    mean = w @ x / w.sum()
    return mean, max(np.sqrt(w @ (x - mean) ** 2 / w.sum()), 1e-300)


def _score(x, weights):
    """Map standardised numbers to standardised normal scores, if they differ."""
    x, weights, values, first, z = _sorted_scores(x, weights)
    count = np.add.reduceat(weights, first)
    n = weights.sum()
    if _is_normal(count @ (values * z) / n, n):
        return None
    # repeated, so that the outer tenth that `follow` extends is a tenth of the cells
    return Ranks(x, np.repeat(z, np.diff([*first, len(x)])))


def _is_normal(correlation, n):
    """Say whether n numbers may be normal, by their correlation with their scores.

    Scores of a normal column differ from it by noise, by which others would be
    predicted.  The test is that of Shapiro and Francia (1972), its level by Royston
    (1993).
    """
    log_n = np.log(max(n, _FEWEST_OF_TEST))
    least = np.log(max(1 - correlation**2, 1e-300))
    mean = -1.2725 + 1.0521 * (np.log(log_n) - log_n)
    spread = 1.0308 - 0.26758 * (np.log(log_n) + 2 / log_n)
    return bool(correlation >= _SAME or least <= mean + _QUANTILE * spread)


def _sorted_scores(x, weights):
    """Sort numbers (n,), and compute standardised scores of those that differ.

    Returns numbers and weights (n,); different numbers, their first places and scores.
    """
    order = np.argsort(x, kind="stable")
    x, weights = x[order], weights[order]
    values, first = np.unique(x, return_index=True)
    count = np.add.reduceat(weights, first)
    # a negligible weight at an end has no score
    z = ndtri(((np.cumsum(count) - count / 2) / weights.sum()).clip(1e-12, 1 - 1e-12))
    mean, scale = _moments(z, count)
    return x, weights, values, first, (z - mean) / scale


def power_of(part, x, weights, exponent):
    """Make powers of a column of standardised numbers (n,), not negative.

    Returns None where it has none, may be negative elsewhere, or where they differ from
    normal scores.  Zero is where the line of powers and scores of the other numbers has
    its score.
    """
    origin, has_zero = -part.centre[0] / part.scale[0], part.values[0] == 0
    # of numbers whose mean is many deviations away, differences are noise
    is_apart = (x.max() if has_zero else x.min()) > origin
    if not (part.score and part.is_positive and is_apart):
        return None
    _, weights, values, first, z = _sorted_scores(x, weights)
    count, size = np.add.reduceat(weights, first), values - origin
    least, zero = _BELOW * size[0], 0.0
    if has_zero:
        line = np.polyfit(z[1:], boxcox(size[1:], exponent), 1, w=np.sqrt(count[1:]))
        of_line = _size_of(np.polyval(line, z[0]), exponent)
        size[0] = least = np.clip(of_line, _LEAST_OF_ZERO * size[1], size[1] / 2)
        zero = _size_of(boxcox(size[:2], exponent).mean(), exponent)
    if _moments(np.log(size), count)[1] < _LEAST_SPREAD:
        return None
    powers = boxcox(size, exponent)
    centre, spread = _moments(powers, count)
    scores = (powers - centre) / spread
    if count @ (scores * z) / weights.sum() < _NORMAL:
        return None
    end = float(scores[-1]) + _BEYOND_POWERS
    return Power(exponent, origin, least, zero, centre, spread, end)


def follow(x, knots, values):
    """Map numbers by a piecewise linear function, extended beyond its ends.

    The slope there is that of the outer tenth of the knots, 1 at most.
    """
    k = min(max(1, len(knots) // 10), len(knots) - 1)
    slopes = []
    for end, inner in ((0, k), (-1, -1 - k)):
        width = knots[inner] - knots[end]
        slope = (values[inner] - values[end]) / width if abs(width) > 1e-9 else 0.0
        slopes.append(min(slope, 1.0))
    return interpolate(x.ravel(), knots, values, *slopes).reshape(x.shape)
