"""Networks that read rows of sparse binary tables, for posteriors of binary causes.

Both take the cells of a row that are on or missing, `columns`, `on` and `missing` of
shape (n, n_listed), as `skvnce.models.noisy_or.Cells` lists them, and their cost is
proportional to the number of these.

Yan, Ailem and Sha (2019), Amortized inference of variational bounds for
learning noisy-OR, eqs. (14)-(15).
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, softplus


class RowNetwork(nn.Module):
    """Hidden units of rows: a sum over cells, followed by layers.

    `hidden`: sizes of the layers.  `n_listed`: typical number of listed cells of a row;
    scales the initial weights.
    """

    def __init__(
        self, n_features: int, hidden: tuple[int, ...], n_listed: float
    ) -> None:
        super().__init__()
        # the sum of the weights of the listed cells has then about unit variance
        scale = 1 / sqrt(max(n_listed, 1.0))
        self.on = nn.Parameter(scale * torch.randn(n_features, hidden[0]))
        # initially missing cells are read as cells that are off
        self.missing = nn.Parameter(torch.zeros(n_features, hidden[0]))
        self.bias = nn.Parameter(torch.zeros(hidden[0]))
        self.layers = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(hidden[:-1], hidden[1:], strict=True)
        )

    def forward(self, columns: Tensor, on: Tensor, missing: Tensor) -> Tensor:
        """Map rows to hidden units; (n, hidden[-1])."""
        total = self.bias + _summed(self.on, columns, on)
        # tables without missing cells are spared a sum
        if missing.any():
            total = total + _summed(self.missing, columns, missing)
        for layer in self.layers:
            total = layer(total.relu())
        return total.relu()

    @torch.no_grad()
    def always_missing(self, features: Tensor) -> None:
        """Treat the cells of some columns as missing in all rows, without a list."""
        self.bias += self.missing[features].sum(0)


def _summed(weight: Tensor, columns: Tensor, listed: Tensor) -> Tensor:
    """Sum weights (features, hidden) over the listed cells of each row."""
    return torch.einsum("ni,nih->nh", listed, embedding(columns, weight))


class CauseNetwork(nn.Module):
    """Logits of the causes, independent of the model: amortised inference, AVI.

    `n_hidden`: units of its last layer.
    """

    def __init__(self, rows: RowNetwork, n_hidden: int, n_causes: int) -> None:
        super().__init__()
        self.rows = rows
        self.last = nn.Linear(n_hidden, n_causes)

    def forward(self, columns: Tensor, on: Tensor, missing: Tensor) -> Tensor:
        """Map rows to logits; (n, causes)."""
        return self.last(self.rows(columns, on, missing))


class LineNetwork(nn.Module):
    """Slopes psi > 0 of the lines above the likelihood of cells, eq. (14).

    They are only needed for cells that are on.

    `n_hidden`: units of its last layer.
    """

    def __init__(self, rows: RowNetwork, n_hidden: int, n_features: int) -> None:
        super().__init__()
        self.rows = rows
        scale = 1 / sqrt(n_hidden)
        self.weight = nn.Parameter(scale * torch.randn(n_features, n_hidden))
        self.bias = nn.Parameter(torch.zeros(n_features))

    def forward(self, columns: Tensor, on: Tensor, missing: Tensor) -> Tensor:
        """Map rows to slopes of their listed cells; (n, n_listed)."""
        hidden = self.rows(columns, on, missing)
        weight = embedding(columns, self.weight)  # (n, n_listed, n_hidden)
        return softplus(self.bias[columns] + torch.einsum("nh,nih->ni", hidden, weight))
