"""VNCEEstimator where the posterior of a missing cell has several modes."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from energies import Bell, Factor, RestrictedBoltzmann, Ring
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from skvnce import VNCEEstimator
from skvnce._core.training.adam import NotFinite
from skvnce.contrast.fit import MAX_BOUND_GAP, Gap, fit_with_enough_draws

RADIUS, SPREAD = 2.0, 0.2


def ring(seed, n=400, spread=SPREAD):
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(RADIUS, spread, n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def hide(X, seed, share=0.2):
    X = np.where(np.random.default_rng([seed, 1]).random(X.shape) < share, np.nan, X)
    return X[~np.isnan(X).all(1)]


def log_spread(X, seed, **options):
    fitted = VNCEEstimator(Ring, random_state=seed, on_misfit="ignore", **options).fit(
        X
    )
    return float(fitted.model_state_["model.log_spread"]), fitted


@pytest.mark.slow
def test_a_ring_is_as_narrow_as_without_missing_cells(seed):
    """Two modes of a cell; by one draw of one mode the spread is 2.5 times too large.

    The standard error of log spread is 1 / sqrt(2 n) = 0.035 from complete rows.
    """
    X = ring(seed)
    complete, _ = log_spread(X, seed)
    result, fitted = log_spread(hide(X, seed), seed)
    assert abs(result - complete) < 5 * (2 * len(X)) ** -0.5
    assert abs(fitted.bound_gap_) < MAX_BOUND_GAP
    with pytest.warns(ConvergenceWarning, match="1 draws .*Pass n_training_draws=4"):
        control, one = log_spread(hide(X, seed), seed, n_training_draws=1)
    assert control - complete > 0.5
    assert one.bound_gap_ > 2 * MAX_BOUND_GAP


def test_one_draw_is_enough_for_one_mode(seed, rng):
    """The posterior of a normal is a normal: no warning, and nothing is lost."""
    X = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 300)
    options = {"noise": "gaussian", "random_state": seed, "on_misfit": "ignore"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The objective still changed")
        fitted = VNCEEstimator(Bell, n_training_draws=1, **options).fit(hide(X, seed))
    assert abs(fitted.bound_gap_) < MAX_BOUND_GAP


class TwoStates(Factor):
    """The same, with a latent of two states, which are enumerated."""

    states = torch.tensor([[-1.0], [1.0]])


@pytest.mark.parametrize(
    ("model", "missing", "gap"),
    [
        (Bell, 0.0, 0.0),
        (TwoStates, 0.0, 0.0),
        (Factor, 0.0, pytest.approx(0.0, abs=0.1)),
        (Factor, 0.2, pytest.approx(0.0, abs=0.5)),
    ],
)
def test_the_gap_is_zero_where_nothing_is_drawn(model, missing, gap):
    X = np.random.default_rng(0).normal(size=(100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = VNCEEstimator(
            model, max_iter=2, random_state=0, on_misfit="ignore"
        ).fit(hide(X, 0, missing))
    assert fitted.bound_gap_ == gap
    assert (fitted.bound_gap_error_ > 0) == (fitted.bound_gap_ != 0)


class Product(nn.Module):
    """Rows z_1 z_2 (1, 1) plus noise: the toy of Rhodes and Gutmann (2019), figure 2.

    The posterior of the latents has two modes, that of `Factor` is normal.
    """

    n_components = 2

    def __init__(self, n_features):
        super().__init__()
        self.log_noise = nn.Parameter(torch.zeros(()))

    def log_density(self, x, z):
        residual = x - z.prod(1, keepdim=True)
        square = residual.square().sum(1) * (-self.log_noise).exp()
        return -(square + z.square().sum(1)) / 2


def noise_of_product(seed, n, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).prod(1)[:, None] + 0.3**0.5 * rng.normal(size=(n, 2))
    fitted = VNCEEstimator(Product, random_state=seed, on_misfit="ignore", **options)
    return float(np.exp(fitted.fit(X).model_state_["model.log_noise"])), fitted


@pytest.mark.parametrize(
    ("noise", "n", "max_iter"),
    [
        ("marginal", 300, 15),
        pytest.param("marginal", 1000, 200, marks=pytest.mark.slow),
        pytest.param("gaussian", 1000, 200, marks=pytest.mark.slow),
    ],
)
def test_a_posterior_with_one_mode_of_two_warns(noise, n, max_iter, seed):
    with pytest.warns(ConvergenceWarning, match="criterion='importance-weighted'"):
        result, fitted = noise_of_product(seed, n, noise=noise, max_iter=max_iter)
    assert result > 0.35
    assert fitted.bound_gap_ > MAX_BOUND_GAP + 2 * fitted.bound_gap_error_


def test_a_posterior_of_the_right_family_does_not_warn(seed, rng):
    X = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The objective still changed")
        fitted = VNCEEstimator(
            Factor, noise="gaussian", max_iter=30, random_state=seed
        ).fit(X)
    assert abs(fitted.bound_gap_) < MAX_BOUND_GAP / 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_criterion_of_the_paper_is_an_option_with_missing_cells(seed):
    """It is the lower bound of the two, and broadens a posterior with two modes."""
    X = hide(ring(seed, 100), seed)
    options = {"n_training_draws": 16, "max_iter": 6}
    average, by_average = log_spread(X, seed, **options)
    bound, by_bound = log_spread(X, seed, criterion="vnce", **options)
    assert by_average.criterion_ == "importance-weighted"
    assert by_bound.criterion_ == "vnce"
    assert bound > average
    assert by_bound.objective_ < by_average.objective_
    assert by_bound.bound_gap_ > by_average.bound_gap_


def test_draws_of_zeros_and_ones_are_not_averaged():
    X = np.random.default_rng(0).normal(size=(50, 2))
    estimator = VNCEEstimator(
        Factor, posterior="bernoulli", criterion="importance-weighted"
    )
    with pytest.raises(ValueError, match="criterion='importance-weighted' needs draws"):
        estimator.fit(X)


def test_no_warning_recommends_averages_of_zeros_and_ones(seed, rng):
    """The control of a normal posterior is above."""
    X = rng.normal(size=(80, 1)) * [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=(80, 3))
    estimator = VNCEEstimator(
        Factor, "bernoulli", max_iter=5, random_state=seed, on_misfit="ignore"
    )
    with pytest.warns(ConvergenceWarning, match="biased. Pass a closer posterior"):
        estimator.fit(hide(X, seed))


@pytest.mark.slow
def test_averages_of_draws_nearly_remove_the_bias_of_one_mode(seed):
    options = {"criterion": "importance-weighted", "n_training_draws": 16}
    with pytest.warns(ConvergenceWarning, match="n_training_draws=64"):
        result, _ = noise_of_product(seed, 1000, **options)
    assert abs(result - 0.3) < 0.15


@pytest.mark.slow
def test_a_narrow_ring_has_more_draws_or_a_warning(seed):
    X = ring(seed, spread=0.05)
    result, fitted = log_spread(hide(X, seed), seed)
    assert abs(result - log_spread(X, seed)[0]) < 5 * (2 * len(X)) ** -0.5
    assert fitted.bound_gap_ < MAX_BOUND_GAP
    with pytest.warns(ConvergenceWarning, match="n_training_draws=64"):
        log_spread(hide(X, seed), seed, n_training_draws=16)
    with pytest.warns(ConvergenceWarning, match="n_training_draws=256"):
        log_spread(hide(ring(seed, spread=0.01), seed), seed)


class Asked:
    """Settings and a fit that loses a given number of nats per draw."""

    def __init__(self, n_draws, more_draws, lost):
        self.n_draws, self.more_draws, self.lost = n_draws, more_draws, lost

    def _replace(self, n_draws):
        return Asked(n_draws, self.more_draws, self.lost)

    def bound_gap(self, n_draws):
        return Gap(self.lost / n_draws, 0.0)


@pytest.mark.parametrize(
    ("lost", "more_draws", "expected"),
    [(1.0, 64, 16), (3.0, 64, 64), (30.0, 64, 16), (3.0, None, 16)],
)
def test_draws_are_added_only_where_they_suffice(lost, more_draws, expected):
    fits = []
    asked = Asked(16, more_draws, lost)
    result, used = fit_with_enough_draws(lambda one: fits.append(one) or one, asked)
    assert result is used is fits[-1]
    assert used.n_draws == expected
    assert len(fits) == 1 + (expected == 64)


def test_a_second_fit_that_diverges_leaves_the_first():
    asked = Asked(16, 64, 3.0)

    def fit(one):
        if one.n_draws == 64:
            raise NotFinite("at the start")
        return one

    assert fit_with_enough_draws(fit, asked) == (asked, asked)


@pytest.mark.slow
def test_draws_of_binary_cells_of_a_model_that_sums_them_out(rng):
    """Two kinds of rows, so that their conditional is known; the control: shares."""
    ones = np.array([[0.1, 0.15, 0.9, 0.1, 0.5], [0.9, 0.9, 0.1, 0.85, 0.5]])
    X = (rng.random((600, 5)) < ones[rng.integers(0, 2, 600)]).astype(float)
    X[rng.random(X.shape) < 0.3] = np.nan
    model = VNCEEstimator(
        partial(RestrictedBoltzmann, n_components=2), max_iter=30, random_state=0
    )
    drawn = model.fit(X).sample(X, 100, random_state=0, as_array=True).mean(0)
    known = np.where(X[:, None] == 1, ones, 1 - ones)
    kinds = np.where(np.isnan(X)[:, None], 1.0, known).prod(2)
    exact = kinds / kinds.sum(1, keepdims=True) @ ones
    hidden = np.isnan(X)
    error = np.sqrt(((drawn - exact)[hidden] ** 2).mean())
    assert error < 0.12 < np.sqrt(((np.nanmean(X, 0) - exact)[hidden] ** 2).mean())
