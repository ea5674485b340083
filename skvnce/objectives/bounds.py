"""Training objectives of variational autoencoders, by name, for missing values.

All take (model, posterior, x, observed, uniforms, n_draws) and return a lower bound of
log p(x_obs) of each row, with gradients for the model and the posterior.  `BOUNDS`
lists those of rows with missing values; objectives of completed rows are in `demiss`
and `vbgi`.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, table 1; Mattei and Frellsen (2019), MIWAE.
"""

from collections.abc import Callable

from torch import Tensor
from torch.distributions import Distribution

from skvnce.models.base import LatentVariableModel
from skvnce.objectives.elbo import (
    drawn,
    drawn_elbo,
    frozen,
    iwelbo,
    log_joint,
    stratified_elbo,
    stratified_iwelbo,
)
from skvnce.variational.base import LatentPosterior, Uniforms

Bound = Callable[
    [LatentVariableModel, LatentPosterior, Tensor, Tensor, Uniforms, int], Tensor
]


def miss_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # one normal gives MVAE, a mixture MissVAE
    x: Tensor,  # (*rows, features): values under the mask are arbitrary
    observed: Tensor,  # bool (*rows, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each row
) -> Tensor:  # (*rows,)
    """Estimate the ELBO by draws of q, eq. (4) of the paper."""
    return drawn_elbo(model, posterior(x, observed), x, observed, uniforms, n_draws)


def miss_iwae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the importance-weighted bound by draws of q, eq. (7) of the paper.

    The gradient of the posterior is doubly reparametrised (Tucker et al. 2019): it
    passes through each draw, times its squared normalised weight.  (A posterior with
    `source` passes all of it through a tensor before the draw.)  That of the model is
    the standard one.  Parameters and returned values are those of `miss_vae`; one
    normal gives MIWAE, a mixture MissIWAE.

    Tucker, Lawson, Gu and Maddison (2019), Doubly reparameterized gradient estimators
    for Monte Carlo objectives.
    """
    q = posterior(x, observed)
    z = drawn(q, uniforms, n_draws, x)
    log_weight = log_joint(model, x, observed, z) - frozen(q).log_prob(z)
    # draws without a gradient take no hook
    if z.requires_grad:
        weight = log_weight.detach().softmax(0).unsqueeze(-1)
        source = q.source(z) if hasattr(q, "source") else z
        source.register_hook(lambda gradient: weight * gradient)  # has a factor already
    return iwelbo(log_weight)


def miss_svae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the ELBO by draws of each component, eq. (5) of the paper.

    Parameters and returned values are those of `miss_vae`, with ``n_draws`` of each
    component of the posterior, a mixture.
    """
    q = posterior(x, observed)
    z = _strata(q, uniforms, x, n_draws)
    log_weight = log_joint(model, x, observed, z) - frozen(q).log_prob(z)
    return stratified_elbo(q.log_weights.movedim(-1, 0), log_weight)


def miss_siwae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the importance-weighted bound by components, eq. (8) of the paper.

    Its gradient is the standard one: that of a frozen q is biased.  Parameters and
    returned values are those of `miss_svae`.
    """
    q = posterior(x, observed)
    z = _strata(q, uniforms, x, n_draws)
    log_weight = log_joint(model, x, observed, z) - q.log_prob(z)
    return stratified_iwelbo(q.log_weights.movedim(-1, 0), log_weight)


BOUNDS: dict[str, Bound] = {
    "mvae": miss_vae,
    "miss-vae": miss_vae,
    "miss-svae": miss_svae,
    "miwae": miss_iwae,
    "miss-iwae": miss_iwae,
    "miss-siwae": miss_siwae,
}


def _strata(q: Distribution, uniforms: Uniforms, x: Tensor, n_draws: int) -> Tensor:
    """Draw from each component; (components, n_draws, *rows, latents)."""
    if not hasattr(q, "components"):
        raise TypeError(
            "Stratified bounds require a mixture, and the posterior returns "
            f"{type(q).__name__}. Use a MixtureEncoder, or the bound of MVAE or MIWAE."
        )
    return drawn(q.components(), uniforms, n_draws, x).movedim(-2, 0)
