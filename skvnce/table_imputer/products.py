"""Squares and interactions that the residuals of a normal distribution ask for.

A triple is two factors and a target.  The normal distribution knows the target's
regression on both factors, but not on their product; the correlation of the product
with held-out residuals of the target says whether it is missing there.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, ndtri, ndtri_exp
from scipy.stats import chi2

from skvnce.table_imputer.columns import entropy
from skvnce.table_imputer.expansion import LEVELS
from skvnce.table_imputer.levels import fit_proportional_odds, levels_at

_LEVEL = 1.0  # expected number of products that are chosen by chance in a table
_EXPECTED = 30.0  # over the number of tests: prior odds of a product, 1 at most
# Of two-valued columns the odds have no bound: a product extrapolates nothing, and of
# few columns the model is best saturated (Schafer 1997).  A row counts as a twentieth:
# a prior of one row expects effects of a standard deviation, and those on a probability
# are .3 or so
_ROWS_OF_BINARY = 0.05
# times those of a product of two columns: a true square is larger, and a false one
# extrapolates where low or high cells are missing, which makes slopes vary
_ODDS_OF_SQUARE = 0.25
_FEWEST = 30  # rows that observe a triple, or have a level that is a factor
_MOST_LEVELS = 6  # of a column without order whose levels are factors
_FEWEST_OF_TWO = 20  # rows of each of two values of a factor or a target
_FEWEST_ASKED = 10  # the same, if the user asked for the product
_CLIP = 3.0  # standard deviations, to which factors are clipped
# of the bound of t of candidates, from which on, with errors of one variance, products
# are tested with those of several
_SCREEN = 0.4
_ALIKE = 0.6  # of the largest t, from which on triples are compared
_MOST_ALIKE = 8  # triples
_LEAST_REST = 1e-9  # of one less the leverage of a row
_LEAST_VARIANCE = 0.2  # of a residual, as a share of the mean
_RIDGE, _STEPS, _LEAST_CHANCE = 0.1, 8, 0.005  # of logistic regressions
_CELLS = 1_000_000  # of the products of one target, for which rows are left out
# log-likelihood by which a spread is to be likelier than a product, and a square of
# grades than proportional odds
_EVIDENCE = 5.0
_SKEWED = 5.0  # standard errors of skewness
_LEAST_LINE = 0.4  # of the mean of roots of absolute residuals, by such a spread
_SELECTED = 2.5  # |t| of a target in the regression of "missing", see `selection`
_SELECTED_BESIDE = 3.5  # the same, of columns that are no factors


class Candidate(NamedTuple):
    """A product of two columns of the matrix, and the column that asks for it."""

    first: int
    second: int
    target: int
    probability: float
    n_rows: float  # that observe all three, or their weight
    prior: float = 1.0  # odds
    is_doubtful: bool = False  # whether its target may decide which cells are missing
    tells: bool = True  # whether draws of the factors know the target


class Regressions(NamedTuple):
    """Regressions of columns of a matrix on all others, whose residuals are tested."""

    X: np.ndarray  # (n, d), NaN marks missing cells
    weights: np.ndarray  # (n,)
    n_base: int  # columns of X that are no functions of others
    targets: np.ndarray  # int, columns of one number
    are_binary: np.ndarray  # bool (n_base,), columns of two values
    # maps a target, rows and a second column or None to the rows, completed as if both
    # were missing (n_rows, d), and held-out predictions of the target (n_rows,); None
    # to all rows, completed
    predict: Callable
    powers: dict  # of int to int: columns that stand for targets

    @property
    def base(self):
        """Columns of X that are no functions of others."""
        return np.arange(self.n_base)

    def response(self, target):
        """Return the column of X that is predicted."""
        return self.powers.get(target, target)


def probability_of(gain, n_rows, prior, n_products=1):
    """Compute the probability of products by the Bayesian information criterion.

    `gain`, float: squared t, or their sum, each given the products before it; `n_rows`,
    float; `prior`, float: odds, which make up for the number of tests (Chen and Chen
    2008); `n_products`, int.  Returns float.
    """
    log_odds = np.log(prior) + (gain - n_products * np.log(max(n_rows, 1.0))) / 2
    return float(1 / (1 + np.exp(-log_odds)))


def factors_of(X, part):
    """List the columns of X by which a column of the table is a factor.

    They are its number, or indicators of its levels but for the most frequent one.
    """
    if len(part.base) == 1:
        return part.base
    return np.delete(part.base, (X[:, part.base] > 0).sum(0).argmax())


def sets_of_pairs(X, expansion):
    """List the products of columns of X (n, d) that are candidates, as sets of pairs.

    Factors are numbers, ordered levels and indicators of two levels.  An interaction of
    one of these with a column of several levels has a product for each level but the
    most frequent one, of those that enough rows have.
    """
    parts = expansion.parts
    single = sorted(int(part.base[0]) for part in parts if len(part.base) == 1)
    single = [j for j in single if has_rows(X[:, j])]
    sets = [
        [(j, k)]
        for j, k in itertools.combinations_with_replacement(single, 2)
        if j != k or _has_square(X[:, j])
    ]
    for part in parts:
        if part.kind == LEVELS and 2 < part.n_levels <= _MOST_LEVELS:
            levels = factors_of(X, part)
            levels = levels[(X[:, levels] > 0).sum(0) >= _FEWEST].tolist()
            if levels:
                sets += [[(min(j, k), max(j, k)) for k in levels] for j in single]
    return sets


class _Priors(NamedTuple):
    """What is expected of products before their tests, arrays (n_sets, n_targets)."""

    odds: np.ndarray
    rows: np.ndarray  # as how many each row counts
    bounds: np.ndarray  # t from which on they are candidates

    @classmethod
    def of(cls, regressions, sets, tests):
        """Count the tests, and by themselves those of columns of two values alone."""
        targets = regressions.targets
        pairs = np.array([members[0] for members in sets])
        of_targets = regressions.are_binary[targets]
        are_binary = regressions.are_binary[pairs].all(1)[:, None] & of_targets
        counts = np.zeros(2)
        for b, of_target in enumerate(tests):
            for n, test in enumerate(of_target):
                counted = test.possible | (n == 0 and not of_targets[b])
                counts += np.bincount(are_binary[counted, b], minlength=2)
        odds, of_binary = _EXPECTED / np.maximum(counts, 1)
        # that of a probability of a half
        penalty = np.log(max(_ROWS_OF_BINARY * regressions.weights.sum(), 1.0))
        least = np.sqrt(max(penalty - 2 * np.log(of_binary), 0.0))
        are_squares = (pairs[:, 0] == pairs[:, 1])[:, None]
        odds = min(1.0, odds) * np.where(are_squares, _ODDS_OF_SQUARE, 1.0)
        bound = ndtri(1 - min(_LEVEL / max(counts[0], 1), 0.4))
        choices = (of_binary, odds), (_ROWS_OF_BINARY, 1.0), (least, bound)
        return cls(*(np.where(are_binary, *choice) for choice in choices))


class ProductTests(NamedTuple):
    """Tests of sets of products by the residuals of targets, before any is chosen."""

    regressions: Regressions
    sets: list  # of lists of (int, int): factors of products that are chosen together
    place_of: dict  # of these pairs: the number of their set
    of_targets: list  # of lists of _Test: given all columns, and without a partner
    priors: _Priors
    gains: np.ndarray  # (n_sets, n_targets), of the test where it is larger
    filled: np.ndarray  # (n, d), the rows, completed
    selected: dict  # of factors: see `selection`

    @classmethod
    def of(cls, regressions, sets, partners):
        """Test sets of products, one or more, see `sets_of_pairs`.

        `partners`, dict of int to int: a column that may show a target, and hides by
        that what its product adds.
        """
        X, base, weights = regressions.X, regressions.base, regressions.weights
        of_targets = _tests_of(regressions, sets, partners)
        priors = _Priors.of(regressions, sets, of_targets)
        filled = regressions.predict(None, np.arange(len(X)))
        factors = sorted({*itertools.chain(*itertools.chain(*sets))})
        selected = {j: selection(X, j, base, filled, weights) for j in factors}
        gains = np.zeros(priors.bounds.shape)
        place_of = {pair: s for s, members in enumerate(sets) for pair in members}
        by_set = priors, gains, filled, selected
        tests = cls(regressions, sets, place_of, of_targets, *by_set)
        for b in range(len(of_targets)):
            gains[:, b] = tests.gains_beside(b, [])
        return tests

    def gains_beside(self, b, chosen):
        """Compute the gain of each set for a target, beside sets that are chosen."""
        return _largest(self.of_targets[b], chosen, _SCREEN * self.priors.bounds[:, b])

    def candidates(self, s, b, gain):
        """Describe the products of a set that is chosen by its gain."""
        target, size = int(self.regressions.targets[b]), len(self.sets[s])
        of_factors = max(abs(self.selected[f].get(target, 0)) for f in self.sets[s][0])
        of_any = max(abs(t_of.get(target, 0)) for t_of in self.selected.values())
        doubt = of_factors > _SELECTED or of_any > _SELECTED_BESIDE
        # levels share the rows: a product of one is 0 in the others' (Berger, Bayarri
        # and Pericchi 2014, the effective sample size)
        n_rows = float(self.priors.rows[s, b] * self.of_targets[b][0].n_both[s])
        if size > 1 and self.priors.rows[s, b] == 1:
            n_rows /= size + 1
        odds = float(self.priors.odds[s, b])
        p = probability_of(gain, n_rows, odds, size)
        return [
            Candidate(*pair, target, p, n_rows, odds, doubt) for pair in self.sets[s]
        ]


def choose_products(tests, most, refuted=()):
    """Choose the products that residuals of other columns ask for.

    `tests`, ProductTests; `most`, int; `refuted`, list of Candidate: not chosen.
    Returns list of Candidate.
    """
    sets, sizes, targets = tests.sets, _sizes(tests.sets), tests.regressions.targets
    gains, open_ = tests.gains.copy(), np.ones(tests.gains.shape, dtype=bool)
    t = _deviates(gains, sizes)
    chosen, of_target = [], {}
    for first, second, target, *_ in refuted:
        open_[tests.place_of[first, second], targets == target] = False
    while len(chosen) < most:
        is_open = open_ & (t > tests.priors.bounds)
        s, b = np.unravel_index(np.where(is_open, t, 0.0).argmax(), t.shape)
        if not is_open[s, b]:
            break
        factors = [f for candidate in chosen for f in candidate[:2]]
        alike = _alike(t, open_, s, b, tests, np.setdiff1d(targets, factors))
        s, b = _likeliest(tests, alike, gains)
        chosen += tests.candidates(s, b, gains[s, b])
        of_target[b] = [*of_target.get(b, []), s]
        gains[:, b] = tests.gains_beside(b, of_target[b])
        t[:, b] = _deviates(gains[:, [b]], sizes)[:, 0]
        # given the target, the regression of a factor is not linear any more
        _close(open_, s, sets, targets)
    return chosen


def _close(table, s, sets, targets):
    """Exclude a set of products, and their factors as targets, in place."""
    table[s] = 0
    table[:, np.isin(targets, sets[s])] = 0


def _alike(t, is_open, s, b, tests, possible):
    """List places in t of products that the same dependence may show as.

    They are the products at (s, b), their columns with another possible target, the
    square of their target for a factor, as the regression on a number whose square
    counts bends, and products that share a factor and have nearly their t, largest
    first: where a factor is missing, it is filled by others, whose products look like
    its own.

    `t`, `is_open` (n_sets, n_targets): deviates, and whether to choose them.
    """
    sets, targets, place_of = tests.sets, tests.regressions.targets, tests.place_of
    (j, k), i = sets[s][0], int(targets[b])
    swapped = [(i, i, j)] if j == k else [(i, k, j), (i, j, k), (i, i, j), (i, i, k)]
    alike = [(s, b)]
    for first, second, target in swapped:
        pair = min(first, second), max(first, second)
        if target in possible and pair in place_of:  # two values have no square
            place = place_of[pair], int(np.flatnonzero(targets == target)[0])
            alike += [place] if is_open[place] else []
    near = np.flatnonzero((t[:, b] >= _ALIKE * t[s, b]) & is_open[:, b])
    near, factors = near[np.argsort(-t[near, b])].tolist(), np.unique(sets[s])
    alike += [(p, b) for p in near if p != s and np.isin(sets[p], factors).any()]
    return alike[:_MOST_ALIKE]


def _likeliest(tests, alike, gains):
    """Choose one of some sets of products; its place.

    The twofold log-likelihood ratio of each, in rows that observe the columns of all,
    is added to its gain, less log n for each product.  Of normal columns p(y | x, b)
    p(x | b) = p(x | y, b) p(y | b), so that the product whose regression gains more is
    the likelier one, whatever its target.
    """
    regressions, filled, sets = tests.regressions, tests.filled, tests.sets
    triples = [(*sets[s][0], int(regressions.targets[b])) for s, b in alike]
    observed, weights = ~np.isnan(regressions.X), regressions.weights
    complete = observed[:, list(triples[0])].all(1)
    for n, triple in enumerate(triples):
        both = complete & observed[:, list(triple)].all(1)
        if both.sum() < _FEWEST:
            triples = triples[: max(n, 1)]
            break
        complete = both
    rows, scores = np.flatnonzero(complete), []
    root, n = np.sqrt(weights[rows])[:, None], weights[rows].sum()
    Z = filled[rows].clip(-_CLIP, _CLIP)
    for (*_, target), (s, b) in zip(triples, alike, strict=False):
        first, second = np.array(sets[s]).T
        others = regressions.base[regressions.base != target]
        A = np.column_stack([np.ones(len(rows)), filled[np.ix_(rows, others)]])
        cells = filled[rows, regressions.response(target)]
        both = np.column_stack([Z[:, first] * Z[:, second], cells])
        rests = _without(root * A, root * both)
        rest = _without(rests[:, :-1], rests[:, -1:])
        share = (rest**2).sum() / max((rests[:, -1] ** 2).sum(), 1e-300)
        ratio = -n * np.log(max(share, 1e-9)) - len(first) * np.log(n)
        scores.append(ratio + gains[s, b])
    return alike[int(np.argmax(scores))]


def products_asked_for(regressions, sets):
    """Choose the target of each product that the user asked for.

    As with `choose_products`, a factor of a product is the target of none, and the
    largest t is chosen first.  Sets that have no possible target are left out.

    `sets`, list of lists of (int, int): factors of products that have one target.
    Returns list of Candidate.
    """
    X, targets = regressions.X, regressions.targets
    sets = [[(min(pair), max(pair)) for pair in members] for members in sets]
    sets = [
        [(j, k) for j, k in members if j != k or _has_square(X[:, j])]
        for members in sets
    ]
    sets = [members for members in sets if members]
    if not sets or not len(targets):
        return []
    tests, sizes = _tests_of(regressions, sets, {}, _FEWEST_ASKED), _sizes(sets)
    gains = np.stack([_largest(each, [], np.zeros(len(sets))) for each in tests], 1)
    t, chosen = _deviates(gains, sizes), {}
    while t.any():
        s, b = np.unravel_index(t.argmax(), t.shape)
        target = int(targets[b])
        chosen[s] = [Candidate(*pair, target, 1.0, np.inf) for pair in sets[s]]
        _close(t, s, sets, targets)
    return [candidate for s in sorted(chosen) for candidate in chosen[s]]


def _sizes(sets):
    return np.array([len(members) for members in sets])


def _deviates(gains, sizes):
    """Convert gains (n_sets, n_targets) to normal deviates of the same level."""
    # levels of larger gains underflow
    capped = np.minimum(gains, 1000.0)
    t = ndtri_exp(chi2.logsf(capped, sizes[:, None]) - np.log(2))
    return np.where(gains > 0, np.sqrt(t**2 + gains - capped), 0.0)


def _tests_of(regressions, sets, partners, fewest=_FEWEST):
    """Make the tests of each target: given all columns, and without its partner."""
    return [
        [
            _Test(i, sets, regressions, fewest, partner)
            for partner in [None, *([partners[i]] if i in partners else [])]
        ]
        for i in regressions.targets.tolist()
    ]


def _largest(tests, chosen, least):
    """Compute the gain of each set for a target, by the test where it is larger."""
    return np.max([test.gains(chosen, least) for test in tests], axis=0)


def has_rows(x):
    """Say whether each value of a column of two has enough rows for products."""
    counts = np.unique(x[~np.isnan(x)], return_counts=True)[1]
    return len(counts) > 2 or min(counts, default=0) >= _FEWEST_OF_TWO


def _has_square(x):
    """Say whether the square of a column is not a linear function of it."""
    return len(np.unique(x[~np.isnan(x)])) > 2


class _Test:
    """Tests of products for one target.

    Products are those of rows completed as if the target were missing, less their
    regression on the linear terms and on products that have been chosen.
    """

    def __init__(self, i, sets, regressions, fewest, partner=None):
        X, base, observed = regressions.X, regressions.base, ~np.isnan(regressions.X)
        rows, self.sets, self.sizes = np.flatnonzero(observed[:, i]), sets, _sizes(sets)
        rows = rows[:: max(1, len(rows) * self.sizes.sum() // _CELLS)]
        filled, L = regressions.predict(i, rows, partner)
        self.factors = np.clip(filled.T, -_CLIP, _CLIP, order="C")
        self.weights = regressions.weights[rows]
        others = base[(base != i) & (base != partner)]
        self.linear = np.column_stack([np.ones(len(rows)), filled[:, others]])
        if regressions.are_binary[i]:
            y = X[rows, i] > X[rows, i].min()
            self.residual, self.precision = _logistic(y, self.linear, self.weights)
        else:
            self.residual = X[rows, regressions.response(i)] - L
            gone = ~observed[rows][:, others]
            self.precision = _precision(self.residual, gone, self.weights)
        pairs = np.array([members[0] for members in sets])
        self.n_both = self.weights @ observed[rows][:, pairs].all(2)
        shown = np.isin(pairs, [i] if partner is None else [i, partner]).any(1)
        self.possible = ~shown & (self.n_both >= fewest)

    def gains(self, chosen, least):
        """Compute twice the gain in log-likelihood of each set, given those chosen.

        It is 0 where a set is impossible, or where t of each of its products, with
        errors of one variance, is below `least` (n_sets,).
        """
        root, gains = np.sqrt(self.weights), np.zeros(len(self.sets))
        scale = root * self.precision
        A = [self.linear.T, *(self._products([s]) for s in chosen)]
        Q = _basis((scale * np.concatenate(A)).T)
        freedom = self.weights.sum() - Q.shape[1]
        if freedom <= 1:
            return gains
        R = scale * self.residual
        R -= Q @ (Q.T @ R)
        leverage = (Q**2).sum(1) / self.weights
        possible = self.possible.copy()
        possible[chosen] = False
        for size in np.unique(self.sizes[possible]):
            tested = np.flatnonzero(possible & (self.sizes == size))
            P = scale * self._products(tested)
            on_Q = P @ Q
            t = _plain_t(P, on_Q, R, freedom)
            is_large = (t.reshape(-1, size) >= least[tested, None]).any(1)
            of_members = np.repeat(is_large, size)
            P = (P[of_members] - on_Q[of_members] @ Q.T) / root
            P = P.reshape(-1, size, len(R))
            wald = _wald(P, R / root, self.weights, leverage)
            tested = tested[is_large]
            gains[tested] = freedom * np.log1p(wald / freedom)
        return gains

    def _products(self, chosen):
        """Multiply the factors of sets of products, (n_products, n)."""
        pairs = [pair for s in chosen for pair in self.sets[s]]
        first, second = np.transpose(pairs)
        return self.factors[first] * self.factors[second]


def _plain_t(P, on_Q, R, freedom):
    """Compute |t| of R (n,) on products P (m, n), with errors of one variance.

    `on_Q` (m, k): their regression on an orthonormal basis; R has none.
    """
    total = (P**2).sum(1)
    rest = total - (on_Q**2).sum(1)
    rest[rest <= _LEAST_REST * total] = np.inf  # linear in other columns
    return abs(P @ R) / np.sqrt(rest * max(R @ R / freedom, 1e-300))


def _precision(residual, gone, weights):
    """Compute inverse standard deviations of residuals (n,).

    The variance of a residual is larger where columns that predict are missing; it is
    fitted as a sum over the missing columns (n, m).
    """
    root = np.sqrt(weights)[:, None]
    A = np.column_stack([np.ones(len(gone)), gone, residual**2])
    R = np.linalg.qr(root * A, mode="r")
    variance = A[:, :-1] @ nnls(R[:, :-1], R[:, -1])[0]
    mean = np.average(residual**2, weights=weights)
    return 1 / np.sqrt(np.maximum(variance, _LEAST_VARIANCE * max(mean, 1e-300)))


def _logistic(y, A, weights):
    """Compute working residuals and precisions (n,) of a logistic regression.

    Their weighted regression on a product is its score test.  Residuals of a linear
    probability would ask for products where it bends.
    """
    p = _chances(y, A, weights)
    return (y - p) / (p * (1 - p)), np.sqrt(p * (1 - p))


def _chances(y, A, weights):
    """Fit probabilities (n,) by logistic regression of y (n,), bool, on A (n, m)."""
    b, prior = np.zeros(A.shape[1]), _RIDGE * np.eye(A.shape[1])
    for _ in range(_STEPS):
        p = expit(A @ b)
        H = A.T @ ((weights * p * (1 - p))[:, None] * A) + prior
        b += np.linalg.solve(H, A.T @ (weights * (y - p)) - prior @ b)
    return expit(A @ b).clip(_LEAST_CHANCE, 1 - _LEAST_CHANCE)


def _without(A, Y):
    """Subtract from columns of Y (n, k) their regression on those of A (n, m)."""
    Q = _basis(A)
    return Y - Q @ (Q.T @ Y)


def _basis(A):
    """Compute an orthonormal basis (n, r) of the columns of A (n, m)."""
    if len(A) <= A.shape[1]:
        return np.eye(len(A))  # as many columns as rows explain all
    Q, R = np.linalg.qr(A)
    size = abs(np.diag(R))
    depends = size <= 1e-8 * size.max()  # on columns before it
    return np.linalg.qr(A[:, ~depends])[0] if depends.any() else Q


def _wald(P, R, w, leverage):
    """Compute Wald statistics of slopes of R (n,) on sets P (sets, size, n), with HC3.

    `leverage` (n,): of columns on which P and R have been regressed (HC2: residuals of
    many terms are smaller than the errors).
    """
    by_row = np.linalg.pinv((w * P) @ P.swapaxes(1, 2), hermitian=True) @ P
    slopes = by_row @ (w * R)
    rest = R - np.einsum("sk,skn->sn", slopes, P)
    rest /= np.maximum(1 - np.einsum("skn,skn->sn", by_row, P), _LEAST_REST)
    rest *= np.sqrt(w / np.maximum(1 - leverage, _LEAST_REST))
    error = by_row * rest[:, None]
    inverse = np.linalg.pinv(error @ error.swapaxes(1, 2), hermitian=True)
    return np.einsum("sk,skl,sl->s", slopes, inverse, slopes)


def is_normal(x, score, A, products, knots, weights):
    """Say whether a target with products is likelier than its normal scores without.

    If a number is skewed given all others, as money is, its regressions bend and a
    product may seem to be there, but the density of a normal distribution does not tell
    which factors belong to it.  Likelihoods are those of numbers as they are (Box and
    Cox 1964); each window of the scores' slope is a parameter (Akaike 1974).

    `x`, `score`, `weights` (n,); `A` (n, m): all others; `products` (n, k); `knots`,
    pair of ndarray: see `expansion.Part`.  Returns bool.
    """
    root, A = np.sqrt(weights), np.column_stack([np.ones(len(x)), A])
    sizes = _log_size(root, x, A, products), _log_size(root, score, A)
    values, first = np.unique(knots[0], return_index=True)
    half, at = int(np.ceil(np.sqrt(len(values)) / 2)), np.arange(len(values))
    ends = (at - half).clip(0), (at + half).clip(max=len(values) - 1)
    rises = [v[ends[1]] - v[ends[0]] for v in (knots[1][first], values)]
    log_slopes = weights @ np.interp(x, values, np.log(rises[0] / rises[1]))
    gain = log_slopes + weights.sum() / 2 * (sizes[0] - sizes[1])
    return bool(gain < len(values) / (2 * half))


def is_of_spread(target, factor, other, A, weights):
    """Say whether a product is the spread of one of its factors.

    If a factor varies more at some values of the other one, slopes of the target on it
    differ as those of a product do.  Compared are normal densities, p(target | both,
    product) p(factor | other) and p(target | other) p(factor | target, other), the last
    with a spread that depends on `other`.

    `target`, `factor`, `other`, `weights` (n,); `A` (n, m): all others.  Returns bool.
    """
    root, A = np.sqrt(weights), np.column_stack([np.ones(len(A)), A, other])
    spread = _spread_by(other, factor, np.column_stack([A, target]), weights)
    if spread is None:
        return False
    by_product = _log_size(root, target, A, factor, factor * other)
    by_product += _log_size(root, factor, A)
    by_spread = _log_size(root, target, A) + _log_size(root / spread, factor, A, target)
    return bool(weights.sum() / 2 * (by_product - by_spread) > _EVIDENCE)


def is_of_spread_by_level(target, factor, A, weights):
    """Say whether the square of a factor is its spread, by a target of two values.

    If the factor varies more at one of them, their log-odds have the square of a normal
    factor.  Compared are p(target | factor, square) p(factor) and p(target) p(factor |
    target), the last with a spread of each value, by logistic and normal densities.

    `target` (n,), bool; `factor`, `weights` (n,); `A` (n, m): all others.
    """
    root, A = np.sqrt(weights), np.column_stack([np.ones(len(A)), A])
    spread = _spread_by(target, factor, np.column_stack([A, target]), weights)
    if spread is None:
        return False
    with_square = np.column_stack([A, factor, factor**2])
    gain = _log_likelihood(target, A, weights)
    gain -= _log_likelihood(target, with_square, weights)
    sizes = _log_size(root, factor, A) - _log_size(root / spread, factor, A, target)
    return bool(gain + weights.sum() / 2 * sizes > _EVIDENCE)


def is_of_skewness(target, factor, A, is_observed, weights):
    """Say whether the square of a factor is the skewness of its distribution.

    If the factor is linear in the target with skewed residuals, the target bends with
    it.  Compared are p(target | factor, square) p(factor) and p(target) p(factor |
    target), of any distribution of residuals (Shimizu et al. 2006), in tables (C, n),
    whose missing cells of the factor are drawn by the first.  Such tables speak for
    it, and others for the second: the ratio of the likelihoods of observed cells is
    between their means, and near the mean of these (Gelman and Meng 1998, path
    sampling).  But the first draws are of a normal factor, and one that is skewed moves
    away in them from its observed cells: only the second count.

    `target`, `factor` (C, n); `A` (C, n, m): all others; `is_observed` (n,), bool,
    where the factor is; `weights` (n,).
    """
    rng, root, gains = np.random.default_rng(0), np.sqrt(weights), []

    def cost(x, *columns):
        columns = np.column_stack([np.ones(len(x)), *columns])
        return entropy(_rest(root, columns, x) / root, weights)

    for t, f, Z in zip(target, factor, A, strict=True):
        factors, of_target = [f], cost(t, Z)
        if not is_observed.all():
            both = np.column_stack([Z, t])
            drawn = _drawn_by(f, both, is_observed, weights, rng)
            is_skewed = all(_is_skewed(x, Z, weights) for x in (f, drawn))
            factors = [drawn] if is_skewed else [f, drawn]
        gains += [
            cost(t, Z, x, x**2) + cost(x, Z) - of_target - cost(x, Z, t)
            for x in factors
        ]
    return bool(np.mean(gains) > 0)


def _is_skewed(x, A, weights):
    """Say whether the third moment of x (n,) given A (n, m) is not that of a normal."""
    root = np.sqrt(weights)
    rest = _rest(root, np.column_stack([np.ones(len(x)), A]), x) / root
    moments = [weights @ rest**k / weights.sum() for k in (2, 3)]
    z = moments[1] / moments[0] ** 1.5 * np.sqrt(weights.sum() / 6)
    return abs(z) > _SKEWED


def _drawn_by(x, A, is_observed, weights, rng):
    """Draw missing cells of x (n,) by its regression on A (n, m), with residuals."""
    A, w = np.column_stack([np.ones(len(A)), A]), weights * is_observed
    root = np.sqrt(w)
    mean = A @ np.linalg.lstsq(root[:, None] * A, root * x, rcond=None)[0]
    noise = rng.choice(x - mean, len(x), p=w / w.sum())
    return np.where(is_observed, x, mean + noise)


def is_of_grades(target, codes, values, A, is_observed, weights):
    """Say whether proportional odds of a grade say the same as its square.

    If a grade is the rounded and clipped value of a variable that is linear in the
    target, the target bends with it at its ends.  Compared are p(target) p(grade |
    target), by proportional odds, and p(grade) p(target | grade, square), in tables
    (C, n) whose grades are drawn by the first where they are missing.

    `target` (C, n); `codes` (C, n), int; `values` (k,): of grades; `A` (C, n, m): all
    others; `is_observed` (n,), bool, where a grade is; `weights` (n,).
    """
    rng, root, gains = np.random.default_rng(0), np.sqrt(weights), []
    for y, code, Z in zip(target, codes, A, strict=True):
        both, ones = np.column_stack([Z, y]), np.column_stack([np.ones(len(Z)), Z])
        levels = np.eye(len(values))[code] * weights[:, None]
        observed = both[is_observed], levels[is_observed]
        odds = fit_proportional_odds(*observed, np.zeros(both.shape[1]))
        drawn = levels_at(odds.of(both), rng.random(len(y)))
        code = np.where(is_observed, code, drawn)
        levels = np.eye(len(values))[code] * weights[:, None]
        alone = fit_proportional_odds(Z, levels, np.zeros(Z.shape[1]))
        log_odds = odds.log_probabilities(both) - alone.log_probabilities(Z)
        grade = values[code]
        sizes = _log_size(root, y, ones, grade, grade**2) - _log_size(root, y, ones)
        gains.append((levels * log_odds).sum() + weights.sum() / 2 * sizes)
    return bool(np.mean(gains) > -_EVIDENCE)


def _spread_by(other, factor, A, weights):
    """Fit the spread of a factor given A, linear in another column; (n,), or None."""
    root = np.sqrt(weights)
    rest = _rest(root, A, factor)
    roots = np.sqrt(abs(rest / root))
    if not roots.any():  # as many columns as rows explain all
        return None
    line = np.column_stack([np.ones(len(A)), other])
    line = roots - _rest(root, line, roots) / root
    spread = np.maximum(line, _LEAST_LINE * roots.mean()) ** 2
    return spread / np.exp(weights @ np.log(spread) / weights.sum())


def _log_size(root, x, A, *columns):
    """Compute the logarithm of the squared residuals of x given columns."""
    rest = _rest(root, np.column_stack([A, *columns]), x)
    return np.log(max(rest @ rest, 1e-300))


def _log_likelihood(y, A, weights):
    """Maximise the log-likelihood of a logistic regression of y (n,), bool."""
    p = _chances(y, A, weights)
    return weights @ np.log(np.where(y, p, 1 - p))


def _rest(root, A, x):
    """Subtract from x (n,) its regression on A (n, m); `root` (n,): of weights."""
    return _without(root[:, None] * A, (root * x)[:, None])[:, 0]


def selection(X, factor, columns, filled, weights):
    """Compute t of each column in a regression of "the factor is missing".

    If a target decides which cells of a factor are missing, rows that observe the
    factor bend the target's regression on it, and a product may seem to be there.

    Returns dict of int to float.
    """
    gone, others = np.isnan(X[:, factor]), columns[columns != factor]
    if not gone.any() or not len(others):
        return {}
    A = np.column_stack([np.ones(len(X)), filled[:, others]])
    G = np.linalg.pinv(A.T @ (weights[:, None] * A))
    b = G @ A.T @ (weights * gone)
    rest = gone - A @ b
    variance = weights @ rest**2 / max(weights.sum() - A.shape[1], 1.0)
    t = b / np.sqrt(np.maximum(np.diag(G), 1e-12) * max(variance, 1e-300))
    return dict(zip(others.tolist(), t[1:].tolist(), strict=True))
