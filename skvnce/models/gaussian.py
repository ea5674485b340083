"""The normal distribution of incomplete rows, all missingness patterns at once.

With ``P`` the precision matrix, m and o the missing and observed columns of a row, and
``b = P_mo (x_o - mean_o)``,

    x_m | x_o ~ N(mean_m - P_mm^-1 b, P_mm^-1)                                   (1)
    log p(x_o) = (log|P| - log|P_mm| - |o| log 2 pi
                  - (x_o - mean_o)' P_oo (x_o - mean_o) + b' P_mm^-1 b) / 2      (2)

Only the block P_mm differs from row to row.  It is gathered into a batch as wide as the
row with most missing cells: rows with fewer take columns from an identity matrix that
stands below P.
"""

import warnings
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

_CELLS_AT_ONCE = 2**16  # of a batch of blocks P_mm: half a MiB stays in the cache
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)


class Normal(NamedTuple):
    """Parameters: mean (features,) and covariance (features, features)."""

    mean: Tensor
    covariance: Tensor


class Batch(NamedTuple):
    """Rows with like numbers of missing cells.

    Attributes
    ----------
    rows : Tensor of int64, of shape (n,)
        Their places in the table.
    x : Tensor of shape (n, features)
        Zero where missing.
    seen : Tensor of shape (n, features)
        1 where observed, else 0.
    missing : Tensor of int64, of shape (n, width)
        The missing columns of each row, then columns of the identity: features, ....
    """

    rows: Tensor
    x: Tensor
    seen: Tensor
    missing: Tensor

    def complete(self, residual: Tensor, values: Tensor) -> Tensor:
        """Write values (*batch, n, width) of the missing cells into residuals."""
        wide = torch.nn.functional.pad(residual, (0, self.missing.shape[1]))
        wide = wide.expand(*values.shape[:-1], wide.shape[-1])
        placed = wide.scatter(-1, self.missing.expand(values.shape), values)
        return placed[..., : residual.shape[-1]]


class Conditional(NamedTuple):
    """The normal distribution of the missing cells of the rows of a batch.

    Attributes
    ----------
    residual : Tensor of shape (n, features)
        Observed cells less their mean, 0 where missing.
    log_prob : Tensor of shape (n,)
        Eq. (2) without log|P| / 2.
    whitened : Tensor of shape (n, width)
        ``L^-1 b``.
    factor : Tensor of shape (n, width, width)
        L, the lower Cholesky factor of P_mm.
    """

    residual: Tensor
    log_prob: Tensor
    whitened: Tensor
    factor: Tensor

    def mean(self) -> Tensor:
        """Compute the mean of eq. (1), less that of the columns; (n, width)."""
        return -self._solve(self.whitened[..., None]).squeeze(-1)

    def draw(self, normal: Tensor) -> Tensor:
        """Turn standard normal numbers (n_draws, n, width) into draws, less the mean.

        ``-L^-T (L^-1 b + normal)`` has the mean of eq. (1) and covariance P_mm^-1.
        """
        return -self._solve((self.whitened + normal).movedim(0, -1)).movedim(-1, 0)

    def covariance(self) -> Tensor:
        """Compute P_mm^-1, the identity beyond the missing cells; (n, width, width)."""
        return torch.cholesky_inverse(self.factor)

    def variance(self) -> Tensor:
        """Compute the diagonal of `covariance`; (n, width)."""
        eye = torch.eye(self.factor.shape[-1]).to(self.factor)
        root = torch.linalg.solve_triangular(self.factor, eye, upper=False)
        return root.square().sum(-2)

    def _solve(self, right: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.factor.mT, right, upper=True)


def cholesky(matrix: Tensor) -> Tensor:
    """Factorise positive definite matrices (*batch, n, n); add jitter where it fails.

    Warns
    -----
    RuntimeWarning
        Where a share of the mean of the diagonal had to be added, and which.

    Raises
    ------
    torch.linalg.LinAlgError
        Where even the largest was not enough.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not info.any():
        return factor
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    for jitter in _JITTERS:
        extra = (jitter * diagonal.mean(-1, keepdim=True)).expand_as(diagonal)
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(extra))
        if not info.any():
            warnings.warn(
                f"A covariance matrix is singular to working precision: {jitter:g} of "
                "its diagonal was added. Columns repeat others; drop them, or raise "
                "shrinkage.",
                RuntimeWarning,
                stacklevel=2,
            )
            return factor
    raise torch.linalg.LinAlgError("matrix is not positive definite")


def invert(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the inverse and log-determinant of a positive definite matrix."""
    factor = cholesky(matrix)
    return torch.cholesky_inverse(factor), 2 * factor.diagonal().log().sum()


def condition(mean: Tensor, precision: Tensor, batch: Batch) -> Conditional:
    """Compute the conditional distributions of eq. (1) and densities of eq. (2).

    Parameters
    ----------
    mean, precision : Tensor of shapes (features,) and (features, features)
    batch : Batch
    """
    d, width = len(mean), batch.missing.shape[1]
    residual = torch.addcmul(batch.x, batch.seen, mean, value=-1)
    wide = torch.block_diag(precision, torch.eye(width, dtype=mean.dtype))
    field = residual @ wide[:d]
    factor = cholesky(wide.view(-1).take(pairs(batch, d)))
    whitened = torch.linalg.solve_triangular(
        factor, field.gather(1, batch.missing)[..., None], upper=False
    ).squeeze(-1)
    log_prob = (
        whitened.square().sum(1)
        - (field[:, :d] * residual).sum(1)
        - 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(1)
        - log(2 * pi) * batch.seen.sum(1)
    ) / 2
    return Conditional(residual, log_prob, whitened, factor)


def pairs(batch: Batch, d: int) -> Tensor:
    """Find the blocks P_mm in the flattened matrix with its identity."""
    size = d + batch.missing.shape[1]
    return size * batch.missing[:, :, None] + batch.missing[:, None, :]


def arrange(x: Tensor, observed: Tensor) -> list[Batch]:
    """Split rows into batches of like numbers of missing cells, bounded in memory.

    Parameters
    ----------
    x : Tensor of shape (n, features)
        Values under the mask are never read.
    observed : Tensor of bool, of shape (n, features)
    """
    order = observed.sum(1).argsort(stable=True)  # most missing cells first
    found, first = [], 0
    while first < len(order):
        width = int((~observed[order[first]]).sum())
        size = max(1, _CELLS_AT_ONCE // max(x.shape[1], width**2))
        rows = order[first : first + size]
        found.append(_batch(rows, x[rows], observed[rows], width))
        first += size
    return found


def _batch(rows: Tensor, x: Tensor, observed: Tensor, width: int) -> Batch:
    columns = observed.to(torch.uint8).sort(dim=1, stable=True).indices[:, :width]
    place = torch.arange(width)
    missing = columns.where(
        place < (~observed).sum(1, keepdim=True), x.shape[1] + place
    )
    return Batch(rows, x.where(observed, 0.0), observed.to(x), missing)
