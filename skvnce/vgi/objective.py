"""The variational Gibbs objective of models with log p(x).

    J = E_j E_q(x_j | x~) [log p(x_j, x~_-j) + H(q_j)]                    (9) to (11)

Here x~ is a completed row, the state of a chain, which does not depend on parameters.
One missing cell j is drawn from q and replaced.  J is a bound of log p(x_obs), except
for the entropy of the chain itself.  Extended conditionals also depend on x~_j, eq.
(18).

A level has no derivative.  If x_j is one of K levels, the mean over q_j in J is a sum
of log p at the row with each of them,

    J = E_j [sum_k q_j(k | x~) log p(x_j = k, x~_-j) + H(q_j)]                     (1)

with all terms, or an unbiased estimate of the less probable ones; see
`skvnce._core.distributions.cells`.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, eqs. (9)-(12) and (18), algorithm 3.
"""

from typing import NamedTuple

from torch import Tensor

from skvnce._core.models import Density
from skvnce._core.posteriors import GibbsConditionals, candidates

# the model is evaluated at one more row for each level
MOST_LEVELS = 8  # number of levels in eq. (1)


class Redrawn(NamedTuple):
    """Rows of which one cell has been replaced, by one value or by several."""

    tables: Tensor  # (n_tables, features)
    # bool (*cells, n_candidates): which candidates the tables contain, in order
    used: Tensor
    weights: Tensor  # (*cells, n_candidates)
    entropy: Tensor  # (*cells,): of the distributions of the cells

    def bound(self, log_prob: Tensor) -> Tensor:
        """Compute the terms of J from log p of the tables; (n_tables,) -> (*cells,).

        The weights of a cell sum to one, and their gradients to zero on average.  So
        any constant may be subtracted from log p and added again.  Here it is the mean
        over all candidates but the last, which may be a random one: that would be
        dependent on the gradients.
        """
        wide = log_prob.new_zeros(self.used.shape)
        wide = wide.masked_scatter(self.used, log_prob)
        known, detached = self.weights.detach()[..., :-1], wide.detach()[..., :-1]
        total = known.sum(-1, keepdim=True)
        middle = (known * detached).sum(-1, keepdim=True) / total.where(total > 0, 1.0)
        # weights of unused candidates must have no gradient: their log p is unknown
        terms = self.weights * (wide - middle)
        return terms.where(self.used, 0.0).sum(-1) + middle[..., 0] + self.entropy


def vgi(
    model: Density, conditionals: GibbsConditionals, x: Tensor, columns: Tensor
) -> Tensor:  # (*batch,)
    """Estimate J of rows by replacing one of their cells at a time, eq. (11).

    `x` (*batch, features): completed rows; extended conditionals depend on the value of
    the replaced cell.  `columns` (int (n_selected, *batch)): missing columns of each
    row, each replaced separately.
    """
    found = redrawn(conditionals, x, columns)
    return found.bound(model.log_prob(found.tables)).mean(0)


def redrawn(conditionals: GibbsConditionals, x: Tensor, columns: Tensor) -> Redrawn:
    """Replace one cell of rows at a time, as `vgi` does.

    Returns with a cell for each of `columns`.
    """
    values, weights, entropy = candidates(conditionals.at(x, columns), MOST_LEVELS)
    shape = *values.shape, x.shape[-1]
    rows = x.expand(*columns.shape, -1).unsqueeze(-2).expand(shape)
    places = columns[..., None, None].expand(*values.shape, 1)
    # the model is not evaluated where the weight is zero, for example at missing levels
    used = weights.detach() > 0
    moved = rows.scatter(-1, places, values.unsqueeze(-1))
    return Redrawn(moved[used], used, weights, entropy)


def regression(
    conditionals: GibbsConditionals, x: Tensor, columns: Tensor, weights: Tensor
) -> Tensor:
    """Score observed cells given the other cells of their rows, eq. (12).

    `x` (*batch, features), `weights` (that broadcasts to (*batch,)).  `conditionals`:
    their j-th input is hidden from q_j.  `columns` (int (*batch,)): an observed column
    of each row.  Returns (*batch,): ``weight * log q_j(x_j | x_-j)``; 0 where the
    weight is, even outside of bounds.
    """
    value = x.gather(-1, columns.unsqueeze(-1)).squeeze(-1)
    inside = conditionals.blind(x, columns).log_prob(value)
    return (weights * inside).where(weights > 0, 0.0)
