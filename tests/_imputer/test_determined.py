"""Categories that determine categories: draws do not contradict what no row does."""

import numpy as np
import pandas as pd
import pytest
from cases import quick_gaussian

from skvnce import ColumnImputer, MixtureImputer, TableImputer
from skvnce._imputer.determined import still_determined

ANY = [
    quick_gaussian(),
    MixtureImputer(random_state=0),
    TableImputer(random_state=0),
    ColumnImputer(quick_gaussian(), random_state=0),
]
QUICK = MixtureImputer(2, n_estimators=1, random_state=0, on_misfit="ignore")


def names(prefix, codes):
    return pd.Categorical([f"{prefix}{code:02d}" for code in codes])


def towns(rng, n, n_towns=12, size=3):
    """Make towns, their counties and the countries of these."""
    code = rng.integers(n_towns, size=n)
    columns = {"town": code, "county": code // size, "country": code // size // 2}
    return pd.DataFrame({key: names(key[:2], one) for key, one in columns.items()})


def without(X, column, share, rng):
    return X.assign(**{column: X[column].where(rng.random(len(X)) >= share)})


def drawn(imputer, X, n=5):
    imputer = imputer.set_output(transform="pandas").fit(X)
    return [imputer.transform(X), *imputer.sample(X, n, random_state=0)]


@pytest.mark.quick
@pytest.mark.parametrize("imputer", ANY, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    "n, n_towns, size", [(375, 12, 3), (400, 6, 1), (400, 3, 1), (1000, 30, 3)]
)
def test_a_category_that_another_determines_is_right(imputer, n, n_towns, size, rng):
    complete = towns(rng, n, n_towns, size)[["town", "county"]]
    X = without(complete, "county", 0.2, rng)
    for table in drawn(imputer, X):
        pd.testing.assert_frame_equal(table, complete)
    if hasattr(imputer, "category_probabilities"):
        found = imputer.category_probabilities(X)["county"].to_numpy()
        codes = complete["county"].cat.codes
        np.testing.assert_array_equal(found, np.eye(found.shape[1])[codes])


@pytest.mark.parametrize("imputer", ANY[:3], ids=lambda one: type(one).__name__)
def test_no_drawn_row_contradicts_a_relation(imputer, rng):
    """Whichever of the columns are missing; a town is one of those of its county."""
    complete = X = towns(rng, 600)
    for column in X:
        X = without(X, column, 0.3, rng)
    for table in drawn(imputer, X, 10)[1:]:
        codes = [table[key].str[2:].astype(int).to_numpy() for key in table]
        np.testing.assert_array_equal(codes[1], codes[0] // 3)
        np.testing.assert_array_equal(codes[2], codes[1] // 2)
        alone = (X["town"].isna() & X["county"].notna()).to_numpy()
        # of three equally frequent towns
        same = (table["town"] == complete["town"])[alone].mean()
        assert abs(same - 1 / 3) < 5 * np.sqrt(2 / 9 / alone.sum())


def exception(rng):
    """Add the only row whose town is in another county."""
    X = towns(rng, 1000)
    X.loc[7, "county"] = X["county"].cat.categories[X["county"].cat.codes[7] - 1]
    return X[["town", "county"]]


def few(rng):
    return towns(rng, 100)[["town", "county"]]


def rare(rng):
    """Make a level that is in one row, and that row alone in its town."""
    code = np.append(rng.integers(12, size=1000), 12)
    return pd.DataFrame({"town": names("T", code), "ill": names("I", 1 * (code == 12))})


def identifiers(rng):
    """Name each row, so that no other row shows which level it has."""
    code = rng.integers(3, size=400)
    return pd.DataFrame({"name": names("N", range(400)), "level": names("L", code)})


def independent(rng):
    return pd.DataFrame({k: names(k, rng.integers(4, size=1000)) for k in "ab"})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [exception, few, rare, identifiers, independent])
def test_other_categories_are_those_of_the_model(make, rng):
    assert QUICK.fit(make(rng))._schema.determined == ()


def test_rows_that_contradict_a_relation_end_it(rng):
    schema = QUICK.fit(towns(rng, 1000))._schema
    new = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, np.nan]])
    assert still_determined(schema, new) == schema.determined
    assert len(schema.determined) == 3
    new[1, 1] = 1.0
    pairs = [(by, column) for by, column, _ in still_determined(schema, new)]
    assert sorted(pairs) == [(0, 2), (1, 2)]
