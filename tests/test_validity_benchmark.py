"""The designs and the analyses of the validity study."""

import numpy as np
import pandas as pd
import pytest
from _validity_analyses import least_squares, logistic
from _validity_designs import DESIGNS, incomplete_table
from statistical import FAILURE, p_mean

REPETITIONS = 30


def tables(name, repetitions=REPETITIONS, rate=None, first=0):
    design = DESIGNS[name]
    rate = design.rates[0] if rate is None else rate
    seeds = range(first, first + repetitions)
    return [incomplete_table(name, design, design.sizes[0], rate, k) for k in seeds]


@pytest.mark.quick(12)
@pytest.mark.parametrize("name", DESIGNS)
def test_complete_data_recover_the_truth(name, seed):
    """Unlike a truth that is wrong by a standard error."""
    design = DESIGNS[name]
    full = [pair[0] for pair in tables(name, first=1000 * (seed + 1))]
    answers = [design.analyse(table) for table in full]
    estimates = np.array([answer[0] for answer in answers])
    errors = np.sqrt([answer[1] for answer in answers])
    truth = np.array(list(design.truth.values()))
    assert p_mean(estimates, truth) > FAILURE
    assert p_mean(estimates, truth + 2 * errors.mean(0)) < FAILURE
    assert design.interest in design.truth
    if design.rule is not None:
        assert all(design.rule(table).all() for table in full)


def test_missing_cells_depend_on_the_driver_alone():
    """On z, and given z not on x; unlike in the designs "selected", where y decides."""

    def slopes(name, terms):
        pairs = tables(name, 40)
        full = pd.concat([pair[0] for pair in pairs])
        gone = pd.concat([pair[1] for pair in pairs])["x"].isna().astype(float)
        frame = full.assign(gone=gone.to_numpy())
        beta, variances, _ = logistic(frame, "gone", terms)
        return beta / np.sqrt(variances)

    on_z, on_x, on_y = slopes("square", ["z", "x", "y"])
    assert on_z > 8
    assert abs(on_x) < 5
    assert abs(on_y) < 5
    assert slopes("square, selected", ["z", "x", "y"])[2] > 8


def test_analyses_agree_with_statsmodels(seed):
    import statsmodels.api as sm

    full, _ = tables("logistic", 1, first=seed)[0]
    terms = ["x1", "x2", "z"]
    X = sm.add_constant(full[terms])
    for analyse, family in (
        (least_squares, sm.families.Gaussian()),
        (logistic, sm.families.Binomial()),
    ):
        beta, variances, dof = analyse(full, "y", terms)
        other = sm.GLM(full["y"], X, family=family).fit()
        np.testing.assert_allclose(beta, other.params.iloc[1:], rtol=1e-5)
        np.testing.assert_allclose(np.sqrt(variances), other.bse.iloc[1:], rtol=1e-3)
        assert (dof == len(full) - 4).all()
