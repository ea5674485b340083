"""Variational noise-contrastive estimation of any model.

Variational EM (Rhodes and Gutmann 2019, Corollary 1) alternates two steps.  The E-step
maximises the objective in the posterior with fixed noise terms, the M-step in the model
with fixed draws.  With an exact posterior there is no E-step, and the NCE objective
never decreases; if the unobserved variables can be integrated out, the M-step alone is
NCE.

Both steps use L-BFGS, which needs deterministic functions: draws are functions of fixed
uniform numbers (common random numbers).  The two steps are not joined into one, because
the gradient omits the dependence of the noise terms on the posterior; with few draws it
is then not the gradient of the value, and line searches fail.  Stochastic gradients
need no line search: `joint_ascent` optimises both at once.

Rows are processed in parts, so that memory is proportional to the draws of one part.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from math import log
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.posteriors import Draws, Posterior, Uniforms, global_stream, stream
from skvnce._core.progress import OnRound, tell_round
from skvnce._core.training.adam import train
from skvnce._core.training.lbfgs import minimise_parameters
from skvnce._core.training.proximal import Certified
from skvnce.contrast.objective import (
    Contrast,
    Criterion,
    accuracy,
    by_noise,
    drawn_values,
    log_marginal,
    log_ratio,
    nce,
    noise_marginal,
    variational_values,
)


class Problem(NamedTuple):
    """The model, the posterior and the data of a fit."""

    # log phi, of the values of the posterior's draws
    log_density: Callable[..., Tensor]
    posterior: Posterior
    contrast: Contrast  # data and noise
    # `by_noise` (VNCE), or `skvnce.contrast.objective.by_neighbours`
    criterion: Criterion = by_noise
    seed: int = 0  # seed of the common random numbers
    size: int = 2**20  # number of rows of data that are processed at a time
    # trains the posterior, instead of `criterion`
    posterior_criterion: Criterion | None = None
    # maps uniform numbers to those that are used: `shifted_lattice` makes the draws of
    # a row evenly distributed
    arrange: Callable[[Uniforms], Uniforms] = lambda uniforms: uniforms

    def parts(self) -> Iterator[tuple[Contrast, tuple[Uniforms, Uniforms]]]:
        """Yield the parts of the rows, each with its random numbers."""
        for place, part in enumerate(self.contrast.split(self.size)):
            # far apart, so that parts share no numbers with fits of the next seeds
            first = 2 * (self.seed + 1000003 * place)
            pair = stream(first), stream(first + 1)
            yield part, tuple(self.arrange(uniforms) for uniforms in pair)


class Trace(NamedTuple):
    """The record of the iterations."""

    loss: list[float]  # minus the objective after each round
    converged: bool  # whether the last rounds changed it by less than the tolerance


def draw_both(
    posterior: Posterior, contrast: Contrast, uniforms: tuple[Uniforms, Uniforms]
) -> tuple[Draws, Draws]:
    """Draw the unobserved variables of rows of data and of noise."""
    pairs = zip(contrast, uniforms, strict=True)
    first, second = (posterior(rows.x, rows.observed, u) for rows, u in pairs)
    return first, second


def log_mean(log_ratio: Tensor) -> Tensor:
    """Average over all rows of noise, in logarithms: the log of the integral of phi."""
    return log_ratio.flatten().logsumexp(0) - log(log_ratio.numel())


def fit_posterior(
    problem: Problem,
    parameters: Iterable[Tensor],
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> None:
    """Maximise the objective in the parameters of q, noise terms fixed: the E-step."""
    n = len(problem.contrast.data.observed)
    criterion = problem.posterior_criterion or problem.criterion
    with torch.no_grad():
        fixed = [
            noise_marginal(
                problem.log_density,
                problem.posterior(part.noise.x, part.noise.observed, second),
                part.noise,
            )
            for part, (_, second) in problem.parts()
        ]

    def losses() -> Iterator[Tensor]:
        for (part, (first, _)), marginal in zip(problem.parts(), fixed, strict=True):
            draws = problem.posterior(part.data.x, part.data.observed, first)
            ratio = log_ratio(problem.log_density, draws, part.data.log_noise)
            values = criterion(ratio, marginal, draws.log_weight, None)
            yield -values.sum() / n

    minimise_parameters(losses, parameters, tol=tol, max_iter=max_iter)


def fit_model(
    problem: Problem,
    parameters: Iterable[Tensor],
    *,
    penalty: Callable[[], Tensor] | None = None,
    tol: float = 1e-6,
    max_iter: int = 100,
    on_step: Callable[[float], bool] = lambda loss: False,
) -> Certified:
    """Maximise the objective in the parameters of the model: the M-step.

    Unobserved variables are drawn from the posterior at the start.  The objective of
    the result is minus that of VNCE, plus the penalty.
    """
    n = len(problem.contrast.data.observed)
    # a copy, because an exact posterior would follow the model while it is fitted
    posterior = copy.deepcopy(problem.posterior)

    def drawn() -> Iterator[tuple[Contrast, tuple[Draws, Draws]]]:
        for part, uniforms in problem.parts():
            with torch.no_grad():
                draws = draw_both(posterior, part, uniforms)
            yield part, draws  # outside, because a generator keeps its contexts

    # draws of all rows are in memory only if they are those of one part
    kept = list(drawn()) if problem.size >= n else None

    def losses() -> Iterator[Tensor]:
        for part, draws in kept or drawn():
            values = drawn_values(problem.log_density, draws, part, problem.criterion)
            yield -values.sum() / n
        if penalty:
            yield penalty()

    return minimise_parameters(
        losses, parameters, tol=tol, max_iter=max_iter, on_step=on_step
    )


def variational_em(
    problem: Problem,
    parameters: Iterable[Tensor],  # those of the model
    posterior_parameters: Iterable[Tensor] = (),
    *,
    penalty: Callable[[], Tensor] | None = None,
    n_steps: int = 100,
    n_posterior_steps: int | None = None,  # that of the E-step, if another
    n_posterior_rounds: int | None = None,
    tol: float = 1e-8,  # change of the loss at which to stop
    patience: int = 1,
    max_iter: int = 100,  # maximum number of rounds
    on_round: OnRound = tell_round,
) -> Trace:
    """Alternate the two steps, in place.

    `posterior_parameters`: if empty, the posterior is exact and there is no E-step.
    `penalty`: a function of the model's parameters that is added to the loss.
    `n_steps`: maximum number of iterations of L-BFGS in each of the two steps.
    `n_posterior_rounds`: number of rounds with an E-step, if not all. `patience`:
    number of successive rounds with smaller changes after which to stop: symmetric
    starts are left slowly. `on_round`: called with the round, the loss and its change;
    stops by returning True.
    """
    leaves, of_posterior = list(parameters), list(posterior_parameters)
    of_e_step = {"max_iter": n_posterior_steps or n_steps}
    n_e_steps = max_iter if n_posterior_rounds is None else n_posterior_rounds
    losses: list[float] = []
    n_quiet = 0
    for n_round in range(1, max_iter + 1):
        if of_posterior and n_round <= n_e_steps:
            fit_posterior(problem, of_posterior, **of_e_step)
        found = fit_model(problem, leaves, penalty=penalty, max_iter=n_steps)
        losses.append(found.objective)
        change = abs(losses[-1] - losses[-2]) if len(losses) > 1 else torch.inf
        n_quiet = n_quiet + 1 if change < tol else 0
        if on_round(n_round, losses[-1], change) or n_quiet == patience:
            return Trace(losses, n_quiet == patience)
    return Trace(losses, False)


def joint_ascent(
    problem: Problem,
    parameters: Iterable[tuple[str, Tensor]],
    *,
    penalty: Callable[[], Tensor] | None = None,
    batch_size: int,
    learning_rate: float,
    max_iter: int,
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
) -> list[float]:
    """Maximise the objective in model and posterior together, by Adam on mini-batches.

    Every batch uses new draws, from torch's stream.  Returns the losses.
    """
    device = problem.contrast.data.observed.device

    def loss(rows: Tensor) -> Tensor:
        values = variational_values(
            problem.log_density,
            problem.posterior,
            problem.contrast.take(rows.to(device)),
            (problem.arrange(global_stream),) * 2,
            problem.criterion,
        )
        return -values.mean() + (penalty() if penalty else 0.0)

    return train(
        loss,
        parameters,
        len(problem.contrast.data.observed),
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_iter=max_iter,
        on_epoch=on_epoch,
    )


def fit_scale(data: Tensor, noise: Tensor) -> float:
    """Maximise NCE in the scale alone, by log phi_0 - log p_y of data and noise."""
    scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    with torch.no_grad():  # importance sampling by the noise gives the initial value
        scale += log_mean(noise)

    def losses() -> list[Tensor]:
        return [nce(data - scale, noise - scale, len(noise)).loss]

    minimise_parameters(losses, [scale])
    return float(scale.detach())


class Evaluation(NamedTuple):
    """The objective at given parameters."""

    # (n,), of each row, with its noise, in the order of `Contrast.split`
    values: Tensor
    # log phi(u) - log p_y(u), estimated by importance sampling
    data: Tensor  # (n,)
    noise: Tensor  # (nu, n)

    def on(self, device: torch.device) -> Self:
        """Return it on a device."""
        return type(self)(*(part.to(device) for part in self))

    def accuracy(self) -> Tensor:
        """Compute the accuracy of classifying data and noise."""
        return accuracy(self.data, self.noise, 1.0)


@torch.no_grad()
def evaluate(problem: Problem) -> Evaluation:
    """Compute the objective of each row, and log-ratios."""
    found = []
    for part, uniforms in problem.parts():
        first, second = draw_both(problem.posterior, part, uniforms)
        ratio = log_ratio(problem.log_density, first, part.data.log_noise)
        marginal = noise_marginal(problem.log_density, second, part.noise)
        score = first.log_weight, first.log_score
        values = problem.criterion(ratio, marginal, *score)
        found.append((values, log_marginal(ratio, first.log_weight), marginal))
    return Evaluation(*(torch.cat(part, -1) for part in zip(*found, strict=True)))
