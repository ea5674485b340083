"""Bounds, limits and warnings of columns of dates and durations are in their terms."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skvnce import GaussianImputer, TableImputer

pytestmark = pytest.mark.usefixtures("short_training")
FIRST, LAST = pd.Timestamp("2020-01-01"), pd.Timestamp("2020-06-30")


@pytest.fixture
def table(rng):
    days = rng.integers(0, 100, 60)
    frame = pd.DataFrame(
        {
            "x": days + 10 * rng.normal(size=60),
            "day": FIRST + pd.to_timedelta(days, "D"),
            "wait": pd.to_timedelta(days + 10, "h"),
        }
    )
    frame.loc[::4, ["day", "wait"]] = pd.NaT
    return frame


def imputer(make=GaussianImputer, **options):
    few = {"n_parameter_draws": 2, "random_state": 0}
    return make(**few, **options).set_output(transform="pandas")


SHORT = {GaussianImputer: {}, TableImputer: {"n_estimators": 2}}


@pytest.mark.quick
@pytest.mark.parametrize("make", SHORT)
@pytest.mark.parametrize(
    "convert",
    [pd.Timestamp, np.datetime64, dt.datetime.fromisoformat, dt.date.fromisoformat],
)
def test_bounds_of_dates_are_dates(make, convert, table):
    end = table["day"].max().date()
    table.loc[table["day"].isna(), "x"] = 400.0  # far beyond the bound
    model = imputer(
        make,
        min_value={"day": convert("2019-06-01"), "wait": pd.Timedelta("0h")},
        max_value={"day": convert(str(end)), "wait": np.timedelta64(200, "h")},
        **SHORT[make],
    ).fit(table)
    draws = model.sample(table, n_draws=3, random_state=0)
    assert all((draw["day"] <= str(end)).all() for draw in draws)
    assert all((draw["wait"] <= pd.Timedelta("200h")).all() for draw in draws)
    expected = [pd.Timestamp("2019-06-01"), pd.Timestamp(end)]
    found = pd.to_datetime(model.feature_ranges_[:, 1], unit="us")
    assert found.tolist() == expected


def test_bounds_with_a_time_zone(table):
    table["day"] = table["day"].dt.tz_localize("Europe/Berlin")
    end = pd.Timestamp("2021-01-01", tz="America/New_York")
    model = imputer(max_value={"day": end}, max_iter=20).fit(table)
    found = pd.to_datetime(model.feature_ranges_[1, 1], unit="us", utc=True)
    assert found == end
    with pytest.raises(TypeError, match="max_value.*the dates of the column the zone"):
        imputer(max_value={"day": LAST}).fit(table)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
def test_limits_of_cells_are_dates(library, table):
    lower = np.full(60, LAST.to_datetime64())
    X = library(table)
    model = GaussianImputer(random_state=0, max_iter=50).fit(X)
    library = "pandas" if isinstance(X, pd.DataFrame) else "polars"
    model.set_output(transform=library)
    missing = table["day"].isna().to_numpy()
    for limits in ({"day": lower}, {"day": LAST}, {"day": pd.Series(lower)}):
        if isinstance(limits["day"], pd.Series) and library == "polars":
            continue
        filled = model.transform(X, lower=limits)["day"].to_numpy()
        assert (filled[missing] >= LAST.to_datetime64()).all()
    assert (model.transform(X)["day"].to_numpy()[missing] < LAST.to_datetime64()).any()
    some = np.where(np.arange(60) % 8 == 0, lower, np.datetime64("NaT"))
    filled = model.transform(X, lower={"day": some})["day"].to_numpy()
    assert (filled[::8] >= LAST.to_datetime64()).all()


def test_errors_and_warnings_show_dates(table):
    message = "X has 2020-.* above its max_value 2019-12-31"
    with pytest.raises(ValueError, match=message):
        imputer(max_value={"day": pd.Timestamp("2019-12-31")}).fit(table)
    with pytest.raises(TypeError, match="max_value.*wait.* has Timestamp.* durations"):
        imputer(max_value={"wait": LAST}).fit(table)
    with pytest.raises(TypeError, match="min_value.*'x'.* has Timestamp.* numbers"):
        imputer(min_value={"x": LAST}).fit(table)
    with pytest.raises(ValueError, match="got 2021-01-01 .* and 2019-01-01 .*'day'"):
        bounds = {"min_value": {"day": pd.Timestamp("2021-01-01")}}
        imputer(max_value={"day": pd.Timestamp("2019-01-01")}, **bounds).fit(table)
    end = pd.Timestamp("2020-05-01")
    model = imputer(max_value={"day": end}, max_iter=50).fit(table)
    with pytest.warns(UserWarning, match="within .* and 2020-05-01 00:00:00"):
        model.sample(table, shift={"day": 50.0})
    words = "lower must have datetimes in column 'day', got"
    with pytest.raises(TypeError, match=words):
        model.transform(table, lower={"day": 3.0})
    with pytest.raises(ValueError, match="lower .* got 2020-04-01 .* and 2020-03-01"):
        model.transform(
            table,
            lower={"day": pd.Timestamp("2020-04-01")},
            upper={"day": pd.Timestamp("2020-03-01")},
        )
