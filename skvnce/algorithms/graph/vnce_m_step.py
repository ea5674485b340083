"""The M-step of VNCE on given draws of the missing cells.

With weighted draws z of a distribution q(z | u), for rows u of data and of noise, the
loss of `objectives.vnce` is convex in ``(K, b, c)``, in which log phi is linear.  The
caller determines how often draws are made; no gradient passes to q.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.algorithms.graph.em import MStep, Penalty, Solution, Theta, uncentre
from skvnce.algorithms.graph.smooth import minimise_loss
from skvnce.models.truncated_gaussian import log_phi
from skvnce.objectives import vnce
from skvnce.variational.base import Draws


class Drawn(NamedTuple):
    """Rows with their missing cells drawn."""

    x: Tensor  # (n_draws, *rows, features)
    # (n_draws, *rows), log q of the drawn cells plus log p_y of the others
    log_base: Tensor
    # (n_draws, *rows), weights for means over q; they sum to 1 over the draws of a row
    log_weight: Tensor


class Both(NamedTuple):
    """Draws for rows of data and for rows of noise."""

    data: Drawn
    noise: Drawn


def drawn(draws: Draws, log_noise: Tensor) -> Drawn:
    """Make constant draws of a posterior; log_noise (*rows,) is of the other cells."""
    x, log_base = draws.values[0], draws.log_prob + log_noise
    return Drawn(x.detach(), log_base.detach(), draws.log_weight)


def log_ratio(part: Drawn, theta: Theta, centre: Tensor) -> Tensor:
    """Compute G = log phi - log q - log p_y of each draw; (n_draws, rows)."""
    precision, linear, log_scale = uncentre(theta, centre)
    unscaled = log_phi(part.x, precision, linear)
    return (unscaled - log_scale - part.log_base).flatten(1)


def loss(both: Both, theta: Theta, centre: Tensor, noise_ratio: float) -> Tensor:
    """Compute minus the objective of VNCE."""
    ratios = [log_ratio(part, theta, centre) for part in both]
    weights = [part.log_weight.flatten(1) for part in both]
    return vnce.vnce(
        *ratios, noise_ratio, data_weight=weights[0], noise_weight=weights[1]
    ).loss


def keep_data(old: Both, new: Both, weight: float) -> Both:
    """Keep the data of all rounds, and the noise, of which there is more, of the last.

    Both terms of the objective are means over rows; that of the data is averaged.
    """
    pairs = zip(old.data, new.data, strict=True)
    return Both(Drawn(*(torch.cat(pair, 1) for pair in pairs)), new.noise)


def m_step(
    centre: Tensor,
    *,
    noise_ratio: float,
    fit_linear: bool,
    tol: tuple[float, float],
) -> MStep:
    """Build the M-step; draws are kept by `keep_data`."""

    def solve(both: Both, start: Theta, penalty: Penalty, tol: float) -> Solution:
        def value(theta: Theta) -> Tensor:
            return loss(both, theta, centre, noise_ratio)

        free = {"fit_linear": fit_linear, "fit_scale": True}
        return minimise_loss(value, start, centre, penalty, **free, tol=tol)

    return MStep(lambda both: both, keep_data, solve, tol)
