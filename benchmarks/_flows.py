"""Parts of the study of flows: tables, the flow and its start, time and averages."""

import time
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from _data import load, load_array
from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.vgi.training import epochs, from_marginals
from skvnce.models.spline_flow import SplineFlow
from skvnce.training.averaging import Averaged
from skvnce.variational.gibbs import ExtendedConditionals
from skvnce.variational.heads import SplineHead

N_TRAIN, N_VALIDATION, N_TEST = 1000, 500, 1500
NEAR = 0.98  # correlation of two columns, of which one is dropped
FLOW = {"n_steps": 3, "n_bins": 8, "hidden": (64, 64)}
BINS = {"miniboone": 4}  # as in the paper
FAMILY, WIDTH, HEAD = SplineHead, 64, (32,)  # of the conditionals


class Table(NamedTuple):
    """Complete rows, standardised by the training rows."""

    train: Tensor
    validation: Tensor
    test: Tensor


def dequantised(x, rng):
    """Add uniform noise as wide as the smallest step between a column's values."""
    steps = [np.diff(np.unique(column)).min() for column in x.T]
    return x + rng.uniform(size=x.shape) * steps


def without_duplicates(x):
    """Drop constant columns, and the first of each pair of nearly equal columns."""
    x = x[:, x.std(0) > 0]
    while True:
        correlations = np.triu(np.abs(np.corrcoef(x.T)), 1)
        if correlations.max() <= NEAR:
            return x
        first, _ = np.unravel_index(correlations.argmax(), correlations.shape)
        x = np.delete(x, first, 1)


def simulated(n, rng):
    """Draw rows along two parabolas."""
    u = rng.normal(size=(n, 4))
    v = u[:, 2:] * 0.3 + u[:, :2] ** 2 * [0.5, -0.5]
    return np.concatenate([u[:, :2] + v.sum(1, keepdims=True) / 4, v], 1)


@cache
def table_of(name):
    """Load a table and split its rows at random."""
    rng = np.random.default_rng(0)
    if name == "simulated":
        x = simulated(N_TRAIN + N_VALIDATION + N_TEST, rng)
    elif name == "miniboone":
        x = without_duplicates(rng.permutation(load_array(name, "train").astype(float)))
    else:
        frame = load(name).select_dtypes("number").dropna()
        frame = frame.drop(columns="minute_of_day", errors="ignore")
        x = dequantised(frame.to_numpy(float), rng)
        x = without_duplicates(rng.permutation(x))
    n_train = min(N_TRAIN, 200) if name == "simulated" else N_TRAIN
    train, validation = x[:n_train], x[N_TRAIN:][:N_VALIDATION]
    test = x[N_TRAIN + N_VALIDATION :][:N_TEST]
    mean, std = train.mean(0), train.std(0)
    return Table(
        *(torch.tensor((x - mean) / std).float() for x in (train, validation, test))
    )


def hidden(x, fraction, seed):
    """Hide cells completely at random; drop rows without an observed cell."""
    with seeded(seed):
        observed = torch.rand(x.shape) >= fraction
    kept = observed.any(1)
    return Incomplete(x.where(observed, 0.0)[kept], observed[kept])


class Start(NamedTuple):
    """What every method starts from: incomplete rows, completions and the flow."""

    data: Incomplete
    x: Tensor
    model: nn.Module


def start_of(name, fraction, seed):
    """Make the start of a fit; it depends on the table, the fraction and the mask."""
    data = hidden(table_of(name).train, fraction, seed)
    with seeded(seed + 1):
        x = from_marginals(data, 1)
        return Start(data, x, flow_of(name))


def flow_of(name, **settings):
    """Make the coupling flow, which starts at N(0, I)."""
    d = table_of(name).train.shape[1]
    settings = {**FLOW, "n_bins": BINS.get(name, FLOW["n_bins"]), **settings}
    return SplineFlow(torch.zeros(d), torch.eye(d), **settings)


def conditionals_of(d):
    """Make the conditionals of VGI, with one body for all columns."""
    body = nn.Sequential(
        nn.Linear(d, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU()
    )
    return ExtendedConditionals(d, FAMILY(), body, WIDTH, HEAD)


class Clock:
    """CPU seconds of a fit, and those of them that drew missing cells."""

    def __init__(self):
        self.paused, self.imputing = 0.0, 0.0
        self.begin = time.process_time()

    def now(self):
        """Return the seconds since the start, without pauses."""
        return time.process_time() - self.begin - self.paused

    @contextmanager
    def pause(self):
        """Do not count what is done inside."""
        begin = time.process_time()
        yield
        self.paused += time.process_time() - begin

    def imputes(self, function):
        """Let a function count as drawing missing cells."""

        def timed(*arguments, **more):
            begin = time.process_time()
            try:
                return function(*arguments, **more)
            finally:
                self.imputing += time.process_time() - begin

        return timed


class Watch:
    """Scores the averaged flow during training, and stops by one rule.

    The averages are those of the parameters over about the last 200 steps.  They are
    evaluated on complete validation and test rows, at times that are 4 % apart.  A fit
    ends when the validation score has not risen by `RISE` for a third of the elapsed
    time, and for at least `PATIENCE` seconds, or after `limit` seconds.  The averages
    with the best validation score are kept.

    Parameters
    ----------
    table : Table
    clock : Clock
    limit : float
        CPU seconds.
    """

    RISE, PATIENCE, SHARE, APART = 0.01, 20.0, 1 / 3, 0.04

    def __init__(self, table, clock, limit):
        self.table, self.clock, self.limit = table, clock, limit
        self.averaged = None
        self.curve, self.rows, self.best, self.ended = [], None, None, None

    def batches(self, model, n, batch_size):
        """Make batches of n rows, after each of which the averages are updated."""
        self.averaged, make = Averaged([model]), epochs(n, batch_size)

        def batches():
            for rows in make():
                yield rows
                self.averaged.update()

        return batches

    def __call__(self, epoch, loss):
        """Look at an epoch; return whether to stop."""
        now = self.clock.now()
        due = not self.curve or now > self.curve[-1][0] * (1 + self.APART) + 0.2
        if not due and now < self.limit:
            return False
        with self.clock.pause():
            self.look(epoch, now)
        if now >= self.limit:
            self.ended = "limit"
        elif now - self.best[0] >= max(self.PATIENCE, now * self.SHARE):
            self.ended = "rule"
        return self.ended is not None

    @torch.no_grad()
    def look(self, epoch, now):
        """Score the averages, and keep the scores of the test rows at the best."""
        (model,) = self.averaged.modules
        score = float(model.log_prob(self.table.validation).mean())
        rows = model.log_prob(self.table.test).double()
        self.curve.append((now, epoch, score, float(rows.mean())))
        if self.best is None or score > self.best[2] + self.RISE:
            self.best, self.rows = self.curve[-1], rows


def seconds_of(action):
    """Measure the CPU seconds of an action, done a second time."""
    action()
    begin = time.process_time()
    action()
    return time.process_time() - begin
