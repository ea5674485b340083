"""The start of EM of copula graphs, and what is left of it in the associations."""

from math import log

import numpy as np
import pytest
import torch
from pair_likelihood import maximum_likelihood, pair
from scipy import stats

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import copula
from skvnce.graphs import copula as copula_start
from skvnce.graphs.copula import Theta

KINDS = {"number": ("numeric", 0), "ordinal": ("ordinal", 5), "binary": ("nominal", 2)}
N, R, TABLES = 1500, 0.7, 6


def make_problem(X, kinds):
    names, levels = (list(one) for one in zip(*(KINDS[k] for k in kinds), strict=True))
    return copula.make_problem(
        Incomplete.from_array(X[~np.isnan(X).all(1)]), names, levels
    )


def association(X, kinds, start=None):
    """Learn the association of two columns, from another start if one is given."""
    with seeded(0):
        problem = make_problem(X, kinds)
        if start is not None:
            problem = problem._replace(start=start(problem))
        first = problem.first(max_iter=100, tol=2e-3)
        theta = problem.chosen(first, first.theta, 0.0).theta
    return float(problem.method.family.strengths(theta)[0, 1])


def independent(problem):
    """Start at independent columns, with the same penalty for all pairs."""
    penalty = copula.light_penalty(problem.information, problem.n_rows)
    return copula_start.Start(Theta.independent(2), penalty)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kinds", [("binary", "binary"), ("number", "binary"), ("number", "number")]
)
def test_associations_of_half_missing_columns_are_not_attenuated(kinds, seed):
    """Within one standard error of maximum likelihood, which knows no other rows.

    The error is that of numbers, (1 - r**2) / sqrt(n / 4), or larger.  The mean over
    six tables has the noise of draws of half of it, or less, over sqrt(6).
    """
    error, own, before = (1 - R**2) / (N / 4) ** 0.5, [], []
    for number in range(TABLES):
        X = pair(kinds, R, N, 0.5, [seed, number])
        exact = maximum_likelihood(X, kinds)
        own.append(association(X, kinds) - exact)
        before.append(association(X, kinds, independent) - exact)
    factor = 1 + kinds.count("binary") / 2  # of tetra- and biserial correlations
    assert abs(np.mean(own)) < error * factor
    if "binary" in kinds:
        assert np.mean(before) < -2 * error * factor


def test_strong_edges_have_small_weights(seed):
    """Eq. (1), for two strong correlations and two of noise."""
    rng = np.random.default_rng(seed)
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
    found = copula_start.positive(wrong)
    assert torch.linalg.eigvalsh(found).min() > 0
    assert torch.allclose(found.diagonal(), torch.ones(3).double())
    assert (found.sign() == wrong.sign()).all()
    right = wrong.abs()
    assert torch.allclose(copula_start.positive(right), right)


def test_latent_variables_settle_before_parameters_move(seed):
    """Of a column of which half is missing, given one that is complete.

    Unsettled ones are independent; five sweeps of two columns are independent draws.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(4000, 2))
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    z[::2, 1] = np.nan
    with seeded(seed):
        problem = make_problem(z, ["number"] * 2)
        state = copula_start.settled(problem.method.e_step, problem.start.theta)
    missing = np.concatenate(state, 1)[:, ::2]
    assert np.corrcoef(missing)[0, 1] == pytest.approx(0.8, abs=5 * 0.36 / 2000**0.5)
    before = np.concatenate(problem.method.e_step.init(), 1)[:, ::2]
    assert before[1].std() == 0
