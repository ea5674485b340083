"""Gibbs sampling along lines, for a normal distribution of non-negative variables.

Draws of single cells mix slowly if missing columns are strongly correlated: with
correlation r of two columns the autocorrelation is r^2.  The slow directions are known:
they are the v with ``v'Kv`` small compared with ``v' diag(K) v``.  So each sweep over
the cells is followed by draws along these directions.  On a line ``x + t v`` the
conditional distribution of t is a normal, truncated to the segment of the line without
negative cells, and is drawn exactly, without rejections and without a step size.

The directions span the eigenvectors of the smallest eigenvalues of K, scaled to unit
diagonal, restricted to the missing cells of the row, and are conjugate in the row's own
K (a small Cholesky factor for each pattern of missing cells).  If truncation has no
effect they are independent.  This is multigrid Monte Carlo with a spectral coarse
space: the distance of a vector u of missing cells from that space is at most ``u'Ku``
over the smallest eigenvalue left out.  So the rate of convergence is bounded for every
pattern, however strong the correlations are.  If no eigenvalue is small, there are no
such directions.

Goodman and Sokal (1989), Multigrid Monte Carlo method; Li and Ghosh (2015), Efficient
sampling methods for truncated multivariate normal and Student-t distributions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.distributions.truncated_normal import BoundedNormal, unit_quantile
from skvnce._core.incomplete import Incomplete, patterns
from skvnce._core.models import Info, Sampler, State
from skvnce._core.random import Uniforms, global_stream
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

# with two columns the autocorrelation of a sweep is (1 - eigenvalue)^2, here 0.64
_SLOW = 0.2  # eigenvalues, for unit diagonal, below which single cells mix slowly
# each direction is one more draw of all rows in each sweep
_MOST = 32  # maximum number of directions
# a copositive K may have eigenvalues of zero or below
_LEAST = 1e-9  # minimum eigenvalue for which a direction is made
# a copositive K may have little or no curvature along a direction of a positive matrix
_STRAIGHT = 0.1  # minimum share of the nominal curvature of a direction
# 32 MiB in double precision
_AT_ONCE = 2**22  # maximum size of a batch
_TOGETHER = 16  # number of columns whose forces are computed by one matrix product


class Patterns(NamedTuple):
    """Rows that miss at least two cells, and which cells."""

    rows: Tensor  # int64 (n_rows,): indices among all rows of all chains
    which: Tensor  # int64 (n_rows,): the pattern of each
    missing: Tensor  # bool (n_patterns, features)


class Missing(NamedTuple):
    """The missing cells by column and by row: listed once, not in each sweep."""

    # int64 (n_rows,): indices, among all rows of all chains, of those with missing
    # cells
    rows: Tensor
    # (int, Tensor of int64): columns, and the places in `rows` of the rows that miss
    # them
    cells: list[tuple[int, Tensor]]
    patterns: Patterns


class Lines(NamedTuple):
    """Directions for the rows that need them."""

    rows: Tensor  # int64 (n_rows,): indices among all rows of all chains
    which: Tensor  # int64 (n_rows,): the pattern of each
    missing: Tensor  # (features, n_rows): 1 if a cell is missing, else 0
    # (features, width): directions are combinations of these columns, before observed
    # cells are removed
    basis: Tensor
    # (n_patterns, width, width): row k: direction k in terms of the basis
    weights: Tensor
    # (n_patterns, width, width): row k: how a step along direction k lowers the forces
    # along the basis
    changes: Tensor
    curvature: Tensor  # (n_patterns, width): ``v'Kv``; 0 if the direction is left out


def missing_of(observed: Tensor) -> Missing:
    """List the missing cells in the tables of all chains; (*chains, n, features)."""
    missing = ~observed.flatten(0, -2)
    counts = missing.sum(1)
    incomplete, rows = (over.nonzero().squeeze(1) for over in (counts > 0, counts > 1))
    places = [column.nonzero().squeeze(1) for column in missing[incomplete].unbind(1)]
    cells = [(j, place) for j, place in enumerate(places) if len(place)]
    distinct, which = patterns(missing[rows])
    return Missing(incomplete, cells, Patterns(rows, which, distinct))


@torch.no_grad()
def n_directions(precision: Tensor) -> int:
    """Count the directions that `lines_of` makes for rows that need them."""
    scale = precision.diagonal().rsqrt()
    return _count(torch.linalg.eigvalsh(precision * torch.outer(scale, scale)))


def _count(values: Tensor) -> int:
    return min(int((values < _SLOW).sum()), _MOST)


@torch.no_grad()
def lines_of(precision: Tensor, patterns: Patterns) -> Lines | None:
    """Make the directions in which single cells mix slowly; None if there are none."""
    scale = precision.diagonal().rsqrt()
    unit = precision * torch.outer(scale, scale)
    values, vectors = torch.linalg.eigh(unit)
    width = _count(values)
    if not width or not len(patterns.rows):
        return None
    lifted = values.clamp(min=_LEAST)
    positive = unit
    if values[0] < _LEAST:  # a copositive K: use directions of a matrix close to it
        positive = unit + (vectors * (lifted - values)) @ vectors.T
    slow = vectors[:, :width].T
    negligible = slow.square() < 0.1 * lifted[:width, None] / len(unit)
    slow = slow.masked_fill(negligible, 0.0)
    batch = max(1, _AT_ONCE // slow.numel())
    parts = [
        _conjugate(slow, missing, unit, positive)
        for missing in patterns.missing.split(batch)
    ]
    *parts, is_slow = (torch.cat(part) for part in zip(*parts, strict=True))
    chosen = is_slow[patterns.which].nonzero().squeeze(1)
    if not len(chosen):
        return None
    which = patterns.which[chosen]
    missing = patterns.missing[which].T.to(slow).contiguous()
    basis = (slow * scale).T.contiguous()
    return Lines(patterns.rows[chosen], which, missing, basis, *parts)


def _conjugate(
    slow: Tensor, missing: Tensor, unit: Tensor, positive: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Combine the basis into conjugate directions; see `Lines`.

    The last tensor marks patterns that need them: no bound shows that they mix
    fast.
    """
    part = slow * missing[:, None]
    inner = (part @ unit) @ part.mT
    meant = inner if positive is unit else (part @ positive) @ part.mT
    eye = torch.eye(len(slow)).to(slow)
    # singular otherwise for patterns that miss fewer cells than there are directions
    factor = torch.linalg.cholesky(meant + _LEAST * eye)
    weights = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    changes = weights @ inner
    curvature = (weights * changes).sum(2)
    curvature = curvature.where(curvature > _STRAIGHT, 0.0)
    directions = weights @ part
    # the Frobenius norm bounds the largest eigenvalue
    slowness = torch.linalg.matrix_norm(directions @ directions.mT)
    return weights, changes, curvature, slowness > 1 / _SLOW


def move_along(
    lines: Lines, model: TruncatedGaussian, x: Tensor, uniform: Tensor
) -> Tensor:
    """Draw along each direction in turn, in all rows at once, from zero upwards."""
    rows = x.flatten(0, -2)[lines.rows]
    force = (model.linear - rows @ model.precision) * lines.missing.T @ lines.basis
    at = first = rows.T.contiguous()  # columns are faster to access
    uniform = uniform.flatten(0, -2)[lines.rows]
    for k in range(lines.basis.shape[1]):
        weight = lines.weights[lines.which, k]
        curvature = lines.curvature[lines.which, k]
        usable = curvature > 0
        # any positive number, because the steps of these rows are set to zero
        curvature = curvature.where(usable, 1.0)
        direction = lines.basis @ weight.T * lines.missing
        loc = (force * weight).sum(1) / curvature
        ends = _segment(at, direction)
        steps = BoundedNormal(loc, curvature.rsqrt(), *ends, validate_args=False)
        step = steps.icdf(uniform[:, k]).where(usable, 0.0)
        at = at + step * direction
        force = force - step[:, None] * lines.changes[lines.which, k]
    inside = at.clamp(min=0)  # corrects rounding
    flat = x.flatten(0, -2).clone()
    flat[lines.rows] = inside.where(lines.missing > 0, first).T
    return flat.view(x.shape)


def _segment(x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Find the steps t with x + t direction >= 0; (rows,) each.

    ``t >= -x / direction`` for positive directions, so that the largest
    ``direction / x`` is binding, and similarly for the others.
    """
    # a cell at zero stops the step, and 0 / 0 would be NaN
    towards = direction / x.clamp(min=torch.finfo(x.dtype).tiny)
    back, ahead = towards.amax(0), -towards.amin(0)
    return -1 / back.clamp(min=0).abs(), 1 / ahead.clamp(min=0).abs()  # no -0.0


def sweep(
    model: TruncatedGaussian, missing: Missing, x: Tensor, uniform: Tensor
) -> None:
    """Draw each missing cell given all others, column by column, in place.

    The forces ``K x`` on some columns are one matrix product, and follow each draw
    within these columns. `uniform` (*chains, n, features or more).
    """
    flat = x.view(-1, x.shape[-1])
    at = flat[missing.rows].T.contiguous()  # columns are faster to access
    u = uniform.flatten(0, -2)[missing.rows].T.contiguous()
    precision, linear = model.precision, model.linear
    scales = precision.diagonal().rsqrt()
    for start in range(0, len(missing.cells), _TOGETHER):
        part = missing.cells[start : start + _TOGETHER]
        columns = torch.tensor([j for j, _ in part])
        force = linear[columns, None] - precision[columns] @ at
        among = precision[columns][:, columns]
        for k, (j, rows) in enumerate(part):
            here, scale = at[j], scales[j]
            old, pull, free = (v.index_select(0, rows) for v in (here, force[k], u[j]))
            loc = torch.addcmul(old, pull, scale.square())
            new = scale * unit_quantile(1 - free, loc / scale)
            here.index_copy_(0, rows, new)
            if k + 1 < len(part):
                step = torch.zeros_like(here).index_copy_(0, rows, new - old)
                force[k + 1 :].addr_(among[k + 1 :, k], step, alpha=-1)
    flat[missing.rows] = at.T


def block_gibbs(
    model: TruncatedGaussian,
    missing: Missing,  # from `missing_of`, of all chains
    # maps (step, template) to numbers in [0, 1) of the shape of the template, here
    # (*chains, n, features + directions)
    uniforms: Uniforms = global_stream,
) -> Sampler[State, Info]:
    """Build a sampler of sweeps over the missing cells, then along slow directions."""
    lines = lines_of(model.precision, missing.patterns)
    # the same in tables without lines: random numbers are functions of the row alone
    width = n_directions(model.precision) if lines is None else lines.basis.shape[1]

    def init(data: Incomplete, x: Tensor) -> State:
        return State(data.with_values(x))

    @torch.no_grad()
    def step(state: State, data: Incomplete) -> tuple[State, Info]:
        # the sweep writes in place, and the caller may keep the old state
        x = state.x.clone()
        template = x.new_empty(*x.shape[:-1], x.shape[-1] + width) if width else x
        u = uniforms(state.step, template)
        sweep(model, missing, x, u)
        if lines is not None:
            x = move_along(lines, model, x, u[..., -width:])
        return State(x, state.step + 1), Info()

    return Sampler(init, step)


def antithetic(uniforms: Uniforms = global_stream) -> Uniforms:
    """Draw u for the first of two chains, and 1 - u for the second.

    The average of both estimates linear functions of the draws with much less
    noise.
    """

    def pairs(step: int, x: Tensor) -> Tensor:
        u = uniforms(step, x[0])
        # u may be 0, and quantiles need numbers below 1
        return torch.stack([u, (1 - u).clamp(max=1 - torch.finfo(x.dtype).eps)])

    return pairs
