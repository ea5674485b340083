"""Variational EM for noise-contrastive estimation of any model.

The E-step raises the first term of the VNCE objective in the posterior, the M-step the
whole objective in the model, each with the other fixed (Rhodes and Gutmann 2019,
Corollary 1).  With an exact posterior nothing is left to the E-step, and the NCE
objective never decreases.

Both steps use L-BFGS, which needs deterministic functions: posteriors that draw at
random do so with common random numbers.  The two steps are not joined into one, because
the second term hides its dependence on the posterior from the gradient; with few draws
it is then not the gradient of the value, and line searches fail.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from skvnce.models.base import EnumerableModel, log_joint
from skvnce.objectives.vnce import Rows, data_term, drawn_objective, log_ratio
from skvnce.training.lbfgs import minimise_parameters
from skvnce.variational.base import Draws, Posterior, repeated, with_states


class Trace(NamedTuple):
    """What the iterations did.

    Attributes
    ----------
    loss : list of float
        Minus the VNCE objective after each M-step.
    converged : bool
        Whether the last iteration changed it by less than the tolerance.
    """

    loss: list[float]
    converged: bool


def exact_posterior(model: EnumerableModel) -> Posterior:
    """Return the posterior of the model as it stands when rows are drawn."""

    def draw(x: Tensor, observed: Tensor) -> Draws:
        with torch.no_grad():
            log_q = log_joint(model, x[None]).log_softmax(0)
        return with_states(repeated(x), model.states, log_q)

    return draw


def common_random_numbers(posterior: Posterior, seed: int) -> Posterior:
    """Return a posterior that draws by the same random numbers in every call."""

    def draw(x: Tensor, observed: Tensor) -> Draws:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return posterior(x, observed)

    return draw


def fit_posterior(
    model: nn.Module,
    posterior: Posterior,
    parameters: list[Tensor],
    data: Rows,
    noise_ratio: float,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> None:
    """Raise the first term of the objective in the parameters of q: the E-step."""

    def loss() -> Tensor:
        draws = posterior(data.x, data.observed)
        ratio = log_ratio(model, draws, data.log_noise)
        return -data_term(ratio, noise_ratio, draws.log_weight).mean()

    minimise_parameters(loss, parameters, tol=tol, max_iter=max_iter)


def fit_model(
    model: nn.Module,
    posterior: Posterior,
    data: Rows,
    noise: Rows,
    noise_ratio: float,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> float:
    """Raise the objective in the parameters of the model: the M-step.

    What rows hide is drawn once.  Returns minus the objective.
    """
    with torch.no_grad():
        draws = tuple(posterior(rows.x, rows.observed) for rows in (data, noise))

    def loss() -> Tensor:
        return drawn_objective(model, draws, data, noise, noise_ratio).loss

    found = minimise_parameters(loss, model.parameters(), tol=tol, max_iter=max_iter)
    return found.objective


def variational_em(
    model: nn.Module,
    posterior: Posterior,
    data: Rows,
    noise: Rows,
    noise_ratio: float,
    *,
    parameters: list[Tensor] | None = None,
    tol: float = 1e-8,
    max_iter: int = 100,
    callback: Callable[[float], None] | None = None,
) -> Trace:
    """Alternate the two steps, in place.

    Parameters
    ----------
    model : nn.Module
        An UnnormalisedModel or LatentModel.
    posterior : Posterior
        Deterministic; see `exact_posterior` and `common_random_numbers`.
    data, noise : Rows
        Rows of the noise have the missing cells of a data row each.
    noise_ratio : float
        nu.
    parameters : list of Tensor, optional
        Those of the posterior; by default it has none and the E-step is void.
    tol : float
        Change of the loss at which to stop.
    max_iter : int
    callback : callable, optional
        Called with the loss after each M-step.

    Returns
    -------
    Trace
    """
    losses: list[float] = []
    for _ in range(max_iter):
        if parameters:
            fit_posterior(model, posterior, parameters, data, noise_ratio)
        losses.append(fit_model(model, posterior, data, noise, noise_ratio))
        if callback:
            callback(losses[-1])
        if len(losses) > 1 and abs(losses[-1] - losses[-2]) < tol:
            return Trace(losses, True)
    return Trace(losses, False)
