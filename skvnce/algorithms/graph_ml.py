"""Stochastic maximum likelihood, with persistent chains and no step size.

The log-likelihood of ``theta = (K, b)`` has the gradient ``E_data[T] - E_theta[T]`` with
``T = (-zz'/2, z)``, its first mean over completed rows (Rhodes and Gutmann 2019, section
5, MC-MLE).  Chains of the model itself, which persist over the rounds, give the second
mean at the present theta_k and, with the Fisher information F = Cov(T), nearby:

    E_theta[T] = E_k[T] + F (theta - theta_k)                                      (1)

So the loss is a quadratic of which the M-step finds the minimum: the natural gradient
step, with penalties.  The means of (1) are averaged over the rounds with those of the
data, and the noise of both kinds of chains dies out.  Products with F take n d^2.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph import (
    DIAGONAL_FLOOR,
    EStep,
    Method,
    MStep,
    Penalty,
    Solution,
    Theta,
    completed_by_gibbs,
    off_diagonal,
)
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.samplers.base import State
from skvnce.samplers.gibbs import antithetic, gibbs, missing_cells
from skvnce.training.proximal import Quadratic, minimise

_CHAINS = 1000, 5000  # of the model, at least and at most
_SWEEPS = 1  # of these chains in a round
_TABLES = 5  # of the last rounds, which estimate F


class Moments(NamedTuple):
    """Averages over rows and rounds, each of shape (features, width); see eq. (1).

    Attributes
    ----------
    data : Tensor
        E_data[T].
    model : Tensor
        E_k[T].
    theta : Tensor
        theta_k.
    draws : tuple of Tensor of shape (chains, features)
        Centred rows of the model in the last rounds.
    """

    data: Tensor
    model: Tensor
    theta: Tensor
    draws: tuple[Tensor, ...]


def mean_statistic(z: Tensor, weight: Tensor, fit_linear: bool) -> Tensor:
    """Average weight * T over rows; (n, features), (n,) -> (features, width)."""
    weighted = z * weight[:, None] / len(z)
    by_precision = -(weighted.T @ z) / 2
    if not fit_linear:
        return by_precision
    return torch.cat([by_precision, weighted.sum(0)[:, None]], 1)


@torch.no_grad()
def expected_statistic(
    model: TruncatedGaussian,
    x: Tensor,
    observed: Tensor,
    centre: Tensor,
    fit_linear: bool,
) -> Tensor:
    """Average T over rows, each hidden cell replaced by its conditional moments.

    The mean of x_j x_k, k not j, is that of E[x_j | x_-j] x_k (Rao-Blackwell), which
    varies far less where the links are weak.  (*chains, n, features), the mask of a
    shape that broadcasts to it -> (features, width).
    """
    given = model.conditionals(x)
    z = (x - centre).flatten(0, -2)
    observed = observed.expand(x.shape).flatten(0, -2)
    mean = z.where(observed, given.mean.flatten(0, -2) - centre)
    variance = given.variance.flatten(0, -2).masked_fill(observed, 0.0)
    product = mean.T @ z / len(z)
    product = (product + product.T) / 2
    square = (mean.square() + variance).mean(0)
    product = product + (square - product.diagonal()).diag()
    if not fit_linear:
        return -product / 2
    return torch.cat([-product / 2, mean.mean(0)[:, None]], 1)


def contract(z: Tensor, direction: Tensor) -> Tensor:
    """Compute <direction, T> of each row; (n, features) -> (n,)."""
    d = z.shape[1]
    inner = -(z @ direction[:, :d] * z).sum(1) / 2
    return inner + z @ direction[:, d:].sum(1)


class GaussianInformation(NamedTuple):
    """F as if the rows were normal, with mean m and covariance S.

    With e = z - m, u = b - K m and H like S but with the spread that the squares of the
    columns have, ``F (K, b) = (HKH / 2 - (m (Su)' + (Su) m') / 2, Su)``.
    """

    mean: Tensor
    covariance: Tensor
    heavy: Tensor

    @classmethod
    def of(cls, z: Tensor) -> "GaussianInformation":
        """Estimate from rows."""
        mean = z.mean(0)
        e = z - mean
        covariance = e.T @ e / len(z)
        variance = covariance.diagonal()
        excess = e.square().var(0, correction=0) / (2 * variance.square())
        inflate = excess.clamp(min=1) ** 0.25
        return cls(mean, covariance, covariance * torch.outer(inflate, inflate))

    def product(self, direction: Tensor) -> Tensor:
        """Compute F times a direction of shape (features, width)."""
        d = len(self.mean)
        precision, linear = direction[:, :d], direction[:, d:]
        moved = self.covariance @ (linear.sum(1) - precision @ self.mean)
        outer = torch.outer(moved, self.mean)
        by_precision = (self.heavy @ precision @ self.heavy - outer - outer.T) / 2
        return torch.cat([by_precision, moved[:, None]], 1)[:, : direction.shape[1]]


def information(draws: tuple[Tensor, ...], width: int):
    """Return the product with F and a bound of its inverse.

    F is the covariance of T over the draws, shrunk towards that of a normal: with p
    parameters and N draws in proportions N / (N + p) and p / (N + p).
    """
    z = torch.cat(draws)
    d = z.shape[1]
    gaussian = GaussianInformation.of(z)
    empirical = len(z) / (len(z) + d * (d + 3) / 2)

    def product(direction: Tensor) -> Tensor:
        inner = contract(z, direction)
        found = mean_statistic(z, inner - inner.mean(), width > d)
        return torch.lerp(gaussian.product(direction), found, empirical)

    return product, gaussian, empirical


def quadratic_of(moments: Moments, penalty: Penalty, centre: Tensor) -> Quadratic:
    """Write the loss by eq. (1), with the smooth penalties."""
    d, width = moments.theta.shape
    fisher, _, _ = information(moments.draws, width)
    ridge = torch.zeros_like(moments.theta)
    ridge[:, :d] = penalty.ridge * off_diagonal(d)
    origin = torch.cat([centre, centre.new_ones(width - d)])
    shrink = penalty.ridge_linear * (width > d)

    def symmetric(matrix: Tensor) -> Tensor:
        square = matrix[:, :d]
        return matrix.index_copy(1, torch.arange(d), (square + square.T) / 2)

    def product(point: Tensor) -> Tensor:
        shrunk = shrink * torch.outer(point @ origin, origin)
        return fisher(point) + ridge * point + symmetric(shrunk)

    target = moments.data - moments.model + fisher(moments.theta)
    return Quadratic(product, target, lambda r: r.square().sum())


def maximum_likelihood(
    data: Incomplete,
    centre: Tensor,
    *,
    fit_linear: bool,
    tol: tuple[float, float] = (1e-4, 1e-8),
) -> Method:
    """Build the method."""
    d = data.x.shape[1]
    gibbs_step = completed_by_gibbs(data)
    n_chains = min(max(len(data.x), _CHAINS[0]), _CHAINS[1])
    hidden = torch.zeros(2, n_chains // 2, d, dtype=torch.bool)
    every = missing_cells(hidden)
    free = Incomplete(torch.zeros(hidden.shape, dtype=torch.float64), hidden)

    def init() -> tuple:
        return gibbs_step.init(), None

    def step(state: tuple, model: TruncatedGaussian) -> tuple[tuple, Moments]:
        rows, chains = state
        rows, _ = gibbs_step.step(rows, model)
        if chains is None:  # they start at rows of the data
            picked = torch.randint(rows.x.shape[1], hidden.shape[1:2])
            chains = State(rows.x[:, picked].expand(2, -1, -1).clone())
        for _ in range(_SWEEPS):
            chains, _ = gibbs(model, every, antithetic).step(chains, free)
        linear = model.linear - model.precision @ centre
        theta = torch.cat([model.precision, linear[:, None]], 1)[:, : d + fit_linear]
        return (rows, chains), Moments(
            expected_statistic(model, rows.x, data.observed, centre, fit_linear),
            expected_statistic(model, chains.x, hidden, centre, fit_linear),
            theta.detach(),
            (chains.x.flatten(0, 1) - centre,),
        )

    def merge(old: Moments, new: Moments, weight: float) -> Moments:
        means = [a.lerp(b, weight) for a, b in zip(old[:3], new[:3], strict=True)]
        return Moments(*means, (old.draws + new.draws)[-_TABLES:])

    def solve(moments: Moments, start: Theta, penalty: Penalty, tol: float) -> Solution:
        weight = torch.zeros_like(moments.theta)
        weight[:, :d] = penalty.weight
        lower = torch.full_like(weight, -torch.inf)
        lower.diagonal().fill_(DIAGONAL_FLOOR)
        point = torch.cat([start.precision, start.linear[:, None]], 1)
        quadratic = quadratic_of(moments, penalty, centre)
        found = minimise(quadratic, point[:, : d + fit_linear], weight, lower, tol=tol)
        linear = found.point[:, d:].sum(1)
        theta = Theta(found.point[:, :d].contiguous(), linear, start.log_scale)
        return Solution(theta, found.objective, found.gap)

    e_step = EStep(init, step, once=False)
    return Method(e_step, MStep(lambda moments: moments, merge, solve, tol))
