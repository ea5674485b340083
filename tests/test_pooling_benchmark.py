"""The study of pooled linear and logistic regressions."""

import numpy as np
import pooling_models as study
import pytest
from scipy.stats import binomtest

from skvnce.missingness import hide


@pytest.fixture
def rng(seed):
    return np.random.default_rng([seed, 7])


def test_missing_cells_are_as_many_as_stated(rng):
    for mechanism, stated in {"MCAR": 0.3, "MAR": 0.34}.items():
        full, part = study.simulate(rng, mechanism, n=4000)
        share = part[["x", "group"]].isna().mean()
        error = (stated * (1 - stated) / 4000) ** 0.5
        assert (abs(share - stated) < 5 * error).all()
        assert part[["y", "z"]].notna().all(axis=None)
        gone = part["x"].isna()
        difference = full["y"][gone].mean() - full["y"][~gone].mean()
        assert (difference > 0.3) == (mechanism == "MAR")


@pytest.mark.filterwarnings("ignore:.*have equal estimates")  # no cell is missing
def test_draws_of_a_complete_table_give_its_intervals(rng):
    full, _ = study.simulate(rng, "MCAR")
    np.testing.assert_allclose(
        study.pooled_intervals([full] * 3), study.intervals_alone(full), atol=0.02
    )


def test_mice_names_the_same_coefficients(rng):
    if not study.installed():
        pytest.skip("Rscript with the package mice is not installed")
    full, _ = study.simulate(rng, "MCAR")
    one_cell = np.zeros(full.shape, dtype=bool)
    one_cell[0, 0] = True
    (ends,), _ = study.mice([hide(full, one_cell)])
    low, high = study.intervals_alone(full)
    width = high - low
    assert (np.abs(ends - [low, high]) < 0.1 * width).all()


@pytest.mark.slow
@pytest.mark.parametrize("make", study.OURS)
def test_pooled_intervals_of_regressions_cover(rng, make):
    """In short; the benchmark has more repetitions, and mice beside it."""
    found = []
    for repeat in range(12):
        _, part = study.simulate(rng, "MAR")
        found.append(study.covers(study.ours(make, part, repeat)[0]))
    for count in np.sum(found, axis=0):  # of each coefficient
        assert binomtest(int(count), 12, 0.95).pvalue > 1e-5
