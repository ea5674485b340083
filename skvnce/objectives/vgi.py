"""The variational Gibbs objective of models with log p(x).

    J = E_j E_q(x_j | x~) [log p(x_j, x~_-j) + H(q_j)]                    (9) to (11)

Here x~ is a completed row, the state of a chain, which does not depend on parameters.
One missing cell j is drawn from q and replaced.  J is a bound of log p(x_obs), except
for the entropy of the chain itself.  Extended conditionals also depend on x~_j, eq.
(18).

References
----------
Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, eqs. (9)-(12) and (18), algorithm 3.
"""

from torch import Tensor

from skvnce.models.base import Density
from skvnce.variational.base import GibbsConditionals, entropy


def vgi(
    model: Density, conditionals: GibbsConditionals, x: Tensor, columns: Tensor
) -> Tensor:
    """Estimate J of rows by drawing one of their cells at a time, eq. (11).

    Parameters
    ----------
    model : Density
    conditionals : GibbsConditionals
    x : Tensor of shape (*batch, features)
        Completed rows; extended conditionals depend on the value of the drawn cell.
    columns : Tensor of int, of shape (n_selected, *batch)
        Missing columns of each row, each replaced separately.

    Returns
    -------
    Tensor of shape (*batch,)
    """
    moved, entropies = redrawn(conditionals, x, columns)
    return (model.log_prob(moved) + entropies).mean(0)


def redrawn(
    conditionals: GibbsConditionals, x: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw one cell of rows at a time, as `vgi` does.

    Returns
    -------
    moved : Tensor of shape (n_selected, *batch, features)
    entropy : Tensor of shape (n_selected, *batch)
        Of the distributions that were drawn from.
    """
    q = conditionals.at(x, columns)
    drawn = q.rsample()
    x = x.expand(*columns.shape, -1)
    moved = x.scatter(-1, columns.unsqueeze(-1), drawn.unsqueeze(-1))
    return moved, entropy(q, drawn)


def regression(
    conditionals: GibbsConditionals, x: Tensor, columns: Tensor, weights: Tensor
) -> Tensor:
    """Score observed cells given the other cells of their rows, eq. (12).

    Parameters
    ----------
    conditionals : GibbsConditionals
        Their j-th input is hidden from q_j.
    x : Tensor of shape (*batch, features)
    columns : Tensor of int, of shape (*batch,)
        An observed column of each row.
    weights : Tensor that broadcasts to (*batch,)

    Returns
    -------
    Tensor of shape (*batch,)
        ``weight * log q_j(x_j | x_-j)``.
    """
    value = x.gather(-1, columns.unsqueeze(-1)).squeeze(-1)
    return weights * conditionals.blind(x, columns).log_prob(value)
