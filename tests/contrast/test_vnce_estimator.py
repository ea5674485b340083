"""VNCEEstimator: known Gaussians and machines, its doors, and what it refuses."""

import pickle
import warnings
from copy import copy
from functools import partial

import numpy as np
import pytest
import torch
from energies import Bell, Factor, RestrictedBoltzmann
from errors import refused
from oracles import GATE
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from torch import distributions, nn

from skvnce import GaussianImputer, VNCEEstimator
from skvnce._core.incomplete import Units
from skvnce._core.training.adam import NotFinite
from skvnce.contrast import fit
from skvnce.contrast.estimator import ScaledDensity
from skvnce.contrast.models import FreeGaussian, standard_normal
from skvnce.exceptions import DivergenceError
from skvnce.options import LBFGS, Adam

COVARIANCE = np.array([[2.0, 1.2, 0.0], [1.2, 1.0, -0.3], [0.0, -0.3, 0.5]])
MEAN = np.array([10.0, -2.0, 0.5])
PRECISE, ROUGH = LBFGS(tol=1e-6), LBFGS(tol=10.0)


def gaussian_table(seed, n=600, missing=0.3):
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(MEAN, COVARIANCE, n)
    return np.where(rng.random(X.shape) < missing, np.nan, X)


def factor_table(seed, n=800, missing=0.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    X = 1 + z * [1.0, -1.5, 0.5, 2.0] + 0.7 * rng.normal(size=(n, 4))
    return np.where(rng.random(X.shape) < missing, np.nan, X), z[:, 0]


def machine_table(seed, n=1200, d=5):
    """Draw from one Boltzmann machine exactly, by enumeration of the visible states."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng([seed, 1])
    machine = RestrictedBoltzmann(d, 2).double()
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(torch.tensor(fixed.normal(size=parameter.shape)))
        states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * d).double()
        log_p = machine.log_marginal(states, states >= 0) - machine.log_normaliser()
    chosen = rng.choice(len(states), n, p=log_p.exp().numpy())
    return states[chosen].numpy(), machine


def module(estimator):
    return estimator.to_torch().model


def bell_moments(bell):
    link = bell.link.numpy()
    precision = np.diag(bell.log_diagonal.exp().numpy()) + np.outer(link, link)
    return bell.centre.numpy(), np.linalg.inv(precision)


def log_density(X, mean, covariance):
    """Compute log p(x_obs) of each row of a normal distribution."""
    result = np.zeros(len(X))
    for i, row in enumerate(X):
        seen = ~np.isnan(row)
        if seen.any():
            part = mean[seen], covariance[np.ix_(seen, seen)]
            result[i] = multivariate_normal.logpdf(row[seen], *part)
    return result


# the default Gaussian ----------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_default_is_near_em_and_knows_its_normaliser(missing, seed):
    X = gaussian_table(seed, missing=missing)
    fitted = VNCEEstimator(ridge=0.0, random_state=seed).fit(X)
    em = GaussianImputer(marginals="normal").fit(X)
    # nu = 10: the variance beyond that of EM is about a tenth of it
    rows = len(X) * (1 - missing)
    spread = np.sqrt(np.diag(COVARIANCE))
    error = np.abs(fitted.mean_ - em.mean_) / (spread / np.sqrt(rows))
    assert error.max() < GATE * np.sqrt(0.3)
    scale = np.outer(spread, spread) * np.sqrt(2 / rows)
    error = np.abs(fitted.covariance_ - em.covariance_) / scale
    assert error.max() < GATE * np.sqrt(0.3)
    exact = float(module(fitted).log_normaliser())
    assert fitted.log_scale_ == pytest.approx(exact, abs=GATE * 0.02)
    own = log_density(X, fitted.mean_, fitted.covariance_) + exact - fitted.log_scale_
    np.testing.assert_allclose(fitted.score_samples(X), own, atol=1e-8)
    expected = em.score_samples(X).mean()
    assert fitted.score_samples(X).mean() == pytest.approx(expected, abs=0.1)
    assert fitted.accuracy_ == pytest.approx(0.5, abs=0.05)
    assert np.diff(fitted.loss_curve_).max() < 1e-9


def test_transform_and_sample_of_the_default_are_exact(seed):
    X = gaussian_table(seed)
    fitted = VNCEEstimator(random_state=seed).fit(X)
    row = np.array([[11.0, np.nan, np.nan]])
    S, mean = fitted.covariance_, fitted.mean_
    expected = mean[1:] + S[1:, 0] / S[0, 0] * (11.0 - mean[0])
    np.testing.assert_allclose(fitted.transform(row)[0, 1:], expected, rtol=1e-10)
    draws = fitted.sample(row, 4000, random_state=seed, as_array=True)[:, 0, 1:]
    covariance = S[1:, 1:] - np.outer(S[1:, 0], S[0, 1:]) / S[0, 0]
    z = (draws.mean(0) - expected) / np.sqrt(np.diag(covariance) / len(draws))
    assert np.abs(z).max() < GATE
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.1)


@pytest.mark.filterwarnings("ignore:Constant where observed")
@pytest.mark.parametrize(
    "params", [{}, {"model": Factor, "n_components": 1}, {"model": Bell}]
)
def test_a_table_of_constants_has_no_model(params):
    X = np.tile([2.0, -1.0], (8, 1))
    fitted = VNCEEstimator(random_state=0, **params).fit(X)
    assert fitted.constants_ == {0: 2.0, 1: -1.0} and fitted.n_components_ == 0
    np.testing.assert_array_equal(fitted.transform(X * np.nan), X)
    # no row differs from noise: h = 1 / 11 in eq. (1)
    expected = np.log(1 / 11) + 10 * np.log(10 / 11)
    np.testing.assert_allclose(fitted.objective(X), expected)
    refused(ValueError, "there is no model", fitted.to_torch)


# models of one's own ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "marginal"])
def test_an_energy_learns_from_incomplete_rows(noise, seed, rng):
    covariance = np.linalg.inv(np.diag([1.0, 2.0]) + np.outer([0.8, -0.8], [0.8, -0.8]))
    X = rng.multivariate_normal([0.5, -0.5], covariance, 800)
    X[rng.random(X.shape) < 0.2] = np.nan
    fitted = VNCEEstimator(Bell, noise=noise, random_state=seed).fit(X)
    mean, S = bell_moments(module(fitted))
    np.testing.assert_allclose(mean, [0.5, -0.5], atol=0.15)
    np.testing.assert_allclose(S, covariance, atol=0.2)
    log_z = np.log(2 * np.pi) + np.linalg.slogdet(S)[1] / 2
    assert fitted.log_scale_ == pytest.approx(log_z, abs=0.15)
    # the posterior mean of a cell is that of the normal
    row = np.array([[1.0, np.nan]])
    expected = mean[1] + S[1, 0] / S[0, 0] * (1.0 - mean[0])
    assert fitted.transform(row)[0, 1] == pytest.approx(expected, abs=0.2)
    draws = fitted.sample(np.repeat(row, 2000, 0), random_state=seed)[0][:, 1]
    assert draws.mean() == pytest.approx(expected, abs=0.1)
    assert draws.var() == pytest.approx(S[1, 1] - S[0, 1] ** 2 / S[0, 0], rel=0.2)


@pytest.mark.parametrize(
    ("missing", "atol"), [(0.0, 0.25), pytest.param(0.2, 0.6, marks=pytest.mark.slow)]
)
def test_a_latent_variable(missing, atol, seed):
    """With missing cells the largest error has a root mean square of .2 in 8 seeds."""
    X, z = factor_table(seed, n=400, missing=missing)
    fitted = VNCEEstimator(
        Factor, noise="gaussian", solver=LBFGS(tol=1e-3), random_state=seed
    ).fit(X)
    complete, _ = factor_table(seed, n=400)
    exact = FactorAnalysis(1).fit(complete)
    sign = np.sign(exact.components_[0, 0] * module(fitted).loadings[0].item())
    expected = exact.components_[0]
    np.testing.assert_allclose(sign * module(fitted).loadings, expected, atol=atol)
    latents = fitted.transform(X)
    assert latents.shape == (len(X), fitted.n_components_) == (len(X), 1)
    assert abs(np.corrcoef(latents[:, 0], z)[0, 1]) > 0.9
    assert list(fitted.get_feature_names_out()) == ["vnceestimator0"]
    # by the posterior of factor analysis at the fitted parameters
    w, psi = module(fitted).loadings.numpy(), module(fitted).log_noise.exp().numpy()
    centre = module(fitted).centre.numpy()
    rows = complete[:20]
    mean = ((rows - centre) * w / psi).sum(1) / (1 + (w**2 / psi).sum())
    np.testing.assert_allclose(fitted.transform(rows)[:, 0], mean, atol=0.15)
    draws = fitted.sample_latents(rows, 500, random_state=0, as_array=True)
    assert draws.shape == (500, 20, 1)
    found = draws[..., 0].std(0).mean()
    assert found == pytest.approx((1 + (w**2 / psi).sum()) ** -0.5, rel=0.1)
    if not missing:  # nor has the posterior of cells been trained
        return
    S = np.outer(w, w) + np.diag(psi)
    row = np.append((centre + 1.5 * np.sign(w) * np.sqrt(np.diag(S)))[:-1], np.nan)
    gain = np.linalg.solve(S[:-1, :-1], S[:-1, -1])
    moved = gain @ (row - centre)[:-1]
    drawn = fitted.sample(row[None], 2000, random_state=seed, as_array=True)[:, 0, -1]
    assert abs(moved) > 1
    assert drawn.mean() == pytest.approx(centre[-1] + moved, abs=0.3)
    assert drawn.std() == pytest.approx(np.sqrt(S[-1, -1] - gain @ S[:-1, -1]), rel=0.2)


@pytest.mark.slow
def test_adam_learns_a_latent_variable(seed):
    X, z = factor_table(seed)
    options = {"solver": Adam(learning_rate_init=0.05), "max_iter": 100}
    result = VNCEEstimator(Factor, noise="gaussian", random_state=seed, **options)
    result.fit(X)
    assert abs(np.corrcoef(result.transform(X)[:, 0], z)[0, 1]) > 0.9
    assert result.loss_curve_[-1] < result.loss_curve_[0] - 0.3
    assert result.n_iter_ == len(result.loss_curve_) == 100


class Enumerated(nn.Module):
    """A Boltzmann machine that shows its states only."""

    def __init__(self, n_features):
        super().__init__()
        self.inside = RestrictedBoltzmann(n_features, 2)

    @property
    def states(self):
        return self.inside.states

    def log_density(self, x, z):
        return self.inside.log_density(x, z)


KINDS = {
    "integrated": (partial(RestrictedBoltzmann, n_components=2), {}),
    "enumerated": (Enumerated, {"max_iter": 200}),
    "drawn": (
        partial(RestrictedBoltzmann, n_components=2),
        {
            "posterior": "bernoulli",
            "solver": Adam(learning_rate_init=0.05),
            "max_iter": 150,
        },
    ),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_boltzmann_machine(kind, seed):
    X, truth = machine_table(seed)
    model, options = KINDS[kind]
    result = VNCEEstimator(model, random_state=seed, **options)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        result.fit(X)
    machine = getattr(module(result), "inside", module(result))
    rows = torch.tensor(X)

    def log_likelihood(machine):
        with torch.no_grad():
            log_p = machine.log_marginal(rows, rows >= 0) - machine.log_normaliser()
        return float(log_p.mean())

    assert log_likelihood(machine) > log_likelihood(truth) - 0.05
    chance = RestrictedBoltzmann(X.shape[1], 2).double().requires_grad_(False)
    assert log_likelihood(truth) > log_likelihood(chance) + 0.1
    assert result.log_scale_ == pytest.approx(float(machine.log_normaliser()), abs=0.15)
    expected = machine.latent_probability(rows[:50])
    np.testing.assert_allclose(result.transform(X[:50]), expected, atol=0.15)


@pytest.mark.slow
def test_a_boltzmann_machine_with_missing_cells(seed):
    X, truth = machine_table(seed, n=800)
    hidden = np.random.default_rng(seed).random(X.shape) < 0.2
    incomplete = np.where(hidden, np.nan, X)
    model = partial(RestrictedBoltzmann, n_components=2)
    fitted = VNCEEstimator(model, random_state=seed, max_iter=40).fit(incomplete)
    rows = torch.tensor(X)
    log_p = module(fitted).log_marginal(rows, rows >= 0)
    log_p = float((log_p - module(fitted).log_normaliser()).mean())
    exact = truth.log_marginal(rows, rows >= 0) - truth.log_normaliser()
    assert log_p > float(exact.detach().mean()) - 0.1
    assert fitted.score_samples(incomplete).shape == (800,)
    assert np.isfinite(fitted.transform(incomplete)).all()


def test_a_model_with_its_own_scale():
    class Own(Bell):
        def __init__(self, n_features):
            super().__init__(n_features)
            self.log_scale = nn.Parameter(torch.tensor(1.0))

        def log_density(self, x):
            return super().log_density(x) - self.log_scale

    X = gaussian_table(0, missing=0.0) - MEAN
    own = VNCEEstimator(Own, noise="gaussian", random_state=0, solver=PRECISE).fit(X)
    other = VNCEEstimator(Bell, noise="gaussian", random_state=0, solver=PRECISE).fit(X)
    assert own.log_scale_ == 0
    assert float(module(own).log_scale) == pytest.approx(other.log_scale_, abs=1e-3)
    assert own.objective(X) == pytest.approx(other.objective(X), abs=1e-3)


# noise --------------------------------------------------------------------------------


def joint_noise():
    """A distribution of rows that is neither normal nor independent."""
    base = distributions.MultivariateNormal(
        torch.tensor(MEAN), torch.tensor(1.5 * COVARIANCE)
    )
    twist = distributions.transforms.AffineTransform(0.0, torch.ones(3).double())
    return distributions.TransformedDistribution(
        base, distributions.transforms.IndependentTransform(twist, 1)
    )


def given_noises():
    mean, spread = torch.tensor(MEAN), torch.tensor(np.diag(COVARIANCE)).sqrt()
    columns = distributions.Normal(mean, 1.2 * spread)
    yield columns
    yield distributions.Independent(columns, 1)
    yield distributions.MultivariateNormal(mean, torch.tensor(1.5 * COVARIANCE))


@pytest.mark.quick
@pytest.mark.parametrize("noise", list(given_noises()), ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_noise_that_is_passed_in(noise, missing):
    X = gaussian_table(1, missing=missing, n=1000)
    fitted = clone(VNCEEstimator(noise=noise, ridge=0.0, random_state=0)).fit(X)
    np.testing.assert_allclose(fitted.mean_, MEAN, atol=0.3)
    np.testing.assert_allclose(fitted.covariance_, COVARIANCE, atol=0.5)
    assert fitted.noise_ == {}


def test_joint_noise_needs_complete_rows():
    X = gaussian_table(1, missing=0.0)
    fitted = VNCEEstimator(noise=joint_noise(), random_state=0).fit(X)
    np.testing.assert_allclose(fitted.mean_, MEAN, atol=0.3)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="noise=.* has no density of a part of a row"):
        VNCEEstimator(noise=joint_noise()).fit(X)


class OwnNoise:
    """Noise that is no distribution of torch."""

    def sample(self, shape):
        """Draw rows."""
        return joint_noise().sample(shape)

    def log_prob(self, x):
        """Compute the density of rows."""
        return joint_noise().log_prob(x)


def test_noise_needs_only_draws_and_a_density():
    X = gaussian_table(1, missing=0.0, n=200)
    own, other = (
        VNCEEstimator(noise=noise, random_state=0).fit(X).mean_
        for noise in (OwnNoise(), joint_noise())
    )
    np.testing.assert_allclose(own, other, atol=0.2)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (distributions.Normal, "noise must be a distribution, got the class Normal"),
        (torch.nn.Linear(2, 2), r"noise must return .* Linear\(\) fails"),
    ],
)
def test_what_is_no_noise_is_named(noise, message):
    refused(TypeError, message, VNCEEstimator(noise=noise).fit, gaussian_table(1, n=50))


def test_noise_ratio_may_be_an_integer_of_numpy():
    X = gaussian_table(1, n=100)
    result, same = (
        VNCEEstimator(noise_ratio=ratio, random_state=0).fit(X).mean_
        for ratio in (np.int64(3), 3)
    )
    np.testing.assert_array_equal(result, same)


def test_far_noise_shows_in_the_accuracy():
    X = gaussian_table(0)
    near = VNCEEstimator(random_state=0).fit(X)
    spread = torch.tensor(np.diag(COVARIANCE)).sqrt()
    noise = distributions.Normal(torch.tensor(MEAN), 30 * spread)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        far = VNCEEstimator(noise=noise, random_state=0).fit(X)
    assert far.accuracy_ > 0.95 > near.accuracy_ + 0.3


# scores -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_score_does_not_depend_on_how_it_was_fitted():
    X = gaussian_table(3, n=2000)
    scores = [
        VNCEEstimator(noise=noise, noise_ratio=nu, random_state=0).fit(X).objective(X)
        for noise, nu in (("gaussian", 10), ("marginal", 10), ("gaussian", 3))
    ]
    assert np.ptp(scores) < 0.02


@pytest.mark.quick(1)
@pytest.mark.filterwarnings(
    "ignore:The 16 draws", "ignore::sklearn.exceptions.ConvergenceWarning"
)  # right after such a rough fit
@pytest.mark.parametrize("model", [Bell, Factor])
def test_rows_alone_decide(model):
    X = gaussian_table(0, n=40) - MEAN
    fitted = VNCEEstimator(model, random_state=0, max_iter=2, solver=ROUGH).fit(X)
    order = np.random.default_rng(0).permutation(len(X))
    for method in (fitted.transform, fitted.score_samples):
        whole = method(X)
        np.testing.assert_allclose(method(X[order]), whole[order], atol=1e-9)
        pieces = np.concatenate([method(part) for part in np.split(X, [1, 2, 17])])
        np.testing.assert_allclose(pieces, whole, atol=1e-9)
    assert fitted.objective(X) == pytest.approx(fitted.objective(X[order]), abs=1e-9)
    copy = pickle.loads(pickle.dumps(fitted))
    assert (copy.transform(X) == fitted.transform(X)).all()


# the fit ------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize("model", [None, Bell, Enumerated])
def test_parts_of_the_rows_give_the_same_fit(model, monkeypatch):
    X = gaussian_table(2, n=200, missing=0.2 if model is None else 0.0) - MEAN
    if model is Enumerated:
        X = (X > 0).astype(float)
    options = {"random_state": 0, "max_iter": 20, "solver": LBFGS(tol=0.05)}
    whole = VNCEEstimator(model, **options).fit(X)
    monkeypatch.setattr(fit, "MAX_CHUNK_SIZE", 5000)
    parts = VNCEEstimator(model, **options).fit(X)
    assert parts.objective_ == pytest.approx(whole.objective_, abs=1e-6)
    assert parts.log_scale_ == pytest.approx(whole.log_scale_, abs=1e-3)


def test_it_warns_when_it_has_not_settled():
    (X, _), solver = factor_table(0, n=100), LBFGS(tol=1e-12)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 \(or .*tol=1e-12\)"):
        VNCEEstimator(Factor, max_iter=2, solver=solver, random_state=0).fit(X)


# what it refuses ----------------------------------------------------------------------


def test_an_objective_that_cannot_be_followed_diverges(monkeypatch):
    def fail(*args):
        raise NotFinite("the loss is nan")

    monkeypatch.setattr(fit, "fit_from_one_start", fail)
    with pytest.raises(DivergenceError, match="bound its parameters.*the loss is nan"):
        VNCEEstimator(random_state=0).fit(gaussian_table(0, n=50))


class Wide(Bell):
    def log_density(self, x):
        return -x.square()


class Nan(Bell):
    def log_density(self, x):
        return super().log_density(x) + (x.sum(1) * 0 - 1).log()


class Mismatched(Bell):
    def log_density(self, x):
        return x @ torch.ones(7).double()


class Unfilled(Bell):
    def conditional_mean(self, x, observed):
        return x[:1]


class Three(Bell):
    def log_density(self, x, y, z):
        return x


class Unsized(Factor):
    n_components = None


class Empty(Factor):
    n_components = 0


class Listed(Factor):
    states = np.zeros((2, 1))


class Detached(Bell):
    def log_density(self, x):
        return super().log_density(x).detach()


class Exploding(Bell):
    def log_density(self, x):
        return super().log_density(x) + 1e300 * self.link.sum().exp() * 1e300


class Marginal(Bell):
    def log_marginal(self, x, observed):
        return x.sum(-1, keepdim=True)


class Flat(Factor):
    states = torch.zeros(3)


class Silent(nn.Module):
    def forward(self, x, observed):
        return x


class Narrow(nn.Module):
    def forward(self, x, observed):
        return distributions.Normal(x[:, 0], 1.0)


class Gamma(nn.Module):
    def forward(self, x, observed):
        return distributions.Gamma(x[:, :1].exp(), 1.0)


BAD = {
    ValueError: [
        (
            {"noise_ratio": 0},
            r"'noise_ratio' parameter .* must be an int in the range \[1, inf\)",
        ),
        ({"n_training_draws": 0}, "n_training_draws"),
        ({"n_init": 0}, "n_init"),
        ({"solver": LBFGS(tol=-1.0)}, "'solver.tol'"),
        ({"ridge": -1.0}, "ridge"),
        ({"solver": Adam(learning_rate_init=0.0)}, "'solver.learning_rate_init'"),
        ({"solver": Adam(batch_size=0)}, "'solver.batch_size'"),
        ({"solver": Adam(weight_decay=0.1)}, "solver.weight_decay=0.1 is not"),
        ({"solver": Adam(n_iter_no_change=3)}, "solver.n_iter_no_change=3"),
        ({"solver": Adam(validation_fraction=0.1)}, "solver.validation_fraction=0.1"),
        ({"noise": distributions.Normal(torch.zeros(5), 1.0)}, "noise draws"),
        ({"noise": distributions.Exponential(torch.ones(3))}, "outside the support"),
        (
            {
                "noise": distributions.Uniform(
                    *(torch.ones(3) * s for s in (-1, 1)), False
                )
            },
            "noise gives row 0 of the training data",
        ),
        ({"model": Wide}, "model: Wide.log_density must return one number"),
        ({"model": Nan}, "model: Nan.log_density is NaN at row"),
        ({"model": Mismatched}, "model: Mismatched.log_density failed on"),
        ({"model": Unfilled}, "model: Unfilled.conditional_mean must return filled"),
        ({"model": Marginal}, "model: Marginal.log_marginal must return"),
        ({"model": Flat}, "model: states must be a tensor of shape"),
        ({"model": Listed}, "states must be a tensor .* Listed has ndarray"),
        ({"model": Unsized}, "n_components is needed"),
        ({"model": Empty}, "n_components is needed"),
        ({"model": Detached}, "Detached.log_density has no gradient"),
        ({"model": Exploding}, "Training diverged. The log_density of model"),
        (
            {"model": Factor, "posterior": lambda d, k: Narrow()},
            "posterior: for 3 rows the distribution must have batch_shape",
        ),
        (
            {"model": Factor, "posterior": "bernoulli", "solver": "lbfgs"},
            "solver='lbfgs' needs draws that are smooth",
        ),
        (
            {"model": Factor, "posterior": "bernoulli", "n_training_draws": 1},
            "needs at least 2 training draws of each row, got 1",
        ),
    ],
    TypeError: [
        ({"noise": 3.0}, "'noise' .* implementing 'sample' and 'log_prob'"),
        ({"model": 3}, "'model' parameter .* must be None or a callable"),
        ({"model": Bell(3)}, "not a module"),
        ({"model": lambda d: None}, "model must map the number of features"),
        ({"model": Three}, "takes 3 arguments"),
        ({"model": Factor, "posterior": lambda d, k: 3}, "posterior must map"),
        (
            {"model": Factor, "posterior": lambda d, k: Silent()},
            "that returns a torch.distributions.Distribution; for .* returned Tensor",
        ),
        ({"model": Factor, "posterior": lambda d, k: Gamma()}, "no quantiles"),
    ],
}
BAD_CASES = [(one, kind, words) for kind in BAD for one, words in BAD[kind]]


@pytest.fixture(scope="module")
def fitted_to_few():
    X = gaussian_table(0, n=50)
    return X, VNCEEstimator(random_state=0).fit(X)


@pytest.mark.quick(7)
@pytest.mark.parametrize(("params", "kind", "message"), BAD_CASES)
def test_bad_parameters_are_named(params, kind, message, fitted_to_few):
    X, estimator = fitted_to_few[0], copy(fitted_to_few[1])
    before = dict(vars(estimator))
    estimator.set_params(**params)
    refused(kind, message, estimator.fit, X)
    after = {**vars(estimator), **{name: before[name] for name in params}}
    assert after == before


@pytest.mark.slow
def test_a_symmetric_start_is_left():
    """Hidden units that start alike: the first rounds look as if nothing moved."""
    X, _ = machine_table(1, n=300)
    enumerated = VNCEEstimator(Enumerated, random_state=0, max_iter=400)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        fitted = enumerated.fit(X)
        integrated = VNCEEstimator(KINDS["integrated"][0], random_state=0).fit(X)
    assert fitted.objective_ > integrated.objective_ - 0.01


@pytest.mark.slow
def test_mass_where_nothing_was_is_noticed():
    X, _ = machine_table(0, n=40, d=12)
    model = partial(RestrictedBoltzmann, n_components=8)
    with pytest.warns(ConvergenceWarning, match="Raise noise_ratio=1 or ridge"):
        fitted = VNCEEstimator(model, noise_ratio=1, random_state=0).fit(X)
    held = VNCEEstimator(model, noise_ratio=50, ridge=1.0, random_state=0).fit(X)
    assert fitted.log_scale_gap_ > 1 > abs(held.log_scale_gap_)
    errors = [
        abs(one.log_scale_ - float(module(one).log_normaliser()))
        for one in (fitted, held)
    ]
    assert errors[0] > 1 > errors[1]


# posteriors that are not normal -------------------------------------------------------


class TwoHumps(nn.Module):
    """x_1 near 2 or near -2, whatever x_0 is."""

    def __init__(self, n_features):
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.zeros(()))
        self.tilt = nn.Parameter(torch.zeros(()))

    def log_density(self, x):
        sharp = self.log_sharpness.exp()
        humps = torch.stack([x[:, 1] - 2, x[:, 1] + 2]).square() * -4 * sharp
        tilt = torch.stack([self.tilt, -self.tilt])[:, None]
        return (humps + tilt).logsumexp(0) - x[:, 0].square() / 2


@pytest.mark.slow
def test_two_humps_are_drawn_with_their_weights(seed, rng):
    X = rng.normal(size=(1500, 2))
    X[:, 1] = np.where(rng.random(1500) < 0.7, 2, -2) + X[:, 1] / 8**0.5
    X[rng.random(1500) < 0.2, 1] = np.nan
    fitted = VNCEEstimator(TwoHumps, random_state=seed).fit(X)
    share = 1 / (1 + np.exp(-2 * float(module(fitted).tilt)))
    assert share == pytest.approx(0.7, abs=0.06)
    assert fitted.log_scale_gap_ < 0.2
    row = np.array([[0.3, np.nan]])
    expected = 2 * share - 2 * (1 - share)
    assert fitted.transform(row)[0, 1] == pytest.approx(expected, abs=0.25)
    drawn = fitted.sample(np.repeat(row, 4000, 0), random_state=seed)[0][:, 1]
    assert (drawn > 0).mean() == pytest.approx(share, abs=0.05)
    # with candidates of equal weight it would be that of the proposal
    assert (abs(abs(drawn) - 2) < 1.5).mean() > 0.95


def ising_table(seed, n=300):
    """Draw pairs of zeros and ones that mostly agree; the second is often missing."""
    rng = np.random.default_rng(seed)
    first = rng.integers(2, size=n)
    X = np.column_stack([first, np.where(rng.random(n) < 0.9, first, 1 - first)]) * 1.0
    X[rng.random(n) < 0.2, 1] = np.nan
    return X


class Ising(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.link = nn.Parameter(torch.zeros(()))
        self.field = nn.Parameter(torch.zeros(n_features))

    def log_density(self, x):
        sign = 2 * x - 1
        return self.link * sign[:, 0] * sign[:, 1] + x @ self.field


@pytest.mark.slow
def test_the_order_of_rows_does_not_choose_the_solver(seed):
    X = ising_table(seed)
    by_holes = np.argsort(np.isnan(X[:, 1]), kind="stable")
    for order in (by_holes, by_holes[::-1]):
        with pytest.raises(ValueError, match="solver='lbfgs' needs draws"):
            VNCEEstimator(Ising, solver="lbfgs").fit(X[order])
        fitted = VNCEEstimator(Ising, random_state=seed).fit(X[order])
        link = float(module(fitted).link)
        assert 1 / (1 + np.exp(-2 * link)) == pytest.approx(0.9, abs=0.05)
        assert set(np.unique(fitted.sample(X, random_state=0))) == {0.0, 1.0}


class RandomFeatures(nn.Module):
    """Holds random numbers beside its state."""

    def __init__(self, n_features):
        super().__init__()
        self.projection = torch.randn(n_features, 8).double()
        self.weight = nn.Parameter(torch.zeros(8))

    def log_density(self, x):
        return -x.square().sum(1) / 2 + torch.tanh(x @ self.projection) @ self.weight


def test_random_numbers_of_the_model_survive():
    X = gaussian_table(0, missing=0.0) - MEAN
    fitted = VNCEEstimator(RandomFeatures, n_init=2, random_state=3).fit(X)
    copy = pickle.loads(pickle.dumps(fitted))
    assert (copy.score_samples(X) == fitted.score_samples(X)).all()
    fitted.set_params(model=Bell)
    assert (copy.score_samples(X) == fitted.score_samples(X)).all()


def test_scores_of_the_default_and_of_own_models_compare(rng_0):
    X = rng_0.gamma(4.0, size=(1500, 2))  # non-negative columns
    default = VNCEEstimator(random_state=0).fit(X)
    options = {
        "noise": "gaussian",
        "random_state": 1,
        "solver": PRECISE,
        "max_iter": 400,
    }
    own = VNCEEstimator(Bell, **options).fit(X)
    scores = default.score_samples(X).mean(), own.score_samples(X).mean()
    assert scores[0] == pytest.approx(scores[1], abs=0.05)
    assert default.objective(X) == pytest.approx(own.objective(X), abs=0.05)
    with_empty = np.concatenate([X, np.full((100, 2), np.nan)])
    expected = default.objective(X)
    assert default.objective(with_empty) == pytest.approx(expected, abs=1e-12)


def test_a_module_with_dropout_answers_the_same_twice():
    class Dropping(Bell):
        def __init__(self, n_features):
            super().__init__(n_features)
            self.drop = nn.Dropout(0.5)

        def log_density(self, x):
            return super().log_density(self.drop(x))

    X = gaussian_table(0, n=100, missing=0.0) - MEAN
    options = {"solver": "adam", "max_iter": 3, "random_state": 0}
    fitted = VNCEEstimator(Dropping, **options).fit(X)
    assert (fitted.score_samples(X) == fitted.score_samples(X)).all()


def test_a_model_without_parameters_has_its_scale_fitted():
    class Standard(nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.n_features = n_features

        def log_density(self, x):
            return -x.square().sum(1) / 2

    X = np.random.default_rng(0).normal(size=(500, 2))
    fitted = VNCEEstimator(Standard, noise="gaussian", random_state=0).fit(X)
    assert fitted.log_scale_ == pytest.approx(np.log(2 * np.pi), abs=0.1)


def test_a_failed_start_does_not_fail_the_fit():
    class Lucky(Bell):
        calls = []

        def __init__(self, n_features):
            super().__init__(n_features)
            Lucky.calls.append(1)
            self.bad = len(Lucky.calls) == 2

        def log_density(self, x):
            result = super().log_density(x)
            return result * self.link.exp().sum() * 1e308 * 1e10 if self.bad else result

    X = gaussian_table(0, n=100, missing=0.0) - MEAN
    result = VNCEEstimator(Lucky, n_init=3, random_state=0).fit(X)
    assert np.isfinite(result.objective_)
    assert len(Lucky.calls) == 3


@pytest.mark.slow
def test_a_fitted_flow_is_noise():
    zuko = pytest.importorskip("zuko")
    X = gaussian_table(0, missing=0.0)
    X = (X - X.mean(0)) / X.std(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flow = zuko.flows.NSF(3, transforms=1, hidden_features=(16,))
        optimiser = torch.optim.Adam(flow.parameters(), lr=0.02)
        rows = torch.tensor(X).float()
        for _ in range(100):
            optimiser.zero_grad()
            (-flow().log_prob(rows).mean()).backward()
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    near = VNCEEstimator(Bell, noise=flow, solver=PRECISE, random_state=0).fit(X)
    far = VNCEEstimator(Bell, noise="marginal", solver=PRECISE, random_state=0).fit(X)
    assert near.accuracy_ < 0.6 < 0.7 < far.accuracy_
    correlation = np.corrcoef(X.T)
    np.testing.assert_allclose(bell_moments(module(near))[1], correlation, atol=0.15)
    assert all(parameter.grad is None for parameter in flow.parameters())
    with pytest.raises(ValueError, match="NormalizingFlow has no density of a part"):
        VNCEEstimator(Bell, noise=flow).fit(gaussian_table(0))


# standard errors of score_samples -----------------------------------------------------


class OneFactor(nn.Module):
    """Columns with unit variance given a normal latent: N(0, I + loading loading')."""

    n_components = 1

    def __init__(self, n_features):
        super().__init__()
        self.loading = nn.Parameter(0.5 * torch.ones(n_features))

    def log_density(self, x, z):
        """Compute log N(z; 0, 1) N(x; loading z, I), up to a constant."""
        residual = x - z * self.loading
        return -(residual.square().sum(-1) + z.square().sum(-1)) / 2


@pytest.mark.slow
def test_most_log_densities_are_within_their_errors(rng):
    X = rng.normal(size=(150, 3)) + rng.normal(size=(150, 1))
    X[rng.random(X.shape) < 0.3] = np.nan
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        fitted = VNCEEstimator(OneFactor, max_iter=5, random_state=0).fit(X)
    log_prob, error = fitted.score_samples(X, return_std=True)
    np.testing.assert_array_equal(log_prob, fitted.score_samples(X))
    loading = fitted.model_state_["model.loading"]
    covariance = np.eye(3) + np.outer(loading, loading)
    exact = np.zeros(len(X))
    for row, cells in enumerate(X):
        seen = ~np.isnan(cells)
        if seen.any():
            normal = multivariate_normal(cov=covariance[np.ix_(seen, seen)])
            exact[row] = normal.logpdf(cells[seen])
    exact += 2 * np.log(2 * np.pi) - fitted.log_scale_
    wrong = abs(log_prob - exact)
    # Few weights dominate some rows, whose errors are underestimated.
    assert np.mean(wrong < 3 * error + 1e-9) > 0.9
    assert np.mean(wrong < 0.03 * error) < 0.5  # control: they are no upper bounds
    normal = VNCEEstimator(max_iter=1, random_state=0, on_misfit="ignore")
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        normal.fit(X)
    assert (normal.score_samples(X, return_std=True)[1] == 0).all()  # it is exact


def standard_gaussian(n_features):
    return FreeGaussian(standard_normal(n_features))


def test_a_gaussian_that_is_passed_in_survives_pickling():
    X = gaussian_table(0, n=100) - MEAN
    options = {"ridge": 1.0, "on_misfit": "ignore", "random_state": 0}
    fitted = VNCEEstimator(standard_gaussian, noise="gaussian", **options).fit(X)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(X), fitted.transform(X))
    drawn = [one.sample(X, random_state=1)[0] for one in (fitted, copy)]
    np.testing.assert_array_equal(*drawn)
    assert np.abs(fitted.mean_).max() < 0.7 and fitted.covariance_.shape == (3, 3)


class SameRows:
    """Draws the rows themselves."""

    device = torch.device("cpu")

    def resample(self, rows, what):
        return rows.x


def test_each_draw_has_the_rows_in_their_order():
    nodes = np.arange(8.0).reshape(4, 2)
    drawn = ScaledDensity(SameRows(), Units.none(2)).draw(nodes, 3)
    np.testing.assert_array_equal(drawn, [nodes] * 3)
