"""Early stopping: storage of modules at their best round."""

from collections.abc import Iterable

from torch import nn


class Best:
    """The best of the evaluated rounds; round 0, the start, has a gain of 0.

    `patience`: number of successive rounds without an improvement after which to stop.
    """

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
