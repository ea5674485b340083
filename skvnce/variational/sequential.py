"""Posteriors that draw the unobserved variables of a row in several steps.

A step maps (draws, mask, uniform numbers) to draws with one more part, as
`skvnce.variational.base` describes.
"""

from collections.abc import Callable, Iterable
from math import prod

import torch
from torch import Tensor, nn

from skvnce.models.base import EnumerableModel, log_joint
from skvnce.variational.base import Draws, Posterior, Uniforms, repeated, with_states
from skvnce.variational.encoder import Latents

Step = Callable[[Draws, Tensor, Uniforms], Draws]


class SequentialPosterior(nn.Module):
    """A posterior that draws the unobserved variables of a row step by step."""

    def __init__(self, steps: Iterable[Step], n_draws: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.n_draws = n_draws

    def forward(self, x: Tensor, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw, as described in `Posterior`."""
        draws = repeated(x, _n_draws(self.steps, self.n_draws, observed))
        for step in self.steps:
            draws = step(draws, observed, uniforms)
        return draws

    @property
    def n_states(self) -> int:
        """The number of states that are enumerated for each draw."""
        return prod(one.n_states for one in self.steps if isinstance(one, ExactStates))


class ExactStates(nn.Module):
    """The exact posterior of latents with finitely many states, as a step.

    It uses the model at the time when rows are drawn.
    """

    def __init__(self, model: EnumerableModel) -> None:
        super().__init__()
        self._model = (model,)  # its parameters are not those of the posterior
        self.n_states = len(model.states)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Enumerate the states."""
        (model,) = self._model
        with torch.no_grad():
            # constant, as the exact posterior has no parameters of its own
            log_q = log_joint(model, draws.values[0]).log_softmax(0)
        return with_states(draws, model.states, log_q)


def joined(
    steps: Iterable[nn.Module], n_draws: int, observed: Tensor
) -> SequentialPosterior:
    """Make a posterior of steps, with a single draw if nothing is random.

    `observed` (bool (n, features)): the mask of the rows to draw.
    """
    return SequentialPosterior(steps, _n_draws(steps, n_draws, observed))


def _n_draws(steps: Iterable[nn.Module], n_draws: int, observed: Tensor) -> int:
    """Return the number of draws that rows need: one if nothing is random."""
    random = not observed.all() or any(isinstance(one, Latents) for one in steps)
    return n_draws if random else 1


def exact_posterior(model: EnumerableModel) -> Posterior:
    """Return the posterior of the latents of complete rows."""
    return SequentialPosterior([ExactStates(model)], 1)


def integrated(x: Tensor, observed: Tensor, uniforms: Uniforms) -> Draws:
    """Draw nothing: the model has log phi of the observed cells in closed form.

    The values are the arguments of its `log_marginal`.  The exact posterior would give
    the same objective: log phi(x, z) - log q(z | x) is then log phi(x) at all z.
    """
    draws = repeated(x)
    return draws._replace(values=(*draws.values, observed))
