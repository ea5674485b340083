"""Univariate variational conditionals q(x_j | x) of all columns of a row.

Each column has its own network, or all columns share a body and each has a small
network on top of it; the networks of all columns are computed in batched matrix
products.  Standard conditionals do not depend on the cell that they draw (section 3.1).
Extended ones also depend on its previous value: the body is then computed once for all
columns (appendix E).

The location of q_j is a linear function of the other cells plus the output of the
network, which is initially zero.  For normal rows the linear part alone is exact,
`anchor`.  To both a fixed function of the other cells may be added, an offset.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, sections 3.1 and 3.3, appendix E.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce.variational.heads import Head

# the default of torch and the value of the authors
_SLOPE = 0.01  # of leaky rectifiers, below zero


class ColumnNetworks(nn.Module):
    """One perceptron of leaky rectifiers a column; its outputs are initially zero.

    `sizes`: inputs, hidden layers, outputs.
    """

    def __init__(self, n_columns: int, sizes: list[int]) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in zip(sizes[:-1], sizes[1:], strict=True):
            bound = a**-0.5  # as in torch's linear layers
            self.weights.append(torch.empty(n_columns, a, b).uniform_(-bound, bound))
            self.biases.append(torch.empty(n_columns, 1, b).uniform_(-bound, bound))
        nn.init.zeros_(self.weights[-1])
        nn.init.zeros_(self.biases[-1])

    def forward(self, h: Tensor) -> Tensor:
        """Map (n_columns, n, inputs) to (n_columns, n, outputs)."""
        *inner, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in inner:
            h = nn.functional.leaky_relu(torch.baddbmm(bias, h, weight), _SLOPE)
        weight, bias = last
        return torch.baddbmm(bias, h, weight)

    def of_one(self, h: Tensor, columns: Tensor) -> Tensor:
        """Map (n, inputs) to (n, outputs), each row by the network of its column.

        Rows are sorted by column, so that no weight is copied.
        """
        counts = torch.bincount(columns, minlength=len(self.weights[0]))
        order = columns.argsort()
        first = (counts.cumsum(0) - counts)[columns[order]]
        rank = torch.empty_like(columns)
        rank[order] = torch.arange(len(columns)).to(columns) - first
        laid = h.new_zeros(len(counts), int(counts.max()), h.shape[-1])
        laid = laid.index_put((columns, rank), h)
        return self(laid)[columns, rank]


class _Conditionals(nn.Module):
    """Base class: conditionals made of a body, networks of columns, and a linear part.

    `offset` (nn.Module or None): maps rows (n, features) and columns (n,) to what is
    added to the locations and the logarithms of the scales.
    """

    def __init__(
        self,
        n_features: int,
        head: Head,  # the family
        # shared by all columns, (*batch, features) to (*batch, n_shared); with
        # `nn.Identity()` every column has its own network
        body: nn.Module,
        n_shared: int,  # outputs of the body
        hidden: tuple[int, ...],  # sizes of the hidden layers of each column's network
    ) -> None:
        super().__init__()
        self.head, self.body, self.offset = head, body, None
        self.networks = ColumnNetworks(
            n_features, [n_shared, *hidden, head.n_parameters]
        )
        self.slopes = nn.Parameter(torch.zeros(n_features, n_features))
        self.intercepts = nn.Parameter(torch.zeros(n_features))
        self.log_scales = nn.Parameter(torch.zeros(n_features))
        self.register_buffer("others", 1.0 - torch.eye(n_features))

    def blind(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row, with zero in place of x_j."""
        x = x.expand(*columns.shape, -1)
        return self._at(x, columns, x.scatter(-1, columns.unsqueeze(-1), 0.0))

    def _at(self, x: Tensor, columns: Tensor, seen: Tensor) -> Distribution:
        """Return q_j of one column a row, with the given rows as input of the body.

        The body is evaluated once, for any number of columns of each row.
        """
        flat = columns.reshape(-1)
        rows = x.expand(*columns.shape, -1).reshape(len(flat), x.shape[-1])
        shared = self.body(seen.reshape(-1, seen.shape[-1]))
        shared = shared.view(*seen.shape[:-1], shared.shape[-1])
        shared = shared.expand(*columns.shape, -1)
        shared = shared.reshape(len(flat), shared.shape[-1])
        raw = self.networks.of_one(shared, flat)
        # without the diagonal, which would let q_j depend linearly on x_j
        slopes = nn.functional.embedding(flat, self.slopes * self.others)
        loc = (rows * slopes).sum(-1) + self.intercepts[flat]
        log_scale = self.log_scales[flat]
        if self.offset is not None:
            mean, wider = self.offset(rows, flat)
            loc, log_scale = loc + mean, log_scale + wider
        return self.head(
            (loc + raw[:, 0]).view(columns.shape),
            (log_scale + raw[:, 1]).view(columns.shape),
            raw[:, 2:].view(*columns.shape, self.head.n_parameters - 2),
            columns,
        )

    def _all(self, x: Tensor, raw: Tensor) -> Distribution:
        """Return q_j of all columns, raw (n_columns, n, n_parameters)."""
        raw = raw.movedim(0, 1).reshape(*x.shape, -1)
        loc = x @ (self.slopes * self.others).T + self.intercepts
        columns = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
        log_scale = self.log_scales
        if self.offset is not None:
            rows = x.unsqueeze(-2).expand(*x.shape, -1).reshape(-1, x.shape[-1])
            mean, wider = self.offset(rows, columns.reshape(-1))
            loc, log_scale = loc + mean.view(x.shape), log_scale + wider.view(x.shape)
        return self.head(
            loc + raw[..., 0], log_scale + raw[..., 1], raw[..., 2:], columns
        )


class StandardConditionals(_Conditionals):
    """Conditionals q(x_j | x_-j), which do not depend on x_j; see `_Conditionals`."""

    def at(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row."""
        return self.blind(x, columns)

    def back(self, q: Distribution, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j after its own cell has changed: q is the same."""
        return q

    def all(self, x: Tensor) -> Distribution:
        """Return q_j of all columns; the body gets d versions of each row."""
        rows = x.reshape(-1, x.shape[-1])
        views = rows * self.others.unsqueeze(1)  # (features, n, features)
        return self._all(x, self.networks(self.body(views)))


class ExtendedConditionals(_Conditionals):
    """Conditionals q(x_j | x) that depend on the previous x_j; see `_Conditionals`."""

    def at(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row."""
        return self._at(x, columns, x)

    def back(self, q: Distribution, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j after its own cell has changed to its value in x."""
        return self.at(x, columns)

    def all(self, x: Tensor) -> Distribution:
        """Return q_j of all columns; the body gets each row once."""
        shared = self.body(x.reshape(-1, x.shape[-1]))
        return self._all(x, self.networks(shared.expand(x.shape[-1], *shared.shape)))


def anchor(conditionals: _Conditionals, mean: Tensor, precision: Tensor) -> None:
    """Set the linear part to that of N(mean, precision^-1), in place.

    ``x_j | x_-j ~ N(mean_j - sum_k K_jk (x_k - mean_k) / K_jj, 1 / K_jj)``, k other
    than j, with K the precision matrix (features, features).
    """
    diagonal = precision.diagonal()
    slopes = -(precision - diagonal.diag()) / diagonal[:, None]
    with torch.no_grad():
        conditionals.slopes.copy_(slopes)
        conditionals.intercepts.copy_(mean - slopes @ mean)
        conditionals.log_scales.copy_(-diagonal.log() / 2)
