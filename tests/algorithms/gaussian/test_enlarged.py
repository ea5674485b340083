"""Sums over a large table from a sample of its rows."""

import numpy as np
import torch
from scipy import stats
from statistical import FAILURE, p_mean

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.gaussian import em, enlarged
from skvnce.algorithms.gaussian.rows import Parts, Rows
from skvnce.distributions.normal import Normal, prepare

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
    fit = em.fit_table(rows, 0.1, START, max_iter=200, tol=1e-3)
    return fit.normal, enlarged.Whole(fit.point, fit.moments, rows.total)


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
            em.fit_table(one, 0.1, START, max_iter=50, tol=1e-6)
            for one in (found, rows)
        ]
        for a, b in zip(fits[0].normal, fits[1].normal, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_of_all_rows_the_sums_are_drawn_themselves(seed):
    rows = rows_of(table(30, seed))
    estimate, whole = fitted(rows)
    other = Normal(estimate.mean + 0.1, 1.1 * estimate.covariance)
    with seeded(seed):
        found = enlarged.Enlarged(rows, whole).drawn(other)
    with seeded(seed):
        exact = em.drawn_moments(other, rows.batches, rows.weights)
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-9)


def test_draws_from_a_sample_are_those_of_the_table(seed):
    """Their mean and variance are those of draws from all rows; ten rows are in one."""
    data = table(4000, seed)
    rows, sample = rows_of(data), rows_of(data, slice(0, 400))
    estimate, whole = fitted(rows)
    surrogate = enlarged.Enlarged(sample, whole)
    expected, _ = em.e_step(prepare(estimate), rows)
    with seeded(seed):
        found = torch.stack([surrogate.drawn(estimate).first for _ in range(200)])
        exact = torch.stack(
            [
                em.drawn_moments(estimate, rows.batches, rows.weights).first
                for _ in range(200)
            ]
        )
        alone = torch.stack(
            [
                em.drawn_moments(estimate, sample.batches, sample.weights).first
                for _ in range(200)
            ]
        )
    assert p_mean(found, expected.first) > FAILURE
    # the variance that the sample estimates is known to 13 %, from 120 missing cells
    most = 1.4 * stats.f.isf(FAILURE / 2 / D, 199, 199)
    ratio, wrong = (one.var(0) / exact.var(0) for one in (found, alone))
    assert ((ratio < most) & (ratio > 1 / most)).all()
    assert (wrong < 1 / most).all()  # negative control


def test_posterior_draws_have_the_spread_of_those_from_all_rows(seed):
    data = table(4000, seed)
    rows, sample = rows_of(data), rows_of(data, slice(0, 400))
    estimate, whole = fitted(rows)
    with seeded(seed):
        few, many, small = (
            torch.stack(
                [
                    one.mean
                    for one in enlarged.posterior_draws(
                        estimate, part, sums, 0.1, n_draws=100
                    )
                ]
            )
            for part, sums in ((sample, whole), (rows, None), (sample, None))
        )
    # 100 draws with an autocorrelation of up to 0.3 are at least 50 independent ones
    most = 1.4 * stats.f.isf(FAILURE / 2 / D, 49, 49)
    ratio, wrong = (one.var(0) / many.var(0) for one in (few, small))
    assert ((ratio < most) & (ratio > 1 / most)).all()
    assert (wrong > most).all()  # negative control: ten times fewer rows
    assert p_mean((few - estimate.mean)[::3], 0.0) > FAILURE
