"""A normal distribution fitted to incomplete rows by EM, and draws of its posterior.

EM (Dempster, Laird and Rubin 1977, section 4.1; Little and Rubin 2019, section 11.2)
maximises ``sum_i w_i log p(x_i,obs) - k (log|S| + tr S^-1) / 2``: the penalty is worth
k rows that say that columns, scaled to unit spread, are independent.  The posterior
under the same prior is explored by data augmentation (Schafer 1997, section 5.4).
"""

from collections.abc import Callable
from math import ceil, log
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.gaussian import (
    Conditional,
    Normal,
    batches,
    condition,
    invert,
    log_prob_observed,
)


class Moments(NamedTuple):
    """Sums over completed rows, around the mean that completed them.

    Attributes
    ----------
    first : Tensor of shape (features,)
    second : Tensor of shape (features, features)
    """

    first: Tensor
    second: Tensor

    def centred(self, total: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        """Compute the average less the mean, and the scatter around it plus k I."""
        shift = self.first / total
        scatter = self.second - total * torch.outer(shift, shift)
        prior = strength * torch.eye(len(shift)).to(shift)
        return shift, (scatter + scatter.T) / 2 + prior


class Fit(NamedTuple):
    """The outcome of `fit_normal`.

    Attributes
    ----------
    normal : Normal
    objectives : list of float
        Penalised log-likelihoods.
    change : float
        Largest change of a parameter in the last round.
    rate : float
        That change over the one before: the rate of convergence.
    """

    normal: Normal
    objectives: list[float]
    change: float
    rate: float


def expected_moments(
    normal: Normal, data: Incomplete, weights: Tensor
) -> tuple[Moments, Tensor]:
    """Compute expected moments and the log-likelihood of the rows: the E-step."""
    d = data.x.shape[1]
    first, second = data.x.new_zeros(d), data.x.new_zeros(d, d)
    log_likelihood = data.x.new_zeros(())
    for rows in batches(data.observed):
        x, observed, weight = data.x[rows], data.observed[rows], weights[rows]
        log_prob, filled, found = log_prob_observed(normal, x, observed)
        residual = filled - normal.mean
        log_likelihood += log_prob @ weight
        first += residual.T @ weight
        second += (residual * weight[:, None]).T @ residual
        cells = d * found.columns[:, :, None] + found.columns[:, None, :]
        spread = found.covariance() * weight[:, None, None]
        second.view(-1).index_add_(0, cells.flatten(), spread.flatten())
    return Moments(first, second), log_likelihood


def maximise(
    normal: Normal, moments: Moments, total: Tensor, strength: float
) -> Normal:
    """Compute mean and covariance from expected moments: the M-step."""
    shift, scatter = moments.centred(total, strength)
    return Normal(normal.mean + shift, scatter / (total + strength))


def penalty(normal: Normal, strength: float) -> Tensor:
    """Compute k (log|S| + tr S^-1) / 2."""
    precision, log_det = invert(normal.covariance)
    return strength / 2 * (log_det + precision.trace())


def fit_normal(
    data: Incomplete,
    weights: Tensor,
    strength: float,
    start: Normal,
    *,
    max_iter: int,
    tol: float,
    on_round: Callable[[int, float, float], bool] = lambda n, loss, change: False,
) -> Fit:
    """Run EM until no entry of mean and covariance changes by more than `tol`.

    Parameters
    ----------
    data : Incomplete
        Columns scaled to unit spread.
    weights : Tensor of shape (n,)
    strength : float
        k, the prior's worth in rows.
    start : Normal
    max_iter : int
    tol : float
    on_round : callable
        Shown the round, minus the objective per row, and the change; stops EM by
        returning True.
    """
    normal, total, objectives, change = start, weights.sum(), [], 0.0
    for n_round in range(1, max_iter + 1):
        moments, log_likelihood = expected_moments(normal, data, weights)
        objectives.append(float(log_likelihood - penalty(normal, strength)))
        following = maximise(normal, moments, total, strength)
        pairs = zip(following, normal, strict=True)
        before, normal = change, following
        change = max(float((new - old).abs().max()) for new, old in pairs)
        if on_round(n_round, -objectives[-1] / float(total), change) or change < tol:
            break
    return Fit(normal, objectives, change, change / before if before else 0.0)


def log_prob(normal: Normal, data: Incomplete) -> Tensor:
    """Compute log p(x_obs) of each row; (n,)."""
    result = data.x.new_zeros(len(data.x))
    for rows in batches(data.observed):
        result[rows] = log_prob_observed(normal, data.x[rows], data.observed[rows])[0]
    return result


def conditional_mean(normal: Normal, data: Incomplete) -> Tensor:
    """Fill missing cells by E[x_mis | x_obs]; (n, features)."""
    return _complete(normal, data, lambda found: found.mean)


def draw(normal: Normal, data: Incomplete) -> Tensor:
    """Draw the missing cells from p(x_mis | x_obs); (n, features)."""
    return _complete(
        normal, data, lambda found: found.draw(torch.randn_like(found.mean))
    )


def _complete(
    normal: Normal, data: Incomplete, values: Callable[[Conditional], Tensor]
) -> Tensor:
    precision, _ = invert(normal.covariance)
    result = data.x.clone()
    for rows in batches(data.observed):
        x, observed = data.x[rows], data.observed[rows]
        found = condition(normal.mean, precision, x, observed)
        result[rows] = found.place(x, values(found))
    return result


def drawn_moments(normal: Normal, data: Incomplete, weights: Tensor) -> Moments:
    """Complete the rows by draws and sum up their moments.

    A weight of w counts as w rows with draws of their own, whose sum has w times the
    mean and the variance of one.  So has ``(w - s) E[xx'] + s xx'`` with one draw x and
    ``s = sqrt(w)``; weights below 1 have no such rows, and ``s = w``.
    """
    share = torch.minimum(weights, weights.sqrt())
    residual = draw(normal, data) - normal.mean
    first, second = residual.T @ share, (residual * share[:, None]).T @ residual
    spare = weights - share
    if spare.any():
        expected, _ = expected_moments(normal, data, spare)
        first, second = first + expected.first, second + expected.second
    return Moments(first, second)


def draw_parameters(
    mean: Tensor, moments: Moments, total: Tensor, strength: float
) -> Normal:
    """Draw mean and covariance from their posterior given moments around `mean`.

    ``S ~ inverse Wishart(n - 1 + k, scatter + k I)``, ``mean | S ~ N(average, S / n)``:
    the prior of the penalty times Jeffreys'.  The degrees of freedom are kept above
    the number of columns, where it has a mean.
    """
    shift, scatter = moments.centred(total, strength)
    d = len(mean)
    freedom = (total - 1 + strength).clamp(min=d + 1)
    root = draw_inverse_wishart_root(freedom, torch.linalg.cholesky(scatter))
    shift = shift + root @ torch.randn(d).to(mean) / total.sqrt()
    return Normal(mean + shift, root @ root.T)


def draw_inverse_wishart_root(freedom: Tensor, factor: Tensor) -> Tensor:
    """Draw R with ``R R' ~ inverse Wishart(freedom, L L')`` from L, by Bartlett's A.

    ``A A'`` is Wishart with unit scale, hence ``L^-T A A' L^-1`` the inverse of a draw,
    and ``R = L A^-T``.  (torch 2.13 warns of singular Wishart draws where none are.)
    """
    chi2 = torch.distributions.Chi2(freedom - torch.arange(len(factor)))
    bartlett = torch.randn_like(factor).tril(-1) + chi2.sample().sqrt().diag()
    return torch.linalg.solve_triangular(bartlett, factor.T, upper=False).T


def posterior_draws(
    start: Normal,
    data: Incomplete,
    weights: Tensor,
    strength: float,
    *,
    n_draws: int,
    n_steps: int,
) -> list[Normal]:
    """Draw parameters by data augmentation, `n_steps` steps apart.

    Each step completes the rows by draws, then draws the parameters.  Five times as
    many steps are made first.
    """
    normal, found, total = start, [], weights.sum()
    n_all = (5 + n_draws) * n_steps if n_draws else 0
    for n_done in range(1, n_all + 1):
        moments = drawn_moments(normal, data, weights)
        normal = draw_parameters(normal.mean, moments, total, strength)
        if n_done > 5 * n_steps and n_done % n_steps == 0:
            found.append(normal)
    return found


def steps_between_draws(rate: float, left: float = 0.2, most: int = 20) -> int:
    """Count the steps after which a share `left` of the dependence remains.

    Data augmentation forgets at the rate at which EM converges, the largest fraction of
    missing information (Schafer 1997, section 3.5).
    """
    if not 0 < rate < 1:
        return 1 if rate <= 0 else most
    return min(most, ceil(log(left) / log(rate)))


def choose_strength(
    data: Incomplete,
    held_out: Tensor,
    weights: Tensor,
    strengths: list[float],
    start: Normal,
    *,
    max_iter: int,
    tol: float,
) -> float:
    """Choose k by the log predictive density of held-out observed cells.

    Parameters
    ----------
    held_out : Tensor of bool, of shape (n, features)
        Observed cells that EM may not see.
    strengths : list of float
        In an order in which each is a good start of the next.
    """
    kept = Incomplete(data.x, data.observed & ~held_out)
    scores, normal = [], start
    for strength in strengths:
        normal = fit_normal(
            kept, weights, strength, normal, max_iter=max_iter, tol=tol
        ).normal
        gain = log_prob(normal, data) - log_prob(normal, kept)
        scores.append(float(gain @ weights))
    return strengths[max(range(len(scores)), key=scores.__getitem__)]
