"""The start of EM of copula graphs, and what is left of it in the associations."""

from math import log

import numpy as np
import pytest
import torch
from oracles import GATE
from pair_likelihood import maximum_likelihood, pair
from scipy import stats

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.gaussian.latent.columns import Latents, Marginal
from skvnce.gaussian.latent.gibbs import Rows
from skvnce.graphs import copula
from skvnce.graphs.copula import Theta

KINDS = {"number": ("numeric", 0), "ordinal": ("ordinal", 5), "binary": ("nominal", 2)}
N, R, TABLES = 1500, 0.7, 6


def make_problem(X, kinds):
    names, levels = (list(one) for one in zip(*(KINDS[k] for k in kinds), strict=True))
    data = Incomplete.from_array(X[~np.isnan(X).all(1)])
    return copula.make_problem(data, names, levels)


def association(X, kinds, start=None):
    """Learn the association of two columns, from another start if one is given."""
    with seeded(0):
        problem = make_problem(X, kinds)
        if start is not None:
            problem = problem._replace(start=start(problem))
        first = problem.first(max_iter=100, tol=2e-3)
        theta = problem.choose(first, first.theta, 0.0).theta
    return float(problem.method.family.strengths(theta)[0, 1])


def independent(problem):
    """Start at independent columns, with the same penalty for all pairs."""
    penalty = copula.light_penalty(problem.information, problem.n_rows)
    return copula.Start(Theta.independent(2), penalty)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kinds", [("binary", "binary"), ("number", "binary"), ("number", "number")]
)
def test_associations_of_half_missing_columns_are_not_attenuated(kinds, seed):
    """Within one standard error of maximum likelihood, which knows no other rows.

    The error is that of numbers, (1 - r**2) / sqrt(n / 4), or larger.  The mean over
    six tables has the noise of draws of half of it, or less, over sqrt(6).
    """
    error, associations, before = (1 - R**2) / (N / 4) ** 0.5, [], []
    for number in range(TABLES):
        X = pair(kinds, R, N, 0.5, [seed, number])
        exact = maximum_likelihood(X, kinds)
        associations.append(association(X, kinds) - exact)
        before.append(association(X, kinds, independent) - exact)
    factor = 1 + kinds.count("binary") / 2  # of tetra- and biserial correlations
    assert abs(np.mean(associations)) < error * factor
    if "binary" in kinds:
        assert np.mean(before) < -2 * error * factor


def test_strong_edges_have_small_weights(seed, rng):
    """Eq. (1), for two strong correlations and two of noise."""
    z = rng.normal(size=(400, 4))
    z[:, 1] += 2 * z[:, 0]
    with seeded(seed):
        problem = make_problem(z, ["number"] * 4)
    whole = copula.light_penalty(problem.information, 400).weight
    share = problem.start.penalty.weight / whole
    t = 0.75 * (log(4) / 400) ** 0.5
    r = problem.method.family.strengths(problem.start.theta)[0, 1]
    assert share[0, 1] == pytest.approx(float(t / (t + r / (1 - r**2))), rel=1e-2)
    assert share[0, 1] < 0.1
    scores = stats.norm.ppf((stats.rankdata(z[:, :2], axis=0) - 0.5) / len(z))
    whole_moves = np.corrcoef(scores.T)[0, 1] - t  # what the whole penalty leaves
    assert r > whole_moves + t / 2  # the reduced one moves a strong edge by share * t
    weak = problem.start.theta.precision == 0
    assert weak.any() and (share[weak] == 1).all()


def test_the_nearest_correlations_are_positive_definite():
    """Three correlations of .9, .9 and -.9 are impossible; possible ones are kept."""
    wrong = torch.tensor([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]).double()
    result = copula.positive(wrong)
    assert torch.linalg.eigvalsh(result).min() > 0
    assert torch.allclose(result.diagonal(), torch.ones(3).double())
    assert (result.sign() == wrong.sign()).all()
    right = wrong.abs()
    assert torch.allclose(copula.positive(right), right)


def test_latent_variables_settle_before_parameters_move(seed, rng):
    """Of a column of which half is missing, given one that is complete.

    Unsettled ones are independent; five sweeps of two columns are independent draws.
    """
    z = rng.normal(size=(4000, 2))
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    z[::2, 1] = np.nan
    with seeded(seed):
        problem = make_problem(z, ["number"] * 2)
        state = copula.settle(problem.method.e_step, problem.start.theta)
    missing = np.concatenate(state, 1)[:, ::2]
    assert np.corrcoef(missing)[0, 1] == pytest.approx(0.8, abs=5 * 0.36 / 2000**0.5)
    before = np.concatenate(problem.method.e_step.init(), 1)[:, ::2]
    assert before[1].std() == 0


# Correlations of pairs of columns against closed forms and maximum likelihood


def correlation(X, kinds):
    """Estimate the correlation behind two columns."""
    data = Incomplete.from_array(X[~np.isnan(X).all(1)])
    names, levels = zip(*(KINDS[kind] for kind in kinds), strict=True)
    ones = torch.ones(len(data.x), dtype=torch.float64)
    latents = Latents.of(data, ones, list(names), list(levels))
    return float(copula.pairwise_correlations(latents, Rows.parts(latents, data))[0, 1])


def halves(*shares):
    """Make an ordinal column of levels with these shares."""
    values = torch.arange(len(shares)).double()
    return Marginal.of_intervals(values, torch.tensor(shares).double())


@pytest.mark.parametrize("r", [-0.8, -0.3, 0.1, 0.6, 0.9])
def test_the_series_of_equal_halves_is_the_arc_sine(r):
    """E[m_i m_j] = (2 / pi)**2 asin(r); the degrees above 40 have a share of r**41."""
    shape = copula.coefficients(halves(0.5, 0.5))[None]
    value, slope = copula.series(torch.tensor([[r]], dtype=torch.float64), shape)
    exact, remainder = 2 / np.pi * np.arcsin(r), abs(r) ** 41 + 1e-15
    assert float(value) == pytest.approx(exact, abs=remainder)
    exact = 2 / np.pi / np.sqrt(1 - r**2)
    assert float(slope) == pytest.approx(exact, abs=20 * abs(r) ** 40 + 1e-14)


def test_the_series_of_unequal_levels_is_the_integral():
    """Cov(m_i, m_j) by the probabilities of the cells of two normal variables."""
    r, parts = 0.6, (halves(0.1, 0.5, 0.4), halves(0.7, 0.3))
    shapes = torch.stack([copula.coefficients(one) for one in parts])
    all_r = torch.full((2, 2), r, dtype=torch.float64)
    value = float(copula.series(all_r, shapes)[0][0, 1])
    ends = [torch.cat([one.low, one.high[-1:]]).clamp(-9, 9).numpy() for one in parts]
    both = stats.multivariate_normal([0, 0], [[1, r], [r, 1]])
    grid = np.array([[both.cdf([a, b]) for b in ends[1]] for a in ends[0]])
    cells = np.diff(np.diff(grid, axis=0), axis=1)
    means = [copula.mean_between(one.low, one.high).numpy() for one in parts]
    scale = [np.sqrt(cells.sum(1 - k) @ means[k] ** 2) for k in (0, 1)]
    exact = means[0] @ cells @ means[1] / np.prod(scale)
    assert value == pytest.approx(exact, abs=1e-4)  # of the integrals


def test_correlations_of_numbers_are_those_of_their_scores(rng_0):
    """A half of the rows is missing, and one pair has no rows in common."""
    x = np.exp(rng_0.normal(size=(60, 3)))
    x[:30, 0], x[30:, 1] = np.nan, np.nan
    x[:, 2] = np.where(np.isnan(x[:, 0]), x[:, 2], x[:, 0])
    assert correlation(x[:, [0, 1]], ["number", "number"]) == 0
    scores = [stats.norm.ppf((stats.rankdata(c[30:]) - 0.5) / 30) for c in x.T[[0, 2]]]
    every = stats.norm.ppf((stats.rankdata(x[:, 2]) - 0.5) / 60)[30:]
    exact = np.corrcoef(scores[0], every)[0, 1]
    result = correlation(x[:, [0, 2]], ["number", "number"])
    assert result == pytest.approx(exact, abs=1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("r", [0.5, -0.85])
def test_correlations_are_nearly_the_maximum_of_the_likelihood(first, second, r, seed):
    """They differ by less than the sampling deviation, about 1.6 (1 - r**2) / sqrt(n).

    Of 600 rows that observe both, in the mean over eight tables by less than 5.4 of its
    deviations if those of the differences are half of it.  Those of two binary columns
    with a strong correlation are three times as large.  At 25 seeds, the deviation of
    the mean was .0085 for these, and .0029 at most for others.  The correlation of
    codes of coarse columns differs by more.
    """
    gaps, codes = [], []
    for number in range(8):
        X = pair((first, second), r, 1224, 0.3, [seed, number])
        exact = maximum_likelihood(X, (first, second))
        gaps.append(correlation(X, (first, second)) - exact)
        codes.append(np.corrcoef(X[~np.isnan(X).any(1)].T)[0, 1] - exact)
    deviation = 1.6 * (1 - r**2) / np.sqrt(600)
    strong = first == second == "binary" and abs(r) > 0.8
    margin = GATE * deviation * (1.5 if strong else 0.5) / np.sqrt(8)
    assert abs(np.mean(gaps)) < margin
    if "binary" in (first, second):
        assert abs(np.mean(codes)) > margin


def test_what_cells_explain_is_the_variance_of_conditional_means():
    """2 / pi of a half, and half of that if half is missing; 1 of numbers."""
    x = np.column_stack([np.arange(400.0), np.arange(400) % 2, np.arange(400) % 2])
    x[:200, 2] = np.nan
    data = Incomplete.from_array(x)
    kinds = [KINDS["number"], KINDS["binary"], KINDS["binary"]]
    names, levels = (list(part) for part in zip(*kinds, strict=True))
    latents = Latents.of(data, torch.ones(400).double(), names, levels)
    shares = copula.explained(Rows.parts(latents, data))
    expected = [1, 2 / np.pi, 1 / np.pi]
    np.testing.assert_allclose(shares, expected, atol=5e-3)  # of 400 normal scores
