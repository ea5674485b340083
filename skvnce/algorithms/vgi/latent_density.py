"""A density of complete rows, made of a model with latents and an encoder.

    log p(x) >= E_q(z | x) [log p(x | z) + log p(z) - log q(z | x)]                (14)

Variational Gibbs inference needs from a model only log p(x) of completed rows.  For a
model with latents it is replaced by one draw of the bound; with more draws it is the
importance-weighted bound, which is the tighter the more draws are used.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, section 5.1; Burda, Grosse and Salakhutdinov (2016).
"""

import torch
from torch import Tensor, nn

from skvnce.objectives.bounds import miss_iwae
from skvnce.variational.base import Uniforms, global_stream


class LatentDensity(nn.Module):
    """Estimate of log p(x) of complete rows; contains the parameters of both parts."""

    def __init__(
        self,
        model: nn.Module,  # as `skvnce.models.base.LatentVariableModel`
        # as `skvnce.variational.base.LatentPosterior`: q(z | x), used for complete rows
        # only
        posterior: nn.Module,
        *,
        # number of draws of the latents of each row.  One gives the bound (14)
        n_draws: int = 1,
        # called once by each `log_prob`; returns new numbers unless it is deterministic
        uniforms: Uniforms = global_stream,
    ) -> None:
        super().__init__()
        self.model, self.posterior = model, posterior
        self.n_draws, self.uniforms = n_draws, uniforms

    def log_prob(self, x: Tensor) -> Tensor:
        """Estimate log p(x); (*batch, features) -> (*batch,).

        Its exponential is unbiased, so that `metropolised_gibbs` stays exact.  Its mean
        is a lower bound, with gradients in x, the model and the posterior.
        """
        if not x.numel():
            return x.new_zeros(x.shape[:-1])  # distributions reject empty batches
        everything = torch.ones_like(x, dtype=torch.bool)
        return miss_iwae(
            self.model, self.posterior, x, everything, self.uniforms, self.n_draws
        )
