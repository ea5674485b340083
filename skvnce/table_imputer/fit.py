"""Fit a normal distribution to the expanded table, and find products."""

import itertools
from typing import NamedTuple

import numpy as np

from skvnce._core.progress import steps
from skvnce._imputer.held_out import row_folds
from skvnce.table_imputer.columns import Rows, likeliest_power, shape_of
from skvnce.table_imputer.draws import observed_rows, some_rows
from skvnce.table_imputer.expansion import EXPONENTS, content_order, expand, power_of
from skvnce.table_imputer.levels import fit_logit
from skvnce.table_imputer.model import (
    FEWEST,
    MOST_ROWS,
    Mates,
    Source,
    TableModel,
    Training,
)
from skvnce.table_imputer.normal import Normal, Normals, Prior, fit_em, joined
from skvnce.table_imputer.products import (
    ProductTests,
    Regressions,
    choose_products,
    factors_of,
    has_rows,
    is_normal,
    is_of_grades,
    is_of_skewness,
    is_of_spread,
    is_of_spread_by_level,
    probability_of,
    products_asked_for,
    sets_of_pairs,
)

_MOST_ROWS = 20_000  # to which all but the final parameters are fitted
_FOLDS = 5
_ROUNDS = 12  # of EM without a fold, which starts at the fit of all rows
_ROWS_OF_PRODUCT = 30
_ROUNDS_OF_CHOICE = 3
# of a product that stays in the model: the median probability model of Barbieri and
# Berger (2004), as draws with many unlikely products extrapolate badly
_LEAST_PROBABILITY = 0.5
# the same of products with an indicator, which extrapolate less
_LEAST_OF_LEVELS = 0.25
# columns that show a product without its target: at most, and the least variance by the
# product over that of the residual, some times what chance makes in 300 rows
_MOST_DEPENDENTS, _LEAST_SHARE = 3, 0.02
_LINEAR = 0.5  # partial correlation, squared, from which on a number is that of another
_BENT = 0.1  # the same, from which on its regression bends without any product
_LEAST_CHI_SQUARE = 4.0  # of a column in which another is linear: P = .05 by chance
# partial correlation, from which on t of a product is larger by 15 % without the column
_CLOSE = 0.5


class Problem(NamedTuple):
    """The columns of the model of a table."""

    cells: np.ndarray  # (n, p), NaN where missing, codes of categories
    weights: np.ndarray  # (n,)
    n_categories: np.ndarray  # (p,), 0 for numbers
    level_values: list  # of p ndarray or None: the values of levels that are ordered
    followers: tuple = ()  # columns that are functions of others, and in no model
    # of (column, other columns, whether it is looked up): columns that follow
    relations: tuple = ()
    crossing: tuple = ()  # columns that may have another sign than their cells have


def fit_table(problem, interactions, settings):
    """Fit the model of a table.

    `interactions`, "auto", None or list of (int, int): which products the model has.
    Returns TableModel.
    """
    signs, weights = signs_of(problem), problem.weights
    cells = problem.cells * signs
    rng = np.random.default_rng([settings.seed, 0])
    order = content_order(cells)
    order = order[~np.isin(order, problem.followers)]
    cells = cells[:, order]
    values = [problem.level_values[q] for q in order]
    rows = some_rows(np.arange(len(cells)), _MOST_ROWS, rng)
    columns = problem.n_categories[order], values, ~np.isin(order, problem.crossing)
    expansion = expand(cells, weights, *columns)
    # by their content: other folds would change fills more than other forests do
    folds = row_folds(cells[rows], _FOLDS).numpy()
    training = Training(cells[rows], weights[rows], folds, weights.sum())
    source = Source(order, signs, _mates(order, problem.relations))
    model = _fit_normal(source, expansion, training, settings)
    model = _with_folds(_with_powers(model))
    model = _with_logits(_with_products(model, interactions))
    if len(rows) < len(cells):
        model = model._replace(normal=_fit_all(model, cells, weights))
    columns = np.flatnonzero(np.isnan(cells).any(0)).tolist()
    for q in steps("model of column", columns, len(columns)):
        model.column(q)
    return model


def signs_of(problem):
    """Return -1 for columns of numbers of which none is positive, else 1 (p,)."""
    highest = np.fmax.reduce(problem.cells, 0)
    is_negative = (highest <= 0) & (np.fmin.reduce(problem.cells, 0) < 0)
    return np.where(is_negative & (problem.n_categories == 0), -1.0, 1.0)


def _mates(order, relations):
    """List the columns of each relation by the column that follows, in an order."""
    mates, place = [[] for _ in order], {int(j): q for q, j in enumerate(order)}
    for column, others, is_lookup in relations:
        if column in place:
            others = np.array([place[j] for j in others])
            mates[place[column]].append(Mates(others, is_lookup))
    return mates


def _fit_normal(source, expansion, training, settings):
    """Fit the normal distribution to the training rows."""
    X, fit = expansion.matrix(training.cells), None
    if X.shape[1]:
        fit = fit_em(X, training.weights, _prior(expansion, X, settings))
    return TableModel(
        source,
        expansion,
        fit,
        held_out=[],
        training=training,
        settings=settings,
        columns={},
        cache={"matrix": X},
    )


def _prior(expansion, X, settings):
    return Prior(settings.share * X.shape[1], expansion.correlation(X))


def _with_folds(model):
    """Fit the normal distribution also without each fold of the training rows."""
    X, training, held_out = model.training_matrix(), model.training, []
    prior = _prior(model.expansion, X, model.settings)
    for fold in range(_FOLDS if X.shape[1] else 0):
        rest = training.folds != fold
        rest = rest if rest.any() else ~rest
        start = model.normal.mean, model.normal.covariance
        of_rest = fit_em(X[rest], training.weights[rest], prior, _ROUNDS, start)
        held_out.append(Normal.of(of_rest.mean, of_rest.covariance))
    return model._replace(held_out=held_out)


def _with_powers(model):
    """Fit again with powers, where these are likelier than the numbers."""
    logarithms = _logarithms(model)
    if not logarithms:
        return model
    # given logarithms of the others: those of a panel are linear in each other
    powers = _likelier_powers(_with_scores(model, logarithms), logarithms)
    while powers:
        fitted = _with_scores(model, powers)
        parts, expansion = list(fitted.expansion.parts), fitted.expansion
        normals = Normals.of_fit(fitted.normal)
        linear = {q: _linear_in(q, fitted, normals) for q in powers}
        most = {q: max(linear[q].values(), default=0.0) for q in powers}
        if max(most.values()) < _LINEAR:
            for q, shares in linear.items():
                closest = sorted(shares, key=lambda j: -shares[j])[:_MOST_DEPENDENTS]
                bends = most[q] > _BENT
                parts[q] = parts[q]._replace(tells=tuple(closest), bends=bends)
            return fitted._replace(expansion=expansion._replace(parts=parts))
        # another column, as a total is, shows the number itself
        powers = {q: s for q, s in powers.items() if most[q] < _LINEAR}
    return model


def _with_scores(model, scores):
    """Fit again with other second columns, dict of int to Power, by column."""
    parts = list(model.expansion.parts)
    for q, score in scores.items():
        parts[q] = parts[q]._replace(score=score)
    expansion = model.expansion._replace(parts=parts)
    return _fit_normal(model.source, expansion, model.training, model.settings)


def _power_of(model, q, exponent):
    """Make powers of the observed cells of a column; None if it has none."""
    part = model.expansion.parts[q]
    x = model.training_matrix()[:, part.base[0]]
    rows = ~np.isnan(x)
    return power_of(part, x[rows], model.training.weights[rows], exponent)


def _logarithms(model):
    """Map columns to their logarithms, if they have these."""
    logarithms = {}
    for q, part in enumerate(model.expansion.parts):
        if part.score and (~np.isnan(model.training.cells[:, q])).sum() >= FEWEST:
            logarithms[q] = _power_of(model, q, EXPONENTS[0])
    return {q: score for q, score in logarithms.items() if score}


def _likelier_powers(model, logarithms):
    """Map columns to their powers, if these are likelier than the numbers."""
    X, training, likelier = model.training_matrix(), model.training, {}
    for q, logarithm in logarithms.items():
        part = model.expansion.parts[q]
        rows = np.flatnonzero(~np.isnan(training.cells[:, q]))
        roots = [_power_of(model, q, exponent) for exponent in EXPONENTS[1:]]
        powers = [logarithm, *filter(None, roots)]
        rows = some_rows(rows, MOST_ROWS, model.settings.seed + q)
        x, weights = X[rows, part.base[0]], training.weights[rows]
        gone = np.isnan(X[rows])
        gone[:, part.block] = True
        others = np.delete(model.completed(X[rows], gone), part.block, 1)
        rng = np.random.default_rng(model.settings.seed)
        x = _spread_ties(x, logarithm.origin, rng)
        Z = np.column_stack([x, *(power.of(x) for power in powers)])
        strength = model.settings.share * X.shape[1]
        L = _fold_predictions(others, Z, weights, training.folds[rows], strength)
        power = likeliest_power(powers, Z, L, weights)
        if power:
            likelier[q] = power
    return likelier


def _spread_ties(x, origin, rng):
    """Draw equal numbers of x (n,) anew, between the midpoints of those beside them.

    Their residuals are as far apart as their predictions, not as the numbers are that
    became equal by rounding.
    """
    values, place, count = np.unique(x, return_inverse=True, return_counts=True)
    gaps = np.diff(values, append=values[-1]) / 2
    low = values - np.roll(gaps, 1)
    low[0] = values[0] - min(gaps[0], (values[0] - origin) / 2)
    if values[0] <= origin:
        gaps[0] = 0.0  # zero is no rounded number
    return np.where(
        count[place] > 1, rng.uniform(low[place], (values + gaps)[place]), x
    )


def _fold_predictions(A, Z, weights, folds, strength):
    """Predict columns of Z (n, k) by those of A (n, m), without the rows of a fold."""
    A, L = np.column_stack([np.ones(len(A)), A]), np.zeros(Z.shape)
    prior = np.diag([1e-9, *[max(strength, 1e-9)] * (A.shape[1] - 1)])
    for fold in range(_FOLDS):
        is_in, w = folds == fold, weights * (folds != fold)
        L[is_in] = A[is_in] @ np.linalg.solve(
            A.T @ (w[:, None] * A) + prior, A.T @ (w[:, None] * Z)
        )
    return L


def _linear_in(q, model, normals):
    """Map columns that are linear in a column, given its powers, to how much.

    That is the squared partial correlation with the numbers, if it is no chance.
    """
    parts, shares = model.expansion.parts, {}
    observed, factor = ~np.isnan(model.training.cells), parts[q]
    n_both = model.training.weights @ (observed & observed[:, [q]])
    for part, n in zip(parts, n_both, strict=True):
        if _is_target(part) and part is not factor:
            pair = np.array([part.responses[part.place], factor.base[0]])
            block = joined(pair, part.block)
            C = normals.conditional(block, 2).covariance[0]
            share = C[0, 1] ** 2 / (C[0, 0] * C[1, 1])
            if share * n > _LEAST_CHI_SQUARE:
                shares[int(part.base[0])] = share
    return shares


def _is_target(part):
    """Say whether a column has one number, and more than two of its values."""
    return len(part.base) == 1 and part.n_levels != 2


def _fit_all(model, cells, weights):
    """Continue EM with all rows of a long table."""
    X = model.expansion.matrix(cells)
    start = model.normal.mean, model.normal.covariance
    prior = _prior(model.expansion, X, model.settings)
    return fit_em(X, weights, prior, _ROUNDS, start)._replace(rate=model.normal.rate)


def _confirmed(model, chosen):
    """Leave out products that data augmentation does not confirm.

    If a target decides which cells of a factor are missing, only draws of these cells
    show whether a product is there: they are right for any cells missing at random.
    None is left if, with them, drawn cells run away.
    """
    if not any([product.is_doubtful for product in chosen]):
        return [product for product in chosen if _is_likely(model.expansion, product)]
    with_all = _fit_with(model, [p._replace(probability=1.0) for p in chosen])
    try:
        slopes, completions, chain = with_all.slopes_on_products()
    except np.linalg.LinAlgError:
        return []
    slopes, confirmed = np.concatenate(slopes), []
    fitted = with_all.expansion
    for places in model.expansion.interactions(chosen):
        products = [chosen[place] for place in places]
        if products[0].is_doubtful:
            product = fitted.products[places[0]]
            if _is_of_skewness(fitted, product, completions, chain.X, chain.weights):
                continue
            mean, C = slopes[:, places].mean(0), np.cov(slopes[:, places].T, ddof=0)
            # Wald's statistic; slopes of products that no draw moves have no variance
            C = np.atleast_2d(C) + 1e-24 * np.eye(len(places))
            gain, first = mean @ np.linalg.solve(C, mean), products[0]
            p = probability_of(gain, first.n_rows, first.prior, len(places))
            products = [product._replace(probability=p) for product in products]
        confirmed += [p for p in products if _is_likely(model.expansion, p)]
    return confirmed


def _with_products(model, interactions):
    """Fit again with products that are chosen, or asked for."""
    chosen = _mark_telling(model, _products(model, interactions))
    if not chosen:
        return model
    fitted = _fit_with(model, chosen)
    rest = _not_of_spread(fitted, chosen) if interactions == "auto" else chosen
    if not rest:
        return model
    return _with_folds(fitted if len(rest) == len(chosen) else _fit_with(model, rest))


def _with_logits(model):
    """Fit the log-odds of targets of two values by their products and the factors."""
    training, settings, parts = model.training, model.settings, []
    for q, part in enumerate(model.expansion.parts):
        if part.bent:
            rows = observed_rows(training.cells[:, q], MOST_ROWS, settings.seed + q)
            # by all rows: predictions without a fold would be its products and factors
            # with noise, and the log-odds would take these from the columns alone
            L = Rows.of(model.predictions(q, rows), part).on(part).L[0]
            linear = part.probabilities(L[:, :1])
            codes, weights = part.codes(training.cells[rows, q]), training.weights[rows]
            logit = fit_logit(L[None], linear[None], codes, weights)
            part = part._replace(logit=logit.with_root(L, linear, weights))
        parts.append(part)
    return model._replace(expansion=model.expansion._replace(parts=parts))


def _fit_with(model, chosen):
    """Fit again with products of columns."""
    training, X = model.training, model.training_matrix()
    expansion = model.expansion.with_products(X, training.weights, chosen)
    model = _fit_normal(model.source, expansion, training, model.settings)
    normals = Normals.of_fit(model.normal)
    products = [
        p._replace(tells=_dependents(expansion, normals, p)) if p.tells else p
        for p in expansion.products
    ]
    return model._replace(expansion=model.expansion._replace(products=products))


def _dependents(expansion, normals, product):
    """List the target of a product, and columns that show the product without it.

    What is known of the target by another column is known of the product, too.
    """
    parts, columns = expansion.parts, [product.target]
    hidden = parts[expansion.owners[product.target]].block
    factors = expansion.owners[[product.first, product.second]]
    while len(columns) <= _MOST_DEPENDENTS:
        shares = {}
        for q, part in enumerate(parts):
            if _is_target(part) and q not in factors and part.base[0] not in columns:
                block, k = joined(part.block, hidden), part.place
                law = normals.conditional(block, len(part.responses))
                shares[q] = law.slopes[0, product.at, k] ** 2 / law.covariance[0, k, k]
        best = max(shares, key=shares.get, default=None)
        if best is None or shares[best] < _LEAST_SHARE:
            break
        columns.append(int(parts[best].base[0]))
        hidden = joined(hidden, parts[best].block)
    return tuple(columns)


def _is_likely(expansion, product):
    owners = expansion.owners[[product.first, product.second]]
    with_level = any(expansion.parts[q].is_binary for q in owners)
    least = _LEAST_OF_LEVELS if with_level else _LEAST_PROBABILITY
    return product.probability >= least


def _mark_telling(model, chosen):
    """Mark products whose targets are normal by their scores, and not as they are."""
    marked, weights = [], model.training.weights
    X = model.training_matrix()
    filled = model.completed(X, np.isnan(X))
    for product in chosen:
        target = product.target
        part = model.expansion.parts[model.expansion.owners[target]]
        if part.score and not part.link:
            rows = ~np.isnan(X[:, product[:3]]).any(1)
            F, pairs = filled[rows], [p[:2] for p in chosen if p.target == target]
            products = np.prod(F[:, np.transpose(pairs)], axis=1)
            x, score = F[:, part.block[:2]].T
            others = np.delete(F, part.block, 1)
            tells = is_normal(x, score, others, products, part.score, weights[rows])
            product = product._replace(tells=tells)
        marked.append(product)
    return marked


def _not_of_spread(model, chosen):
    """Leave out products that are spreads or skewness of their factors."""
    X = model.training_matrix()
    filled = model.completed(X, np.isnan(X))
    are_of_spread, weights = [], model.training.weights
    for product, candidate in zip(model.expansion.products, chosen, strict=True):
        is_spread = _is_of_spread(model, product, filled)
        if not candidate.is_doubtful:  # else `_confirmed` has tested it
            rows = _rows_of(model, product)
            observed = filled[None, rows], X[rows], weights[rows]
            is_spread |= _is_of_skewness(model.expansion, product, *observed)
        are_of_spread.append(is_spread)
    rest = []
    for places in model.expansion.interactions(chosen):  # of levels, all or none
        if not any(are_of_spread[place] for place in places):
            rest += [chosen[place] for place in places]
    return rest


def _is_of_spread(model, product, filled):
    """Say so of a product, given the columns that do not show it.

    `filled` (n, d): the training rows.
    """
    expansion = model.expansion
    parts, others = _apart(expansion, product)
    of_levels, is_square = parts[2].n_levels == 2, product.first == product.second
    if not product.tells or is_square != of_levels:
        return False
    rows = _rows_of(model, product)
    columns = [product.first, product.second, product.target]
    first, second, target = filled[np.ix_(rows, columns)].T
    A, weights = filled[np.ix_(rows, others)], model.training.weights[rows]
    if of_levels:
        return parts[0].is_number and is_of_spread_by_level(
            target > target.min(), first, A, weights
        )
    of_factors = (parts[0], first, second), (parts[1], second, first)
    return any(
        part.is_number and is_of_spread(target, factor, other, A, weights)
        for part, factor, other in of_factors
    )


def _is_of_skewness(expansion, product, completions, X, weights):
    """Say whether a square is the skewness of its factor, in completions (C, n, d).

    `X` (n, d): the rows with missing cells.
    """
    (factor, _, target), others = _apart(expansion, product)
    is_square = product.first == product.second
    if not product.tells or not is_square or target.n_levels == 2:
        return False
    used = weights > 0
    completions, X, weights = completions[:, used], X[used], weights[used]
    A, x, y = (
        completions[..., columns]
        for columns in (others, factor.base[0], target.base[0])
    )
    observed = ~np.isnan(X[:, factor.base[0]])
    if observed.sum() < FEWEST:  # of the rows of the chain
        return False
    if not factor.is_number and factor.n_levels > 2:
        values = factor.coded[:, 0]
        codes = abs(x[..., None] - values).argmin(-1)
        return is_of_grades(y, codes, values, A, observed, weights)
    rng = np.random.default_rng(0)
    x, y = (
        cells + rng.uniform(-0.5, 0.5, cells.shape) * _step_of(part)
        for cells, part in ((x, factor), (y, target))
    )
    return is_of_skewness(y, x, A, observed, weights)


def _step_of(part):
    """Return the step of standardised cells; with noise of it they have a density."""
    return shape_of(part).step if part.is_number else np.diff(part.coded[:, 0]).min()


def _rows_of(model, product):
    """Select the training rows that observe a product and its target."""
    columns = [product.first, product.second, product.target]
    observed = ~np.isnan(model.training_matrix()[:, columns]).any(1)
    return np.flatnonzero(observed & (model.training.weights > 0))


def _apart(expansion, product):
    """List the parts of a product and its target, and columns that do not show it."""
    columns = [product.first, product.second, product.target, *product.tells]
    parts = [expansion.parts[expansion.owners[j]] for j in columns]
    hidden = np.concatenate([part.base for part in parts])
    return parts[:3], np.setdiff1d(np.arange(expansion.n_base), hidden)


def _products(model, interactions):
    """Choose products by the held-out residuals of columns of one number."""
    if interactions is None:
        return []
    regressions = _regressions(model)
    if isinstance(interactions, list):
        return products_asked_for(regressions, _sets_asked_for(model, interactions))
    expansion, targets = model.expansion, regressions.targets
    parts = [expansion.parts[q] for q in expansion.owners[targets]]
    straight = [
        j
        for j, part in zip(targets, parts, strict=True)
        if not part.bends and has_rows(regressions.X[:, j])
    ]
    straight = regressions._replace(targets=np.array(straight, int))
    sets = sets_of_pairs(regressions.X, expansion)
    most = int(min(expansion.n_base, regressions.weights.sum() / _ROWS_OF_PRODUCT))
    if not sets or not len(straight.targets) or most < 1:
        return []
    tests = ProductTests.of(straight, sets, _partners(model, targets))
    confirmed, tested, refuted = [], set(), []
    for _ in range(_ROUNDS_OF_CHOICE):
        chosen = choose_products(tests, most, refuted)
        triples = {product[:3] for product in chosen}
        if tested.issuperset(triples):
            break
        tested |= triples
        confirmed = _confirmed(model, chosen)
        left = {product[:3] for product in confirmed}
        fallen = [p for p in chosen if p.is_doubtful and p[:3] not in left]
        if not fallen:
            break
        refuted += fallen  # which had excluded others
    return confirmed


def _regressions(model):
    """Regress columns of one number on all others."""
    expansion, training = model.expansion, model.training
    places = enumerate(expansion.parts)
    place = {int(part.base[0]): q for q, part in places if len(part.base) == 1}
    are_binary = np.ones(expansion.n_base, bool)
    for part in expansion.parts:
        are_binary[part.base] = part.is_binary
    X = model.training_matrix()

    def predict(column, rows, partner=None):
        if column is None:
            return model.completed(X, np.isnan(X))
        hidden = np.zeros(X.shape[1], bool)
        if partner is not None:
            hidden[expansion.parts[place[partner]].block] = True
        q = place[column]
        filled, L = model.held_out_predictions(q, rows, hidden)
        return filled, L[:, expansion.parts[q].place]

    powers = {
        int(part.base[0]): int(part.responses[1])
        for part in expansion.parts
        if part.link
    }
    return Regressions(
        X,
        training.weights,
        expansion.n_base,
        np.array(sorted(place), int),
        are_binary,
        predict,
        powers,
    )


def _sets_asked_for(model, pairs):
    """List the factors of products of pairs of columns of the table, by pair."""
    X, parts = model.training_matrix(), model.expansion.parts
    factors = {
        int(node): factors_of(X, part).tolist()
        for node, part in zip(model.source.order, parts, strict=True)
    }
    sets = {
        tuple(sorted(pair)): [*itertools.product(*(factors[node] for node in pair))]
        for pair in pairs
        # products of the levels of a column are linear in them
        if pair[0] != pair[1] or len(factors[pair[0]]) == 1
    }
    return list(sets.values())


def _partners(model, targets):
    """Map targets to that other one that is closest, given all columns, if it is close.

    Returns dict of int to int.
    """
    n_base = model.expansion.n_base
    precision = np.linalg.inv(model.normal.covariance[:n_base, :n_base])
    root = np.sqrt(np.diag(precision))
    correlation = abs(precision / np.outer(root, root))[np.ix_(targets, targets)]
    np.fill_diagonal(correlation, 0.0)
    return {
        i: int(targets[row.argmax()])
        for i, row in zip(targets.tolist(), correlation, strict=True)
        if row.max() > _CLOSE
    }
