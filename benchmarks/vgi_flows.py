"""Fit one coupling flow to incomplete rows, by VGI and by Monte Carlo EM.

    python benchmarks/vgi_flows.py [--quick] [--results FILE] [--only-report]
        [--tables uci_power gas_turbine] [--fractions 0.5] [--masks 3]
        [--methods VGI MCEM] [--output doc/benchmarks/vgi_flows.md]

Figures 10 to 12 of Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference.  All
methods train the same flow from the same initial weights and the same completed rows,
until one rule stops them (`_flows.Watch`).  They are scored by the mean log-density of
complete test rows.  Each fit is a line of FILE; fits that are there are not repeated.
`--quick` fits a simulated table of four columns for a few seconds.
"""

import argparse
import sys
from functools import partial
from itertools import product

import numpy as np
import torch
from _flows import (
    Clock,
    Watch,
    conditionals_of,
    flow_of,
    hidden,
    seconds_of,
    start_of,
    table_of,
)
from _flows_report import report
from _report import Texts, commit, publish
from _results import Results
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.vgi import mcem, training
from skvnce.samplers.base import Sampler
from skvnce.samplers.projected_latent import projected_latent
from skvnce.samplers.variational_gibbs import observed_hypercube

TEXTS = Texts("vgi_flows", globals())

TABLES = "uci_power", "gas_turbine"
FRACTIONS = 1 / 2, 5 / 6
METHODS = "VGI", "MCEM", "IterativeImputer"
MASKS = 3
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
STACKED, ROUNDS = 5, 5  # of IterativeImputer
ALWAYS = 10**6  # epochs; the rule stops before
COSTED = {"name": "miniboone", "n_rows": 512}  # of figure 12
QUICK_COSTED = {"name": "simulated", "n_rows": 64}
CHAINS = {"name": "uci_power", "steps": [250, 500], "limit": 25.0}
QUICK_CHAINS = {"name": "simulated", "steps": [5, 10], "limit": 1.0}


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
        watch,
        n_steps=n_steps,
        sampler=Sampler(*map(clock.imputes, sampler)),
        hypercube=observed_hypercube(start.data),
    )
    return {"steps": steps}


def on_completed(start, watch, n_steps=lambda epoch: 0, **more):
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


def on_draws(start, clock, watch):
    """Fit to rows completed by several draws of chained regressions."""

    @clock.imputes
    def draw(seed):
        imputer = IterativeImputer(
            sample_posterior=True, max_iter=ROUNDS, tol=0, random_state=seed
        )
        return torch.tensor(imputer.fit_transform(start.data.to_array())).float()

    x = torch.stack([draw(seed) for seed in range(STACKED)])
    return on_completed(start._replace(x=x), watch)


def on_complete_rows(start, clock, watch):
    """Fit to rows without missing cells."""
    return on_completed(start, watch)


FITS = {
    "VGI": by_vgi,
    "MCEM": by_mcem,
    "IterativeImputer": on_draws,
    "complete": on_complete_rows,
}


def fit(name, fraction, method, mask, limit):
    """Fit the flow by a method; return the record."""
    start, clock = start_of(name, fraction, mask), Clock()
    watch = Watch(table_of(name), clock, limit)
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


def normal_fit(name, fraction, mask):
    """Fit a normal distribution by EM; return the record."""
    data, _, _ = start_of(name, fraction, mask)
    d = data.x.shape[1]
    first = em.Normal(torch.zeros(d).double(), torch.eye(d).double())
    fitted = em.fit_normal(
        Incomplete(data.x.double(), data.observed),
        torch.ones(len(data.x)).double(),
        1.0,
        first,
        max_iter=300,
        tol=1e-4,
    )
    test = table_of(name).test.double()
    rows = em.log_prob(fitted.normal, Incomplete(test, torch.ones_like(test).bool()))
    return {"score": round(float(rows.mean()), 4)}


def jobs(options):
    """List the fits: the main comparison, other methods, and complete rows, once."""
    places = list(product(options.fractions, range(options.masks), options.tables))
    main = {"normal", "VGI", "MCEM"}
    methods = "normal", *options.methods
    for chosen in (main, {*methods} - main):
        for fraction, mask, name in places:
            for method in (m for m in methods if m in chosen):
                yield name, round(fraction, 3), method, mask
    for name in options.tables:
        yield name, 0.0, "complete", 0


def run(results, options):
    """Do the fits that are not done."""
    made_at = commit()
    for name, fraction, method, mask in jobs(options):
        key = {"table": name, "fraction": fraction, "method": method, "mask": mask}
        if results.find(**key):
            continue
        if method == "normal":
            record = normal_fit(name, fraction, mask)
        else:
            record = fit(name, fraction, method, mask, options.limit)
        results.add(key | record | {"limit": options.limit, "commit": made_at})
        notes = {k: record.get(k) for k in ("score", "ended", "imputing", "steps")}
        seconds = record["curve"][-1][:2] if "curve" in record else ()
        print(*key.values(), *seconds, notes, file=sys.stderr, flush=True)


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


def add_costs(results, costed):
    """Measure the costs of figure 12, unless they are among the results."""
    if not results.find(kind="cost"):
        seconds = {key: np.round(v, 4).tolist() for key, v in costs(**costed).items()}
        results.add({"kind": "cost", "seconds": seconds, "commit": commit()} | costed)


@torch.no_grad()
def chain_looks(model, data, steps):
    """Measure how far chains are from the observed cells that they are to reach.

    Yields the step, the mean acceptance of the last 100 steps, and the median over rows
    of the largest distance of an observed cell, in standard deviations.
    """
    sampler, taken = projected_latent(model), []
    state = sampler.init(data)
    for step in range(1, max(steps) + 1):
        state, info = sampler.step(state, data)
        taken.append(float(info.acceptance.mean()))
        if step in steps:
            apart = (model.from_base(state.u) - data.x).abs() * data.observed
            yield [step, np.mean(taken[-100:]), float(apart.amax(1).median())]


def add_chains(results, name, steps, limit, seed=100):
    """Look at chains of a flow that was fitted to complete rows, if not done."""
    if results.find(kind="chains"):
        return
    table, start, clock = table_of(name), start_of(name, 0.0, seed), Clock()
    watch = Watch(table, clock, limit)
    with seeded(seed + 2):
        on_complete_rows(start, clock, watch)
        data = hidden(table.validation[:300], 0.5, seed)
        (model,) = watch.averaged.modules
        looks = [np.round(look, 4).tolist() for look in chain_looks(model, data, steps)]
    key = {"kind": "chains", "table": name, "n_rows": len(data.x), "after": limit}
    results.add(key | {"looks": looks, "commit": commit()})


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a simulated table")
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--masks", type=int, default=MASKS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds a fit")
    parser.add_argument("--results", help="file of JSON lines, which is continued")
    parser.add_argument("--only-report", action="store_true", help="do no fits")
    parser.add_argument("--output")
    options = parser.parse_args(arguments)
    if options.quick:
        options.tables, options.fractions, options.masks = ["simulated"], [0.5], 1
        options.limit = QUICK_LIMIT
    return options


def main():
    """Run the study and report."""
    options = options_of()
    torch.set_num_threads(1)
    results = Results(options.results)
    if not options.only_report:
        run(results, options)
        add_costs(results, QUICK_COSTED if options.quick else COSTED)
        add_chains(results, **(QUICK_CHAINS if options.quick else CHAINS))
    parts = report(results.records, sys.modules[__name__])
    publish(parts if options.quick else [*parts, *FOUND], options.output)


FOUND = (
    "## What was found",
    TEXTS("found"),
    TEXTS("found 2"),
    TEXTS("found 3"),
    TEXTS("found 4"),
)


if __name__ == "__main__":
    main()
