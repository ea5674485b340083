"""Normal distributions of incomplete rows, at which models and posteriors start."""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import step
from skvnce.algorithms.gaussian import em
from skvnce.distributions.normal import Normal
from skvnce.variational.cells import normal_scale

_STRENGTHS = (10.0, 1.0, 0.1, 0.01)  # candidates of the shrinkage, in rows per column
_OF_CELLS = 0.02  # shrinkage of the normal that draws missing cells
_MAX_ITER, _TOL = 200, 1e-3  # of EM


def initial_normal(data: Incomplete, held_out: tuple[Tensor, Tensor]) -> Normal:
    """Fit a normal by EM, whose shrinkage cells that are held out choose."""
    return _fit(data, _STRENGTHS, held_out)


def normal_of_cells(data: Incomplete, positive: Tensor, floor: Tensor) -> Normal:
    """Fit a normal distribution of columns, or of their logarithms, by EM.

    `positive`: (features,), bool, columns to replace by logarithms. `floor`:
    (features,), replaces zeros in logarithms.
    """
    # missing cells are zeros, which have no logarithm
    x = data.x.where(data.observed, 1.0)
    x = normal_scale(x, positive, floor).where(data.observed, 0.0)
    return _fit(Incomplete(x, data.observed), (_OF_CELLS,))


def standard_normal(width: int) -> Normal:
    """Make a normal distribution whose parameters a stored state will replace."""
    return Normal(torch.zeros(width).double(), torch.eye(width).double())


def _fit(
    data: Incomplete,
    shares: tuple[float, ...],
    held_out: tuple[Tensor, Tensor] | None = None,
) -> Normal:
    """Run EM on standardised columns, with a prior of some rows per column."""
    total = data.observed.double().sum(0)
    mean = data.x.sum(0) / total
    residual = (data.x - mean).where(data.observed, 0.0)
    scale = (residual.square().sum(0) / total).sqrt()
    d, weights = len(mean), torch.ones(len(data.x)).double()
    start, scaled = standard_normal(d), Incomplete(residual / scale, data.observed)
    strength, stopping = shares[0] * d, {"max_iter": _MAX_ITER, "tol": _TOL}
    if held_out is not None:
        some, hidden = held_out
        part = scaled.take(some), hidden[some], weights[some]
        strengths = [share * d for share in shares]
        strength, start = em.choose_strength(*part, strengths, start, **stopping)
    with step("fitting an initial normal distribution"):
        fit = em.fit_normal(scaled, weights, strength, start, **stopping).normal
    square = scale[:, None] * scale
    return Normal(mean + fit.mean * scale, fit.covariance * square)
