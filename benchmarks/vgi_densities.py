"""Is VGIImputer ahead of a mixture where rows are curves, waves or images?

    python benchmarks/vgi_densities.py --results FILE [--only-report] [--quick]
        [--only table=spirals method=VGIImputer]
        [--output doc/benchmarks/vgi_densities.md]

Cells of training rows and of unseen rows are hidden completely at random.  Each imputer
learns from the training rows, fills the unseen ones and draws their cells.  Each result
is a line of FILE.  Those that are there are not computed again, and the report is
written from FILE alone.  `--quick` runs a small part and needs no FILE.
"""

import time
from functools import cache

import numpy as np
from _data import blocks, load, load_array
from _report import commits, grid, specs
from _runner import main_of
from sklearn.datasets import load_digits, make_circles, make_moons, make_swiss_roll

from skvnce import LAIRImputer, MixtureImputer, VariationalAutoencoder, VGIImputer
from skvnce.metrics import crps, energy_distance, imputation_rmse
from skvnce.options import LAIR, VGI, IncompleteDensity

N_TRAIN, N_TEST, N_DRAWS, N_DISTANCES = 1200, 300, 20, 5
WIDTH = 10  # columns of lifted points
METHODS = {
    "MixtureImputer": lambda: MixtureImputer(random_state=0),
    "LAIRImputer": lambda: LAIRImputer(random_state=0),
    "MIWAE": lambda: LAIRImputer(
        VariationalAutoencoder(algorithm="miwae"),
        sampler=LAIR(n_particles=0, n_replenish=256),
        n_steps=1,
        n_estimators=1,
        random_state=0,
    ),
    "VGIImputer": lambda: VGIImputer(random_state=0),
    "VGI alone": lambda: VGIImputer(
        IncompleteDensity(algorithm=VGI(start="normal")), random_state=0
    ),
    "four VGIImputers": lambda: VGIImputer(n_estimators=4, random_state=0),
}
VARIANTS = "VGI alone", "four VGIImputers"  # of which images take minutes
FEW_COLUMNS = "spirals", "roll", "moons", "circles"
SCORES = specs("vgi_densities")["scores"]


def spirals(rng):
    """Draw rows near two arms that wind around an axis."""
    n = N_TRAIN + N_TEST
    angle = np.sqrt(rng.random(n)) * 3 * np.pi
    arm = rng.choice([-1, 1], n)
    x = np.stack([arm * angle * np.cos(angle), arm * angle * np.sin(angle), angle], 1)
    return x + 0.3 * rng.normal(size=x.shape)


def lifted(points, rng, bend=0.0):
    """Map points to ten columns: linear functions, and sines where they bend."""
    z = (points - points.mean(0)) / points.std(0)
    waves = np.sin(z @ rng.normal(size=(z.shape[1], WIDTH)) + turns(rng, WIDTH))
    x = bend * waves + (1 - bend / 2) * z @ rng.normal(size=(z.shape[1], WIDTH))
    return x + 0.1 * rng.normal(size=x.shape)


def waves(rng):
    """Draw sixty columns that are sines of three latent variables, with noise."""
    z = rng.normal(size=(N_TRAIN + N_TEST, 3))
    x = np.sin(1.5 * z @ rng.normal(size=(3, 60)) + turns(rng, 60))
    return x + 0.3 * rng.normal(size=x.shape)


def turns(rng, size):
    """Draw angles."""
    return rng.uniform(0, 2 * np.pi, size)


def pixels(name, height, width):
    """Read images of the folder of tables, in blocks."""
    return blocks(load_array(name, "x").astype(np.float64), height, width)


def roll(rng):
    """Bend the roll of scikit-learn into ten columns."""
    return lifted(make_swiss_roll(1500, noise=0.3, random_state=0)[0], rng, bend=1.0)


def moons(rng):
    """Lift the moons of scikit-learn into ten columns."""
    return lifted(make_moons(1500, noise=0.08, random_state=0)[0], rng)


def circles(rng):
    """Lift the circles of scikit-learn into ten columns."""
    points, _ = make_circles(1500, noise=0.05, factor=0.5, random_state=0)
    return lifted(points, rng)


TABLES = {  # tables, and shares of hidden cells
    "spirals": (spirals, 0.3),
    "roll": (roll, 0.5),
    "moons": (moons, 0.7),
    "circles": (circles, 0.7),
    "waves": (waves, 0.5),
    "gas_turbine": (lambda rng: load("gas_turbine").to_numpy(np.float64), 0.5),
    "digits": (lambda rng: load_digits().data, 0.5),
    "frey": (lambda rng: pixels("frey_faces", 28, 20), 0.5),
    "mnist": (lambda rng: pixels("mnist", 28, 28), 0.5),
    "omniglot": (lambda rng: pixels("omniglot28", 28, 28), 0.5),
}


@cache
def problem(name):
    """Choose rows, standardise, and hide cells: the truth and what is hidden."""
    rng = np.random.default_rng(0)
    make, share = TABLES[name]
    x = make(rng)
    x = x[rng.permutation(len(x))[: N_TRAIN + N_TEST]]
    x = x[:, x[:N_TRAIN].std(0) > 0]
    x = (x - x[:N_TRAIN].mean(0)) / x[:N_TRAIN].std(0)
    hidden = rng.random(x.shape) < share
    hidden[hidden.all(1), 0] = False
    return x, hidden


@cache
def compiled():
    """Fit a small mixture once, whose time of compilation is not counted."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    MixtureImputer(random_state=0).fit(np.where(x > 1, np.nan, x))


def measured(key, options):
    """Fit an imputer, and score unseen rows."""
    compiled()
    x, hidden = problem(key["table"])
    shown = np.where(hidden, np.nan, x)
    imputer = METHODS[key["method"]]()
    clock = time.process_time()
    imputer.fit(shown[:N_TRAIN])
    fitted = time.process_time()
    filled = imputer.transform(shown[N_TRAIN:])
    draws = imputer.sample(shown[N_TRAIN:], n_draws=N_DRAWS, random_state=0)
    done = time.process_time()
    truth, where = x[N_TRAIN:], hidden[N_TRAIN:]
    distances = [energy_distance(truth, one) for one in draws[:N_DISTANCES]]
    return {
        "rmse": float(imputation_rmse(truth, filled, where)),
        "crps": float(crps(truth, draws, where)),
        "energy": float(np.mean(distances)),
        "fit": fitted - clock,
        "use": done - fitted,
        "columns": x.shape[1],
    }


def possible(key):
    """Say that images and other wide tables have no variants."""
    return key["method"] not in VARIANTS or key["table"] in FEW_COLUMNS


def tables(results):
    """Write a table of each score."""
    names = [name for name in TABLES if results.has(table=name)]
    methods = [name for name in METHODS if results.has(method=name)]
    for title, score in SCORES.items():

        def cell(method, table, score=score):
            found = results.find(method=method, table=table)
            digits = 1 if score in ("fit", "use") else 3
            return "" if found is None else f"{found[score]:.{digits}f}"

        yield f"## {title}"
        yield grid("", methods, names, cell)


def commits_by_table(results):
    """Name the commit of the package that each table was measured with."""
    found = {}
    for table in TABLES:
        if records := results.of(table=table):
            found.setdefault(commits(records), []).append(table)
    return "; ".join(f"{', '.join(names)}: {commit}" for commit, names in found.items())


CASES = {"table": TABLES, "method": METHODS}
main = main_of(globals(), {"table": ["roll"], "method": ["MixtureImputer"]})
