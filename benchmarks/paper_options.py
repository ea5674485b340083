"""What the settings of the papers give, in place of those of this package.

    python benchmarks/paper_options.py [--results FILE] [--only-report] [--quick]
        [--only table=diabetes] [--output FILE.md]

Tables and masks are those of `imputation_tables` (MCAR, half of the cells), scores
those of the hidden cells of rows that were not learned from.  Samplers of LAIRImputer
draw from the same autoencoder, which is fitted once; every setting of variational Gibbs
inference is a fit.  Each result is a line of FILE; those that are there are not
computed again.
"""

import time
from functools import lru_cache

import numpy as np
from _report import Texts, average, by, table
from _runner import main_of
from imputation_tables import score_points, split
from sklearn.frozen import FrozenEstimator

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


def of(*conditionals, **options):
    """Make the field of a setting of the algorithm."""
    return {"algorithm": VGI(*conditionals, **options)}


VGIS = {  # name: fields of IncompleteDensity
    "VGI (default)": {},
    "start: observed cells of columns, f0 (paper)": of(start="marginals"),
    "f0 and 20 passes of regressions, algorithm 2 (paper)": of(
        start="marginals", n_warm_up=20
    ),
    "chains may leave the observed range (paper)": of(chain_range="unbounded"),
    "extended conditionals": of(network="extended"),
    "independent conditionals": of(network="independent"),
    "mixture conditionals": of("mixture"),
    "spline conditionals (paper, flows)": of("spline"),
    "bounded conditionals": of("bounded"),
    "G = 3": of(n_updates=3),
    "M = 3": of(n_selected=3),
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


@lru_cache(1)
def autoencoder(name, seed, quick):
    """Fit the autoencoder of all samplers."""
    part = {key: QUICK[key] for key in ("max_iter", "solver")} if quick else {}
    model = VariationalAutoencoder(random_state=seed, **part)
    return model.fit(split(name, "MCAR 50", seed).masked[0])


def of_sampler(setting, data, key, quick):
    """Score a sampler on the autoencoder."""
    sampler, n_steps = SAMPLERS[setting]
    options = {"sampler": sampler, "n_steps": 2 if quick else n_steps}
    model = FrozenEstimator(autoencoder(key["table"], key["seed"], quick))
    imputer = LAIRImputer(model, n_draws=DRAWS, on_misfit="ignore", **options)
    return scores(imputer.fit(data.masked[0]), data)


def of_vgi(setting, data, seed, quick):
    """Score a setting of variational Gibbs inference."""
    fields = {"model": "flow"} | VGIS[setting]
    model = IncompleteDensity(**(QUICK if quick else {}) | fields)
    options = {"n_steps": 1} if quick else {}
    options |= {"n_draws": 60, "on_misfit": "ignore", "random_state": seed}
    seconds = time.process_time()
    imputer = VGIImputer(model, **options).fit(data.masked[0])
    fitted = {"fit": time.process_time() - seconds}
    return scores(imputer, data) | fitted


KINDS = {"samplers of LAIRImputer": SAMPLERS, "VGI, flow": VGIS}


def measured(key, options):
    """Fit and score one setting."""
    data, setting = split(key["table"], "MCAR 50", key["seed"]), key["setting"]
    if setting in SAMPLERS:
        return of_sampler(setting, data, key, options.quick)
    return of_vgi(setting, data, key["seed"], options.quick)


def ratio(first, mine, score):
    """Compare a setting with the first one, on equal tables and seeds."""
    first, mine = (
        {(r["table"], r["seed"]): r[score] for r in x} for x in (first, mine)
    )
    logs = [
        np.log(mine[one] / first[one]) for one in sorted(mine.keys() & first.keys())
    ]
    if not logs:
        return "-"
    error = (
        f" ± {np.std(logs, ddof=1) / np.sqrt(len(logs)):.3f}" if len(logs) > 1 else ""
    )
    return f"{np.exp(np.mean(logs)):.3f}{error}"


def where(results):
    """Name the tables with their seeds."""
    pairs = sorted(by(results.records, "table", "seed"))
    return ", ".join(f"{name} ({seed})" for name, seed in pairs)


def sections(results):
    """Write a table for each kind of settings."""
    parts = []
    for kind, settings in KINDS.items():
        records, rows = {s: results.of(kind=kind, setting=s) for s in settings}, []
        first = next(iter(records.values()))
        for setting, mine in records.items():
            if mine:
                ratios = [ratio(first, mine, score) for score in ("rmse", "crps")]
                seconds = np.mean([r["seconds"] + r.get("fit", 0) for r in mine])
                row = [setting, *ratios, average(mine, "coverage"), f"{seconds:.0f}"]
                rows.append(row)
        header = ["setting", "RMSE", "CRPS", "coverage", "seconds"]
        parts += [f"## {kind}", table(header, rows)]
    return parts


def possible(key):
    """Say whether a setting is of a kind."""
    return key["setting"] in KINDS[key["kind"]]


SETTINGS = [*SAMPLERS, *VGIS]
CASES = {"seed": [0], "table": TABLES, "kind": KINDS, "setting": SETTINGS}
FEW = [*SETTINGS[:2], SETTINGS[len(SAMPLERS)]]
main = main_of(globals(), {"table": TABLES[:1], "setting": FEW})
