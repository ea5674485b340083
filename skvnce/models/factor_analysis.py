"""Factor analysis of rows with missing values, all patterns at once.

``x = mean + W z + noise`` with ``z ~ N(0, I)`` and independent noise of variance psi_j
in column j (Simkus et al. 2023, section 4.1 and appendix J).  With o the observed
columns of a row and r = x_o - mean_o,

    z | x_o ~ N(A^-1 b, A^-1),  A = I + sum_o w_j w_j' / psi_j,
                                b = sum_o w_j r_j / psi_j                          (1)
    -2 log p(x_o) = sum_o ((r_j - w_j m)^2 / psi_j + log 2 pi psi_j)
                    + m'm + log|A|,  m = A^-1 b                                    (2)

by the Woodbury identity and the determinant lemma.  All sums over o are products with
the mask, and only A of size k x k is factorised for each row.  Eq. (2) contains no
difference of large numbers if the noise is small.
"""

from collections.abc import Iterator
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

_CELLS_AT_ONCE = 2**20  # maximum size of a table of a batch of rows, 8 MiB


class FactorModel(NamedTuple):
    """Parameters of factor analysis with k latents."""

    mean: Tensor  # (features,)
    loadings: Tensor  # (features, k): W
    noise_variance: Tensor  # (features,): psi

    def covariance(self) -> Tensor:
        """Compute W W' + diag(psi); (features, features)."""
        return self.loadings @ self.loadings.T + self.noise_variance.diag()

    def precision(self) -> Tensor:
        """Compute the inverse of the covariance, by Woodbury; (features, features)."""
        scaled = self.loadings / self.noise_variance[:, None]
        inner = torch.eye(scaled.shape[1]).to(scaled) + self.loadings.T @ scaled
        root = torch.linalg.solve_triangular(
            torch.linalg.cholesky(inner), scaled.T, upper=False
        )
        return (1 / self.noise_variance).diag() - root.T @ root


class Posterior(NamedTuple):
    """The normal distribution of the latents of each row."""

    mean: Tensor  # (n, k)
    factor: Tensor  # (n, k, k): lower Cholesky factor of A, the precision

    def covariance(self) -> Tensor:
        """Compute A^-1; (n, k, k)."""
        return torch.cholesky_inverse(self.factor)


def precisions(model: FactorModel, seen: Tensor) -> Tensor:
    """Compute A of eq. (1) for masks of ones and zeros (n, features); (n, k, k)."""
    k = model.loadings.shape[1]
    scaled = model.loadings / model.noise_variance[:, None]
    products = (scaled[:, :, None] * model.loadings[:, None, :]).flatten(1)
    found = (seen @ products).view(-1, k, k)
    found.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return found


def infer(
    model: FactorModel,
    x: Tensor,  # (n, features): values under the mask are not used
    observed: Tensor,  # bool (n, features)
    # (n, k, k) and (n, k): what is added to A and to b
    more: tuple[Tensor, Tensor] | None = None,
) -> Posterior:
    """Compute the posterior of the latents by eq. (1)."""
    precision = precisions(model, observed.to(x.dtype))
    scaled = model.loadings / model.noise_variance[:, None]
    field = (x - model.mean).where(observed, 0.0) @ scaled
    if more is not None:
        precision, field = precision + more[0], field + more[1]
    factor = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve(field[..., None], factor).squeeze(-1)
    return Posterior(mean, factor)


def infer_complete(model: FactorModel, x: Tensor) -> Posterior:
    """Compute what `infer` does of rows without missing cells, which share one A.

    `x` (n, features).  Returns its factor is one for all rows, expanded.
    """
    every = x.new_ones(1, x.shape[1])
    factor = torch.linalg.cholesky(precisions(model, every))
    scaled = model.loadings / model.noise_variance[:, None]
    mean = torch.cholesky_solve(((x - model.mean) @ scaled).T, factor[0]).T
    return Posterior(mean, factor.expand(len(x), -1, -1))


def log_prob_observed(
    model: FactorModel, x: Tensor, observed: Tensor
) -> tuple[Tensor, Posterior]:
    """Compute log p(x_o) of each row by eq. (2), and the posterior that it uses.

    Returns `log_prob` (n,), 0 for a row without observed cells; `posterior`.
    """
    found = infer(model, x, observed)
    residual = (x - model.mean - found.mean @ model.loadings.T).where(observed, 0.0)
    square = residual.square() @ (1 / model.noise_variance)
    constant = observed.to(x.dtype) @ (model.noise_variance.log() + log(2 * pi))
    log_det = log_det_of(found.factor)
    return -(square + found.mean.square().sum(-1) + constant + log_det) / 2, found


def log_det_of(factor: Tensor) -> Tensor:
    """Compute log|A| from Cholesky factors (n, k, k) of A; (n,)."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def batches(model: FactorModel, n: int) -> Iterator[slice]:
    """Split n rows into batches that are bounded in memory."""
    d, k = model.loadings.shape
    size = max(1, _CELLS_AT_ONCE // max(d, (k + 1) ** 2))
    for first in range(0, n, size):
        yield slice(first, first + size)
