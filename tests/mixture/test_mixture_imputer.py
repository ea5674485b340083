"""MixtureImputer: bends, groups and interactions, one component, degenerate tables."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import kstest
from sklearn.base import clone
from sklearn.datasets import make_moons
from tables import ring

from skvnce import GaussianImputer, MixtureImputer
from skvnce._tables.schema import Column, Schema
from skvnce.exceptions import MisfitWarning
from skvnce.metrics import imputation_rmse
from skvnce.mixture import fit, margins
from skvnce.mixture.fit import _candidates, _sizes, count_components, posterior_weights
from skvnce.options import Chunks

QUIET = {"on_misfit": "ignore", "random_state": 0}
NORMAL = GaussianImputer(n_parameter_draws=0, **QUIET)
MIXTURE = MixtureImputer(10, n_estimators=2, **QUIET)
ONE = MixtureImputer(1, n_estimators=2, **QUIET)


def without(X, n_rows, column):
    """Hide the first cells of a column; returns the table and a mask."""
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[:n_rows, column] = True
    return np.where(hidden, np.nan, X), hidden


def test_a_ring_is_seen(seed):
    """At 20 seeds the errors are at most 0.113, those of the others at least 0.33."""
    full = ring(seed)
    X, hidden = without(full, 120, 2)
    filled = (clone(one).fit_transform(X) for one in (MIXTURE, NORMAL, ONE))
    error, *others = (imputation_rmse(full, one, hidden) for one in filled)
    assert error < 0.16 < 0.25 < min(others)


def test_draws_are_near_two_moons(seed):
    """Farther than 0.3 are 2 to 7 % of the draws, and 18 to 26 % of a normal's."""
    full, _ = make_moons(400, noise=0.05, random_state=seed)
    X, hidden = without(full, 120, 1)
    curve, _ = make_moons(200)

    def share_far(imputer):
        drawn = imputer.fit(X).sample(X, 5, random_state=0, as_array=True)
        drawn = drawn[:, hidden.any(1)].reshape(-1, 2)
        away = np.linalg.norm(drawn[:, None] - curve, axis=2).min(1)
        return (away > 0.3).mean()

    assert share_far(clone(MIXTURE)) < 0.11
    assert share_far(clone(ONE).set_params(marginals="raw")) > 0.14


def test_interactions_of_categories_are_seen(rng):
    """At 20 seeds the log-loss is at most 0.44, that of the others 0.687 to 0.704."""
    a, b = rng.integers(0, 2, (2, 600))
    c = np.where(rng.random(600) < 0.1, a == b, a != b)
    names = {"a": np.array(["x", "y"])[a], "b": np.array(["p", "q"])[b]}
    frame = pd.DataFrame({**names, "c": np.where(c, "yes", "no")}, dtype="category")
    frame.loc[:199, "c"] = np.nan

    def loss(imputer):
        shares = clone(imputer).fit(frame).category_probabilities(frame)["c"][:200]
        assert np.allclose(shares.sum(axis=1), 1)
        return -np.log(np.where(c[:200], shares["yes"], shares["no"])).mean()

    assert loss(MIXTURE) < 0.55 < 0.66 < min(loss(NORMAL), loss(ONE))


def correlated(seed, n=200):
    rng = np.random.default_rng(seed)
    covariance = [[1, 0.6, 0.2], [0.6, 2, -0.5], [0.2, -0.5, 0.5]]
    X = rng.multivariate_normal([1, -2, 5], covariance, size=n)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


WIDE = {"min_value": -1e3, "max_value": 1e3, **QUIET}


def test_one_component_is_a_normal_distribution(seed):
    """Up to where EM stops, it has the mean and covariance of GaussianImputer."""
    X = correlated(seed)
    one = MixtureImputer(1, n_estimators=1, marginals="raw", **WIDE).fit(X)
    given = {"shrinkage": 0.05, "marginals": "normal", "n_parameter_draws": 0, **WIDE}
    normal = GaussianImputer(tol=1e-6, max_iter=1000, **given).fit(X)
    assert one.n_components_ == 1
    np.testing.assert_allclose(one.transform([[np.nan] * 3]), [normal.mean_], atol=1e-3)
    drawn = one.sample_rows(20_000, random_state=0)
    error = normal.covariance_.diagonal().max() * (2 / 20_000) ** 0.5
    assert abs(np.cov(drawn.T) - normal.covariance_).max() < 5 * error
    # the same slopes and log-densities: the same covariance
    rows = np.array([[0.0, np.nan, np.nan], [np.nan, 0.0, 4.0], [2.0, -3.0, np.nan]])
    expected = normal.transform(rows)
    np.testing.assert_allclose(one.transform(rows), expected, atol=5e-3)
    rows = np.concatenate([X, rows])
    expected = normal.score_samples(rows)
    np.testing.assert_allclose(one.score_samples(rows), expected, atol=0.02)
    other = clone(one).set_params(n_components=3).fit(X)
    assert abs(other.score_samples(rows) - expected).max() > 0.1


@pytest.mark.parametrize("marginals", ["normal-scores", "raw"])
@pytest.mark.parametrize("zeros", [0, 1])
def test_weights_equal_rows_with_one_member(marginals, zeros):
    """Also in peaks, of rows of weight 3 and of zeros in a quarter of the rows."""
    X = correlated(0, 60)
    X[::4, 2] *= 1 - zeros
    counts = np.arange(60) % 3 + 1
    many = np.repeat(X, counts, axis=0)
    one = MixtureImputer(1, n_estimators=1, marginals=marginals, **QUIET)
    weighted = clone(one).fit(X, sample_weight=counts).transform(X)
    np.testing.assert_allclose(weighted, clone(one).fit(many).transform(X), atol=1e-6)
    assert abs(weighted - clone(one).fit(X).transform(X)).max() > 1e-3


def test_random_weights_of_members_make_no_peaks(seed):
    """They reach 3, in rows with one observed cell, too; zeros are peaks."""
    X = correlated(seed, 60)
    imputer = MixtureImputer(1, n_estimators=4, marginals="raw", **QUIET).fit(X)
    assert all((one.points.counts == 2).all() for one in imputer._drawing_models(1))
    X[::4, 2] = 0.0
    for one in imputer.fit(X)._drawing_models(1):
        assert (one.points.counts > 2).tolist() == [False, False, True]


@pytest.mark.parametrize("zeros", [0, 1])
def test_heavy_rows_are_no_peaks(zeros, seed):
    """Three of a hundred rows weigh 8, which is 7 % of all; zeros are peaks."""
    X, weights = np.random.default_rng(seed).normal(size=(100, 3)), np.ones(100)
    weights[1:4] = 8.0
    X[::5, 0], X[::4, 2] = np.nan, X[::4, 2] * (1 - zeros)
    found = margins.peaks(X, weights, margins.normal_scores(X, weights))
    assert [[cell for cell, _, _ in one] for one in found] == [[], [], [0.0] * zeros]


def test_members_differ_and_a_single_one_has_no_random_weights():
    """The seed changes means of two members, not those of one with one component."""
    X, row = correlated(0, 15), np.full((1, 3), np.nan)

    def mean(n_estimators, seed):
        given = {**WIDE, "random_state": seed, "marginals": "raw"}
        imputer = MixtureImputer(1, n_estimators=n_estimators, **given)
        return imputer.fit(X).transform(row)

    assert (abs(mean(2, 0) - mean(2, 1)) > 1e-3).all()
    np.testing.assert_array_equal(mean(1, 0), mean(1, 1))


def few(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    X[::2, 0], X[1, 2] = np.nan, np.nan
    return X


def binary():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 60), rng.normal(size=60)])
    X[::5, 0] = np.nan
    return X


def repeated():
    """Two points, 20 times each, so that most components have no row of their own."""
    return np.tile([[1.0, 2.0], [3.0, 4.0], [np.nan, 4.0], [1.0, np.nan]], (20, 1))


DEGENERATE = {
    "two rows": (few(2)[:, 1:], 20, 2),
    "fewer rows than components": (few(7), 20, 7),
    "few rows": (few(30), "auto", 1),  # of noise
    "a column with two values": (binary(), 6, 6),
    "equal rows": (repeated(), 20, 20),
    "constant": (np.array([[1.0, 2.0], [1.0, np.nan], [np.nan, 2.0]]), "auto", 0),
    "proportional columns": (np.outer(np.arange(30.0), [1, 2, 3]), 20, 20),
}


@pytest.mark.filterwarnings("ignore:Constant where observed")
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_are_filled(name):
    X, n_components, expected = DEGENERATE[name]
    imputer = MixtureImputer(n_components, n_estimators=2, **QUIET).fit(X)
    assert imputer.n_components_ == expected
    filled, (drawn,) = imputer.transform(X), imputer.sample(X, random_state=0)
    low, high = imputer.feature_ranges_
    for table in (filled, drawn, imputer.sample_rows(5, random_state=0)):
        assert np.isfinite(table).all() and ((low <= table) & (table <= high)).all()
    assert np.isfinite(imputer.score_samples(X)).all()
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(drawn[seen], X[seen])


@pytest.mark.parametrize(
    ("requested", "n_rows", "n_columns", "expected"),
    [
        ("auto", 50, 299, 5),
        ("auto", 50, 300, 1),
        ("auto", 9, 3, 1),
        ("auto", 5000, 0, 20),
        (30, 50, 100, 30),
        (30, 20, 3, 20),
    ],
)
def test_most_components_depend_on_the_shape(requested, n_rows, n_columns, expected):
    assert count_components(requested, n_rows, n_columns) == expected


def test_only_categories_have_a_quarter_of_the_components():
    numbers = Schema(2, columns=[Column("numeric"), Column("nominal", ("a", "b"))])
    assert _sizes(20, numbers._replace(model_columns=np.array([0]))) == [20, 1]
    mixed = numbers._replace(model_columns=np.array([0, 1]))
    assert _sizes(20, mixed) == [20, 5, 1] and _sizes(7, mixed) == [7, 1]


def test_candidates_with_factors_have_fewer_components():
    assert _candidates([20, 1], 0) == [(20, 0), (1, 0)]
    with_factors = [(5, 3), (5, 12), (1, 12)]
    assert _candidates([20, 1], 12) == [(20, 0), (1, 0), *with_factors]
    assert _candidates([6], 12) == [(6, 0), (6, 3), (6, 12)]


def factor_clusters(d, n_clusters, n=300):
    """Draw clusters of three factors of their own, with two values, and a copy."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(n_clusters, d, 3)) / 3**0.5
    of, factors = rng.integers(n_clusters, size=n), rng.normal(size=(n, 3))
    X = np.einsum("ndq,nq->nd", loadings[of], factors) + 0.6 * rng.normal(size=(n, d))
    X += rng.normal(size=(n_clusters, d))[of]
    X[:, 0], X[:, 1] = of > 0, X[:, 2]
    hidden = rng.random(X.shape) < 0.3
    return X, np.where(hidden, np.nan, X), hidden


def test_clusters_with_factors_are_found_in_wide_tables_only():
    full, X, hidden = factor_clusters(60, 3)
    several = MixtureImputer(n_estimators=2, **QUIET).fit(X)
    assert several.n_factors_ > 0 and several.n_iter_ == 12
    filled = several.transform(X)
    assert np.isfinite(filled).all()
    error = imputation_rmse(full, ONE.fit_transform(X), hidden)
    assert imputation_rmse(full, filled, hidden) < 0.95 * error
    assert ONE.n_factors_ == 0 and ONE.n_iter_ == 1
    narrow = MixtureImputer(n_estimators=2, **QUIET).fit(X[:, :40])
    assert narrow.n_factors_ == 0  # negative control


def test_weights_are_rows_for_the_number_of_components():
    X, weights = ring(0, 100), np.full(100, 3)
    one = MixtureImputer(n_estimators=1, max_iter=4, **QUIET)
    assert clone(one).fit(X, sample_weight=weights).n_components_ == 20
    assert clone(one).fit(X).n_components_ == 10


def test_components_are_kept_if_they_predict_cells(seed):
    """One is chosen for 74 of 120 normal tables, so for 2 of 12 but for 2e-4."""
    imputer = MixtureImputer(n_estimators=2, max_iter=6, **QUIET)
    seeds = range(12 * seed, 12 * seed + 12)
    found = [imputer.fit(correlated(one, 150)).n_components_ for one in seeds]
    assert set(found) <= {1, 14, 15} and found.count(1) >= 2
    assert imputer.fit(without(ring(seed, 150), 50, 2)[0]).n_components_ == 15
    assert imputer.n_iter_ == 6


@pytest.mark.parametrize("marginals", ["raw", "normal-scores"])
def test_bounds_widen_and_end_the_range(marginals, rng_0):
    """Draws leave the observed cells by default, and lie within the user's bounds."""
    X = rng_0.normal(size=(100, 1)) + rng_0.normal(size=(100, 3))
    X[:60, 1] = np.nan
    ends = np.nanmin(X, 0), np.nanmax(X, 0)

    def drawn(**bounds):
        imputer = MixtureImputer(2, n_estimators=2, marginals=marginals, **QUIET)
        imputer.set_params(**bounds).fit(X)
        assert np.isfinite(imputer.transform(X)).all()
        return imputer.sample(X, 40, random_state=0, as_array=True)[:, :60, 1]

    usual = drawn()
    assert usual.min() < ends[0][1]
    near = ends[1][1] + 0.3
    wider = drawn(max_value={1: near})
    assert ends[1][1] < wider.max() <= near
    for far in (1e3, 1e300):  # bounds beyond all scores
        free = drawn(min_value=-far, max_value=far)
        assert free.max() > near and abs(free).max() < 100


def test_threads_and_the_order_of_cells_in_memory_change_nothing():
    X, imputer = correlated(0, 60), MixtureImputer(3, n_estimators=3, **QUIET)
    expected = clone(imputer).fit_transform(X)
    for n_jobs, table in ((2, X), (None, np.asfortranarray(X))):
        other = clone(imputer).set_params(n_jobs=n_jobs)
        np.testing.assert_array_equal(other.fit_transform(table), expected)


def test_parts_are_read_as_the_table():
    """The indicator knows the cells of all rows."""
    X = correlated(0, 60)
    X[:, 0], X[55, 0] = np.nan_to_num(X[:, 0]), np.nan
    imputer = MixtureImputer(3, n_estimators=2, add_indicator=True, **QUIET)
    found = clone(imputer).fit(Chunks.from_array(X, 10))
    np.testing.assert_allclose(found.transform(X), imputer.fit_transform(X), atol=1e-6)
    assert found.transform(X).shape == (60, 6)


def test_noise_is_reported_and_structure_is_not():
    """Columns of noise are predicted worse than by means, and filled by others."""
    # 8 of 8 such tables are; of 100 rows and 10 columns 2 or 7 of 12, by the cells
    noise = np.random.default_rng(0).normal(size=(200, 20))
    noise[np.random.default_rng(99).random(noise.shape) < 0.3] = np.nan
    with pytest.warns(MisfitWarning, match="GaussianImputer or TableImputer may"):
        imputer = MixtureImputer(40, n_estimators=2, random_state=0).fit(noise)
    assert imputer.marginal_columns_.any() and imputer.held_out_gain_ < 0.2
    X, _ = without(ring(0), 120, 2)
    with warnings.catch_warnings(action="error"):
        imputer = MixtureImputer(10, n_estimators=2, random_state=0).fit(X)
    assert imputer.held_out_gain_ > 0.5 and not imputer.marginal_columns_.any()


def copies(n):
    """Three copies of two columns, and one in other units."""
    A = np.random.default_rng(1).normal(size=(n, 2))
    A[np.random.default_rng(2).random(A.shape) < 0.2] = np.nan
    return np.column_stack([A, A, A, 1000 * A[:, 0]])


@pytest.mark.parametrize("n", [300, 3000])
def test_copies_of_columns_are_predicted_by_each_other(n):
    X = copies(n)
    imputer = MixtureImputer(n_estimators=2, random_state=0).fit(X)
    assert imputer.held_out_gain_ > 0.9 and np.isfinite(imputer.score_samples(X)).all()
    hidden = X.copy()
    hidden[: n // 2, 0] = np.nan
    filled, known = imputer.transform(hidden), ~np.isnan(X[:, 0])
    assert abs(filled[known, 0] - X[known, 0]).max() < 0.2


@pytest.mark.parametrize("marginals", ["raw", "normal-scores", "both"])
def test_the_density_integrates_to_one(marginals):
    x = np.random.default_rng(3).gamma(2.0, size=(300, 1))
    x[::5] = np.nan
    options = {**QUIET, "n_estimators": 2, "marginals": marginals}
    grid = np.linspace(-6, 40, 200_001)
    density = np.exp(MixtureImputer(4, **options).fit(x).score_samples(grid[:, None]))
    assert abs(np.trapezoid(density, grid) - 1) < 0.01


def test_drawn_categories_have_their_probabilities():
    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    level = np.where(x + rng.normal(size=300) > 0, "a", "b").astype(object)
    level[:150] = None
    frame = pd.DataFrame({"x": x, "level": pd.Categorical(level)})
    imputer = MixtureImputer(3, n_estimators=2, **QUIET).fit(frame)
    shares = imputer.category_probabilities(frame)["level"]["a"][:150]
    tables = imputer.sample(frame, 400, random_state=0)
    found = np.mean([[one == "a" for one in table[:150, 1]] for table in tables], 0)
    assert (abs(found - shares) < 5 * 0.5 / 400**0.5).all()
    assert shares.min() < 0.3 < 0.7 < shares.max()


def test_members_have_the_marginals_and_weights_of_their_turn():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.gamma(1.0, size=200)})
    frame["y"] = pd.Categorical(rng.choice(["a", "b"], 200))
    both = MixtureImputer(1, n_estimators=4, **QUIET).fit(frame)
    models = both._drawing_models(1)
    counts = [len(one.points.pair(0)[0]) for one in models]
    assert counts[0] == counts[2] > 10 and counts[1] == counts[3] == 2
    shares = np.array([one.mixture.classes[0][0, 0] for one in models])
    assert len(np.unique(shares)) == 4 and np.ptp(shares) > 1e-3
    cells = [one.points.pair(0)[1] for one in models[1::2]]
    assert not np.allclose(*cells)  # standardised by the weights of the member


def test_new_rows_are_of_all_members():
    """Members of two equal rows with random weights have means that differ much."""
    X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, 0)
    imputer = MixtureImputer(1, n_estimators=4, marginals="raw", **QUIET).fit(X)
    turns = []
    for one in imputer._drawing_models(1):
        turns.append(one.mixture.means[0] + one.points.pair(0)[1].mean())
    assert len(np.unique(np.round(turns, 6))) > 2
    models = imputer._cell_model()

    class Seen:
        def __init__(self, number):
            self.number = number

        def draw(self, nodes, n_draws):
            return np.full((n_draws, *nodes.shape), self.number)

    drawn = models._replace(models=[Seen(k) for k in range(4)])
    # of 200 rows, one member has none with probability 4 * 0.75**200 = 4e-25
    drawn = drawn.draw(np.tile(X, (10, 1)), 1)
    assert set(drawn.ravel()) == {0, 1, 2, 3}


def test_mean_weights_are_the_given_ones():
    rng, given = np.random.default_rng(6), np.array([0.5, 1.0, 4.0])
    sets = [posterior_weights(rng, given, 2, 2) for _ in range(1000)]
    drawn = np.reshape(sets, (4000, 3))
    # shares have a Dirichlet distribution
    share = given / given.sum()
    error = np.sqrt(share * (1 - share) / (given.sum() + 1) / 4000) * given.sum()
    assert (abs(drawn.mean(0) - given) < 5 * error).all()


def test_sets_of_weights_are_those_of_the_bootstrap_and_share_their_sum(rng):
    drawn = posterior_weights(rng, np.ones(2000), 4, 2)
    for own in drawn.reshape(8, -1):  # each set alone is that of Rubin (1981)
        assert kstest(own, "expon").pvalue > 1e-4
    # of independent weights means have the variances 1/8 and 1/4
    assert drawn.mean((0, 1)).var() < 1e-3 and (drawn.mean(0).var(1) < 0.12).all()
    assert 0.95 < drawn.var((0, 1), ddof=1).mean() < 1.05


def test_fills_of_levels_hardly_depend_on_the_seed(seed, monkeypatch):
    """Of 300 rows with 4 noisy levels; independent weights are the control."""
    tables, chosen = [], []
    for k in range(3):
        rng = np.random.default_rng([seed, k])
        x = rng.normal(size=300)
        level = np.digitize(x + 0.5 * rng.normal(size=300), [-0.7, 0, 0.7])
        tables.append(np.column_stack([x, level]))
        tables[-1][rng.random(300) < 0.25, 1] = np.nan

    def spread():
        found = []
        for X in tables:
            makes = (MixtureImputer(random_state=one) for one in range(4))
            fits = [one.set_params(categorical_features=[1]).fit(X) for one in makes]
            chosen.append({one.n_components_ for one in fits})
            shares = [one.category_probabilities(X)[1] for one in fits]
            found.append(np.std(shares, axis=0)[np.isnan(X[:, 1])].mean())
        return np.mean(found)

    found = spread()
    assert found < 0.0065 and all(len(one) == 1 for one in chosen)

    def independent(rng, weights, *shape):
        return rng.gamma(weights, size=(*shape, len(weights)))

    monkeypatch.setattr(fit, "posterior_weights", independent)
    assert spread() > 1.25 * found


@pytest.mark.filterwarnings("ignore:sample_weight has a mean")
def test_huge_weights_give_finite_results_or_are_named():
    X, imputer = correlated(0, 60), MixtureImputer(4, n_estimators=2, **QUIET)
    for ratio in (1.0, np.r_[1.0, np.full(59, 1e-12)]):
        imputer.fit(X, sample_weight=1e12 * ratio * np.ones(60))
        assert np.isfinite(imputer.score_samples(X)).all()
        with pytest.raises(ValueError, match=r"sample_weight has 1e\+20 in row 0"):
            imputer.fit(X, sample_weight=1e20 * ratio * np.ones(60))


def clipped_at_both_ends(rng, x):
    return np.clip(50 + 30 * x + 30 * rng.normal(size=len(x)), 0, 100), [0.0, 100.0]


def with_zeros(rng, x):
    """Make costs, zero in half of the rows, more often where x is small."""
    is_zero = rng.random(len(x)) < 1 / (1 + np.exp(x))
    costs = np.exp(3 + x / 2 + 0.8 * rng.normal(size=len(x)))
    return np.where(is_zero, 0.0, costs), [0.0]


def unchanged(rng, x):
    change = x + rng.normal(size=len(x))
    return np.where(abs(change) < 0.5, 0.0, change), [0.0]


def rounded_at_times(rng, x):
    y = 40 + 8 * x + 8 * rng.normal(size=len(x))
    rounded = np.where(rng.random(len(x)) < 0.4, 10 * np.round(y / 10), y)
    return rounded, [30.0, 40.0, 50.0]


@pytest.mark.parametrize("marginals", ["raw", "normal-scores"])
@pytest.mark.parametrize(
    "make", [clipped_at_both_ends, with_zeros, unchanged, rounded_at_times]
)
def test_values_that_are_often_equal_are_drawn_as_often(make, marginals, rng):
    """Also where the other column says so."""
    x = rng.normal(size=800)
    y, peaks = make(rng, x)
    hidden = rng.random(800) < 0.3
    X = np.column_stack([x, np.where(hidden, np.nan, y)])
    imputer = MixtureImputer(5, marginals=marginals, random_state=0).fit(X)
    drawn = imputer.sample(X, 20, random_state=0, as_array=True)[:, hidden, 1]
    is_peak = np.isin(drawn, peaks).mean(0)
    for some in (x[hidden] < 0, x[hidden] >= 0):
        share = np.isin(y[hidden], peaks)[some].mean()
        # of the hidden cells, and of those that the mixture is fitted to
        error = np.sqrt(share * (1 - share) * (1 / some.sum() + 2 / 560))
        assert abs(is_peak[some].mean() - share) < 4 * error


def sums_of(seed, n=60):
    """Draw three whole numbers, after their sum, of which the largest repeats."""
    parts = np.random.default_rng(seed).integers(1, 9, size=(n, 3)).astype(float)
    sums = parts.sum(1)
    sums[sums > np.sort(sums)[-3]] = np.sort(sums)[-3]
    return np.column_stack([sums, parts])


@pytest.mark.parametrize("marginals", ["both", "normal-scores"])
def test_a_grid_goes_on_beyond_its_end(marginals, seed):
    """Three of 60 rows have the largest sum, which is no end of the sums."""
    X = sums_of(seed)
    assert (X[:, 0] == X[:, 0].max()).sum() >= 3
    new = np.array([[np.nan, 9.0, 9.0, 9.0], [np.nan, 20.0, 9.0, 9.0]])
    imputer = MixtureImputer(marginals=marginals, random_state=0).fit(X)
    filled = imputer.transform(new)[:, 0]
    assert filled == pytest.approx([27.0, 38.0], abs=6.0)  # it was 29 at most
    drawn = imputer.sample(new, 50, random_state=0, as_array=True)[:, :, 0]
    assert (drawn.std(0) > 0).all()


def test_a_pile_is_an_end(seed):
    """Negative control: a quarter of the cells are cut at the same number."""
    X = sums_of(seed, 200)
    X[:, 0] = X[:, 0].clip(max=np.quantile(X[:, 0], 0.75))
    new = np.array([[np.nan, 9.0, 9.0, 9.0]])
    imputer = MixtureImputer(marginals="normal-scores", random_state=0).fit(X)
    drawn = imputer.sample(new, 50, random_state=0, as_array=True)[..., 0]
    assert drawn.max() == X[:, 0].max()


def test_normal_scores_have_the_shares_of_peaks(seed):
    """At quantiles of the normal distribution; linear scores have no peaks."""
    rng, weights = np.random.default_rng(seed), np.ones(500)
    x = rng.poisson(4.0, size=(500, 1)).astype(float)
    x[:250] = rng.normal(4.0, size=(250, 1))
    points = margins.normal_scores(x, weights)
    peaks = margins.peaks(x, weights, points)
    z = ndtri((np.arange(10_000) + 0.5) / 10_000)[:, None]
    cells = points.within(x.min(0), x.max(0)).with_peaks(peaks).to_cells(z)
    assert len(peaks[0]) > 3
    for value, _, _ in peaks[0]:
        assert abs((cells == value).mean() - (x == value).mean()) < 1e-3
    linear = margins.standardised(np.round(x), weights)
    assert margins.peaks(np.round(x), weights, linear) == [[]]


@pytest.mark.parametrize("step", [0.1, 0.2, 0.5])
def test_cells_on_a_grid_are_no_peaks_by_chance(step, seed):
    """Of 600 columns; with a step of 0.5, a tenth had peaks before."""
    rng, weights = np.random.default_rng(seed), np.ones(210)
    x = step * np.round(rng.normal(100, 15, size=(210, 600)) / step)
    assert margins.have_peaks(x, weights).mean() < 0.02
    x[rng.random(x.shape) < 0.15] = 0.0
    # with a step of 0.5 other cells repeat, too, in some columns
    assert margins.have_peaks(x, weights).mean() > (0.5 if step > 0.2 else 0.99)


@pytest.mark.parametrize("n, n_towns", [(400, 6), (1000, 12)])
def test_tables_of_categories_have_components(n, n_towns, rng):
    """Of a county of another town in one row of fifty, so that none determines it."""
    town = rng.integers(n_towns, size=n)
    county = np.where(rng.random(n) < 0.02, (town + 3) % n_towns, town) // 3
    hidden = rng.random(n) < 0.2
    X = pd.DataFrame({"town": town, "county": np.where(hidden, None, county)})
    imputer = MixtureImputer(categorical_features=["town", "county"], random_state=0)
    filled = imputer.set_output(transform="pandas").fit_transform(X)
    assert imputer._schema.determined == () and imputer.n_components_ > 1
    right = (filled["county"].to_numpy() == county)[hidden].mean()
    assert right > 0.98 - 4 * np.sqrt(0.02 * 0.98 / hidden.sum())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weighted_squares_of_large_cells_do_not_overflow(rng):
    """The largest cell that a fit takes; members of the ensemble weigh it."""
    X = rng.normal(size=(200, 3)) * [1.0, 1.0, 1e150]
    X[::5, 0], X[1::5, 2], X[:1, 2] = np.nan, np.nan, 1.3e154
    assert np.isfinite(clone(MIXTURE).fit_transform(X)).all()
