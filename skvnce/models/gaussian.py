"""The normal distribution of incomplete rows, all missingness patterns at once.

With ``P`` the precision matrix and m, o the missing and observed columns of a row,

    x_m | x_o ~ N(mean_m - P_mm^-1 P_mo (x_o - mean_o), P_mm^-1)                 (1)
    log p(x_o) = log N(x; mean, P^-1) + |m|/2 log 2 pi - log|P_mm|/2             (2)

with x_m in (2) at its conditional mean.  Only the block P_mm differs from row to row;
it is gathered into a batch as wide as the row with most missing cells, with ones on the
diagonal where a row has fewer.
"""

from collections.abc import Iterator
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

_CELLS_AT_ONCE = 2**21  # of the batch of blocks P_mm, 16 MiB


class Normal(NamedTuple):
    """Parameters: mean (features,) and covariance (features, features)."""

    mean: Tensor
    covariance: Tensor


class Conditional(NamedTuple):
    """The normal distribution of the missing cells of each row.

    Attributes
    ----------
    columns : Tensor of int64, of shape (n, width)
        The missing columns of each row, then others that do not count.
    valid : Tensor of bool, of shape (n, width)
        Which of them count.
    mean : Tensor of shape (n, width)
        Eq. (1).
    factor : Tensor of shape (n, width, width)
        Lower Cholesky factor of P_mm, the identity where not valid.
    """

    columns: Tensor
    valid: Tensor
    mean: Tensor
    factor: Tensor

    def covariance(self) -> Tensor:
        """Compute P_mm^-1, zero where not valid; (n, width, width)."""
        pairs = self.valid[:, :, None] & self.valid[:, None, :]
        return torch.cholesky_inverse(self.factor) * pairs

    def draw(self, normal: Tensor) -> Tensor:
        """Turn standard normal numbers (*batch, n, width) into draws."""
        scaled = torch.linalg.solve_triangular(
            self.factor.mT, normal[..., None], upper=True
        )
        return self.mean + scaled.squeeze(-1)

    def place(self, x: Tensor, values: Tensor) -> Tensor:
        """Write values of the missing cells into x; both (*batch, n, ...)."""
        columns = self.columns.expand(values.shape)
        kept = values.where(self.valid, x.gather(-1, columns))
        return x.scatter(-1, columns, kept)


def invert(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the inverse and log-determinant of a positive definite matrix."""
    factor = torch.linalg.cholesky(matrix)
    return torch.cholesky_inverse(factor), 2 * factor.diagonal().log().sum()


def condition(
    mean: Tensor, precision: Tensor, x: Tensor, observed: Tensor
) -> Conditional:
    """Compute the conditional distributions of eq. (1).

    Parameters
    ----------
    mean, precision : Tensor of shapes (features,) and (features, features)
    x : Tensor of shape (n, features)
        Values under the mask are never read.
    observed : Tensor of bool, of shape (n, features)

    Returns
    -------
    Conditional
    """
    count = (~observed).sum(1)
    width = int(count.max()) if len(x) else 0
    columns = observed.to(torch.uint8).sort(dim=1, stable=True).indices[:, :width]
    valid = torch.arange(width) < count[:, None]
    residual = (x - mean).where(observed, 0.0)
    field = (residual @ precision).gather(1, columns).where(valid, 0.0)
    block = precision[columns[:, :, None], columns[:, None, :]]
    pairs = valid[:, :, None] & valid[:, None, :]
    block = block.where(pairs, torch.eye(width, dtype=x.dtype))
    factor = torch.linalg.cholesky(block)
    pull = torch.cholesky_solve(field[..., None], factor).squeeze(-1)
    return Conditional(columns, valid, mean[columns] - pull, factor)


def log_prob_observed(
    normal: Normal, x: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor, Conditional]:
    """Compute log p(x_o) of each row by eq. (2), and what it took.

    Returns
    -------
    log_prob : Tensor of shape (n,)
    filled : Tensor of shape (n, features)
        Missing cells at their conditional means.
    conditional : Conditional
    """
    precision, log_det = invert(normal.covariance)
    found = condition(normal.mean, precision, x, observed)
    filled = found.place(x, found.mean)
    residual = filled - normal.mean
    square = ((residual @ precision) * residual).sum(-1)
    block = 2 * found.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = log(2 * pi) * observed.sum(-1)
    return -(square + log_det + block + constant) / 2, filled, found


def batches(observed: Tensor) -> Iterator[Tensor]:
    """Split rows into batches of like numbers of missing cells, bounded in memory."""
    order = observed.sum(1).argsort(stable=True)  # most missing cells first
    first = 0
    while first < len(order):
        width = int((~observed[order[first]]).sum())
        size = max(1, _CELLS_AT_ONCE // max(observed.shape[1], width**2))
        yield order[first : first + size]
        first += size
