"""How far the bound at which a model was fitted is from its log-density.

Draws of missing cells make log p(x_obs) too low on average.  If the posterior is far
from that of the model, for example because it has one mode instead of two, the loss
depends on the model, and the fit favours those with broad conditionals.  Many draws
show the loss of few (Burda, Grosse and Salakhutdinov 2016, theorem 1).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vnce.fit import is_discrete
from skvnce.algorithms.vnce.fitted import Fitted
from skvnce.objectives.vnce import log_marginal, log_ratio, mean_over_draws
from skvnce.variational.base import shifted_lattice, stream

MOST_LOST = 0.1  # in nats; the draws of a fit that lose more are too few
_ROWS = 200  # maximum number of incomplete rows, evenly spaced
# a power of two, because draws are points of a lattice
_MANY = 1024  # number of draws that replaces infinitely many
_SEEDS = 101, 102  # other random numbers than those of a fit

Bound = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def bound_gap(fitted: Fitted, data: Incomplete, n_draws: int) -> float:
    """Compute the mean loss of the bound at incomplete rows, in nats.

    `data`: rows of the training data. `n_draws`: number of draws of each row in
    training. Result: 0 if no cell is missing, or if missing cells are integrated out.
    """
    rows = (~data.observed.all(1)).nonzero().squeeze(1)
    if fitted.is_integrated or not len(rows):
        return 0.0
    # the ceiling of the ratio, so that there are at most that many rows
    some = data.take(rows[:: -(-len(rows) // _ROWS)]).on(fitted.device)
    _, posterior = fitted.at(some.observed, n_draws)
    trained = mean_over_draws if is_discrete(posterior, some) else log_marginal
    few = _bound(fitted, some, n_draws, trained, _SEEDS[0])
    return float((_bound(fitted, some, _MANY, log_marginal, _SEEDS[1]) - few).mean())


def _bound(
    fitted: Fitted, data: Incomplete, n_draws: int, bound: Bound, seed: int
) -> Tensor:
    """Compute a bound of log phi(x_obs) of each row; (n,)."""
    log_density, posterior = fitted.at(data.observed, n_draws)
    size = fitted.rows_at_once(data, posterior, 0)
    found = []
    for first in range(0, len(data.x), size):
        part = data.take(slice(first, first + size))
        uniforms = shifted_lattice(stream(seed + 2 * first))
        draws = posterior(part.x, part.observed, uniforms)
        ratio = log_ratio(log_density, draws, part.x.new_zeros(len(part.x)))
        found.append(bound(ratio, draws.log_weight))
    return torch.cat(found)
