"""The variational Gibbs objective, of any model with log p(x).

    J = E_j E_q(x_j | x~) [log p(x_j, x~_-j) + H(q_j)]                    (9) to (11)

x~ is a completed row, where a chain stands that no parameter moves; one missing cell j
is drawn anew from q and put in its place.  J is a bound of log p(x_obs) but for the
entropy of the chain itself.  With extended conditionals q sees x~_j too, eq. (18).

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
        Completed rows; of the cell that is drawn, extended conditionals see the value.
    columns : Tensor of int, of shape (n_selected, *batch)
        Missing columns of each row, that many one after the other; the others stay.

    Returns
    -------
    Tensor of shape (*batch,)
    """
    moved, spread = redrawn(conditionals, x, columns)
    return (model.log_prob(moved) + spread).mean(0)


def redrawn(
    conditionals: GibbsConditionals, x: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw one cell at a time of rows, as `vgi` does.

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
