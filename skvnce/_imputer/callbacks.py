"""Progress output of estimators: printed lines and scikit-learn's callbacks.

Callbacks are experimental in scikit-learn, since version 1.9.  With older versions the
names of this module exist and do nothing.
"""

import functools
from contextlib import contextmanager
from math import isfinite
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._core import progress as core_progress
from skvnce._core.progress import Step, tell
from skvnce._core.runtime import torch_defaults
from skvnce._core.training.adam import Diverged
from skvnce._core.training.rounds import COOLING
from skvnce._core.warnings import warn_user
from skvnce._imputer.validation import check_verbose
from skvnce._types import Method
from skvnce.exceptions import DivergenceError

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:
        """Replacement for the mixin of scikit-learn 1.9."""

        def _init_callback_context(self, **kwargs):
            return None

    def with_callbacks(method):
        """Return the method unchanged."""
        return method


_EVERY = 1.0  # seconds between two lines of a running step


def shows_progress(method: Method) -> Method:
    """Decorate a method to print its steps, and to have torch's own defaults."""

    @functools.wraps(method)
    def shown(self, *args, **kwargs):
        with core_progress.heard_by(Progress(self)), torch_defaults():
            return method(self, *args, **kwargs)

    return shown


def reports_fit(fit: Method) -> Method:
    """Decorate `fit`, which calls `report_rounds`, to report its progress."""
    return with_callbacks(shows_progress(fit))


def report_rounds(estimator, max_iter, *, X):
    """Begin a fit; return functions to call after rounds, and once at the end.

    `on_round` maps (round, loss, change) to whether a callback requests to stop.
    """
    progress = core_progress.listener()
    progress.begin_tasks(estimator, X)

    def on_round(n_round, loss, change):
        return progress.show_round(Round(n_round, loss, change, max_iter))

    return on_round, progress.finish


def count_rounds(function, *args):
    """Call a function; return its value and the number of its rounds, of any thread."""
    counter = Progress(None)
    with core_progress.heard_by(counter):
        return function(*args), counter.n_unreported


class Round(NamedTuple):
    """A round of a fit; loss and change are not finite if they are undefined."""

    number: int
    loss: float
    change: float
    total: int

    def __str__(self):
        """Format the round as "round 3: loss 1.2, change 0.1"."""
        loss = [f"loss {self.loss:.6g}"] * isfinite(self.loss)
        change = [f"change {self.change:.2g}"] * isfinite(self.change)
        numbers = ", ".join(loss + change)
        return f"round {self.number}" + f": {numbers}" * bool(numbers)


class Progress:
    """The listener of a method: it prints, notifies callbacks, and passes events on."""

    def __init__(self, estimator):
        self.name, verbose = type(estimator).__name__, getattr(estimator, "verbose", 0)
        check_verbose(verbose, self.name)
        self.verbose = int(verbose)
        self.outer = core_progress.listener()
        self.tasks, self.n_unreported = None, 0
        self._path, self._names, self._last = [], (), monotonic()

    def begin_tasks(self, estimator, X):
        """Let the callbacks of an estimator know of a fit to X."""
        self.tasks = Tasks.begun(estimator, X)

    @property
    def prints(self):
        """Whether this listener, or an outer one, prints."""
        return self.verbose > 0 or (self.outer is not None and self.outer.prints)

    def begin(self, step):
        """Receive the start of a step."""
        task = self.tasks and self.tasks.begin(step)
        begun = Begun(step, task, self.outer and self.outer.begin(step))
        self._path.append(begun)
        names = tuple(open_step.step.name for open_step in self._path)
        if is_alone(step):
            return begun
        if step.has_parts or (names != self._names and not step.is_brief):
            self._print(self._where())
        else:
            self._print_if_due(self._where)
        self._names = names
        return begun

    def end(self, begun):
        """Receive the end of a step, and end all open steps inside it."""
        places = [k for k, open_step in enumerate(self._path) if open_step is begun]
        # the end of an outer step has ended this one
        if not places:
            return
        if self.tasks:
            self.tasks.end(begun.task)
        del self._path[places[0] :]
        if self.outer is not None:
            self.outer.end(begun.outer)

    def tell(self, step):
        """Receive the position of a loop."""
        self.n_unreported += step.name == "round"
        self._print_if_due(lambda: self._where_in_fit(step))
        if self.outer is not None:
            self.outer.tell(step)

    def show_round(self, round_):
        """Report a round; return whether a callback requests to stop."""
        self._print(": ".join([*filter(None, [self._where()]), str(round_)]))
        stop = self.tasks is not None and self.tasks.show_round(round_)
        outer = self.outer is not None and self.outer.show_round(round_)
        return stop or outer

    def finish(self):
        """End the tasks of the fit."""
        if self.tasks:
            self.tasks.finish()

    def _where(self, *inside):
        path = [*(open_step.step for open_step in self._path), *inside]
        return ": ".join(str(step) for step in path if not is_alone(step))

    def _where_in_fit(self, step):
        is_outer = all(is_alone(open_step.step) for open_step in self._path)
        return "fitting: " * bool(self.tasks and is_outer) + self._where(step)

    def _print_if_due(self, text):
        if self.verbose > 1 or monotonic() - self._last >= _EVERY:
            self._print(text())

    def _print(self, text):
        inner = self.outer is not None and self.outer.prints
        if self.verbose and not inner:
            print(f"[{self.name}] {text}", flush=True)
        self._last = monotonic()


def is_alone(step):
    """Return whether a step has no siblings; lines then name only its inner steps."""
    return step.has_parts and step.total == 1


class Begun(NamedTuple):
    """A running step: its listener, its callbacks, and the next listener."""

    step: Step
    task: Any
    outer: Any


class Task:
    """A task of callbacks, and the open group of equal tasks inside it."""

    def __init__(self, context, *, has_parts):
        self.context, self.has_parts = context, has_parts
        self.group, self.name, self.room = None, None, 0


class Tasks:
    """The tasks of a fit, as scikit-learn's callbacks see them.

    The fit contains one group for each step name, and a group contains the steps, or
    rounds.  Steps without tasks for callbacks hide the steps inside them.
    """

    def __init__(self, estimator, X, context):
        self._given = {"estimator": estimator, "X": X}
        self._open = [Task(context, has_parts=True)]
        context.call_on_fit_task_begin(**self._given)

    @classmethod
    def begun(cls, estimator, X):
        """Begin the root task; return None before scikit-learn 1.9."""
        context = estimator._init_callback_context(max_subtasks=None)
        return None if context is None else cls(estimator, X, context)

    def begin(self, step):
        """Begin the task of a step; return None if it is hidden."""
        if not self._open[-1].has_parts:
            return None
        most = None if step.has_parts else 0
        context = self._inside(step.name, step.total, step.name, most)
        self._open.append(Task(context, has_parts=step.has_parts))
        return self._open[-1]

    def end(self, task):
        """End a task and the tasks inside it."""
        while task in self._open:
            last = self._open.pop()
            self._close_group(last)
            last.context.call_on_fit_task_end(**self._given)

    def show_round(self, round_):
        """Begin and end the task of a round; return whether to stop."""
        if not self._open[-1].has_parts:
            return False
        context = self._inside("fitting", round_.total, "round", 0)
        metadata = {"loss": round_.loss, "change": round_.change}
        return context.call_on_fit_task_end(**self._given, metadata=metadata)

    def finish(self):
        """End all tasks."""
        self.end(self._open[0])

    def _inside(self, group, total, name, most):
        """Begin a task in a group of the last open task."""
        task = self._open[-1]
        # scikit-learn limits the number of tasks of a group to what was stated
        if task.name != group or task.room == 0:
            self._close_group(task)
            task.group = task.context.subcontext(group, max_subtasks=total)
            # -1 never counts down to 0: the group is open-ended
            task.name, task.room = group, -1 if total is None else total
            task.group.call_on_fit_task_begin(**self._given)
        task.room -= 1
        context = task.group.subcontext(name, max_subtasks=most)
        context.call_on_fit_task_begin(**self._given)
        return context

    def _close_group(self, task):
        if task.group is not None:
            task.group.call_on_fit_task_end(**self._given)
        task.group = task.name = None


# ----------------------------------------
# Training in rounds: choice of their number, and translation of failures.


@contextmanager
def failures_named(remedy):
    """Convert failures of a training into errors that name a remedy."""
    try:
        yield
    except Diverged as error:
        message = f"Training diverged. {remedy} ({error})"
        raise DivergenceError(message) from error
    except torch.linalg.LinAlgError as error:
        raise ValueError(
            "A covariance matrix is not positive definite: columns repeat others. Drop "
            "them."
        ) from error


class Training(NamedTuple):
    """What a training reports."""

    losses: list  # of all rounds
    gains: list  # of the rounds without the held-out cells: scores of these cells
    best_iter: int  # the number of rounds that they choose


def train_in_rounds(most, share, while_better, on_all, on_round, *, warns=True):
    """Train while held-out cells are predicted better, then briefly on all cells.

    `while_better` trains without the held-out cells: it takes a function to call after
    each round with its number, loss and gain, and returns the number of rounds that the
    gains choose.  `on_all` trains on all cells: it takes the numbers of rounds and of
    cooling rounds and a function to call after each round, and returns the losses.  If
    `share` is 0, `most` rounds on all cells come first.
    """

    def record(n_round, loss, gain):
        gains.append(gain)
        losses.append(loss)
        return on_round(n_round, loss, gain)

    def report(n_round, loss):
        tell("cooling round", n_round - n_rounds)
        # no callback stops the rounds in which the learning rate falls
        return n_round <= n_rounds and on_round(n_round, loss, np.nan)

    n_rounds = best = most
    losses, gains = [], []
    if share:
        # no further rounds on all cells but those in which the learning rate falls
        best, n_rounds = while_better(record), 0
    losses += on_all(n_rounds, min(COOLING, best), report)
    if warns and share and best == most > 0:
        warn_user(
            f"Held-out cells were still predicted better after max_iter={most} rounds. "
            "Raise max_iter.",
            ConvergenceWarning,
        )
    return Training(losses, gains, best)
