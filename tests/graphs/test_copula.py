"""Graphs of latent variables: the information of columns, and strengths of edges."""

import numpy as np
import pytest
import torch
from mixed_graphs import column
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.covariance import graphical_lasso

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.gaussian.latent.columns import Latents
from skvnce.gaussian.latent.gibbs import Rows
from skvnce.gaussian.latent.population import Population
from skvnce.graphs import copula
from skvnce.graphs.graphical_lasso import Blocks

N = 4000


def information(x, kinds, n_levels, seed):
    """Estimate the information of the columns of a table."""
    data = Incomplete.from_array(x)
    latents = Latents.of(data, torch.ones(len(x)).double(), kinds, n_levels)
    with seeded(seed):
        return copula.information(latents, Rows.parts(latents, data)).numpy()


def of_levels(codes):
    """Compute sum_k p_k E[z | level k]**2 of a normal variable cut at its levels."""
    p = np.bincount(codes) / len(codes)
    edges = stats.norm.ppf(np.concatenate([[0], np.cumsum(p)[:-1], [1]]))
    return float((np.diff(stats.norm.pdf(edges)) ** 2 / p).sum())


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_information_is_the_variance_of_conditional_means(share, seed, rng):
    """Its ten pairs of draws have a standard error of at most 1 / sqrt(10 n) each.

    With draws of the rows that are not independent of the pairs before them, and
    observed shares that vary, 0.02 are six of them.
    """
    z = rng.normal(size=(N, 3))
    ordinal = column(z[:, 1], "ordinal", rng)
    x = np.column_stack([np.exp(z[:, 0]), ordinal, z[:, 2] > np.median(z[:, 2])])
    expected = np.array([1, of_levels(ordinal.astype(int)), 2 / np.pi])
    hidden = rng.uniform(size=x.shape) < share
    x[hidden] = np.nan
    result = information(x, ["numeric", "ordinal", "nominal"], [0, 5, 2], seed)
    assert_allclose(result, expected * (1 - hidden.mean(0)), atol=0.02)
    assert abs(result - result.mean()).max() > 0.05  # and the three are not equal
    if share == 0:
        assert result[0] == pytest.approx(1.0, abs=1e-3)


def test_information_of_nominal_columns_falls_with_missing_cells(seed, rng):
    """That of three levels with equal utilities is 3 (3 / (2 sqrt(pi)))**2 / 2.

    The largest of three normal variables has the mean 3 / (2 sqrt(pi)) = m, and the
    others -m / 2, so that the squared means of a row sum to 3 m**2 / 2.
    """
    x = rng.integers(0, 3, size=(N, 2)).astype(float)
    hidden = rng.uniform(size=N) < 0.5
    x[hidden, 1] = np.nan
    result = information(x, ["nominal", "nominal"], [3, 3], seed)
    m = 3 / (2 * np.sqrt(np.pi))
    assert result[0] == pytest.approx(1.5 * m**2, abs=0.1)
    assert result[1] / result[0] == pytest.approx(1 - hidden.mean(), abs=0.05)


def test_only_differences_of_nominal_latents_matter(seed):
    """A variable that is added to all of a column changes nothing, to one it does."""
    rng, blocks = np.random.default_rng(seed), Blocks.of(torch.tensor([1, 3, 1, 4]))
    z = rng.normal(size=(9, 50)) + rng.normal(size=50)
    values = copula.contrasts(torch.tensor(np.cov(z)), blocks).numpy()
    moved = z.copy()
    moved[1:4] += z[0]
    again = copula.contrasts(torch.tensor(np.cov(moved)), blocks).numpy()
    assert_allclose(again, values, atol=1e-12)
    moved[1] += z[0]
    other = copula.contrasts(torch.tensor(np.cov(moved)), blocks).numpy()
    assert abs(other - values).max() > 0.1
    pairs = np.zeros((7, 9))  # differences of the columns of several, the others
    for row, (one, two) in enumerate([(1, 2), (2, 3), (5, 6), (6, 7), (7, 8)]):
        pairs[row, [one, two]] = 1, -1
    pairs[5, 0] = pairs[6, 4] = 1
    assert_allclose(pairs @ values @ pairs.T, pairs @ np.cov(z) @ pairs.T, atol=1e-12)
    means = np.zeros((2, 9))
    means[0, 1:4], means[1, 5:] = 1 / 3, 1 / 4
    assert_allclose(means @ values @ means.T, np.diag([1 / 3, 1 / 4]), atol=1e-12)
    assert_allclose(means @ values @ pairs.T, 0, atol=1e-12)


def test_means_of_nominal_latents_have_no_edges(seed):
    """The graphical lasso does not mix them with differences."""
    rng, blocks = np.random.default_rng(seed), Blocks.of(torch.tensor([1, 3, 1, 4]))
    z = rng.normal(size=(9, 50)) + rng.normal(size=50)
    normal = Normal(torch.zeros(9).double(), torch.tensor(np.cov(z)))
    step = copula.m_step(blocks, 50)
    weight = 0.1 * (1 - torch.eye(4).double())
    start, penalty = copula.Theta.independent(9), copula.Penalty(weight, weight)
    solved = step.solve(step.summarise(normal), start, penalty, 1e-9).theta
    precision = solved.precision.numpy()
    for block, others in (slice(1, 4), [0, 4, 5]), (slice(5, 9), [0, 1, 4]):
        # the root of the solver's tolerance, as the loss is quadratic
        assert_allclose(precision[block, others].sum(0), 0, atol=1e-4)
        assert abs(precision[block, others]).max() > 0.01


def test_the_loss_is_that_of_latent_variables_in_their_units(seed):
    """``tr(S K) - log det K``, without a penalty."""
    S = torch.linalg.inv(random_precision(4, seed)) * 7
    weight = torch.zeros(4, 4).double()
    step = copula.m_step(Blocks.of(torch.ones(4, dtype=torch.long)), 50)
    start = copula.Theta.independent(4)
    normal, penalty = Normal(start.mean, S), copula.Penalty(weight, weight)
    solution = step.solve(normal, start, penalty, 1e-9)
    # correlations are rounded, and the derivatives in them are entries of the precision
    root = S.diagonal().sqrt()
    entries = (torch.linalg.inv(S) * torch.outer(root, root)).abs().sum()
    limit = copula._GRID / 2 * float(entries) + 1e-8
    assert solution.loss == pytest.approx(4 + float(S.logdet()), rel=0, abs=limit)


def random_precision(d, seed):
    a = np.random.default_rng(seed).normal(size=(d, 2 * d))
    return torch.tensor(a @ a.T / d)


def test_associations_of_single_latents_are_partial_correlations(seed):
    K = random_precision(5, seed)
    associations = copula.associations(K, Blocks.of(torch.ones(5, dtype=torch.long)))
    C = torch.linalg.inv(K).numpy()
    for i in range(5):
        for j in range(i):
            rest = [k for k in range(5) if k not in (i, j)]
            pair = np.ix_([i, j], [i, j])
            cross = C[np.ix_([i, j], rest)]
            S = C[pair] - cross @ np.linalg.solve(C[np.ix_(rest, rest)], cross.T)
            expected = S[0, 1] / np.sqrt(S[0, 0] * S[1, 1])
            assert float(associations[i, j]) == pytest.approx(expected)
    assert (associations.diagonal() == 0).all()


def test_associations_of_blocks_average_canonical_correlations(seed):
    """One with a number, and two for three and four levels, which have three."""
    K = random_precision(8, seed).numpy()
    blocks = Blocks.of(torch.tensor([1, 3, 4]))
    values = copula.associations(torch.tensor(K), blocks).numpy()
    one, three, four = slice(0, 1), slice(1, 4), slice(4, 8)
    for i, j, a, b, m in (0, 1, one, three, 1), (1, 2, three, four, 2):
        squares = np.linalg.solve(K[a, a], K[a, b]) @ np.linalg.solve(K[b, b], K[b, a])
        assert values[i, j] == pytest.approx(min(1, (np.trace(squares) / m) ** 0.5))
    assert 0 < values[0, 1] < 1


def test_complete_numbers_give_the_graph_of_normal_scores(seed, rng):
    """The edges of the graphical lasso, and the likelihood's maximum given them."""
    z = rng.multivariate_normal(np.zeros(6), np.eye(6) * 0.5 + 0.5, 300)
    x = np.exp(z)
    alpha = 0.15
    with seeded(seed):
        data = Incomplete.from_array(x)
        problem = copula.make_problem(data, ["numeric"] * 6, [0] * 6)
        first = problem.first(max_iter=50, tol=1e-3)
        fit = problem.choose(first, first.theta, alpha)
    assert len(fit.losses) == 1
    scores = stats.norm.ppf((stats.rankdata(x, axis=0) - 0.5) / 300)
    S = np.corrcoef(scores.T)
    information = float(problem.information.mean())
    _, K = graphical_lasso(S, alpha * information, tol=1e-10, enet_tol=1e-12)
    result = problem.method.family.strengths(fit.theta).numpy() != 0
    expected = (K != 0) & ~np.eye(6, dtype=bool)
    assert_array_equal(result, expected)
    C = torch.linalg.inv(fit.theta.precision).numpy()
    scale = np.sqrt(np.diag(C))
    C = C / np.outer(scale, scale)
    assert_allclose(C[expected], S[expected], atol=1e-3)
    _, K = graphical_lasso(np.corrcoef(x.T), alpha, tol=1e-10, enet_tol=1e-12)
    assert abs(C - S).max() < abs(np.corrcoef(x.T) - S).max()


def cells_below(n=400):
    """Make three columns; half of the cells of the first are below their limit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, 3))
    limits = np.full((2, n, 3), [[[-np.inf]], [[np.inf]]])
    below = X[:, 0] < 0
    limits[1, below, 0] = 0
    X[below, 0] = np.nan
    X[below & (rng.random(n) < 0.7), 1] = np.nan
    return Incomplete.from_array(X), tuple(map(torch.from_numpy, limits))


def test_limits_leave_the_weights_of_columns():
    data, limits = cells_below()
    kinds, levels = ["numeric"] * 3, [0] * 3
    problem = copula.make_problem(data, kinds, levels, limits)
    weights = torch.ones(len(data.x), dtype=torch.float64)
    latents = Latents.of(data, weights, kinds, levels)
    result, mean = Population.of(latents, data, weights, limits)
    result = result.opened(data, kinds)
    for one, other in zip(problem.latents.marginals, result.marginals, strict=True):
        assert all(map(torch.equal, one, other))
    assert mean[0] < -0.1  # control: 0 without limits
    rows = Rows.parts(result, data)
    assert torch.equal(problem.information, copula.information(result, rows))
    within = copula.information(result, Rows.parts(result, data, limits))
    assert abs(within - problem.information).max() > 0.01  # control
    theta = copula.Theta.independent(3)
    with seeded(0):
        free = problem.continue_fit(data, theta, 0.01, 20).mean[0]
    with seeded(0):
        limited = problem.continue_fit(data, theta, 0.01, 20, limits).mean[0]
    assert limited < free - 0.1
