"""Completed tables in parts: one draw of the parameters, or one member, for each."""

import numpy as np
import pandas as pd
import pytest
from errors import refused
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import skvnce
from _imputer.parts.test_large import parts, table

pytestmark = pytest.mark.usefixtures("short_training")
QUIET = {"on_misfit": "ignore"}
MODEL = skvnce.GaussianImputer(n_parameter_draws=3, **QUIET)
COLUMNS = skvnce.ColumnImputer(MODEL, regressor=LinearRegression(), random_state=0)
CONSTRAINED = skvnce.ConstrainedImputer(MODEL, sums={2: [3, 4]}, random_state=0)
VAE = skvnce.VariationalAutoencoder(1, max_iter=1, **QUIET)
LAIR = skvnce.LAIRImputer(VAE, n_estimators=3, n_steps=1, random_state=0, **QUIET)


def summed(n):
    """Make a table whose third column is the sum of the next two."""
    X = table(n)
    X[:, 2] = X[:, 3] + X[:, 4]
    return X


@pytest.mark.filterwarnings("ignore:.* of the draws of column:UserWarning")
@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "estimator", [LAIR, COLUMNS, CONSTRAINED], ids=["LAIR", "columns", "consistent"]
)
def test_a_completed_table_has_one_draw_of_the_parameters(estimator):
    """Each copy draws with one member or draw; in turns, each is used as often."""
    X = summed(120)
    fitted = clone(estimator).fit(X)
    copies = fitted._with_one_draw()
    assert len(copies) == 3
    for copy in copies:
        inner = getattr(copy, "model_", None)
        assert len(inner._fitted.model.draws if inner else copy.estimators_) == 1
    used = [id(copy) for copy in fitted._in_turns(6, 0)]
    assert len({*used[:3]}) == 3 and used[:3] == used[3:]
    hidden = np.isnan(X) & ~np.isnan(X).all(1, keepdims=True)
    draws = [np.concatenate(list(draw)) for draw in fitted.sample(parts(X), 2, 0)]
    again, other = fitted.sample(parts(X), 2, 0)[1], fitted.sample(parts(X), 2, 1)[1]
    np.testing.assert_array_equal(np.concatenate(list(again)), draws[1])
    for draw in (draws[0], np.concatenate(list(other))):
        assert np.mean(draw[hidden] == draws[1][hidden]) < 0.7
    if estimator is CONSTRAINED:
        np.testing.assert_allclose(draws[0][:, 2], draws[0][:, 3:].sum(1), atol=1e-9)


def test_other_seeds_draw_other_cells():
    """Also with one member, of which all tables are drawn."""
    X = table(120)
    fitted = clone(LAIR).set_params(n_estimators=1).fit(X)
    first, other = (
        np.concatenate(list(fitted.sample(parts(X), 1, seed)[0])) for seed in (0, 1)
    )
    assert np.mean(first[np.isnan(X)] == other[np.isnan(X)]) < 0.7


@pytest.mark.parametrize("estimator", [skvnce.GaussianImputer(), COLUMNS])
def test_parameters_are_checked_as_in_memory(estimator):
    X = table(120)
    fitted = clone(estimator).fit(X)
    for wrong in ({"n_draws": 0}, {"n_draws": 1.5}, {"n_draws": None}, {"as_array": 0}):
        with pytest.raises((TypeError, ValueError)) as in_memory:
            fitted.sample(X, **wrong)
        with pytest.raises(type(in_memory.value)) as caught:
            fitted.sample(parts(X), **wrong)
        assert str(caught.value) == str(in_memory.value)
    refused(TypeError, "unknown", fitted.sample, parts(X), unknown=None)
    for options in ({"as_array": True}, {"shift": {0: 1.0}}, {"where": ~np.isnan(X)}):
        words = "would not share a draw"
        refused(ValueError, words, fitted.sample, parts(X), **options)


@pytest.mark.quick(1)
@pytest.mark.parametrize("container", ["pandas", "polars", None])
def test_parts_without_rows_are_of_the_same_type(container):
    if container:
        pytest.importorskip(container)
    X = table(120)
    frame = pd.DataFrame(X, columns=list("abcde"))
    source = frame if container == "pandas" else X
    fitted = clone(COLUMNS).fit(source).set_output(transform=container)
    chunks = parts(source, [0, 0, 70, 120])
    for filled in (fitted.transform(chunks), *fitted.sample(chunks, 1, 0)):
        empty, full, _ = filled
        assert type(empty) is type(full) and len(empty) == 0
        assert empty.shape[1:] == full.shape[1:]
        if container == "pandas":
            assert len(pd.concat(list(filled))) == 120 and list(empty) == list("abcde")


def test_equations_and_categories_of_dask(rng_0):
    """Minima of columns, by which data types are found, contradict the equation."""
    dd = pytest.importorskip("dask.dataframe")
    a, b = rng_0.gamma(30, size=(2, 120))
    cells = pd.DataFrame({"a": a, "b": b, "total": a + b})
    frame = cells.mask(rng_0.random(cells.shape) < 0.2)
    frame = frame.assign(c=pd.Categorical(rng_0.choice(["x", "y"], 120)), n=range(120))
    imputer = skvnce.ConstrainedImputer(sums={"total": ["a", "b"]}, random_state=0).fit(
        frame
    )
    lazy = dd.from_pandas(frame, npartitions=3)
    for filled in (imputer.transform(lazy), imputer.sample(lazy, 1, 0)[0]):
        computed = filled.compute()
        assert (computed.dtypes.astype(str) == filled.dtypes.astype(str)).all()
        assert computed["c"].dtype == "category" and not computed.isna().any(axis=None)
        total = computed["a"] + computed["b"]
        np.testing.assert_allclose(computed["total"], total, rtol=1e-6)


def test_a_series_or_an_array_of_dask_is_no_table():
    dd, da = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.array")
    imputer = skvnce.GaussianImputer().fit(table(120))
    series = dd.from_pandas(pd.Series(np.arange(9.0)), npartitions=2)
    for X in (series, da.from_array(table(120))):
        for method in (imputer.fit, imputer.transform, imputer.sample):
            refused(TypeError, "data frame of dask.*from_dask_array", method, X)
