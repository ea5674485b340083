"""The price of an edge in the extended BIC, and the light penalty of EM, by hand."""

from math import inf, log

import numpy as np
import pytest
import torch
from statistical import FAILURE, p_share

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import copula

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
    return problem.fitted(first.summary, first.theta, edges, 1e-8).theta


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
    gain = [
        N * problem.fitted(first.summary, one, kept, 1e-8).loss
        for one, kept in ((theta, edges), (empty, edges & False))
    ]
    found = criterion(theta, 0.0) - criterion(empty, 0.0)
    expected = gain[0] - gain[1] + log(N) * parameters
    assert found == pytest.approx(expected, abs=0.2)


def test_more_neighbours_than_a_tenth_of_the_informative_rows_are_refused(seed):
    """Nominal columns say less than their rows: 20 rows count as fewer than 15."""
    problem, first = make_problem(seed, n=20)
    pairs = [(0, 1), (1, 2), (2, 3)]  # 1.5 neighbours on average
    known = 20 * float((problem.information / problem.blocks.free).mean()) ** 2
    assert known < 15 < 20
    criterion = problem.criterion(first)
    assert criterion(with_edges(problem, first, *pairs), 0.0) == inf
    assert criterion(with_edges(problem, first), 0.0) < inf


def test_the_light_penalty_falls_with_rows_and_grows_with_information(seed):
    problem, _ = make_problem(seed)
    root = problem.information.sqrt()
    expected = 0.75 * (log(4) / N) ** 0.5 * torch.outer(root, root)
    found = copula.light_penalty(problem.information, N).weight
    torch.testing.assert_close(found, expected.fill_diagonal_(0.0))


def test_edges_of_columns_that_few_rows_observe_weigh_more():
    share = torch.tensor([1.0, 1.0, 0.6, 0.1], dtype=torch.float64)
    found = copula.edge_weights(share)
    mean = 0.675**2
    assert found[0, 1] == found[0, 2] == 1
    assert found[0, 3] == pytest.approx(mean / 0.2)
    assert found[2, 3] == pytest.approx(mean / 0.12)
    assert (copula.edge_weights(share / 2)[:3, :3] == found[:3, :3]).all()


@pytest.mark.slow
def test_a_column_that_few_rows_observe_has_no_false_edges(seed, monkeypatch):
    """All columns are independent, and 3 % of the cells of the first are observed.

    With the weights a pair has an edge in 2 % of the tables, without in 31 %.
    """
    n_tables, n, d = 12, 300, 5

    def count():
        found = 0
        for table in range(n_tables):
            rng = np.random.default_rng([seed, table])
            X = rng.normal(size=(n, d))
            X[rng.uniform(size=n) > 0.03, 0] = np.nan
            learner = CopulaGraphLearnerCV(random_state=table)
            learner.set_params(model=CopulaGraphLearner(on_misfit="ignore"))
            found += int((learner.fit(X).edge_strengths_[0] > 0).sum())
        return found

    n_pairs = n_tables * (d - 1)
    assert p_share(count(), n_pairs, 0.02, "greater") > FAILURE
    monkeypatch.setattr(copula, "edge_weights", lambda share: torch.ones(d, d))
    assert p_share(count(), n_pairs, 0.02, "greater") < 1e-3
