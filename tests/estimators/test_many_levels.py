"""Warnings before Gibbs sampling of columns of many levels."""

import warnings
from time import process_time

import numpy as np
import pandas as pd
import pytest
import torch

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV, GaussianImputer
from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed.columns import NOMINAL, NUMERIC, Latents
from skvnce.estimators import _copula_graph
from skvnce.exceptions import DurationWarning, TableWarning
from skvnce.fits import duration as durations
from skvnce.fits import gaussian_mixed as mixed
from skvnce.tables.identifiers import are_numbers_of_rows

# towns have many levels, too
pytestmark = pytest.mark.filterwarnings("ignore:Nominal columns of many levels")

SHORT = {"max_iter": 4, "n_parameter_draws": 2, "random_state": 0}


def table(n_levels, n=600):
    """Each level has at least two cells, so that they are no identifiers."""
    rng = np.random.default_rng(0)
    levels = [f"l{k:03d}" for k in np.arange(n) % n_levels]
    X = pd.DataFrame({"size": rng.normal(size=n), "town": levels})
    return X.mask(rng.random(X.shape) < 0.1)


def test_a_long_fit_is_announced_before_it_starts(monkeypatch):
    monkeypatch.setattr(mixed, "seconds_of_sweep", lambda *values: 3.0)
    imputer = GaussianImputer(random_state=0)
    before = dict(vars(imputer))
    # 100 sweeps of the fit and 60 of the fit without held-out cells
    message = "about 8 minutes.*'town' has 110 levels.*Merge rare.*\"passthrough\""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DurationWarning)  # ends the fit
        with pytest.raises(DurationWarning, match=message):
            imputer.fit(table(110))
        with pytest.raises(DurationWarning, match="about 5 minutes"):
            GaussianImputer(on_misfit="ignore").fit(table(110))
    assert vars(imputer) == before


@pytest.mark.quick(1)
@pytest.mark.parametrize("cls", [CopulaGraphLearner, CopulaGraphLearnerCV])
def test_a_long_fit_of_a_graph_is_announced_before_it_starts(monkeypatch, cls):
    monkeypatch.setattr(_copula_graph, "seconds_of_sweep", lambda *values: 3.0)
    # 80 sweeps and 70 rounds, each with an M-step, which takes as long as a sweep
    message = "CopulaGraphLearner.fit to 594 rows.*about 11 minutes.*'town' has 110"
    with warnings.catch_warnings():
        warnings.simplefilter("error", DurationWarning)  # ends the fit
        with pytest.raises(DurationWarning, match=message):
            cls().fit(table(110))
    monkeypatch.setattr(_copula_graph, "seconds_of_sweep", lambda *values: 0.2)
    CopulaGraphLearner(max_iter=2, tol=9, on_misfit="ignore").fit(table(110))


@pytest.mark.slow
@pytest.mark.sampled
def test_the_time_of_a_graph_is_about_that_of_its_fit(monkeypatch):
    def warned(name, many, n, seconds):
        found.append(seconds)

    found = []
    monkeypatch.setattr(_copula_graph, "warn_of_many_levels", warned)
    monkeypatch.setattr(durations, "perf_counter", process_time)
    begin = process_time()
    CopulaGraphLearner(random_state=0).fit(table(110))
    assert 1 / 3 < found[0] / (process_time() - begin) < 3


def test_what_ends_soon_is_not_announced(monkeypatch):
    def measured(*values):
        raise AssertionError("few levels take no measurement")

    monkeypatch.setattr(mixed, "seconds_of_sweep", lambda *values: 0.3)
    X = table(110)
    GaussianImputer(**SHORT, on_misfit="ignore").fit(X)  # a warning is an error
    passed = {"town": "passthrough"}
    monkeypatch.setattr(mixed, "seconds_of_sweep", measured)
    GaussianImputer(**SHORT, categorical_features=passed).fit(X)
    GaussianImputer(**SHORT, on_misfit="ignore").fit(table(90))


def test_the_time_of_a_sweep_is_that_of_parameters_and_of_rows(monkeypatch):
    """Sweeps of one row and of 1000 rows take 2 and 5 seconds by this clock."""
    clock = iter([0.0, 2.0, 10.0, 15.0])
    monkeypatch.setattr(durations, "perf_counter", lambda: next(clock))
    rng = np.random.default_rng(0)
    cells = np.column_stack([rng.normal(size=2000), np.arange(2000) % 5.0])
    data, weights = Incomplete.from_array(cells), torch.ones(2000).double()
    latents = Latents.of(data, weights, [NUMERIC, NOMINAL], [0, 5])
    state = torch.get_rng_state()
    found = durations.seconds_of_sweep(latents, data, weights, 4000)
    assert found == pytest.approx(2.0 + 4 * 3.0)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_measurement_leaves_the_fit_as_it_was(monkeypatch):
    X = table(110)
    found = GaussianImputer(**SHORT, on_misfit="ignore").fit(X)
    monkeypatch.setattr(durations, "MANY", 1000)
    plain = GaussianImputer(**SHORT, on_misfit="ignore").fit(X)
    np.testing.assert_array_equal(found.covariance_, plain.covariance_)


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
def test_numbers_that_name_rows_are_reported(n, sites, seed):
    rng = np.random.default_rng(seed)
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


def test_the_chance_that_numbers_are_all_different():
    """At most 1e-3 in the worst case, the uniform distribution."""
    rng = np.random.default_rng(0)
    for n, r in ((20, 60), (60, 500), (200, 5000)):
        draws = rng.integers(r, size=(20_000, n))
        different = (np.diff(np.sort(draws, axis=1), axis=1) > 0).all(1).mean()
        bound = np.exp(-n * (n - 1) / 2 / r)
        assert different <= bound + 4 * np.sqrt(bound / 20_000)
        found = are_numbers_of_rows(rng.permutation(r)[:n].astype(float))
        assert found == (bound < 1e-3)
