"""The M-step by variational noise-contrastive estimation with imputed neighbours.

Cumulative data imputation (Rhodes 2018, algorithm 1): in each incomplete row one
missing cell is latent, and the others stand at their current imputation.  With the
model's own conditional as q(x_j | x_-j), the optimal one, the ratio phi(x) / q does not
depend on x_j; the VNCE objective is then that of NCE with x_j integrated out in closed
form.

Two deviations, both for consistency.  The missing cells of the *noise* keep the values
drawn with the noise, for which p_y of the other cells is exact (the thesis overwrites
them by draws of the model, whose density is then unknown).  The imputations are single
Gibbs draws instead of averages, which have too little spread.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph import MStep, Solution, Theta, off_diagonal, uncentre
from skvnce.distributions.truncated_normal import TruncatedNormal
from skvnce.models.base import observed_log_prob
from skvnce.models.truncated_gaussian import log_marginal
from skvnce.objectives.nce import nce
from skvnce.training.lbfgs import minimise

DIAGONAL_FLOOR = 0.25  # least K_jj, for columns scaled to unit spread


class Rows(NamedTuple):
    """Rows with at most one latent cell, and log p_y of their other cells.

    Attributes
    ----------
    x : Tensor of shape (n, features)
    latent : Tensor of int64, of shape (n,)
        -1 where the row is complete.
    log_noise : Tensor of shape (n,)
    """

    x: Tensor
    latent: Tensor
    log_noise: Tensor


def choose_latent(observed: Tensor) -> Tensor:
    """Choose one missing cell a row at random; -1 where there is none."""
    score = torch.rand(observed.shape, dtype=torch.float64).masked_fill(observed, -1)
    best, latent = score.max(-1)
    return latent.masked_fill(best < 0, -1)


def latent_rows(x: Tensor, observed: Tensor, noise: TruncatedNormal) -> Rows:
    """Make one missing cell of each completed row latent."""
    latent = choose_latent(observed)
    given = latent[:, None] != torch.arange(x.shape[1])
    return Rows(x, latent, observed_log_prob(noise, x, given))


def log_ratio(rows: Rows, theta: Theta, centre: Tensor) -> Tensor:
    """Compute log phi - log p_y of the cells that are not latent."""
    precision, linear, log_scale = uncentre(theta, centre)
    log_phi = log_marginal(rows.x, rows.latent, precision, linear) - log_scale
    return log_phi - rows.log_noise


def minimise_loss(
    data: Rows,
    noise: Rows,
    start: Theta,
    centre: Tensor,
    *,
    noise_ratio: float,
    fit_linear: bool,
    alpha: float,
    ridge: float,
    tol: float,
) -> Solution:
    """Minimise the VNCE loss plus alpha |K|_1 + ridge |K|^2 / 2 off the diagonal.

    Parameters
    ----------
    data, noise : Rows
    start : Theta
    centre : Tensor of shape (features,)
    noise_ratio : float
        nu.
    fit_linear : bool
        Whether b is free; else it stays at `start`.
    alpha, ridge : float
        Penalties of the off-diagonal entries of K, both triangles counted.
    tol : float
        Largest entry of the (sub)gradient at the solution.
    """
    d = len(centre)
    lower = torch.tril_indices(d, d)

    def theta_of(vector: Tensor) -> Theta:
        half = vector.new_zeros(d, d).index_put(tuple(lower), vector[: lower.shape[1]])
        precision = half + half.T - half.diagonal().diag()
        linear = vector[lower.shape[1] : -1] if fit_linear else start.linear
        return Theta(precision, linear, vector[-1])

    def loss(vector: Tensor) -> Tensor:
        theta = theta_of(vector)
        ratios = [log_ratio(rows, theta, centre) for rows in (data, noise)]
        shrinkage = (off_diagonal(d) * theta.precision.square()).sum()
        return nce(*ratios, noise_ratio).loss + ridge / 2 * shrinkage

    entries = [start.precision[tuple(lower)], start.linear, start.log_scale[None]]
    vector = torch.cat(entries if fit_linear else entries[::2])
    weight, bound = torch.zeros_like(vector), torch.full_like(vector, -torch.inf)
    on_diagonal = lower[0] == lower[1]
    weight[: lower.shape[1]] = 2 * alpha * ~on_diagonal
    bound[: lower.shape[1]][on_diagonal] = DIAGONAL_FLOOR
    found = minimise(loss, vector.detach(), weight, bound, tol=tol)
    return Solution(theta_of(found.point), found.objective, found.gap)


def vnce(
    data: Incomplete,
    noise: TruncatedNormal,
    centre: Tensor,
    *,
    noise_ratio: int,
    fit_linear: bool,
    alpha: float,
    ridge: float,
    tol: tuple[float, float] = (3e-4, 1e-6),
) -> MStep:
    """Build the M-step; see `minimise_loss`.

    Noise is drawn once, `noise_ratio` rows for each data row, with its missing cells.
    """
    observed = data.observed.repeat(noise_ratio, 1)
    drawn = noise.sample((len(observed),))
    contrast = latent_rows(drawn, observed, noise)

    def summarise(x: Tensor) -> tuple[Rows, ...]:
        return (latent_rows(x, data.observed.repeat(len(x) // len(data.x), 1), noise),)

    def solve(tables: tuple[Rows, ...], start: Theta, tol: float) -> Solution:
        rows = Rows(*(torch.cat(part) for part in zip(*tables, strict=True)))
        return minimise_loss(
            rows,
            contrast,
            start,
            centre,
            noise_ratio=noise_ratio,
            fit_linear=fit_linear,
            alpha=alpha,
            ridge=ridge,
            tol=tol,
        )

    def merge(old: tuple[Rows, ...], new: tuple[Rows, ...], weight: float) -> tuple:
        return old + new  # the objective averages over all tables

    return MStep(summarise, merge, solve, tol)
