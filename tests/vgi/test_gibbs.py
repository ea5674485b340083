"""Univariate conditionals of all columns, of numbers and of levels."""

from functools import partial

import pytest
import torch
from oracles import shaken
from torch import nn
from torch.distributions import Normal
from torch.testing import assert_close
from toy import of_all_columns, random_conditionals

from skvnce.vgi.conditionals import (
    ColumnNetworks,
    ExtendedConditionals,
    Indicators,
    MixtureHead,
    NormalHead,
    SplineHead,
    StandardConditionals,
    anchor,
)

# Univariate conditionals of all columns against plain computations a row at a time


D, N = 4, 9
HEADS = {
    "normal": NormalHead(),
    "mixture": MixtureHead(2),
    "spline": SplineHead(n_steps=1),
}
KINDS = {"standard": StandardConditionals, "extended": ExtendedConditionals}


def conditionals(kind, head="normal", shared=True):
    body = nn.Sequential(nn.Linear(D, 5), nn.LeakyReLU()) if shared else nn.Identity()
    made = KINDS[kind](D, HEADS[head], body, 5 if shared else D, (3, 2))
    return shaken(made.double())


pytestmark = pytest.mark.usefixtures("torch_seeded")


@pytest.fixture
def x():
    return torch.randn(N, D).double()


def numbers(q):
    """Give what tells distributions apart: their log-densities at points."""
    at = torch.tensor([-0.8, 0.1, 1.3]).double().view(3, *[1] * len(q.batch_shape))
    return q.log_prob(at.expand(3, *q.batch_shape))


def column(j, x):
    return torch.full(x.shape[:-1], j)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_columns_are_each_column(kind, head, shared, x):
    q = conditionals(kind, head, shared)
    together = numbers(of_all_columns(q, x))
    for j in range(D):
        alone = numbers(q.at(x, column(j, x)))
        assert_close(together[..., j], alone)
    mixed = torch.randint(D, (N,))
    result = numbers(q.at(x, mixed))
    picked = together.gather(-1, mixed.expand(3, N).unsqueeze(-1)).squeeze(-1)
    assert_close(result, picked)


@pytest.mark.parametrize("kind", KINDS)
def test_leading_shapes_are_free(kind, x):
    q = conditionals(kind)
    tables = torch.randn(3, 2, N, D).double()
    columns = torch.randint(D, (3, 2, N))
    assert of_all_columns(q, tables).batch_shape == tables.shape
    result = numbers(q.at(tables, columns))
    assert_close(result[:, 2, 1], numbers(q.at(tables[2, 1], columns[2, 1])))
    expected = numbers(of_all_columns(q, tables[1, 0]))
    assert_close(numbers(of_all_columns(q, tables))[:, 1, 0], expected)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_what_each_sees_of_its_own_cell(head, shared, x):
    """Standard and masked conditionals: nothing, not even NaN; extended ones: all."""
    standard, extended = (conditionals(kind, head, shared) for kind in KINDS)
    for j in range(D):
        at, moved = column(j, x), x.clone()
        moved[:, j] += 1.7
        for rule in (standard.at, standard.masked, extended.masked):
            expected = numbers(rule(moved, at))
            assert_close(numbers(rule(x, at)), expected, rtol=0, atol=1e-12)
        own, other = (of_all_columns(standard, rows) for rows in (x, moved))
        assert_close(numbers(own)[..., j], numbers(other)[..., j])
        assert not torch.allclose(numbers(extended.at(x, at)), _at(extended, moved, j))
        moved = x.clone()
        moved[:, (j + 1) % D] += 1.7
        for rule in (standard.at, standard.masked, extended.masked, extended.at):
            assert not torch.allclose(numbers(rule(x, at)), numbers(rule(moved, at)))


def _at(q, x, j):
    return numbers(q.at(x, column(j, x)))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_several_columns_of_each_row(kind, shared, x):
    """The rows need not be repeated, and extended conditionals see them once."""
    q, columns = conditionals(kind, shared=shared), torch.randint(D, (5, 3, N))
    tables, seen = x.expand(3, N, D) + torch.randn(3, 1, 1).double(), []
    repeated = tables.expand(5, 3, N, D)
    for rule in (q.at, q.masked):
        q.body.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
        result, known = (numbers(rule(rows, columns)) for rows in (tables, repeated))
        assert_close(result, known)
    assert seen[0] == (3 * N if kind == "extended" else 15 * N)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row(kind, x):
    """Without any leading shape."""
    q = conditionals(kind)
    one = q.at(x[0], torch.tensor(2))
    assert one.batch_shape == ()
    assert_close(numbers(one), numbers(q.at(x, column(2, x)))[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_masked_conditionals_have_zero_as_input(kind, x):
    q, at = conditionals(kind), column(2, x)
    hidden = x.clone()
    hidden[:, 2] = 0.0
    assert_close(numbers(q.masked(x, at)), numbers(q.at(hidden, at)))


@pytest.mark.parametrize("kind", KINDS)
def test_going_back(kind, x):
    """`back` is `at` where only the own cell has moved since."""
    q, at = conditionals(kind), torch.randint(D, (N,))
    before = q.at(x, at)
    moved = x.scatter(-1, at[:, None], torch.randn(N, 1).double())
    assert_close(numbers(q.back(before, moved, at)), numbers(q.at(moved, at)))


def test_one_network_a_row():
    """Against the perceptron of each row's column, written out; no row, one column."""
    networks = shaken(ColumnNetworks(D, [3, 6, 5, 2]).double())
    h = torch.randn(20, 3).double()

    def plain(row, j):
        for k, (weight, bias) in enumerate(
            zip(networks.weights, networks.biases, strict=True)
        ):
            row = row @ weight[j] + bias[j, 0]
            row = nn.functional.leaky_relu(row, 0.01) if k < 2 else row
        return row

    for columns in (
        torch.randint(D, (20,)),
        torch.full((20,), 3),
        torch.arange(20) % 2,
    ):
        result = networks.of_one(h, columns)
        exact = torch.stack([plain(*pair) for pair in zip(h, columns, strict=True)])
        assert_close(result, exact)
        apart = networks(h.expand(D, 20, 3))
        assert_close(apart[columns, torch.arange(20)], exact)
    assert networks.of_one(h[:0], columns[:0]).shape == (0, 2)


def test_gradients_of_one_network_a_row():
    networks = shaken(ColumnNetworks(3, [2, 2, 2]).double())
    h = torch.randn(5, 2).double().requires_grad_()
    columns = torch.tensor([0, 2, 2, 0, 0])
    weights = torch.randn(5, 2).double()
    leaves = [h, *networks.parameters()]
    gradients = torch.autograd.grad(
        (networks.of_one(h, columns) * weights).sum(), leaves
    )
    apart = networks(h.expand(3, 5, 2))[columns, torch.arange(5)]
    exact = torch.autograd.grad((apart * weights).sum(), leaves)
    for mine, known in zip(gradients, exact, strict=True):
        assert_close(mine, known)
    assert (gradients[1][1] == 0).all()  # of the column that no row is of


@pytest.mark.parametrize("kind", KINDS)
def test_networks_start_at_nothing(kind, x):
    """q_j is then N(0, 1), and learns: also where the last layer is zero."""
    q = KINDS[kind](D, NormalHead(), nn.Identity(), D, (3,)).double()
    result = of_all_columns(q, x)
    assert (result.loc == 0).all()
    assert (result.scale == 1).all()
    of_all_columns(q, x).log_prob(x).sum().backward()
    assert (q.slopes.grad[~torch.eye(D).bool()] != 0).all()
    assert (q.networks.weights[-1].grad != 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_anchors_are_the_exact_conditionals(kind, x):
    """Of a normal, by Schur's complement of each column."""
    root = torch.randn(D, D).double()
    covariance, mean = root @ root.T + torch.eye(D), torch.randn(D).double()
    q = KINDS[kind](D, NormalHead(), nn.Identity(), D, (3,)).double()
    anchor(q, mean, torch.linalg.inv(covariance))
    result = of_all_columns(q, x)
    for j in range(D):
        rest = [k for k in range(D) if k != j]
        gain = torch.linalg.solve(covariance[rest][:, rest], covariance[rest, j])
        loc = mean[j] + (x - mean)[:, rest] @ gain
        std = (covariance[j, j] - gain @ covariance[rest, j]).sqrt()
        assert_close(result.loc[:, j], loc)
        assert_close(result.scale[:, j], std.expand(N))
        one = q.at(x, column(j, x))
        assert_close(numbers(one), numbers(Normal(loc, std)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_diagonal_of_the_slopes_is_never_used(kind, x):
    q = conditionals(kind)
    before = numbers(of_all_columns(q, x)), numbers(q.at(x, column(1, x)))
    with torch.no_grad():
        q.slopes.diagonal().add_(7.0)
    after = numbers(of_all_columns(q, x)), numbers(q.at(x, column(1, x)))
    for mine, known in zip(after, before, strict=True):
        assert torch.equal(mine, known)


# Conditionals of numbers and levels


LEVELS = torch.tensor([0, 3, 0, 2])
D_MIXED, N_MIXED = len(LEVELS), 11


made = partial(random_conditionals, LEVELS)


def rows():
    x = torch.randn(N_MIXED, D_MIXED).double()
    x[:, 1], x[:, 3] = torch.randint(3, (N_MIXED,)), torch.randint(2, (N_MIXED,))
    return x


def parts(q):
    levels = q.log_probabilities.where(q.is_level[..., None], 0.0)
    return levels, q.number.loc, q.number.scale


def test_levels_are_indicators():
    inputs = Indicators(LEVELS)
    x = torch.tensor([[0.5, 2.0, -3.0, 0.0]])
    assert inputs(x).tolist() == [[0.5, -3.0, 0.0, 0.0, 1.0, 1.0, 0.0]]
    assert inputs.owners.tolist() == [0, 2, 1, 1, 1, 3, 3]
    assert inputs.others[1].tolist() == [1, 1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("column", range(D_MIXED))
def test_standard_conditionals_do_not_depend_on_their_cell(column):
    x, columns = rows(), torch.full((N_MIXED,), column)
    other = x.clone()
    other[:, column] = (x[:, column] + 1) % max(int(LEVELS[column]), 7)
    standard, extended = made(), made(extended=True)
    for q, equal in (
        (standard.at, True),
        (extended.at, False),
        (extended.masked, True),
    ):
        before, after = parts(q(x, columns)), parts(q(other, columns))
        same = all(map(torch.equal, before, after))
        assert same == equal
    moved = x.clone()
    moved[:, (column + 1) % D_MIXED] = (x[:, (column + 1) % D_MIXED] + 1) % 2
    pair = zip(
        parts(standard.at(x, columns)), parts(standard.at(moved, columns)), strict=True
    )
    assert not all(torch.equal(*one) for one in pair)  # control


def test_all_columns_are_those_of_one_at_a_time():
    q, x = made(), rows()
    result = of_all_columns(q, x)
    assert result.batch_shape == x.shape
    for column in range(D_MIXED):
        columns = torch.full((N_MIXED,), column)
        for one, all_of in zip(parts(q.at(x, columns)), parts(result), strict=True):
            assert_close(one, all_of[:, column])


def test_chains_and_selected_cells_are_batches():
    q = made()
    x = torch.stack([rows(), rows()])
    columns = torch.randint(D_MIXED, (3, 2, N_MIXED))
    conditional = q.at(x, columns)
    assert conditional.batch_shape == columns.shape
    pairs = zip(parts(q.at(x[1], columns[2, 1])), parts(conditional), strict=True)
    for one, whole in pairs:
        assert_close(one, whole[2, 1])


def test_without_networks_probabilities_are_linear():
    q, x = made(), rows()
    with torch.no_grad():
        for leaf in q.networks.parameters():
            leaf.zero_()
    result = q.at(x, torch.full((N_MIXED,), 1))
    inputs = q.inputs(x) * q.inputs.others[1]
    logits = inputs @ q.slopes[1:4].T + q.intercepts[1:4]
    assert_close(result.log_probabilities, logits.log_softmax(-1))
    result = q.at(x, torch.full((N_MIXED,), 2)).number
    inputs = q.inputs(x) * q.inputs.others[2]
    assert_close(result.loc, inputs @ q.slopes[4] + q.intercepts[4])
    assert_close(result.scale, q.log_scales[2].exp().expand(N_MIXED))


def test_numbers_may_be_mixtures():
    q = made(head=MixtureHead()).at(rows(), torch.arange(N_MIXED) % D_MIXED)
    candidates = q.candidates(3)
    assert candidates.values.shape == (N_MIXED, 3)
    assert candidates.values.isfinite().all()
    assert_close(candidates.weights.sum(-1), torch.ones(N_MIXED).double())
