"""Networks of sparse rows against the same sums over dense ones."""

import numpy as np
import pytest
import torch
from tables import cells_of

from skvnce.noisy_or.model import CauseNetwork, LineNetwork, RowNetwork

N, D, K, HIDDEN = 7, 6, 3, (5, 4)


@pytest.fixture
def table(rng):
    x = (rng.random((N, D)) < 0.5).astype(float)
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


@pytest.fixture
def rows(torch_seeded):
    rows = RowNetwork(D, HIDDEN, 3.0).double()
    torch.nn.init.normal_(rows.missing)  # at the start missing cells say nothing
    return rows


def by_hand(rows, x):
    on, missing = torch.tensor(x == 1).double(), torch.tensor(np.isnan(x)).double()
    first = on @ rows.on + missing @ rows.missing + rows.bias
    return rows.layers[0](first.relu()).relu()


def test_hidden_units_are_sums_over_cells(rows, table):
    torch.testing.assert_close(rows(*cells_of(table)), by_hand(rows, table))


def test_rows_filled_up_are_the_same(rows, table):
    """Also the width of the list is no input."""
    columns, on, missing = cells_of(table)
    wide = [torch.cat([part, 0 * part], 1) for part in (columns, on, missing)]
    wide[0][:, -2:] = D - 1
    torch.testing.assert_close(rows(*wide), rows(columns, on, missing))


def test_causes_are_a_layer_on_top(rows, table):
    network = CauseNetwork(rows, HIDDEN[-1], K).double()
    expected = network.last(by_hand(rows, table))
    torch.testing.assert_close(network(*cells_of(table)), expected)


def test_lines_are_positive_and_those_of_their_columns(rows, table):
    network = LineNetwork(rows, HIDDEN[-1], D).double()
    torch.nn.init.normal_(network.bias)
    cells = cells_of(table)
    everywhere = by_hand(rows, table) @ network.weight.T + network.bias
    expected = everywhere.exp().log1p().gather(1, cells.columns)
    result = network(*cells)
    torch.testing.assert_close(result, expected)
    assert (result > 0).all()


@pytest.mark.parametrize("kind", ["causes", "lines"])
def test_gradients_reach_all_parameters(kind, rows, table):
    sizes = {"causes": (CauseNetwork, K), "lines": (LineNetwork, D)}
    make, width = sizes[kind]
    network = make(rows, HIDDEN[-1], width).double()
    weight = torch.randn(N, 20, dtype=torch.float64)
    value = network(*cells_of(table))
    (weight[:, : value.shape[1]] * value).sum().backward()
    for name, leaf in network.named_parameters():
        assert (leaf.grad != 0).any(), name
