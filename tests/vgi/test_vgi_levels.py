"""The variational Gibbs objective of levels against sums over all rows of a table."""

import pytest
import torch
from oracles import GATE
from torch import nn

from skvnce._core.distributions.cells import NumberOrLevel
from skvnce.vgi.conditionals import Indicators, MixedConditionals, NormalHead
from skvnce.vgi.training import MOST_LEVELS, redrawn, regression, vgi

SIZES = torch.tensor([3, 2, MOST_LEVELS])
LONG = torch.tensor([2, MOST_LEVELS + 7])


@pytest.fixture(autouse=True)
def seeded(seed):
    torch.manual_seed(seed)


class Table(nn.Module):
    """A probability of each row of levels."""

    def __init__(self, sizes):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(sizes.tolist(), dtype=torch.float64))

    def log_table(self):
        return self.logits.flatten().log_softmax(0).view_as(self.logits)

    def log_prob(self, x):
        return self.log_table()[tuple(x.round().long().unbind(-1))]


class Exact:
    """The conditionals of a table."""

    def __init__(self, model):
        self.model = model

    def at(self, x, columns):
        x = x.expand(*columns.shape, -1)
        sizes = torch.tensor(self.model.logits.shape)
        widest, place = int(sizes.max()), columns.unsqueeze(-1)
        levels = [
            self.model.log_prob(
                x.scatter(-1, place, (sizes[place] - 1).clamp(max=k).to(x))
            )
            for k in range(widest)
        ]
        number = torch.distributions.Normal(torch.zeros(columns.shape).double(), 1.0)
        return NumberOrLevel(number, torch.stack(levels, -1), sizes[columns])


def conditionals(sizes):
    """Make conditionals of which all parameters are random."""
    inputs = Indicators(sizes)
    body, wide = nn.Sequential(nn.Linear(len(inputs.owners), 4), nn.SiLU()), inputs
    q = MixedConditionals(wide, sizes, NormalHead(), body, 4, (5,), inputs.others)
    with torch.no_grad():
        for leaf in q.parameters():
            leaf.normal_()
    return q.double()


def rows_of(sizes, n):
    x = torch.stack([torch.randint(int(size), (n,)) for size in sizes], -1).double()
    return x, torch.randint(len(sizes), (1, n))


def exact_bound(model, q, x, columns):
    """Compute J of rows by the sum of eq. (2) of `skvnce.vgi.training`."""
    found = []
    for row, j in zip(x, columns[0].tolist(), strict=True):
        log_q = q.at(row[None], torch.tensor([j])).log_probabilities[0]
        terms = []
        for k in range(model.logits.shape[j]):
            moved = row.clone()
            moved[j] = k
            terms.append(log_q[k].exp() * (model.log_prob(moved[None])[0] - log_q[k]))
        found.append(sum(terms))
    return torch.stack(found)


def gradients(value, *modules):
    leaves = [leaf for one in modules for leaf in one.parameters()]
    return torch.autograd.grad(value, leaves, allow_unused=True)


def test_values_and_gradients_are_those_of_the_sum():
    model, q = Table(SIZES), conditionals(SIZES)
    x, columns = rows_of(SIZES, 40)
    found, exact = vgi(model, q, x, columns), exact_bound(model, q, x, columns)
    torch.testing.assert_close(found, exact)
    pairs = zip(
        gradients(found.mean(), model, q),
        gradients(exact.mean(), model, q),
        strict=True,
    )
    used = [(one, other) for one, other in pairs if other is not None]
    assert len(used) > 5
    for one, other in used:
        torch.testing.assert_close(one, other)


def test_of_one_missing_level_it_is_the_likelihood():
    model = Table(SIZES)
    x, columns = rows_of(SIZES, 30)
    found = vgi(model, Exact(model), x, columns)
    likelihood = [
        model.log_table().logsumexp(j)[
            tuple(int(cell) for k, cell in enumerate(row) if k != j)
        ]
        for row, j in zip(x, columns[0].tolist(), strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(likelihood))
    other = vgi(model, Exact(Table(SIZES)), x, columns)
    assert (other < found).all()  # by the divergence of q


class OfLogits:
    """Conditionals that are given for each row."""

    def __init__(self, logits):
        self.logits = logits

    def at(self, x, columns):
        logits = self.logits.expand(*columns.shape, -1)
        number = torch.distributions.Normal(torch.zeros(columns.shape).double(), 1.0)
        count = torch.full(columns.shape, logits.shape[-1])
        return NumberOrLevel(number, logits, count)


def test_of_many_levels_it_is_unbiased():
    """J and its gradient in the logits, of one row repeated many times."""
    n, size = 20_000, int(LONG[1])
    model = Table(LONG)
    x = torch.tensor([1.0, 3.0]).double().expand(n, -1)
    columns, logits = torch.ones(1, n, dtype=torch.long), torch.randn(size).double()
    wide = logits.expand(n, -1).clone().requires_grad_()
    found = redrawn(OfLogits(wide), x, columns)
    assert len(found.tables) == n * MOST_LEVELS < n * size
    bound = found.bound(model.log_prob(found.tables))[0]
    slopes = torch.autograd.grad(bound.sum(), wide)[0]
    one = logits.clone().requires_grad_()
    exact = exact_bound(model, OfLogits(one), x[:1], columns[:, :1])[0]
    [slope] = torch.autograd.grad(exact, one)
    for values, target in ((bound.detach(), exact.detach()), (slopes, slope)):
        error = GATE * values.std(0) / n**0.5 + 1e-9
        assert ((values.mean(0) - target).abs() < error).all()
    kept = slopes[:, logits.topk(MOST_LEVELS).indices]
    assert (kept.std(0) > 0).all()  # there is something to average


def test_regressions_score_levels_by_their_probabilities():
    q = conditionals(SIZES)
    x, columns = rows_of(SIZES, 20)
    found = regression(q, x, columns[0], torch.ones(20))
    table = q.at(x, columns[0]).log_probabilities
    value = x.gather(-1, columns[0][:, None]).long()
    torch.testing.assert_close(found, table.gather(-1, value)[:, 0])
