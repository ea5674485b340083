"""EM for incomplete normal rows: monotone, at the maximum, and its posterior."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from oracles import GATE, z_mean
from scipy import stats
from scipy.optimize import minimize
from scipy.stats import chi2, kstest, norm
from statistical import FAILURE, p_mean
from torch.testing import assert_close

from skvnce._core.distributions.normal import Normal, arrange, prepare
from skvnce._core.incomplete import Incomplete, Parts, Rows
from skvnce._core.random import seeded
from skvnce.gaussian import em, posterior

D, N = 3, 60
COVARIANCE = np.array([[1.0, 0.6, -0.3], [0.6, 1.5, 0.2], [-0.3, 0.2, 0.8]])


def table(rng, n=N, rate=0.3):
    x = rng.multivariate_normal(np.zeros(D), COVARIANCE, size=n)
    observed = rng.uniform(size=x.shape) > rate
    return Incomplete(torch.tensor(x * observed), torch.tensor(observed))


@pytest.fixture
def data(seed):
    return table(np.random.default_rng(seed))


START = Normal(torch.zeros(D).double(), torch.eye(D).double())


def fit(data, strength=0.5, weights=None, tol=1e-10):
    weights = torch.ones(len(data.x)).double() if weights is None else weights
    return em.fit_normal(data, weights, strength, START, max_iter=2000, tol=tol)


def objective(normal, data, strength):
    value = em.log_prob(normal, data).sum()
    return float(value - em.penalty(prepare(normal), strength))


@pytest.mark.parametrize("strength", [0.0, 3.0])
def test_em_never_lowers_the_objective(data, strength):
    objectives = fit(data, strength).objectives
    assert len(objectives) > 5 and np.diff(objectives).min() > -1e-9
    assert objectives[-1] > objectives[0] + 1


@pytest.mark.parametrize("max_iter", range(1, 25))
def test_where_it_stops_is_not_below_where_it_was(max_iter, seed):
    """Also where the last round ends on a jump."""
    data = table(np.random.default_rng(seed), rate=0.6)
    weights = torch.ones(len(data.x)).double()
    found = em.fit_normal(data, weights, 0.1, START, max_iter=max_iter, tol=0)
    assert objective(found.normal, data, 0.1) > found.objectives[-1] - 1e-9


@pytest.mark.parametrize("strength", [0.5, 5.0])
def test_its_limit_is_the_maximum(data, strength):
    lower = np.tril_indices(D)

    def normal_of(vector):
        root = np.zeros((D, D))
        root[lower] = vector[D:]
        return Normal(torch.tensor(vector[:D]), torch.tensor(root @ root.T))

    found = minimize(
        lambda vector: -objective(normal_of(vector), data, strength),
        np.concatenate([np.zeros(D), np.eye(D)[lower]]),
        method="BFGS",
        options={"gtol": 1e-6},
    )
    best, ours = normal_of(found.x), fit(data, strength).normal
    assert objective(ours, data, strength) >= -found.fun - 1e-7
    for a, b in zip(ours, best, strict=True):
        assert_close(a, b, rtol=0, atol=1e-4)


def test_on_complete_data_it_is_the_sample_covariance(seed):
    data = table(np.random.default_rng(seed), rate=0.0)
    x, found = data.x.numpy(), fit(data, 0.0)
    assert len(found.objectives) <= 3
    assert_allclose(found.normal.mean, x.mean(0), atol=1e-12)
    assert_allclose(found.normal.covariance, np.cov(x.T, bias=True), atol=1e-12)


def test_weights_count_rows(data):
    count = torch.arange(len(data.x)) % 3
    repeated = data.take(torch.arange(len(data.x)).repeat_interleave(count))
    for a, b in zip(
        fit(data, weights=count.double()).normal, fit(repeated).normal, strict=True
    ):
        assert_close(a, b, rtol=0, atol=1e-8)


def test_parameters_of_complete_rows_have_their_known_posterior(seed, rng):
    x = rng.multivariate_normal(np.ones(D), COVARIANCE, size=30)
    strength, weights = 2.0, torch.ones(30).double()
    data = Incomplete(torch.tensor(x), torch.ones(30, D).bool())
    moments = em.drawn_moments(START, arrange(*data), weights)
    with seeded(seed):
        given = START.mean, moments, weights.sum(), strength
        draws = [em.draw_parameters(*given) for _ in range(4000)]
    covariances = np.stack([covariance.numpy() for _, covariance in draws])
    scatter = 30 * np.cov(x.T, bias=True) + strength * np.eye(D)
    expected = scatter / (30 - 1 + strength - D - 1)  # of the inverse Wishart
    flat = covariances.reshape(-1, D * D)
    assert np.abs(z_mean(flat, expected.ravel())).max() < GATE
    means = np.stack([mean.numpy() for mean, _ in draws]) - x.mean(0)
    assert np.abs(z_mean(means, 0.0)).max() < GATE
    std = means[:, :, None] * means[:, None, :]
    assert np.abs(z_mean(std.reshape(-1, 9), expected.ravel() / 30)).max() < GATE
    assert np.abs(z_mean(flat, expected.ravel() * 1.1)).max() > GATE


def test_draws_of_parameters_with_holes_have_their_known_posterior(seed, rng):
    """Monotone missingness: of the complete column it is that of complete rows."""
    x, observed = rng.normal(size=(25, 2)), np.ones((25, 2), dtype=bool)
    observed[:8, 1] = False
    data = Incomplete(torch.tensor(x * observed), torch.tensor(observed))
    start = Normal(torch.zeros(2).double(), torch.eye(2).double())
    with seeded(seed):
        ones = torch.ones(25).double()
        draws = em.posterior_draws(start, data, ones, 2.0, n_draws=600)
    variance = np.array([float(draw.covariance[0, 0]) for draw in draws])
    mean = np.array([float(draw.mean[0]) for draw in draws])
    scatter = 25 * x[:, 0].var() + 2.0
    # a marginal of the inverse Wishart: scatter / chi2 with d - 1 degrees fewer
    assert kstest(scatter / variance, chi2(25 - 1 + 2 - 1).cdf).pvalue > 1e-4
    assert kstest(scatter / variance, chi2(25 - 1 + 2 + 6).cdf).pvalue < 1e-4
    z = (mean - x[:, 0].mean()) / np.sqrt(variance / 25)
    assert kstest(z, norm.cdf).pvalue > 1e-4


def test_a_weight_counts_draws_of_its_own(seed):
    """The sum of w draws has w times the variance of one, not its square."""
    n, weight = 400, torch.tensor([9.0]).double()
    normal = Normal(torch.zeros(1).double(), torch.eye(1).double())
    batches = arrange(torch.zeros(1, 1).double(), torch.zeros(1, 1).bool())
    with seeded(seed):
        found = [em.drawn_moments(normal, batches, weight) for _ in range(n)]
    first = np.array([float(moments.first) for moments in found])
    second = np.array([float(moments.second) for moments in found])
    assert p_mean(first, 0.0) > FAILURE
    square = chi2(n).cdf((first**2).sum() / 9)
    assert FAILURE / 2 < square < 1 - FAILURE / 2
    # 6 E[xx'] + 3 x^2 of one draw x
    assert_allclose(second, 6 + first**2 / 3)


def test_draws_of_parameters_are_burnt_in_and_thinned(data, monkeypatch):
    made, draw = [], em.draw_parameters

    def recorded(*arguments):
        made.append(draw(*arguments))
        return made[-1]

    monkeypatch.setattr(em, "steps_between_draws", lambda rate: 4)
    monkeypatch.setattr(em, "draw_parameters", recorded)
    weights = torch.ones(len(data.x)).double()
    found = em.posterior_draws(START, data, weights, 0.5, n_draws=3)
    assert len(made) == 1 + 2 * 4 + 3 * 4  # the first is of the rate
    for drawn, place in zip(found, (12, 16, 20), strict=True):
        assert drawn is made[place]


def test_jumps_that_lower_the_objective_are_taken_back(data, monkeypatch):
    exact = fit(data)

    def far(first, second, third, is_valid):
        return Normal(third.mean + 3, 5 * third.covariance)

    monkeypatch.setattr(em, "extrapolate", far)
    found = fit(data)
    assert np.diff(found.objectives).min() > -1e-9
    assert_close(found.normal.mean, exact.normal.mean, atol=1e-6, rtol=0)
    assert_close(found.normal.covariance, exact.normal.covariance, atol=1e-6, rtol=0)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("rows", "freedom"), [(1, D + 2), (D + 3, D + 2), (20, 19)])
def test_drawn_covariances_have_a_mean_also_of_few_rows(rows, freedom, seed):
    """``l' S^-1 l`` is chi-squared with the degrees of freedom, if ``l' l`` is 1."""
    total = torch.tensor(float(rows)).double()
    moments = em.Moments(torch.zeros(D).double(), torch.eye(D).double())
    with seeded(seed):
        given = START.mean, moments, total, 0.0
        drawn = [em.draw_parameters(*given).covariance for _ in range(2000)]
    square = torch.linalg.inv(torch.stack(drawn))[:, 0, 0].numpy()
    assert kstest(square, chi2(freedom).cdf).pvalue > FAILURE
    for wrong in (freedom - 2, freedom + 2):
        assert kstest(square, chi2(wrong).cdf).pvalue < FAILURE


@pytest.mark.parametrize(
    ("rate", "steps"), [(0.0, 1), (0.2, 1), (0.5, 2), (0.9, 12), (0.99, 20), (1.1, 20)]
)
def test_steps_follow_the_rate_of_em(rate, steps):
    assert em.steps_between_draws(rate) == steps


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_rate_of_em_of_one_column_is_the_share_that_is_missing(share, seed):
    """``mean' = share * mean + (1 - share) * average``, and so the variance."""
    x = torch.tensor(np.random.default_rng(seed).normal(size=(N, 1)))
    seen = torch.arange(N)[:, None] >= share * N
    data, ones = Incomplete(x.where(seen, 0.0), seen), torch.ones(N).double()
    start = Normal(torch.zeros(1).double(), torch.eye(1).double())
    point = em.fit_normal(data, ones, 0.0, start, max_iter=2000, tol=1e-12).normal
    with seeded(seed):
        rate = em.rate_of_em(point, data, ones, 0.0)
    assert rate == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_rounding_is_no_rate_of_em(share, seed):
    """Where less than one cell in 100 is missing, each draw takes one step."""
    for table in range(10):
        rng = np.random.default_rng([seed, table])
        x = torch.tensor(rng.multivariate_normal(np.zeros(D), COVARIANCE, size=200))
        seen = torch.ones(200, D).bool()
        seen[: int(200 * share), 0] = False
        data, ones = Incomplete(x.where(seen, 0.0), seen), torch.ones(200).double()
        with seeded(table):
            rate = em.rate_of_em(START, data, ones, 0.1)
        assert em.steps_between_draws(rate) == 1


def test_the_prior_is_chosen_by_held_out_cells(seed):
    """Of 30 rows noise takes a stronger one: log10 by 1.8 +- 1.7, in 100 tables."""
    rng, strengths, n = np.random.default_rng(seed), [300.0, 3.0, 0.03], 30

    def chosen(scatter):
        x = rng.multivariate_normal(np.zeros(D), scatter, size=n)
        data = Incomplete(torch.tensor(x), torch.ones(n, D).bool())
        hidden = torch.tensor(rng.uniform(size=x.shape) < 0.3)
        effort = {"max_iter": 50, "tol": 1e-3}
        weights = torch.ones(n).double()
        choice = em.choose_strength(data, hidden, weights, strengths, START, **effort)
        return np.log10(choice[0])

    kinds = COVARIANCE * 2, np.eye(D)
    linked, noise = (np.mean([chosen(one) for _ in range(20)]) for one in kinds)
    assert linked < noise


# Sums over a large table from a sample of its rows


def shifted_table(n, seed):
    rng = np.random.default_rng(seed)
    root = [[1.0, 0.0, 0.0], [0.7, 0.7, 0.0], [0.3, 0.5, 0.8]]
    X = rng.normal(size=(n, D)) @ np.transpose(root) + [1.0, 2.0, 3.0]
    X[rng.random(X.shape) < 0.3] = np.nan
    return Incomplete.from_array(X)


def rows_of(data, some=slice(None)):
    part = data.take(some)
    return Rows(part, torch.ones(len(part.x)).double())


def fitted(rows):
    return em.fit_table(rows.condensed(), 0.1, START, max_iter=200, tol=1e-5).normal


def test_moments_about_another_mean():
    by = torch.tensor([1.0, -2.0, 0.5]).double()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(20, D)))
    sums = em.Moments(x.sum(0), x.T @ x)
    moved = x + by
    found = sums.shifted(by, torch.tensor(20.0).double())
    assert_close(found.first, moved.sum(0))
    assert_close(found.second, moved.T @ moved)
    assert (sums.second - found.second).abs().max() > 1  # negative control


def test_sums_over_parts_are_those_over_rows():
    data = shifted_table(50, 0)
    ends = [slice(0, 7), slice(7, 7), slice(7, 50)]

    def reduce(of, merge):
        first, *rest = (of(rows_of(data, some)) for some in ends)
        for one in rest:
            first = merge(first, one)
        return first

    parts = Parts(reduce, torch.tensor(50.0).double())
    double = parts.mapped(lambda one: one._replace(x=2 * one.x))
    twice = rows_of(data._replace(x=2 * data.x))
    for found, rows in ((parts, rows_of(data)), (double, twice)):
        given, effort = (0.1, START), {"max_iter": 50, "tol": 1e-6}
        tables = [one.condensed() for one in (found, rows)]
        fits = [em.fit_table(one, *given, **effort) for one in tables]
        for a, b in zip(fits[0].normal, fits[1].normal, strict=True):
            assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_of_all_rows_the_draws_are_those_of_data_augmentation(seed):
    rows = rows_of(shifted_table(200, seed))
    estimate = fitted(rows)
    with seeded(seed):
        exact = em.posterior_draws(estimate, rows.data, rows.weights, 0.1, n_draws=3)
    found = []
    for total in (None, 200.0):
        with seeded(seed):
            given = estimate, rows, total, 0.1
            found.append(posterior.posterior_draws(*given, n_draws=3))
    for one, same, near in zip(exact, *found, strict=True):
        assert_close(one.covariance, same.covariance, rtol=0, atol=0)
        assert_close(one.covariance, near.covariance, atol=1e-3, rtol=0)
        assert_close(one.mean, near.mean, atol=1e-3, rtol=0)


def test_draws_from_a_sample_are_those_of_the_table(seed):
    """They lie around the estimate from all rows, with the spread of all rows."""
    data = shifted_table(4000, seed)
    rows, sample = rows_of(data), rows_of(data, slice(0, 400))
    estimate, own = fitted(rows), fitted(sample)

    def drawn(part, total, start=estimate):
        with seeded(seed):
            found = posterior.posterior_draws(start, part, total, 0.1, n_draws=100)
        return torch.stack([torch.cat([m, S.diagonal().log()]) for m, S in found])

    many, few = drawn(rows, None), drawn(sample, 4000.0)
    small = drawn(sample, None, own)
    # 100 draws with an autocorrelation of up to 0.3 are at least 50 independent ones,
    # and the spread that the sample estimates is known to 13 %
    most = 1.4 * stats.f.isf(FAILURE / 4 / D, 49, 49)
    ratio, wrong = (one.var(0) / many.var(0) for one in (few, small))
    assert ((ratio < most) & (ratio > 1 / most)).all()
    assert (wrong > most).any() and (wrong > 3).all()  # ten times fewer rows
    centre = torch.cat([estimate.mean, estimate.covariance.diagonal().log()])
    assert p_mean((few - centre)[::3], 0.0) > FAILURE
    # negative control: the estimate of a tenth of the rows is off by three times the
    # deviation of the draws, as the root of 1 / 400 - 1 / 4000 is that of 9 / 4000
    elsewhere = few + 3 * many.std(0)
    assert p_mean((elsewhere - centre)[::3], 0.0) < FAILURE


def test_draws_of_a_sample_with_a_far_row_are_positive_definite(seed):
    data = shifted_table(60, seed)
    x, observed = data.x.clone(), data.observed.clone()
    x[0], observed[0] = torch.tensor([40.0, 0.0, 0.0]), torch.tensor([1, 0, 0])
    rows = rows_of(Incomplete(x, observed))
    estimate = fitted(rows_of(data, slice(1, None)))
    with seeded(seed):
        draws = posterior.posterior_draws(estimate, rows, 6e4, 0.1, n_draws=5)
    for one in draws:
        assert torch.linalg.eigvalsh(one.covariance)[0] > 0
        assert (one.mean - estimate.mean).abs().max() < 0.1
