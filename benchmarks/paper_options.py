"""What the settings of the papers give, in place of those of this package.

    python benchmarks/paper_options.py [--results FILE] [--only-report] [--quick]
        [--tables diabetes concrete] [--seeds 1] [--output FILE.md]

Tables and masks are those of `imputation_tables` (MCAR, half of the cells), scores
those of the hidden cells of rows that were not learned from.  Samplers of LAIRImputer
draw from the same autoencoder, which is fitted once; every setting of variational Gibbs
inference is a fit.  Each result is a line of FILE; those that are there are not
computed again.
"""

import time
import warnings

import numpy as np
from _report import Results, Texts, made_by, publish, table
from _runner import Some, options_of
from imputation_tables import score_points, split
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from skvnce import LAIRImputer, VariationalAutoencoder, VGIImputer
from skvnce.metrics import coverage, crps
from skvnce.options import ACMWG, LAIR, MWG, VGI, Adam, IncompleteDensity

TEXTS = Texts("paper_options", globals())

DRAWS = 50
TABLES = ["diabetes", "concrete"]
SAMPLERS = {  # name: (sampler, iterations)
    "LAIR, K=4, R=20 from the encoder, 20 iterations (default)": (LAIR(), 20),
    "R=20 from the prior": (LAIR(replenish="prior"), 20),
    "K=4, R=1 from the prior (paper)": (LAIR(4, 1, "prior"), 20),
    "the same, 500 iterations": (LAIR(4, 1, "prior"), 500),
    "K=1, R=23 from the encoder": (LAIR(1, 23), 20),
    "K=24, R=0": (LAIR(24, 0), 20),
    "AC-MWG, epsilon 0.05, 20 steps": (ACMWG(), 20),
    "MWG, 20 steps": (MWG(), 20),
    "pseudo-Gibbs, 20 steps": ("pseudo-gibbs", 20),
}
VGIS = {  # name: fields of IncompleteDensity
    "VGI (default)": {},
    "start: observed cells of columns, f0 (paper)": {
        "algorithm": VGI(start="marginals")
    },
    "f0 and 20 passes of regressions, algorithm 2 (paper)": {
        "algorithm": VGI(start="marginals", n_warm_up=20)
    },
    "chains may leave the observed range (paper)": {
        "algorithm": VGI(chain_range="unbounded")
    },
    "extended conditionals": {"algorithm": VGI(network="extended")},
    "independent conditionals": {"algorithm": VGI(network="independent")},
    "mixture conditionals": {"algorithm": VGI("mixture")},
    "spline conditionals (paper, flows)": {"algorithm": VGI("spline")},
    "bounded conditionals": {"algorithm": VGI("bounded")},
    "G = 3": {"algorithm": VGI(n_updates=3)},
    "M = 3": {"algorithm": VGI(n_selected=3)},
    "K = 1": {"n_training_draws": 1},
    "coupling flow (paper)": {"model": "coupling-flow"},
}
QUICK = {"max_iter": 1, "solver": Adam(validation_fraction=0), "n_training_draws": 1}


def scores(imputer, data):
    """Fill and draw the rows that were not learned from."""
    seconds = time.process_time()
    found = score_points(data, imputer.transform(data.masked[1]))
    draws = imputer.sample(data.masked[1], DRAWS, random_state=0, as_array=True)
    cells = data.full[1], draws, data.hidden[1]
    found |= {"crps": crps(*cells), "coverage": coverage(*cells)}
    return found | {"seconds": time.process_time() - seconds}


def of_samplers(data, seed, done, *, quick):
    """Yield the scores of all samplers on one autoencoder."""
    names = [name for name in SAMPLERS if name not in done][: 2 if quick else None]
    if not names:
        return
    part = QUICK if quick else {}
    part = {key: value for key, value in part.items() if key != "n_training_draws"}
    model = VariationalAutoencoder(random_state=seed, **part).fit(data.masked[0])
    for name in names:
        sampler, n_steps = SAMPLERS[name]
        options = {"sampler": sampler, "n_steps": 2 if quick else n_steps}
        imputer = LAIRImputer(
            FrozenEstimator(model), n_draws=DRAWS, on_misfit="ignore", **options
        )
        yield name, scores(imputer.fit(data.masked[0]), data)


def of_vgi(data, seed, done, *, quick):
    """Yield the scores of all settings of variational Gibbs inference."""
    for name in [*VGIS][: 1 if quick else None]:
        if name in done:
            continue
        fields = {"model": "flow"} | VGIS[name]
        model = IncompleteDensity(**(QUICK if quick else {}) | fields)
        seconds = time.process_time()
        options = {"n_steps": 1} if quick else {}
        options |= {"n_draws": 60, "on_misfit": "ignore", "random_state": seed}
        imputer = VGIImputer(model, **options).fit(data.masked[0])
        fitted = {"fit": time.process_time() - seconds}
        yield name, scores(imputer, data) | fitted


KINDS = {"samplers of LAIRImputer": of_samplers, "VGI, flow": of_vgi}


def run(options, results):
    """Compute what is not in the results, and add it."""
    for seed in range(options.seeds):
        for name in options.tables:
            data = split(name, "MCAR 50", seed)
            for kind, function in KINDS.items():
                key = {"table": name, "seed": seed, "kind": kind}
                done = {line["setting"] for line in results.of(**key)}
                for setting, found in function(data, seed, done, quick=options.quick):
                    line = key | {"setting": setting} | found
                    print(*line.values(), flush=True)
                    results.add(line)


def ratio(lines, setting, first, score):
    """Compare a setting with the first one, on equal tables and seeds."""
    values = {
        name: {
            (line["table"], line["seed"]): line[score]
            for line in lines
            if line["setting"] == name
        }
        for name in (setting, first)
    }
    both = sorted(values[setting].keys() & values[first].keys())
    if not both:
        return "-"
    logs = [np.log(values[setting][one] / values[first][one]) for one in both]
    found = f"{np.exp(np.mean(logs)):.3f}"
    if len(logs) > 1:
        found += f" ± {np.std(logs, ddof=1) / np.sqrt(len(logs)):.3f}"
    return found


def report(results):
    """Write the tables of the page."""
    lines = results.records
    where = sorted({(line["table"], line["seed"]) for line in lines})
    parts = [
        "# The settings of the papers",
        made_by("paper_options.py", f"Code of commit {results.commits()}."),
        __doc__.split("\n\n", 2)[2].split("\n\n")[0],
        "Tables, with seeds: " + ", ".join(f"{name} ({seed})" for name, seed in where),
        TEXTS("RMSE and CRPS are ratios"),
    ]
    for kind, settings in zip(KINDS, (SAMPLERS, VGIS), strict=True):
        some = [line for line in lines if line["kind"] == kind]
        first, rows = next(iter(settings)), []
        for setting in settings:
            mine = [line for line in some if line["setting"] == setting]
            if not mine:
                continue
            seconds = [line["seconds"] + line.get("fit", 0) for line in mine]
            rows.append(
                [
                    setting,
                    *(ratio(some, setting, first, s) for s in ("rmse", "crps")),
                    f"{np.mean([line['coverage'] for line in mine]):.3f}",
                    f"{np.mean(seconds):.0f}",
                ]
            )
        header = ["setting", "RMSE", "CRPS", "coverage", "seconds"]
        parts += [f"## {kind}", table(header, rows)]
    return parts


def main():
    """Measure and report."""
    options = options_of(
        __doc__, {}, results=None, tables=Some(TABLES), seeds=1, only_report=False
    )
    warnings.simplefilter("ignore")
    results = Results(options.results)
    if not options.only_report:
        with threadpool_limits(1):
            run(options, results)
    publish(report(results), options.output)


if __name__ == "__main__":
    main()
