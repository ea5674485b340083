"""The M-step by generalised score matching: a quadratic in (K, b), with exact zeros.

For the truncated Gaussian the loss of `objectives.score_matching` is
``sum_j theta_j' Gamma_j theta_j / 2 - g_j' theta_j`` with ``theta_j = (K_j, b_j)``,
``u = (x, -1)``, ``Gamma_j = E[h(x_j) u u']`` and ``g_j = E[h'(x_j) u] + E[h(x_j)] e_j``
(Yu, Drton and Shojaie 2019, section 3).  The columns are centred because this improves
the condition of the quadratic; without a penalty of b the minimum does not depend on
the centre.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.em import (
    DIAGONAL_FLOOR,
    Method,
    MStep,
    Penalty,
    Solution,
    Theta,
    completed_by_gibbs,
    truncated_normals,
)
from skvnce.algorithms.graph.quadratic import (
    minimise_quadratic,
    origin,
    penalised,
    ridges,
    symmetric,
)
from skvnce.objectives.score_matching import Weight, saturating_weight
from skvnce.training.proximal import Quadratic

_DRAWN = torch.float32  # of sums over draws, whose noise is far above its rounding
# they are d^3 numbers, 8 MiB with 100 features
_DENSE = 100  # maximum number of features for which the statistics are formed
_BRIEF = 30  # number of features above which products with rows are faster in a round
_TABLES = 4  # number of tables whose rows are stored with more features


class Statistics(NamedTuple):
    """Averages over rows, and over draws of the missing cells."""

    # (features, width, width), E[h(x_j) u u'] for each j; width is features + 1 with
    # the linear term
    gamma: Tensor
    target: Tensor  # (features, width), E[h'(x_j) u] + E[h(x_j)] e_j


def statistics(
    x: Tensor,
    centre: Tensor,
    fit_linear: bool,
    weight: Weight = saturating_weight,
    dtype: torch.dtype = torch.float64,
) -> Statistics:
    """Compute the statistics of completed rows; `gamma` has this `dtype`."""
    h, slope = weight(x)
    u = extended(x - centre, fit_linear)
    gamma = weighted_products(u.to(dtype), h.to(dtype))
    rounding = 8 * torch.finfo(dtype).eps  # must not make gamma indefinite
    gamma.diagonal(dim1=1, dim2=2).mul_(1 + rounding)
    return Statistics(gamma, target_of(u, h, slope))


def weighted_products(u: Tensor, h: Tensor) -> Tensor:  # (features, width, width)
    """Compute E[h_j u u'] of all j, each product of two entries of u once.

    `u`: (n, width). `h`: (n, features).
    """
    columns, width = u.T.contiguous(), u.shape[1]
    found = h.new_empty(width, width, h.shape[1])
    for k in range(width):
        # products of two entries are symmetric, so that half of them suffice
        found[k, k:] = found[k:, k] = (columns[k:] * columns[k]) @ h
    return found.div_(len(u)).permute(2, 0, 1).contiguous()


def extended(z: Tensor, fit_linear: bool) -> Tensor:
    """Return u = (z, -1), or z without the linear term."""
    return torch.cat([z, -z.new_ones(len(z), 1)], 1) if fit_linear else z


def target_of(u: Tensor, h: Tensor, slope: Tensor) -> Tensor:
    """Compute g_j of all j; (features, width)."""
    target = slope.T @ u / len(u)
    target.diagonal().add_(h.mean(0))
    return target


def running_mean(old: Statistics, new: Statistics, weight: float) -> Statistics:
    """Move the statistics a fraction `weight` of the way to the new ones."""
    # in place, because the statistics are d^3 numbers
    return Statistics(*(a.lerp_(b, weight) for a, b in zip(old, new, strict=True)))


def minimise_loss(
    stats: Statistics, start: Theta, centre: Tensor, penalty: Penalty, tol: float
) -> Solution:
    """Minimise the loss plus the penalty; see `minimise_quadratic`."""
    return minimise_quadratic(quadratic_of(stats, penalty, centre), start, penalty, tol)


def quadratic_of(stats: Statistics, penalty: Penalty, centre: Tensor) -> Quadratic:
    """Make the loss a quadratic over (K, b), including the smooth penalties."""
    width = stats.target.shape[1]
    to_linear = penalty.ridge_linear**0.5 * origin(centre, width)
    # the inverse of a compression is at most the compression of the inverse, so the
    # separate problems of the rows bound the symmetric problem
    dtype = stats.gamma.dtype
    rows = stats.gamma + ridges(penalty, width).to(dtype).diag_embed()
    if width > len(centre):
        rows = rows + torch.outer(to_linear, to_linear).to(dtype)
    # factorised once for all certificates
    factor, failed = torch.linalg.cholesky_ex(rows)

    def product(point: Tensor) -> Tensor:
        found = torch.bmm(rows, point[:, :, None].to(dtype)).squeeze(-1)
        return symmetric(found.to(point.dtype))

    def inverse_form(residual: Tensor) -> Tensor:
        if failed.any():  # without ridge and with few rows there is no certificate
            return residual.new_tensor(torch.inf)
        right = residual[:, :, None].to(dtype)
        half = torch.linalg.solve_triangular(factor, right, upper=False)
        return half.square().sum().to(residual.dtype)

    diagonal = symmetric(rows.diagonal(dim1=1, dim2=2)).to(centre.dtype)
    return Quadratic(product, symmetric(stats.target), inverse_form, diagonal)


def approximate_quadratic(
    stats: Statistics, penalty: Penalty, centre: Tensor
) -> Quadratic:
    """Make the same quadratic, with the inverse form of its diagonal, for rounds."""

    def product(point: Tensor) -> Tensor:
        right = point[:, :, None].to(stats.gamma.dtype)
        found = torch.bmm(stats.gamma, right).squeeze(-1)
        return symmetric(found.to(point.dtype))

    diagonal = symmetric(stats.gamma.diagonal(dim1=1, dim2=2)).to(centre.dtype)
    return over_diagonal(product, symmetric(stats.target), diagonal, penalty, centre)


def over_diagonal(
    product: Callable[[Tensor], Tensor],
    target: Tensor,
    diagonal: Tensor,
    penalty: Penalty,
    centre: Tensor,
) -> Quadratic:
    """Make a penalised quadratic, whose inverse form is that of its diagonal."""
    free = Quadratic(product, target, form_over(diagonal), diagonal)
    quadratic_form = penalised(free, penalty, centre)
    return quadratic_form._replace(inverse_form=form_over(quadratic_form.diagonal))


class Tables(NamedTuple):
    """Completed rows, for tables in which the statistics would be too large."""

    u: Tensor  # (n, width)
    h: Tensor  # (n, features), h and h' of the rows
    slope: Tensor  # (n, features)


def table_of(
    x: Tensor,
    centre: Tensor,
    fit_linear: bool,
    weight: Weight = saturating_weight,
    dtype: torch.dtype = torch.float64,
) -> Tables:
    """Prepare completed rows; (n, features) -> Tables of a data type."""
    parts = extended(x - centre, fit_linear), *weight(x)
    return Tables(*(part.to(dtype) for part in parts))


def pooled(old: Tables, new: Tables, weight: float) -> Tables:
    """Add new rows to the pool, in place of as many old ones once it is full.

    Then every round has about the same share of the rows, and a round replaces fewer
    and fewer of them, as in a running mean.
    """
    n, room = len(new.u), _TABLES * len(new.u)
    if len(old.u) + n <= room:
        return Tables(*(torch.cat(parts) for parts in zip(old, new, strict=True)))
    some = min(n, round(weight * len(old.u)))
    coming, going = torch.randperm(n)[:some], torch.randperm(len(old.u))[:some]
    return Tables(
        *(a.index_copy(0, going, b[coming]) for a, b in zip(old, new, strict=True))
    )


def free_quadratic(tables: Tables, penalty: Penalty, centre: Tensor) -> Quadratic:
    """Make the loss a quadratic whose products take n d^2 operations; see `Tables`."""
    u, h, n = tables.u, tables.h, len(tables.u)

    def product(point: Tensor) -> Tensor:
        found = (h * (u @ point.T.to(u.dtype))).T @ u / n
        return symmetric(found.to(point.dtype))

    target = symmetric(target_of(u, h, tables.slope).to(centre.dtype))
    diagonal = symmetric((h.T @ u.square() / n).to(centre.dtype))
    return over_diagonal(product, target, diagonal, penalty, centre)


def form_over(diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """Make the inverse form of a diagonal quadratic."""
    return lambda residual: (residual.square() / diagonal).sum()


def ceiling_of(data: Incomplete) -> Tensor:
    """Bound K_jj: conditional deviations are at least step / sqrt(12), as in rounding.

    The step is the smallest difference of two observed values.  In a column of zeros,
    which have no weight, and mostly ones the loss would decrease without limit as the
    ones are fitted more and more closely.
    """
    steps = []
    for x, observed in zip(data.x.T, data.observed.T, strict=True):
        values = x[observed].unique()
        steps.append(values.diff().min() if len(values) > 1 else values.new_ones(()))
    return (12 / torch.stack(steps).square()).clamp(min=2 * DIAGONAL_FLOOR)


def score_matching(
    data: Incomplete,
    centre: Tensor,
    *,
    fit_linear: bool,
    weight: Weight = saturating_weight,
) -> Method:
    """Build the method.

    The statistics are d^3 numbers; with more than `_DENSE` features the M-step keeps
    completed rows of several rounds instead.
    """
    dense = len(centre) <= _DENSE
    # without draws there is no noise
    dtype = torch.float64 if data.observed.all() else _DRAWN
    options = centre, fit_linear, weight, dtype
    summarise, merge, tol = (
        (statistics, running_mean, (1e-3, 1e-8))
        if dense
        else (table_of, pooled, (1e-2, 1e-5))
    )
    known = {"curvature": None}  # of the last solution

    def solve(
        summary: Statistics | Tables, start: Theta, penalty: Penalty, tol: float
    ) -> Solution:
        precise = tol < coarse
        if precise:  # rounding would limit the accuracy
            summary = type(summary)(*(part.to(centre.dtype) for part in summary))
        make = quadratic_of if precise else approximate_quadratic
        make = make if isinstance(summary, Statistics) else free_quadratic
        quadratic_form, interval = make(summary, penalty, centre), 10 if precise else 5
        found = minimise_quadratic(
            quadratic_form, start, penalty, tol, ceiling, interval=interval, **known
        )
        known["curvature"] = found.curvature
        return found

    ceiling, coarse = ceiling_of(data), tol[0]
    m_step = MStep(
        lambda x: summarise(x, *options),
        merge,
        solve,
        tol,
        (lambda x: table_of(x, *options)) if _BRIEF < len(centre) <= _DENSE else None,
    )
    return Method(completed_by_gibbs(data), m_step, truncated_normals(centre))
