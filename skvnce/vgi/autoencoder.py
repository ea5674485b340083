"""An autoencoder as a density for variational Gibbs inference.

The log-density of a completed row is replaced by the importance-weighted bound of
`LatentDensity`, and model, encoder and conditionals maximise the objective of VGI
together.  The bound (14) of one draw, which the reference uses, ties the model to the
current encoder, whose posteriors of completed rows are narrow: with 8 draws training
needs a third of the steps.  A second objective trains the encoder for rows with missing
values, which does not affect the model.  Samplers need it after the training.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, section 5.1; Burda, Grosse and Salakhutdinov (2016),
Importance weighted autoencoders.
"""

from copy import copy

import torch
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

from skvnce._core.distributions.cells import Families
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import LatentVariableModel
from skvnce._core.posteriors import Uniforms, global_stream
from skvnce.autoencoder import vae
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.autoencoder.losses import Completed, miss_iwae, posterior_only
from skvnce.autoencoder.networks import Anchor
from skvnce.autoencoder.vae import Architecture, Autoencoder, LinearPosterior

# ----------------------------------------
# A density of complete rows, made of a model with latents and an encoder.
#
#   log p(x) >= E_q(z | x) [log p(x | z) + log p(z) - log q(z | x)]        (14)
#
# Variational Gibbs inference needs from a model only log p(x) of completed rows.  For
# a model with latents it is replaced by one draw of the bound; with more draws it is
# the importance-weighted bound, which is the tighter the more draws are used.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, section 5.1; Burda, Grosse and Salakhutdinov
# (2016).


class LatentDensity(nn.Module):
    """Estimate of log p(x) of complete rows; contains the parameters of both parts."""

    def __init__(
        self,
        model: nn.Module,  # as `skvnce._core.models.LatentVariableModel`
        # as `skvnce._core.posteriors.LatentPosterior`: q(z | x), used for complete rows
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


# ----------------------------------------
# An autoencoder as a density for variational Gibbs inference.


ARCHITECTURE = Architecture((64,), 0.1, 1)  # hidden layers, dropout, components
_TRAINED = 8  # number of draws of the bound in training
_SCORED = 16  # number of draws of the bound after the training
_WEIGHT_DECAY = 0.05  # of the networks
_SLOWER = 0.3  # learning rate of the linear part, relative to that of the networks


class SharedPosterior(LinearPosterior):
    """Exact posteriors of factor analysis; complete rows share one factorisation."""

    def forward(self, x: Tensor, observed: Tensor) -> Anchor:
        """Infer the latents of rows (*batch, features), in double precision."""
        if not observed.all():
            return super().forward(x, observed)
        linear = FactorModel(*(part.double() for part in self.buffers()))
        rows = x.reshape(-1, x.shape[-1]).double()
        scaled = linear.loadings / linear.noise_variance[:, None]
        unit = torch.eye(scaled.shape[1]).to(scaled)
        factor = torch.linalg.cholesky(unit + scaled.T @ linear.loadings)
        mean = torch.cholesky_solve(((rows - linear.mean) @ scaled).T, factor).T
        root = torch.linalg.solve_triangular(factor.T, unit, upper=True)
        shape = x.shape[:-1]
        mean = mean.to(x).reshape(*shape, -1)
        return Anchor(mean, root.to(x).expand(*shape, *root.shape), x)


def continuous() -> Families:
    """Make the families of columns that are all normal."""
    none = torch.zeros(0, dtype=torch.long)
    pairs, values, edges = (torch.zeros(0, width).double() for width in (2, 1, 2))
    return Families(none, none, none, pairs, values, edges)


class AutoencoderDensity(LatentDensity):
    """A density of rows that starts at factor analysis; see `autoencoder.build`.

    During training `log_prob` is the bound of 8 draws.  After it, it is that of 16
    draws by the same numbers for all rows, a function of each row alone.

    In rows with levels, a cell of a rounded column that equals one of its values counts
    by the probability of the value, and any other number by the density of numbers
    before rounding: observed cells and initial completions are values, and draws of
    chains are not.

    `families`: used if there are levels.  Otherwise all columns are normal, and cells
    of rounded columns are drawn from their intervals before.
    """

    def __init__(self, linear: FactorModel, families: Families) -> None:
        own = families if families.levels else continuous()
        auto = vae.build(linear, own, ARCHITECTURE)
        if not families.levels:
            auto.posterior.infer = SharedPosterior(linear)
        super().__init__(auto.model, auto.posterior, n_draws=_TRAINED)

    def log_prob(self, x: Tensor) -> Tensor:
        """Estimate log p(x); (*batch, features) -> (*batch,)."""
        if not x.numel():
            return x.new_zeros(x.shape[:-1])  # distributions reject empty batches
        seen = torch.ones_like(x, dtype=torch.bool)
        uniforms, n_draws = self.uniforms, self.n_draws
        if not self.training:
            uniforms, n_draws = _stratified, _SCORED
        model = self._completed(x)
        return miss_iwae(model, self.posterior, x, seen, uniforms, n_draws)

    def _completed(self, x: Tensor) -> LatentVariableModel:
        """Return the model of rows whose cells need not be values of their columns."""
        families = self.model.families
        if not families.levels or not len(families.rounded):
            return self.model
        cells = x[..., families.rounded]
        exact = families.nearest(cells) == cells
        every = torch.ones_like(x, dtype=torch.bool)
        return Completed(self.model, every.index_copy(-1, families.rounded, exact))

    def autoencoder(self, families: Families | None = None) -> Autoencoder:
        """Return model and encoder, with the families of some columns if given.

        The model of dequantised columns also gives probabilities of their intervals.
        """
        if families is None:
            return Autoencoder(self.model, self.posterior)
        model = copy(self.model)
        model.families = families
        return Autoencoder(model, self.posterior)

    def parameter_groups(self, rate: float) -> list[dict]:
        """Group the parameters for an optimiser: networks, and the linear part."""
        named = list(self.named_parameters())
        networks = [leaf for name, leaf in named if ".network." in name]
        linear = [leaf for name, leaf in named if ".network." not in name]
        return [
            {"params": networks, "lr": rate, "weight_decay": _WEIGHT_DECAY},
            {"params": linear, "lr": _SLOWER * rate, "weight_decay": 0.0},
        ]

    def encoder_loss(self, data: Incomplete) -> Tensor:
        """Return zero with the gradient of the bound of rows in the encoder."""
        return -posterior_only(*self.autoencoder(), *data, global_stream).mean()

    def held_out_log_prob(self, data: Incomplete, hidden: Tensor) -> Tensor:
        """Score held-out cells of rows by the encoder; see `autoencoder`."""
        return vae.held_out_log_prob(self.autoencoder(), data, hidden)


def _stratified(step: int, template: Tensor) -> Tensor:
    """Return scrambled Sobol points along the first dimension, equal for all rows."""
    points = SobolEngine(template.shape[-1], scramble=True, seed=step)
    points = points.draw(len(template), dtype=torch.float64).to(template)
    points = points.view(len(template), *[1] * (template.dim() - 2), -1)
    return points.expand(template.shape)
