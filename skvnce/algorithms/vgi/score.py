"""Log-densities of rows with missing values under a density that VGI has fitted.

They are estimated by importance sampling.  Cells of columns with repeated values are
known up to an interval, whose probability is scored.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data; Veach and Guibas (1995) for the mixture of proposals;
Hesterberg (1995), Weighted average importance sampling and defensive mixture
distributions.
"""

from collections.abc import Callable
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.vgi.density import (
    Fitted,
    count_missing,
    dequantised_rows,
    draw,
    normal_draw,
)
from skvnce.algorithms.vgi.local import local_proposal, marginal_draws
from skvnce.distributions.normal import Normal
from skvnce.objectives.elbo import iwelbo, standard_error
from skvnce.variational.base import Uniforms, at_quantiles

CHAINS = 8  # number of chains of a row
_LOCAL = 3  # number of proposals near random walks for each sweep of all chains
_WALK = 32  # number of steps of the random walks


class Score(NamedTuple):
    """Estimates of log p(x_obs)."""

    log_prob: Tensor  # (n,)
    # (n,): standard errors, from the variance of the weights of draws, or the change
    # without the draw of the largest weight, if it is larger
    error: Tensor


@torch.no_grad()
def score(
    fitted: Fitted,
    data: Incomplete,
    streams: Callable[[int], Uniforms],
    *,
    n_draws: int,
    n_sweeps: int,
) -> Score:
    """Estimate log p(x_obs) by importance sampling with q as proposal.

    A draw is a sweep of q over the missing cells of a chain, or one of the normal
    given the observed cells, or one near the ends of random walks (`local_proposal`),
    which cover cells that q misses.  It is weighted by the mean density of the sweeps
    from all K chains of its row, of the normal N and of the L others l,

        p(x_obs) = E p(x) (K + 1 + L) /
                   (N(x_mis | x_obs) + L l(x_mis)
                    + sum_k prod_j q_j(x_j | x_<j, x~^k_>j))                       (1)

    The estimate is unbiased.  If the chains follow p(x_mis | x_obs) and q the
    conditionals of p, the weights become equal.  All rows miss the same number of
    cells.
    """
    part = dequantised_rows(fitted, data, streams(3), n_draws)
    log_q, x = part.x.new_zeros(n_draws, len(data.x)), part.x
    if count_missing(data):
        chains = draw(fitted, data, streams, n_chains=CHAINS, n_sweeps=n_sweeps)
        local = local_proposal(
            fitted.pair.model.log_prob,
            _starts(fitted, data, chains, streams),
            streams(7),
            _WALK,
        )
        safe = normal_draw(fitted.normal, part, streams(5)).to(x.device)
        # proposals take turns, so that their shares are those of eq. (1) without noise
        number = torch.arange(n_draws, device=x.device) % (CHAINS + 1 + _LOCAL)
        near = (number > CHAINS)[:, None, None]
        safe = local.sample(n_draws, streams(8)).where(near, safe)
        x, log_q = sweep_from(
            fitted.pair.conditionals, part, chains, safe, streams(4), 1 + _LOCAL
        )
        by_normal = normal_log_prob(fitted.normal, x, data.observed)
        by_local = local.log_prob(x) + log(_LOCAL)
        log_q = torch.cat([log_q, by_normal[:, None], by_local[:, None]], 1)
        log_q = log_q.logsumexp(1) - log(CHAINS + 1 + _LOCAL)
    log_width = fitted.families.log_width(data.x, data.observed)
    log_weight = fitted.pair.model.log_prob(x) - log_q + log_width
    return Score(iwelbo(log_weight), error_of(log_weight))


def error_of(log_weight: Tensor) -> Tensor:
    """Estimate the error of the logarithm of a mean of weights (n_draws, n); (n,).

    The standard error is at most 1, even if a single weight dominates.  Then the change
    of the logarithm without the largest weight, which has no bound, is larger.
    """
    n_draws = len(log_weight)
    largest = log_weight.softmax(0).max(0).values
    change = -torch.log1p(-largest) - log(n_draws / (n_draws - 1))
    error = standard_error(log_weight)
    return torch.where(error > 0, torch.maximum(error, change), 0.0)  # equal weights


def _starts(
    fitted: Fitted,
    data: Incomplete,
    chains: Tensor,
    streams: Callable[[int], Uniforms],
) -> Incomplete:
    """Start random walks at chains, and at draws of each column alone."""
    part = dequantised_rows(fitted, data, streams(6), 2 * len(chains))
    columns = marginal_draws(fitted.normal, part.x[len(chains) :], streams(9))
    return part._replace(x=part.with_values(torch.cat([chains, columns])))


def sweep_from(
    conditionals: nn.Module,
    data: Incomplete,  # x of shape (n_draws, n, features)
    chains: Tensor,  # (n_chains, n, features)
    # (n_draws, n, features): other proposals, which take the place of the last sweeps
    safe: Tensor,
    uniforms: Uniforms,
    # number of sweeps in n_chains + n_safe that they take the place of
    n_safe: int = 1,
) -> tuple[Tensor, Tensor]:
    """Sweep over the missing cells from chains in turn; return the terms of eq. (1).

    Returns `x` (n_draws, n, features); `log_q` (n_draws, n_chains, n), of the sweep to
    x from each chain.
    """
    n_draws, n_chains = len(data.x), len(chains)
    number = torch.arange(n_draws, device=chains.device)
    own = number % (n_chains + n_safe)
    is_safe, own = (own >= n_chains)[:, None], own.clamp(max=n_chains - 1)
    states = data._replace(x=data.x.unsqueeze(1)).with_values(chains)
    order = (~data.observed).double().sort(stable=True, dim=-1, descending=True).indices
    numbers = uniforms(0, data.x)
    log_q = 0.0
    for place in range(count_missing(data)):
        columns = order[:, place].expand(states.shape[:-1])
        mine = columns[:, 0].unsqueeze(-1)
        uniform, given = (one.gather(-1, mine).squeeze(-1) for one in (numbers, safe))
        q = conditionals.at(states[number, own], columns[:, 0])
        drawn = torch.where(is_safe, given, at_quantiles(q, uniform))
        drawn = drawn.unsqueeze(1).expand(columns.shape)
        log_q = log_q + conditionals.at(states, columns).log_prob(drawn)
        states = states.scatter(-1, columns.unsqueeze(-1), drawn.unsqueeze(-1))
    return states[:, 0], log_q


def normal_log_prob(normal: Normal, x: Tensor, observed: Tensor) -> Tensor:
    """Compute log p(x_mis | x_obs) of rows (n_draws, n, features); (n_draws, n)."""
    rows = x.flatten(0, 1).to(normal.mean.device)
    seen = observed.expand(x.shape).flatten(0, 1).to(rows.device)
    known = Incomplete(rows.where(seen, 0.0), seen)
    complete = Incomplete(rows, torch.ones_like(seen))
    found = em.log_prob(normal, complete) - em.log_prob(normal, known)
    return found.view(x.shape[:-1]).to(x.device)
