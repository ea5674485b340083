"""Where conditionals of a mixture of normals are, as the start of other conditionals.

The conditional of one column given all others, of a mixture of normals with weights
pi_k, means m_k and precisions P_k, is a mixture with the components

    N(x_j - g_kj / P_kjj, 1 / P_kjj),    g_k = P_k (x - m_k)                         (1)

and the log-weights, up to a constant,

    log pi_k + (log det P_k - (x - m_k)'g_k + g_kj^2 / P_kjj - log P_kjj) / 2        (2)

which do not depend on x_j.
"""

import torch
from torch import Tensor, nn


class MixtureOffset(nn.Module):
    """Means and standard deviations of the conditionals of a mixture of normals.

    `weights` (n_components,), `means` (n_components, features), `covariances`
    (n_components, features, features).
    """

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        super().__init__()
        precisions = torch.linalg.inv(covariances)
        log_det = torch.linalg.slogdet(precisions).logabsdet
        self.register_buffer("means", means)
        # one matrix, so that all components take one product
        self.register_buffer("joint", precisions.movedim(0, 1).flatten(1))
        self.register_buffer("shift", (precisions @ means[..., None]).flatten())
        self.register_buffer("diagonals", precisions.diagonal(dim1=1, dim2=2).clone())
        self.register_buffer("log_weights", weights.log() + log_det / 2)

    def forward(self, x: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and logarithms of standard deviations.

        `columns` (int (n,)).  `x` (n, features): the cell of its column has no effect.
        Returns `mean`, `log_scale` (n,).
        """
        slopes = torch.addmm(-self.shift, x, self.joint).view(-1, *self.means.shape)
        square = ((x[:, None] - self.means) * slopes).sum(-1)
        column = columns[:, None]
        place = column[:, None].expand(-1, len(self.means), 1)
        own = slopes.gather(-1, place).squeeze(-1)
        precision = self.diagonals.T[columns]
        mean = x.gather(-1, column) - own / precision  # eq. (1)
        log_weight = own.square() / precision - square - precision.log()
        weight = (self.log_weights + log_weight / 2).softmax(-1)  # eq. (2)
        middle = (weight * mean).sum(-1)
        apart = (mean - middle[:, None]).square() + 1 / precision
        return middle, (weight * apart).sum(-1).log() / 2
