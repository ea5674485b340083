"""Draws of parameters and cells against exact conditional distributions."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from statistical import FAILURE, p_mean, standard_errors
from tables import independent

from skvnce import TableImputer
from skvnce._core.random import seeded
from skvnce.table_imputer import draws as module
from skvnce.table_imputer import expansion as expansion_module
from skvnce.table_imputer import model as model_module
from skvnce.table_imputer import normal
from skvnce.table_imputer.draws import (
    Chain,
    laws_of,
    put_cells,
    run_chain,
    some_rows,
    targets_of,
)
from skvnce.table_imputer.expansion import expand
from skvnce.table_imputer.fit import Problem, fit_table
from skvnce.table_imputer.model import Settings
from skvnce.table_imputer.normal import Normals, fit_em
from skvnce.table_imputer.products import Candidate

COVARIANCE = 0.8 + 0.2 * np.eye(4)


def conditional(S, gone):
    """Slopes and covariance of some columns given the others, whose means are 0."""
    m, o = gone, np.setdiff1d(np.arange(len(S)), gone)
    slopes = np.linalg.solve(S[np.ix_(o, o)], S[np.ix_(o, m)])
    return o, slopes, S[np.ix_(m, m)] - S[np.ix_(m, o)] @ slopes


@pytest.mark.parametrize("gone", [[0], [1, 3], [0, 1, 2]])
def test_cells_are_drawn_from_their_conditional_distribution(seed, rng, gone):
    """Errors of the parameters and residuals, of n rows, add to those of the draws."""
    n, S, gone = 2000, COVARIANCE, np.array(gone)
    root = np.linalg.cholesky(S)
    X, new = (rng.normal(size=(n, 4)) @ root.T for _ in range(2))
    X[rng.random(X.shape) < 0.1] = np.nan
    problem = Problem(X, np.ones(n), np.zeros(4, int), [None] * 4)
    model = fit_table(problem, None, Settings(0, 5, 0.05, seed))
    o, slopes, covariance = conditional(S, gone)
    full = new.copy()
    new[:, gone] = np.nan
    with seeded(seed):
        z = model.draw(new, 1)[0][:, gone] - full[:, o] @ slopes
    z = z @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    i, j = np.triu_indices(len(gone))
    moments = np.column_stack([z, z[:, i] * z[:, j] - (i == j)])
    errors = np.sqrt(2 / n) * moments.std(0)
    limit = standard_errors(moments.shape[1])
    assert (abs(moments.mean(0)) < limit * errors).all()
    # control: the draws of cells that nothing predicts
    plain = (rng.normal(size=(n, 4)) @ root.T)[:, gone] - full[:, o] @ slopes
    plain = plain @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    assert abs((plain**2).mean(0) - 1).max() > limit * np.sqrt(2 / n) * 2


def test_draws_of_parameters_are_about_the_fit(rng, monkeypatch):
    """Of monotone gaps the posterior mean is that of EM, not of complete rows."""
    monkeypatch.setattr(normal, "_CHANGE", 1e-8)
    x = rng.normal(size=(150, 1))
    X = np.column_stack([x, 2 * x + rng.normal(size=(150, 1))])
    X[x[:, 0] < 0, 1] = np.nan
    fit, ones = fit_em(X, np.ones(150), independent(0.1, X), 1000), np.ones(150)
    expansion = expand(X, ones, np.zeros(2, int), [None] * 2)
    parts = [part._replace(block=part.base, score=()) for part in expansion.parts]
    expansion = expansion._replace(parts=parts)
    found = run_chain(
        expansion, fit, Chain.of(X, ones, 0.05, np.eye(X.shape[1]), 400, rng)
    )
    assert found.normals.mean.shape == (400, 2) and found.states.shape == (5, 150, 2)
    assert p_mean(found.normals.mean, fit.mean) > FAILURE
    assert p_mean(found.normals.mean, np.nanmean(X, 0)) < FAILURE
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(found.states[:, seen], np.tile(X[seen], (5, 1)))


def test_draws_of_a_sample_of_rows_are_those_of_all(rng):
    """Their centre is the fit of all rows, and their deviations shrink by a half."""
    fit = normal.Fit(rng.normal(size=2), np.array([[1.0, 0.3], [0.3, 2.0]]), 0.5, 9)
    F, ones = rng.normal(size=(100, 2)), np.ones(100)
    some = [normal.posterior_draw(F, ones, independent(1.0, F), rng) for _ in range(50)]
    moved = module._of_all_rows(some, fit, 0.5)
    pairs = zip(*some, strict=True), zip(*moved, strict=True), fit[:2]
    for one, other, centre in zip(*pairs, strict=True):
        one, other = np.stack(one), np.stack(other)
        np.testing.assert_allclose(other.mean(0), centre, atol=1e-10)
        np.testing.assert_allclose(other.std(0), one.std(0) / 2, atol=1e-10)


def chain_of(n, d, n_gone):
    """Make a chain of which each row has as many missing cells."""
    X = np.zeros((n, d))
    X[:, :n_gone] = np.nan
    return Chain.of(
        X, np.ones(n), 0.05, np.eye(X.shape[1]), 20, np.random.default_rng(0)
    )


def test_chains_of_wide_tables_are_bounded():
    few, many = chain_of(100, 10, 2), chain_of(2000, 100, 50)
    assert module._spacing(0.1 ** (1 / 19.5), few) == 20
    assert module._spacing(0.94, few) == 38 * 4 and module._spacing(0.999, few) == 180
    assert module._spacing(0.01, few) == 3
    steps = module._spacing(0.999, many)
    assert 3 <= steps < 45 and steps * 20 * 2000 * (50**3 / 6 + 5000) <= 1e10
    assert module._n_rounds(0.1 ** (1 / 19.5), few) == 20
    assert module._n_rounds(0.01, few) == module._n_rounds(0.999, many) == 6


def test_draws_of_slow_chains_are_apart(monkeypatch):
    """Where most cells are missing the rate of EM is not that of the chain."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1)) + rng.normal(size=(100, 4))
    X[rng.random(X.shape) < 0.65] = np.nan
    chain = Chain.of(X, np.ones(100), 0.05, np.eye(X.shape[1]), 60, rng)
    fit = fit_em(X, chain.weights, chain.prior)
    likeness = {}
    for times in (4, 1):  # control: 1
        monkeypatch.setattr(module, "_TIMES_OF_SLOW", times)
        spacing = module._spacing(fit.rate, chain)
        draws = [draw for _, draw in module._steps(fit, chain, spacing)]
        K = np.linalg.inv([S for _, S in draws])
        slopes = (K / K[:, :1, :1])[:, 0, 1:]
        z = slopes - slopes.mean(0)
        likeness[times] = np.mean((z[1:] * z[:-1]).sum(0) / (z**2).sum(0))
    assert likeness[4] < 0.2 < likeness[1]


def test_some_rows_are_kept_in_order():
    rows = np.arange(100) * 2
    np.testing.assert_array_equal(some_rows(rows, 100, 0), rows)
    found = some_rows(rows, 10, 0)
    assert len(np.unique(found)) == 10 and (np.diff(found) > 0).all()
    np.testing.assert_array_equal(found, some_rows(rows, 10, 0))


# Factors of products

N = 20_000


def with_product(rng, n_levels, grades=0):
    """Expand a factor, a number, and their product, of which y is the target."""
    first = rng.normal(size=500)
    if n_levels or grades:
        first = rng.binomial((grades or 2) - 1, 0.4, 500) * 1.0
    z = rng.normal(size=500) + 0.5 * first
    y = first + z + first * z + rng.normal(size=500)
    cells, ones = np.column_stack([first, z, y]), np.ones(500)
    found = expand(cells, ones, np.array([n_levels, 0, 0]), [None] * 3)
    parts = [part._replace(block=part.base, score=()) for part in found.parts]
    found = found._replace(parts=parts)
    X = found.matrix(cells)
    found = found.with_products(X, ones, [Candidate(0, 1, 2, 1.0, 500.0)])
    fit = fit_em(found.matrix(cells), ones, independent(0.1, found.matrix(cells)))
    normals = Normals.of([(fit.mean, fit.covariance)], np.ones((1, 4), dtype=bool))
    return found, normals, targets_of(found, normals, 0)


def row_of(n, z=0.4, y=0.5):
    S = np.zeros((1, n, 4))
    S[..., 1], S[..., 2] = z, y
    return S


def regression(normals, column, others):
    """Regress a column on others by dense algebra; intercept, slopes and variance."""
    mean, S = normals.mean[0], np.linalg.inv(normals.precision[0])
    slopes = np.linalg.solve(S[np.ix_(others, others)], S[others, column])
    variance = S[column, column] - S[column, others] @ slopes
    return mean[column] - mean[others] @ slopes, slopes, variance


@pytest.mark.parametrize("n_levels", [2, 3])  # the second: grades, which are numbers
def test_factors_of_levels_follow_the_rule_of_bayes(rng, n_levels):
    given = (2, 0) if n_levels == 2 else (0, n_levels)
    expansion, normals, targets = with_product(rng, *given)
    part, product = expansion.parts[0], expansion.products[0]
    z, y, values = 0.4, 0.5, part.coded[:, 0]
    b, s, variance = regression(normals, 0, [1])
    mean = b + s[0] * z
    share = (mean - values[0]) / (values[-1] - values[0])
    prior = np.array([1 - share, share])
    if n_levels > 2:
        alone = normals.mean[0, 0], np.sqrt(np.linalg.inv(normals.precision[0])[0, 0])
        ratio = part.shares / stats.norm(*alone).pdf(values)
        prior = ratio * stats.norm(mean, np.sqrt(variance)).pdf(values)
        prior /= prior.sum()
    b, s, variance = regression(normals, 2, [0, 1, 3])
    others = np.full(n_levels, z)
    columns = [values, others, (values * z - product.centre) / product.scale]
    exact = prior * stats.norm(b + s @ columns, np.sqrt(variance)).pdf(y)
    laws = laws_of(expansion, normals, 0)
    codes = module._levels(expansion, part, laws, targets, row_of(N, z, y), rng)
    counts = np.bincount(codes[0], minlength=n_levels)
    for law, is_right in ((exact / exact.sum(), True), (prior, False)):
        assert N * law.min() > 10
        p = stats.chisquare(counts, N * law).pvalue
        assert (p > FAILURE) == is_right


def with_proxy(rng, n_levels):
    """Expand levels g, x, the target y of their products, and u, which depends on y."""
    n = 500
    g = rng.integers(0, n_levels, n).astype(float)
    x = rng.normal(size=n) + 0.5 * (g == 1)
    y = (1 - g) * x + rng.normal(size=n)
    cells = np.column_stack([g, x, y, y + rng.normal(size=n)])
    ones = np.ones(n)
    expansion = expand(cells, ones, np.array([n_levels, 0, 0, 0]), [None] * 4)
    parts = [part._replace(block=part.base, score=()) for part in expansion.parts]
    expansion = expansion._replace(parts=parts)
    g_columns, (x_column, y_column, u_column) = (
        parts[0].base.tolist(),
        [int(part.base[0]) for part in parts[1:]],
    )
    chosen = [Candidate(j, x_column, y_column, 1.0, 500.0) for j in g_columns[-2:]]
    expansion = expansion.with_products(expansion.matrix(cells), ones, chosen)
    fit = fit_em(
        expansion.matrix(cells), ones, independent(1.0, expansion.matrix(cells))
    )
    normals = Normals.of([fit[:2]], np.ones((1, expansion.width), dtype=bool))
    return expansion, normals, (x_column, y_column, u_column)


def knows(expansion, columns):
    products = [one._replace(tells=columns) for one in expansion.products]
    return expansion._replace(products=products)


@pytest.mark.parametrize("n_levels", [2, 3])
def test_levels_know_what_depends_on_the_product_by_the_chain_rule(rng, n_levels):
    """p(g | x) p(y, u | g, x, products), with both densities from one covariance."""
    expansion, normals, (at_x, at_y, at_u) = with_proxy(rng, n_levels)
    part, x, y, u = expansion.parts[0], 0.8, 0.6, -0.4
    S = np.zeros((1, N, expansion.width))
    S[..., at_x], S[..., at_y], S[..., at_u] = x, y, u
    exact, mean = [], normals.mean[0]
    covariance = np.linalg.inv(normals.precision[0])
    L = [regression(normals, j, [at_x]) for j in part.base.tolist()]
    prior = part.probabilities(np.array([b + s[0] * x for b, s, _ in L]))
    products = [one.at for one in expansion.products]
    others, both = [*part.base.tolist(), at_x, *products], [at_y, at_u]
    slopes = np.linalg.solve(
        covariance[np.ix_(others, others)], covariance[np.ix_(others, both)]
    )
    rest = covariance[np.ix_(both, both)] - covariance[np.ix_(both, others)] @ slopes
    for code, share in enumerate(prior):
        row = S[:, :1].copy()
        module.put_cells(expansion, row, part, np.array([[code]]), np.array([0]))
        centre = mean[both] + (row[0, 0, others] - mean[others]) @ slopes
        exact.append(share * stats.multivariate_normal(centre, rest).pdf([y, u]))
    exact = np.array(exact) / sum(exact)
    assert N * exact.min() > 10
    for columns, is_right in (((at_y, at_u), True), ((at_y,), False)):
        told = knows(expansion, columns)
        laws, targets = laws_of(told, normals, 0), targets_of(told, normals, 0)
        codes = module._levels(told, part, laws, targets, S, rng)
        counts = np.bincount(codes[0], minlength=n_levels)
        assert (stats.chisquare(counts, N * exact).pvalue > FAILURE) == is_right


def test_products_of_the_levels_of_a_column_are_in_the_same_draws(rng):
    expansion, *_ = with_proxy(rng, 3)
    products = [one._replace(probability=0.5) for one in expansion.products]
    expansion = expansion._replace(products=products)
    cells = np.column_stack([rng.integers(0, 3, 60), rng.normal(size=(60, 3))])
    X, ones = expansion.matrix(cells.astype(float)), np.ones(60)
    chain = Chain.of(X, ones, 0.05, np.eye(X.shape[1]), 30, rng)
    normals = run_chain(expansion, fit_em(X, ones, independent(1.0, X)), chain).normals
    first, second = (normals.precision[:, one.at, 0] != 0 for one in products)
    np.testing.assert_array_equal(first, second)
    assert 0 < first.sum() < 30


def test_columns_that_are_no_factors_have_no_targets(rng):
    expansion, normals, targets = with_product(rng, 0)
    assert targets_of(expansion, normals, 2) is None
    assert targets_of(expansion, normals, 1) is not None
    # it is proposed without its target, which it is then chosen by
    told, prior = laws_of(expansion, normals, 0)
    assert told.slopes[0, 2] and not prior.slopes[0, [2, 3]].any()
    (only,) = laws_of(expansion, normals, 2)
    assert only.slopes[0, [0, 1, 3]].all()
    assert [one.base[0] for one in targets.parts] == [2]


def banded(seed, n=600):
    """Make a number that bands of another decide, and its product with a third."""
    rng = np.random.default_rng(seed)
    u, z = rng.random(n), rng.normal(size=n)
    f = rng.permutation(12)[(12 * u).astype(int)].astype(float)
    X = np.column_stack([u, f, z, (f - 5.5) * z + 2 * rng.normal(size=n)])
    X[rng.random(n) < 0.2, 1] = np.nan
    return X, f


def error_of_draws(X, f):
    problem = Problem(X, np.ones(len(X)), np.zeros(4, int), [None] * 4)
    model = fit_table(problem, [(1, 2)], Settings(None, 5, 0.05, 0))
    gone = np.isnan(X[:, 1])
    with seeded(0):
        return np.sqrt(((model.draw(X, 5)[:, gone, 1] - f[gone]) ** 2).mean())


def test_a_factor_that_a_forest_knows_is_drawn_from_it(seed, monkeypatch):
    X, f = banded(seed)
    drawn = error_of_draws(X, f)
    monkeypatch.setattr(model_module, "_GAIN", 2.0)  # control: never
    assert drawn < 0.8 * error_of_draws(X, f)


def test_the_law_without_targets_keeps_zeros(seed, monkeypatch):
    """Money with zeros, in which another column is linear."""
    rng, n = np.random.default_rng(seed), 1500
    z = rng.normal(size=n)
    money = np.where(rng.random(n) < 0.3, 0, np.exp(z + rng.normal(size=n) / 2))
    X = np.column_stack([money, money + 3 * rng.normal(size=n), z])
    X[rng.random(n) < 0.4, 0] = np.nan
    problem = Problem(X, np.ones(n), np.zeros(3, int), [None] * 3)
    model = fit_table(problem, None, Settings(0, 5, 0.05, 0))
    q = int(np.flatnonzero(model.source.order == 0)[0])
    assert model.expansion.parts[q].tells

    def share():
        donors = model._proposers_of(model.posterior(), q)[1].model.residuals.donor
        low = (0 - model.expansion.parts[q].centre) / model.expansion.parts[q].scale
        return (abs(donors - low) < 1e-9).mean()

    assert 0.26 < share() < 0.34
    model.posterior().columns.clear()
    monkeypatch.setattr(module, "_is_factor", lambda *_: True)  # control: normal
    assert share() < 0.22


def test_bent_log_odds_vary_by_the_slopes_of_other_columns(seed, monkeypatch):
    """The errors of a slope in many new rows are those of the parameters."""
    rng, n, n_new, n_draws = np.random.default_rng(seed), 400, 4000, 60
    x, z = rng.normal(size=(2, n + n_new))
    b = rng.integers(0, 2, n + n_new)
    chance = expit(1.5 * x * (2 * b - 1))
    y = np.where(np.arange(n + n_new) < n, rng.random(n + n_new) < chance, np.nan)
    A = np.column_stack([np.ones(n + n_new), x, b, x * b])
    both = np.column_stack([A, y])[:n]
    z[:n] -= both @ np.linalg.lstsq(both, z[:n], rcond=None)[0]  # its slope is 0
    X = np.column_stack([x, b, z, y])
    problem = Problem(X[:n], np.ones(n), np.zeros(4, int), [None] * 4)
    model = fit_table(problem, [(0, 1)], Settings(0, n_draws, 0.05, 0))
    rest = y[:n] - A[:n] @ np.linalg.lstsq(A[:n], y[:n], rcond=None)[0]
    exact = (rest @ rest) / (n - 5) * (1 / (z[:n] @ z[:n]) + 1 / (z[n:] @ z[n:]))
    A = np.column_stack([A, z])[n:]

    def p_smaller():
        with seeded(0):
            drawn = model.draw(X[n:], n_draws)[..., 3]
        slopes = np.linalg.lstsq(A, drawn.T, rcond=None)[0][-1]
        ratio = (n_draws - 1) * slopes.var(ddof=1) / exact
        return stats.chi2(n_draws - 1).cdf(ratio)

    assert p_smaller() > FAILURE
    monkeypatch.setattr(normal.Conditional, "around", lambda law, *_: law.average())
    assert p_smaller() < FAILURE  # control


def test_bent_log_odds_do_not_move_away_from_the_fit(seed, monkeypatch):
    """Where most cells are missing, draws would follow draws, and so on."""

    def shift(i):
        rng = np.random.default_rng([seed, i])
        e, s, w = rng.normal(size=(3, 1000))
        chance = expit(-1.5 + 0.8 * e * s + 0.5 * w)
        y = 1.0 * (rng.random(1000) < chance)
        gone = rng.random(1000) < expit(4 * w)
        X = np.column_stack([e, s, w, np.where(gone, np.nan, y)])
        imputer = TableImputer([(0, 1)], n_estimators=0, random_state=0).fit(X)
        drawn = imputer.sample(X, 20, random_state=0, as_array=True)[:, gone, 3]
        return drawn.mean() - chance[gone].mean()

    # the standard deviation of a table is .05
    assert abs(np.mean([shift(i) for i in range(4)])) < 0.12

    def of_rounds(expansion, block, normals, q):
        return normals.conditional(block, len(expansion.parts[q].responses))

    monkeypatch.setattr(module, "_regressed", of_rounds)
    assert np.mean([shift(i) for i in range(4)]) > 0.12  # control


def test_log_odds_of_the_level_left_out_are_no_noise(seed, monkeypatch):
    """Survivors by class and sex, as of the Titanic; the third has no product."""

    def spread(i):
        """Return the deviation of the rate of third-class men between draws."""
        rng = np.random.default_rng([seed, i])
        grade, man = rng.choice(3, 800, p=[0.25, 0.25, 0.5]), rng.random(800) < 0.6
        chance = np.array([[0.95, 0.9, 0.5], [0.35, 0.15, 0.15]])[1 * man, grade]
        X = np.column_stack([grade, man, rng.random(800) < chance]).astype(float)
        X[rng.random(X.shape) < 0.3] = np.nan
        problem = Problem(X, np.ones(800), np.array([3, 2, 2]), [None] * 3)
        model = fit_table(problem, [(0, 1)], Settings(0, 10, 0.05, 0))
        with seeded(0):
            tables = model.draw(X, 10)
        men = [table[(table[:, 0] == 2) & (table[:, 1] == 1)] for table in tables]
        rates = [table[:, 2].mean() for table in men]
        return np.std(rates)

    # 240 men, of whom a third are observed with all: the error of their rate is .03,
    # and of the imputed ones a little less
    spreads = [spread(i) for i in range(4)]
    assert np.mean(spreads) < 0.05
    alone = property(lambda part: part.base[:2])  # not of the third class
    monkeypatch.setattr(expansion_module.Part, "functions", alone)
    control = [spread(i) for i in range(4)]
    assert np.mean(control) > 0.05


def places(seed, n=300):
    """Make latitudes, longitudes and temperatures of four countries."""
    rng = np.random.default_rng(seed)
    country, noise = rng.integers(0, 4, n), rng.normal(size=(3, n))
    X = np.column_stack(
        [
            np.array([40, 52, -33, 10])[country] + noise[0],
            np.array([-100, 10, 150, -170])[country] + noise[1],
            20 - np.array([5, 8, 1, -6])[country] + 2 * noise[2],
        ]
    )
    X[rng.random(X.shape) < 0.25] = np.nan
    return X


def farthest_draw(seed):
    """Find the largest distance of a draw from the mean, in observed ranges."""
    farthest = []
    for i in range(2):
        X = places([seed, i])
        imputer = TableImputer(n_parameter_draws=5, random_state=0).fit(X)
        drawn = imputer.sample(X, 10, random_state=0, as_array=True)
        span = np.nanmax(X, 0) - np.nanmin(X, 0)
        farthest.append((abs(drawn - np.nanmean(X, 0)) / span).max())
    return max(farthest)


def test_factors_of_squares_of_each_other_do_not_run_away(seed, monkeypatch):
    assert farthest_draw(seed) < 3
    # control: with products, and without ends
    monkeypatch.setattr(module, "laws_of_forest", module.laws_of)
    monkeypatch.setattr(module, "ends_of", lambda *_: (-np.inf, np.inf))
    assert farthest_draw(seed) > 3


def chosen_from_the_target(rng):
    """Draw from the target of the choice on a grid, and choose once more."""
    expansion, normals, targets = with_product(rng, 0)
    part, product, z, y = expansion.parts[0], expansion.products[0], 0.9, 1.5
    laws = laws_of(expansion, normals, 0)
    row = row_of(1, z, y)
    at = [(one.means(row)[0, 0, 0], one.covariance[0, 0, 0]) for one in laws]
    at = [(m, np.sqrt(v)) for m, v in at]
    x = np.linspace(-6, 6, 20_001)
    b, s, variance = regression(normals, 2, [0, 1, 3])
    value = (x * z - product.centre) / product.scale
    mean = b + np.column_stack([x, np.full_like(x, z), value]) @ s
    p = stats.norm(mean, np.sqrt(variance)).pdf(y) * stats.norm(*at[1]).pdf(x)
    p /= p.sum()
    proposals = [rng.choice(x, (1, N), p=p)]
    for one in at:
        proposals += [rng.normal(*one, (1, N)) for _ in range(5)]
    given = expansion, part, laws, targets, proposals, row_of(N, z, y), rng
    found = module._chosen(*given)[0]
    mean = p @ x
    moments = np.column_stack([found, (found - mean) ** 2])
    return p_mean(moments, [mean, p @ (x - mean) ** 2])


def test_the_choice_of_proposals_leaves_its_target(rng, monkeypatch):
    assert chosen_from_the_target(rng) > FAILURE
    monkeypatch.setattr(
        module, "_density_of_targets", lambda *given: np.zeros(given[3].shape[:-1])
    )
    assert chosen_from_the_target(rng) < FAILURE  # control: without the densities


def test_cells_are_written_with_their_functions(rng):
    expansion, _, _ = with_product(rng, 0)
    S = row_of(5)
    put_cells(expansion, S, expansion.parts[0], np.arange(5.0)[None], np.arange(5))
    product = expansion.products[0]
    exact = (np.arange(5.0) * 0.4 - product.centre) / product.scale
    np.testing.assert_allclose(S[0, :, 3], exact)
