"""The M-step of graphs of columns of any kind: a graphical lasso for blocks.

See `copula`; the latent variables of a nominal column are a block.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce.algorithms.graph import em, graphical_lasso
from skvnce.algorithms.graph.em import MStep, Solution
from skvnce.algorithms.graph.graphical_lasso import Blocks
from skvnce.distributions.normal import Normal

# a power of two, by which division and multiplication are exact
_GRID = 2.0**-22  # of moments and starts of correlations: 2.4e-7
TOL = (1e-3, 1e-6)  # duality gaps of the rounds and of the last solution


class Theta(NamedTuple):
    """Parameters of the latent variables."""

    precision: Tensor  # (latents, latents)
    mean: Tensor  # (latents,)

    @classmethod
    def independent(cls, size: int) -> Self:
        """Make those of independent standard normal variables."""
        mean = torch.zeros(size, dtype=torch.float64)
        return cls(torch.eye(size, dtype=torch.float64), mean)

    def normal(self) -> Normal:
        """Return the normal distribution."""
        root = torch.linalg.cholesky(self.precision)
        return Normal(self.mean, torch.cholesky_inverse(root))


class Penalty(NamedTuple):
    """sum weight |K_ij|_F over blocks off the diagonal, counting both triangles."""

    weight: Tensor  # (columns, columns), infinite for excluded edges
    unit: Tensor  # (columns, columns), the weight if alpha is 1, eq. (1)

    def with_alpha(self, alpha: float) -> "Penalty":
        """Make a penalty of the same strength for all edges."""
        return self._replace(weight=alpha * self.unit)


def m_step(blocks: Blocks, n_rows: int) -> MStep:
    """Build the M-step, the graphical lasso of the correlations."""

    def summarise(normal: Normal) -> Normal:
        found = contrasts(normal.covariance, blocks)
        return normal._replace(covariance=tempered(found, blocks, n_rows))

    def merge(old: Normal, new: Normal, weight: float) -> Normal:
        return Normal(*(a + weight * (b - a) for a, b in zip(old, new, strict=True)))

    def solve(normal: Normal, start: Theta, penalty: Penalty, tol: float) -> Solution:
        scaled, product = correlations(normal, blocks)
        found = graphical_lasso.solve(
            rounded(scaled),
            rounded(start.precision * product),
            penalty.weight,
            blocks,
            tol=tol * len(scaled),
        )
        return in_units(found, normal, product)

    return MStep(summarise, merge, solve, TOL)


def rounded(matrix: Tensor) -> Tensor:
    """Round to multiples of a number far below the errors of moments of draws.

    The steps of the graphical lasso amplify rounding errors, up to its tolerance.  So
    sums over rows in another order, as of other parts, give the same solution.
    """
    return (matrix / _GRID).round_().mul_(_GRID)


def contrasts(covariance: Tensor, blocks: Blocks) -> Tensor:
    """Keep the covariance of differences of the latent variables of a nominal column.

    Their mean, of which no cell says anything, becomes independent of all others.  It
    has the variance of the mean of independent standard normal variables.  What the
    draws say about it is noise, in K + L - 1 of the K L entries of a block.
    """
    if blocks.are_single:
        return covariance
    places, sizes = blocks.places, blocks.sizes
    several = (places[:, None] == places) & (sizes > 1)[places]
    common = several / sizes[places].to(covariance)
    # a projection, so that the matrix stays positive definite
    differences = torch.eye(len(common)).to(common) - common
    return differences @ covariance @ differences + common


def tempered(covariance: Tensor, blocks: Blocks, n_rows: int) -> Tensor:
    """Move the covariance of the latent variables of a nominal column towards I.

    By as many rows of independent ones as are free.  The levels say next to nothing
    about it: draws of few rows a level wander to singular matrices.  Variables are
    rescaled along its eigenvectors, so that canonical correlations stay.
    """
    found, ends = covariance.clone(), blocks.sizes.cumsum(0).tolist()
    each = zip(blocks.sizes.tolist(), blocks.free.tolist(), ends, strict=True)
    for size, free, end in each:
        if size == 1:
            continue
        part, share = slice(end - size, end), free / (n_rows + free)
        values, vectors = torch.linalg.eigh(found[part, part])
        target = (1 - share) * values.clamp(min=0) + share
        # directions that no row has are filled and not stretched
        scale = (target / values.clamp(min=share)).sqrt()
        rest = target - scale.square() * values
        turn = (vectors * scale) @ vectors.T
        found[part] = turn @ found[part]
        found[:, part] = found[:, part] @ turn
        found[part, part] += (vectors * rest) @ vectors.T
    return found


def correlations(normal: Normal, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Divide the covariance by products of standard deviations, and return these.

    Latent variables of nominal columns are not divided: their common unit is set
    (`set_scales`), and dividing each by its own would mix their mean and differences.
    """
    several = (blocks.sizes > 1)[blocks.places]
    scale = torch.where(several, 1.0, normal.covariance.diagonal().sqrt())
    product = torch.outer(scale, scale)
    return normal.covariance / product, product


def in_units(
    found: graphical_lasso.Solution, normal: Normal, product: Tensor
) -> Solution:
    """Map the solution for correlations to the units of the latent variables."""
    theta = Theta(found.precision / product, normal.mean)
    loss = found.objective + float(product.diagonal().log().sum())
    return Solution(theta, loss, found.gap)


def associations(precision: Tensor, blocks: Blocks) -> Tensor:
    """Compute the signed strengths of edges; (columns, columns), zero on the diagonal.

    For columns of one latent variable it is the partial correlation.  Otherwise it is
    ``sqrt(sum_k r_k**2 / m)`` with the partial canonical correlations r_k of the latent
    variables of both columns, of which m can differ from zero: one less than the number
    of levels, for the column that has fewer (Cramér's V of the latent variables).
    """
    if blocks.are_single:
        return em.associations(precision)
    canonical = whitened(precision, precision, blocks)
    most = torch.minimum(blocks.free[:, None], blocks.free)
    found = blocks.norms(canonical) / most.sqrt()
    single = blocks.sizes == 1
    signs = -blocks.sums(canonical).sign()
    found = torch.where(single[:, None] & single, signs * found, found)
    found = (found + found.T) / 2  # equal up to rounding
    return found.clamp(-1, 1).fill_diagonal_(0.0)


def whitened(matrix: Tensor, precision: Tensor, blocks: Blocks) -> Tensor:
    """Divide a matrix by the roots of the diagonal blocks of a precision matrix."""
    white = precision.new_zeros(precision.shape)
    ends = blocks.sizes.cumsum(0).tolist()
    for size, end in zip(blocks.sizes.tolist(), ends, strict=True):
        part = slice(end - size, end)
        root = torch.linalg.cholesky(precision[part, part])
        inverse = torch.linalg.solve_triangular(
            root, torch.eye(size).to(root), upper=False
        )
        white[part, part] = inverse
    return white @ matrix @ white.T
