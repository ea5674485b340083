"""EM for incomplete factor analysis, its rank, and its rows against dense algebra."""

import numpy as np
import pytest
import torch
from oracles import GATE, all_patterns, z_mean
from scipy.optimize import minimize
from torch.distributions import MultivariateNormal
from torch.testing import assert_close
from vaes import random_factors

from skvnce._core.incomplete import Incomplete, Rows
from skvnce.autoencoder import factor_analysis
from skvnce.autoencoder.factor_analysis import FactorModel, log_prob_observed

# EM for incomplete factor analysis: monotone, at the maximum, and its rank


FLOOR = 1e-4

# Appendix K of the paper, with the sign and digits of its stored data
F = np.array([[-5, -2], [4, 0], [3, -1], [-3, -3], [1, 5], [-1, 2]])
MEAN = np.array([3, -1, 0, 2, -1, 0])
PSI = np.array([50.4794, 30.0988, 6.7666, 17.3357, 40.9839, 25.1122])


def incomplete(x, rate, rng):
    observed = rng.uniform(size=x.shape) >= rate
    return Incomplete(torch.tensor(x * observed), torch.tensor(observed))


def table(rng, n=200, d=8, k=2, rate=0.3, noise=1.0, loadings=None):
    if loadings is None:
        loadings = np.linalg.qr(rng.normal(size=(d, k))).Q * np.sqrt(d)  # none is weak
    x = rng.normal(size=(n, k)) @ loadings.T + noise * rng.normal(size=(n, d))
    return incomplete((x - x.mean(0)) / x.std(0), rate, rng)


@pytest.fixture
def data(seed):
    return table(np.random.default_rng(seed))


def ones(data):
    return torch.ones(len(data.x)).double()


def fit(data, rank=2, weights=None, tol=1e-9, max_iter=3000):
    weights = ones(data) if weights is None else weights
    return factor_analysis.fit_factors(
        Rows(data, weights), rank, floor=FLOOR, max_iter=max_iter, tol=tol
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("rank", "options"),
    [(1, {}), (2, {"rate": 0.7}), (2, {"noise": 0.01}), (8, {"n": 20}), (3, {"n": 6})],
)
def test_em_never_lowers_the_likelihood(rank, options, seed):
    data = table(np.random.default_rng(seed), **options)
    objectives = fit(data, rank, max_iter=300, tol=-np.inf).objectives
    assert len(objectives) == 300
    assert np.diff(objectives).min() > -1e-10 * abs(objectives[-1])
    assert objectives[-1] > objectives[0] + 1


def test_its_limit_is_the_maximum(seed):
    d, k = 12, 2
    # no column has a latent nearly of its own, for which EM takes 20000 rounds
    angles = np.pi * np.arange(d) / d
    loadings = np.sqrt(2) * np.column_stack([np.cos(angles), np.sin(angles)])
    data = table(np.random.default_rng(seed), n=400, d=d, loadings=loadings)

    def loss(vector):
        vector = torch.tensor(vector, requires_grad=True)
        mean, log_noise, loadings = vector.split([d, d, d * k])
        model = FactorModel(mean, loadings.view(d, k), log_noise.exp())
        value = -factor_analysis.log_prob(model, data).sum()
        value.backward()
        return value.item(), vector.grad.numpy()

    begin = np.concatenate(
        [np.zeros(d), np.zeros(d), 0.5 * fit(data, k).model[1].flatten()]
    )
    minimum = minimize(
        loss, begin, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-7}
    )
    ours = fit(data, k, tol=1e-11)
    assert ours.objectives[-1] >= -minimum.fun - 1e-7
    mean, log_noise, loadings = np.split(minimum.x, [d, 2 * d])
    best = FactorModel(
        *map(torch.tensor, (mean, loadings.reshape(d, k), np.exp(log_noise)))
    )
    assert_close(ours.model.covariance(), best.covariance(), rtol=0, atol=1e-4)
    assert_close(ours.model.mean, best.mean, rtol=0, atol=1e-4)
    # and the gradient is zero there, but not beside it
    limit = ours.model
    there = [limit.mean, limit.noise_variance.log(), limit.loadings.flatten()]
    there = torch.cat(there).numpy()
    assert np.abs(loss(there)[1]).max() < 1e-3
    assert np.abs(loss(there + 0.01)[1]).max() > 1e-1


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_values_under_the_mask_are_never_read(value, data):
    x = data.x.where(data.observed, torch.tensor(value).double())
    pairs = zip(fit(data).model, fit(Incomplete(x, data.observed)).model, strict=True)
    for a, b in pairs:
        assert torch.equal(a, b)


def test_batches_do_not_matter(data, monkeypatch):
    whole = fit(data, max_iter=20)
    monkeypatch.setattr("skvnce.autoencoder.factor_analysis._CELLS_AT_ONCE", 100)
    for a, b in zip(whole.model, fit(data, max_iter=20).model, strict=True):
        assert_close(a, b)


def test_a_column_without_cells_is_standard_normal(data):
    observed = data.observed.clone()
    observed[:, 1] = False
    model = fit(Incomplete(data.x, observed)).model
    assert model.noise_variance[1] == 1
    assert (model.loadings[1] == 0).all()
    assert model.mean[1] == 0


def test_rotation_keeps_the_covariance_and_is_the_same_from_any_start(data, seed):
    model = fit(data).model
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(2, 2))).Q
    other = model._replace(loadings=model.loadings @ torch.tensor(turn))
    a, b = map(factor_analysis.rotate, (model, other))
    assert_close(a.covariance(), model.covariance())
    assert_close(a.loadings, b.loadings)
    inner = a.loadings.T @ (a.loadings / a.noise_variance[:, None])
    assert_close(inner, inner.diagonal().diag())
    assert inner[0, 0] > inner[1, 1]


@pytest.mark.slow
def test_the_toy_data_of_the_paper_are_recovered(rng):
    """Over independent tables, and not with the sign that the paper prints."""
    truth = F @ F.T + np.diag(PSI)
    scale, result = np.sqrt(np.diag(truth)), []
    for _ in range(20):
        x = MEAN + rng.normal(size=(1500, 2)) @ F.T
        x += rng.normal(size=x.shape) * np.sqrt(PSI)
        data = incomplete((x - MEAN) / scale, 0.4, rng)
        model = fit(data, tol=1e-4).model
        covariance = model.covariance().numpy() * np.outer(scale, scale)
        mean = MEAN + model.mean.numpy() * scale
        result.append(np.concatenate([mean, covariance.ravel()]))
    z = z_mean(result, np.concatenate([MEAN, truth.ravel()]))
    assert np.abs(z).max() < GATE
    printed = F.copy()
    printed[2, 0] = -3
    wrong = (printed @ printed.T + np.diag(PSI)).ravel()
    assert np.abs(z_mean(result, np.concatenate([MEAN, wrong]))).max() > 1.5 * GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_the_rank_is_found_on_held_out_cells(rank, rng):
    ranks = [chosen(table(rng, n=400, d=12, k=rank), rng) for _ in range(8)]
    assert min(ranks) == np.median(ranks) == rank


def test_independent_columns_have_the_smallest_rank(rng):
    """By chance a second latent is added less often than a standard error allows."""
    ranks = [chosen(table(rng, n=150, d=6, k=1, noise=1e6), rng) for _ in range(20)]
    # two ranks are tried; P(Z > 1) is 0.16 for each, even if it did no harm
    assert np.mean(np.array(ranks) > 1) < 0.32 + GATE * np.sqrt(0.32 * 0.68 / 20)
    assert np.median(ranks) == 1


def test_one_row_does_not_decide_on_the_rank():
    differences = torch.full((100,), 0.1).double()
    assert factor_analysis.rises(differences, torch.ones(100).double())
    differences[0] = -1e3
    assert factor_analysis.rises(differences, torch.ones(100).double()) is False
    differences[1:] = 0.2
    assert factor_analysis.rises(differences, torch.ones(100).double())
    assert not factor_analysis.rises(-differences, torch.ones(100).double())


def chosen(data, rng):
    held_out = data.observed & torch.tensor(rng.uniform(size=data.x.shape) < 0.2)
    return factor_analysis.choose_rank(
        data,
        held_out,
        ones(data),
        data.x.shape[1],
        floor=FLOOR,
        max_iter=1000,
        tol=1e-2,
    )


# On a covariance


def covariance_of(data):
    centred = data.x - data.x.mean(0)
    return centred.T @ centred / len(data.x)


def divergence(model, covariance):
    """Compute minus twice the log-likelihood per row, less that of the covariance."""
    product = torch.linalg.solve(model.covariance(), covariance)
    return product.trace() - torch.linalg.slogdet(product).logabsdet - len(product)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_covariance_says_what_complete_rows_say(rank, seed):
    data = table(np.random.default_rng(seed), k=rank, rate=0.0)
    mean, covariance = data.x.mean(0), covariance_of(data)
    rows = fit(data, rank, tol=1e-9, max_iter=2000).model
    factors = factor_analysis.fit_covariance(
        mean, covariance, rank, floor=FLOOR, n_rounds=2000
    )
    assert_close(factors.covariance(), rows.covariance(), rtol=0, atol=1e-3)
    assert torch.equal(factors.mean, mean)
    # both are EM, which stops short of the maximum (by 1.8e-6 at seed 4)
    assert abs(divergence(factors, covariance) - divergence(rows, covariance)) < 1e-4
    few = factor_analysis.fit_covariance(mean, covariance, rank, floor=FLOOR)
    assert divergence(few, covariance) < divergence(rows, covariance) + 1e-2
    other = factor_analysis.fit_covariance(mean, covariance, rank + 1, floor=FLOOR)
    assert (
        divergence(other, covariance) < divergence(rows, covariance) - 1e-3
    )  # control


def test_rounds_on_a_covariance_never_lower_the_likelihood(rng):
    root = torch.tensor(rng.normal(size=(6, 6)))
    covariance, mean = root @ root.T, torch.zeros(6).double()
    values = [
        float(
            divergence(
                factor_analysis.fit_covariance(
                    mean, covariance, 2, floor=FLOOR, n_rounds=n
                ),
                covariance,
            )
        )
        for n in range(60)
    ]
    assert np.diff(values).max() < 1e-12
    assert values[-1] < values[0] - 1e-2


@pytest.mark.parametrize("d", [2, 4, 8])
def test_one_latent_less_than_columns_gives_any_covariance(d, rng):
    correlation = np.corrcoef(rng.normal(size=(d, 3 * d)))
    covariance, mean = torch.tensor(correlation), torch.zeros(d).double()
    factors = factor_analysis.fit_covariance(mean, covariance, d - 1, floor=FLOOR)
    assert 0 <= divergence(factors, covariance) + 1e-12 < 1e-4
    assert_close(factors.covariance(), covariance, rtol=0, atol=5e-3)
    if d > 4:  # of four columns one latent is nearly enough by chance
        less = factor_analysis.fit_covariance(mean, covariance, 1, floor=FLOOR)
        assert divergence(less, covariance) > 1e-2  # control


def test_noise_of_a_covariance_stays_above_its_floor(seed):
    """Also where a column is the sum of two others, but for rounding."""
    root = np.random.default_rng(seed).normal(size=(4, 3))
    root[3] = root[0] + root[1]
    covariance = torch.tensor(root @ root.T + 1e-9 * np.eye(4))
    factors = factor_analysis.fit_covariance(
        torch.zeros(4).double(), covariance, 3, floor=2e-3
    )
    assert (factors.noise_variance >= 2e-3).all()
    assert_close(factors.covariance(), covariance, rtol=0, atol=2e-2)


# Incomplete rows of factor analysis against dense algebra, every pattern at d = 5


D, K = 5, 2


@pytest.fixture
def model(seed):
    return random_factors(D, K, seed)


@pytest.fixture
def observed():
    return all_patterns(D)


@pytest.fixture
def x(seed, observed):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(observed.shape, generator=generator, dtype=torch.float64)


def close(actual, expected):
    assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_every_pattern_against_dense_algebra(model, x, observed):
    log_prob, result = log_prob_observed(model, x, observed)
    covariance = result.covariance()
    S = model.covariance()
    for i, o in enumerate(observed):
        gain = torch.linalg.solve(S[o][:, o], model.loadings[o]).T
        close(result.mean[i], gain @ (x[i] - model.mean)[o])
        close(covariance[i], torch.eye(K) - gain @ model.loadings[o])
        if o.any():
            normal = MultivariateNormal(model.mean[o], S[o][:, o], validate_args=False)
            close(log_prob[i], normal.log_prob(x[i][o]))
    assert log_prob[0] == 0  # nothing observed
    assert (result.mean[0] == 0).all()


def test_little_noise_costs_no_digits(model, x, observed):
    """The textbook difference of squares would leave 1e-16 * 1e10 here."""
    quiet = model._replace(noise_variance=torch.full_like(model.mean, 1e-10))
    z = torch.linalg.lstsq(model.loadings, torch.ones(D, 1).double()).solution[:, 0]
    row = (model.mean + model.loadings @ z)[None].clone()
    row[0, 0] += 1e-6
    full = torch.ones_like(row, dtype=torch.bool)
    log_prob, _ = log_prob_observed(quiet, row, full)
    noise = torch.zeros(D, dtype=torch.float64)
    noise[0] = 1e-6
    plane = quiet.loadings @ torch.linalg.pinv(quiet.loadings)
    off = (noise - plane @ noise).square().sum() / 1e-10
    size = torch.linalg.slogdet(quiet.covariance()).logabsdet
    near = torch.linalg.pinv(quiet.loadings) @ (row[0] - model.mean)
    constant = D * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64))
    exact = -(off + near.square().sum() + size + constant) / 2
    assert_close(log_prob[0], exact, rtol=0, atol=1e-5)


def test_batches_partition_the_rows(model, monkeypatch):
    monkeypatch.setattr("skvnce.autoencoder.factor_analysis._CELLS_AT_ONCE", 60)
    x = torch.arange(32 * D).double().view(32, D)
    parts = list(factor_analysis.batches(model, Incomplete(x, x > 0)))
    assert torch.equal(torch.cat([part.x for part in parts]), x)
    assert [len(part.observed) for part in parts] == [6] * 5 + [2]
