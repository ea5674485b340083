"""ForestImputer: forests averaged with another imputer."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

from skvnce import ForestImputer, GaussianImputer, LAIRImputer
from skvnce.fits import forest_weights as weights
from skvnce.fitted import column_forests as columns
from skvnce.fitted.fill import Predicted

GIVEN = {"n_estimators": 20, "random_state": 0}


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


@pytest.fixture(scope="module")
def forest():
    """Grow a forest of the last of three columns, and return its ranks, too."""
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(60, 3))
    nodes[:, 2] += nodes[:, 0] ** 2
    ranks = columns.Ranks.of(nodes)
    own = ranks.encoded(nodes)
    growth = columns.Growth(30, 3, 0.7, 50, None)
    found = columns.grow(2, own[None], own[:, 2], nodes[:, 2], 0, growth, rng)
    return *found, ranks, own


# the forest of a column


def test_ranks_are_places_among_observed_values():
    ranks = columns.Ranks.of(np.array([[3.0], [1.0], [np.nan], [1.0], [7.0]]))
    cells = np.array([[1.0], [3.0], [7.0], [0.0], [2.0], [9.0]])
    found = ranks.encoded(cells)[:, 0]
    np.testing.assert_array_equal(found, [0, 1, 2, -0.5, 0.5, 2.5])


def test_predictions_are_means_of_draws(forest):
    """The oracle enumerates all trees, and all cells of the leaves by a fine grid."""
    one, _, ranks, own = forest
    grid = (np.arange(151200) + 0.5) / 151200  # 5040 for each of the trees
    for row in own[:3]:
        drawn = one.draw(np.repeat(row[None], len(grid), 0), grid)
        mean = ranks.values[2][drawn.astype(int)].mean()
        # the grid cuts cells of a leaf whose number does not divide 5040
        assert mean == pytest.approx(one.predict(row[None])[0, 0], abs=2e-3)


def test_rows_are_predicted_by_the_trees_that_are_asked_for(forest):
    one, unseen, _, own = forest
    location, scale = one.moments
    others = np.ascontiguousarray(own[:, :2])
    each = np.array([tree.predict(others)[:, 0] for tree in one.trees])
    expected = location + scale * (each * unseen).sum(0) / unseen.sum(0)
    np.testing.assert_allclose(one.predict(own, unseen)[:, 0], expected)
    assert not np.allclose(one.predict(own)[:, 0], expected)


def test_trees_were_not_grown_on_the_rows_that_they_have_not_seen(forest):
    """A tree that has seen a row has its cell in one of the leaves."""
    one, unseen, _, own = forest
    cells = np.split(one.leaves.ranks, len(one.models))
    for ranks, mask in zip(cells, unseen, strict=True):
        assert not np.isin(own[mask, 2], ranks).any()
        assert np.isin(own[~mask, 2], ranks).all()
    assert (~unseen).any(0).sum() <= 50  # `max_samples`


def test_draws_come_from_the_trees_that_are_asked_for(forest):
    one, unseen, _, own = forest
    only = np.zeros_like(unseen)
    only[3] = True
    uniform = np.random.default_rng(0).random(len(own))
    found = one.draw(own, uniform, only)
    leaf = one.trees[3].apply(np.ascontiguousarray(own[:, :2])) + one.leaves.nodes[3]
    np.testing.assert_array_equal(found, one.leaves.at(leaf, uniform))


# weights


def test_the_best_weight_minimises_squared_errors(seed):
    rng = np.random.default_rng(seed)
    own, other, truth = rng.normal(size=(3, 50))
    grid = np.linspace(0, 1, 1001)
    errors = [((own + w * (other - own) - truth) ** 2).sum() for w in grid]
    found = weights.best_weight(own, other, truth)
    assert found == pytest.approx(grid[np.argmin(errors)], abs=1e-3)


def test_the_best_weight_is_half_without_a_difference():
    assert weights.best_weight(np.ones(3), np.ones(3), np.zeros(3)) == 0.5
    assert weights.best_weight(*np.zeros((3, 0))) == 0.5


def test_the_best_weight_of_levels_prefers_what_is_right():
    right, wrong = [np.array([0.9, 0.1])] * 9, [np.array([0.2, 0.8])] * 9
    assert weights.best_weight_of_levels(wrong, right) == 1
    assert weights.best_weight_of_levels(right, wrong) == 0


def test_few_cells_leave_weights_near_to_one_half():
    assert weights.shrunk(1.0, 0) == 0.5
    assert weights.shrunk(1.0, 100) == 0.75
    assert weights.shrunk(0.0, 300) == 0.125


def test_columns_of_numbers_count_alike_in_any_unit():
    """One column is predicted best by the first imputer, one by the second."""
    rng = np.random.default_rng(0)
    truth, noise = rng.normal(size=(2, 100, 2))
    hidden, found = np.repeat([0, 1], 50), []
    for unit in ([1.0, 1.0], [1000.0, 1.0]):
        own = truth + noise * [0.0, 1.0]
        other = truth + noise * [1.0, 0.0]
        parts = [Predicted(one * unit, {}) for one in (own, other)]
        chosen = weights.choose(
            truth * unit, hidden, [0, 1], dict(enumerate(unit)), *parts
        )
        found.append(chosen)
    np.testing.assert_allclose(found[0], found[1])
    assert 0.3 < found[0][0] < 0.7


def test_hidden_cells_leave_all_levels_and_ranges(seed):
    rng = np.random.default_rng(seed)
    nodes = np.column_stack([rng.normal(size=40), rng.integers(8, size=40)])
    nodes[rng.random(nodes.shape) < 0.3] = np.nan
    rows, columns = weights.hide_one(nodes, [0, 8], 30, rng)
    assert 0 < len(rows) == len(set(rows)) <= 30
    assert not np.isnan(nodes[rows]).any()  # two cells, of which one is hidden
    kept = nodes.copy()
    kept[rows, columns] = np.nan
    for reduce in (np.nanmin, np.nanmax):
        assert reduce(kept[:, 0]) == reduce(nodes[:, 0])
    assert set(kept[:, 1]) >= set(nodes[~np.isnan(nodes[:, 1]), 1])


def test_the_model_that_is_judged_has_not_seen_the_hidden_cells(fitted):
    """What it learns from a table does not depend on the hidden cells."""
    imputer, X = fitted
    cells = imputer._checked(X)
    hidden = np.array([3, 5, 8]), np.array([0, 1, 2])
    changed = cells.copy()
    changed[hidden] = cells[0]
    found = [
        weights.fitted_without(imputer.model_, table, hidden, 0)._predicted(cells[:20])
        for table in (cells, changed)
    ]
    np.testing.assert_array_equal(found[0].filled, found[1].filled)
    fewer = tuple(part[:1] for part in hidden)
    seen = weights.fitted_without(imputer.model_, cells, fewer, 0)
    assert (seen._predicted(cells[:20]).filled != found[0].filled).any()


def test_probabilities_are_averaged_geometrically():
    p, q = np.array([[0.9, 0.1]]), np.array([[0.4, 0.6]])
    root = np.sqrt(p * q)
    np.testing.assert_allclose(weights.pooled(p, q, 0.5), root / root.sum())
    np.testing.assert_allclose(weights.pooled(p, q, 0.0), p)
    np.testing.assert_allclose(weights.pooled(p, q, 1.0), q)
    root = np.sqrt([[0.5, 0.5 * 0.003]])  # a probability of 0 counts as .003
    found = weights.pooled(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), 0.5)
    np.testing.assert_allclose(found, root / root.sum())


def test_weights_are_the_shares_of_cells_that_forests_draw():
    rng, missing = np.random.default_rng(0), np.array([[True, True, False]] * 1000)
    ranks, shares = np.zeros((4, 1000, 3), dtype=np.float32), np.array([0.3, 0.0, 0.9])
    chosen = columns.redraw([], ranks, missing, shares, 1, rng)
    n = chosen.sum((0, 1))
    assert n[1:].tolist() == [0, 0]  # of weight 0, and observed
    assert stats.binomtest(int(n[0]), 4000, 0.3).pvalue > 1e-6


def test_forests_have_the_weight_where_no_line_predicts(seed):
    X, _ = product(seed)
    imputer = ForestImputer(GaussianImputer(on_misfit="ignore"), **GIVEN).fit(X)
    assert (imputer.weights_ > 0.75).all() and (imputer.weights_ < 0.91).all()


def test_forests_have_little_weight_where_rows_are_normal(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 1)) + 0.3 * rng.normal(size=(200, 6))
    X[rng.random(X.shape) < 0.2] = np.nan
    imputer = ForestImputer(**GIVEN).fit(X)
    assert (imputer.weights_ < 0.4).all()


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
    assert weights.repeated(X, n_levels).tolist() == expected
    X[170, 4] = X[170, 5]
    assert weights.repeated(X, n_levels)[4:6].all()


def test_draws_of_nearly_equal_numbers_are_as_narrow_as_those_of_the_model(seed):
    """A forest alone draws with a standard deviation above .2; the true one is .01.

    At 20 seeds, the ratio of 50 draws was 1.010 with a standard deviation of .011, the
    model's deviation .046 at most, and that of half a forest .34 at least.
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

    imputer = ForestImputer(**GIVEN).fit(X)
    assert (imputer.weights_[:2] == 0).all() and (imputer.weights_[2:] > 0).all()
    own = deviation(imputer.model_)
    assert deviation(imputer) < 1.1 * own < 0.12
    assert deviation(ForestImputer(weight=0.5, **GIVEN).fit(X)) > 0.2


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
