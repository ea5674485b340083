"""The fit of a table, and the model that it returns."""

import numpy as np
import pytest
from oracles import normal_means
from statistical import FAILURE, p_mean

from skvnce.table_imputer import expansion as expansion_module
from skvnce.table_imputer import fit as fit_module
from skvnce.table_imputer import model as model_module
from skvnce.table_imputer.fit import Problem, fit_table
from skvnce.table_imputer.levels import levels_at
from skvnce.table_imputer.model import Settings, unscaled


@pytest.fixture
def cells(seed):
    """Make two numbers, grades, and codes of two and of three levels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 1)) + rng.normal(size=(200, 5))
    X[:, 2] = X[:, 2].round().clip(-2, 2)
    X[:, 3:] = np.column_stack([X[:, 3] > 0, (X[:, 4] > 0).astype(int) + (X[:, 4] > 1)])
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


N_LEVELS = np.array([0, 0, 0, 2, 3])


def fitted(cells, kinds=None, weights=None, trees=None, pairs="auto", n_draws=5):
    kinds = N_LEVELS if kinds is None else kinds
    weights = np.ones(len(cells)) if weights is None else weights
    problem = Problem(cells, weights, kinds, [None] * len(kinds))
    return fit_table(problem, pairs, Settings(trees, n_draws, 0.05, 0))


def test_fills_without_forests_are_means_of_the_normal(rng, monkeypatch):
    monkeypatch.setattr(expansion_module, "_SAME", -1.0)  # no normal scores
    X = rng.normal(size=(300, 1)) + rng.normal(size=(300, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    model = fitted(X, np.zeros(3, int), trees=0, pairs=None)
    columns = {
        q: m._replace(model=m.model._replace(a=1.0)) for q, m in model.columns.items()
    }
    model.columns.update(columns)
    parts = model.expansion.parts
    centre, scale = np.array([(one.centre[0], one.scale[0]) for one in parts]).T
    exact = normal_means(*model.normal[:2], (X[:, model.source.order] - centre) / scale)
    filled, probabilities = model.fill(X)
    found = filled[:, model.source.order]
    np.testing.assert_allclose(found, exact * scale + centre, atol=1e-9)
    assert probabilities == {}


def test_levels_have_probabilities(cells):
    filled, probabilities = fitted(cells).fill(cells)
    assert sorted(probabilities) == [3, 4]
    for node, p in probabilities.items():
        gone = np.isnan(cells[:, node])
        np.testing.assert_allclose(p[gone].sum(1), 1)
        assert (p[gone] >= 0).all()
        np.testing.assert_array_equal(filled[gone, node], p[gone].argmax(1))
    seen = ~np.isnan(cells)
    np.testing.assert_array_equal(filled[seen], cells[seen])
    assert not np.isnan(filled).any()


def test_points_are_quantiles(cells):
    levels = np.array([0.1, 0.5, 0.9])
    points, _ = fitted(cells).points(cells, levels)
    assert points.shape == (3, *cells.shape) and not np.isnan(points).any()
    assert (np.diff(points, axis=0) >= 0).all()
    assert np.isin(points[..., 2], [-2, -1, 0, 1, 2]).all()


def test_quantiles_of_levels():
    p = np.array([[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])
    found = levels_at(p, np.array([0.1, 0.5, 0.8, 1.0])[:, None])
    np.testing.assert_array_equal(found, [[0, 2], [1, 2], [2, 2], [2, 2]])


def test_predictions_of_a_cell_do_not_read_it(cells):
    model = fitted(cells, trees=0, pairs=None)
    q = int(np.flatnonzero(model.source.order == 0)[0])
    seen = np.flatnonzero(~np.isnan(cells[:, 0]))
    filled, L = model.held_out_predictions(q, seen)
    hidden = model.training.cells.copy()
    hidden[seen, q] = 1e6
    changed = model._replace(training=model.training._replace(cells=hidden))
    other = changed.held_out_predictions(q, seen)
    np.testing.assert_array_equal(other[0], filled)
    np.testing.assert_array_equal(other[1], L)
    # the fits of the folds differ
    assert len({one.mean.tobytes() for one in model.held_out}) == 5


def test_noise_is_not_predicted(seed):
    """Held-out predictions of independent columns are not correlated with them."""
    products = []
    for i in range(20):
        X = np.random.default_rng([seed, i]).normal(size=(60, 4))
        model = fitted(X, np.zeros(4, int), trees=0, pairs=None)
        part = model.expansion.parts[0]
        _, L = model.held_out_predictions(0, np.arange(60))
        x = (X[:, model.source.order[0]] - part.centre) / part.scale
        products.append((L[:, 0] * x).mean())
        assert abs(L).max() > 0.01
    assert p_mean(products, 0, alternative="greater") > FAILURE


def test_long_tables_are_fitted_to_all_rows(cells, monkeypatch):
    monkeypatch.setattr(fit_module, "_MOST_ROWS", 120)
    model = fitted(cells, pairs=None)
    assert len(model.training.cells) == 120 < model.training.weight_of_all == 200
    monkeypatch.undo()
    whole = fitted(cells, pairs=None)
    assert model.normal.mean.shape == whole.normal.mean.shape
    filled, _ = model.fill(cells)
    assert not np.isnan(filled).any()


def test_models_of_columns_are_of_some_rows(cells, monkeypatch):
    monkeypatch.setattr(model_module, "MOST_ROWS", 50)
    model = fitted(cells)
    q = int(np.flatnonzero(model.source.order == 0)[0])
    assert len(model.column(q).model.residuals.residual) <= 50
    assert not np.isnan(model.draw(cells, 2)).any()


@pytest.mark.parametrize("centre", [0.0, 1e6])
def test_zeros_and_whole_numbers_return_exactly(centre, seed):
    x = centre + np.random.default_rng(seed).integers(0, 100, 50) * 1.0
    model = fitted(x[:, None], np.zeros(1, int), trees=0)
    part = model.expansion.parts[0]
    values = (x - part.centre) / part.scale
    np.testing.assert_array_equal(unscaled(part, values), x)


def test_one_draw_of_the_parameters(cells):
    model = fitted(cells)
    models = model.with_one_draw()
    assert len(models) == 5
    means = [one.cache["normals"].mean for one in models]
    np.testing.assert_array_equal(np.concatenate(means), model.posterior().normals.mean)
    drawn = models[0].draw(cells, 3)
    assert drawn.shape == (3, *cells.shape) and not np.isnan(drawn).any()
