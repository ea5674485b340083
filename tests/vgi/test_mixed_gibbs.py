"""Conditionals of numbers and levels."""

import pytest
import torch
from torch import nn

from skvnce.vgi.conditionals import (
    Indicators,
    MixedConditionals,
    MixtureHead,
    NormalHead,
)

LEVELS = torch.tensor([0, 3, 0, 2])
D, N = len(LEVELS), 11


@pytest.fixture(autouse=True)
def seeded(seed):
    torch.manual_seed(seed)


def made(extended=False, head=None):
    inputs = Indicators(LEVELS)
    body = nn.Sequential(nn.Linear(len(inputs.owners), 6), nn.SiLU())
    visible = torch.ones_like(inputs.others) if extended else inputs.others
    head = head or NormalHead()
    q = MixedConditionals(inputs, LEVELS, head, body, 6, (5,), visible)
    with torch.no_grad():
        for leaf in q.parameters():
            leaf.normal_()
    return q.double()


def rows():
    x = torch.randn(N, D).double()
    x[:, 1], x[:, 3] = torch.randint(3, (N,)), torch.randint(2, (N,))
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


@pytest.mark.parametrize("column", range(D))
def test_standard_conditionals_do_not_depend_on_their_cell(column):
    x, columns = rows(), torch.full((N,), column)
    other = x.clone()
    other[:, column] = (x[:, column] + 1) % max(int(LEVELS[column]), 7)
    standard, extended = made(), made(extended=True)
    for q, equal in ((standard.at, True), (extended.at, False), (extended.blind, True)):
        before, after = parts(q(x, columns)), parts(q(other, columns))
        same = all(map(torch.equal, before, after))
        assert same == equal
    moved = x.clone()
    moved[:, (column + 1) % D] = (x[:, (column + 1) % D] + 1) % 2
    pair = zip(
        parts(standard.at(x, columns)), parts(standard.at(moved, columns)), strict=True
    )
    assert not all(torch.equal(*one) for one in pair)  # control


def test_all_columns_are_those_of_one_at_a_time():
    q, x = made(), rows()
    found = q.all(x)
    assert found.batch_shape == x.shape
    for column in range(D):
        columns = torch.full((N,), column)
        for one, all_of in zip(parts(q.at(x, columns)), parts(found), strict=True):
            torch.testing.assert_close(one, all_of[:, column])


def test_chains_and_selected_cells_are_batches():
    q = made()
    x = torch.stack([rows(), rows()])
    columns = torch.randint(D, (3, 2, N))
    found = q.at(x, columns)
    assert found.batch_shape == columns.shape
    for one, whole in zip(parts(q.at(x[1], columns[2, 1])), parts(found), strict=True):
        torch.testing.assert_close(one, whole[2, 1])


def test_without_networks_probabilities_are_linear():
    q, x = made(), rows()
    with torch.no_grad():
        for leaf in q.networks.parameters():
            leaf.zero_()
    found = q.at(x, torch.full((N,), 1))
    inputs = q.inputs(x) * q.inputs.others[1]
    logits = inputs @ q.slopes[1:4].T + q.intercepts[1:4]
    torch.testing.assert_close(found.log_probabilities, logits.log_softmax(-1))
    found = q.at(x, torch.full((N,), 2)).number
    inputs = q.inputs(x) * q.inputs.others[2]
    torch.testing.assert_close(found.loc, inputs @ q.slopes[4] + q.intercepts[4])
    torch.testing.assert_close(found.scale, q.log_scales[2].exp().expand(N))


def test_numbers_may_be_mixtures():
    q = made(head=MixtureHead()).at(rows(), torch.arange(N) % D)
    found = q.candidates(3)
    assert found.values.shape == (N, 3) and found.values.isfinite().all()
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(N).double())
