"""ForestImputer: forests averaged with another imputer."""

from math import lcm

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor
from statistical import seed_limits

from skvnce import ForestImputer, GaussianImputer, LAIRImputer
from skvnce.fits.refits import refitted, repeated
from skvnce.fitted import column_forests as columns
from skvnce.fitted.by_columns import redraw
from skvnce.fitted.column_models import restored, stored
from skvnce.fitted.pools import geometric
from skvnce.fitted.trees import Ranks, Trees

GIVEN = {"n_estimators": 20, "random_state": 0}
SHAPE = {"min_samples_leaf": 5, "max_features": 0.5}


def product(seed, n=400):
    """Make two columns and their product, of which a quarter is missing.

    Each column alone says nothing about the product.
    """
    rng = np.random.default_rng(seed)
    pair = rng.uniform(-1, 1, size=(n, 2))
    full = np.column_stack([pair, pair.prod(1)])
    X = full.copy()
    X[: n // 4, 2] = np.nan
    return X, full


def mixed(seed, n=200):
    """Make a frame with a number, a nominal column that is its band, and a count."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    band = np.where(abs(x) < 0.7, "inner", "outer")
    frame = pd.DataFrame(
        {"x": x, "band": pd.Categorical(band), "count": rng.poisson(2, size=n)}
    )
    masked = frame.copy()
    masked.loc[rng.random(n) < 0.3, "band"] = None
    masked["x"] = masked["x"].mask(rng.random(n) < 0.1)
    masked["count"] = masked["count"].astype("Int64").mask(rng.random(n) < 0.1)
    return masked, frame


@pytest.fixture(scope="module")
def fitted():
    X, _ = mixed(0)
    imputer = ForestImputer(GaussianImputer(on_misfit="ignore"), **GIVEN)
    return imputer.set_output(transform="pandas").fit(X), X


def curved(n, seed=0):
    """Make rows of three columns, of which the last one depends on the first."""
    nodes = np.random.default_rng(seed).normal(size=(n, 3)).round(1)  # with ties
    nodes[:, 2] += nodes[:, 0] ** 2
    return nodes


def growth(**options):
    given = {"min_samples_leaf": 3, "max_features": 0.7, "max_samples": 10_000}
    given["splitter"] = "best"
    return columns.Growth(**{"n_estimators": 30, "n_jobs": None, **given, **options})


def grow(nodes, *, n_levels=0, weights=None, seed=0, **options):
    """Grow a forest of the last column."""
    rng, others = np.random.default_rng(seed), np.arange(nodes.shape[1] - 1)
    given = nodes[None], nodes[:, -1], n_levels, growth(**options), rng, others
    return columns.grow(nodes.shape[1] - 1, *given, weights)


@pytest.fixture(scope="module")
def forest():
    return grow(curved(60))


# the forest of a column


def test_ranks_are_places_among_observed_values():
    ranks = Ranks.of(np.array([[3.0], [1.0], [np.nan], [1.0], [7.0]]))
    cells = np.array([[1.0], [3.0], [7.0], [0.0], [2.0], [9.0]])
    found = ranks.encoded(cells)[:, 0]
    np.testing.assert_array_equal(found, [0, 1, 2, -0.5, 0.5, 2.5])


@pytest.fixture(scope="module", params=[1, 3], ids=["numbers", "levels"])
def grown(request):
    """Give trees of scikit-learn on ranks of columns 3 and 0 of 4, and ours."""
    nodes, used = np.random.default_rng(1).normal(size=(80, 4)).round(1), [3, 0]
    ranks, rng = Ranks.of(nodes), np.random.default_rng(2)
    own = np.ascontiguousarray(ranks.encoded(nodes)[:, used])
    target = (
        nodes[:, [1]] if request.param == 1 else np.eye(3)[rng.integers(3, size=80)]
    )
    models = [
        DecisionTreeRegressor(min_samples_leaf=5, random_state=k).fit(
            own[rows], target[rows]
        )
        for k, rows in enumerate(rng.integers(80, size=(7, 80)))
    ]
    return models, Trees.of(models, np.array(used), ranks), ranks, used


def rows_of(ranks):
    """Draw rows of observed values, of values between them, and beyond them."""
    rng = np.random.default_rng(3)
    between = rng.uniform(-4, 4, size=(300, 4))
    return np.concatenate([between, between.round(1), np.full((1, 4), 99.0)])


def test_rows_reach_the_leaves_of_scikit_learn(grown):
    models, trees, ranks, used = grown
    rows = rows_of(ranks)
    # a cell between two observed values goes with the smaller one
    own = np.floor(ranks.encoded(rows)[:, used])
    each = [one.predict(own).reshape(len(rows), -1) for one in models]
    np.testing.assert_allclose(trees.means(rows), np.mean(each, 0), atol=1e-12)
    for k, one in enumerate(models):  # a tree and a cell, which is the number of a node
        first = np.arange(len(trees.feature) + 1)
        uniform = np.full(len(rows), (k + 0.5) / len(models))
        found = trees.picks(rows, first, uniform)
        expected = one.apply(own.astype(np.float32)) + trees.roots[k]
        np.testing.assert_array_equal(found, expected)


def test_columns_that_trees_do_not_use_have_no_influence(grown):
    _, trees, ranks, used = grown
    rows = rows_of(ranks)
    others, own = rows.copy(), rows.copy()
    others[:, [1, 2]] = np.nan
    np.testing.assert_array_equal(trees.means(others), trees.means(rows))
    own[:, used] += 1
    assert (trees.means(own) != trees.means(rows)).any()


def test_predictions_are_means_of_draws():
    """Each tree and each cell of its leaf has the same share of a uniform grid."""
    forest = grow(curved(60), n_estimators=5)
    sizes = np.diff(forest.first)
    n_cells = lcm(*np.unique(sizes[sizes > 0]).tolist())
    grid = (np.arange(5 * n_cells) + 0.5) / (5 * n_cells)
    for row in curved(60)[:3]:
        drawn, _ = forest.draw(np.repeat(row[None], len(grid), 0), grid)
        assert drawn.mean() == pytest.approx(forest.means(row[None])[0, 0], abs=1e-9)


def test_cells_of_leaves_are_those_of_the_bootstrap_sample():
    """A forest of one leaf a tree draws all rows, as often as they were drawn."""
    nodes = curved(40)
    one = grow(nodes, n_estimators=3, min_samples_leaf=40)
    assert len(one.trees.roots) == len(one.trees.feature) == 3
    assert np.diff(one.first).tolist() == [40, 40, 40]
    cells = one.values[one.ranks]
    assert np.isin(cells, nodes[:, 2]).all()
    np.testing.assert_allclose(one.means(nodes[:1])[0, 0], cells.mean())


def test_draws_with_and_without_means_are_equal(forest):
    rows, uniform = curved(60, 1), np.random.default_rng(0).random(60)
    drawn, nothing = forest.draw(rows, uniform)
    again, means = forest.draw(rows, uniform, with_means=True)
    np.testing.assert_array_equal(drawn, again)
    assert nothing is None and means.shape == (60, 1)
    assert forest.draw(rows, np.full(60, np.nextafter(1, 0)))[0].shape == (60,)


def test_levels_are_drawn_by_their_probabilities():
    nodes = curved(90)
    nodes[:, 2] = np.digitize(nodes[:, 0], [-0.5, 0.5])
    one = grow(nodes, n_levels=3, n_estimators=4)
    shares = one.means(nodes[:5])
    np.testing.assert_allclose(shares.sum(1), 1)
    grid = (np.arange(20_000) + 0.5) / 20_000
    for row, own in zip(nodes[:5], shares, strict=True):
        drawn, _ = one.draw(np.repeat(row[None], len(grid), 0), grid)
        found = np.bincount(drawn.astype(int), minlength=3) / len(grid)
        # the grid cuts the shares of at most 90 cells in each of four trees
        np.testing.assert_allclose(found, own, atol=4 * 90 / 20_000)


def test_rows_of_weight_zero_are_not_learned():
    nodes = curved(100)
    weights = (np.arange(100) < 50).astype(float)
    nodes[50:, 2] += 1000
    assert grow(nodes, weights=weights).means(nodes).max() < 100
    assert grow(nodes).means(nodes).max() > 100  # negative control


def test_few_rows_are_learned_of_many():
    one = grow(curved(100), max_samples=10, min_samples_leaf=1)
    assert len(np.unique(one.values)) <= 10 < len(np.unique(grow(curved(100)).values))


def test_forests_are_stored_as_plain_values(forest):
    name, values = stored(forest)
    assert name == "ColumnForest" and type(values[1]) is tuple
    rows = curved(60, 1)
    again = restored((name, values))
    np.testing.assert_array_equal(again.means(rows), forest.means(rows))


def test_threads_grow_the_same_trees():
    nodes = curved(60)
    pair = [grow(nodes, n_jobs=n).means(nodes) for n in (None, 2)]
    np.testing.assert_array_equal(*pair)


# weights


def test_models_that_are_compared_have_not_seen_the_held_out_rows(fitted):
    """What they learn does not depend on these rows."""
    imputer, X = fitted
    cells = imputer._checked(X)
    held = np.arange(len(cells)) % 10 == 0
    changed = np.where(held[:, None], cells[:1], cells)
    found = [
        refitted(imputer.model_, table[~held], 0)._predicted(cells[:20]).filled
        for table in (cells, changed)
    ]
    np.testing.assert_array_equal(*found)
    seen = refitted(imputer.model_, cells, 0)._predicted(cells[:20]).filled
    assert (seen != found[0]).any()  # negative control


def test_probabilities_are_averaged_geometrically():
    p, q = np.array([[0.9, 0.1]]), np.array([[0.4, 0.6]])

    def pooled(p, q, weight):
        return geometric([p, q], np.array([1 - weight, weight]))

    root = np.sqrt(p * q)
    np.testing.assert_allclose(pooled(p, q, 0.5), root / root.sum())
    np.testing.assert_allclose(pooled(p, q, 0.0), p)
    np.testing.assert_allclose(pooled(p, q, 1.0), q)
    root = np.sqrt([[0.5, 0.5 * 0.003]])  # a probability of 0 counts as .003
    found = pooled(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), 0.5)
    np.testing.assert_allclose(found, root / root.sum())


def test_weights_are_the_shares_of_cells_that_forests_draw():
    missing, drawn = np.array([[True, True, False]] * 1000), np.zeros((4, 1000, 3))
    chosen = redraw([], drawn, missing, np.array([0.3, 0.0, 0.9]), 1)
    n = chosen.sum((0, 1))
    assert n[1:].tolist() == [0, 0]  # of weight 0, and observed
    assert stats.binomtest(int(n[0]), 4000, 0.3).pvalue > 1e-6


def test_forests_have_the_weight_where_no_line_predicts(seed):
    """At 12 seeds, the mean weight was .759 with a standard deviation of .019."""
    X, _ = product(seed, n=900)
    imputer = ForestImputer(GaussianImputer(on_misfit="ignore"), **SHAPE, **GIVEN)
    assert imputer.fit(X).weights_.mean() > seed_limits(0.759, 0.019, 12)[0]


def test_forests_have_little_weight_where_a_line_predicts(seed):
    """At 12 seeds, the mean weight was .274 with a standard deviation of .027."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(600, 2))
    sums = pair @ [[1, 1], [1, -1]] + 0.1 * rng.normal(size=(600, 2))
    X = np.column_stack([pair, sums])
    X[rng.random(X.shape) < 0.2] = np.nan
    found = ForestImputer(**SHAPE, **GIVEN).fit(X).weights_.mean()
    assert found < seed_limits(0.274, 0.027, 12)[1] < 0.5


def test_numbers_that_nearly_repeat_another_one_are_found_in_rows_that_observe_both():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 7))
    X[:, 1] = 5 - 2 * X[:, 0] + 0.06 * X[:, 1]  # .0009 of its variance
    X[:, 3] = X[:, 2] + 0.1 * X[:, 3]  # .01
    X[:, 5] = X[:, 4]
    X[:150, 5], X[169:, 4] = np.nan, np.nan  # 19 rows observe both
    X[:, 6] = X[:, 0] > 0
    n_levels = np.array([0, 0, 0, 0, 0, 0, 2])
    expected = [True, True, False, False, False, False, False]
    assert repeated(X, n_levels).tolist() == expected
    X[170, 4] = X[170, 5]
    assert repeated(X, n_levels)[4:6].all()


def test_draws_of_nearly_equal_numbers_are_as_narrow_as_those_of_the_model(seed):
    """A forest alone draws with a standard deviation above .2; the true one is .01.

    At 8 seeds, the model's deviation was .025 at most, and that of half a forest .41 at
    least.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4))
    X[:, 1] = X[:, 0] + 0.01 * X[:, 1]
    twin = X[:, 0].copy()
    X[rng.random(X.shape) < 0.25] = np.nan
    rows = np.isnan(X[:, 1]) & ~np.isnan(X[:, 0])

    def deviation(imputer):
        draws = np.stack(imputer.sample(X, 50, random_state=0))
        return (draws[:, rows, 1] - twin[rows]).std()

    model = GaussianImputer(on_misfit="ignore")  # mixtures draw more widely
    imputer = ForestImputer(model, **GIVEN).fit(X)
    assert (imputer.weights_[:2] == 0).all()
    own = deviation(imputer.model_)
    assert deviation(imputer) < 1.1 * own < 0.12
    assert deviation(ForestImputer(model, weight=0.5, **SHAPE, **GIVEN).fit(X)) > 0.2


# the imputer


def test_the_weight_0_gives_the_other_imputer(fitted):
    imputer, X = fitted
    other = clone(imputer).set_params(weight=0.0).fit(X)
    assert (other.weights_ == 0).all()
    alone = other.model_.set_output(transform="pandas")
    pd.testing.assert_frame_equal(other.transform(X), alone.transform(X))
    theirs = alone.category_probabilities(X)
    for name, found in other.category_probabilities(X).items():
        np.testing.assert_allclose(found, theirs[name], atol=0.01)


def test_forests_fill_what_no_line_predicts(seed):
    x = np.random.default_rng(seed).uniform(-1, 1, size=300)
    full = np.column_stack([x, abs(x)])
    hidden = np.zeros(full.shape, dtype=bool)
    hidden[:100, 1] = True
    X = np.where(hidden, np.nan, full)
    alone = GaussianImputer(on_misfit="ignore", marginals="normal").fit_transform(X)
    found = ForestImputer(weight=1.0, **GIVEN).fit(X).transform(X)
    errors = [abs(one - full)[hidden].mean() for one in (alone, found)]
    assert errors[1] < errors[0] / 2


def test_forests_do_not_depend_on_the_scale_of_other_columns():
    X, _ = product(0)
    moved = np.column_stack([np.exp(5 * X[:, 0]), X[:, 1:]])
    given = {"weight": 1.0, **GIVEN}
    filled = [ForestImputer(**given).fit_transform(one)[:, 2] for one in (X, moved)]
    np.testing.assert_allclose(*filled)


def test_draws_of_forests_are_observed_values():
    X, _ = product(0)
    imputer = ForestImputer(weight=1.0, **GIVEN).fit(X)
    tables = imputer.sample(X, 3, random_state=0, as_array=True)
    hidden = np.isnan(X)
    assert np.isin(tables[:, hidden], X[~hidden[:, 2], 2]).all()
    np.testing.assert_array_equal(tables[:, ~hidden], np.tile(X[~hidden], (3, 1)))
    assert not np.array_equal(tables[0], tables[1])
    again = imputer.sample(X, 3, random_state=0, as_array=True)
    np.testing.assert_array_equal(tables, again)


def test_bands_of_a_number_are_found(fitted):
    imputer, X = fitted
    _, full = mixed(0)
    hidden = X["band"].isna()
    right = (imputer.transform(X)["band"] == full["band"])[hidden]
    alone = imputer.model_.transform(X)[:, 1] == full["band"]
    assert right.mean() > 0.8 > alone[hidden].mean()


def test_frames_come_back_with_their_data_types(fitted):
    imputer, X = fitted
    for table in (imputer.transform(X), *imputer.sample(X, 2, random_state=0)):
        assert list(table.dtypes) == list(X.dtypes)
        assert not table.isna().any().any()
        pd.testing.assert_frame_equal(table.where(X.notna()), X.where(X.notna()))


def test_probabilities_sum_to_one_and_know_observed_cells(fitted):
    imputer, X = fitted
    found = imputer.category_probabilities(X)
    assert list(found) == ["band", "count"] == list(imputer.categories_)
    np.testing.assert_allclose(found["band"].sum(axis=1), 1)
    seen = X["band"].notna()
    expected = pd.get_dummies(X["band"])[seen].astype(float)
    np.testing.assert_array_equal(found["band"][seen], expected)
    filled = imputer.transform(X)["band"]
    np.testing.assert_array_equal(filled, found["band"].idxmax(axis=1))


def test_a_row_is_filled_alike_in_any_table(fitted):
    imputer, X = fitted
    some = X.iloc[[17, 3, 60]]
    pd.testing.assert_frame_equal(
        imputer.transform(X).loc[some.index], imputer.transform(some)
    )


@pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning")
def test_a_single_column_is_left_to_the_other_imputer():
    X = np.array([[1.0], [2.0], [np.nan], [4.0]])
    imputer = ForestImputer(**GIVEN).fit(X)
    np.testing.assert_array_equal(imputer.transform(X), imputer.model_.transform(X))
    assert np.isfinite(imputer.sample(X, 2, as_array=True)).all()


@pytest.mark.slow
def test_autoencoders_can_be_averaged_with_forests():
    X, full = product(0)
    hidden = np.isnan(X)
    model = LAIRImputer(n_draws=20, n_estimators=1, on_misfit="ignore")
    imputer = ForestImputer(model, **GIVEN).fit(X)
    # a mean alone has an error of 0.25; three seeds have 0.087 to 0.097
    assert abs(imputer.transform(X) - full)[hidden].mean() < 0.15


def test_there_is_no_score():
    assert not hasattr(ForestImputer(), "score")
    assert hasattr(GaussianImputer(), "score")


def test_a_fit_to_an_array_forgets_names_of_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    imputer = ForestImputer(n_estimators=3, random_state=0)
    imputer.fit(pd.DataFrame(X, columns=list("abc"))).fit(X)
    assert not hasattr(imputer, "feature_names_in_")
    assert list(imputer.get_feature_names_out()) == ["x0", "x1", "x2"]
    assert imputer.sample(X, 1, 0, shift={1: -0.1})[0].shape == X.shape
