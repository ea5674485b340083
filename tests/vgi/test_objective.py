"""The variational Gibbs objective against algebra, quadrature and enumeration."""

import numpy as np
import pytest
import torch
from oracles import GATE
from torch import nn
from torch.distributions import MultivariateNormal, Normal
from toy import random_conditionals

from skvnce._core.distributions.cells import NumberOrLevel
from skvnce.autoencoder.factor_analysis import FactorModel, log_prob_observed
from skvnce.vgi.conditionals import (
    ExtendedConditionals,
    MixtureHead,
    NormalHead,
    StandardConditionals,
    anchor,
)
from skvnce.vgi.densities import FactorDensity
from skvnce.vgi.training import MOST_LEVELS, Redrawn, redraw, regression, vgi

# The variational Gibbs objective against Gaussian algebra and quadrature


D, RANK = 4, 2
NODES = 40


pytestmark = pytest.mark.usefixtures("torch_seeded")


@pytest.fixture
def model():
    numbers = torch.randn(D, RANK + 2, dtype=torch.float64)
    return FactorModel(numbers[:, 0], numbers[:, 1:-1], 0.5 + numbers[:, -1].exp())


@pytest.fixture
def rows(model):
    """Make rows that miss one cell, a random one."""
    x = MultivariateNormal(model.mean, model.covariance()).sample((12,))
    return x, torch.randint(D, (12,))


def exact(model, kind=StandardConditionals, shift=0.0):
    """Make the conditionals of a model, or some that are off."""
    q = kind(D, NormalHead(), nn.Identity(), D, (3,)).double()
    anchor(q, model.mean, model.precision())
    with torch.no_grad():
        q.intercepts += shift
    return q


def without(x, columns):
    return torch.ones_like(x).scatter(-1, columns[..., None], 0.0).bool()


class AtNodes:
    """Normal conditionals whose draws are the nodes of Gauss-Hermite quadrature.

    So the mean over the first dimension of an expectation's draws, with the weights, is
    exact, and its gradient is that of reparametrised draws.
    """

    def __init__(self, q, nodes):
        self.q, self.nodes = q, nodes

    def at(self, x, columns):
        return _Node(self.q.at(x, columns), self.nodes)


class _Node(Normal):
    def __init__(self, q, nodes):
        super().__init__(q.loc, q.scale)
        self.nodes = nodes[:, None]  # (..., nodes, n)

    def rsample(self):
        return self.loc + self.scale * self.nodes


def integrated(model, q, x, columns):
    """Compute J of rows (n, D) by quadrature over the cell that q draws; (n,)."""
    z, weights = (torch.tensor(v) for v in np.polynomial.hermite_e.hermegauss(NODES))
    wide = columns.expand(1, NODES, *columns.shape)  # one selected cell of each node
    many = AtNodes(q, z)
    values = vgi(model, many, x.expand(NODES, *x.shape), wide)  # (z, n)
    return (weights / weights.sum()) @ values


def test_the_bound_of_candidates_by_hand():
    """Sums of weights times log p, plus entropies; the second cell has one value.

    In the gradient of the weights log p is taken from the mean of all but the last.
    """
    used = torch.tensor([[True, True, True], [True, False, False]])
    weights = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]).double()
    weights.requires_grad_()
    entropy = torch.tensor([0.7, 0.0]).double()
    log_p = torch.tensor([-1.0, -2.0, -4.0, -3.0]).double()
    bound = Redrawn(torch.zeros(4, 2), used, weights, entropy).bound(log_p)
    exact = torch.tensor([-0.2 - 0.6 - 2.0 + 0.7, -3.0]).double()
    torch.testing.assert_close(bound, exact)
    (slopes,) = torch.autograd.grad(bound.sum(), weights)
    middle = (0.2 * -1 + 0.3 * -2) / 0.5
    expected = [[-1 - middle, -2 - middle, -4 - middle], [0.0, 0.0, 0.0]]
    torch.testing.assert_close(slopes, torch.tensor(expected).double())


def test_of_one_missing_cell_it_is_the_likelihood(model, rows):
    x, columns = rows
    log_p, _ = log_prob_observed(model, x, without(x, columns))
    result = integrated(FactorDensity.of(model), exact(model), x, columns)
    torch.testing.assert_close(result, log_p, rtol=0, atol=1e-10)


def test_elsewhere_it_is_below_by_the_divergence(model, rows):
    x, columns = rows
    log_p, _ = log_prob_observed(model, x, without(x, columns))
    p, q = exact(model), exact(model, shift=0.4)
    with torch.no_grad():
        q.log_scales += 0.3
    gap = log_p - integrated(FactorDensity.of(model), q, x, columns)
    known = torch.distributions.kl_divergence(q.at(x, columns), p.at(x, columns))
    torch.testing.assert_close(gap, known, rtol=0, atol=1e-9)
    assert (known > 0.01).all()


@pytest.mark.parametrize("kind", [StandardConditionals, ExtendedConditionals])
def test_the_gradient_in_the_model_is_that_of_the_likelihood(kind, model, rows):
    """One missing cell a row, by quadrature; with a wrong q it is another."""
    x, columns = rows
    known, density = FactorDensity.of(model), FactorDensity.of(model)
    log_prob_of(known, x, without(x, columns)).sum().backward()
    integrated(density, exact(model, kind), x, columns).sum().backward()
    for mine, true in zip(density.parameters(), known.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, true.grad, rtol=1e-8, atol=1e-8)
    wrong = FactorDensity.of(model)
    integrated(wrong, exact(model, kind, shift=0.5), x, columns).sum().backward()
    for mine, true in zip(wrong.parameters(), known.parameters(), strict=True):
        assert (mine.grad - true.grad).abs().max() > 1e-3  # 1e-8 is exact


def log_prob_of(density, x, observed):
    """Compute log p(x_obs), a function of the parameters of the density."""
    factors = FactorModel(density.mean, density.loadings, density.log_variance.exp())
    S = factors.covariance()
    return torch.stack(
        [
            MultivariateNormal(factors.mean[o], S[o][:, o]).log_prob(row[o])
            for row, o in zip(x, observed, strict=True)
        ]
    )


def test_the_gradient_vanishes_at_exact_conditionals(model, rows):
    """Nothing of which is left where they are wrong."""
    x, columns = rows
    for shift, small in ((0.0, True), (0.3, False)):
        q = exact(model, shift=shift)
        integrated(FactorDensity.of(model), q, x, columns).sum().backward()
        largest = max(
            float(leaf.grad.abs().max())
            for leaf in q.parameters()
            if leaf.grad is not None
        )
        assert largest < 1e-8 if small else largest > 0.1


def test_several_selected_cells_are_averaged_one_at_a_time(model):
    """Each is drawn with the others as the chain has them."""
    x = torch.randn(5, D).double()
    columns = torch.tensor([[0, 1, 2, 3, 0], [3, 2, 1, 0, 2]])
    q, density = exact(model), FactorDensity.of(model)

    class Fixed:
        def at(self, x, columns):
            return _Node(q.at(x, columns), torch.zeros(1).double())

    both = vgi(density, Fixed(), x, columns)
    apart = [vgi(density, Fixed(), x, columns[[k]]) for k in (0, 1)]
    torch.testing.assert_close(both, (apart[0] + apart[1]) / 2)
    loc = q.at(x, columns[0]).loc
    moved = x.scatter(-1, columns[0][:, None], loc[:, None])
    entropy = q.at(x, columns[0]).entropy()
    torch.testing.assert_close(apart[0], density.log_prob(moved) + entropy)


def test_without_a_closed_entropy_it_is_estimated(model, rows, seed):
    """On average by -log q at the draw: the bound stays below the likelihood."""
    x, columns = rows[0][:1], rows[1][:1]
    log_p, _ = log_prob_observed(model, x, without(x, columns))
    q = StandardConditionals(D, MixtureHead(1), nn.Identity(), D, (3,)).double()
    anchor(q, model.mean, model.precision())
    with torch.no_grad():  # the only component starts a scale to the left
        q.intercepts += q.log_scales.exp()
        values = vgi(
            FactorDensity.of(model), q, x.expand(50, -1), columns.expand(1, 50)
        )
    # log p - log q is then the same at every draw
    torch.testing.assert_close(values, log_p.expand(50), rtol=0, atol=1e-8)


def test_regressions_score_observed_cells_blindly(model, rows):
    x, columns = rows
    weights = torch.rand(12).double()
    for kind in (StandardConditionals, ExtendedConditionals):
        q = exact(model, kind)
        scores = regression(q, x, columns, weights)
        rest = without(x, columns)
        joint = MultivariateNormal(model.mean, model.covariance()).log_prob(x)
        log_p, _ = log_prob_observed(model, x, rest)
        torch.testing.assert_close(scores, weights * (joint - log_p))


# The variational Gibbs objective of levels against sums over all rows of a table


SIZES = torch.tensor([3, 2, MOST_LEVELS])
LONG = torch.tensor([2, MOST_LEVELS + 7])


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


def rows_of(sizes, n):
    x = torch.stack([torch.randint(int(size), (n,)) for size in sizes], -1).double()
    return x, torch.randint(len(sizes), (1, n))


def exact_bound(model, q, x, columns):
    """Compute J of rows by the sum of eq. (1) of `skvnce.vgi.training`."""
    records = []
    for row, j in zip(x, columns[0].tolist(), strict=True):
        log_q = q.at(row[None], torch.tensor([j])).log_probabilities[0]
        terms = []
        for k in range(model.logits.shape[j]):
            moved = row.clone()
            moved[j] = k
            terms.append(log_q[k].exp() * (model.log_prob(moved[None])[0] - log_q[k]))
        records.append(sum(terms))
    return torch.stack(records)


def gradients(value, *modules):
    leaves = [leaf for one in modules for leaf in one.parameters()]
    return torch.autograd.grad(value, leaves, allow_unused=True)


def test_values_and_gradients_are_those_of_the_sum():
    model, q = Table(SIZES), random_conditionals(SIZES)
    x, columns = rows_of(SIZES, 40)
    result, exact = vgi(model, q, x, columns), exact_bound(model, q, x, columns)
    torch.testing.assert_close(result, exact)
    pairs = zip(
        gradients(result.mean(), model, q),
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
    values = vgi(model, Exact(model), x, columns)
    likelihood = [
        model.log_table().logsumexp(j)[
            tuple(int(cell) for k, cell in enumerate(row) if k != j)
        ]
        for row, j in zip(x, columns[0].tolist(), strict=True)
    ]
    torch.testing.assert_close(values, torch.stack(likelihood))
    other = vgi(model, Exact(Table(SIZES)), x, columns)
    assert (other < values).all()  # by the divergence of q


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
    result = redraw(OfLogits(wide), x, columns)
    assert len(result.tables) == n * MOST_LEVELS < n * size
    bound = result.bound(model.log_prob(result.tables))[0]
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
    q = random_conditionals(SIZES)
    x, columns = rows_of(SIZES, 20)
    scores = regression(q, x, columns[0], torch.ones(20))
    table = q.at(x, columns[0]).log_probabilities
    value = x.gather(-1, columns[0][:, None]).long()
    torch.testing.assert_close(scores, table.gather(-1, value)[:, 0])
