"""The start of an autoencoder of a table with categories: a latent normal model.

Gibbs sampling estimates the joint normal distribution of latent variables, one for each
output of the model (`skvnce.algorithms.mixed`); those of numbers are their scores.  Its
factors are the linear start.  The encoder starts at a normal posterior of the factors z
in which an observed level contributes the quadratic approximation of log p(x_j | z) at
the mode of p(z | x_j), and an observed number what it contributes in factor analysis.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed import gibbs
from skvnce.algorithms.mixed.columns import Latents, Marginal
from skvnce.distributions.cells import Cells, Families
from skvnce.distributions.levels import Levels, Nominal
from skvnce.distributions.normal import Normal
from skvnce.models.factor_analysis import FactorModel, Posterior, infer
from skvnce.variational.anchored import Anchor

_STEPS = 20  # maximum number of steps of Newton's method
_SETTLED = 1e-9  # length of the last step
_LONGEST = 1.0  # length of a step


def fit_latents(
    data: Incomplete,  # scores, and levels 0, 1, ..
    weights: Tensor,  # (n,)
    families: Families,
    # weight of the prior of independent variables, in rows for each of them
    share: float,
    max_iter: int,  # number of sweeps
) -> Normal:
    """Estimate the normal distribution of the latent variables of all outputs."""
    latents = latents_of(data, families)
    n_draws = max(1, max_iter // 5)
    strength = share * latents.size
    fit = gibbs.posterior_draws(
        latents, data, weights, strength, n_draws=n_draws, max_iter=max_iter
    )
    mean, covariance = fit.average()
    order = order_of(latents)
    return Normal(mean[order], covariance[order][:, order])


def order_of(latents: Latents) -> list[int]:
    """List the latent variables in the order of the outputs of a model."""
    return latents.first + [
        place
        for _, block in latents.nominal
        for place in range(block.start + 1, block.stop)
    ]


def latents_of(data: Incomplete, families: Families) -> Latents:
    """Describe columns of scores and levels as functions of latent variables."""
    marginals, n_levels = {}, {}
    for family in families.levels:
        sizes = family.n_levels.tolist()
        for place, (j, size) in enumerate(
            zip(family.columns.tolist(), sizes, strict=True)
        ):
            if isinstance(family, Nominal):
                marginals[j], n_levels[j] = None, size
            else:
                edges = family.edges[place, : size + 1].double()
                marginals[j] = _intervals(torch.arange(size).double(), edges)
    for place, j in enumerate(families.rounded.tolist()):
        values = families.values[place].unique().double()
        edges = families.edges[place, : len(values) + 1].double()
        marginals[j] = _intervals(values, edges)
    for j, (column, seen) in enumerate(zip(data.x.T, data.observed.T, strict=True)):
        values = column[seen].unique()
        marginals.setdefault(j, Marginal(values, values, values))
    sizes = [n_levels.get(j, 1) for j in range(data.x.shape[1])]
    first = torch.tensor([0, *sizes[:-1]]).cumsum(0).tolist()
    return Latents([marginals[j] for j in range(len(sizes))], first, sizes)


def _intervals(values: Tensor, edges: Tensor) -> Marginal:
    """Make the marginal of values between edges, of which the outermost are far."""
    far = edges.new_full((1,), torch.inf)
    inner = edges[1:-1]
    return Marginal(values, torch.cat([-far, inner]), torch.cat([inner, far]))


def sites(
    mean: Tensor, loadings: Tensor, scale: Tensor, families: Families
) -> tuple[Tensor, ...]:
    """Approximate log p(x_j = level | z) by quadratic functions of z.

    `mean`, `loadings`, `scale` (n_outputs,) or (n_outputs, latents): of the outputs of
    a linear model.  Returns `columns`, `codes` (int (n_levels,)), all levels of all
    columns of categories; `precision` (n_levels, latents, latents); `field` (n_levels,
    latents), the approximations are ``field @ z - z @ precision @ z / 2``.
    """
    columns, codes = (
        torch.cat(parts)
        for parts in zip(*(_listed(family) for family in families.levels), strict=True)
    )
    every = torch.arange(len(columns))
    x = mean.new_zeros(len(columns), families.n_columns(len(mean)))
    x[every, columns] = codes.to(mean)

    def log_prob(z: Tensor) -> Tensor:
        loc = mean + z @ loadings.T
        return Cells(loc, scale.expand_as(loc), families).log_prob(x)[every, columns]

    z = mean.new_zeros(len(columns), loadings.shape[1])
    eye = torch.eye(z.shape[1]).to(z)
    for _ in range(_STEPS):
        slope, precision = _derivatives(log_prob, z)
        # the prior of z adds the identity and -z
        step = torch.linalg.solve(eye + precision, (slope - z)[..., None])[..., 0]
        length = step.norm(dim=1, keepdim=True)
        z = z + step * (_LONGEST / length.clamp(min=_LONGEST))
        if length.max() < _SETTLED:
            break
    slope, precision = _derivatives(log_prob, z)
    field = slope + (precision @ z[..., None])[..., 0]
    return columns, codes, precision, field


def _listed(family: Levels) -> tuple[Tensor, Tensor]:
    """List the columns and the codes of all levels of a family."""
    sizes = family.n_levels
    columns = family.columns.repeat_interleave(sizes)
    return columns, torch.cat([torch.arange(int(size)) for size in sizes])


def _derivatives(
    function: Callable[[Tensor], Tensor], z: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the gradient and minus the Hessian of a function of rows; concave."""
    # the derivatives need a graph even if the caller has turned gradients off
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        [slope] = torch.autograd.grad(function(z).sum(), z, create_graph=True)
        rows = [
            torch.autograd.grad(part.sum(), z, retain_graph=True)[0]
            for part in slope.unbind(1)
        ]
    values, vectors = torch.linalg.eigh(-torch.stack(rows, 1))
    # rounding may make eigenvalues of a concave function positive
    precision = vectors * values.clamp(min=0.0)[:, None] @ vectors.mT
    return slope.detach(), precision


class LevelPosterior(nn.Module):
    """The anchor of an encoder of rows with levels; see the module.

    `linear`: of the latent variables of all outputs.  `found`: from `sites`.
    `n_filled`: width of the filled rows: numbers, then 0 or 1 for each level of each
    column of categories, all 0 if it is missing.
    """

    def __init__(
        self, linear: FactorModel, families: Families, found: tuple[Tensor, ...]
    ) -> None:
        super().__init__()
        names = "columns", "codes", "precision", "field"
        for name, value in zip(names, found, strict=True):
            self.register_buffer(name, value.clone())
        every = torch.arange(families.n_columns(len(linear.mean)))
        numbers = every[~torch.isin(every, self.columns)]
        self.register_buffer("numbers", numbers)
        for name, value in linear._asdict().items():
            self.register_buffer(name, value[numbers].clone())
        self.n_filled = len(numbers) + len(self.columns)

    def forward(self, x: Tensor, observed: Tensor) -> Anchor:
        """Infer the latents of rows (*batch, features), in double precision."""
        rows = x.reshape(-1, x.shape[-1]).double()
        mask = observed.reshape(rows.shape)
        parts = self.mean, self.loadings, self.noise_variance
        linear = FactorModel(*(part.double() for part in parts))
        level = rows[:, self.columns].round() == self.codes
        level = (level & mask[:, self.columns]).to(rows)
        precision = level @ self.precision.double().flatten(1)
        more = (
            precision.view(-1, *self.precision.shape[1:]),
            level @ self.field.double(),
        )
        numbers, seen = rows[:, self.numbers], mask[:, self.numbers]
        found = infer(linear, numbers, seen, more)
        guess = linear.mean + found.mean @ linear.loadings.T
        filled = torch.cat([numbers.where(seen, guess), level], 1)
        return anchor_of(found, filled, x)


def anchor_of(found: Posterior, filled: Tensor, x: Tensor) -> Anchor:
    """Make the anchor of rows x (*batch, features) in their precision."""
    factor, n = found.factor, len(found.factor)
    if n and factor.stride(0) == 0:  # one for all rows
        # triangular systems are solved once for all rows
        factor = factor[:1]
    eye = torch.eye(found.mean.shape[1]).to(filled).expand_as(factor)
    root = torch.linalg.solve_triangular(factor.mT, eye, upper=True)
    parts = found.mean, root.expand(n, -1, -1), filled
    shape = x.shape[:-1]
    return Anchor(*(part.to(x).reshape(*shape, *part.shape[1:]) for part in parts))
