"""An integer names a column of a data frame, and is an index only of an array."""

import numpy as np
import pandas as pd
import pytest

from skvnce import ConstrainedImputer, GaussianImputer, TableImputer

pytestmark = pytest.mark.usefixtures("short_training")
NAMES = [2, 0, 1]  # the columns with the names 0 and 1 are not at these places
IMPUTERS = [GaussianImputer, TableImputer]


@pytest.fixture
def table(rng):
    """A column of codes with the name 0, of numbers with others, half of 2 missing."""
    cells = rng.normal(10, 1, (60, 3))
    cells[:, 1] = rng.integers(0, 3, 60)
    cells[::3, 0] = np.nan
    return pd.DataFrame(cells, columns=NAMES)


@pytest.fixture
def imputer():
    return GaussianImputer(max_iter=20, random_state=0).set_output(transform="pandas")


def test_categories_and_bounds_are_those_of_the_name(table, imputer):
    imputer.set_params(
        categorical_features={0: "nominal"}, min_value={2: -90.0}, max_value={2: 99.0}
    ).fit(table)
    assert list(imputer.categories_) == [0]
    np.testing.assert_array_equal(imputer.feature_ranges_[:, 0], [-90.0, 99.0])
    holed = table.copy()
    holed.loc[:5, 0] = np.nan
    assert list(imputer.category_probabilities(holed)) == [0]
    for key in (3, -1):
        for given in ({"min_value": {key: 0}}, {"categorical_features": [key]}):
            message = f"has the key {key}, no column of X: 2"
            with pytest.raises(ValueError, match=message):
                GaussianImputer(**given).fit(table)


@pytest.mark.parametrize("make", IMPUTERS)
def test_parameters_of_methods_are_those_of_the_name(make, table):
    model = (
        make(max_value={2: 1e3}, n_parameter_draws=2, random_state=0)
        .set_output(transform="pandas")
        .fit(table)
    )
    missing = table[2].isna()
    where = {2: np.arange(60) % 2 == 0}
    filled = model.transform(table, where=where).to_numpy()
    np.testing.assert_array_equal(np.isnan(filled[:, 0]), missing & ~where[2])
    plain, moved = (
        model.sample(table, n_draws=2, random_state=0, shift=shift, as_array=True)
        for shift in (None, {2: 50.0})  # standard deviations
    )
    assert ((moved - plain)[:, missing, 0] > 30).all()
    with pytest.raises(ValueError, match="shift has the key 3, no column of X: 2, 0"):
        model.sample(table, shift={3: 1.0})


def test_limits_of_cells_and_groups_are_those_of_the_name(table, imputer):
    imputer.set_params(groups=0).fit(table)
    assert imputer._schema.group_columns == [1]
    imputer.set_params(groups=None).fit(table)
    filled = imputer.transform(table, lower={2: np.full(60, 30.0)}).to_numpy()
    assert (filled[table[2].isna(), 0] >= 30).all()


def test_equations_are_those_of_the_name(table, imputer):
    table[1] = table[0] + table[2].fillna(10)
    model = ConstrainedImputer(imputer, sums={1: [2, 0]}).set_output(transform="pandas")
    filled = model.fit_transform(table).to_numpy()
    np.testing.assert_allclose(filled[:, 2], filled[:, 0] + filled[:, 1])


@pytest.mark.parametrize("make", IMPUTERS)
def test_another_order_of_names_is_an_error(make, table):
    model = make(n_parameter_draws=2, random_state=0).fit(table)
    with pytest.raises(ValueError, match=r"in another order than at fit: \[2, 0, 1\]"):
        model.transform(table[[0, 1, 2]])
    np.testing.assert_array_equal(  # other names are those of another table
        model.transform(table.set_axis([7, 8, 9], axis=1)), model.transform(table)
    )


def test_indices_of_arrays_count_from_both_ends(table):
    cells = table.to_numpy()
    for key in (0, -3):
        model = GaussianImputer(min_value={key: -90.0}, max_iter=20).fit(cells)
        assert model.feature_ranges_[0, 0] == -90
