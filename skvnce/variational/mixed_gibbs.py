"""Univariate variational conditionals q(x_j | x) of rows of numbers and levels.

Networks read levels as indicators, and those of x_j are zero in standard conditionals.
A column of K levels has a categorical distribution, whose logits are linear functions
of the other cells plus outputs of the column's network, and a column of numbers has the
head of `skvnce.variational.gibbs`:

    q(x_j = k | x) = exp(l_jk) / sum_m exp(l_jm),   l_jk = a_jk + b_jk'e(x)_-j + f_jk(x)

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, sections 3.1 and 3.3, for numbers.
"""

import torch
from torch import Tensor, nn

from skvnce.distributions.number_or_level import NumberOrLevel
from skvnce.variational.gibbs import ColumnNetworks
from skvnce.variational.heads import Head


class Indicators(nn.Module):
    """Rows as inputs of networks: numbers, and an indicator of each level.

    `n_levels` (int (features,)): of columns of categories; 0 for numbers.  `owners`
    (int (n_inputs,)): the column of each input.  `others` (features, n_inputs): 1, or 0
    for the inputs that belong to the column itself.
    """

    def __init__(self, n_levels: Tensor) -> None:
        super().__init__()
        numbers = (n_levels == 0).nonzero().squeeze(1)
        columns = n_levels.nonzero().squeeze(1)
        sizes = n_levels[columns]
        self.register_buffer("numbers", numbers)
        self.register_buffer("columns", columns.repeat_interleave(sizes))
        first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        self.register_buffer("codes", torch.arange(int(sizes.sum())) - first)
        self.register_buffer("owners", torch.cat([numbers, self.columns]))
        own = self.owners == torch.arange(len(n_levels)).unsqueeze(1)
        self.register_buffer("others", (~own).float())

    def forward(self, x: Tensor) -> Tensor:
        """Map (*batch, features) to (*batch, n_inputs)."""
        levels = x[..., self.columns].round() == self.codes
        return torch.cat([x[..., self.numbers], levels.to(x)], -1)


class MixedConditionals(nn.Module):
    """Conditionals of numbers and levels, made of a body, networks and a linear part.

    `places` (int (features, most_levels)): where the linear part has the logits of each
    column, or the location of numbers, which is first; the last is repeated.  `owners`
    (int (n_linear,)): the column of each output of the linear part.
    """

    def __init__(
        self,
        inputs: Indicators,
        n_levels: Tensor,  # int (features,): 0 for numbers
        head: Head,  # the family of numbers
        # shared by all columns, (*batch, n_inputs) to (*batch, n_shared)
        body: nn.Module,
        n_shared: int,
        hidden: tuple[int, ...],  # sizes of the hidden layers of each column's network
        # (features, n_inputs): what the networks of a column see, as factors of the
        # inputs: ``inputs.others``, or ones for extended conditionals, which depend on
        # the previous x_j
        visible: Tensor,
    ) -> None:
        super().__init__()
        self.inputs, self.head, self.body = inputs, head, body
        d, widest = len(n_levels), int(n_levels.max())
        self.networks = ColumnNetworks(
            d, [n_shared, *hidden, head.n_parameters + widest]
        )
        sizes = n_levels.clamp(min=1)
        first, within = sizes.cumsum(0) - sizes, torch.arange(widest)
        self.register_buffer("n_levels", n_levels)
        self.register_buffer("visible", visible)
        self.register_buffer("owners", torch.arange(d).repeat_interleave(sizes))
        self.register_buffer(
            "places", first[:, None] + within.minimum(sizes[:, None] - 1)
        )
        n_linear = int(sizes.sum())
        self.slopes = nn.Parameter(torch.zeros(n_linear, len(inputs.owners)))
        self.intercepts = nn.Parameter(torch.zeros(n_linear))
        self.log_scales = nn.Parameter(torch.zeros(d))

    def at(self, x: Tensor, columns: Tensor) -> NumberOrLevel:
        """Return q_j of one column a row."""
        return self._seen(x.expand(*columns.shape, -1), columns, self.visible)

    def back(self, q: NumberOrLevel, x: Tensor, columns: Tensor) -> NumberOrLevel:
        """Return q_j after its own cell has changed to its value in x."""
        return self.at(x, columns)

    def blind(self, x: Tensor, columns: Tensor) -> NumberOrLevel:
        """Return q_j of one column a row, whose networks do not see x_j."""
        return self._seen(x.expand(*columns.shape, -1), columns, self.inputs.others)

    def all(self, x: Tensor) -> NumberOrLevel:
        """Return q_j of all columns."""
        wide = x.unsqueeze(-2).expand(*x.shape, -1)
        columns = torch.arange(x.shape[-1]).expand(x.shape)
        return self._seen(wide, columns, self.visible)

    def _seen(self, rows: Tensor, columns: Tensor, visible: Tensor) -> NumberOrLevel:
        """Return q_j of rows (*batch, features), one column each.

        The networks see the inputs times the factors of the column, `visible`.
        """
        shape, flat = columns.shape, columns.reshape(-1)
        inputs = self.inputs(rows.reshape(len(flat), -1))
        raw = self.networks.of_one(self.body(inputs * visible[flat].to(inputs)), flat)
        # without own inputs, which would let q_j depend linearly on x_j
        slopes = self.slopes * self.inputs.others[self.owners].to(self.slopes)
        linear = (inputs @ slopes.T + self.intercepts).gather(1, self.places[flat])
        ours, logits = raw.split([self.head.n_parameters, linear.shape[1]], 1)
        number = self.head(
            (linear[:, 0] + ours[:, 0]).view(shape),
            (self.log_scales[flat] + ours[:, 1]).view(shape),
            ours[:, 2:].view(*shape, ours.shape[1] - 2),
            columns,
        )
        logits = (linear + logits).view(*shape, -1)
        return NumberOrLevel(number, logits, self.n_levels[columns])
