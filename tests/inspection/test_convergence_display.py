"""Traces of fits, and split R-hat."""

import re
import warnings
from math import ceil

import numpy as np
import pytest
from errors import refused
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skvnce import GaussianImputer
from skvnce.datasets import load_nhanes
from skvnce.gaussian.mixed_fit import Settings
from skvnce.inspection import ConvergenceDisplay
from skvnce.metrics import split_r_hat
from skvnce.metrics._chains import slow_chain


@pytest.fixture(scope="module")
def fitted():
    columns = ["Age", "BMI", "SmokeNow", "Race1"]
    df = load_nhanes(as_frame=True, categories=True).data[columns][::20]
    return GaussianImputer(max_iter=40, on_misfit="ignore", random_state=0).fit(df), df


@pytest.mark.parametrize("chains", [[1.0, 2.0, 3.0, 4.0], [[1.0, 2.0, 3.0]], []])
def test_errors_of_r_hat(chains):
    refused(ValueError, "n_steps", split_r_hat, chains)
    refused(ValueError, "finite", split_r_hat, [[1.0, 2.0, np.nan, 3.0]])


def parameters_of(imputer):
    """Draw parameters of a chain that may be short."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return imputer.sample_parameters()


def test_the_trace_of_a_fit(fitted):
    imputer, _ = fitted
    sweeps, latents = imputer.n_iter_, len(imputer.latent_names_)
    assert imputer.trace_.shape == (sweeps, 2, latents)
    names = imputer.latent_names_.tolist()
    assert names[:3] == ["Age", "BMI", "SmokeNow"]
    assert all(name.startswith("Race1=") for name in names[3:])
    recent = imputer.trace_[imputer.n_burn_in_ :]
    means = parameters_of(imputer)[0].mean(0)  # of draws of the same posterior
    assert (recent[:, 0].min(0) < means).all() and (means < recent[:, 0].max(0)).all()
    np.testing.assert_array_equal(imputer.r_hat_, split_r_hat(recent[None]))
    assert (recent[:, 1] > 0).all() and (recent[:, 1] < 1).all()


def test_explained_variances_are_those_of_a_regression(fitted):
    """The mean over sweeps is near that of the mean covariance."""
    imputer, _ = fitted
    covariance = parameters_of(imputer)[1].mean(0)
    precision = np.linalg.inv(covariance)
    expected = 1 - 1 / (np.diag(precision) * np.diag(covariance))
    result = imputer.trace_[imputer.n_burn_in_ :, 1]
    low, high = result.min(0), result.max(0)
    assert (expected > low - 0.1).all() and (expected < high + 0.1).all()


def test_the_picture(fitted):
    imputer, _ = fitted
    with pytest.warns(ConvergenceWarning, match="fit with max_iter"):
        display = ConvergenceDisplay.from_estimator(imputer)
    assert len(display.axes_) == 6
    [line] = display.axes_[0].lines
    np.testing.assert_array_equal(line.get_ydata(), imputer.loss_curve_)
    part, place = np.unravel_index(np.nanargmax(imputer.r_hat_), imputer.r_hat_.shape)
    [line] = display.axes_[1].lines
    np.testing.assert_array_equal(line.get_ydata(), imputer.trace_[:, part, place])
    assert imputer.latent_names_[place] in display.axes_[1].get_title()
    display.figure_.canvas.draw()


def test_a_fit_of_numbers_has_a_loss_alone(fitted):
    imputer, df = fitted
    numbers = clone(imputer).fit(df)  # with categories first
    numbers.fit(df[["Age", "BMI"]])
    assert not hasattr(numbers, "trace_") and not hasattr(numbers, "latent_names_")
    assert len(ConvergenceDisplay.from_estimator(numbers).axes_) == 1


def test_errors():
    with pytest.raises(ValueError, match="loss_curve_"):
        ConvergenceDisplay.from_estimator(GaussianImputer())


def test_chains_that_have_converged_are_silent(seed):
    steps = np.random.default_rng(seed).normal(size=(1, 2000, 20))
    r_hat = split_r_hat(steps)[None]
    assert slow_chain(r_hat, list("abcdefghijklmnopqrst"), 3000, 1000) is None
    r_hat[0, 3] = 1.19
    message = slow_chain(r_hat, list("abcdefghijklmnopqrst"), 3000, 1000)
    enough = ceil(2000 * (1.19**2 - 1) / (1.05**2 - 1))
    assert f"1.19 for 'd', above 1.05. About {1.5 * enough:,.0f} sweeps" in message
    assert slow_chain(np.full((2, 3), np.nan), "abc", 10, 4) is None


def test_draws_of_the_parameters_name_the_sweeps_that_would_do(fitted):
    imputer, df = fitted
    with pytest.warns(ConvergenceWarning, match="after .* sweeps R-hat is") as caught:
        imputer.sample_parameters()
    message = str(caught[0].message)
    result = re.search(r"About ([\d,]+) sweeps.*max_iter=(\d+)", message)
    sweeps, rounds = result.groups()
    fit = "auto", "auto", imputer.n_parameter_draws, int(rounds)
    assert Settings.of(*fit).n_sweeps == int(sweeps.replace(",", ""))
    numbers = clone(imputer).fit(df[["Age", "BMI"]])
    assert len(numbers.sample_parameters()[0]) == imputer.n_parameter_draws
