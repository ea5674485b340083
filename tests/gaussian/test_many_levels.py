"""Warnings of columns of many levels."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skvnce import GaussianImputer
from skvnce._tables.findings import are_numbers_of_rows
from skvnce.exceptions import TableWarning

# towns have many levels, too
pytestmark = pytest.mark.filterwarnings("ignore:Nominal columns of many levels")

QUICK = {"n_parameter_draws": 0, "on_misfit": "ignore", "tol": 9.0}


def numbers_of_rows(n, rng):
    """Make columns that name rows, and columns of numbers that do not."""
    x = rng.normal(size=n)
    return {
        "run": np.arange(10_000.0, 10_000 + n),
        "mixed": rng.permutation(n) + 1.0,
        "two sites": rng.permutation(np.r_[1000:1700, 2000:2700])[:n] + 0.0,
        "phone": rng.integers(10**8, 10**9, n).astype(float),
        "income": np.round(np.exp(10 + x)),
        "tiny units": 1e18 * (10 + x),
        "amount": np.round(np.exp(20 + 3 * x)),
        "weight": np.round(70 + 12 * x),
        "x": x,
    }


# of 60 rows, all may be different by chance in a range of 1700
@pytest.mark.parametrize(("n", "sites"), [(60, []), (400, ["two sites"])])
def test_numbers_that_name_rows_are_reported(n, sites, rng):
    frame = pd.DataFrame(numbers_of_rows(n, rng))
    holes = frame.mask(rng.random(frame.shape) < 0.2)
    named = ["run", "mixed", *sites, "phone"]
    names = ", ".join(f"column {name!r}" for name in named)
    with pytest.warns(TableWarning, match=f"all different: {names}. If"):
        GaussianImputer(**QUICK).fit(holes)
    passed = dict.fromkeys(named, "passthrough")
    imputer = GaussianImputer(categorical_features=passed, **QUICK)
    imputer.set_output(transform="pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("error", TableWarning)
        found = imputer.fit_transform(holes)
        # complete numbers of rows are not imputed
        GaussianImputer(**QUICK).fit(holes.assign(**frame[named]))
    pd.testing.assert_frame_equal(found[named], holes[named])


def test_the_chance_that_numbers_are_all_different(rng_0):
    """At most 1e-3 in the worst case, the uniform distribution."""
    for n, r in ((20, 60), (60, 500), (200, 5000)):
        draws = rng_0.integers(r, size=(20_000, n))
        different = (np.diff(np.sort(draws, axis=1), axis=1) > 0).all(1).mean()
        bound = np.exp(-n * (n - 1) / 2 / r)
        assert different <= bound + 4 * np.sqrt(bound / 20_000)
        found = are_numbers_of_rows(rng_0.permutation(r)[:n].astype(float))
        assert found == (bound < 1e-3)
