"""The M-step by variational noise-contrastive estimation with imputed neighbours.

Cumulative data imputation (Rhodes 2018, algorithm 1): in each row with missing cells
one of them is latent, and the others have their current imputation.  With the model's
own conditional as q(x_j | x_-j), which is optimal, the ratio phi(x) / q does not depend
on x_j.  The VNCE objective is then that of NCE with x_j integrated out in closed form.

There are two deviations from the thesis, both for consistency.  The missing cells of
the *noise* keep the values drawn with the noise, for which p_y of the other cells is
exact (the thesis replaces them by draws of the model, whose density is then unknown).
The imputations are single Gibbs draws instead of averages, whose variance is too small.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.em import (
    Method,
    MStep,
    Penalty,
    Solution,
    Theta,
    all_tables,
    completed_by_gibbs,
    truncated_normals,
    uncentre,
)
from skvnce.algorithms.graph.smooth import minimise_loss
from skvnce.distributions.truncated_normal import TruncatedNormal
from skvnce.models.base import observed_log_prob
from skvnce.models.truncated_gaussian import log_marginal
from skvnce.objectives.nce import nce


class Rows(NamedTuple):
    """Rows with at most one latent cell, and log p_y of their other cells."""

    x: Tensor  # (n, features)
    latent: Tensor  # (n,), int64, -1 if the row is complete
    log_noise: Tensor  # (n,)


def choose_latent(observed: Tensor) -> Tensor:
    """Choose one missing cell of each row at random; -1 if there is none."""
    # -1 is below all random numbers
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


def vnce(
    data: Incomplete,
    noise: TruncatedNormal,
    centre: Tensor,
    *,
    noise_ratio: int,
    fit_linear: bool,
    tol: tuple[float, float] = (3e-4, 1e-6),
) -> Method:
    """Build the method.

    Noise is drawn once, `noise_ratio` rows for each data row, with its missing cells.
    """
    observed = data.observed.repeat(noise_ratio, 1)
    drawn = noise.sample((len(observed),))
    contrast = latent_rows(drawn, observed, noise)

    def summarise(x: Tensor) -> tuple[Rows, ...]:
        return (latent_rows(x, data.observed.repeat(len(x) // len(data.x), 1), noise),)

    def solve(
        tables: tuple[Rows, ...], start: Theta, penalty: Penalty, tol: float
    ) -> Solution:
        rows = Rows(*(torch.cat(part) for part in zip(*tables, strict=True)))

        def loss(theta: Theta) -> Tensor:
            ratios = [log_ratio(part, theta, centre) for part in (rows, contrast)]
            return nce(*ratios, noise_ratio).loss

        free = {"fit_linear": fit_linear, "fit_scale": True}
        return minimise_loss(loss, start, centre, penalty, **free, tol=tol)

    m_step = MStep(summarise, all_tables, solve, tol)
    return Method(completed_by_gibbs(data), m_step, truncated_normals(centre))
