"""The price of an edge in the extended BIC, and the light penalty of EM, by hand."""

from math import inf, log

import numpy as np
import pytest
import torch
from mixed_graphs import mixed_table, shuffled
from statistical import FAILURE, p_share

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import copula
from skvnce.graphs.copula import edge_scores, temper
from skvnce.graphs.graphical_lasso import Blocks
from skvnce.graphs.score_matching import probabilities_of_scores

N = 300


def make_problem(seed, n=N):
    """Pose a problem of two numbers and two nominal columns, of three and four levels.

    All are independent but the numbers.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x[:, 1] += x[:, 0]
    x[:, 2], x[:, 3] = rng.integers(3, size=n), rng.integers(4, size=n)
    kinds = ["numeric", "numeric", "nominal", "nominal"]
    with seeded(seed):
        problem = copula.make_problem(Incomplete.from_array(x), kinds, [1, 1, 3, 4])
        return problem, problem.first(max_iter=20, tol=1e-3)


def with_edges(problem, first, *pairs):
    """Fit the model to some edges."""
    edges = torch.zeros(4, 4, dtype=torch.bool)
    for i, j in pairs:
        edges[i, j] = edges[j, i] = True
    return problem.refit(first.summary, first.theta, edges, 1e-8).theta


@pytest.mark.parametrize(
    ("pair", "parameters"), [((0, 1), 1), ((1, 2), 2), ((0, 3), 3), ((2, 3), 6)]
)
def test_an_edge_costs_its_parameters(pair, parameters, seed):
    problem, first = make_problem(seed)
    criterion = problem.criterion(first)
    empty, theta = with_edges(problem, first), with_edges(problem, first, pair)
    share = problem.information / problem.blocks.free
    parameters = parameters * float(copula.edge_weights(share)[pair])
    price = criterion(theta, 1.0) - criterion(theta, 0.0)
    assert price == pytest.approx(4 * log(4) * parameters, abs=0.1)
    assert criterion(empty, 1.0) == pytest.approx(criterion(empty, 0.0), abs=0.1)
    edges = problem.method.family.strengths(theta) != 0
    pairs = (theta, edges), (empty, edges & False)
    fits = (problem.refit(first.summary, *pair, 1e-8) for pair in pairs)
    gain = [N * fit.loss for fit in fits]
    value = criterion(theta, 0.0) - criterion(empty, 0.0)
    expected = gain[0] - gain[1] + log(N) * parameters
    assert value == pytest.approx(expected, abs=0.2)


def test_more_neighbours_than_a_tenth_of_the_informative_rows_are_refused(seed):
    """Nominal columns say less than their rows: 20 rows count as fewer than 15."""
    problem, first = make_problem(seed, n=20)
    pairs = [(0, 1), (1, 2), (2, 3)]  # 1.5 neighbours on average
    effective = 20 * float((problem.information / problem.blocks.free).mean()) ** 2
    assert effective < 15 < 20
    criterion = problem.criterion(first)
    assert criterion(with_edges(problem, first, *pairs), 0.0) == inf
    assert criterion(with_edges(problem, first), 0.0) < inf


def test_the_light_penalty_falls_with_rows_and_grows_with_information(seed):
    problem, _ = make_problem(seed)
    root = problem.information.sqrt()
    expected = 0.75 * (log(4) / N) ** 0.5 * torch.outer(root, root)
    weight = copula.light_penalty(problem.information, N).weight
    torch.testing.assert_close(weight, expected.fill_diagonal_(0.0))


def test_edges_of_columns_that_few_rows_observe_weigh_more():
    share = torch.tensor([1.0, 1.0, 0.6, 0.1], dtype=torch.float64)
    result = copula.edge_weights(share)
    mean = 0.675**2
    assert result[0, 1] == result[0, 2] == 1
    assert result[0, 3] == pytest.approx(mean / 0.2)
    assert result[2, 3] == pytest.approx(mean / 0.12)
    assert (copula.edge_weights(share / 2)[:3, :3] == result[:3, :3]).all()


@pytest.mark.slow
def test_a_column_that_few_rows_observe_has_no_false_edges(seed, monkeypatch):
    """All columns are independent, and 3 % of the cells of the first are observed.

    With the weights a pair has an edge in 2 % of the tables, without in 31 %.
    """
    n_tables, n, d = 12, 300, 5

    def count():
        result = 0
        for table in range(n_tables):
            rng = np.random.default_rng([seed, table])
            X = rng.normal(size=(n, d))
            X[rng.uniform(size=n) > 0.03, 0] = np.nan
            learner = CopulaGraphLearnerCV(random_state=table)
            learner.set_params(model=CopulaGraphLearner(on_misfit="ignore"))
            result += int((learner.fit(X).edge_strengths_[0] > 0).sum())
        return result

    n_pairs = n_tables * (d - 1)
    assert p_share(count(), n_pairs, 0.02, "greater") > FAILURE
    monkeypatch.setattr(copula, "edge_weights", lambda share: torch.ones(d, d))
    assert p_share(count(), n_pairs, 0.02, "greater") < 1e-3


# Scores of edges: standard normal without an edge, and what they become with one


def scores(X, categories, levels, seed):
    kinds = [categories.get(j, "numeric") for j in range(X.shape[1])]
    with seeded(seed):
        problem = copula.make_problem(Incomplete.from_array(X), kinds, levels)
        first = problem.first(max_iter=100, tol=2e-3)
        return edge_scores(problem, first).numpy(), problem, first


def levels_of(X, categories):
    return [int(np.nanmax(X[:, j])) + 1 if j in categories else 1 for j in range(10)]


@pytest.mark.slow
def test_scores_without_an_edge_are_standard_normal(seed):
    """Of 120 pairs: standard errors are .09 of means and .065 of deviations.

    The transform of squares leaves the deviation of nominal pairs below 1.  Strengths
    of the estimate without a penalty, times ``sqrt(n v_i v_j)``, deviated by .6 at
    30 % missing, and those of nominal pairs had the mean -2.1.
    """
    single, nominal = [], []
    for number in range(8):
        X, categories, _ = mixed_table(200, 10, [seed, number], missing=0.3)
        X = shuffled(X, number)
        result, problem, _ = scores(X, categories, levels_of(X, categories), number)
        grouped = (problem.blocks.sizes > 1).numpy()
        for i, j in zip(*np.triu_indices(10, 1), strict=True):
            (nominal if grouped[i] or grouped[j] else single).append(result[i, j])
    assert np.mean(single) == pytest.approx(0, abs=0.3) and 0.8 < np.std(single) < 1.3
    assert np.mean(nominal) == pytest.approx(-0.15, abs=0.4)
    assert 0.65 < np.std(nominal) < 1.3


def test_scores_of_sparse_columns_include_the_noise_of_draws(seed):
    """Of 225 pairs, error .05.  Without that noise it is 1.23, else .85."""
    result, pairs = [], np.triu_indices(10, 1)
    for number in range(5):
        rng = np.random.default_rng([seed, number])
        X = rng.normal(size=(200, 10))
        X[rng.uniform(size=X.shape) < 0.85] = np.nan
        X = X[~np.isnan(X).all(1)]
        result.append(scores(X, {}, [1] * 10, number)[0][pairs])
    assert 0.65 < np.std(result) < 1.07


def test_scores_of_complete_numbers_are_one_newton_step(seed, rng):
    X = rng.normal(size=(200, 10))
    X[:, 1] += X[:, 0]
    result, problem, first = scores(X, {}, [1] * 10, seed)
    K, S = first.theta.precision.numpy(), first.summary.covariance.numpy()
    step, information = 2 * K - K @ S @ K, float(problem.information.mean())
    scale = np.sqrt(np.diag(K))
    expected = -step / np.outer(scale, scale) * np.sqrt(200 * information)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(result, expected, rtol=0.01, atol=1e-6)
    removed = (K == 0).nonzero()  # about 30 pairs, whose scores are below 1.14
    assert np.abs(result[removed]).mean() > 0.3  # .5, with an error of .06


def test_scores_do_not_depend_on_the_order_of_columns(seed):
    """Apart from the noise of draws, and with a sign that an order reverses."""
    X, categories, _ = mixed_table(400, 10, seed)
    levels = levels_of(X, categories)
    result = scores(X, categories, levels, 0)[0]
    back = {9 - j: kind for j, kind in categories.items()}
    again = scores(X[:, ::-1], back, levels[::-1], 0)[0][::-1, ::-1]
    assert np.sqrt(np.mean((again - result) ** 2)) < 0.8
    assert np.sqrt(np.mean((again[::-1] - result) ** 2)) > 1.6


@pytest.mark.slow
def test_probabilities_of_edges_are_right_as_often_as_they_say():
    """Of 300 rows and 28 columns, 40 % missing; it was .32 of .91."""
    said, true = [], []
    for number in range(3):
        X, categories, edges = mixed_table(300, 28, [3, number], missing=0.4)
        options = {"categorical_features": categories, "on_misfit": "ignore"}
        learner = CopulaGraphLearner(**options, random_state=0).fit(X)
        pairs = np.triu_indices(28, 1)
        said.append(learner.edge_probabilities_[pairs])
        true.append(edges[pairs])
    said, true = np.concatenate(said), np.concatenate(true)
    probable = said > 0.5
    error = np.sqrt((said * (1 - said))[probable].sum())
    assert probable.sum() >= 10
    assert abs(true[probable].sum() - said[probable].sum()) < 4 * error
    elsewhere = np.random.default_rng(0).permutation(true)[probable].sum()  # a control
    assert abs(elsewhere - said[probable].sum()) > 4 * error


def table_of_sites(n, n_levels, rng, effect=0.0):
    """Draw two numbers, of which the first may depend on the site of a row."""
    X = rng.normal(size=(n, 3))
    X[:, 0] = rng.permutation(np.arange(n) % n_levels)
    X[:, 1] += effect * rng.normal(size=n_levels)[X[:, 0].astype(int)]
    return X


def probable(X, n_levels):
    result, problem, _ = scores(X, {0: "nominal"}, [n_levels, 1, 1], 0)
    grouped = problem.blocks.sizes > 1
    arguments = torch.from_numpy(result), grouped[:, None] | grouped
    return probabilities_of_scores(*arguments).numpy()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("n", "n_levels"), [(60, 30), (100, 12), (150, 70), (200, 50), (300, 20)]
)
def test_many_levels_have_no_edges_of_noise(n, n_levels, seed):
    """With two rows a level all six edges of three tables had the probability 1."""
    rng, alarms = np.random.default_rng([seed, n]), 0
    for _ in range(2):
        result = probable(table_of_sites(n, n_levels, rng), n_levels)
        alarms += (result > 0.5).any()
    assert p_share(alarms, 2, 0.03, "greater") > FAILURE


@pytest.mark.quick(1)
@pytest.mark.parametrize(("n", "n_levels"), [(200, 10), (300, 20), (400, 60)])
def test_many_levels_keep_a_true_edge(n, n_levels, seed):
    """Sites explain half of the variance."""
    X = table_of_sites(n, n_levels, np.random.default_rng([seed, n]), 1.0)
    result = probable(X, n_levels)
    assert result[0, 1] > 0.99 > result[0, 2]


def test_a_covariance_of_few_rows_a_level_stays_regular(rng):
    """Canonical correlations stay, and 95 levels of 100 rows are no singular matrix."""
    blocks = Blocks.of(torch.tensor([1, 4, 1]))
    S = torch.from_numpy(np.cov(rng.normal(size=(6, 40)) + rng.normal(size=40)))
    moved = temper(S, blocks, 40)
    inner = [slice(0, 1), slice(1, 5), slice(5, 6)]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        before, after = (canonical(one, inner[a], inner[b]) for one in (S, moved))
        np.testing.assert_allclose(after, before)
    block = S[1:5, 1:5]
    expected = (40 * block + 3 * torch.eye(4)) / 43
    torch.testing.assert_close(moved[1:5, 1:5], expected)
    z = rng.normal(size=(96, 50))
    few = temper(torch.from_numpy(np.cov(z)), Blocks.of(torch.tensor([95, 1])), 50)
    assert torch.linalg.eigvalsh(few)[0] > 1e-3
    assert torch.linalg.eigvalsh(torch.from_numpy(np.cov(z)))[0] < 1e-9  # a control


def canonical(covariance, one, other):
    blocks = (covariance[part, part] for part in (one, other))
    roots = [torch.linalg.inv(torch.linalg.cholesky(block)) for block in blocks]
    return torch.linalg.svdvals(roots[0] @ covariance[one, other] @ roots[1].T)
