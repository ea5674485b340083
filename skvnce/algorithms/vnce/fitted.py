"""A fitted model and its posterior: log-densities, draws and objectives of rows."""

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vnce import em
from skvnce.algorithms.vnce.contrasts import contrast_with
from skvnce.distributions.quantiles import weighted_quantiles
from skvnce.models.free_gaussian import FreeGaussian
from skvnce.models.noise import Noise
from skvnce.models.scaled import Scaled
from skvnce.objectives.vnce import (
    Contrast,
    Rows,
    averaged,
    by_noise,
    log_marginal,
    log_ratio,
    marginal_error,
    variational_values,
)
from skvnce.variational.base import Draws, Posterior, Uniforms, global_stream
from skvnce.variational.sequential import SequentialPosterior, integrated, joined

# a power of two, because draws are points of a lattice
EVALUATED = 64  # number of draws for means, scores and densities
CANDIDATES = 80  # weighted draws of which one is selected; the bias falls as 1 over it
# 16 MiB in double precision
PART = 2**21  # maximum size of the draws of one part of the rows


class Fitted(NamedTuple):
    """A fitted model with its posterior."""

    model: Scaled
    steps: nn.ModuleList  # modules that draw missing cells and latents
    n_components: int  # number of latents
    # whether log-densities have all unobserved variables integrated out
    is_integrated: bool

    @property
    def device(self) -> torch.device:
        """The device of the parameters; the CPU if there are none."""
        return self.model.log_scale.device

    def on(self, device: torch.device) -> Self:
        """Move to a device, in place."""
        if device == self.device:  # torch would look at each parameter
            return self
        moved = self.model.to(device), self.steps.to(device)
        return type(self)(*moved, *self[2:])

    @property
    def n_states(self) -> int:
        """The number of states of the latents that are enumerated."""
        return SequentialPosterior(self.steps, 1).n_states

    def at(
        self, observed: Tensor, n_draws: int = EVALUATED
    ) -> tuple[Callable[..., Tensor], Posterior]:
        """Return log phi, and the posterior of its arguments, of rows of a mask."""
        if self.is_integrated:
            return self.model.log_marginal, integrated
        return self.model.log_density, joined(self.steps, n_draws, observed)

    def weighted_draws(
        self, data: Incomplete, uniforms: Uniforms, n_draws: int = EVALUATED
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Draw the unobserved variables.

        Returns `values` (n_draws, n, features), ``(x,)`` or ``(x, z)``; `log_weight`
        (n_draws, n), weights with which the draws represent the posterior of the model.
        """
        posterior = joined(self.steps, n_draws, data.observed)
        draws, ratio = _drawn(self.model.log_density, posterior, data, uniforms)
        return draws.values, (ratio + draws.log_weight).log_softmax(0)

    def latent_mean(self, data: Incomplete, uniforms: Uniforms) -> Tensor:
        """Compute the posterior means of the latents; (n, latents)."""
        values, weight = self.weighted_draws(data, uniforms)
        return (weight.exp()[..., None] * values[1]).sum(0)

    def filled(self, data: Incomplete, uniforms: Uniforms) -> Tensor:
        """Fill the missing cells by their posterior means; (n, features)."""
        if hasattr(self.model.model, "conditional_mean"):
            return self.model.model.conditional_mean(data.x, data.observed)
        values, weight = self.weighted_draws(data, uniforms)
        return (weight.exp()[..., None] * values[0]).sum(0)

    def quantiles(self, data: Incomplete, uniforms: Uniforms, levels: Tensor) -> Tensor:
        """Find quantiles of the missing cells; (n_levels, n, features).

        Those of the normal distribution are at its mean only, which is its median and
        its mode.
        """
        if isinstance(self.model.model, FreeGaussian):
            return self.filled(data, uniforms)[None]
        values, weight = self.weighted_draws(data, uniforms)
        return weighted_quantiles(values[0], weight.exp()[..., None], levels)

    def one_draw(self, data: Incomplete, place: int) -> Tensor:
        """Draw rows (place 0) or latents (1) of weighted ones, by torch's stream."""
        is_exact = isinstance(self.model.model, FreeGaussian)
        # a draw of the exact conditional needs no selection
        n_draws = 1 if is_exact else CANDIDATES
        values, weight = self.weighted_draws(data, global_stream, n_draws)
        # on the CPU, so that the draws are the same on each device
        chosen = torch.multinomial(weight.exp().T.cpu(), 1).T[..., None]
        chosen = chosen.to(weight.device)
        chosen = chosen.expand(1, -1, values[place].shape[-1])
        return values[place].gather(0, chosen)[0]

    def log_prob(self, data: Incomplete, uniforms: Uniforms) -> tuple[Tensor, Tensor]:
        """Compute log-densities of the observed cells, and standard errors; (n,)."""
        log_density, posterior = self.at(data.observed)
        draws, ratio = _drawn(log_density, posterior, data, uniforms)
        n_draws = getattr(posterior, "n_draws", 1)
        error = marginal_error(ratio, draws.log_weight, n_draws)
        return log_marginal(ratio, draws.log_weight), error

    def objective(self, contrast: Contrast, uniforms: tuple[Uniforms, ...]) -> Tensor:
        """Compute the objective of rows with their noise, at given numbers; (n,)."""
        parts = self.at(contrast.data.observed)
        return variational_values(*parts, contrast, uniforms, averaged(by_noise))

    def evaluation(
        self, noise: Noise, data: Incomplete, noise_ratio: int, n_draws: int
    ) -> em.Evaluation:
        """Evaluate the objective at rows and new rows of noise, on the CPU."""
        contrast = contrast_with(noise, data, noise_ratio).on(self.device)
        data = data.on(self.device)
        log_density, posterior = self.at(data.observed, n_draws)
        size = self.rows_at_once(data, posterior, noise_ratio)
        problem = em.Problem(log_density, posterior, contrast, size=size)
        return em.evaluate(problem).on(torch.device("cpu"))

    def rows_at_once(
        self, data: Incomplete, posterior: Posterior, noise_ratio: int
    ) -> int:
        """Bound the number of rows whose draws, with their noise, are in memory."""
        draws = 1
        if isinstance(posterior, SequentialPosterior):
            draws = posterior.n_draws * posterior.n_states
        width = data.x.shape[1] + self.n_components
        return max(1, PART // (draws * (1 + noise_ratio) * width))


def _drawn(
    log_density: Callable[..., Tensor],
    posterior: Posterior,
    data: Incomplete,
    uniforms: Uniforms,
) -> tuple[Draws, Tensor]:
    """Draw unobserved variables, and compute log phi minus log q."""
    draws = posterior(data.x, data.observed, uniforms)
    return draws, log_ratio(log_density, draws, data.x.new_zeros(len(data.x)))


def keyed_contrast(
    noise: Noise, pool: Tensor, data: Incomplete, noise_ratio: int, uniforms: Uniforms
) -> Contrast:
    """Choose the noise of each row from a pool of draws by uniform numbers."""
    template = data.x.new_empty(noise_ratio, len(data.x), 1)
    places = (uniforms(0, template) * len(pool)).long().squeeze(-1)
    rows = data.x, pool[places]
    return Contrast(
        *(Rows(x, data.observed, noise.log_prob(x, data.observed)) for x in rows)
    )
