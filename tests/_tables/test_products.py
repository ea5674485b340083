"""Products of columns that are not centred, of which `missing_report` tells."""

import numpy as np
import pandas as pd
import pytest

from skvnce._tables.findings.checks import products
from skvnce._tables.schema import Table

N = 200


def frame(shift, names=("a", "b"), seed=0):
    """Make two columns with missing cells, and their product."""
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"))
    df[["a", "b"]] += shift
    df[["a", "b"]] = df[["a", "b"]].mask(rng.random((N, 2)) < 0.2)
    return df.assign(p=df[names[0]] * df[names[1]])


def found(df):
    names = [repr(name) for name in df]
    return products(Table.of(df.to_numpy(), None, names))


@pytest.mark.parametrize("shift", [2.0, -5.0, 1000.0])
def test_products_far_from_zero_are_reported(shift):
    [message] = found(frame(shift))
    assert "'p' is 'a' times 'b'" in message and "Subtract" in message


def test_squares_are_reported():
    [message] = found(frame(3.0, ("a", "a")))
    assert "'p' is 'a' times 'a'" in message


def test_centred_products_are_not():
    assert found(frame(0.0)) == found(frame(0.0, ("a", "a"))) == []


@pytest.mark.parametrize(
    "other",
    [
        lambda df: df["a"] + df["b"],
        lambda df: df["a"] * df["b"] + 1e-5,
        lambda df: df["a"] / df["b"],
        lambda df: df["a"],
        lambda df: 2 * df["a"],
    ],
)
def test_other_columns_are_not(other):
    df = frame(3.0)
    assert found(df.assign(p=other(df))) == []


def test_a_factor_that_is_constant_is_none():
    df = frame(3.0).assign(b=1.0)
    assert found(df.assign(p=df["a"])) == []


def test_complete_products_need_no_advice():
    df = frame(3.0).fillna(3.0)
    assert found(df.assign(p=df["a"] * df["b"])) == []


def test_few_rows_show_nothing():
    assert found(frame(3.0)[:15]) == []
    assert found(frame(3.0)[:60])


def test_wide_tables_are_not_searched():
    df = frame(3.0)
    rng = np.random.default_rng(1)
    more = pd.DataFrame(rng.normal(size=(N, 120))).add_prefix("x")
    assert found(pd.concat([df, more.iloc[:, :50]], axis=1))
    assert found(pd.concat([df, more], axis=1)) == []
