"""Marginals of columns with censored cells."""

from functools import partial

import numpy as np
import pytest
import torch
from oracles import GATE
from scipy.special import ndtri
from scipy.stats import beta, expon, gamma, lognorm, norm, pareto, uniform, weibull_min
from statistical import FAILURE, p_share

from skvnce.gaussian.latent.censored import censored, estimate_shares, linear

INF = np.inf


def made(function, cells, low, high):
    """Call a function with cells and limits of weight one."""
    cells, low, high = (torch.tensor(one).double() for one in (cells, low, high))
    return function(cells, torch.ones_like(cells), (low, high), torch.ones_like(low))


def product_limit(cells, limits):
    """Estimate P(x <= v) at the values of left-censored cells (Kaplan and Meier).

    Backwards: of the cells known to be at most v, a share is equal to v.
    """
    values = np.unique(cells)
    share, found = 1.0, []
    for v in values[::-1]:
        found.append(share)
        at_risk = (cells <= v).sum() + (limits <= v).sum()
        share *= 1 - (cells == v).sum() / at_risk
    return values, np.array(found[::-1]), share


@pytest.mark.parametrize("sign", [1, -1])
def test_shares_are_those_of_the_product_limit_estimator(seed, sign):
    rng = np.random.default_rng([seed, 1])
    x, limits = rng.normal(size=80).round(1), rng.normal(-0.3, size=80).round(1) - 0.05
    hidden = x < limits
    values, below, rest = product_limit(x[~hidden], limits[hidden])
    ends = np.full(hidden.sum(), -INF), limits[hidden]
    if sign == -1:
        ends = -ends[1], -ends[0]
    found = made(estimate_shares, sign * x[~hidden], *ends)
    shares = np.diff(below, prepend=rest)
    np.testing.assert_allclose(found.values, sign * values[::sign])
    np.testing.assert_allclose(found.shares, shares[::sign], atol=1e-4)
    below = found.below if sign == 1 else found.above
    assert float(below) == pytest.approx(rest, abs=1e-4)


def test_intervals_between_values_have_their_weight():
    found = made(estimate_shares, [1.0, 4.0], [2.0, 0.5], [3.0, 1.5])
    assert found.values.tolist() == [1, 2.5, 4]
    np.testing.assert_allclose(found.shares, [0.5, 0.25, 0.25], atol=1e-6)


@pytest.mark.parametrize("function", [np.exp, lambda s: 10 + 2 * s])
def test_tails_are_normal_or_lognormal(function):
    """Cells at the quantiles of their distribution; the lower 40 % are not seen."""
    x = function(ndtri((np.arange(4000) + 0.5) / 4000))
    limit = function(ndtri(0.4))
    marginal, *_ = cut(x, limit)
    scores = torch.tensor([-3.0, -2.0, -1.0, -0.5, 0.0, 1.0]).double()
    error = abs(marginal.cells(scores).numpy() / function(scores.numpy()) - 1)
    assert error.max() < 0.02
    assert (marginal.low.diff() >= 0).all() and (marginal.values.diff() > 0).all()
    low, high = marginal.limits(torch.tensor([-INF]).double(), torch.tensor([limit]))
    assert low == -INF and float(high) == pytest.approx(ndtri(0.4), abs=1e-3)


SHAPES = {
    "gamma .5": gamma(0.5),
    "exponential": expon(),
    "gamma 2": gamma(2),
    "gamma 5": gamma(5),
    "lognormal": lognorm(1),
    "Weibull .7": weibull_min(0.7),
    "Weibull 2": weibull_min(2),
}


def cut(x, limit, *, upper=False, lowest=0.0):
    """Censor cells beyond a limit; returns the marginal, doubt, and their number."""
    seen = x <= limit if upper else x >= limit
    n = int((~seen).sum())
    ends = ([limit] * n, [INF] * n) if upper else ([-INF] * n, [limit] * n)
    return *made(partial(censored, lowest=lowest), x[seen], *ends), n


def errors_of_means(shape, n_rows, rng, *, n_tables=8, **given):
    """Estimate the means of the 40 % of cells that are not seen, in their deviations.

    Returns errors, and the doubts that are told.
    """
    grid, found = (np.arange(400) + 0.5) / 1000, []
    q = 1 - grid if given.get("upper") else grid
    truth, limit = shape.ppf(q), shape.ppf(0.6 if given.get("upper") else 0.4)
    for _ in range(n_tables):
        x = shape.rvs(n_rows, random_state=rng)
        marginal, doubt, n = cut(x, limit, **given)
        z = ndtri(grid * n / (0.4 * n_rows))
        cells = marginal.cells(torch.from_numpy(-z if given.get("upper") else z))
        found.append([(cells.numpy().mean() - truth.mean()) / truth.std(), doubt])
    return np.transpose(found)


def are_small(errors):
    return abs(errors.mean()) < 0.1 + GATE * errors.std(ddof=1) / len(errors) ** 0.5


@pytest.mark.quick(1)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_means_below_a_limit_are_those_of_skewed_distributions(shape, seed):
    """40 % are not seen; the mean error is below .1 of the deviation of these cells."""
    assert are_small(errors_of_means(shape, 1500, np.random.default_rng(seed))[0])


@pytest.mark.slow
def test_means_above_a_limit_are_those_of_skewed_distributions(rng):
    """Times that end after a study: 40 % are not seen."""
    assert are_small(errors_of_means(expon(), 1500, rng, upper=True)[0])


@pytest.mark.slow
def test_doubt_is_the_error_of_means_below_a_limit(seed):
    """Root mean squares over 28 small tables; at 30 seeds their ratio is .75 to 1.5."""
    rng, shapes = np.random.default_rng(seed), [*SHAPES.values()] * 4
    found = [errors_of_means(shape, 300, rng, n_tables=1)[:, 0] for shape in shapes]
    error, doubt = np.sqrt(np.square(found).mean(0))
    assert 0.4 < error / doubt < 2.5


OTHERS = {  # shapes that the average of families does not have
    "shifted exponential": expon(10),
    "Pareto": pareto(2),
    "uniform": uniform(),
    "beta": beta(5, 1),
}


def doubts(shape, n, rng, lowest=0.0, upper=False, n_tables=8):
    """Return doubts about the 40 % of the cells of tables that are not seen."""
    for _ in range(n_tables):
        x = shape.rvs(n, random_state=rng)
        limit = np.quantile(x, 0.6 if upper else 0.4)
        yield cut(x, limit, upper=upper, lowest=lowest)[1]


@pytest.mark.quick(1)
@pytest.mark.parametrize("shape", OTHERS.values(), ids=OTHERS)
def test_shapes_of_no_family_are_doubtful(shape, seed):
    """Of 1000 rows, nine in ten tables have 1.35 times the distance of the limit."""
    found = [*doubts(shape, 1500, np.random.default_rng(seed))]
    assert np.isinf(found).sum() >= 6


@pytest.mark.slow
def test_shapes_of_families_fit(seed):
    """Of 900 tables, of which some miss 70 %, four were said to follow none of them."""
    rng, found = np.random.default_rng(seed), []
    for shape in (*SHAPES.values(), norm(10)):
        for upper in (False, True):
            found += doubts(shape, 1500, rng, upper=upper, n_tables=1)
    assert p_share(np.isinf(found).sum(), len(found), 0.005, "greater") > FAILURE


@pytest.mark.slow
def test_shapes_begin_at_the_smallest_possible_value(rng):
    """10 + an exponential variable: the mean below the limit, with min_value=10."""
    errors, found = errors_of_means(expon(10), 1000, rng, lowest=10.0)
    assert are_small(errors)
    assert p_share(np.isinf(found).sum(), len(found), 0.005, "greater") > FAILURE


def test_a_few_values_do_not_tell_the_shape_beyond_a_limit(seed):
    """Of ten values many shapes are possible; of 2000 lognormal ones only few."""
    rng, doubts = np.random.default_rng(seed), []
    for size in (10, 2000):
        x = np.exp(rng.normal(size=size))
        doubts.append(cut(x, np.quantile(x, 0.4))[1])  # between two values
    assert doubts[0] > doubts[1]


def test_a_lower_limit_of_zero_does_not_put_cells_in_the_middle():
    """P(0 <= x <= L) is that of a cell below L, and not one of a cell at L / 2."""
    x = np.exp(ndtri((np.arange(1000) + 0.5) / 1000))
    n = int((x < 1).sum())
    ends = [made(censored, x[x >= 1], [low] * n, [1.0] * n)[0] for low in (-INF, 0.0)]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other)


def test_linear_marginals_are_normal():
    marginal = linear(10.0, 2.0)
    scores = torch.linspace(-9, 9, 7).double()
    np.testing.assert_allclose(marginal.cells(scores), 10 + 2 * scores)
    cells = 10 + 2 * scores
    np.testing.assert_allclose(marginal.scores(cells)[0], scores, atol=1e-12)
    low, high = marginal.limits(cells - 1, cells)
    np.testing.assert_allclose(low, scores - 0.5, atol=1e-12)
    np.testing.assert_allclose(high, scores, atol=1e-12)
    np.testing.assert_allclose(marginal.log_slopes(cells), -np.log(2))
    assert norm.cdf(float(high[3])) == pytest.approx(0.5)
