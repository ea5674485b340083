"""Conditional noise-contrastive estimation: noise around the data, without a density.

A row y of noise is made from the row x of data by a kernel with p(y | x) = p(x | y),
and the model classifies which of the two is the data,

    J = 2 E log 1 / (1 + phi(y) / phi(x))                                          (1)

The normaliser cancels, and so does the density of the noise.  With unobserved variables
z of a row, phi(x) is replaced by phi(x, z) / q(z | x) at draws of q, and phi(y) by its
estimate from draws at y, as in VNCE.  As log(1 / (1 + a / phi)) is concave in phi, the
first replacement gives a lower bound.

Ceylan and Gutmann (2018), eqs. (8)-(10).
"""

from torch import Tensor
from torch.nn.functional import logsigmoid

from skvnce.objectives.vnce import counted, mean_over_draws


def by_neighbours(
    data: Tensor, marginal: Tensor, log_weight: Tensor, log_score: Tensor | None = None
) -> Tensor:  # (n,)
    """Compute eq. (1) of each row of data.

    `data`, `log_weight` (n_draws, n).  `log_score`: log phi(x, z) - log q(z | x), as in
    `skvnce.objectives.vnce.data_term`.  `marginal` (nu, n): log phi at the nu
    neighbours of each row.
    """
    values = logsigmoid(counted(data, log_weight)[:, None] - marginal)
    if log_score is not None:
        log_score = log_score[:, None]
    return 2 * mean_over_draws(values, log_weight[:, None], log_score).mean(0)
