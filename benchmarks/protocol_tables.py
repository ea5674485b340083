"""Tables and masks of two published protocols, for `protocols.py`.

Protocol A draws its masks as its authors do, by torch; tables from the same source in
the same order of rows then have the same hidden cells.
"""

from functools import cache, lru_cache

import numpy as np
import pandas as pd
import torch
from _cases import Case, intercepts
from _data import bundled, load
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.model_selection import train_test_split

from skvnce import metrics

IMPUTATIONS = 5  # of protocol A
ENOUGH = 20  # draws for intervals of 90 %
MANY = 2000  # rows: of larger tables some, or none, are compared as samples


def scaled(x, full, nominal):
    """Scale tables (..., d) by the true table, half of a dummy column a level."""
    counts = {j: int(full[:, j].max()) + 1 for j in nominal}
    low, span = full.min(0), np.ptp(full, axis=0)
    few = [j for j in nominal if counts[j] > 2]
    low[few], span[few] = 0, 1
    found = dummies((x - low) / np.where(span > 0, span, 1), few, counts)
    widths = [counts[j] if j in few else 1 for j in range(full.shape[1])]
    halves = [0.5 if j in few else 1.0 for j in range(full.shape[1])]
    return found * np.repeat(halves, widths)


def row_errors(tables, full, nominal):
    """Return the L1 error of each row of completed tables (m, n, d)."""
    truth = scaled(full, full, nominal)
    return np.abs(scaled(tables, full, nominal) - truth).sum(-1)


def min_mae(tables, full, hidden, nominal=()):
    """Sum the smallest error of each row, over the number of hidden cells."""
    return float(row_errors(tables, full, nominal).min(0).sum() / hidden.sum())


def avg_mae(tables, full, hidden, nominal=()):
    """Average the errors of the tables, over the number of hidden cells."""
    return float(row_errors(tables, full, nominal).sum(1).mean() / hidden.sum())


def wasserstein(first, second):
    """Compute the 1-Wasserstein distance, L1, of two samples of the same size."""
    cost = cdist(first, second, "cityblock")
    return float(cost[linear_sum_assignment(cost)].mean())


def score_a(case, answer):
    """Score the rows to learn from; columns of categories are complete."""
    (full,), (hidden,), nominal = case.full, case.hidden, case.nominal
    points = None if answer.points is None else answer.points[0]
    draws = None if answer.draws is None else answer.draws[0]
    five = points[None] if draws is None else draws[:IMPUTATIONS]
    ones = five if points is None else points[None]
    best = draws.mean(0) if points is None else points
    span = np.ptp(full, axis=0)
    scale = np.where(span > 0, span, 1)
    found = {
        "min_mae": min_mae(five, full, hidden, nominal),
        "avg_mae": avg_mae(ones, full, hidden, nominal),
        "rmse": metrics.imputation_rmse(full, best, hidden, scale=scale),
    } | of_samples(five, full, nominal)
    if draws is not None:
        middle = np.where(hidden, np.median(draws, 0), full)
        found["avg_mae_draws"] = avg_mae(five, full, hidden, nominal)
        found["mae_median"] = avg_mae(middle[None], full, hidden, nominal)
        found["crps"] = metrics.crps(full, draws, hidden, scale=scale)
        if len(draws) >= ENOUGH:
            found["coverage"] = metrics.coverage(full, draws, hidden, ties="shared")
    return found


def of_samples(tables, full, nominal):
    """Compare completed tables with the true rows, as samples."""
    truth = scaled(full, full, nominal)
    some = np.random.default_rng(0).permutation(len(full))[:MANY]
    tables = [scaled(table[some], full, nominal) for table in tables]
    pairs = [(truth[some], table) for table in tables]
    found = {"energy": float(np.mean([metrics.energy_distance(*p) for p in pairs]))}
    if len(full) <= MANY:
        found["w_train"] = float(np.mean([wasserstein(*p) for p in pairs]))
    return found


def score_b(case, answer):
    """Score the rows to learn from ("in") and the others ("out") by protocol B."""
    found = {}
    for i, part in enumerate(("in", "out")):
        draws = None if answer.draws is None else answer.draws[i]
        points = draws.mean(0) if answer.points is None else answer.points[i]
        cells = case.full[i], points, case.hidden[i]
        found[f"mae_{part}"] = metrics.imputation_mae(*cells)
        found[f"rmse_{part}"] = metrics.imputation_rmse(*cells)
    return found


def score_d(case, answer):
    """Score the rows to fill, the last part, by protocol D."""
    points = answer.points if answer.draws is None else [answer.draws[-1].mean(0)]
    cells = case.full[-1], points[-1], case.hidden[-1]
    return {"mse": metrics.imputation_rmse(*cells) ** 2}


SCORERS = {"A": score_a, "B": score_b, "D": score_d}


HIDDEN_A, HIDDEN_B = 0.2, 0.3  # of the cells
COMPLETE = 0.3  # share of the columns under MAR
FITS = "complete rows", "masked rows alone"  # of protocol D
WAYS = "MCAR 25 %", "MCAR 50 %", "MAR 25 %", "MAR 50 %"
# of masks of the package pyampute there are results, which are not made anew
MECHANISMS = {
    "A": ("MCAR", "pyampute MAR", "pyampute MNAR"),
    "B": ("MCAR", "MAR"),
    "D": [f"{way}, {fit}" for way in WAYS for fit in FITS],
}


def case_with(full, masked, n_levels=()):
    """Make a case of tables whose last columns have these numbers of levels."""
    width = full[0].shape[1]
    kinds = ["numeric"] * (width - len(n_levels)) + ["nominal"] * len(n_levels)
    levels = [0] * (width - len(n_levels)) + [*n_levels]
    return Case(kinds, levels, [f"x{j}" for j in range(width)], full, masked)


def of_file(name, target, drop=(), classes=False):
    """Read a table of the data folder: columns of numbers and a target."""
    frame = load(name).drop(columns=list(drop))
    y = frame.pop(target)
    y = pd.factorize(y, sort=True)[0] if classes else y.to_numpy(float)
    return frame.to_numpy(float), y, classes


def housing():
    """Compute the columns of scikit-learn's version from those of the census."""
    raw = load("california")
    homes = raw["households"]
    columns = {
        "income": raw["median_income"],
        "age": raw["housing_median_age"],
        "rooms": raw["total_rooms"] / homes,
        "bedrooms": raw["total_bedrooms"] / homes,
        "population": raw["population"],
        "occupancy": raw["population"] / homes,
        "latitude": raw["latitude"],
        "longitude": raw["longitude"],
    }
    x = pd.DataFrame(columns).to_numpy(float)
    return x, raw["median_house_value"].to_numpy(float), False


_LOADERS = {
    "concrete": lambda: of_file("concrete", "strength"),
    "yacht": lambda: of_file("yacht", "resistance"),
    "parkinsons": lambda: of_file("parkinsons", "status", ["name"], classes=True),
    "wdbc": lambda: of_file("wdbc", "diagnosis", ["id"], classes=True),
    "ionosphere": lambda: of_file("ionosphere", "class", ["v2"], classes=True),
    "wine_red": lambda: of_file("wine_red", "quality", ["fixed_acidity"]),
    "wine": lambda: (*bundled("wine"), True),
    "iris": lambda: (*bundled("iris"), True),
    "california": housing,
}


_OF_B = "letter", "california"
TABLES = {"A": [*_LOADERS], "B": _OF_B, "D": _OF_B}


@cache
def table_a(name):
    """Return columns, target and whether this is a class, of a table of protocol A."""
    return _LOADERS[name]()


@cache
def table_b(name):
    """Return a table of protocol B, and which of its columns are scored."""
    frame = load(name)
    if name == "letter":  # its first column, the letter, is the target
        return frame.to_numpy(float), np.arange(1, frame.shape[1])
    frame = frame.drop(columns=["ocean_proximity"])
    return frame.to_numpy(float), np.arange(frame.shape[1])


def case_a(name, mechanism, seed):
    """Split a table of protocol A and hide cells of the rows to learn from."""
    x, y, classes = table_a(name)
    torch.manual_seed(seed)
    options = {"stratify": y} if classes else {}
    x, _, y, _ = train_test_split(x, y, test_size=0.2, random_state=seed, **options)
    full = np.column_stack([x, y])
    shape = torch.Size(x.shape)
    hidden = (torch.rand(shape, dtype=torch.float64) < HIDDEN_A).numpy()
    kept = ~hidden.all(1)
    masked = full.copy()
    masked[:, :-1][hidden] = np.nan
    n_levels = [int(y.max()) + 1] if classes else []
    return case_with((full[kept],), (masked[kept],), n_levels)


def mar_columns(x, rng, share):
    """Hide a share of cells by a logistic function of complete columns, 3 of ten."""
    n_open = max(1, int(COMPLETE * x.shape[1]))
    columns = rng.permutation(x.shape[1])
    inputs, others = columns[:n_open], columns[n_open:]
    scores = x[:, inputs] @ rng.normal(size=(n_open, len(others)))
    scores /= scores.std(0)
    hidden = np.zeros(x.shape, dtype=bool)
    for j, score in zip(others, scores.T, strict=True):
        chance = 1 / (1 + np.exp(-score - intercepts(score, share)))
        hidden[:, j] = rng.random(len(x)) < chance
    return hidden


def split(name, mechanism, share, mask):
    """Hide cells of a table of protocol B, and split its rows: 70 % to learn from."""
    x, scored = table_b(name)
    index = np.arange(len(x))
    np.random.RandomState(1234).shuffle(index)
    rng = np.random.default_rng(mask)
    if mechanism == "MCAR":
        hidden = rng.random(x.shape) < share
    else:
        hidden = mar_columns(x, rng, share / (1 - COMPLETE))
    x, hidden = x[index][:, scored], hidden[index][:, scored]
    first = int(0.7 * len(x))
    tables = x, np.where(hidden, np.nan, x)
    return [(cells[:first], cells[first:]) for cells in tables]


def case_b(name, mechanism, mask):
    """Split a table of protocol B, scaled by its observed cells to learn from."""
    parts = split(name, mechanism, HIDDEN_B, mask)
    seen = parts[1][0]
    mean, sd = np.nanmean(seen, 0), np.nanstd(seen, 0)
    full, masked = (tuple((part - mean) / sd for part in pair) for pair in parts)
    return case_with(full, masked)


def case_d(name, mechanism, mask):
    """Take the masked rows of protocol D, and what is learned from: these, or others.

    The mechanism is one of `WAYS`, and after a comma one of `FITS`.
    """
    way, fit = mechanism.split(", ")
    kind, share = way.split()[:2]
    (known, full), (_, masked) = split(name, kind, float(share) / 100, mask)
    mean, sd = known.mean(0), known.std(0)
    known, full, masked = ((part - mean) / sd for part in (known, full, masked))
    if fit == FITS[0]:
        return case_with((known, full), (known, masked))
    return case_with((full,), (masked,))


@lru_cache(1)
def case_of(protocol, *place):
    """Make a case of a protocol: a table, a mechanism and a number of a mask."""
    return {"A": case_a, "B": case_b, "D": case_d}[protocol](*place)


def dummies(x, nominal, n_levels=None, first=0):
    """Replace codes of three levels and more by columns of zeros and ones.

    Parameters
    ----------
    x : ndarray of shape (..., d)
    nominal : tuple of int
    n_levels : dict of int to int, or None
        Numbers of levels; None counts those in x.
    first : int
        First level with a column; 1 leaves out one that follows from the others.
    """
    columns = []
    for j in range(x.shape[-1]):
        cells, count = x[..., [j]], 0
        if j in nominal:
            count = (n_levels or {}).get(j) or int(cells.max()) + 1
        columns.append(cells == np.arange(first, count) if count > 2 else cells)
    return np.concatenate(columns, -1, dtype=float)
