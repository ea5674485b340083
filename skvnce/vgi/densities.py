"""A normalising flow of rational-quadratic splines that starts at a normal.

    u = T_n( ... T_1(L^-1 (x - mean))),  log p(x) = log N(u; 0, I) + log|det du/dx|  (1)

Each T is an invertible linear map followed by a monotone spline of every coordinate,
whose knots a masked network computes from other coordinates.  All T are initially the
identity, so that p starts at N(mean, L L').

Durkan, Bekasov, Murray and Papamakarios (2019), Neural spline flows; Simkus, Rhodes and
Gutmann (2023), section 6.
"""

from collections.abc import Iterable
from copy import copy, deepcopy
from functools import partial
from math import log, pi
from typing import Self

import torch
from torch import Tensor, nn
from torch.distributions.transforms import Transform
from torch.nn.modules.batchnorm import _BatchNorm
from torch.quasirandom import SobolEngine

from skvnce._core.distributions.cells import Families
from skvnce._core.models import LatentVariableModel, iwelbo, log_joint, rsample_latents
from skvnce._core.random import Uniforms, global_stream
from skvnce.autoencoder import vae
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.autoencoder.losses import completed_model, miss_iwae
from skvnce.autoencoder.vae import Architecture, Autoencoder
from skvnce.vgi.splines import (
    ComposedTransform,
    LULinearTransform,
    MaskedAutoregressiveTransform,
    MonotonicRQSTransform,
)


class SplineFlow(nn.Module):
    """p(x) of eq. (1)."""

    def __init__(
        self,
        mean: Tensor,  # (features,)
        # (features, features): L, lower triangular with a positive diagonal
        factor: Tensor,
        *,
        n_steps: int = 3,
        n_bins: int = 8,
        hidden: tuple[int, ...] = (64, 64),  # sizes of the masked networks' layers
        # 2 makes coupling steps: one half of the coordinates, in an order drawn from
        # torch's stream, transforms the other.  None makes autoregressive steps, whose
        # inverse needs as many passes as there are columns
        n_passes: int | None = 2,
        bound: float = 5.0,  # splines are the identity beyond this bound
    ) -> None:
        super().__init__()
        d = len(mean)
        self.mean = nn.Parameter(mean.clone())
        # the parameter is the inverse of L: `to_base`, used in training, is a product
        root = torch.linalg.inv(factor).tril()
        self.whiten = nn.Parameter(root.tril(-1))
        self.log_diagonal = nn.Parameter(root.diagonal().log())
        self.linear = nn.ParameterList(torch.eye(d).to(mean) for _ in range(n_steps))
        self.splines = nn.ModuleList(
            MaskedAutoregressiveTransform(
                d,
                # a single column has no other half
                passes=n_passes if d > 1 else None,
                order=torch.randperm(d),
                univariate=partial(MonotonicRQSTransform, bound=bound),
                shapes=[(n_bins,), (n_bins,), (n_bins - 1,)],
                hidden_features=hidden,
                activation=nn.SiLU,
            )
            for _ in range(n_steps)
        )
        for step in self.splines:
            for leaf in _last(step):
                nn.init.zeros_(leaf)
        self.to(mean)

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log p(x); (*batch, features) -> (*batch,)."""
        u, log_det = self.to_base(x)
        return log_det - (u.square() + log(2 * pi)).sum(-1) / 2

    def to_base(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x to u; with log|det du/dx| of each row."""
        u = (x - self.mean) @ self._root().T
        log_det = self.log_diagonal.sum()
        if not u.numel():  # zuko does not support empty batches
            return u, u.sum(-1)
        u, inside = self._transform().call_and_ladj(u)
        return u, log_det + inside

    def from_base(self, u: Tensor) -> Tensor:
        """Map u (*batch, features) to x."""
        v = self._transform().inv(u)
        root = self._root()
        return torch.linalg.solve_triangular(root, v.mT, upper=False).mT + self.mean

    def sample(self, n: int) -> Tensor:
        """Draw rows from torch's stream; (n, features)."""
        return self.from_base(torch.randn(n, len(self.mean)).to(self.mean))

    def _root(self) -> Tensor:
        return self.whiten.tril(-1) + self.log_diagonal.exp().diag()

    def _transform(self) -> Transform:
        parts = []
        for linear, spline in zip(self.linear, self.splines, strict=True):
            parts += [LULinearTransform(linear), spline()]
        return ComposedTransform(*parts)


def _last(step: nn.Module) -> Iterable[Tensor]:
    """Find the parameters of the knots: the last layer, or knots of a single column."""
    return step.hyper[-1].parameters() if hasattr(step, "hyper") else step.phi


# ----------------------------------------
# A user's density: checks, and support of leading dimensions.


class Rowwise(nn.Module):
    """A density of rows with any leading dimensions, by one of tables (n, features).

    `module`: its ``log_prob(x)`` maps a table (n, features) to (n,).
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log p(x); (*batch, features) -> (*batch,).

        Raises ValueError if `log_prob` of the module returns another shape.
        """
        rows = x.reshape(-1, x.shape[-1]).clone()  # the module may modify its input
        values = self.module.log_prob(rows)
        if not isinstance(values, Tensor) or values.shape != rows.shape[:1]:
            what = tuple(values.shape) if isinstance(values, Tensor) else type(values)
            raise ValueError(
                f"log_prob of {type(self.module).__name__} must map a table of shape "
                f"(n, {x.shape[-1]}) to log-densities of shape (n,); for "
                f"{len(rows)} rows it returned {what}."
            )
        return values.view(x.shape[:-1])


def user_density(module: nn.Module, n_features: int) -> Rowwise:
    """Check a user's density; return a copy.

    Raises TypeError if it has no `log_prob`.  Raises ValueError if it has no parameter,
    or if `log_prob` returns another shape, is not finite, has no gradient, does not
    support double precision, or mixes rows.
    """
    name = type(module).__name__
    if not callable(getattr(module, "log_prob", None)):
        raise TypeError(
            f"{name} has no method log_prob(x). Give it one that maps a table (n, "
            "columns) to log-densities (n,)."
        )
    if not any(leaf.requires_grad for leaf in module.parameters()):
        raise ValueError(f"{name} has no parameter to fit.")
    if any(isinstance(part, _BatchNorm) for part in module.modules()):
        raise ValueError(f"The batch normalisation of {name} mixes rows. Remove it.")
    density = Rowwise(deepcopy(module))
    rows = torch.linspace(-1.0, 1.0, 3 * n_features).view(3, n_features)
    # single precision last, because the density is returned in it
    for dtype in (torch.float64, torch.float32):
        _probe(density.to(dtype).eval(), rows.to(dtype), name)
    return density.train()


def _probe(density: Rowwise, rows: Tensor, name: str) -> None:
    """Evaluate a density at some rows, with and without gradients."""
    try:
        with torch.enable_grad():
            values = density.log_prob(rows)
        with torch.no_grad():
            alone = density.log_prob(rows[:1])
    except RuntimeError as error:
        raise ValueError(
            f"log_prob of {name} fails at rows of {rows.dtype}: {error}. It is called "
            "in single and in double precision, with and without gradients: register "
            "constants as buffers, and make new tensors of the type of x."
        ) from error
    if not values.requires_grad:
        raise ValueError(
            f"log_prob of {name} has no gradient in its parameters: it cannot be "
            "fitted. Do not detach tensors or turn gradients off."
        )
    if not values.isfinite().all():
        raise ValueError(
            f"log_prob of {name} is not finite at rows between -1 and 1. The columns "
            "are standardised, so it must be a density on all real numbers."
        )
    # not equal bit by bit, because products of other shapes round differently
    if not torch.allclose(values[:1], alone, rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"log_prob of {name} depends on the other rows of a table. It must be a "
            "function of each row alone."
        )


# ----------------------------------------
# Factor analysis as a density of complete rows with trainable parameters.
#
# ``x ~ N(mean, W W' + diag(psi))`` (Simkus et al. 2023, section 4.1), by the Woodbury
# identity and the determinant lemma: with r = x - mean, A = I + W' diag(1 / psi) W
# and m = A^-1 W' diag(1 / psi) r,
#
#     -2 log p(x) = sum_j ((r - W m)_j^2 / psi_j + log 2 pi psi_j) + m'm + log|A|    (2)


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
        """Compute log p(x) by eq. (2); (*batch, features) -> (*batch,)."""
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
        # as `skvnce._core.models.LatentPosterior`: q(z | x), used for complete rows
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
        return self._bound(self.model, x, torch.ones_like(x, dtype=torch.bool))

    def _bound(
        self, model: LatentVariableModel, x: Tensor, observed: Tensor
    ) -> Tensor:  # (*batch,)
        rest = self.uniforms, self.n_draws
        return miss_iwae(model, self.posterior, x, observed, *rest)


# ----------------------------------------
# An autoencoder as a density for variational Gibbs inference.
#
# The log-density of a completed row is replaced by the importance-weighted bound of
# `LatentDensity`, and model, encoder and conditionals maximise the objective of VGI
# together.  The bound (14) of one draw, which the reference uses, ties the model to the
# current encoder, whose posteriors of completed rows are narrow: with 8 draws training
# needs a third of the steps.  A second objective trains the encoder for rows with
# missing values, which does not affect the model.  Samplers need it after the training.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, section 5.1; Burda, Grosse and Salakhutdinov (2016),
# Importance weighted autoencoders.


ARCHITECTURE = Architecture((64,), 0.1, 1)  # hidden layers, dropout, components
_TRAINED = 8  # number of draws of the bound in training
_SCORED = 16  # number of draws of the bound after the training
_WEIGHT_DECAY = 0.05  # of the networks


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
        if not families.levels:
            families = continuous()
        auto = vae.build(linear, families, ARCHITECTURE)
        super().__init__(auto.model, auto.posterior, n_draws=_TRAINED)

    def _bound(
        self, model: LatentVariableModel, x: Tensor, observed: Tensor
    ) -> Tensor:  # (*batch,)
        model = self._completed(x)
        if self.training:
            return super()._bound(model, x, observed)
        # the gradients of `miss_iwae` in x are right on average over random numbers
        # alone, and these numbers are fixed
        q = self.posterior(x, observed)
        z = rsample_latents(q, _sobol_points, _SCORED, x)
        return iwelbo(log_joint(model, x, observed, z) - q.log_prob(z))

    def _completed(self, x: Tensor) -> LatentVariableModel:
        """Return the model of rows whose cells need not be values of their columns."""
        families = self.model.families
        if not families.levels or not len(families.rounded):
            return self.model
        cells = x[..., families.rounded]
        exact = families.nearest(cells) == cells
        every = torch.ones_like(x, dtype=torch.bool)
        return completed_model(
            self.model, every.index_copy(-1, families.rounded, exact)
        )

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
        """Group the parameters as the training of autoencoders does."""
        return vae.parameter_groups(list(self.named_parameters()), rate, _WEIGHT_DECAY)


def _sobol_points(step: int, template: Tensor) -> Tensor:
    """Return scrambled Sobol points along the first dimension, equal for all rows."""
    points = SobolEngine(template.shape[-1], scramble=True, seed=step)
    points = points.draw(len(template), dtype=torch.float64).to(template)
    points = points.view(len(template), *[1] * (template.dim() - 2), -1)
    return points.expand(template.shape)
