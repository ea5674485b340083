"""The model of one column: the normal's prediction, and a forest of what it leaves.

A prediction of a number is ``a ((1 - g) L + g M) + w f``, where L and M are means of
the normal distribution given all other columns, and f is a forest of residuals of a M;
that of levels is ``(1 - w) p(L) + w f``, where f is a forest of classes.  In draws L
is by a draw of the parameters, and M by their mean: a forest that made up for the
errors of one draw would not do so for those of others.  The weights a and w, from 0 to
1, are least-squares estimates on held-out cells, shrunk to 1 and 0; g is the share of
the squared errors of a M that the forest explains, so that draws vary as the parameters
do where these decide.  What is fitted to predictions, as logits, shares of grades and
windows of residuals, is fitted to those by M: the noise of L would attenuate slopes, as
errors of measurement do.
"""

from typing import NamedTuple

import numpy as np

from skvnce._core.numbers import grid_of, inner_masses, masses_at_ends
from skvnce._core.windows import sorted_predictions, windows
from skvnce.table_imputer.expansion import EMBEDDED, GRADE
from skvnce.table_imputer.kernels import grow_forest, predict_forest
from skvnce.table_imputer.levels import (
    GradeShares,
    fit_grades,
    fit_logit,
    levels_at,
    sharpened,
    sharpness,
)

# rows of all trees, and the trees at least and at most, of a completion and of several:
# means gain nothing by more trees, draws do as each is by a few of them
_OF_FILLS, _OF_DRAWS = (20_000, 21, 50), (30_000, 21, 80)
_PRIOR = 5.0  # cells that the weights 1 and 0 count as
_ROWS_OF_SPREAD = 5  # for each column that the spread may depend on
# of factors of residuals, at least and at most: a large residual that is divided by a
# small factor would be far out where the factor is large
_ROOTS_OF_SPREAD = 0.6, 1.8
_SHARE_OF_SPREAD = 0.1  # of what the columns say of it, below which it is left out
# of means of powers beside those of numbers as they are, of which held-out cells choose
_SHARES = 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0
_SHARE = 0.7  # of the rows, from which a tree is grown
_FEWEST_TRIED = 12  # features of a split, or a third of them
_BOUNDS, _BOUNDS_OF_DRAWS = 3, 2  # of a feature of a split
_RANKS = 512  # of observed cells, as features
_KNOTS = 33  # quantiles of predictions, as a feature
# of a standard deviation, between them: ranks would turn differences between folds that
# mean nothing into differences between groups
_APART = 0.02
_DRAWN_FROM = 20  # rows of similar predictions, from whose residuals draws come
_EVIDENCE = 5.0  # log-likelihood by which powers are to be likelier
_SMEARED = 200  # residuals of means on another scale
_TREES_OF_DRAW = 10  # so that draws vary as the trees do


class Rows(NamedTuple):
    """Rows of C completions that a column is predicted from."""

    X: np.ndarray  # (C, n, d), complete; the column and its functions are not read
    # (C, n, len(responses)), predictions of the normal distribution
    L: np.ndarray
    M: np.ndarray  # those by the mean of its parameters, if L is by draws of them

    @classmethod
    def of(cls, completions, part):
        """Take predictions from rows (n, d) that are filled by them."""
        L = completions[None][..., part.responses]
        return cls(completions[None], L, L)

    def on(self, part):
        """Select the predictions of numbers on the scale of their link.

        Those of a column whose log-odds bend get these columns.
        """
        if part.bent:
            bent = self.X[..., part.bent]
            both = (np.concatenate([x, bent], -1) for x in (self.L, self.M))
            return Rows(self.X, *both)
        if not part.is_number:
            return self
        place = [part.place]
        return self._replace(L=self.L[..., place], M=self.M[..., place])


class Shape(NamedTuple):
    """What draws of a column of numbers keep, in standard units."""

    # of (1, -1 or 0, value): point masses at the lower, or upper, end, or between them
    masses: list
    lower: float  # of non-negative numbers 0, of positive ones on a grid its first
    step: float  # of the grid of repeated values; 0 if there is none
    origin: float


class Residuals(NamedTuple):
    """Held-out residuals in the order of the predictions."""

    prediction: np.ndarray  # by the mean of the parameters
    residual: np.ndarray  # of predictions by draws of them
    donor: np.ndarray  # the observed cell
    row: np.ndarray  # int, of which there is a residual in each completion
    weight: np.ndarray  # of the rows
    spread: np.ndarray  # by which the residuals are divided

    def bootstrapped(self, first, last, rng):
        """Pick a residual of each window (n_cells,), and average it, by one draw.

        A draw has weights of its own, those of a Bayesian bootstrap of the rows (Rubin
        1981): else all draws would share the errors of the residuals' law.
        """
        weight = (self.weight * rng.exponential(size=len(self.weight)))[self.row]
        sums, totals = np.zeros((2, len(weight) + 1))
        np.cumsum(weight, out=sums[1:])
        np.cumsum(weight * self.residual, out=totals[1:])
        low, high = sums[first], sums[last]
        pick = np.searchsorted(
            sums, low + rng.random(len(first)) * (high - low), "right"
        )
        local = (totals[last] - totals[first]) / (high - low)
        return (pick - 1).clip(first, last - 1), local


class Spread(NamedTuple):
    """Factors of residuals, by the other columns.

    The residuals of groups may differ where their predictions do not.
    """

    intercept: float
    slopes: np.ndarray  # (len(others),), of the roots of the factors

    def of(self, X):
        """Compute factors of the residuals of rows (C, n, len(others))."""
        return (X @ self.slopes + self.intercept).clip(*_ROOTS_OF_SPREAD) ** 2


def fit_spread(X, residuals, weights):
    """Regress roots of absolute residuals (n,) on columns (n, d), shrunk to their mean.

    Roots, as they are nearly normal: squares would be those of few rows.  Returns
    Spread, or None if residuals left out do not depend on the columns.
    """
    (n, d), roots = X.shape, np.sqrt(abs(residuals))
    if n < _ROWS_OF_SPREAD * (d + 1) or not weights @ roots > 0:
        return None
    roots = roots / (weights @ roots / weights.sum()) - 1
    A = np.column_stack([np.ones(n), X])
    gram = A.T @ (weights[:, None] * A) + np.diag([1e-9, *np.ones(d)])
    hat = np.linalg.solve(gram, A.T * weights)
    slopes, leverage = hat @ roots, (A * hat.T).sum(1).clip(max=0.9)
    left_out = (A @ slopes - leverage * roots) / (1 - leverage)
    truth, left_out = roots[:, None], left_out[:, None]
    w = _share(truth, np.zeros((n, 1)), left_out, weights, 1)
    if w < _SHARE_OF_SPREAD:
        return None
    return Spread(1 + w * slopes[0], w * slopes[1:])


class ColumnModel(NamedTuple):
    """A fitted model of a column."""

    part: tuple  # Part
    others: np.ndarray  # columns of the matrix that are features
    knots: dict  # by column of the matrix: observed values, whose ranks are features
    of_normal: list  # knots of each prediction of the normal; None for probabilities
    logit: tuple | None  # Logit, of levels
    a: float
    w: float
    sharpness: float  # power of probabilities
    trees: tuple | None
    grades: GradeShares | None  # of more than two grades
    residuals: Residuals | None
    shape: Shape | None
    spread: Spread | None
    n_completions: int
    gain: float  # share of the normal's squared errors that the forest explains

    def features(self, rows):
        """Make features (C, p, n): other columns, numbers by rank, and predictions."""
        X, _, M = rows
        G = np.empty((len(X), len(self.others) + M.shape[-1], X.shape[1]))
        for i, j in enumerate(self.others.tolist()):
            G[:, i] = X[..., j]
            if j in self.knots:
                G[:, i] = np.searchsorted(self.knots[j], X[..., j]) / len(self.knots[j])
        for b, knots in enumerate(self.of_normal):
            at = len(self.others) + b
            G[:, at] = M[..., b]
            if knots is not None:
                G[:, at] = np.interp(M[..., b], knots, np.linspace(0, 1, len(knots)))
        return G

    def of_normal_alone(self, L, counted=0.0, rng=None):
        """Predict by the normal distribution: (C, n, 1), or probabilities of levels.

        `counted` (n, n_levels) are weights of the cells of these rows, without which
        their grades are predicted.
        """
        part, k = self.part, self.part.n_levels
        if part.is_number:
            return self.a * L
        if part.kind == EMBEDDED:
            return np.broadcast_to(part.shares, (*L.shape[:-1], k))
        if part.is_binary:
            return self.logit.of(L, part.probabilities(L[..., : len(part.base)]))
        if rng is not None:
            draws = [self.grades.bootstrapped(rng).of(table) for table in L[..., 0]]
            return np.stack(draws)
        return self.grades.of(L[..., 0], counted)

    def predict(self, rows, rng=None):
        """Predict numbers (C, n), or probabilities (C, n, n_levels).

        With `rng`, each of the C tables is predicted by a few trees of its own.
        Numbers are on the scale of the link.
        """
        rows = rows.on(self.part)
        best = self.of_normal_alone(rows.L, rng=rng)
        if self.w > 0:
            n_trees, C = len(self.trees[0]), len(rows.L)
            chosen = np.tile(np.arange(n_trees), (C, 1))
            if rng is not None:
                few = min(_TREES_OF_DRAW, n_trees)
                chosen = rng.random((C, n_trees)).argsort(1)[:, :few]
            of_forest = predict_forest(self.features(rows), self.trees, chosen)
            if self.part.is_number:
                centred = best + self.gain * self.a * (rows.M - rows.L)
                best = centred + self.w * of_forest
            else:
                best = (1 - self.w) * best + self.w * of_forest
        if not self.part.is_number:
            return sharpened(best, self.sharpness)
        best = best[..., 0]
        return best if self.part.link is None else best.clip(max=self.part.link.end)

    def centre_of(self, rows, predicted):
        """Predict numbers (C, n) by the mean of the parameters, given `predict`.

        None for levels.
        """
        if not self.part.is_number:
            return None
        rows = rows.on(self.part)
        centre = predicted + (1 - self.gain) * self.a * (rows.M - rows.L)[..., 0]
        return centre if self.part.link is None else centre.clip(max=self.part.link.end)

    def spread_of(self, rows):
        """Compute factors of the residuals of numbers (C, n)."""
        if self.spread is None:
            return np.ones((len(rows.X), 1))
        return self.spread.of(rows.X[..., self.others])

    def draw(self, predicted, rng, spread=1.0, centre=None):
        """Draw numbers or levels (C, n) given what `predict` and `spread_of` return.

        `centre` (C, n): what `centre_of` returns; None: the predictions of numbers.
        """
        if self.part.is_number:
            centre = predicted if centre is None else centre
            return self._draw_numbers(predicted, rng, spread, centre)
        return levels_at(predicted, rng.random(predicted.shape[:-1]))

    def _draw_numbers(self, mean, rng, spread, centre):
        """Add the residual of a row of similar prediction, and keep the shape."""
        residuals, shape = self.residuals, self.shape
        size = self._size_of_window()
        is_beyond, *ends = windows(residuals.prediction, centre, size)
        # one draw after the other, as all weights of many draws take memory
        of_draws = zip(*ends, strict=True)
        drawn = [residuals.bootstrapped(*of_draw, rng) for of_draw in of_draws]
        pick, local = (np.stack(parts) for parts in zip(*drawn, strict=True))
        # beyond the outermost window its local mean is one error, which all cells there
        # would share, and of which the draws do not know
        noise = residuals.residual[pick] - np.where(is_beyond, local, 0.0)
        if self.spread is not None:
            # an outlier of a small spread, times a large one, would be far from all
            largest = abs(residuals.residual * residuals.spread).max()
            noise = (spread * noise).clip(-largest, largest)
        x = self.part.off_scale(mean + noise)
        donor = residuals.donor[pick]
        for end, value in shape.masses:
            x = np.where(donor == value, value, x)
            inside = np.where(end * donor > end * value, donor, value)
            x = np.where(end * x < end * value, inside, x)
        x = np.where(x < shape.lower, np.maximum(donor, shape.lower), x)
        if shape.step:
            first = np.ceil((shape.lower - shape.origin) / shape.step - 1e-6)
            k = np.round((x - shape.origin) / shape.step)
            x = np.maximum(k, first) * shape.step + shape.origin
        return x

    def means(self, predicted, spread):
        """Compute means of numbers, given what `predict` and `spread_of` return.

        Those of powers are averages over residuals (Duan 1983, smearing).
        """
        if self.part.link is None:
            return predicted
        order, weight = self.residuals.residual.argsort(), self.residuals.weight
        total = weight[self.residuals.row][order].cumsum()
        levels = (np.arange(_SMEARED) + 0.5) / _SMEARED
        places = order[np.searchsorted(total, levels * total[-1])]
        residuals = self.residuals.residual[places]
        return self.part.link.numbers(
            predicted[..., None] + spread[..., None] * residuals
        ).mean(-1)

    def held_out_means(self):
        """Return means of rows (n,) of one completion; NaN of rows in all trees."""
        means = np.full(len(self.residuals.weight), np.nan)
        means[self.residuals.row] = self.means(
            self.residuals.prediction, self.residuals.spread
        )
        return means

    def quantiles(self, predicted, levels, spread=1.0):
        """Find quantiles (n_levels, n) of numbers, given the same."""
        size = self._size_of_window()
        _, first, last = windows(self.residuals.prediction, predicted, size)
        steps = (np.arange(size) + 0.5) / size * (last - first)[:, None]
        near = self.residuals.residual[first[:, None] + steps.astype(int)]
        return self.part.off_scale(
            predicted + spread * np.quantile(near, levels, axis=1)
        )

    def _size_of_window(self):
        return min(_DRAWN_FROM * self.n_completions, len(self.residuals.residual))


def fit_column(expansion, part, cells, rows, weights, n_trees, seed):
    """Fit the model of a column to the rows that observe it.

    `cells` (n,), or (C, n): the observed cells, in the units of the table, or those of
    each completion; `rows`: of n rows; L is held out, or by draws of the parameters;
    `weights` (n,); `n_trees`, int or None: None chooses it: the more, the fewer rows
    there are; `seed`, int.  Returns ColumnModel.
    """
    rows = rows.on(part)
    C, n = rows.L.shape[:2]
    codes = np.zeros(n, np.int64) if part.is_number else part.codes(cells)
    if part.is_number:
        numbers = ((cells - part.centre) / part.scale)[..., None]
        truth = part.on_scale(numbers)
    else:
        truth = np.eye(part.n_levels)[codes]
    model = _start(expansion, part, truth, codes, rows, weights)
    counted = truth * weights[:, None] if C == 1 else 0.0
    # without the noise of draws, in comparison with which a forest would seem better,
    # and on which slopes of levels would be attenuated
    centre, gain = model.of_normal_alone(rows.M, counted), 0.0
    near, is_held_out = centre, np.ones(n, dtype=bool)
    if n_trees != 0 and len(model.others):
        G = model.features(rows)
        Y = (truth - centre)[..., 0] if part.is_number else np.zeros((1, 1))
        bounds = _BOUNDS if C == 1 else _BOUNDS_OF_DRAWS
        tried = max(1, min(G.shape[1], max(_FEWEST_TRIED, G.shape[1] // 3)))
        if n_trees is None:
            n_trees = _default_trees(C, n, 0 if part.is_number else tried)
        trees, of_forest, counts = grow_forest(
            G, Y, codes, part.n_levels, weights, n_trees, _SHARE, tried, bounds, seed
        )
        if part.is_number:
            of_forest += centre
        is_held_out = counts > 0
        w = _share(truth, centre, of_forest, weights * is_held_out, C)
        near = (1 - w) * centre + w * of_forest
        near = np.where(is_held_out[:, None], near, centre)
        gain = _gain(truth, centre, near, weights)
        model = model._replace(trees=trees, w=w, gain=gain)
    if not part.is_number:
        return model._replace(sharpness=sharpness(truth, near, weights * is_held_out))
    truth, donors = (
        np.broadcast_to(x[..., 0], near.shape[:2]) for x in (truth, numbers)
    )
    near = near[..., 0]
    best = near + (1 - gain) * model.a * (rows.L - rows.M)[..., 0]
    # without trees, weights of draws are those of one spread.  On powers, residuals of
    # zeros are large, and a large spread times a large residual is many times as far
    if n_trees != 0 and not part.link:
        X = rows.X.mean(0)[:, model.others]
        of_rows = X, (truth - best).mean(0), weights
        spread = fit_spread(*(x[is_held_out] for x in of_rows))
        model = model._replace(spread=spread)
    factors = np.broadcast_to(model.spread_of(rows), best.shape)
    residuals = _residuals(truth - best, donors, near, factors, weights, is_held_out)
    return model._replace(residuals=residuals, shape=shape_of(part))


def _default_trees(C, n, tried):
    """Choose the number of trees by the rows of C completions.

    `tried`, of levels: features of a split, or 0.  Of few of them trees take less time,
    and more trees decide which of two levels is likelier, whatever the seed.
    """
    rows, least, most = _OF_FILLS if C == 1 else _OF_DRAWS
    more = _FEWEST_TRIED / tried if C == 1 and 0 < tried < _FEWEST_TRIED else 1.0
    return int(np.clip(more * rows / n, least, more * most))


class Filling(NamedTuple):
    """Models by which cells are filled: means have two where draws are of powers."""

    model: ColumnModel  # of draws and quantiles
    plain: ColumnModel | None  # of the numbers as they are
    share: float  # of the means by the first one, where the variances are as large
    variance: float  # of powers there, up to a factor

    @classmethod
    def of(cls, expansion, part, cells, rows, *settings):
        """Fit models; see `fit_column`."""
        model = fit_column(expansion, part, cells, rows, *settings)
        if part.link is None:
            return cls(model, None, 1.0, 1.0)
        numbers = part._replace(score=None)
        plain = fit_column(expansion, numbers, cells, rows, *settings)
        a, b = plain.held_out_means(), model.held_out_means()
        truth, weights = (cells - part.centre) / part.scale, model.residuals.weight
        used = ~np.isnan(a + b)
        a, b, truth, weights = (x[used] for x in (a, b, truth, weights))
        variance = weights @ _variances(part.link, b) / max(weights.sum(), 1e-12)
        fillings = [cls(model, plain, share, variance) for share in _SHARES]
        errors = [weights @ (truth - one.mean_of(a, b)) ** 2 for one in fillings]
        return fillings[int(np.argmin(errors))]

    def mean_of(self, plain, means):
        """Average the means of numbers as they are and of powers.

        The variance of powers grows with their size, and that of the numbers as they
        are does not: small cells are filled by powers, or the error of a large one, of
        a percent, would be many times as large as they are.
        """
        odds = self.share / max(1 - self.share, 1e-12)
        odds = odds * self.variance / _variances(self.model.part.link, means)
        share = odds / (1 + odds)
        return (1 - share) * plain + share * means

    def predict(self, rows):
        """Predict means of numbers, or probabilities of levels; see `ColumnModel`."""
        means = self.model.means(self.model.predict(rows), self.model.spread_of(rows))
        if self.plain is None:
            return means
        return self.mean_of(self.plain.predict(rows), means)

    def quantiles(self, rows, levels):
        """Compute quantiles (n_levels, n) of numbers."""
        return self.model.quantiles(
            self.model.predict(rows)[0], levels, self.model.spread_of(rows)[0]
        )


def _variances(link, x):
    """Compute the variance of numbers whose powers have that of 1."""
    return np.exp(-2 * link.log_slopes(x))


def _start(expansion, part, truth, codes, rows, weights):
    """Make a model without a forest."""
    others = np.setdiff1d(np.arange(expansion.n_base), part.base)
    knots = {}
    for other in expansion.parts:
        if other.is_number:
            values = other.values[:: max(1, len(other.values) // _RANKS)]
            knots[int(other.base[0])] = (values - other.centre) / other.scale
    C, a, grades = len(rows.L), 1.0, None
    if part.is_number and C == 1:
        # of heavy tails: the normal's prediction counts as far as cells confirm it
        a = _factor(truth[..., 0].ravel(), rows.L[0, :, 0], weights)
    if part.kind == GRADE and part.n_levels > 2:
        grades = fit_grades(part, codes, rows.M[..., 0], weights)
    of_normal = [
        _spaced_quantiles(rows.M[..., b].ravel()) if part.is_number else None
        for b in range(rows.M.shape[-1])
    ]
    logit = part.logit
    if part.is_binary and logit is None:
        logit = fit_logit(rows.M, part.probabilities(rows.M), codes, weights)
    return ColumnModel(
        part,
        others,
        knots,
        of_normal,
        logit,
        a=a,
        w=0.0,
        sharpness=1.0,
        trees=None,
        grades=grades,
        residuals=None,
        shape=None,
        spread=None,
        n_completions=C,
        gain=0.0,
    )


def likeliest_power(powers, x, L, weights):
    """Choose the powers by which a column is likelier than as it is, given all others.

    Likelihoods are those of the numbers as they are (Box and Cox 1964), and of any
    distribution of residuals, from which draws come.  The first powers, logarithms, are
    to be likelier than the numbers: roots are, too, where the numbers are linear, with
    a spread that grows.  Powers are also to be likelier by normal residuals: of months,
    which others hardly predict, all scales are as likely by any, but logarithms have
    draws far above the last one.

    `x`, `L` (n, 1 + n_powers): numbers, their powers, and held-out predictions of them.
    Returns Power or None.
    """
    slopes = np.array([weights @ power.log_slopes(x[:, 0]) for power in powers])
    factors = [_factor(z, p, weights) for z, p in zip(x.T, L.T, strict=True)]
    rests, n = (x - factors * L).T, weights.sum()
    entropies = np.array([entropy(rest, weights) for rest in rests])
    log_deviations = np.log(np.maximum(rests**2 @ weights, 1e-300)) / 2
    gains, of_normal = (
        n * (size[0] - size[1:]) + slopes for size in (entropies, log_deviations)
    )
    best = np.where(of_normal > 0, gains, -np.inf).argmax()
    is_likelier = gains[0] > _EVIDENCE and of_normal[best] > 0
    return powers[int(best)] if is_likelier else None


def entropy(x, weights):
    """Estimate the entropy of the distribution of numbers (n,) (Vasicek 1976)."""
    order = np.argsort(x, kind="stable")
    x, w = x[order], weights[order]
    place = w.cumsum() - w / 2
    half = np.sqrt(w.sum()) / 2
    ends = [(place + move).clip(place[0], place[-1]) for move in (-half, half)]
    low, high = (np.interp(end, place, x) for end in ends)
    density = (ends[1] - ends[0]) / w.sum() / np.maximum(high - low, 1e-9)
    return -(w @ np.log(np.maximum(density, 1e-300))) / w.sum()


def _factor(x, L, weights):
    """Choose a of a L by least squares, between 0 and 1, shrunk to 1."""
    size = weights @ L**2
    prior = _PRIOR * size / weights.sum()
    return float(np.clip((weights @ (L * x) + prior) / max(size + prior, 1e-12), 0, 1))


def _share(truth, a, b, weights, C):
    """Choose w of (1 - w) a + w b by least squares, shrunk to 0."""
    d = b - a
    total = C * weights.sum()
    size = (weights[:, None] * d**2).sum()
    gain = (weights[:, None] * d * (truth - a)).sum()
    prior = C * _PRIOR * size / max(total, 1e-12)
    return float(np.clip(gain / max(size + prior, 1e-12), 0, 1))


def _gain(truth, a, b, weights):
    """Compute the share of the squared errors of a that b does not have."""
    of_a, of_b = ((weights[:, None] * (truth - x) ** 2).sum() for x in (a, b))
    return float(np.clip(1 - of_b / max(of_a, 1e-12), 0, 1))


def _spaced_quantiles(v):
    """Choose quantiles of predictions that are apart."""
    knots = [v.min()]
    for q in np.quantile(v, np.linspace(0, 1, _KNOTS)):
        if q > knots[-1] + _APART * v.std():
            knots.append(q)
    return np.array(knots)


def _residuals(rest, donors, near, spread, weights, is_held_out):
    """Sort held-out residuals (C, n) by predictions `near` (C, n)."""
    C = len(near)
    prediction, rest, donor, spread = (
        x[:, is_held_out].ravel() for x in (near, rest, donors, spread)
    )
    order, prediction = sorted_predictions(prediction)
    row = np.tile(np.flatnonzero(is_held_out), C)[order]
    columns = (x[order] for x in (rest / spread, donor))
    return Residuals(prediction, *columns, row, weights, spread[order])


def shape_of(part):
    """Describe a column of numbers by its observed cells."""
    x = part.values
    values, count = np.unique(x, return_counts=True)
    centre, scale = part.centre[0], part.scale[0]
    ends = zip((1, -1), values[[0, -1]], masses_at_ends(values, count), strict=True)
    masses = [(end, value) for end, value, has_mass in ends if has_mass]
    masses += [(0, value) for value in inner_masses(values, count)]
    masses = [(end, (value - centre) / scale) for end, value in masses]
    step, origin = grid_of(x)
    lower = 0.0 if part.is_positive else -np.inf
    if step and part.is_positive and x[0] > 0:
        # zero has no logarithm: the smallest positive grid point
        lower = origin + (np.floor(-origin / step + 1e-6) + 1) * step
    return Shape(
        masses, (lower - centre) / scale, step / scale, (origin - centre) / scale
    )
