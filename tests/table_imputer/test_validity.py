"""Pooled answers from draws of TableImputer, on tables that imputers get wrong."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from statistical import FAILURE, p_mean, p_means

from skvnce import GaussianImputer, TableImputer

N_TABLES = 10


def draws_of(X, cls=TableImputer, n_draws=10, weights=None):
    imputer = cls(random_state=0).fit(X, sample_weight=weights)
    return imputer.sample(X, n_draws, random_state=0, as_array=True)


def truncated(seed, is_whole=False, n=300):
    """Make a line of slope 3, whose y is missing where x is low."""
    rng = np.random.default_rng(seed)
    x = rng.normal(20, 5, n)
    y = 50 + 3 * x + 3 * rng.normal(size=n)
    X = np.column_stack([x, y.round() if is_whole else y])
    X[x < np.quantile(x, 0.3), 1] = np.nan
    return X


def slope(tables):
    return np.mean([np.polyfit(*X.T, 1)[0] for X in tables])


@pytest.mark.parametrize("is_whole", [False, True])
def test_slopes_are_right_beyond_the_observed_cells(seed, is_whole):
    tables = [truncated([seed, i], is_whole) for i in range(N_TABLES)]
    drawn = [draws_of(X) for X in tables]
    assert p_mean([*map(slope, drawn)], 3) > FAILURE
    ends = partial(TableImputer, min_value="observed", max_value="observed")
    cut = [slope(draws_of(X, ends, 5)) for X in tables[:6]]
    assert p_mean(cut, 3, alternative="less") < 0.01  # control
    for X, draws in zip(tables, drawn, strict=True):
        assert draws[..., 1].min() < np.nanmin(X[:, 1]) - 5
        assert not is_whole or (draws[..., 1] == draws[..., 1].round()).all()


def test_bounds_below_zero_are_obeyed(seed):
    """Observed cells are positive, hidden ones are not; without bounds fit says so."""
    tables, message = [], "seem to be negative by the other columns"
    for i in range(N_TABLES):
        X = truncated([seed, i], n=300)
        X[:, 1] -= np.nanmin(X[:, 1]) - 0.1
        tables.append(X)
    free = partial(TableImputer, min_value=-np.inf)
    drawn = [draws_of(X, free) for X in tables]
    assert p_mean([*map(slope, drawn)], 3) > FAILURE
    assert all(draws[..., 1].min() < -10 for draws in drawn)
    for X in tables[:4]:
        with pytest.warns(UserWarning, match=rf"of column 1 {message}"):
            assert (draws_of(X)[..., 1] >= 0).all()
        with pytest.warns(UserWarning, match=r"positive .* pass max_value"):
            draws_of(X * [1, -1])


def test_dates_go_on_before_1970(rng):
    x = rng.normal(size=300)
    days = pd.to_timedelta((3000 * x + 300 * rng.normal(size=300)).round(), unit="D")
    frame = pd.DataFrame({"x": x, "day": pd.Timestamp("1973-01-01") + days})
    hidden = x < -0.3  # nearly all of them before 1970, and few others
    gone = frame.assign(day=frame["day"].mask(hidden))
    imputer = TableImputer(random_state=0).set_output(transform="pandas").fit(gone)
    for table in [imputer.transform(gone), *imputer.sample(gone, 3, random_state=0)]:
        errors = (table["day"] - frame["day"])[hidden].dt.days
        assert (table["day"][hidden] < "1970-01-01").mean() > 0.7
        # its standard error is about 100; cut at 1970 it would be 1,900 days
        assert abs(errors.mean()) < 500


def test_categories_that_decide_categories(rng):
    town = rng.choice(12, 300)
    county = np.array([f"K{k // 3}" for k in town])
    hidden = rng.random(300) < 0.2
    frame = pd.DataFrame({"town": [f"T{k:02d}" for k in town], "county": county})
    frame["county"] = frame["county"].mask(hidden)
    frame = frame.astype("category")
    imputer = TableImputer(random_state=0).set_output(transform="pandas").fit(frame)
    found = [table["county"] == county for table in imputer.sample(frame, 20, 0)]
    assert np.mean([one[hidden] for one in found]) >= 0.97
    assert (imputer.transform(frame)["county"] == county)[hidden].mean() >= 0.97


def beside_its_number(seed, kind, n=300):
    """Make a number, the level that its cut point decides, and another column."""
    rng = np.random.default_rng(seed)
    number = rng.normal(50, 15, n).round()
    if kind == "zeros":
        number = np.where(rng.random(n) < 0.6, 0, rng.gamma(2, size=n))
    is_above = number > (0 if kind == "zeros" else 65)
    X = np.column_stack([number, is_above, rng.normal(size=n)])
    X[rng.random(n) < 0.3, :2] = np.nan
    return X


@pytest.mark.parametrize("kind", ["zeros", "normal"])
def test_levels_that_numbers_decide_keep_their_share(kind, seed):
    """Both are missing together, so that sweeps stay on the side where they start."""
    tables = [beside_its_number([seed, i], kind) for i in range(N_TABLES)]
    excess, agree = [], []
    for X in tables:
        drawn = draws_of(X)[:, np.isnan(X[:, 0])]
        excess.append(drawn[..., 1].mean() - np.nanmean(X[:, 1]))
        is_above = drawn[..., 0] > np.nanmax(X[X[:, 1] == 0, 0])
        agree.append((is_above == drawn[..., 1]).mean())
    # of 20 tables: standard deviation .05; by normal numbers .2 to .3 too large
    assert abs(np.mean(excess)) < 0.09
    assert np.mean(agree) > 0.95


def test_sums_keep_their_shape(seed):
    """Logarithms of two numbers, all of which and their sum are missing together."""
    rng = np.random.default_rng(seed)
    deviations = []
    for _ in range(4):
        X = np.exp(rng.normal(size=(600, 2)))
        X = np.column_stack([X, X.sum(1), rng.normal(size=600)])
        gone = rng.random(600) < 0.3
        X[gone, :3] = np.nan
        drawn = draws_of(X)[:, gone]
        assert np.allclose(drawn[..., 0] + drawn[..., 1], drawn[..., 2])
        deviations.append(np.log(drawn[..., :2].clip(1e-3)).std())
    assert np.mean(deviations) < 1.3  # 1; of sweeps from normal numbers 1.46


def test_values_between_the_ends_are_drawn_as_often_as_they_are(seed):
    """No change between gains and losses, and a standard number of hours."""
    shares = []
    for i in range(N_TABLES):
        rng = np.random.default_rng([seed, i])
        z = rng.normal(size=400)
        change = np.where(rng.random(400) < 0.5, 0, 2 * z + 3 * rng.normal(size=400))
        hours = (7 + 2 * z + 1.5 * rng.normal(size=400)).round().clip(0, 16)
        hours[rng.random(400) < 0.4] = 8
        X = np.column_stack([z, change, hours])
        X[rng.random((400, 3)) < [0, 0.3, 0.3]] = np.nan
        for j, value in ((1, 0), (2, 8)):
            drawn = draws_of(X)[:, np.isnan(X[:, j]), j]
            is_observed = ~np.isnan(X[:, j])
            shares.append((drawn == value).mean() - (X[is_observed, j] == value).mean())
    assert abs(np.mean(shares)) < 0.05


def with_zeros(seed, n=600):
    """Make costs with zeros, more of them of the young."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 80, n)
    cost = np.exp(rng.normal(3, 1, n) + age / 40)
    cost[rng.random(n) < 1 / (1 + np.exp((age - 55) / 15))] = 0
    X, hidden = np.column_stack([age, cost]), rng.random(n) < 0.3
    return np.where(hidden[:, None] & [False, True], np.nan, X), cost, hidden


def test_zeros_are_drawn_as_often_as_they_are(seed):
    shares = []
    for i in range(N_TABLES):
        X, cost, hidden = with_zeros([seed, i])
        drawn = draws_of(X)[:, hidden, 1]
        assert (drawn >= 0).all() and not ((drawn > 0) & (drawn < 1e-6)).any()
        young = X[hidden, 0] < 50
        is_zero = cost[hidden] == 0
        both = drawn[:, young] == 0, drawn[:, ~young] == 0
        true = is_zero[young].mean(), is_zero[~young].mean()
        drawn_shares = (drawn == 0).mean(), *(one.mean() for one in both)
        shares.append([*drawn_shares, is_zero.mean(), *true])
    shares = np.array(shares)
    difference = shares[:, :3] - shares[:, 3:]
    assert p_mean(difference[:, 0], 0) > FAILURE
    # within a tenth, for each group, but not the same for both
    assert (abs(difference.mean(0)) < 0.1).all()
    assert p_means(shares[:, 1], shares[:, 2], alternative="greater") < FAILURE


def test_zeros_of_standardised_columns_are_exact(seed):
    X, _, hidden = with_zeros(seed)
    X[:, 1] *= 1 / 3
    drawn = draws_of(X)[:, hidden, 1]
    assert (drawn == 0).mean() > 0.3


def test_weights_are_repeated_rows_in_distribution(seed):
    """Means and deviations of draws, over tables; weights make the mean larger.

    Without forests, whose trees equal rows would be divided between.
    """
    found = {"weighted": [], "repeated": [], "plain": []}
    for i in range(2 * N_TABLES):
        rng = np.random.default_rng([seed, i])
        x = rng.normal(size=(150, 1))
        X = np.hstack([x, x + rng.normal(size=(150, 1))])
        X[rng.random(150) < 0.3, 1] = np.nan
        weights = 1 + 3 * (np.nan_to_num(X[:, 1], nan=rng.normal()) > 0.5)
        new = np.column_stack([np.linspace(-2, 2, 100), np.full(100, np.nan)])
        repeated = np.repeat(X, weights, 0)
        fits = {"weighted": (X, weights * 1.0), "repeated": (repeated, None)}
        fits["plain"] = X, None
        for name, (table, sample_weight) in fits.items():
            imputer = TableImputer(n_estimators=0, random_state=i)
            imputer.fit(table, sample_weight=sample_weight)
            drawn = imputer.sample(new, 40, random_state=0, as_array=True)[..., 1]
            found[name].append([drawn.mean(), drawn.mean(1).std(), drawn.std()])
    each = {name: np.array(values) for name, values in found.items()}
    assert p_mean(each["weighted"] - each["repeated"], 0) > FAILURE
    assert p_mean(each["weighted"] - each["plain"], 0) < FAILURE


@pytest.mark.slow
def test_intervals_of_means_cover(seed):
    """Of 95 %, over 60 tables with a third missing given another column."""
    covered = []
    for i in range(60):
        rng = np.random.default_rng([seed, i])
        x = rng.normal(size=150)
        y = x + rng.normal(size=150)
        y[rng.random(150) < 1 / (1 + np.exp(2 * x))] = np.nan
        means = draws_of(np.column_stack([x, y]), n_draws=20)[..., 1]
        within = means.var(1, ddof=1).mean() / 150
        total = within + 1.05 * means.mean(1).var(ddof=1)
        covered.append(abs(means.mean()) < 2 * np.sqrt(total))
    assert np.mean(covered) > 0.95 - 4.3 * np.sqrt(0.05 * 0.95 / 60)


def squared(seed, n=500):
    """Make y = x + x^2 / 2 with little noise; a third of x and of y is missing."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    x = 0.5 * z + np.sqrt(0.75) * rng.normal(size=n)
    X = np.column_stack([x, x + x**2 / 2 + 0.3 * rng.normal(size=n), z])
    return np.where(rng.random((n, 3)) < [0.3, 0.3, 0.0], np.nan, X)


def test_squares_of_strong_relations_are_kept(seed):
    """A factor must not count its target twice: the slope would be 13 % too small."""
    slopes = {cls: [] for cls in (TableImputer, GaussianImputer)}
    for i in range(N_TABLES):
        X = squared([seed, i])
        for cls, values in slopes.items():
            tables = draws_of(X, cls, 5)
            values.append(np.mean([np.polyfit(*X[:, :2].T, 2)[0] for X in tables]))
    # the standard error of a mean is .005
    assert abs(np.mean(slopes[TableImputer]) - 0.5) < 0.025
    assert np.mean(slopes[GaussianImputer]) < 0.475  # control


def test_one_draw_of_the_parameters_draws_squares(seed):
    X = squared([seed, 0])
    imputer = TableImputer(n_parameter_draws=1, random_state=0).fit(X)
    assert imputer.interactions_
    tables = imputer.sample(X, 5, random_state=0, as_array=True)
    slope = np.mean([np.polyfit(*one[:, :2].T, 2)[0] for one in tables])
    assert abs(slope - 0.5) < 0.1


@pytest.mark.parametrize("n_trees", [0, "auto"])
def test_factors_of_two_levels_are_drawn_in_long_tables(rng, n_trees):
    """Parameters are drawn from a sample of the rows, and then all are completed."""
    x, b = rng.normal(size=2500), 1.0 + (rng.random(2500) < 0.93)
    X = np.column_stack([x, b, x + b + x * b + 0.5 * rng.normal(size=2500)])
    hidden = rng.random((2500, 3)) < 0.2
    frame = pd.DataFrame(np.where(hidden, np.nan, X), columns=["x", "b", "y"])
    drawn = draws_of(frame, partial(TableImputer, n_estimators=n_trees), n_draws=2)
    assert set(np.unique(drawn[..., 1])) == {1, 2}
    # about 500 cells: the share has a standard error of .011
    assert abs((drawn[:, hidden[:, 1], 1] == 2).mean() - 0.93) < 0.05


def moderated(seed, n=300):
    """Make y = (x + g + x g) / 2 of grades g; a quarter of each is missing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    g = np.clip(np.round(3 + 0.5 * x + rng.normal(size=n)), 1, 5)
    y = (x + (g - 3) * (1 + x) + rng.normal(size=n)) / 2
    return np.where(rng.random((n, 3)) < 0.25, np.nan, np.column_stack([x, g, y]))


def difference_of_differences(table):
    a, b, c = table.T
    means = [[c[(a == i) & (b == j)].mean() for j in (0, 1)] for i in (0, 1)]
    return means[1][1] - means[1][0] - means[0][1] + means[0][0]


def test_binary_columns_moderate_binary_columns_in_draws(seed):
    errors, control = [], []
    for i in range(N_TABLES):
        rng = np.random.default_rng([seed, i])
        a, b = rng.random((2, 1000)) < 0.5
        c = rng.random(1000) < 0.1 + 0.7 * (a & b)
        X = np.column_stack([a, b, c]) * 1.0
        exact = difference_of_differences(X)
        X[rng.random(1000) < 0.3, 1] = np.nan
        X[rng.random(1000) < 0.3, 2] = np.nan
        drawn = draws_of(X)
        errors.append(np.mean([difference_of_differences(t) - exact for t in drawn]))
        alone = draws_of(X, partial(TableImputer, interactions=None, n_estimators=0))
        control.append(np.mean([difference_of_differences(t) - exact for t in alone]))
    assert p_mean(errors, 0) > FAILURE
    # control: products are not in the model
    assert p_mean(np.subtract(control, errors), 0, alternative="less") < 0.01


def test_grades_moderate_slopes_in_draws(seed):
    """Grades that do not know the product have slopes a fifth too small."""
    slopes = []
    for i in range(2 * N_TABLES):
        X = moderated([seed, i])
        found = []
        for one in draws_of(X, TableImputer, 5):
            x, g = one[:, 0], one[:, 1] - 3
            columns = np.column_stack([np.ones(len(X)), x, g, x * g])
            found.append(np.linalg.lstsq(columns, one[:, 2])[0][3])
        slopes.append(np.mean(found))
    assert abs(np.mean(slopes) - 0.5) < 0.05  # the standard error of the mean is .01


def test_rare_grades_that_moderate_stay_rare(seed):
    """Variances that are drawn above 1 must not make them likely."""
    shares = []
    for i in range(N_TABLES):
        rng = np.random.default_rng([seed, i])
        x, n = rng.normal(size=300), 300
        g = np.where(rng.random(n) < 0.94, 0, rng.geometric(0.4, n)).clip(0, 8)
        y = x + g + x * g + rng.normal(size=n)
        X = np.column_stack([x, g, y])
        X[rng.random((n, 3)) < 0.25] = np.nan
        imputer = TableImputer([(0, 1)], random_state=0, n_estimators=0).fit(X)
        drawn = imputer.sample(X, n_draws=5, random_state=0)
        shares.append(np.mean([one[np.isnan(X[:, 1]), 1] > 2 for one in drawn]))
    assert np.mean(shares) < 0.06  # .02 of all cells
