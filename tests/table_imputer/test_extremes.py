"""Tables on which TableImputer has failed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skvnce import TableImputer
from skvnce.table_imputer import draws, expansion


@pytest.mark.parametrize("n_observed", [4, 9, 12])
def test_a_column_may_have_fewer_cells_than_there_are_columns(rng, n_observed):
    X = rng.normal(size=(200, 10))
    X[n_observed:, 0] = np.nan
    imputer = TableImputer(n_estimators=0, random_state=0).fit(X)
    assert np.isfinite(imputer.transform(X)).all()


def test_wide_tables_are_fitted(rng):
    X = rng.normal(size=(30, 40))
    X[rng.random(X.shape) < 0.1] = np.nan
    imputer = TableImputer(n_estimators=0, n_parameter_draws=2, random_state=0)
    [drawn] = imputer.fit(X).sample(X, random_state=0)
    assert np.isfinite(drawn).all()


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
def test_draws_keep_the_grid_of_any_unit(rng, unit):
    u = rng.normal(size=300)
    X = np.column_stack([np.round(20 + 6 * u) * unit, u + 0.3 * rng.normal(size=300)])
    X[::4, 0] = np.nan
    [drawn] = TableImputer(random_state=0).fit(X).sample(X, random_state=0)
    steps = drawn[::4, 0] / unit
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)
    assert len(np.unique(np.round(steps))) > 10


def test_one_giant_cell_leaves_the_grid_as_it_is(rng):
    u = rng.normal(size=300)
    X = np.column_stack([np.round(20 + 6 * u), u + 0.3 * rng.normal(size=300)])
    X[1, 0], X[::4, 0] = 1e10, np.nan
    model = TableImputer(random_state=0).fit(X)._fitted.model
    [part] = [one for one in model.expansion.parts if one.values[-1] == 1e10]
    step = model.column(model.expansion.parts.index(part)).model.shape.step
    assert step * part.scale[0] == pytest.approx(1.0)


@pytest.mark.parametrize("centre, scale", [(1e9, 1e-3), (0.0, 1.0), (1e6, 1.0)])
def test_numbers_far_from_zero_keep_their_digits(rng, centre, scale):
    u = rng.normal(size=200)
    X = np.column_stack([centre + scale * u, u + 0.1 * rng.normal(size=200)])
    X[::4, 0] = np.nan
    filled = TableImputer(random_state=0).fit_transform(X)[::4, 0]
    assert len(np.unique(filled)) > 0.8 * len(filled)  # floats of 1e9 are 1e-7 apart
    assert np.corrcoef(filled - centre, u[::4])[0, 1] > 0.9


def with_products(n=300):
    """Fit columns of variance about 1 and products, one of which may be there."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 4))
    X[:, 3] = X[:, 0] + 0.15 * X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n)
    X[rng.random(X.shape) < 0.1] = np.nan
    imputer = TableImputer(n_estimators=0, n_parameter_draws=5, random_state=0).fit(X)
    assert len(imputer.interactions_) > 0
    return imputer


@pytest.fixture(scope="module")
def fitted_with_products():
    return with_products()


NUMBERS = st.floats(-3, 3), st.floats(-1e9, 1e9)
CELLS = st.one_of(*NUMBERS, st.sampled_from([np.nan, 1e3, -1e5]))


@settings(derandomize=True)
@given(row=st.lists(CELLS, min_size=4, max_size=4))
def test_far_rows_are_filled_at_their_distance(fitted_with_products, row):
    X = np.array([row, [0.0, 0, 0, 0]])
    most = 100 + 5 * np.nansum(abs(X))
    drawn = fitted_with_products.sample(X, n_draws=5, random_state=0)
    for table in (fitted_with_products.transform(X), *drawn):
        assert (abs(table) <= most).all()


def test_products_without_ends_would_explode(monkeypatch):
    monkeypatch.setattr(expansion, "_BEYOND", 1e300)
    rows = [[1e5, 1e5, 0.0, np.nan], [np.nan, 1e5, 0.0, 1e5]]
    filled = with_products().transform(rows)
    assert max(abs(filled[0, 3]), abs(filled[1, 0])) > 1e7  # of either target


def table_with_grids(rng, n=200):
    """Numbers, whole numbers, a grid of tens, and grades that are codes."""
    u = rng.normal(size=n)
    grids = np.round(20 + 6 * u), 10 * np.round(4 * u) + 3
    X = np.column_stack([u + rng.normal(size=n), *grids, rng.integers(0, 4, n)])
    X[rng.random(X.shape) < 0.25] = np.nan
    X[(u > 0.8) & (rng.random(n) < 0.5), :3] = np.nan  # draws would go beyond
    return X


@pytest.mark.parametrize("strategy", ["mean", "median", "mode"])
@pytest.mark.parametrize("slack", [None, np.zeros(4), [0.1, 0.4, 4.0, 0.0]])
def test_bounds_hold_in_fills_and_draws(rng, strategy, slack):
    X, bounds = table_with_grids(rng), {"min_value": "observed"}
    low, high = np.nanmin(X, 0), np.nanmax(X, 0)
    if slack is None:
        low, high = np.full(4, -np.inf), np.full(4, np.inf)
        bounds["min_value"] = -np.inf
    else:
        low, high = low - slack, high + slack
        bounds = {"min_value": low, "max_value": dict(enumerate(high))}
    imputer = TableImputer(n_estimators=0, strategy=strategy, random_state=0, **bounds)
    draws = imputer.fit(X).sample(X, n_draws=20, random_state=0)
    quantiles = imputer.quantile(X, [0.01, 0.99])
    for table in (imputer.transform(X), *draws, *quantiles):
        assert (table >= low).all() and (table <= high).all()
    beyond = (np.stack(draws)[..., :3] > np.nanmax(X, 0)[:3]).any()
    assert beyond == (slack is None or np.max(slack) > 0)


@pytest.mark.filterwarnings("ignore:sample_weight has a mean")
def test_weights_that_leave_the_prior_no_effect_are_an_error_with_a_remedy(rng):
    """A table of eight rows that count as 4e9; divided by their mean, they fit."""
    errors = []
    for _ in range(6):
        X = rng.normal(size=(8, 4)) @ rng.normal(size=(4, 4))
        X[rng.random(X.shape) < 0.25] = np.nan
        X[0, 0], X[1] = 1e6, 1.0
        imputer, weights = TableImputer(random_state=0), np.full(8, 5e8)
        try:
            imputer.fit(X, sample_weight=weights)
        except ValueError as error:
            errors.append(error)
        filled = imputer.fit(X, sample_weight=weights / weights.mean()).transform(X)
        assert np.isfinite(filled).all()
    assert errors  # else the tables are no test
    assert all(type(error) is ValueError for error in errors)
    assert all("sample_weight / sample_weight.mean()" in str(e) for e in errors)


def test_products_that_run_away_are_not_drawn(monkeypatch):
    """If cells overflow in a chain with products, it is without them."""
    usual = draws.run_chain

    def run_chain(expansion, *args):
        if any(product.probability for product in expansion.products):
            raise np.linalg.LinAlgError("filled cells overflow")
        return usual(expansion, *args)

    monkeypatch.setattr(draws, "run_chain", run_chain)
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[::4, 2] = np.nan
    imputer = TableImputer([(0, 1)], n_estimators=0, random_state=0).fit(X)
    assert imputer.interactions_
    with pytest.warns(UserWarning, match="interactions_ do not stay finite"):
        drawn = imputer.sample(X, 2, random_state=0, as_array=True)
    assert np.isfinite(drawn).all()


def test_cells_that_run_away_are_drawn_without_products(monkeypatch):
    """If cells of new rows overflow, they are drawn by a model without products."""
    usual = draws.put_cells

    def put_cells(expansion, S, part, cells, rows):
        usual(expansion, S, part, cells, rows)
        if any(product.probability for product in expansion.products):
            S[:, rows, part.base[0]] = np.inf

    X = np.random.default_rng(0).normal(size=(60, 3))
    X[::4, 2] = np.nan
    imputer = TableImputer([(0, 1)], n_estimators=0, random_state=0).fit(X)
    imputer.sample(X[:20], 2, random_state=0)  # the chain is over
    monkeypatch.setattr(draws, "put_cells", put_cells)
    with pytest.warns(UserWarning, match="interactions_ do not stay finite"):
        drawn = imputer.sample(X[:20], 2, random_state=0, as_array=True)
    assert np.isfinite(drawn).all()
