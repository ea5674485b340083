"""Tables with fewer rows and the same sums."""

import numpy as np
import pytest
import torch

from skvnce._core import incomplete
from skvnce._core.distributions.normal import Normal, prepare
from skvnce._core.incomplete import Incomplete, Parts, Rows, condensed, n_condensed
from skvnce.autoencoder import factor_analysis
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.gaussian import em


def table(n=400, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:3] = np.nan  # rows without observed cells
    return Incomplete.from_array(X), torch.from_numpy(rng.uniform(0.5, 2.0, n))


def normal(d=4):
    rng = np.random.default_rng(1)
    root = torch.from_numpy(rng.normal(size=(d, d)))
    return Normal(torch.from_numpy(rng.normal(size=d)), root @ root.T + torch.eye(d))


def factors(d=4):
    rng = np.random.default_rng(2)
    loadings, mean = (torch.from_numpy(rng.normal(size=s)) for s in ((d, 2), d))
    return FactorModel(mean, loadings, torch.linspace(0.5, 2, d).double())


def flat(sums):
    """List the tensors of sums and a log-likelihood."""
    moments, log_likelihood = sums
    return [*moments, log_likelihood]


STEPS = {
    "normal": lambda one: em.e_step(prepare(normal()), one),
    "factors": lambda one: factor_analysis.e_step(factors(), one),
}


def collinear(data, weights):
    """Make a column equal another one, and one constant."""
    data.x[:, 1] = data.x[:, 0].where(data.observed[:, 1], 0.0)
    data.x[:, 2] = torch.where(data.observed[:, 2], 1e3, 0.0)


def without_complete_rows(data, weights):
    weights[data.observed.all(1)] = 0.0


@pytest.mark.parametrize(
    ("change", "atol"),
    [(lambda *_: None, 1e-10), (without_complete_rows, 1e-10), (collinear, 1e-8)],
)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_an_e_step_of_the_condensed_table_has_the_same_sums(step, change, atol):
    data, weights = table()
    change(data, weights)
    few = condensed(data, weights)
    assert len(few[1]) == n_condensed(data.observed) <= 2**4 * 5 < len(weights)
    expected = flat(step(Rows(data, weights)))
    for result, value in zip(flat(step(Rows(*few))), expected, strict=True):
        torch.testing.assert_close(result, value, rtol=1e-10, atol=atol)
    few[0].x[few[0].observed] += 1e-3  # negative control
    assert abs(flat(step(Rows(*few)))[-1] - expected[-1]) > 1e-3


def test_rows_far_from_zero():
    data, weights = table()
    expected = flat(STEPS["normal"](Rows(*condensed(data, weights))))[-1]
    moved = Incomplete(data.x.where(~data.observed, data.x + 1e6), data.observed)
    x, observed = condensed(moved, weights)[0]
    back = Incomplete(x.where(~observed, x - 1e6), observed)
    result = flat(STEPS["normal"](Rows(back, condensed(data, weights)[1])))[-1]
    torch.testing.assert_close(result, expected, rtol=1e-8, atol=0.0)


def test_patterns_of_few_rows_keep_them():
    data, weights = table()
    cells = torch.tensor([[5.0] * 4, [6.0] * 4]).double()
    one = Incomplete(cells, torch.ones(2, 4, dtype=torch.bool))
    hidden = data.observed.all(1)
    data = Incomplete(data.x[~hidden], data.observed[~hidden])
    x, observed = map(torch.cat, zip(data, one, strict=True))
    weights = weights[: len(x)]
    few, new_weights = condensed(Incomplete(x, observed), weights)
    assert len(few.x) == len(new_weights) == n_condensed(observed)
    full = few.observed.all(1)
    assert few.x[full].equal(one.x)
    assert new_weights[full].equal(weights[-2:])


def test_a_table_of_many_patterns_is_returned():
    data, weights = table(n=60, d=12)
    few = condensed(data, weights)
    assert few[0] is data
    assert few[1] is weights


def in_parts(data, weights, ends, reads, **options):
    def reduce(of, merge):
        reads.append(of)
        total = None
        for first, last in zip(ends, ends[1:], strict=False):
            part = data.take(slice(first, last))
            result = of(Rows(part, weights[first:last]))
            total = result if first == ends[0] else merge(total, result)
        return total

    return Parts(reduce, weights.sum(), **options)


@pytest.mark.parametrize("ends", [[0, 400], [0, 30, 30, 200, 201, 400]])
def test_a_table_in_parts_is_read_once(ends):
    data, weights = table()
    start = Normal(torch.zeros(4).double(), torch.eye(4).double())
    effort = {"max_iter": 30, "tol": 1e-6}
    expected = em.fit_table(Rows(data, weights), 0.1, start, **effort)
    reads = []
    parts = in_parts(data, weights, ends, reads, few_patterns=True)
    result = em.fit_table(parts.condensed(), 0.1, start, **effort)
    assert len(reads) == 1
    assert result.n_rounds == expected.n_rounds > 5
    torch.testing.assert_close(result.normal, expected.normal, rtol=1e-10, atol=1e-12)


def test_changes_of_parts_are_made_in_their_order():
    data, weights = table()
    parts = in_parts(data, weights, [0, 400], [])
    for change in (lambda x: 2 * x, lambda x: x + 1):
        parts = parts.mapped(lambda one, change=change: one._replace(x=change(one.x)))
    result = parts.summed(lambda one: one.data.x.sum())
    torch.testing.assert_close(result, (2 * data.x + 1).sum())


def test_parts_of_many_patterns_are_read_in_each_round(monkeypatch):
    data, weights = table()
    reads, ends = [], [0, 100, 200, 400]
    parts = in_parts(data, weights, ends, reads, few_patterns=False)
    assert parts.condensed() is parts
    assert not reads
    parts = parts._replace(few_patterns=True)
    assert parts.condensed().total == pytest.approx(float(weights.sum()))
    monkeypatch.setattr(incomplete, "_MOST_CELLS", 200)
    assert parts.condensed() is parts
