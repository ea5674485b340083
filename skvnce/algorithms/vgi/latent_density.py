"""A density of complete rows, made of a model with latents and an encoder.

    log p(x) >= E_q(z | x) [log p(x | z) + log p(z) - log q(z | x)]                (14)

Variational Gibbs inference asks a model for log p(x) of completed rows and nothing
else.  Of a model with latents one draw of the bound stands in for it; with more draws
it is the importance-weighted bound, which comes as near as one pays for.

References
----------
Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, section 5.1; Burda, Grosse and Salakhutdinov (2016).
"""

import torch
from torch import Tensor, nn

from skvnce.objectives.bounds import miss_iwae
from skvnce.variational.base import Uniforms, global_stream


class LatentDensity(nn.Module):
    """log p(x) of complete rows, estimated; its parameters are those of both parts.

    Parameters
    ----------
    model : nn.Module
        As `skvnce.models.base.LatentVariableModel`.
    posterior : nn.Module
        As `skvnce.variational.base.LatentPosterior`: q(z | x), asked about complete
        rows alone.
    n_draws : int
        Of the latents of each row.  One gives the bound (14).
    uniforms : callable
        Called once by each `log_prob`, for new draws unless it repeats itself.
    """

    def __init__(
        self,
        model: nn.Module,
        posterior: nn.Module,
        *,
        n_draws: int = 1,
        uniforms: Uniforms = global_stream,
    ) -> None:
        super().__init__()
        self.model, self.posterior = model, posterior
        self.n_draws, self.uniforms = n_draws, uniforms

    def log_prob(self, x: Tensor) -> Tensor:
        """Estimate log p(x); (*batch, features) -> (*batch,).

        Its exponential is unbiased, so that `metropolised_gibbs` stays exact; its mean
        is a lower bound, whose gradient reaches x, the model and the posterior.
        """
        if not x.numel():
            return x.new_zeros(x.shape[:-1])  # distributions refuse to be empty
        everything = torch.ones_like(x, dtype=torch.bool)
        return miss_iwae(
            self.model, self.posterior, x, everything, self.uniforms, self.n_draws
        )
