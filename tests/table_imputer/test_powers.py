"""Columns whose logarithms or roots are linear in others are drawn by these."""

import numpy as np
import pytest
from statistical import FAILURE, p_mean, p_share

from skvnce import TableImputer
from skvnce.table_imputer import draws as draws_module
from skvnce.table_imputer import expansion as expansion_module
from skvnce.table_imputer import fit as fit_module
from skvnce.table_imputer.columns import Filling, entropy, likeliest_power
from skvnce.table_imputer.expansion import expand, power_of
from skvnce.table_imputer.fit import Problem, fit_table
from skvnce.table_imputer.model import Settings

N_TABLES = 40


def hidden_above(rng, x, cells, rate=0.4):
    """Hide cells where x is high, more or less."""
    high = x - np.quantile(x, 1 - rate) + rng.logistic(size=len(x)) / 2
    return np.where(high > 0, np.nan, cells)


def wages(seed):
    """Make x, and a lognormal outcome that is missing where x is high."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=300)
    y = np.exp(0.5 * x + 0.5 * rng.normal(size=300))
    return np.column_stack([x, hidden_above(rng, x, y)])


def spending(seed):
    """Make y, linear in a lognormal w, whose cells are hidden where x is high."""
    rng = np.random.default_rng(seed)
    x, w, noise = rng.normal(size=(3, 300))
    w = np.exp(0.5 * x + 0.6 * w)
    y = 0.6 * w + 0.5 * x + 0.7 * noise
    return np.column_stack([hidden_above(rng, x, w, 0.3), x, y])


def visits(seed):
    """Make y, linear in counts w with many zeros, which are hidden where y is high."""
    rng = np.random.default_rng(seed)
    w = rng.poisson(6 * rng.gamma(1, size=300)).astype(float)
    x, y = 0.2 * w + rng.normal(size=300), 0.5 * w + 2 * rng.normal(size=300)
    return np.column_stack([hidden_above(rng, y / y.std(), w, 0.35), x, y])


def mean_of(tables):
    return np.mean([table[:, 1].mean() for table in tables])


def slope_of(tables):
    A = [np.column_stack([np.ones(len(table)), table[:, :2]]) for table in tables]
    pairs = zip(A, tables, strict=True)
    return np.mean([np.linalg.lstsq(a, t[:, 2], rcond=None)[0][1] for a, t in pairs])


def over_tables(simulate, statistic, seed):
    values = []
    for i in range(N_TABLES):
        X = simulate([seed, i])
        imputer = TableImputer(None, n_parameter_draws=4, random_state=0).fit(X)
        values.append(statistic(imputer.sample(X, 4, random_state=0, as_array=True)))
    return np.array(values)


def never(*_):
    return None


def test_means_of_lognormal_outcomes_are_right(seed, monkeypatch):
    """By numbers as they are, those of high x are too small: -6 % of the mean."""
    means, truth = over_tables(wages, mean_of, seed), np.exp(0.25)
    assert p_mean(means, 0.97 * truth, alternative="less") > FAILURE
    assert p_mean(means, 1.05 * truth, alternative="greater") > FAILURE
    monkeypatch.setattr(fit_module, "likeliest_power", never)
    control = over_tables(wages, mean_of, seed)
    assert p_mean(means - control, 0) < FAILURE and (control < means).mean() > 0.8


def test_slopes_on_lognormal_columns_are_right(seed, monkeypatch):
    """Logarithms alone would bend what is linear in the numbers."""
    slopes = over_tables(spending, slope_of, seed)
    assert p_mean(slopes, 0.54, alternative="less") > FAILURE
    assert p_mean(slopes, 0.66, alternative="greater") > FAILURE
    monkeypatch.setattr(fit_module, "_LEAST_CHI_SQUARE", np.inf)
    assert p_mean(over_tables(spending, slope_of, seed) - slopes, 0) < FAILURE


def test_slopes_on_counts_with_zeros_are_right(seed, monkeypatch):
    """By the counts as they are, -10 %."""
    slopes = over_tables(visits, slope_of, seed)
    assert p_mean(slopes, 0.48, alternative="less") > FAILURE
    assert p_mean(slopes, 0.54, alternative="greater") > FAILURE
    monkeypatch.setattr(fit_module, "likeliest_power", never)
    control = over_tables(visits, slope_of, seed)
    assert p_mean(control - slopes, 0, alternative="less") < FAILURE


def products_of(seed, strength, n=500):
    """Fit a lognormal outcome whose logarithm has a product, or none."""
    rng = np.random.default_rng(seed)
    x, w, noise = rng.normal(size=(3, n))
    y = np.exp(0.6 * x + 0.5 * w + strength * x * w + 0.4 * noise)
    X = np.column_stack([np.where(rng.random(n) < 0.2, np.nan, x), w, y])
    problem = Problem(X, np.ones(n), np.zeros(3, int), [None] * 3)
    return len(fit_table(problem, "auto", Settings(0, 2, 0.05, 0)).expansion.products)


def test_products_are_those_of_the_logarithms(seed, monkeypatch):
    """Numbers whose logarithms are linear are no product."""
    absent = sum(products_of([seed, i], 0.0) > 0 for i in range(N_TABLES))
    assert p_share(absent, N_TABLES, 0.15, "greater") > FAILURE
    present = sum(products_of([seed, i], 0.3) > 0 for i in range(N_TABLES))
    assert p_share(present, N_TABLES, 0.9, "less") > FAILURE
    monkeypatch.setattr(fit_module, "likeliest_power", never)
    absent = sum(products_of([seed, i], 0.0) > 0 for i in range(N_TABLES))
    assert p_share(absent, N_TABLES, 0.15, "greater") < FAILURE


def regressed(x, y):
    """Return logarithms of y, or None; numbers and these, and predictions by x."""
    X, ones = np.column_stack([x, y]), np.ones(len(x))
    part = expand(X, ones, np.zeros(2, int), [None] * 2).parts[1]
    z = (y - part.centre[0]) / part.scale[0]
    logarithms = power_of(part, z, ones, 0.0)
    z = np.column_stack([z, z if logarithms is None else logarithms.of(z)])
    A = np.column_stack([ones, x])
    return logarithms, z, A @ np.linalg.lstsq(A, z, rcond=None)[0]


def has_logarithms(x, y):
    """Say whether y is likelier by its logarithms, given x."""
    logarithms, z, L = regressed(x, y)
    if logarithms is None:
        return False
    return likeliest_power([logarithms], z, L, np.ones(len(x))) is not None


def panel(seed):
    """Make populations of 200 countries in ten years, which grow by 3 % or so."""
    rng = np.random.default_rng(seed)
    growth = 0.03 + 0.02 * rng.normal(size=(200, 9))
    logs = np.column_stack([2.5 * rng.normal(size=200), growth]).cumsum(1)
    X = np.exp(logs)
    return X, np.where(rng.random(X.shape) < 0.2, np.nan, X)


def test_small_rows_of_a_panel_have_small_errors(seed, monkeypatch):
    """Of nine cells in ten; errors of the largest rows are as large as small rows."""

    def errors():
        of_tables = []
        for i in range(4):
            X, gap = panel([seed, i])
            imputer = TableImputer(n_estimators=0, random_state=0).fit(gap)
            tables = [imputer.transform(gap), *imputer.sample(gap, 2, random_state=0)]
            ratios = np.log(np.maximum(tables, X.min() / 10) / X)[:, np.isnan(gap)]
            of_tables.append(np.quantile(abs(ratios), 0.9, axis=1))
        return np.median(of_tables, 0)

    def of_one_share(filling, plain, means):
        return (1 - filling.share) * plain + filling.share * means

    fills, *draws = errors()  # .05 and .12
    assert fills < 0.15 and max(draws) < 0.25
    monkeypatch.setattr(Filling, "mean_of", of_one_share)
    assert errors()[0] > 0.5  # control: 1 to 4


def test_draws_of_large_rows_of_a_panel_have_small_errors(seed, monkeypatch):
    """Slopes of logarithms on numbers as they are, of noise, are those of controls."""

    def largest_error():
        of_tables = []
        for i in range(6):
            X, gap = panel([seed, i])
            imputer = TableImputer(None, n_estimators=0, random_state=0).fit(gap)
            tables = imputer.sample(gap, 5, random_state=0, as_array=True)
            of_tables.append(abs(np.log(tables / X)).max())
        return np.median(of_tables)

    assert largest_error() < 0.8
    monkeypatch.setattr(draws_module, "_idle", lambda _, part: part.block[:0])
    assert largest_error() > 1.0


def test_columns_of_a_panel_have_logarithms(seed, monkeypatch):
    """Normal scores of other years say less of them than the numbers, the control."""
    models, logarithms = [], fit_module._logarithms
    likelier = fit_module._likelier_powers

    def by_scores(_, powers):
        return likelier(models[-1], powers)

    def n_linear():
        count = 0
        for i in range(12):
            problem = Problem(
                panel([seed, i])[1], np.ones(200), np.zeros(10, int), [None] * 10
            )
            model = fit_table(problem, None, Settings(0, 2, 0.05, 0))
            count += sum(part.link is None for part in model.expansion.parts)
        return count

    assert n_linear() < 3
    monkeypatch.setattr(
        fit_module, "_logarithms", lambda m: models.append(m) or logarithms(m)
    )
    monkeypatch.setattr(fit_module, "_likelier_powers", by_scores)
    assert n_linear() > 2


@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_skewed_noise_of_a_line_is_no_logarithm(spread, seed):
    """Residuals of any distribution count: it is the line that decides."""
    chosen = {"line": 0, "product": 0}
    for i in range(N_TABLES):
        rng = np.random.default_rng([seed, i])
        x, noise = rng.random(size=(2, 400))
        noise = spread * np.array([rng.gamma(2, size=400), np.log(noise)])
        cells = {"line": 1 + 4 * x + noise[0], "product": np.exp(3 * x + noise[1])}
        for name, y in cells.items():
            chosen[name] += has_logarithms(x, y)
    assert p_share(chosen["line"], N_TABLES, 0.1, "greater") > FAILURE
    assert p_share(chosen["product"], N_TABLES, 0.9, "less") > FAILURE


def test_even_numbers_have_no_logarithms_by_weak_relations(seed):
    """By residuals of any distribution, the control, these are likelier given x."""
    chosen, likelier, ones = 0, 0, np.ones(1000)
    for i in range(N_TABLES):
        rng = np.random.default_rng([seed, i])
        x, months = rng.normal(size=1000), rng.uniform(0.5, 12.5, 1000)
        y = months * np.exp(0.1 * x)
        chosen += has_logarithms(x, y)
        logarithms, z, L = regressed(x, y)
        if logarithms is None:
            continue
        entropies = [entropy(rest, ones) for rest in (z - L).T]
        slopes = logarithms.log_slopes(z[:, 0]).sum()
        likelier += 1000 * (entropies[0] - entropies[1]) + slopes > 5
    assert p_share(chosen, N_TABLES, 0.1, "greater") > FAILURE
    assert p_share(likelier, N_TABLES, 0.5, "less") > FAILURE


def test_draws_of_logarithms_are_positive(rng):
    """Also far below the deviation of the numbers, where floats have no digits."""
    x = rng.normal(size=300)
    y = np.exp(5 * x + 2 * rng.normal(size=300))
    X = np.column_stack([np.where(rng.random(300) < 0.3, np.nan, y), x])
    imputer = TableImputer(random_state=0).fit(X)
    assert any(part.link for part in imputer._fitted.model.expansion.parts)
    draws = imputer.sample(X, 5, random_state=0, as_array=True)
    assert (np.array(draws)[..., 0] > 0).all() and (
        imputer.transform(X)[:, 0] > 0
    ).all()


def test_entropies_are_those_of_normal_and_of_uniform_numbers(rng):
    n = 4000
    assert abs(entropy(rng.random(n), np.ones(n))) < 0.1
    exact = 0.5 * np.log(2 * np.pi * np.e)
    assert abs(entropy(rng.normal(size=n), np.ones(n)) - exact) < 0.1
    # a row of weight 2 is two rows
    x, weights = rng.normal(size=300), rng.integers(1, 4, 300)
    twice = entropy(np.repeat(x, weights), np.ones(weights.sum()))
    assert abs(entropy(x, weights.astype(float)) - twice) < 0.05
    assert abs(entropy(3 * x, weights.astype(float)) - twice - np.log(3)) < 0.05


def test_lognormal_numbers_go_on_below_those_that_are_observed(seed):
    """Logarithms are linear in x, and missing where it is low."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=300)
    log_y = x + 0.2 * rng.normal(size=300)
    gone = x < -0.5
    X = np.column_stack([x, np.exp(np.where(gone, np.nan, log_y))])
    imputer = TableImputer(n_parameter_draws=10, random_state=0).fit(X)
    assert any(part.link for part in imputer._fitted.model.expansion.parts)
    logs = np.log([t[gone, 1] for t in imputer.sample(X, 10, random_state=0)])
    slopes = [np.polyfit(x[gone], one, 1)[0] for one in logs]
    # the standard error of a slope by 200 rows is .02; that of a table is twice .06
    assert np.mean(slopes) == pytest.approx(1, abs=0.2)


def test_numbers_that_hardly_spread_have_no_logarithms(rng, monkeypatch):
    """Where cells are missing by a covariate, normal numbers are as skewed."""
    cells = np.exp(0.17 * rng.normal(size=(2000, 1)))
    [part] = expand(cells, np.ones(2000), np.zeros(1, int), [None]).parts
    x = (cells[:, 0] - part.centre) / part.scale
    assert part.score and power_of(part, x, np.ones(2000), 0.0) is None
    monkeypatch.setattr(expansion_module, "_LEAST_SPREAD", 0.0)
    assert power_of(part, x, np.ones(2000), 0.0) is not None


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5])
def test_powers_are_inverted(rng, exponent):
    cells = rng.gamma(2, size=(500, 1))
    [part] = expand(cells, np.ones(500), np.zeros(1, int), [None]).parts
    x = (cells[:, 0] - part.centre) / part.scale
    power = power_of(part, x, np.ones(500), exponent)
    scores = power.of(x)
    assert abs(scores.mean()) < 1e-9 and abs(scores.std() - 1) < 1e-9
    np.testing.assert_allclose(power.numbers(scores), x, atol=1e-9)
    slopes = (power.of(x + 1e-6) - power.of(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(power.log_slopes(x), np.log(slopes), atol=1e-4)
    beyond = power.numbers(power.end + np.array([0.0, 1.0, 2.0]))
    assert np.diff(beyond, 2) == pytest.approx(0, abs=1e-9)
    # far below, a number without zeros is positive
    assert power.numbers(np.array([-9.0]))[0] > power.origin


def n_roots(inverse, seed):
    """Count tables in which y, of which x is linear in a scale, is drawn by roots."""
    n = 0
    for i in range(N_TABLES):
        rng = np.random.default_rng([seed, i])
        x = rng.normal(size=300)
        y = inverse(0.5 * x + 0.3 * rng.normal(size=300))
        X = np.column_stack([x, hidden_above(rng, x, y)])
        problem = Problem(X, np.ones(300), np.zeros(2, int), [None] * 2)
        parts = fit_table(problem, None, Settings(0, 2, 0.05, 0)).expansion.parts
        n += any(part.link.exponent > 0 for part in parts if part.link)
    return n


def test_roots_are_chosen_where_they_are_linear(seed):
    of_powers = n_roots(lambda z: (2 + z).clip(0.1) ** 4, seed)
    assert p_share(of_powers, N_TABLES, 0.6, "less") > FAILURE
    assert p_share(n_roots(np.exp, seed), N_TABLES, 0.4, "greater") > FAILURE


def test_rounded_numbers_have_the_entropy_of_the_exact_ones(rng):
    """Residuals of equal numbers are as near to each other as predictions are."""
    L, ones = 0.1 * rng.normal(size=2000), np.ones(2000)
    exact = 4 + L + rng.normal(size=2000)
    rounded = np.where(exact < 4, exact.round(), exact.round(2))
    spread = fit_module._spread_ties(rounded, 0.0, np.random.default_rng(0))
    truth = entropy(exact - L, ones)
    assert entropy(spread - L, ones) == pytest.approx(truth, abs=0.1)
    assert entropy(rounded - L, ones) < truth - 0.3  # the control
    assert abs(spread - rounded).max() <= 0.5 + 1e-9
    # zero is no rounded number, and one number has no neighbour
    counts = rng.poisson(1, 300).astype(float)
    spread = fit_module._spread_ties(counts, 0.0, np.random.default_rng(0))
    assert ((spread == 0) == (counts == 0)).all() and (spread >= 0).all()
    assert (fit_module._spread_ties(ones, 0.0, np.random.default_rng(0)) == 1).all()


def test_losses_are_imputed_as_incomes_are(seed):
    n_links = 0
    for i in range(2):
        income = wages([seed, i])
        income[:, 1] *= 100
        loss = income * [1, -1]
        tables = []
        for X in (income, loss):
            imputer = TableImputer(n_parameter_draws=2, random_state=0).fit(X)
            parts = imputer._fitted.model.expansion.parts
            n_links += any(part.link for part in parts)
            drawn = imputer.sample(X, 2, random_state=0, as_array=True)
            filled = imputer.transform(X)
            medians = imputer.set_params(strategy="median").transform(X)
            tables.append([filled, medians, *drawn])
        np.testing.assert_array_equal(tables[0] * np.array([1, -1]), tables[1])
    assert n_links  # one table in thirty has none
