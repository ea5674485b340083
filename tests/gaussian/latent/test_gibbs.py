"""Chains and scores against exact probabilities of small models."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.truncated_normal import BoundedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import global_stream, row_lattice, seeded
from skvnce.gaussian.latent import fill, gibbs, nominal
from skvnce.gaussian.latent.columns import Latents, Marginal
from skvnce.gaussian.latent.fill import Chains
from skvnce.gaussian.latent.gibbs import Factors, Rows
from skvnce.gaussian.latent.nominal import GivenOthers, Nominal, above, below

SCALE = torch.tensor(0.7).double()
ROWS = 400  # equal rows whose chains differ, for standard errors


def levels(*thresholds):
    """Make an ordinal column from its thresholds."""
    edges = torch.tensor(thresholds, dtype=torch.float64)
    far = torch.tensor([torch.inf]).double()
    values = torch.arange(len(edges) + 1).double()
    return Marginal(values, torch.cat([-far, edges]), torch.cat([edges, far]))


def covariance(d, seed=3):
    root = np.random.default_rng(seed).normal(size=(d, d))
    found = root @ root.T + np.eye(d)
    scale = np.sqrt(np.diag(found))
    return torch.tensor(found / np.outer(scale, scale))


def chained(latents, normal, row, chains=Chains(20, 60), *, seed=0, levels_of=()):  # noqa: B008
    """Predict equal rows by different chains: means, errors of a column's levels."""
    data = Incomplete.from_array(np.tile(np.asarray(row, float), (ROWS, 1)))
    with seeded(seed):
        factors = [gibbs.Factors.of(normal, latents)]
        pairs = fill.Pairs(latents, factors, data, chains, global_stream)
        return fill.predict(pairs, set(levels_of))


def assert_near(draws, exact, errors=5.0):
    """Compare a mean over chains; five standard errors fail once in 1.7 million."""
    mean, error = draws.mean(0), draws.std(0) / ROWS**0.5
    assert ((mean - torch.as_tensor(exact)).abs() < errors * error + 1e-9).all()


def rectangle(mean, cov, low, high):
    """Compute the probability of a box by inclusion and exclusion."""
    total = 0.0
    for ends in product((0, 1), repeat=len(mean)):
        at = np.where(ends, high, low)
        if np.isneginf(at).any():
            continue
        sign = (-1) ** (len(ends) - sum(ends))
        finite = np.clip(at, -12, 12)
        given = {"abseps": 1e-6, "releps": 1e-6, "maxpts": 100_000}
        found = stats.multivariate_normal.cdf(finite, mean, cov, **given)
        total += sign * found
    return total


def test_draws_between_bounds_are_quantiles(rng_0):
    mean, u = (torch.tensor(rng_0.uniform(size=200)) for _ in range(2))
    low = torch.tensor(rng_0.uniform(-6, 6, size=200))
    high = low + torch.tensor(rng_0.uniform(0.1, 3, size=200))
    z = torch.tensor(gibbs.truncated(*(t.numpy() for t in (mean, SCALE, low, high, u))))
    share = BoundedNormal(mean, SCALE, low, high).cdf(z)
    apart = torch.minimum((share - u).abs(), (share - 1 + u).abs())
    assert apart.max() < 1e-6
    far = torch.full_like(low, torch.inf)
    parts = mean.numpy(), float(SCALE), low.numpy(), u.numpy()
    under = BoundedNormal(mean, SCALE, -far, low)
    assert torch.allclose(under.cdf(torch.tensor(below(*parts))), u, atol=1e-6)
    over = BoundedNormal(mean, SCALE, low, far)
    assert torch.allclose(1 - over.cdf(torch.tensor(above(*parts))), u, atol=1e-6)


def test_draws_beyond_the_reach_of_probabilities_are_the_bound():
    zero, u = np.zeros(1), np.array([0.5])
    assert below(np.array([60.0]), 1.0, zero, u) == 0.0
    assert above(np.array([-60.0]), 1.0, zero, u) == 0.0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("width", [0.3, np.inf])
def test_draws_in_intervals_far_from_the_mean_are_finite(sign, width):
    """Those of open intervals were infinite, those of others the far bound."""
    u, scale = np.array([0.01, 0.5, 0.99]), 0.05
    low = np.full(3, 2.5)
    ends = (low, low + width) if sign > 0 else (-low - width, -low)
    z = sign * gibbs.truncated(np.full(3, -sign * 0.5), scale, *ends, u)
    assert (z > low).all() and (z < low + 0.01).all()
    # the share of the tail beyond a draw is that of the uniform number
    tail = stats.norm.logsf((z + 0.5) / scale) - stats.norm.logsf((low + 0.5) / scale)
    np.testing.assert_allclose(np.exp(tail), u, atol=1e-3)


@pytest.mark.parametrize("sign", [-1, 1])
def test_chains_start_within_limits_that_are_far_away(sign):
    """The median of a normal distribution beyond e is e + log(2) / e, nearly."""
    near, far = np.array([[3.0, 12.0, 30.0, 0.5]]), np.full((1, 4), np.inf)
    near[0, -1] = far[0, -1] = 0.5  # is observed
    low, high = (near, far) if sign > 0 else (-far, -near)
    z = sign * gibbs.Rows(None, low, high, [], []).start(torch.zeros(1))[0]
    np.testing.assert_allclose(z[0], stats.norm.isf(stats.norm.sf(3) / 2))
    np.testing.assert_allclose(z[1:3], near[0, 1:3] + np.log(2) / near[0, 1:3], 1e-3)
    assert z[3] == 0.5


def test_probabilities_of_two_ordinal_columns_and_a_number(seed):
    """P(x_2 = k | x_0 = 1, z_1) by the bivariate normal distribution."""
    number = Marginal(*(torch.linspace(-4, 4, 801).double(),) * 3)
    latents = Latents([levels(-0.3, 0.8), number, levels(0.2)], [0, 1, 2], [1, 1, 1])
    mean, cov = np.array([0.2, 0.1, -0.3]), covariance(3).numpy()
    normal = Normal(torch.tensor(mean), torch.tensor(cov))
    found = chained(latents, normal, [1, 0.7, np.nan], seed=seed, levels_of=[2])
    slope = cov[[0, 2], 1] / cov[1, 1]
    given = mean[[0, 2]] + slope * (0.7 - mean[1])
    left = cov[np.ix_([0, 2], [0, 2])] - np.outer(slope, slope) * cov[1, 1]
    ends = (-np.inf, 0.2), (0.2, np.inf)
    joint = [rectangle(given, left, [-0.3, a], [0.8, b]) for a, b in ends]
    assert_near(found.probabilities[2], np.array(joint) / sum(joint))
    wrong = rectangle(given, left, [-np.inf, 0.2], [np.inf, np.inf])  # ignores x_0
    assert abs(joint[1] / sum(joint) - wrong) > 0.02


def of_nominal(mean, cov, others, low, high):
    """Compute P(x_1 = k, low < z_0 < high) for the nominal latents in `others`."""
    found = []
    for k in range(len(others)):
        rest = [i for i in range(len(others)) if i != k]
        maps = np.zeros((len(others), len(mean)))
        maps[0, 0] = 1.0
        for row, i in enumerate(rest, 1):
            maps[row, others[k]], maps[row, others[i]] = 1.0, -1.0
        ends = [low] + [0.0] * len(rest), [high] + [np.inf] * len(rest)
        found.append(rectangle(maps @ mean, maps @ cov @ maps.T, *ends))
    return np.array(found)


def nominal_model():
    latents = Latents([levels(0.1), None], [0, 1], [1, 3])
    scale = np.array([1.0, 0.6, 1.4, 1.0])
    mean, cov = np.array([0.1, 0.3, -0.2, 0.0]), covariance(4).numpy()
    cov *= np.outer(scale, scale)
    return latents, Normal(torch.tensor(mean), torch.tensor(cov)), mean, cov


def test_probabilities_of_a_nominal_column(seed):
    latents, normal, mean, cov = nominal_model()
    found = chained(latents, normal, [1, np.nan], seed=seed).probabilities[1]
    joint, free = (of_nominal(mean, cov, [1, 2, 3], a, np.inf) for a in (0.1, -np.inf))
    assert_near(found, joint / joint.sum())
    assert abs(free - joint / joint.sum()).max() > 0.02


def test_probabilities_of_an_ordinal_column_given_a_nominal_one(seed):
    latents, normal, mean, cov = nominal_model()
    found = chained(latents, normal, [np.nan, 2], seed=seed, levels_of=[0])
    ends = (-np.inf, 0.1), (0.1, np.inf)
    joint = [of_nominal(mean, cov, [1, 2, 3], *one)[2] for one in ends]
    assert_near(found.probabilities[0], np.array(joint) / sum(joint))
    assert_near(found.means[:, :1], joint[1] / sum(joint))


def test_errors_of_mirrored_chains_cancel_where_all_is_normal():
    line = torch.linspace(-9, 9, 3).double()
    number = Marginal(line, line, line)
    latents = Latents([number] * 3, [0, 1, 2], [1, 1, 1])
    normal = Normal(torch.zeros(3).double(), covariance(3))
    found = chained(latents, normal, [1.0, np.nan, np.nan], Chains(80, 1)).means
    slope = covariance(3)[1:, 0]
    assert torch.allclose(found[:, 1:], slope.expand(ROWS, 2), atol=1e-3)


def test_draws_have_these_probabilities_too(seed):
    latents, normal, mean, cov = nominal_model()
    data = Incomplete.from_array(np.tile([1.0, np.nan], (4000, 1)))
    with seeded(seed):
        model = gibbs.Factors.of(normal, latents)
        drawn = fill.draw(latents, [model], data, Chains(30, 1))[0]
    joint = of_nominal(mean, cov, [1, 2, 3], 0.1, np.inf)
    counts = np.bincount(drawn[:, 1].long().numpy(), minlength=3)
    assert stats.chisquare(counts, 4000 * joint / joint.sum()).pvalue > 1e-6
    assert stats.chisquare(counts, [4000 / 3] * 3).pvalue < 1e-6
    assert (drawn[:, 0] == 1).all()


def test_log_probabilities_against_quadrature():
    latents, normal, mean, cov = nominal_model()
    rows = np.array([[1, 0], [1, 1], [1, 2], [0, 0], [np.nan, 1], [1, np.nan]])
    data = Incomplete.from_array(rows)
    found = fill.log_prob(latents, normal, data, row_lattice(rows, 0), 2**14)
    ends = (0.1, np.inf), (-np.inf, 0.1), (-np.inf, np.inf)
    ones, zeros, free = (of_nominal(mean, cov, [1, 2, 3], *one) for one in ends)
    exact = [*ones, zeros[0], free[1], ones.sum()]
    assert found.exp().tolist() == pytest.approx(exact, abs=1e-4)


def test_log_densities_of_numbers_are_those_of_the_normal_distribution():
    line = torch.linspace(-6, 6, 2001).double()
    number = Marginal(line * 2 + 1, line, line)
    latents = Latents([number, levels(0.4), number], [0, 1, 2], [1, 1, 1])
    mean, cov = np.array([0.0, 0.2, -0.1]), covariance(3).numpy()
    rows = np.array([[1.5, 1.0, 2.0], [np.nan, 0.0, -1.0], [1.0, np.nan, np.nan]])
    normal = Normal(torch.tensor(mean), torch.tensor(cov))
    given = Incomplete.from_array(rows), row_lattice(rows, 0)
    found = fill.log_prob(latents, normal, *given, 64)

    def density(z0, z1, z2):
        return stats.multivariate_normal(mean, cov).pdf([z0, z1, z2])

    exact = [
        integrate.quad(lambda t: density(0.25, t, 0.5), 0.4, 9)[0] / 4,
        integrate.dblquad(lambda s, t: density(s, t, -1.0), -9, 0.4, -9, 9)[0] / 2,
        stats.norm(0, 1).pdf(0.0) / 2,
    ]
    assert found.exp().tolist() == pytest.approx(exact, rel=1e-4)


def simulated(rng, n, cov):
    """Draw a number, an ordinal and a nominal column; half of the cells are missing."""
    z = rng.multivariate_normal(np.zeros(5), cov, size=n)
    grades = np.digitize(z[:, 1], [-0.8, 0.0, 0.6])
    x = np.column_stack([np.exp(z[:, 0]), grades, z[:, 2:].argmax(1)])
    return np.where(rng.random(x.shape) < 0.5, np.nan, x)


def fitted(x, seed, n_draws=20, max_iter=200):
    data, weights = Incomplete.from_array(x), torch.ones(len(x)).double()
    latents = Latents.of(data, weights, ["numeric", "ordinal", "nominal"], [0, 4, 3])
    with seeded(seed):
        given = {"n_draws": n_draws, "max_iter": max_iter}
        return gibbs.posterior_draws(latents, data, weights, 1.0, **given)


def identified(cov):
    """Return what the data determine: numbers with differences of nominal latents."""
    maps = np.eye(4, 5)
    maps[[2, 3], [3, 4]] = -1
    found = maps @ np.asarray(cov) @ maps.T
    scale = np.sqrt(np.diag(found))
    return (found / np.outer(scale, scale))[np.triu_indices(4, 1)]


@pytest.mark.slow
def test_correlations_are_recovered_from_half_of_the_cells(seed, rng_0):
    """The error of the posterior mean is within five posterior standard deviations."""
    truth = np.eye(5)
    truth[0, 1] = truth[1, 0] = 0.6
    truth[0, 2] = truth[2, 0] = 0.5
    truth[1, 3] = truth[3, 1] = -0.4
    x = simulated(np.random.default_rng(seed), 4000, truth)
    draws = np.array([identified(one.covariance) for one in fitted(x, seed).draws])
    error = draws.mean(0) - identified(truth)
    assert (abs(error) < 5 * draws.std(0, ddof=1) + 0.02).all()
    shuffled = np.column_stack([rng_0.permutation(column) for column in x.T])
    wrong = [identified(one.covariance) for one in fitted(shuffled, seed).draws]
    assert abs(np.mean(wrong, 0) - identified(truth)).max() > 0.3


def test_draws_of_variances_are_larger_than_the_estimate_in_small_tables(seed):
    """Their ratio is (n + k) / (n + k - d - 2) = 16 / 9, with an error of about .11."""
    x = simulated(np.random.default_rng(seed), 15, np.eye(5))
    x[:, 0] = np.arange(15.0)
    fit = fitted(x, seed, n_draws=60, max_iter=100)
    drawn = torch.stack([one.covariance[0, 0] for one in fit.draws]).mean()
    assert len(fit.draws) == 60
    ratio = float(drawn / fit.average().covariance[0, 0])
    assert ratio == pytest.approx(16 / 9, abs=0.55)


def test_scales_without_data_are_one():
    latents = Latents([levels(0.4), None], [0, 1], [1, 3])
    normal = Normal(torch.tensor([0.5, 1.0, 2.0, 3.0]).double(), 4 * covariance(4))
    z = np.random.default_rng(0).normal(size=(4, 50))
    moved = z.copy()
    found = gibbs.set_scales(latents, [moved], normal)
    assert found.covariance.diagonal().tolist() == pytest.approx([1] * 4)
    assert float(found.mean[1:].mean()) == pytest.approx(0)
    assert (moved[1:].argmax(0) == z[1:].argmax(0)).all()
    assert ((moved[0] > 0.4) == (z[0] > 0.4)).all()


def test_losses_are_those_of_the_scaled_variables(monkeypatch, seed):
    scaled, set_scales = [], gibbs.set_scales

    def recorded(latents, parts, normal):
        found = set_scales(latents, parts, normal)
        density = stats.multivariate_normal(found.mean.numpy(), found.covariance)
        scaled.extend(-density.logpdf(z.T).mean() for z in parts)
        return found

    monkeypatch.setattr(gibbs, "set_scales", recorded)
    x = simulated(np.random.default_rng(seed), 60, np.eye(5))
    fit = fitted(x, seed, n_draws=2, max_iter=10)
    assert fit.losses == pytest.approx(scaled)
    assert len(fit.estimates) == 6  # 40 % are the burn-in


def test_rows_without_observed_cells_are_drawn_at_once(seed):
    """A single sweep from the mean would have 0.02 of the variance."""
    line = torch.linspace(-9, 9, 3).double()
    number, cov = Marginal(line, line, line), torch.tensor([[1.0, 0.99], [0.99, 1.0]])
    latents = Latents([number] * 2, [0, 1], [1, 1])
    model = gibbs.Factors.of(Normal(torch.zeros(2).double(), cov.double()), latents)
    data = Incomplete.from_array(np.full((2000, 2), np.nan))
    with seeded(seed):
        drawn = fill.draw(latents, [model], data, Chains(0, 1))[0].numpy()
    assert np.cov(drawn.T) == pytest.approx(cov.numpy(), abs=0.17)  # five errors


# Joint moves of latent variables that are nearly the same


N, SWEEPS = 4000, 12
SIGNS = np.outer([1, 1, -1, 1], [1, 1, -1, 1])
C = SIGNS * np.array([[0.9998] * 3 + [0.6]] * 3 + [[0.6] * 4])
np.fill_diagonal(C, 1.0)


def test_groups_are_connected_by_strong_correlations():
    found = np.eye(6)
    for i, j, r in ((0, 3, 0.97), (3, 5, -0.96), (1, 2, 0.99), (2, 4, 0.9)):
        found[i, j] = found[j, i] = r
    scale = np.arange(1.0, 7.0)
    names = [one.tolist() for one in gibbs.groups(found * np.outer(scale, scale))]
    assert names == [[0, 3, 5], [1, 2]] and gibbs.groups(np.eye(3)) == []


def swept(together, seed):
    """Sweep rows that miss three columns, given the fourth."""
    x = np.random.default_rng(seed).normal(size=(N, 4))
    x[:, :3] = np.nan
    x[:2, :3] = 0.0, 1.0, 2.0  # some cells make a marginal
    x[1] += 1.0
    data = Incomplete.from_array(x)
    latents = Latents.of(data, torch.ones(N).double(), ["numeric"] * 4, [0] * 4)
    rows = Rows.of(latents, latents.bounds(data))
    factors = Factors.of(Normal(torch.zeros(4).double(), torch.tensor(C)), latents)
    assert list(factors.lines) == [0]
    z = rows.start(torch.zeros(4).double())
    with seeded(seed):
        for _ in range(SWEEPS):
            rows.redraw(z, factors if together else factors._replace(lines={}))
    return z[:, 2:]


def test_few_sweeps_draw_columns_that_are_all_missing(seed):
    """Given the fourth column the variance of the first is .64; without lines ~0.

    The chain of the mean along the line is independent from sweep to sweep; variances
    of N draws have the relative deviation sqrt(2 / N), and slopes .8 / sqrt(N).
    """
    z = swept(True, seed)
    slope = np.cov(z[0], z[3])[0, 1] / z[3].var()
    left = z[0] - slope * z[3]
    assert abs(slope - 0.6) < 4 * 0.8 / np.sqrt(N)
    assert abs(left.var() / 0.64 - 1) < 4 * np.sqrt(2 / N)
    for other in (z[0] - z[1], z[0] + z[2]):
        assert other.std() < 0.04  # .02; a chain of twelve sweeps has not more
    z = swept(False, seed)
    assert (z[0] - 0.6 * z[3]).std() > 3 * 0.04 and z[0].std() < 0.3


# Draws of the latent variables of a column of many levels


N_LEVELS, N_ROWS = 70, 40
BLOCK = slice(2, 2 + N_LEVELS)


def given_others(rng):
    """Draw a covariance of two numbers, a nominal column, and a number."""
    size = N_LEVELS + 3
    root = rng.normal(size=(size, 2 * size))
    precision = np.linalg.inv(root @ root.T / size)
    slopes = precision / precision.diagonal()[:, None]
    scales = precision.diagonal() ** -0.5
    mean = rng.normal(size=size)
    return GivenOthers.of(BLOCK, slopes, slopes @ mean, scales), slopes, mean


def rows_of(rng):
    levels = rng.integers(-1, N_LEVELS, N_ROWS)
    z = rng.normal(size=(N_LEVELS + 3, N_ROWS))
    seen = levels >= 0
    z[2 + levels[seen], seen] = 5.0
    return Nominal.of(BLOCK, levels), z, rng.random(z.shape)


@pytest.mark.parametrize("together", [1, 32, 69])
def test_levels_follow_the_draws_of_all_before(together, rng, monkeypatch):
    """One at a time, of all levels: the definition of the Gibbs sampler."""
    given, slopes, mean = given_others(rng)
    column, z, uniform = rows_of(rng)
    expected, found = z.copy(), z.copy()
    own = 2 + column.levels, column.observed
    bound = np.full(N_ROWS, np.inf)
    bound[column.observed] = expected[own]

    def conditional(j):
        return expected[j] - slopes[j] @ (expected - mean[:, None])

    for k in range(N_LEVELS):
        j, rows = 2 + k, np.setdiff1d(np.arange(N_ROWS), column.rows_of[k])
        moved = nominal.below(conditional(j), given.scales[k], bound, uniform[j])
        expected[j, rows] = moved[rows]
    means = np.array([conditional(j)[row] for j, row in zip(*own, strict=True)])
    others = expected.copy()
    others[own] = -np.inf
    most = others[BLOCK].max(0)[column.observed]
    parts = given.scales[column.levels], most, uniform[own]
    expected[own] = nominal.above(means, *parts)

    monkeypatch.setattr(nominal, "_TOGETHER", together)
    column.sweep(found, given, uniform)
    some = column.observed
    np.testing.assert_allclose(found[:, some], expected[:, some], atol=1e-8)
    np.testing.assert_array_equal(found[:2], z[:2])
    np.testing.assert_array_equal(found[-1], z[-1])


def test_missing_cells_have_their_joint_distribution(rng):
    """Maps of uniform numbers 1/2 are conditional means."""
    given, slopes, mean = given_others(rng)
    column, z, uniform = rows_of(rng)
    column.sweep(z, given, np.full_like(uniform, 0.5))
    gaps = slopes[BLOCK] @ (z - mean[:, None])  # z_j - E[z_j | others]
    np.testing.assert_allclose(gaps[:, column.missing], 0.0, atol=1e-7)
    assert abs(gaps[:, column.observed]).max() > 0.01
