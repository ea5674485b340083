"""Noise against scipy, torch and Gaussian algebra; the symmetry of its kernels."""

import numpy as np
import pytest
import torch
from oracles import GATE, all_patterns, first_and_second, z_mean
from scipy import stats
from torch import distributions, nn
from torch.distributions import Normal as UnivariateNormal

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Units
from skvnce.contrast.noise import (
    BINARY,
    POSITIVE,
    REAL,
    ColumnSummary,
    GaussianNoise,
    Marginals,
    Rescaled,
    check_density,
    contrast_with,
    fit_noise,
    wrap_distribution,
)

KIND = torch.tensor([REAL, POSITIVE, BINARY, POSITIVE, REAL])
MEAN = torch.tensor([-3.0, 2.0, 0.3, 5.0, 100.0]).double()
VARIANCE = torch.tensor([4.0, 1.5, 0.21, 0.5, 1e-2]).double()
D, N = len(KIND), 50
OBSERVED_CELLS = torch.full((D,), N).double()


@pytest.fixture
def marginals():
    return Marginals.fit(KIND, MEAN, VARIANCE, OBSERVED_CELLS)


@pytest.fixture
def patterns():
    return all_patterns(D)


def by_scipy(marginals):
    """Return the frozen distribution of each column."""
    records = []
    for kind, a, b in zip(*(part.tolist() for part in marginals), strict=True):
        if kind == BINARY:
            records.append(stats.bernoulli(a))
        elif kind == POSITIVE:
            records.append(stats.truncnorm(-a / b, np.inf, loc=a, scale=b))
        else:
            records.append(stats.norm(a, b))
    return records


def test_marginals_have_the_given_moments(marginals):
    columns = by_scipy(marginals)
    mean = [column.mean() for column in columns]
    share = (0.3 * N + 0.5) / (N + 1)
    expected = MEAN.where(KIND != BINARY, share)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    variance = np.array([column.var() for column in columns])
    continuous = (KIND != BINARY).numpy()
    np.testing.assert_allclose(variance[continuous], VARIANCE[continuous], rtol=1e-5)


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_columns_of_one_value_give_the_other_some_probability(mean):
    fitted = Marginals.fit(
        torch.tensor([BINARY]), *torch.tensor([[mean], [0.0], [9.0]]).double()
    )
    assert float(fitted.location) == pytest.approx((9 * mean + 0.5) / 10)


def test_marginal_log_prob_of_the_observed_cells(marginals, patterns):
    torch.manual_seed(0)
    x = marginals.sample(len(patterns))
    y = torch.stack([x, x.roll(1, 0)])
    columns = by_scipy(marginals)
    by_column = np.stack(
        [
            column.logpmf(cells) if kind == BINARY else column.logpdf(cells)
            for kind, column, cells in zip(
                KIND.tolist(), columns, y.movedim(-1, 0).numpy(), strict=True
            )
        ],
        -1,
    )
    expected = np.where(patterns, by_column, 0.0).sum(-1)
    for junk in (0.5, -1e6, torch.nan):
        log_prob = marginals.log_prob(y.masked_fill(~patterns, junk), patterns)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-9, atol=1e-9)


def test_marginal_draws_have_the_moments(marginals, torch_seeded):
    drawn = marginals.sample(3000)
    assert (drawn[:, KIND == POSITIVE] >= 0).all()
    assert set(drawn[:, 2].tolist()) == {0.0, 1.0}
    columns = by_scipy(marginals)
    mean = np.array([column.mean() for column in columns])
    variance = np.array([column.var() for column in columns])
    assert abs(z_mean(drawn, mean)).max() < GATE
    assert abs(z_mean((drawn.numpy() - mean) ** 2, variance)).max() < GATE
    centred = (drawn.numpy() - mean) / np.sqrt(variance)
    i, j = np.triu_indices(D, 1)  # independent
    assert abs(z_mean(centred[:, i] * centred[:, j], 0.0)).max() < GATE
    # control: off by a fifth of a standard deviation
    assert abs(z_mean(centred, 0.2)).min() > GATE


@pytest.fixture
def normal(torch_seeded):
    root = torch.randn(D, D).double()
    return Normal(torch.randn(D).double(), root @ root.T + 0.3 * torch.eye(D))


def marginal_of(normal, x, patterns):
    """Compute the normal density of the observed cells, row by row."""
    mean, covariance = normal
    values = torch.zeros(x.shape[:-1]).double()
    for i, o in enumerate(patterns):
        if o.any():
            part = distributions.MultivariateNormal(mean[o], covariance[o][:, o])
            values[..., i] = part.log_prob(x[..., i, o])
    return values


def test_gaussian_log_prob_of_the_observed_cells(normal, patterns):
    noise, y = GaussianNoise(normal), torch.randn(2, len(patterns), D).double()
    expected = marginal_of(normal, y, patterns)
    for junk in (0.0, 1e6, torch.nan):
        log_prob = noise.log_prob(y.masked_fill(~patterns, junk), patterns)
        torch.testing.assert_close(log_prob, expected)


def test_gaussian_draws_have_the_moments(normal, torch_seeded):
    drawn = first_and_second(GaussianNoise(normal).sample(3000))
    i, j = np.triu_indices(D)
    mean, covariance = (part.numpy() for part in normal)
    second = covariance[i, j] + mean[i] * mean[j]
    assert abs(z_mean(drawn, np.concatenate([mean, second]))).max() < GATE
    apart = np.concatenate([mean, (covariance * np.eye(D))[i, j] + mean[i] * mean[j]])
    assert abs(z_mean(drawn, apart)).max() > GATE  # control: independent columns


def test_a_given_normal_has_a_density_of_every_part(normal, patterns):
    passed = distributions.MultivariateNormal(
        normal.mean.float(), normal.covariance.float()
    )
    noise, x = wrap_distribution(passed, D), torch.randn(len(patterns), D).double()
    log_prob = noise.log_prob(x, patterns)
    assert log_prob.dtype == noise.sample(1).dtype == torch.float64
    expected = marginal_of(normal, x, patterns)
    torch.testing.assert_close(log_prob, expected, rtol=1e-4, atol=1e-4)


LOW, HIGH = torch.arange(D) + 2.0, torch.arange(D) + 3.5  # 1 is outside
BY_COLUMN = {
    "normal": UnivariateNormal(torch.arange(float(D)), 2.0),
    "laplace in double": distributions.Laplace(torch.arange(D).double(), 2.0),
    "bounded": distributions.Uniform(LOW, HIGH),
    "bernoulli": distributions.Bernoulli(torch.linspace(0.1, 0.9, D)),
}


@pytest.mark.parametrize("wrapped", [0, 1, 2])
@pytest.mark.parametrize("name", BY_COLUMN)
def test_given_columns_have_a_density_of_every_part(name, wrapped, patterns, seed):
    torch.manual_seed(seed)
    columns = BY_COLUMN[name]
    passed = columns
    if wrapped:
        passed = distributions.Independent(columns, 1)
    if wrapped == 2:
        passed = distributions.Independent(passed, 0)
    noise = wrap_distribution(passed, D)
    x = noise.sample(2 * len(patterns)).view(2, len(patterns), D)
    assert x.dtype == torch.float64
    expected = columns.log_prob(x).where(patterns, 0.0).sum(-1)
    for junk in (0.5, torch.nan):
        log_prob = noise.log_prob(x.masked_fill(~patterns, junk), patterns)
        torch.testing.assert_close(log_prob, expected)


@pytest.fixture
def joint():
    parts = distributions.Independent(
        UnivariateNormal(torch.zeros(2, D), torch.ones(2, D)), 1
    )
    return distributions.MixtureSameFamily(
        distributions.Categorical(torch.ones(2)), parts
    )


def test_a_given_joint_distribution_of_complete_rows(joint, torch_seeded):
    noise = wrap_distribution(joint, D)
    x = noise.sample(6).view(2, 3, D)
    log_prob = noise.log_prob(x, torch.ones(3, D).bool())
    assert log_prob.dtype == torch.float64
    expected = UnivariateNormal(0.0, 1.0).log_prob(x).sum(-1)
    torch.testing.assert_close(log_prob, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "noise",
    [
        distributions.MultivariateNormal(torch.zeros(D + 1), torch.eye(D + 1)),
        UnivariateNormal(0.0, 1.0),
        distributions.Independent(UnivariateNormal(torch.zeros(2, D), 1.0), 1),
    ],
    ids=["wider", "scalar", "many rows"],
)
def test_a_given_distribution_of_another_width_is_refused(noise):
    with pytest.raises(ValueError, match=rf"rows of the model have shape \({D},\)"):
        wrap_distribution(noise, D)


def test_zeros_have_a_density_in_all_units():
    """Zeros of scaled columns come back as tiny numbers, some of them negative."""
    n_negative = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x = torch.tensor(np.round(rng.exponential(size=(30, 3))))
        mean, scale = x.mean(0), x.std(0)
        scaled, observed = (x - mean) / scale, torch.ones_like(x).bool()
        n_negative += int((scaled * scale + mean < 0).sum())
        kind = torch.full((3,), POSITIVE)
        noise = Marginals.fit(kind, mean, scale.square(), torch.tensor(30.0))
        log_prob = Rescaled(noise, mean, scale).log_prob(scaled, observed)
        expected = noise.log_prob(x, observed) + scale.log().sum()
        torch.testing.assert_close(log_prob, expected)
    assert n_negative > 0


# Units, statistics of columns, and the noise that is chosen from them


NODES = np.array([[0.0, -1.0, 0.5], [1.0, 2.0, np.nan], [np.nan, 0.5, 3.0]])
CENTRE, SCALE = np.nanmean(NODES, 0), np.nanstd(NODES, 0)
UNITS = Units(CENTRE, SCALE)
NORMAL = Normal(torch.tensor([0.1, -0.2, 0.3]).double(), 2 * torch.eye(3).double())
OBSERVED = torch.tensor(~np.isnan(NODES))


def summary():
    return ColumnSummary.of(NODES, CENTRE, SCALE)


def chosen(kind, units=UNITS):
    counts = OBSERVED.sum(0).double()
    return fit_noise(kind, summary().marginals(counts), units, lambda: NORMAL)


def test_kinds_of_columns_and_what_replaces_zeros():
    result = summary()
    assert result.kind.tolist() == [BINARY, REAL, POSITIVE]
    assert result.floor.tolist() == [0.5, 0.25, 0.25]
    assert set(ColumnSummary.standard(3).kind.tolist()) == {REAL}


def test_units_go_back():
    data = UNITS.scaled(NODES)
    assert (data.observed == OBSERVED).all()
    found = np.where(OBSERVED, UNITS.restored(data.x), np.nan)
    np.testing.assert_allclose(found, NODES, atol=1e-15)
    np.testing.assert_array_equal(Units.none(3).scaled(NODES).to_array(), NODES)
    mean, covariance = UNITS.moments(NORMAL)
    np.testing.assert_allclose(mean, CENTRE + SCALE * NORMAL.mean.numpy())
    np.testing.assert_allclose(covariance, 2 * np.diag(SCALE**2))


@pytest.mark.parametrize("kind", ["marginal", "gaussian"])
def test_fitted_noise_has_one_density_in_all_units(kind):
    """The density of scaled rows is that of the user's rows times the scales."""
    scaled, raw = chosen(kind).distribution, chosen(kind, Units.none(3)).distribution
    if kind == "gaussian":  # given in the scale of the model
        raw = Rescaled(scaled, torch.tensor(-CENTRE / SCALE), torch.tensor(1 / SCALE))
    data, nodes = UNITS.scaled(NODES), Incomplete.from_array(NODES)
    value = scaled.log_prob(*data) - OBSERVED.double() @ torch.tensor(SCALE).log()
    torch.testing.assert_close(value, raw.log_prob(*nodes))


def test_parameters_of_noise_are_in_the_units_of_the_user():
    mean, covariance = UNITS.moments(NORMAL)
    parameters = chosen("gaussian").parameters
    np.testing.assert_array_equal(parameters["mean"], mean)
    np.testing.assert_array_equal(parameters["covariance"], covariance)
    parameters = chosen("marginal").parameters
    assert parameters["location"][1] == CENTRE[1]


def test_a_module_makes_the_noise():
    class Flow(nn.Module):
        def forward(self):
            return distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))

    data = UNITS.scaled(NODES)
    log_prob = chosen(Flow()).distribution.log_prob(*data)
    torch.testing.assert_close(log_prob, chosen(Flow()()).distribution.log_prob(*data))


@pytest.mark.parametrize("noise", [3.0, "gaussian", nn.Linear(2, 2)])
def test_noise_without_a_density_is_refused(noise):
    with pytest.raises(TypeError, match=f"{type(noise).__name__} has no method"):
        check_density(noise)


def test_contrasts_have_the_masks_of_the_data():
    torch.manual_seed(0)
    data, noise = UNITS.scaled(NODES), GaussianNoise(NORMAL)
    contrast = contrast_with(noise, data, 4)
    assert contrast.noise.x.shape == (4, 3, 3)
    assert (contrast.noise.observed == OBSERVED).all()
    assert contrast.data.x is data.x
    expected = noise.log_prob(contrast.noise.x, data.observed)
    torch.testing.assert_close(contrast.noise.log_noise, expected)
