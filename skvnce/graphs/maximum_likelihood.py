"""Stochastic maximum likelihood, with persistent chains and no step size.

The log-likelihood of ``theta = (K, b)`` has the gradient ``E_data[T] - E_theta[T]``,
``T = (-zz'/2, z)``, where the first mean is over completed rows (Rhodes and Gutmann
2019, section 5, MC-MLE).  Chains of the model itself, which continue over the rounds,
estimate the second mean at the current theta_k and, with the Fisher information F,
nearby:

    E_theta[T] = E_k[T] + F (theta - theta_k)                                      (1)

So the loss is a quadratic, and the M-step finds its minimum: the natural gradient step,
with penalties.  The means of (1) are averaged over the rounds with those of the data,
so that the noise of both kinds of chains vanishes.  As (1) is local, the chains follow
the solutions in short steps (`within_reach`).  F affects the speed of convergence and
not the limit; it is that of a normal with the moments of the chains, and its products
take d^3 operations.
"""

from math import inf, log
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import State
from skvnce._core.progress import tell
from skvnce._core.training.adam import Diverged
from skvnce._core.training.proximal import Quadratic, minimise_over
from skvnce.graphs import em
from skvnce.graphs.samplers import antithetic, block_gibbs, missing_of
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

_CHAINS = 1000, 5000  # minimum and maximum number of chains of the model
_TOL = (1e-3, 1e-8)  # see `em.MStep`
_REACH = 0.1  # maximum <D, F D> of a step D of the model, per column
_MOST_RATIO = 1e4  # maximum ratio of variances, of model and data or data and model


class DrawnMoments(NamedTuple):
    """Moments of rows of the model, from which the information is computed."""

    mean: Tensor  # (features,)
    second: Tensor  # (features, features), mean of zz'
    fourth: Tensor  # (features,), mean of (z - mean)^4


class Moments(NamedTuple):
    """Averages over rows and rounds; see eq. (1)."""

    # (features, width), E_data[T] and E_k[T]; width is features + 1 with the linear
    # term
    data: Tensor
    model: Tensor  # (features, width)
    theta: Tensor  # (features, width), theta_k, as a matrix (K, b)
    drawn: DrawnMoments


@torch.no_grad()
def expected_statistic(
    model: TruncatedGaussian, x: Tensor, observed: Tensor, centre: Tensor
) -> Tensor:  # (features, features + 1)
    """Average T over rows, where conditional moments replace each missing cell.

    The mean of x_j x_k, k not j, is that of E[x_j | x_-j] x_k (Rao-Blackwell),
    which varies much less if the edges are weak.
    """
    conditionals = model.conditionals(x)
    z = (x - centre).flatten(0, -2)
    observed = observed.expand(x.shape).flatten(0, -2)
    mean = z.where(observed, conditionals.mean.flatten(0, -2) - centre)
    variance = conditionals.variance.flatten(0, -2).masked_fill(observed, 0.0)
    product = mean.T @ z / len(z)
    product = (product + product.T) / 2
    product.diagonal().copy_((mean.square() + variance).mean(0))
    return torch.cat([-product / 2, mean.mean(0)[:, None]], 1)


def moments_of_draws(z: Tensor) -> DrawnMoments:
    """Compute the moments of rows (n, features)."""
    mean = z.mean(0)
    return DrawnMoments(mean, z.T @ z / len(z), (z - mean).pow(4).mean(0))


class Information(NamedTuple):
    """F as if the rows were normal, with mean m and covariance S.

    With u = b - K m, and H equal to S rescaled to the variances of the squared columns,
    ``F (K, b) = (HKH / 2 - (m (Su)' + (Su) m') / 2, Su)``.
    """

    mean: Tensor
    covariance: Tensor
    heavy: Tensor

    @classmethod
    def of(cls, drawn: DrawnMoments) -> "Information":
        """Compute the moments that products need; the inverse is computed later."""
        covariance = drawn.second - torch.outer(drawn.mean, drawn.mean)
        variance = covariance.diagonal()
        excess = drawn.fourth / variance.square() - 1  # 2 for a normal
        # it enters the information of a squared column four times
        inflate = (excess / 2).clamp(min=1) ** 0.25
        return cls(drawn.mean, covariance, covariance * torch.outer(inflate, inflate))

    def product(self, direction: Tensor) -> Tensor:
        """Compute F times a direction of shape (features, width)."""
        d = len(self.mean)
        precision, linear = direction[:, :d], direction[:, d:]
        moved = self.covariance @ (linear.sum(1) - precision @ self.mean)
        half = self.heavy @ precision @ self.heavy / 2 - torch.outer(moved, self.mean)
        by_precision = (half + half.T) / 2  # exactly symmetric
        return torch.cat([by_precision, moved[:, None]], 1)[:, : direction.shape[1]]

    def diagonal(self) -> Tensor:
        """Compute <E, F E>, E the symmetric matrix of unit norm for each entry."""
        variance, heavy = self.covariance.diagonal(), self.heavy.diagonal()
        by_linear = self.mean.square() * variance[:, None]
        crossed = torch.outer(self.mean, self.mean) * self.covariance
        links = (torch.outer(heavy, heavy) + self.heavy.square()) / 2
        links += (by_linear + by_linear.T) / 2 + crossed
        # the sums above count both entries of a pair
        links.diagonal().div_(2)
        return torch.cat([links, variance[:, None]], 1)

    def quadratic(self, target: Tensor) -> Quadratic:
        """Make the quadratic <A, F A> / 2 - <target, A>."""
        diagonal = em.symmetric(self.diagonal())[:, : target.shape[1]]
        return Quadratic(self.product, target, self.inverse_form, diagonal)

    def inverse_form(self, residual: Tensor) -> Tensor:
        """Bound <R, F^-1 R> from above; exact if the linear term is free."""
        d = len(self.mean)
        factors, failed = torch.linalg.cholesky_ex(
            torch.stack([self.heavy, self.covariance])
        )
        if failed.any():
            return residual.new_tensor(torch.inf)
        linear = residual[:, d:].sum(1)
        outer = torch.outer(self.mean, linear)
        precision = residual[:, :d] + (outer + outer.T) / 2
        solved = torch.cholesky_solve(precision, factors[0])
        by_linear = torch.cholesky_solve(linear[:, None], factors[1]).squeeze(1)
        return 2 * (solved * solved.T).sum() + linear @ by_linear


def within_reach(point: Tensor, last: Moments) -> Tensor:
    """Move from the position of the chains towards a point, as far as eq. (1) holds.

    Half of <D, F D> is the Kullback-Leibler divergence of a short step D. With
    unlimited steps the chains may leave the data if columns are strongly
    correlated.
    """
    step = point - last.theta
    length = (step * Information.of(last.drawn).product(step)).sum()
    reach = _REACH * len(point)
    # steps within reach are not changed
    return last.theta + (reach / length.clamp(min=reach)).sqrt() * step


def check_chains(x: Tensor, rows: Tensor) -> None:
    """Raise an error if the variances of the chains differ strongly from the data's.

    Otherwise the result would be finite but meaningless.
    """
    ratio = x.flatten(0, -2).var(0) / rows.flatten(0, -2).var(0)
    if not ((ratio > 1 / _MOST_RATIO) & (ratio < _MOST_RATIO)).all():
        raise Diverged(
            "the chains of the model have left the data: columns are nearly collinear "
            "or have extreme values"
        )


def quadratic_of(moments: Moments, penalty: em.Penalty, centre: Tensor) -> Quadratic:
    """Make the quadratic loss by eq. (1), including the smooth penalties."""
    information = Information.of(moments.drawn)
    target = moments.data - moments.model + information.product(moments.theta)
    return em.add_penalties(information.quadratic(target), penalty, centre)


def running_mean(old: Moments, new: Moments, weight: float) -> Moments:
    """Move all averages a fraction `weight` of the way to the new ones."""
    means = [a.lerp(b, weight) for a, b in zip(old[:3], new[:3], strict=True)]
    drawn = [a.lerp(b, weight) for a, b in zip(old.drawn, new.drawn, strict=True)]
    return Moments(*means, DrawnMoments(*drawn))


def maximum_likelihood(
    data: Incomplete, centre: Tensor, *, fit_linear: bool
) -> em.Method:
    """Build the method."""
    d, width = len(centre), len(centre) + fit_linear
    of_data = em.completed_by_gibbs(data)
    n_chains = min(max(len(data.x), _CHAINS[0]), _CHAINS[1])
    # pairs of antithetic chains
    hidden = torch.zeros(2, n_chains // 2, d, dtype=torch.bool)
    every = missing_of(hidden)
    unseen = Incomplete(torch.zeros(hidden.shape, dtype=torch.float64), hidden)

    def init() -> tuple:
        rows = of_data.init()
        # chains start at rows of the data, near those of the model
        picked = torch.randint(rows.x.shape[1], hidden.shape[1:2])
        return rows, State(rows.x[0][picked].expand(hidden.shape).clone()), None

    def step(state: tuple, model: TruncatedGaussian) -> tuple[tuple, Moments]:
        linear = (model.linear - model.precision @ centre).detach()
        theta = em.Theta(model.precision.detach(), linear, model.log_scale.detach())
        if state[2] is not None:
            point = within_reach(em.as_point(theta, width), state[2])
            linear = point[:, d] if fit_linear else linear
            theta = theta._replace(precision=point[:, :d], linear=linear)
            model = em.to_model(theta, centre)
        rows, _ = of_data.step(state[0], model)
        chains, _ = block_gibbs(model, every, antithetic()).step(state[1], unseen)
        check_chains(chains.x, rows.x)
        means = [
            expected_statistic(model, x, observed, centre)[:, :width]
            for x, observed in ((rows.x, data.observed), (chains.x, hidden))
        ]
        drawn = moments_of_draws(chains.x.flatten(0, 1) - centre)
        moments = Moments(*means, em.as_point(theta, width), drawn)
        return (rows, chains, moments), moments

    def solve(
        moments: Moments, start: em.Theta, penalty: em.Penalty, tol: float
    ) -> em.Solution:
        quadratic = quadratic_of(moments, penalty, centre)
        return em.minimise_quadratic(quadratic, start, penalty, tol)

    def products(before: tuple, after: tuple) -> Tensor:
        of_model = em.lagged_products(before[1].x, after[1].x, ~hidden[0])
        if of_data.products is None:
            return of_model
        return of_model + of_data.products(before[0], after[0])

    m_step = em.MStep(lambda moments: moments, running_mean, solve, _TOL)
    e_step = em.EStep(init, step, False, products)
    return em.Method(e_step, m_step, em.truncated_normals(centre))


# ----------------------------------------
# The extended Bayesian information criterion of truncated Gaussian graphs.

_SWEEPS = 10  # sweeps that complete the rows for the estimate of the information


class Evidence(NamedTuple):
    """The log-likelihood around an estimate with all edges, as a quadratic.

    The ridge of b remains; otherwise b would compensate for edges that are left out.
    """

    # its product is that of the Fisher information, plus the ridge of b
    quadratic: Quadratic
    deviance: float  # that of the estimate, which `quadratic` does not contain
    n_rows: float
    n_pairs: float  # average number of rows that observe a pair


def evidence(
    m_step: em.MStep,  # the dense fit without L1 term; the ridge of K is dropped
    fit: em.Fit,
    penalty: em.Penalty,
    centre: Tensor,  # (features,)
    data: Incomplete,  # scaled columns
    *,
    fit_linear: bool,  # whether b is free
) -> Evidence:
    """Approximate the log-likelihood by least squares (Wang and Leng 2007)."""
    free = penalty._replace(ridge=0.0)
    best = m_step.solve(fit.summary, fit.theta, free, em.between(m_step.tol)).theta
    e_step = em.completed_by_gibbs(data)
    state, model = e_step.init(), em.to_model(fit.theta, centre)
    for n_sweep in range(1, _SWEEPS + 1):
        tell("sweep", n_sweep, _SWEEPS)
        state, rows = e_step.step(state, model)
    information = Information.of(moments_of_draws(rows - centre))
    point = em.as_point(best, len(centre) + fit_linear)
    quadratic_form = em.add_penalties(information.quadratic(point), free, centre)
    target = quadratic_form.product(point)
    quadratic = quadratic_form._replace(target=target)
    deviance = float((point * target).sum())
    return Evidence(quadratic, deviance, len(data.x), mean_pairs(data.observed))


def extended_bic(at_fit: Evidence, theta: em.Theta, gamma: float) -> float:
    """Compute the extended BIC of a graph, its edges refitted without penalties.

    ``n D + |E| (log n_pairs + 4 gamma log d)`` (Foygel and Drton 2010), where D is
    the deviance per row, by the quadratic approximation of `evidence`. It is
    infinite if columns have on average more than one neighbour for each ten rows
    that observe a pair; such a refit is unreliable and slow.
    """
    d, links = len(theta.precision), em.n_links(theta.precision)
    if 2 * links / d > at_fit.n_pairs / em.ROWS_A_NEIGHBOUR:
        return inf
    deviance = 2 * least_on(at_fit.quadratic, theta) + at_fit.deviance
    price = log(at_fit.n_pairs) + 4 * gamma * log(d)
    return at_fit.n_rows * deviance + links * price


def least_on(quadratic: Quadratic, theta: em.Theta) -> float:
    """Compute the minimum of a quadratic over the edges of theta, and b."""
    free = em.as_point(theta, quadratic.target.shape[1]) != 0
    free.diagonal().fill_(True)
    free[:, len(free) :] = True
    return minimise_over(quadratic, free)


def mean_pairs(observed: Tensor) -> float:
    """Average over pairs of columns the number of rows that observe both."""
    mask = observed.double()
    d = mask.shape[1]
    if d < 2:
        return float(mask.sum())
    count = (mask.T @ mask) * em.off_diagonal(d)
    # the logarithm of less than one row would reward edges
    return max(float(count.sum()) / (d * (d - 1)), 1.0)
