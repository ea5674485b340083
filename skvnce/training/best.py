"""Early stopping: remember modules as they were at their best round."""

from collections.abc import Iterable

from torch import nn


class Best:
    """The best of the rounds that were judged; the start, round 0, gains nothing.

    Parameters
    ----------
    modules : iterable of nn.Module
    patience : int
        Rounds in a row without an improvement after which to stop.

    Attributes
    ----------
    n_round : int
    gain : float
    """

    def __init__(self, modules: Iterable[nn.Module], patience: int) -> None:
        self.modules, self.patience = list(modules), patience
        self.n_round, self.gain = 0, 0.0
        self._keep()

    def judge(self, n_round: int, gain: float) -> bool:
        """Take notice of a round; returns whether to stop."""
        if gain > self.gain:
            self.n_round, self.gain = n_round, gain
            self._keep()
        return n_round - self.n_round >= self.patience

    def restore(self) -> int:
        """Put the modules back to the best round, and return it."""
        for module, state in zip(self.modules, self._states, strict=True):
            module.load_state_dict(state)
        return self.n_round

    def _keep(self) -> None:
        self._states = [
            {name: value.clone() for name, value in module.state_dict().items()}
            for module in self.modules
        ]
