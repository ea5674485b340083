"""Factor analysis as a density of complete rows with trainable parameters.

``x ~ N(mean, W W' + diag(psi))`` (Simkus et al. 2023, section 4.1), by the Woodbury
identity and the determinant lemma: with r = x - mean, A = I + W' diag(1 / psi) W and
m = A^-1 W' diag(1 / psi) r,

    -2 log p(x) = sum_j ((r - W m)_j^2 / psi_j + log 2 pi psi_j) + m'm + log|A|    (1)
"""

from math import log, pi
from typing import Self

import torch
from torch import Tensor, nn

from skvnce.models.factor_analysis import FactorModel


class FactorDensity(nn.Module):
    """Factor analysis of k latents, to be trained by gradients.

    `mean` (features,).  `loadings` (features, k): W.  `log_variance` (features,): log
    psi, of the noise.
    """

    def __init__(self, mean: Tensor, loadings: Tensor, log_variance: Tensor) -> None:
        super().__init__()
        # copies, because training changes parameters in place
        self.mean = nn.Parameter(mean.detach().clone())
        self.loadings = nn.Parameter(loadings.detach().clone())
        self.log_variance = nn.Parameter(log_variance.detach().clone())

    @classmethod
    def of(cls, model: FactorModel) -> Self:
        """Start at a fitted model."""
        return cls(model.mean, model.loadings, model.noise_variance.log())

    def factors(self) -> FactorModel:
        """Return the parameters, without gradients, for exact inference."""
        variance = self.log_variance.exp()
        return FactorModel(*(p.detach() for p in (self.mean, self.loadings, variance)))

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log p(x) by eq. (1); (*batch, features) -> (*batch,)."""
        variance, rest = self.log_variance.exp(), x - self.mean
        scaled = self.loadings / variance[:, None]
        unit = torch.eye(scaled.shape[1]).to(scaled)
        factor = torch.linalg.cholesky(unit + scaled.T @ self.loadings)  # of A
        field = rest @ scaled
        flat = field.reshape(-1, field.shape[-1])
        latent = torch.cholesky_solve(flat.T, factor).T.reshape(field.shape)
        noise = rest - latent @ self.loadings.T
        square = noise.square() @ (1 / variance) + latent.square().sum(-1)
        log_det = self.log_variance.sum() + 2 * factor.diagonal().log().sum()
        return -(square + log_det + x.shape[-1] * log(2 * pi)) / 2
