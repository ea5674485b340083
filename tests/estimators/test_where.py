"""Missing cells that stay missing: `where` of `transform` and `sample`."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import SMALL_IMPUTERS
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal
from sklearn.base import clone

from skvnce import GaussianImputer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
names = pytest.mark.parametrize(
    "imputer", SMALL_IMPUTERS, indirect=True, ids=lambda one: type(one).__name__
)


def numbers(seed=0):
    """Draw rows with missing cells, and a mask of cells that are to be filled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 1)) + rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.4] = np.nan
    return X, rng.random(X.shape) < 0.5


def survey():
    """Make a frame in which non-smokers are not asked for cigarettes."""
    rng = np.random.default_rng(1)
    n = 80
    frame = pd.DataFrame(
        {
            "smoker": pd.Categorical(rng.choice(["no", "yes"], n)),
            "cigarettes": pd.array(rng.poisson(12, n), dtype="Int64"),
            "age": rng.normal(50, 10, n),
            "brand": pd.array(rng.choice(["a", "b"], n), dtype="string"),
        },
        index=[f"row {i}" for i in range(n)],
    )
    skipped = frame["smoker"].eq("no")
    frame.loc[skipped, ["cigarettes", "brand"]] = pd.NA
    lost = rng.random(n) < 0.3
    frame.loc[lost, ["age", "cigarettes"]] = pd.NA
    return frame, skipped


@names
def test_the_other_cells_do_not_depend_on_where(imputer):
    X, where = numbers()
    fitted = clone(imputer).fit(X)
    stay = np.isnan(X) & ~where
    assert stay.sum() > 20
    expected = np.where(stay, np.nan, fitted.transform(X))
    assert_array_equal(fitted.transform(X, where=where), expected)
    assert_array_equal(clone(imputer).fit_transform(X, where=where), expected)
    drawn = fitted.sample(X, 3, 0, as_array=True)
    found = fitted.sample(X, 3, 0, as_array=True, where=where)
    assert_array_equal(found, np.where(stay, np.nan, drawn))
    for shifted in fitted.sample(X, 2, 0, where=where, shift={1: 0.5}):
        assert_array_equal(np.isnan(shifted), stay)


@names
def test_frames_keep_their_data_types_and_empty_cells(imputer):
    frame, skipped = survey()
    fitted = clone(imputer).set_output(transform="pandas").fit(frame)
    where = {"cigarettes": ~skipped, "brand": ~skipped}
    for table in [
        fitted.transform(frame, where=where),
        *fitted.sample(frame, 2, 0, where=where),
    ]:
        assert_array_equal(table["cigarettes"].isna(), skipped)
        assert_array_equal(table["brand"].isna(), skipped)
        assert table["age"].notna().all()
        assert (table.dtypes == frame.dtypes).all()
        assert (table.index == frame.index).all()


def test_masks_are_arrays_frames_or_dicts():
    frame, skipped = survey()
    fitted = GaussianImputer(random_state=0, max_iter=20).fit(frame)
    fitted.set_output(transform="pandas")
    mask = pd.DataFrame(True, frame.index, frame.columns)
    mask.loc[skipped, ["cigarettes", "brand"]] = False
    expected = fitted.transform(frame, where=mask)
    for other in (
        mask.to_numpy(),
        mask.to_numpy().tolist(),
        mask[["brand", "cigarettes"]],
        mask.astype("boolean"),
        pl.from_pandas(mask),
        {"brand": ~skipped, "cigarettes": (~skipped).tolist()},
    ):
        assert_frame_equal(fitted.transform(frame, where=other), expected)
    everything = fitted.transform(frame, where=np.ones(frame.shape, dtype=bool))
    assert_frame_equal(everything, fitted.transform(frame))
    nothing = fitted.transform(frame, where=np.zeros(frame.shape, dtype=bool))
    assert_frame_equal(nothing, frame)


def test_polars_frames_keep_empty_cells():
    frame, skipped = survey()
    frame = pl.from_pandas(frame)
    fitted = GaussianImputer(random_state=0, max_iter=20).fit(frame)
    fitted.set_output(transform="polars")
    found = fitted.transform(frame, where={"cigarettes": (~skipped).to_numpy()})
    assert_array_equal(found["cigarettes"].is_null(), skipped)
    assert found.schema == frame.schema and found["brand"].null_count() == 0


def test_arrays_of_objects_keep_empty_cells():
    frame, skipped = survey()
    fitted = GaussianImputer(random_state=0, max_iter=20).fit(frame)
    found = fitted.transform(frame, where={"brand": ~skipped})
    assert found.dtype == object
    assert_array_equal(pd.isna(found[:, 3]), skipped)
    assert not pd.isna(found[:, :3]).any()


def test_indicators_and_empty_columns_are_kept():
    X, where = numbers()
    X = np.column_stack([X, np.full(len(X), np.nan)]).astype(np.float32)
    where = np.column_stack([where, np.arange(len(X)) % 2 == 0])
    imputer = GaussianImputer(keep_empty_features=True, add_indicator=True)
    found = imputer.fit_transform(X, where=where)
    assert found.dtype == np.float32 and found.shape == (60, 8)
    assert_array_equal(np.isnan(found[:, :4]), np.isnan(X) & ~where)
    assert_array_equal(found[:, 4:], np.isnan(X))


def test_a_column_of_another_data_type_is_filled_where_asked():
    frame, _ = survey()
    fitted = GaussianImputer(random_state=0, max_iter=20).fit(frame)
    fitted.set_output(transform="pandas")
    empty = frame.assign(brand=np.nan)
    rows = np.arange(len(frame)) < 5
    found = fitted.transform(empty, where={"brand": rows})["brand"]
    assert_array_equal(found.notna(), rows)
    assert set(found[rows]) <= {"a", "b"}


def test_wrong_masks_are_refused():
    frame, skipped = survey()
    fitted = GaussianImputer(random_state=0, max_iter=20).fit(frame)
    wrong = [
        (np.ones((3, 4), dtype=bool), ValueError, r"shape of X, \(80, 4\).*\(3, 4\)"),
        ({"brand": [True]}, ValueError, r"where\['brand'\].*80 rows"),
        ({"colour": ~skipped}, ValueError, "where has the key 'colour', no column"),
        ({"brand": np.ones(80)}, TypeError, "True and False only.*'brand'"),
        ({"brand": ~skipped[::-1]}, ValueError, "another index than X"),
    ]
    for where, error, message in wrong:
        for call in (fitted.transform, fitted.sample):
            with pytest.raises(error, match=message):
                call(frame, where=where)
