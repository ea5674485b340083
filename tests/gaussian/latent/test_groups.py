"""Random effects of groups against exact distributions of small models."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from statistical import FAILURE, p_mean, standard_errors

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import global_stream, seeded
from skvnce.gaussian.groups_model import GroupedNormal, Slopes
from skvnce.gaussian.latent import fill
from skvnce.gaussian.latent.censored import linear
from skvnce.gaussian.latent.columns import Latents, Marginal
from skvnce.gaussian.latent.fill import Chains
from skvnce.gaussian.latent.groups import (
    FREEDOM,
    RIDGE,
    SCALE,
    Effects,
    GroupedRows,
    GroupFactors,
    Groups,
    Levels,
    _draw_scales,
    _rescale,
    draw_covariance,
    log_density_of_scales,
    posterior_draws,
)


def levels_of(n_rows, n_of_groups=0, n_slopes=0):
    """Make columns of standard scores: of rows, of groups, and of slopes."""
    d = n_rows + n_of_groups + n_slopes
    latents = Latents([linear(0.0, 1.0)] * d, list(range(d)), [1] * d)
    places = list(range(d))
    end = n_rows + n_of_groups
    return Levels.of(latents, places[n_rows:end], places[end:])


def normal(d, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d + 3)) / (d + 3) ** 0.5
    found = scale * (root @ root.T + 0.3 * np.eye(d))
    return Normal(torch.tensor(rng.normal(size=d)), torch.tensor(found))


def effects_of(levels, seed=0):
    """Make parameters, of correlated effects and residuals."""
    within = normal(levels.rows.size, seed, 0.6)
    between = normal(levels.n_random + levels.groups.size, seed + 1)
    return Effects(Normal(torch.zeros_like(within.mean), within.covariance), between)


def probit(threshold):
    """Make the marginal of a column of two levels."""
    edge, far = (torch.full((1,), one).double() for one in (threshold, torch.inf))
    values = torch.arange(2).double()
    return Marginal(values, torch.cat([-far, edge]), torch.cat([edge, far]))


def joint(effects, design, n_of_groups):
    """Compute mean and covariance of (m, z of all rows, v) of one group.

    By the linear map of (m, v, residuals), and not by precisions; design is
    (n_rows, n_effects).
    """
    within = effects.within.covariance.numpy()
    mean, between = effects.between.mean.numpy(), effects.between.covariance.numpy()
    size, (n, _) = len(within), design.shape
    k = len(mean) - n_of_groups
    maps = np.zeros((k + n * size + n_of_groups, len(mean) + n * size))
    maps[:k, :k] = np.eye(k)
    for i, w in enumerate(design):
        rows = slice(k + i * size, k + (i + 1) * size)
        for e, one in enumerate(w):
            maps[rows, e * size : (e + 1) * size] = one * np.eye(size)
        own = len(mean) + i * size
        maps[rows, own : own + size] = np.eye(size)
    maps[k + n * size :, k : len(mean)] = np.eye(n_of_groups)
    base = np.zeros((maps.shape[1],) * 2)
    base[: len(mean), : len(mean)] = between
    base[len(mean) :, len(mean) :] = np.kron(np.eye(n), within)
    return maps @ np.append(mean, np.zeros(n * size)), maps @ base @ maps.T


def conditional(mean, covariance, wanted, given, values):
    """Condition a normal distribution on some of its variables."""
    S, k = covariance, np.ix_(given, wanted)
    gain = np.linalg.solve(S[np.ix_(given, given)], S[k]).T
    left = covariance[np.ix_(wanted, wanted)] - gain @ covariance[np.ix_(given, wanted)]
    return mean[wanted] + gain @ (values - mean[given]), left


def drawn_effects(groups, z, v, effects):
    """Return the mean and the covariance of effects of each group by `effects`."""
    levels = groups.levels
    cells = np.vstack([z, v[:, groups.codes]]).T
    slopes = np.zeros((len(cells), levels.n_effects - 1))
    data = Incomplete.from_array(np.hstack([cells, slopes]))
    rows = GroupedRows.of(groups, levels.whole.bounds(data))
    draw = partial(rows.effects, z, v, GroupFactors.of(effects, levels))
    zero = np.zeros((levels.n_random, groups.number))
    mean = draw(zero)
    moved = []
    for k in range(len(zero)):
        noise = zero.copy()
        noise[k] = 1
        moved.append(draw(noise) - mean)
    moved = np.array(moved)  # (noise, effect, group)
    return mean, np.einsum("kig,kjg->gij", moved, moved)


CODES = np.array([0, 1, 1, 2, 2, 2, 2, 0, 2, 3])


@pytest.mark.parametrize("n_of_groups", [0, 2])
@pytest.mark.parametrize("n_slopes", [0, 1, 2])
def test_effects_have_the_conditional_distribution(n_of_groups, n_slopes):
    levels = levels_of(2, n_of_groups, n_slopes)
    effects, rng = effects_of(levels), np.random.default_rng(3)
    slopes = rng.normal(size=(len(CODES), n_slopes))
    z, v = rng.normal(size=(2, len(CODES))), rng.normal(size=(n_of_groups, 4))
    groups = Groups.of(levels, CODES, slopes)
    means, covariances = drawn_effects(groups, z, v, effects)
    k = levels.n_random
    for g in range(4):
        rows = CODES == g
        both = joint(effects, groups.design.T[rows], n_of_groups)
        given, values = np.arange(k, len(both[0])), np.append(z[:, rows].T, v[:, g])
        mean, covariance = conditional(*both, np.arange(k), given, values)
        np.testing.assert_allclose(means[:, g], mean, atol=1e-10)
        np.testing.assert_allclose(covariances[g], covariance, atol=1e-10)
        values[0] += 0.1
        moved = conditional(*both, np.arange(k), given, values)[0]
        assert abs(moved - mean).max() > 1e-3


def test_a_weight_of_two_is_a_repeated_row():
    levels, rng = levels_of(2, 1, 1), np.random.default_rng(5)
    effects, slopes = effects_of(levels), rng.normal(size=(len(CODES), 1))
    z, v = rng.normal(size=(2, len(CODES))), rng.normal(size=(1, 4))
    weights = np.ones(len(CODES))
    weights[[1, 5]] = 2.0
    again = np.append(np.arange(len(CODES)), [1, 5])
    weighted = Groups.of(levels, CODES, slopes, weights)
    repeated = Groups.of(levels, CODES[again], slopes[again])
    found = drawn_effects(weighted, z, v, effects)
    expected = drawn_effects(repeated, z[:, again], v, effects)
    once = drawn_effects(Groups.of(levels, CODES, slopes), z, v, effects)
    for one, other, wrong in zip(found, expected, once, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
        assert abs(one - wrong).max() > 1e-3


def test_groups_have_any_numbers(rng_0):
    numbers = np.array([70, 3, 70, 9, -4, 3, 70])
    levels = levels_of(1, 0, 1)
    groups = Groups.of(levels, numbers, rng_0.normal(size=(7, 1)))
    assert groups.codes.tolist() == [3, 1, 3, 2, 0, 1, 3] and groups.number == 4
    assert groups.heads().tolist() == [4, 1, 3, 0]
    values = rng_0.normal(size=(2, 7))
    parts = [values[:, numbers == one] for one in (-4, 3, 9, 70)]
    for most in (np.add, np.maximum, np.minimum):
        expected = np.stack([most.reduce(one, axis=1) for one in parts], axis=1)
        own = groups.sums(values) if most is np.add else groups.extremes(values, most)
        np.testing.assert_allclose(own, expected)
    m = rng_0.normal(size=(2, 4))
    expected = m[0, groups.codes] + m[1, groups.codes] * groups.design[1]
    np.testing.assert_allclose(groups.means(m), expected[None])


PROBIT = {"beta": 0.3, "psi": 1.5, "omega": 0.8, "threshold": -0.2}
CELLS = [[1, 1, np.nan], [0, 0, 1, 0], [1, 1]]
COPIES = 500  # of the groups, whose chains are independent


def probit_posterior():
    """Compute E[m_g] of each group, and P(missing cell is 1), by quadrature."""
    beta, psi, omega, threshold = PROBIT.values()
    m = np.linspace(-9, 9, 4001)
    share = stats.norm.cdf((m - threshold) / omega**0.5)
    means, chance = [], None
    for cells in CELLS:
        density = stats.norm.pdf(m, beta, psi**0.5)
        for cell in cells:
            if cell == cell:
                density = density * (share if cell else 1 - share)
        density /= density.sum()
        means.append(density @ m)
        if np.isnan(cells).any():
            chance = density @ share
    return np.array(means), chance


def probit_model():
    """Make copies of the groups of the probit model."""
    beta, psi, omega, threshold = PROBIT.values()
    levels = Levels.of(Latents([probit(threshold)], [0], [1]), [])
    ends = [torch.tensor([[one]], dtype=torch.float64) for one in (omega, psi)]
    mean = torch.tensor([beta], dtype=torch.float64)
    effects = Effects(Normal(0 * mean, ends[0]), Normal(mean, ends[1]))
    codes = np.repeat([0, 1, 2], [3, 4, 2])
    codes = (codes + 3 * np.arange(COPIES)[:, None]).ravel()
    cells = np.tile(np.concatenate(CELLS), COPIES)[:, None]
    groups = Groups.of(levels, codes, np.zeros((len(codes), 0)))
    return groups, GroupFactors.of(effects, levels), Incomplete.from_array(cells)


def test_effects_of_levels_follow_their_posterior(seed):
    groups, given, data = probit_model()
    rows = GroupedRows.of(groups, groups.levels.whole.bounds(data))
    z = rows.start(given.normal.mean)
    with seeded(seed):
        for _ in fill.sweep_models(rows, z, [given], Chains(80, 1)):
            pass
    draws = rows.parts(z)[2].reshape(COPIES, 3)
    means = probit_posterior()[0]
    assert p_mean(draws, means) > FAILURE
    assert p_mean(draws, np.full(3, PROBIT["beta"])) < FAILURE


def test_probabilities_of_a_missing_level_use_the_other_rows(seed):
    groups, given, data = probit_model()
    with seeded(seed):
        rest = (
            Chains(40, 40),
            global_stream,
            (),
            partial(GroupedRows.of, groups.twice()),
        )
        pairs = fill.Pairs(groups.levels.whole, [given], data, *rest)
        found = fill.predict(pairs, {0})
    p = found.probabilities[0].numpy()[2::9, 1]
    assert p_mean(p, probit_posterior()[1]) > FAILURE
    beta, psi, omega, threshold = PROBIT.values()
    alone = stats.norm.cdf((beta - threshold) / (psi + omega) ** 0.5)
    assert p_mean(p, alone) < FAILURE


def grouped_model(n_slopes, seed=1):
    """Make a model of two columns of rows and one of groups, and rows of 4 groups.

    They have a row without an observed cell, a group without its cell, and a group
    without any.
    """
    levels = levels_of(2, 1, n_slopes)
    places = list(range(3, 3 + n_slopes))
    slopes = Slopes(places, np.full(n_slopes, 0.2), np.full(n_slopes, 1.3))
    kinds = ["numeric"] * (3 + n_slopes)
    model = GroupedNormal(levels, [2], slopes, kinds, [effects_of(levels, seed)])
    rng = np.random.default_rng(seed)
    numbers = np.repeat([4.0, 0.0, 9.0, 2.0], [3, 2, 4, 2])
    nodes = rng.normal(size=(len(numbers), 3 + n_slopes))
    nodes[:, 2] = rng.normal(size=10)[numbers.astype(int)]
    nodes[[1, 4], [0, 1]] = np.nan
    nodes[2, :2] = np.nan  # a row whose group is known
    nodes[[0, 1], 2] = np.nan  # which a third row of the group has
    nodes[5:9, 2] = np.nan
    nodes[[5, 6], [0, 0]] = np.nan
    nodes[9:, :3] = np.nan
    return model, np.column_stack([nodes, numbers])


def exact_cells(model, nodes):
    """Compute means (n, 3), and the covariances of missing cells of each group."""
    means, covariances = nodes[:, :3].copy(), {}
    for g in np.unique(nodes[:, -1]):
        rows = np.flatnonzero(nodes[:, -1] == g)
        design = np.column_stack([np.ones(len(rows)), model.slopes.of(nodes[rows])])
        mean, covariance = joint(model.effects[0], design, 1)
        k = model.levels.n_random
        mean, covariance = mean[k:], covariance[k:, k:]
        own = nodes[rows, 2]
        known = own[~np.isnan(own)]
        v = known[0] if len(known) else np.nan
        cells = np.append(nodes[rows, :2], v)
        lost = np.isnan(cells)
        wanted, given = np.flatnonzero(lost), np.flatnonzero(~lost)
        found = conditional(mean, covariance, wanted, given, cells[given])
        cells[wanted], covariances[g] = found
        means[rows, :2] = cells[:-1].reshape(-1, 2)
        means[rows, 2] = cells[-1]
    return means, covariances


@pytest.mark.parametrize("n_slopes", [0, 1])
def test_numbers_are_filled_by_their_conditional_means(n_slopes):
    """Errors of both chains cancel, so that what is left is the start."""
    model, nodes = grouped_model(n_slopes)
    filled, probabilities = model.fill(nodes)
    means, covariances = exact_cells(model, nodes)
    assert probabilities == {}
    np.testing.assert_array_equal(filled[:, 3:], nodes[:, 3:])
    least = min(np.diag(one).min() for one in covariances.values() if len(one)) ** 0.5
    assert abs(filled[:, :3] - means).max() < 0.02 * least
    # a group alone, in another order, and with another number
    rows = [8, 5, 7, 6]
    own = nodes[rows].copy()
    own[:, -1] = 3
    np.testing.assert_allclose(model.fill(own)[0][:, :3], filled[rows, :3])
    own[0, 1] += 4  # an observed cell of another row
    assert abs(model.fill(own)[0][3, 0] - filled[6, 0]) > 0.05


@pytest.mark.parametrize("n_slopes", [0, 1])
def test_draws_have_the_conditional_covariance_of_all_rows_of_a_group(n_slopes, seed):
    model, nodes = grouped_model(n_slopes)
    means, covariances = exact_cells(model, nodes)
    copies, n = 1500, len(nodes)
    several = np.tile(nodes, (copies, 1))
    several[:, -1] += 10 * np.repeat(np.arange(copies), n)
    with seeded(seed):
        [drawn] = model.draw(several, 1)
    drawn = drawn[:, :3].reshape(copies, n, 3)
    known = model.determined(nodes)[:, :3]
    missing = np.isnan(known)
    assert (drawn[:, ~missing] == known[~missing]).all()
    assert p_mean(drawn[:, missing], means[missing]) > FAILURE
    products, exact, across = [], [], []
    for g, covariance in covariances.items():
        rows = np.flatnonzero(nodes[:, -1] == g)
        of_rows = missing[rows, :2]
        v = means[rows[0], 2]
        parts = [drawn[:, rows, :2][:, of_rows] - means[rows, :2][of_rows]]
        labels = np.nonzero(of_rows)[0].tolist()
        if len(covariance) > len(labels):
            parts.append(drawn[:, rows[:1], 2] - v)
            labels.append(-1)
        apart = np.hstack(parts)
        for i, j in zip(*np.tril_indices(len(labels)), strict=True):
            products.append(apart[:, i] * apart[:, j])
            exact.append(covariance[i, j])
            across.append(labels[i] != labels[j])
    products, exact, across = np.array(products).T, np.array(exact), np.array(across)
    assert p_mean(products, exact) > FAILURE
    independent = np.where(across, 0.0, exact)
    assert p_mean(products, independent) < FAILURE


def test_the_prior_of_covariances_is_that_of_huang_and_wand(seed):
    """Half-t standard deviations with 2 degrees of freedom, uniform correlations."""
    zero = torch.zeros(2, 2).double()
    covariance, found = torch.eye(2).double(), []
    with seeded(seed):
        for number in range(12_000):
            covariance = draw_covariance(zero, 0.0, covariance)
            if number % 12 == 11:
                found.append(covariance.numpy())
    found = np.array(found)
    deviations = np.diagonal(found, axis1=1, axis2=2) ** 0.5
    correlations = found[:, 0, 1] / deviations.prod(1)
    assert stats.kstest(correlations, stats.uniform(-1, 2).cdf).pvalue > FAILURE
    # not of two separate covariances of one column each
    assert stats.kstest(correlations, stats.uniform(-0.5, 1).cdf).pvalue < FAILURE

    def half_t(x, scale=1.0):
        return 2 * stats.t.cdf(x / scale, 2) - 1

    for own in deviations.T:
        assert stats.kstest(own, half_t).pvalue > FAILURE
        assert stats.kstest(own, partial(half_t, scale=2.0)).pvalue < FAILURE


def test_moments_of_a_row():
    levels = levels_of(2, 1, 1)
    effects = effects_of(levels)
    mean, covariance = joint(effects, np.array([[1.0, 0.0]]), 1)
    k = levels.n_random
    found = levels.moments(effects)
    np.testing.assert_allclose(found[0], mean[k:])
    np.testing.assert_allclose(found[1], covariance[k:, k:])
    _, other = joint(effects, np.array([[1.0, 0.5]]), 1)
    assert abs(other[k:, k:][:2, :2] - found[1][:2, :2].numpy()).max() > 0.1


def mixed_levels():
    """Make a number, two levels, three nominal levels, and two levels of groups."""
    marginals = [linear(0.0, 1.0), probit(0.4), None, probit(-0.3), linear(0.0, 1.0)]
    latents = Latents(marginals, [0, 1, 2, 5, 6], [1, 1, 3, 1, 1])
    return Levels.of(latents, [3], [4])


def test_scales_leave_the_distribution_of_cells():
    levels = mixed_levels()
    effects = effects_of(levels)
    scaled = effects.rescaled(levels, *levels.scales(effects))
    before, after = moments = [levels.moments(one) for one in (effects, scaled)]

    def chance(moments, k, threshold):
        return stats.norm.cdf((moments[0][k] - threshold) / moments[1][k, k].sqrt())

    for k, threshold in ((1, 0.4), (5, -0.3)):
        own = chance(before, k, threshold)
        assert chance(after, k, threshold) == pytest.approx(own)
    for k, j in ((2, 3), (2, 4), (3, 4)):
        apart = [(m[k] - m[j], S[k, k] + S[j, j] - 2 * S[k, j]) for m, S in moments]
        ratios = [gap / variance.sqrt() for gap, variance in apart]
        assert ratios[0] == pytest.approx(float(ratios[1]))
    roots = [one[1].diagonal().sqrt() for one in moments]
    pairs = zip(moments, roots, strict=True)
    correlations = [one[1] / torch.outer(root, root) for one, root in pairs]
    torch.testing.assert_close(*correlations)
    variances = levels.moments(scaled)[1].diagonal()
    old = levels.moments(effects)[1].diagonal()
    assert variances[[1, 5]] == pytest.approx(1.0)
    assert float(variances[2:5].mean()) == pytest.approx(1.0)
    assert float(variances[0]) == pytest.approx(float(old[0]))  # has its own scale
    assert abs(old[1] - 1) > 0.05
    again = scaled.rescaled(levels, *levels.scales(scaled))
    for one, other in zip(again.between, scaled.between, strict=True):
        torch.testing.assert_close(one, other)


def test_latent_variables_are_scaled_as_the_parameters_are():
    """Standardised residuals and effects do not change."""
    levels, codes = mixed_levels(), np.array([0, 1, 0, 1, 1])
    effects, rng = effects_of(levels), np.random.default_rng(2)
    groups = Groups.of(levels, codes, rng.normal(size=(5, 1)))
    size, k = levels.rows.size, levels.n_random
    m, v = rng.normal(size=(k, 2)), rng.normal(size=(1, 2))
    rows = groups.means(m) + rng.normal(size=(size, 5))
    z = np.vstack([rows, v[:, codes], m[:, codes]])
    moved = z.copy()
    scales = levels.scales(effects)
    _rescale(levels, moved, *scales)

    def standardised(z, effects):
        own = z[size + 1 :, [0, 1]]
        left = z[:size] - groups.means(own)
        both = np.vstack([own, z[size : size + 1, [0, 1]]])
        roots = [torch.linalg.cholesky(one.covariance).numpy() for one in effects]
        apart = both - effects.between.mean.numpy()[:, None]
        return np.linalg.solve(roots[0], left), np.linalg.solve(roots[1], apart)

    scaled = effects.rescaled(levels, *scales)
    pairs = standardised(z, effects), standardised(moved, scaled)
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    assert abs(moved - z).max() > 0.05


def simulated(effects, levels, n_groups, n_rows, rng):
    """Draw a complete table of groups: cells, numbers of groups, slopes."""
    mean, covariance = effects.between
    both = rng.multivariate_normal(mean.numpy(), covariance.numpy(), n_groups).T
    codes = np.repeat(np.arange(n_groups), n_rows)
    slopes = rng.normal(size=(len(codes), levels.n_effects - 1))
    groups = Groups.of(levels, codes, slopes)
    within = effects.within.covariance.numpy()
    noise = rng.multivariate_normal(np.zeros(len(within)), within, len(codes)).T
    k = levels.n_random
    cells = np.vstack([groups.means(both[:k]) + noise, both[k:, codes]]).T
    return groups, np.hstack([cells, slopes])


def flat(effects):
    """List the parameters."""
    parts = effects.within.covariance, effects.between.covariance
    lower = [one[torch.tril_indices(*one.shape).unbind()] for one in parts]
    return torch.cat([*lower, effects.between.mean]).numpy()


def test_parameters_are_recovered(seed):
    levels, rng = levels_of(2, 1, 1), np.random.default_rng(seed)
    effects = effects_of(levels)
    groups, cells = simulated(effects, levels, 250, 5, rng)
    hidden = rng.random(cells.shape) < [0.2, 0.2, 0.0, 0.0]
    data = Incomplete.from_array(np.where(hidden, np.nan, cells))
    with seeded(seed):
        fit = posterior_draws(groups, data, n_draws=10, n_sweeps=300)
    assert len(fit.draws) == 10 and len(fit.trace) == len(fit.losses) == 300
    found = np.array([flat(one) for one in fit.estimates])
    apart = abs(found.mean(0) - flat(effects)) / found.std(0)
    assert apart.max() < standard_errors(len(apart))
    wrong = flat(effects_of(levels, 7))
    assert (abs(found.mean(0) - wrong) / found.std(0)).max() > 10
    np.testing.assert_allclose(flat(fit.average()), found.mean(0))
    mean, covariance = levels.moments(fit.estimates[-1])
    within = fit.estimates[-1].within.covariance.diagonal()
    shares = np.append(1 - within / covariance.diagonal()[:2], 1.0)
    np.testing.assert_allclose(fit.trace[-1], [mean, shares])


def exact_correlation(codes, y):
    """Compute mean and deviation of the intra-class correlation, by a grid."""
    n, sums = np.bincount(codes), np.bincount(codes, y)
    axes = np.linspace(0.02, 2.2, 120), np.linspace(0.2, 1.4, 120)
    between, within = np.meshgrid(*axes, indexing="ij")
    variances = between[..., None] ** 2 + within[..., None] ** 2 / n
    weights, means = 1 / variances, sums / n
    centre = (weights * means).sum(-1) / weights.sum(-1)
    # the mean of all groups has a flat prior, and is integrated out
    squares = (weights * (means - centre[..., None]) ** 2).sum(-1)
    log_prob = -(np.log(variances).sum(-1) + squares + np.log(weights.sum(-1))) / 2
    left = (y**2).sum() - (n * means**2).sum()
    log_prob -= (len(y) - len(n)) * np.log(within) + left / within**2 / 2
    for deviation in (between, within):  # half-t, with 2 degrees of freedom
        log_prob -= 1.5 * np.log(1 + deviation**2 / 2)
    p = np.exp(log_prob - log_prob.max())
    shares = between**2 / (between**2 + within**2)
    mean = (p * shares).sum() / p.sum()
    return mean, ((p * (shares - mean) ** 2).sum() / p.sum()) ** 0.5


def test_the_posterior_of_the_intraclass_correlation_is_exact(seed):
    """With missing cells, and groups of several sizes; few, so that priors matter."""
    levels, rng = levels_of(1), np.random.default_rng(seed)
    parts = [torch.tensor([[one]], dtype=torch.float64) for one in (0.4, 0.6)]
    effects = Effects(*(Normal(torch.zeros(1).double(), one) for one in parts))
    groups, cells = simulated(effects, levels, 30, 5, rng)
    kept = rng.random(len(cells)) > 0.4
    kept[::5] = True
    with seeded(seed):
        data = Incomplete.from_array(np.where(kept[:, None], cells, np.nan))
        fit = posterior_draws(groups, data, n_draws=10, n_sweeps=1200)
    found = np.array(fit.trace)[-len(fit.estimates) :, 1, 0]
    mean, deviation = exact_correlation(groups.codes[kept], cells[kept, 0])
    # about 700 draws, of an autocorrelation time of about 10
    assert abs(found.mean() - mean) < 0.6 * deviation
    assert 0.65 < found.std() / deviation < 1.45
    other = exact_correlation(rng.permutation(groups.codes[kept]), cells[kept, 0])
    assert abs(found.mean() - other[0]) > deviation


# Common factors of effects and their standard deviations, against a grid


def log_prior(covariance):
    """Compute the log-density of a covariance: Huang and Wand (2013), eq. (2)."""
    d, inverse = len(covariance), np.linalg.inv(covariance)
    logs = np.log(FREEDOM * inverse.diagonal() + 1 / SCALE**2)
    found = -(FREEDOM + 2 * d) / 2 * np.linalg.slogdet(covariance)[1]
    return found - (FREEDOM + d) / 2 * logs.sum() - RIDGE / 2 * inverse.trace()


def test_the_density_of_scales_is_that_of_covariances(rng_0):
    """The Jacobian of s_k, given correlations, is the product of s_k^d."""
    covariance = np.cov(rng_0.normal(size=(3, 9)))
    scale = covariance.diagonal() ** 0.5
    inverse = np.linalg.inv(covariance).diagonal()[:2] * scale[:2] ** 2
    found, expected = [], []
    for factors in rng_0.uniform(0.3, 3, (5, 2)):
        all_of = np.append(factors, 1.0)
        moved = covariance * np.outer(all_of, all_of)
        expected.append(log_prior(moved) + 3 * np.log(factors).sum())
        found.append(log_density_of_scales(scale[:2] * factors, inverse, 3))
    np.testing.assert_allclose(np.diff(found), np.diff(expected))
    wrong = [log_density_of_scales(scale[:2] * f, 2 * inverse, 3) for f in (0.5, 1.0)]
    right = [log_density_of_scales(scale[:2] * f, inverse, 3) for f in (0.5, 1.0)]
    assert abs(np.diff(wrong) - np.diff(right)) > 0.1  # negative control


def grid_of(groups, z, standard, effects, factors):
    """Compute the probabilities of factors of the scales of an intercept and a slope.

    Of the likelihood of z, and of the prior of the whole covariance.
    """
    mean, covariance = (one.numpy() for one in effects.between)
    scale, k = covariance.diagonal() ** 0.5, len(standard)
    precision = np.linalg.inv(effects.within.covariance.numpy())
    found = np.empty((len(factors),) * k)
    for place in np.ndindex(*found.shape):
        one = factors[list(place)]
        m = mean[:k, None] + (one * scale[:k])[:, None] * standard
        left = z - groups.means(m)
        all_of = np.append(one, np.ones(len(mean) - k))
        moved = log_prior(covariance * np.outer(all_of, all_of))
        jacobian = len(mean) * np.log(abs(one)).sum()
        squares = np.einsum("in,ij,jn,n->", left, precision, left, groups.weights)
        found[place] = moved + jacobian - squares / 2
    found = np.exp(found - found.max())
    return found / found.sum()


@pytest.mark.quick(1)
@pytest.mark.parametrize("weight", [2.0, 1.0])
def test_scales_follow_their_conditional_distribution(weight, seed):
    """An intercept, a slope, and a column of groups; few groups of several sizes."""
    levels, rng = levels_of(1, 1, 1), np.random.default_rng(seed)
    effects = effects_of(levels)
    codes = np.repeat(np.arange(9), rng.integers(1, 5, 9))
    slopes, weights = rng.normal(size=(len(codes), 1)), np.full(len(codes), weight)
    groups = Groups.of(levels, codes, slopes, weights)
    mean, scale = effects.between.mean[:2], effects.between.covariance.diagonal()[:2]
    mean, scale = mean[:, None].numpy(), scale.sqrt()[:, None].numpy()
    standard = rng.normal(size=(2, groups.number))
    m = mean + scale * standard
    noise = effects.within.covariance.item() ** 0.5 * rng.normal(size=(1, len(codes)))
    z = groups.means(m) + noise
    known = Incomplete.from_array(np.column_stack([z[0], codes, slopes]))
    rows = GroupedRows.of(groups, levels.whole.bounds(known))
    # the signs of factors are those of correlations
    factors = np.linspace(-4.99, 5.01, 101)
    expected = grid_of(groups, z, standard, effects, factors)
    found = []
    with seeded(seed):
        for number in range(6000):
            m, effects = _draw_scales(rows, z, m, effects)
            if number % 6 == 5:
                found.append(((m - mean) / (standard * scale))[:, 0])
    for axis, own in enumerate(np.transpose(found)):
        cumulative = expected.sum(1 - axis).cumsum()
        middle = factors + (factors[1] - factors[0]) / 2  # of the steps
        cdf = partial(np.interp, xp=middle, fp=cumulative)
        assert stats.kstest(own, cdf).pvalue > FAILURE
        assert stats.kstest(1.5 * own, cdf).pvalue < FAILURE


def test_covariances_and_effects_have_the_same_factors():
    levels, rng = levels_of(2, 1), np.random.default_rng(0)
    before = effects_of(levels)
    groups, cells = simulated(before, levels, 30, 5, rng)
    rows = GroupedRows.of(groups, levels.whole.bounds(Incomplete.from_array(cells)))
    mean, covariance = before.between.mean.numpy(), before.between.covariance.numpy()
    m = mean[:2, None] + rng.normal(size=(2, 30))
    with seeded(0):
        for _ in range(20):
            own, after = _draw_scales(rows, cells[:, :2].T, m, before)
            if after is not before:
                break
    factor = (own - mean[:2, None]) / (m - mean[:2, None])
    np.testing.assert_allclose(factor, np.repeat(factor[:, :1], 30, 1))
    factor = np.append(factor[:, 0], 1.0)
    moved = covariance * np.outer(factor, factor)
    np.testing.assert_allclose(after.between.covariance.numpy(), moved)
    assert not np.allclose(moved, covariance) and after.within is before.within


def test_effects_of_no_variance_move_nothing_far():
    """The likelihood knows nothing of their scale, and the prior bounds it."""
    levels, rng = levels_of(1), np.random.default_rng(0)
    zero, small = torch.zeros(1).double(), torch.full((1, 1), 1e-12).double()
    effects = Effects(Normal(zero, torch.eye(1).double()), Normal(zero, small))
    groups = Groups.of(levels, np.repeat(np.arange(20), 3), np.zeros((60, 0)))
    z = rng.normal(size=(1, 60))
    rows = GroupedRows.of(groups, levels.whole.bounds(Incomplete.from_array(z.T)))
    m = 1e-6 * rng.normal(size=(1, 20))
    with seeded(0):
        for _ in range(50):
            m, effects = _draw_scales(rows, z, m, effects)
    assert 1e-4 < effects.between.covariance.item() ** 0.5 < 1
