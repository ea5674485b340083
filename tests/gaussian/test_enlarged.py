"""Sums over a large table from a sample of its rows."""

import numpy as np
import torch
from scipy import stats
from statistical import FAILURE, p_mean

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.patterns import Parts, Rows
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.gaussian import em, enlarged

D = 3
START = Normal(torch.zeros(D).double(), torch.eye(D).double())


def table(n, seed):
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
    torch.testing.assert_close(found.first, moved.sum(0))
    torch.testing.assert_close(found.second, moved.T @ moved)
    assert (sums.second - found.second).abs().max() > 1  # negative control


def test_sums_over_parts_are_those_over_rows():
    data = table(50, 0)
    ends = [slice(0, 7), slice(7, 7), slice(7, 50)]

    def reduce(of, merge):
        first, *rest = (of(rows_of(data, some)) for some in ends)
        for one in rest:
            first = merge(first, one)
        return first

    parts = Parts(reduce, torch.tensor(50.0).double())
    double = parts.mapped(lambda one: one._replace(x=2 * one.x))
    for found, rows in (
        (parts, rows_of(data)),
        (double, rows_of(data._replace(x=2 * data.x))),
    ):
        fits = [
            em.fit_table(one.condensed(), 0.1, START, max_iter=50, tol=1e-6)
            for one in (found, rows)
        ]
        for a, b in zip(fits[0].normal, fits[1].normal, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_of_all_rows_the_draws_are_those_of_data_augmentation(seed):
    rows = rows_of(table(200, seed))
    estimate = fitted(rows)
    with seeded(seed):
        exact = em.posterior_draws(estimate, rows.data, rows.weights, 0.1, n_draws=3)
    found = []
    for total in (None, 200.0):
        with seeded(seed):
            found.append(
                enlarged.posterior_draws(estimate, rows, total, 0.1, n_draws=3)
            )
    for one, same, near in zip(exact, *found, strict=True):
        torch.testing.assert_close(one.covariance, same.covariance, rtol=0, atol=0)
        torch.testing.assert_close(one.covariance, near.covariance, atol=1e-3, rtol=0)
        torch.testing.assert_close(one.mean, near.mean, atol=1e-3, rtol=0)


def test_draws_from_a_sample_are_those_of_the_table(seed):
    """They lie around the estimate from all rows, with the spread of all rows."""
    data = table(4000, seed)
    rows, sample = rows_of(data), rows_of(data, slice(0, 400))
    estimate, own = fitted(rows), fitted(sample)

    def drawn(part, total, start=estimate):
        with seeded(seed):
            found = enlarged.posterior_draws(start, part, total, 0.1, n_draws=100)
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
    data = table(60, seed)
    x, observed = data.x.clone(), data.observed.clone()
    x[0], observed[0] = (
        torch.tensor([40.0, 0.0, 0.0]),
        torch.tensor([True, False, False]),
    )
    rows = rows_of(Incomplete(x, observed))
    estimate = fitted(rows_of(data, slice(1, None)))
    with seeded(seed):
        draws = enlarged.posterior_draws(estimate, rows, 6e4, 0.1, n_draws=5)
    for one in draws:
        assert torch.linalg.eigvalsh(one.covariance)[0] > 0
        assert (one.mean - estimate.mean).abs().max() < 0.1
