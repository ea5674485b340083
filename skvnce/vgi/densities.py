"""A normalising flow of rational-quadratic splines that starts at a normal.

    u = T_n( ... T_1(L^-1 (x - mean))),  log p(x) = log N(u; 0, I) + log|det du/dx|  (1)

Each T is an invertible linear map followed by a monotone spline of every coordinate,
whose knots a masked network computes from other coordinates.  All T are initially the
identity, so that p starts at N(mean, L L').

Durkan, Bekasov, Murray and Papamakarios (2019), Neural spline flows; Simkus, Rhodes and
Gutmann (2023), section 6.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from math import log, pi
from typing import Self

import torch
from torch import Tensor, nn
from torch.distributions.transforms import Transform
from torch.nn.modules.batchnorm import _BatchNorm

from skvnce.autoencoder.factor_analysis import FactorModel
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
                univariate=_spline(bound),
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


def _spline(bound: float) -> Callable[..., Transform]:
    return lambda *knots: MonotonicRQSTransform(*knots, bound=bound)


# ----------------------------------------
# A user's own density: checks, and support of leading dimensions.


class Rowwise(nn.Module):
    """A density of rows with any leading dimensions, from one of tables (n, features).

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
        found = self.module.log_prob(rows)
        if not isinstance(found, Tensor) or found.shape != rows.shape[:1]:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found)
            raise ValueError(
                f"log_prob of {type(self.module).__name__} must map a table of shape "
                f"(n, {x.shape[-1]}) to log-densities of shape (n,); for "
                f"{len(rows)} rows it returned {what}."
            )
        return found.view(x.shape[:-1])


def own_density(module: nn.Module, n_features: int) -> Rowwise:
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
            found = density.log_prob(rows)
        with torch.no_grad():
            alone = density.log_prob(rows[:1])
    except RuntimeError as error:
        raise ValueError(
            f"log_prob of {name} fails at rows of {rows.dtype}: {error}. It is called "
            "in single and in double precision, with and without gradients: register "
            "constants as buffers, and make new tensors of the type of x."
        ) from error
    if not found.requires_grad:
        raise ValueError(
            f"log_prob of {name} has no gradient in its parameters: it cannot be "
            "fitted. Do not detach tensors or turn gradients off."
        )
    if not found.isfinite().all():
        raise ValueError(
            f"log_prob of {name} is not finite at rows between -1 and 1. The columns "
            "are standardised, so it must be a density on all real numbers."
        )
    # not equal bit by bit, because products of other shapes round differently
    if not torch.allclose(found[:1], alone, rtol=1e-3, atol=1e-4):
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
#     -2 log p(x) = sum_j ((r - W m)_j^2 / psi_j + log 2 pi psi_j) + m'm + log|A|    (1)


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
