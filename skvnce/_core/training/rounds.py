"""Training in rounds of equal length, the last ones with decreasing learning rates."""

from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from torch import Tensor, nn

STEPS = 50  # number of steps in a round
COOLING = 6  # maximum number of rounds with decreasing learning rates
# the value of Simkus and Gutmann (2024) for UCI tables
MAX_NORM = 5.0  # maximum norm of a gradient
# 0.6 ** 6 = 0.05: learning rates end at a twentieth
_FALL = 0.6  # factor of the learning rates in each of these rounds


def rows_of(
    weights: Tensor, batch_size: int, device: torch.device | None = None
) -> Iterable[Tensor]:
    """Draw the batches of a round, by weights (n,), the same whatever the device."""
    size = min(len(weights), batch_size)
    rows = torch.multinomial(weights, STEPS * size, replacement=True)
    return rows.view(STEPS, size).to(device).unbind()


def cooling_after(n_rounds: int) -> Callable[[int], float]:
    """Make a schedule that is 1 for some rounds, and then decreases."""
    return lambda n_round: _FALL ** max(0, n_round - n_rounds)


# ----------------------------------------
# Exponential averages of parameters over the steps of a training.
#
# Averaging reduces the noise of stochastic gradients, so that scores of the averages
# on held-out cells are better and vary little from round to round.
#
# Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging.


_SPAN = 4 * STEPS  # number of steps over which parameters are averaged


class Averaged:
    """Copies of modules with averaged parameters.

    `share`: share of the steps so far that an average spans at most.  With the full
    span averages of few large steps would still be near the start.  `modules`: the
    copies.
    """

    def __init__(
        self, modules: Iterable[nn.Module], share: float | None = None
    ) -> None:
        self._followed = list(modules)
        self._share, self._n_steps = share, 0
        # with their buffers, so that the copies can be evaluated
        self.modules = [deepcopy(module) for module in self._followed]
        self._averages, self._values = (
            [leaf for module in modules for leaf in module.parameters()]
            for modules in (self.modules, self._followed)
        )

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages by 1 / 200, or more at first, towards the parameters."""
        self._n_steps += 1
        early = _SPAN if self._share is None else 1 + self._share * self._n_steps
        if self._averages:
            torch._foreach_lerp_(self._averages, self._values, 1 / min(_SPAN, early))

    def replace(self) -> None:
        """Copy the averaged parameters to the modules."""
        for mean, module in zip(self.modules, self._followed, strict=True):
            module.load_state_dict(mean.state_dict())


# ----------------------------------------
# Early stopping: storage of modules at their best round.


class Best:
    """The best of the rounds, `patience` in a row; round 0, the start, has gain 0."""

    def __init__(self, modules: Iterable[nn.Module], patience: int) -> None:
        self.modules, self.patience = list(modules), patience
        self.n_round, self.gain = 0, 0.0
        self._keep()

    def record(self, n_round: int, gain: float) -> bool:
        """Record a round; return whether to stop."""
        if gain > self.gain:
            self.n_round, self.gain = n_round, gain
            self._keep()
        return n_round - self.n_round >= self.patience

    def restore(self) -> int:
        """Restore the modules of the best round, and return its number."""
        for module, state in zip(self.modules, self._states, strict=True):
            module.load_state_dict(state)
        return self.n_round

    def _keep(self) -> None:
        # copies, because a state refers to the tensors that training changes in place
        self._states = [
            {name: value.clone() for name, value in module.state_dict().items()}
            for module in self.modules
        ]


def train_while_better(
    modules: Iterable[nn.Module],
    patience: int,
    # makes the function that scores held-out cells by copies of the modules
    scores_of: Callable[[list[nn.Module]], Callable[[], Tensor]],
    mean: Callable[[Tensor], Tensor],  # of gains of scores
    # trains, calling the functions `on_round` and `on_step`
    train: Callable[..., object],
    # called with the round, its loss and its gain; stops by returning True
    on_round: Callable[[int, float, float], bool],
    share: float | None,  # see `Averaged`
) -> int:
    """Train while held-out cells are predicted better, and restore the best round.

    Averages of the parameters over the last steps are evaluated and kept.
    """
    averaged = Averaged(modules, share)
    scores, best = scores_of(averaged.modules), Best(averaged.modules, patience)
    first = scores()

    def record(n_round: int, loss: float) -> bool:
        # limits the effect of outliers
        gain = float(mean((scores() - first).clamp(-5.0, 5.0)))
        stop = best.record(n_round, gain)
        return on_round(n_round, loss, gain) or stop

    train(on_round=record, on_step=averaged.update)
    chosen = best.restore()
    # the best round is one of the averages, which the modules then get
    averaged.replace()
    return chosen
