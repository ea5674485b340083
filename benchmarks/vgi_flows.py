"""Fit one coupling flow to incomplete rows, by VGI and by Monte Carlo EM.

    python benchmarks/vgi_flows.py [--quick] [--results FILE] [--only-report]
        [--output FILE]

Figures 10 to 12 of Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference.  All
methods train the same flow from the same initial weights and the same completed rows,
until one rule stops them (`Watch`).  They are scored by the mean log-density of
complete test rows.  Each fit is a line of FILE; fits that are there are not repeated.
`--quick` fits a simulated table of four columns for a few seconds.
"""

import time
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from _data import load, load_array
from _paper import along, medians
from _report import Texts, table
from _runner import main_of
from torch import Tensor, nn
from vgi_factor_analysis import incomplete, shared

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Sampler
from skvnce._core.random import seeded
from skvnce._core.training.rounds import Averaged
from skvnce.vgi import mcem, training
from skvnce.vgi.conditionals import ExtendedConditionals, SplineHead
from skvnce.vgi.densities import SplineFlow
from skvnce.vgi.mcem import projected_latent
from skvnce.vgi.training import epochs, from_marginals, observed_hypercube

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
    """Hide cells completely at random."""
    with seeded(seed):
        return incomplete(x, torch.rand(x.shape) >= fraction)


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
    return shared(ExtendedConditionals, d, WIDTH, HEAD, FAMILY)


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
            found = function(*arguments, **more)
            self.imputing += time.process_time() - begin
            return found

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


TEXTS = Texts("vgi_flows", globals())
TABLES = "uci_power", "gas_turbine"
FRACTIONS = 0.5, 0.833
LIMIT, QUICK_LIMIT = 120.0, 2.0  # CPU seconds
SETTINGS = training.TrainingSettings(
    n_updates=3,
    batch_size=256,
    learning_rate=3e-3,
    q_learning_rate=3e-3,
    weight_decay=1e-5,
)
MAX_NORM = 5.0  # of gradients
WARM_UP = 100, 20  # epochs of the conditionals and of the model, before VGI
LENGTHS = {20: 250, 520: 500}  # first epoch: steps of the chains of MCEM
EVERY = 50  # epochs between redraws of MCEM
ALWAYS = 10**6  # epochs; the rule stops before
PER_EPOCH = 10  # steps of chains an epoch, in figure 12
KEYS = "table", "fraction", "method"
COSTED = {"name": "miniboone", "n_rows": 512}  # of figure 12
QUICK_COSTED = {"name": "simulated", "n_rows": 64}


class TimedChains(training.Chains):
    """Chains whose moves count as drawing missing cells."""

    def __init__(self, data, x, clock):
        super().__init__(data, x)
        self.move = clock.imputes(self.move)


def by_vgi(start, clock, watch):
    """Fit by variational Gibbs inference: two warm-ups, then the main stage."""
    data, x, model = start
    chains = TimedChains(data, x, clock)
    pair = training.Pair(model, conditionals_of(data.x.shape[1]))
    sizes = {"batch_size": SETTINGS.batch_size}
    training.warm_up_conditionals(
        pair.conditionals,
        chains,
        n_epochs=WARM_UP[0],
        learning_rate=SETTINGS.q_learning_rate,
        **sizes,
    )
    training.warm_up_model(
        model,
        chains,
        n_epochs=WARM_UP[1],
        learning_rate=SETTINGS.learning_rate,
        **sizes,
    )
    training.train(
        pair,
        chains,
        SETTINGS,
        n_epochs=ALWAYS,
        batches=watch.batches(model, len(data.x), SETTINGS.batch_size),
        on_epoch=watch,
        max_norm=MAX_NORM,
    )
    return {"warm_up": sum(WARM_UP)}


def by_mcem(start, clock, watch):
    """Fit by Monte Carlo EM with PL-MCMC."""
    sampler, steps = projected_latent(start.model, n_chains=len(start.x)), []
    plan = mcem.at_intervals(LENGTHS, EVERY)

    def n_steps(epoch):
        if plan(epoch):
            steps.append(plan(epoch))
        return plan(epoch)

    on_completed(
        start,
        clock,
        watch,
        n_steps=n_steps,
        sampler=Sampler(*map(clock.imputes, sampler)),
        hypercube=observed_hypercube(start.data),
    )
    return {"steps": steps}


def on_completed(start, clock, watch, n_steps=lambda epoch: 0, **more):
    """Fit to completed rows."""
    mcem.train(
        start.model,
        start.data,
        start.x,
        SETTINGS,
        n_epochs=ALWAYS,
        n_steps=n_steps,
        batches=watch.batches(start.model, len(start.data.x), SETTINGS.batch_size),
        on_epoch=watch,
        max_norm=MAX_NORM,
        **more,
    )
    return {}


FITS = {"VGI": by_vgi, "MCEM": by_mcem, "complete": on_completed}


def fit(table, fraction, method, mask, limit):
    """Fit the flow by a method; return the record."""
    start, clock = start_of(table, fraction, mask), Clock()
    watch = Watch(table_of(table), clock, limit)
    with seeded(mask + 2):
        more = FITS[method](start, clock, watch)
    before = more.pop("warm_up", 0)  # epochs
    curve = [(at, before + epoch, *scores) for at, epoch, *scores in watch.curve]
    return {
        "curve": [[round(value, 3) for value in look] for look in curve],
        "score": round(watch.best[3], 4),
        "error": round(float(watch.rows.std() / len(watch.rows) ** 0.5), 4),
        "ended": watch.ended,
        "imputing": round(clock.imputing / clock.now(), 3),
        "n_rows": len(start.data.x),
        **more,
    }


def measured(key, options):
    """Fit, or measure the costs of figure 12."""
    if key.get("kind") == "cost":
        costed = QUICK_COSTED if options.quick else COSTED
        seconds = {kind: np.round(v, 4).tolist() for kind, v in costs(**costed).items()}
        return {"seconds": seconds} | costed
    return fit(**key, limit=options.limit) | {"limit": options.limit}


def costs(name, n_rows, seed=0):
    """Time an epoch of VGI and of MCEM, with either kind of flow (figure 12)."""
    data = hidden(table_of(name).train[:n_rows], 0.5, seed)
    found = {}
    for kind, passes in (("coupling", 2), ("autoregressive", None)):
        with seeded(seed):
            model = flow_of(name, n_passes=passes)
            pair = training.Pair(model, conditionals_of(data.x.shape[1]))
            chains = training.Chains(data, training.from_marginals(data, 1))
            x, sampler = chains.x.clone(), projected_latent(model)
            once = {"n_epochs": 1}
            plain = partial(mcem.train, model, data, x, SETTINGS, **once)
            found[kind] = [
                seconds_of(partial(training.train, pair, chains, SETTINGS, **once)),
                seconds_of(partial(plain, n_steps=lambda epoch: 0)),
                seconds_of(partial(mcem.reimpute, sampler, data, x, 1)),
            ]
    return found


def reached(axis):
    """Find the test score at a time (axis 0) or an epoch (axis 1), or at the end."""

    def found(record, point):
        before = [look for look in record["curve"] if look[axis] <= point]
        over = point > record["curve"][-1][axis]
        return [record["score"] if over else before[-1][3]] if before else []

    return found


def cost_table(seconds):
    """Set the seconds of an epoch in a table (figure 12)."""
    found = {
        kind: np.array([one, plain + PER_EPOCH * step])
        for kind, (one, plain, step) in seconds.items()
    }
    found["ratio"] = found["autoregressive"] / found["coupling"]
    rows = [[kind, *(f"{v:.2f}" for v in row)] for kind, row in found.items()]
    return table(["flow", "VGI", f"MCEM, {PER_EPOCH} steps of chains"], rows)


def values(results, options):
    """Make medians of scores, at the end and along the training, and costs."""
    # results of earlier runs have a normal distribution, by EM, too
    scored = [record for record in results.records if "score" in record]
    fits = [record for record in scored if "curve" in record]
    epochs = 50, 150, 200, 300, 400, 600, 800
    cost = results.find(kind="cost")
    return {
        "ends": medians(scored, KEYS, {"score": "score (figure 10)"}),
        "by_time": along(fits, KEYS, (10, 20, 40, 80, 120), reached(0), " s"),
        "by_epoch": along(fits, KEYS, epochs, reached(1), " epochs"),
        "costs": TEXTS("costs", table=cost_table(cost["seconds"])) if cost else "",
    }


def cells(options):
    """List the fits, and the complete rows, once."""
    tables, masks = (["simulated"], 1) if options.quick else (TABLES, 3)
    fractions = FRACTIONS[: 1 if options.quick else None]
    ways = product(fractions, range(masks), tables, ("VGI", "MCEM"))
    for values in [*ways, *product([0.0], [0], tables, ["complete"])]:
        yield dict(zip(("fraction", "mask", "table", "method"), values, strict=True))
    yield {"kind": "cost"}


main = main_of(globals(), {"limit": QUICK_LIMIT}, limit=LIMIT)
