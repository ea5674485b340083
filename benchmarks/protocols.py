"""Two published protocols, whose authors print figures of rivals.

    python benchmarks/protocols.py [--results FILE] [--only-report] [--quick]
        [--protocols A B] [--tables concrete letter] [--mechanisms MCAR]
        [--methods GaussianImputer] [--seeds 3] [--rivals-python RIVALS/bin/python]
        [--limit 300] [--output doc/benchmarks/protocols.md]

Protocol A is that of ForestDiffusion and UnmaskingTrees: 80 % of the rows, each cell
but the target's hidden with probability .2, five imputations of the same rows. The
target is a complete column. Masks by pyampute, at random (MAR) and not at random
(MNAR), are a second opinion. Protocol B is that of DiffPuter: numbers, 30 % hidden,
scored on the 70 % of the rows that are learned from and on the others. Each result is
a line of FILE; those that are there are not computed again.

R's mice needs `Rscript` with the packages mice, ranger and rpart. The Python packages
of others need an environment (``RIVALS`` is the folder of your choice), whose
interpreter is the argument ``--rivals-python RIVALS/bin/python``; each run is a process
that reads an .npz file and writes another (`_protocol_rivals.py`):

    python -m venv RIVALS
    RIVALS/bin/pip install "scikit-learn==1.5.2" "numpy==2.2.6" "pandas==2.2.3" \\
        "lightgbm==4.6.0" xgboost-cpu numba tqdm statsmodels importlib_resources
    RIVALS/bin/pip install --no-deps miceforest==6.0.5 utrees==0.3.0 \\
        kditransform==1.0.0
"""

import subprocess
import sys
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _beside import beside
from _command import carry_out, options_of
from _data import cpu_seconds
from _mice import Mice, installed
from _report import Texts, made_by, table, unanswered
from mixed_rivals import Missing, execute
from protocol_tables import (
    IMPUTATIONS,
    MECHANISMS_A,
    MECHANISMS_B,
    SCORERS,
    TABLES_A,
    TABLES_B,
    Answer,
    case_a,
    case_b,
    dummies,
)
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

from skvnce import GaussianImputer, LAIRImputer, MixtureImputer, TableImputer

TEXTS = Texts("protocols", globals())

# Figures that others report; none was measured here.  Protocol A: the repository of
# UnmaskingTrees (McCarter, arXiv 2407.05593), whose raw results hold those of
# ForestDiffusion (Jolicoeur-Martineau et al., AISTATS 2024), too.  Protocol B:
# DiffPuter (ICLR 2025, arXiv 2405.20690), its tables 7 and 8 as others quote them.
NAMES_A = (
    *("KNN(1)", "IterativeImputer, draws", "miceforest", "missForest"),
    *("ForestDiffusion", "UnmaskingTrees"),
)
# of each table MinMAE, AvgMAE of these methods in turn
_CELLS_A = {
    "concrete": ".094 .094 .087 .209 .034 .073 .046 .061 .042 .118 .023 .052",
    "yacht": ".192 .192 .117 .292 .035 .080 .055 .069 .061 .186 .027 .065",
    "parkinsons": ".071 .071 .081 .140 .039 .057 .045 .051 .049 .078 .047 .065",
    "wdbc": ".063 .063 .043 .069 .029 .040 .033 .036 .042 .059 .040 .052",
    "ionosphere": ".115 .115 .132 .185 .095 .122 .099 .108 .091 .124 .085 .118",
    "wine_red": ".077 .077 .075 .150 .043 .077 .053 .062 .048 .090 .041 .072",
    "wine": ".139 .139 .128 .227 .079 .112 .095 .106 .085 .127 .095 .131",
    "iris": ".105 .105 .048 .126 .045 .082 .061 .072 .046 .095 .060 .089",
    "california": ".082 .082 .035 .088 .021 .056 .032 .039 .029 .077 .020 .050",
}


def _pairs(line):
    cells = list(map(float, line.split()))
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return {
        name: dict(zip(("min_mae", "avg_mae"), pair, strict=True))
        for name, pair in zip(NAMES_A, pairs, strict=True)
    }


REPORTED_A = {name: _pairs(line) for name, line in _CELLS_A.items()}
REPORTED_B = {  # MAR, rows that were learned from: MAE, RMSE
    "letter": {"DiffPuter": (0.3222, 0.4812), "TabCSDI": (0.7742, 1.0027)},
    "california": {"DiffPuter": (0.3266, 0.5712), "TabCSDI": (0.8317, 1.1164)},
}
SAME = {"missForest": "IterativeImputer, forests"}  # what is measured beside it


def goal_a(name, score):
    """Return the reported figure that a score of protocol A is compared with."""
    found = REPORTED_A[name]
    if score == "avg_mae":
        return found["missForest"]["avg_mae"]
    return min(found[method][score] for method in ("UnmaskingTrees", "miceforest"))


_SCRIPT = str(Path(__file__).with_name("_protocol_rivals.py"))
SETTINGS = {"python": None, "limit": 300}  # interpreter; seconds of CPU for a table


def interpreter():
    """Return the interpreter of the rivals: by default that of this process."""
    return SETTINGS["python"] or sys.executable


@cache
def has_module(module):
    """Say whether the environment of the rivals has a module."""
    ask = [interpreter(), "-c", f"import {module}"]
    try:
        return not subprocess.run(ask, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


def exchange(learn, others, levels, *arguments):
    """Give tables to a run, and return the arrays that it writes."""
    with TemporaryDirectory() as folder:
        given, answer = Path(folder, "given.npz"), Path(folder, "answer.npz")
        np.savez(given, learn=learn, others=others, levels=levels)
        command = [interpreter(), _SCRIPT, given, answer, *arguments]
        execute([str(part) for part in command], SETTINGS["limit"])
        with np.load(answer) as arrays:
            return dict(arrays)


def levels_of(case):
    """Count the levels of the columns of a case; 0 for numbers."""
    full = case.full[0]
    columns = range(full.shape[1])
    return np.array(
        [int(full[:, j].max()) + 1 if j in case.nominal else 0 for j in columns]
    )


class Rival:
    """A method that runs a package: a case and a seed to an `Answer`."""

    def __init__(self, module):
        self.module = module

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        learn = case.masked[0]
        others = case.masked[1] if len(case.masked) > 1 else learn[:0]
        found = exchange(learn, others, levels_of(case), self.module, n_draws, seed)
        version, seconds, *remarks = map(str, found["notes"])
        notes = {"version": version} | ({"remarks": remarks} if remarks else {})
        parts = range(len(case.masked))
        draws = [found[f"draws{i}"] for i in parts]
        if any(np.isnan(part).any() for part in draws):
            raise Missing("leaves cells missing")
        return Answer(None, draws, float(seconds), notes)


DRAWS = 50  # of ours in protocol A
ROUNDS = 5  # of chained forests


class Plain:
    """Imputers of arrays of numbers, on scaled columns; one filled table each.

    Classes of three levels and more, which are complete, are columns of zeros and ones.
    """

    def __init__(self, make):
        self.make = make

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        begin = cpu_seconds()
        tables = [coded(case, part) for part in case.masked]
        scaler = StandardScaler().fit(tables[0])
        imputer = self.make(seed).fit(scaler.transform(tables[0]))
        filled = (imputer.transform(scaler.transform(x)) for x in tables)
        found = [
            decoded(case, part, scaler.inverse_transform(x))
            for part, x in zip(case.masked, filled, strict=True)
        ]
        return Answer(found, None, cpu_seconds() - begin)


def coded(case, x):
    """Replace a class by columns of zeros and ones, the last column of the table."""
    return dummies(x, case.nominal, first=1)


def decoded(case, masked, filled):
    """Return the filled cells of a table; a class is complete, and the last column."""
    width = masked.shape[1] - len(case.nominal)
    found = np.tile(masked, (*filled.shape[:-2], 1, 1))
    found[..., :width] = filled[..., :width]
    return found


def iterative_draws(case, seed, n_draws):
    """Draw from the posterior of chained ridge regressions, a chain a draw."""
    begin, tables = cpu_seconds(), []
    for m in range(n_draws):
        options = {"sample_posterior": True, "random_state": 1000 * seed + m}
        plain = Plain(lambda _, options=options: IterativeImputer(**options))
        tables.append(plain(case, seed, 1).points)
    draws = [np.stack(part) for part in zip(*tables, strict=True)]
    return Answer(None, draws, cpu_seconds() - begin)


class Chained:
    """R's mice with one kind of model for all columns.

    It returns draws of the rows that it has not learned from, or else of those that it
    has; of two parts it therefore fills means of the draws.
    """

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        begin = cpu_seconds()
        tables = [coded(case, part) for part in case.masked]
        model = Mice(self.kind, seed).fit(tables[0])
        try:
            drawn = model.sample(tables[-1], n_draws, seed)
        except RuntimeError as error:  # that of R, whose last line says nothing
            reason = str(error).removesuffix("Execution halted").split()
            raise Missing(" ".join(reason)[:200]) from error
        draws = decoded(case, case.masked[-1], drawn)
        notes = {"version": f"mice {model.remarks['mice']}"}
        if len(tables) == 1:
            return Answer(None, [draws], cpu_seconds() - begin, notes)
        points = [decoded(case, case.masked[0], model.transform(tables[0]))]
        return Answer([*points, draws.mean(0)], None, cpu_seconds() - begin, notes)


def frame(case, x):
    """Make a data frame, of whose columns classes are categories."""
    found = pd.DataFrame({f"x{j}": cells for j, cells in enumerate(x.T)})
    for j in case.nominal:
        levels = range(int(case.full[0][:, j].max()) + 1)
        codes = pd.Categorical.from_codes(x[:, j].astype(int), list(levels))
        found[f"x{j}"] = codes
    return found


class Ours:
    """An imputer of skvnce; draws in protocol A, or for the median.

    Parameters
    ----------
    make : function of the seed to an imputer
    median : bool
        Fill the medians of the draws in place of the means.
    """

    last = None, None

    def __init__(self, make, median=False):
        self.make, self.median = make, median

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        protocol = case.key[0]
        wanted = DRAWS if protocol == "A" else n_draws if self.median else 0
        answer = self._fill(case, seed, wanted)
        if self.median:
            middles = [np.median(part, 0) for part in answer.draws]
            answer = answer._replace(points=middles)
        return answer if protocol == "A" else answer._replace(draws=None)

    def _fill(self, case, seed, wanted):
        # the median needs no second fit where the means were filled just before
        asked = self.make, case.key, wanted
        if Ours.last[0] != asked:
            Ours.last = asked, self._fit_and_fill(case, seed, wanted)
        return Ours.last[1]

    def _fit_and_fill(self, case, seed, wanted):
        begin, frames = cpu_seconds(), [frame(case, part) for part in case.masked]
        model = self.make(seed).set_output(transform="pandas").fit(frames[0])
        points = [as_codes(model.transform(part)) for part in frames]
        draws = [
            np.stack(
                [as_codes(one) for one in model.sample(part, wanted, random_state=seed)]
            )
            for part in frames
            if wanted
        ]
        return Answer(points, draws or None, cpu_seconds() - begin)


def as_codes(filled):
    """Convert a filled data frame to an array."""
    return filled.astype(float).to_numpy()


def default(seed):
    """Make the default imputer, which two methods share."""
    return TableImputer(random_state=seed)


def chained_forests(seed):
    """Make chained random forests, which chain as missForest does."""
    trees = RandomForestRegressor(50, random_state=seed)
    return IterativeImputer(trees, max_iter=ROUNDS, random_state=seed)


PACKAGES = {"miceforest": "miceforest", "UnmaskingTrees": "utrees"}
MICE = {f"mice {kind}": kind for kind in ("pmm", "cart", "rf")}
RIVALS = {
    "KNN(1)": Plain(lambda seed: KNNImputer(n_neighbors=1)),
    "IterativeImputer": Plain(lambda seed: IterativeImputer(random_state=seed)),
    "IterativeImputer, draws": iterative_draws,
    "IterativeImputer, forests": Plain(chained_forests),
    **{name: Chained(kind) for name, kind in MICE.items()},
    **{name: Rival(module) for name, module in PACKAGES.items()},
    **dict.fromkeys(("ForestDiffusion", "HyperImpute")),  # not run any more
}
OURS = {  # None: of ForestImputer, which was removed, only results are left
    "TableImputer": Ours(default),
    "TableImputer, median": Ours(default, median=True),
    "GaussianImputer": Ours(lambda seed: GaussianImputer(random_state=seed)),
    "MixtureImputer": Ours(lambda seed: MixtureImputer(random_state=seed)),
    "LAIRImputer": Ours(lambda seed: LAIRImputer(n_draws=DRAWS, random_state=seed)),
    "ForestImputer": None,
    "ForestImputer, median": None,
    "stack": None,
}
METHODS = RIVALS | OURS


def lacking(methods):
    """List the methods that cannot be run here."""
    r = [m for m in methods if not METHODS[m] or m in MICE and not installed()]
    return r + [
        method
        for method in methods
        if method in PACKAGES and not has_module(PACKAGES[method])
    ]


TEXT = TEXTS("text")

GOALS_TEXT = TEXTS("goals")

GOALS_B_TEXT = TEXTS("goals b")

MISSING_TEXT = TEXTS("missing")

RIVALS_TEXT = TEXTS("rivals")

GOALS = {  # geometric mean of the ratios, worst table
    "avg_mae": (0.95, 1.10),
    "min_mae": (0.95, 0.95),
    "crps": (None, 1.02),
}
NAMES = {
    "avg_mae": "AvgMAE",
    "min_mae": "MinMAE",
    "crps": "CRPS",
    "avg_mae_draws": "AvgMAE of draws",
    "mae_median": "MAE of the median",
    "rmse": "RMSE",
    "coverage": "coverage",
    "energy": "energy distance",
    "w_train": "W_train",
    "seconds": "CPU s",
    "mae_in": "MAE, in-sample",
    "rmse_in": "RMSE, in-sample",
    "mae_out": "MAE, out-of-sample",
    "rmse_out": "RMSE, out-of-sample",
}
SCORES_A = (
    *("min_mae", "avg_mae", "avg_mae_draws", "mae_median", "crps", "rmse"),
    *("coverage", "energy", "w_train", "seconds"),
)
SCORES_B = "mae_in", "rmse_in", "mae_out", "rmse_out", "seconds"


def averages(records, score, seeds=None):
    """Return the mean over seeds of a score, by method; or over some seeds only."""
    found = {}
    for r in records:
        if score in r and (seeds is None or r["seed"] in seeds):
            found.setdefault(r["method"], {})[r["seed"]] = r[score]
    return {method: float(np.mean(list(own.values()))) for method, own in found.items()}


def seeds_of(records, method):
    """Return the seeds of a method that have scores."""
    own = (r for r in records if r["method"] == method and "missing" not in r)
    return {r["seed"] for r in own}


def of(records, protocol, name, mechanism):
    """Return the records of a table."""
    asked = {"protocol": protocol, "table": name, "mechanism": mechanism}
    return [r for r in records if asked.items() <= r.items()]


def written(value, score):
    """Write a score."""
    if value is None:
        return "-"
    if score == "seconds":
        return f"{value:.0f}" if value >= 9.5 else f"{value:.1f}"
    return f"{value:.4f}"


def ratios(records, method, score):
    """Return the ratios of a method to what its goal names, by table of protocol A.

    For the CRPS this is the best rival that was run on the same masks, on the seeds
    that both have.
    """
    found = {}
    for name in TABLES_A:
        some = of(records, "A", name, "MCAR")
        mine = averages(some, score).get(method)
        if mine is None:
            continue
        if score != "crps":
            found[name] = mine / goal_a(name, score)
            continue
        pairs = []
        for rival in {r["method"] for r in some} - OURS.keys() - {method}:
            common = seeds_of(some, rival) & seeds_of(some, method)
            both = averages(some, score, common)
            if rival in both and method in both:
                pairs.append(both[method] / both[rival])
        if pairs:
            found[name] = max(pairs)
    return found


def geometric(values):
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


def verdict(found, score):
    """Say whether ratios by table meet the goal of a score."""
    mean, worst = GOALS[score]
    met = max(found.values()) <= worst
    return met and (mean is None or geometric(found.values()) <= mean)


def goals_a(records):
    """Make the table of the goals of protocol A: all methods, ours evaluated."""
    header = ["method", "score", "tables", "geometric mean", "worst table", ""]
    lines = []
    for score in GOALS:
        for method in METHODS:
            found = ratios(records, method, score)
            if not found:
                continue
            worst = max(found, key=found.get)
            lines.append(
                [
                    *(method, NAMES[score], len(found)),
                    f"{geometric(found.values()):.3f}",
                    f"{found[worst]:.3f} ({worst})",
                    ("met" if verdict(found, score) else "missed")
                    if method in OURS
                    else "",
                ]
            )
    return table(header, lines)


def by_table(records, score):
    """Make the table of the ratios of ours by table."""
    found = {m: ratios(records, m, score) for m in OURS}
    found = {m: own for m, own in found.items() if own}
    lines = [
        [name, *(f"{own[name]:.3f}" if name in own else "-" for own in found.values())]
        for name in TABLES_A
        if any(name in own for own in found.values())
    ]
    return table(["table", *found], lines)


def table_a(records, name, mechanism):
    """Make the table of the scores of a table of protocol A."""
    some = of(records, "A", name, mechanism)
    reported = REPORTED_A[name] if mechanism == "MCAR" else {}
    head = ["MinMAE (reported)", "AvgMAE (reported)"] if reported else []
    scores = [s for s in SCORES_A if averages(some, s)]
    lines = []
    for method in [*METHODS, *(m for m in reported if m not in METHODS)]:
        seeds = seeds_of(some, method)
        notes = reported.get(method, {})
        if not seeds and not notes:
            continue
        cells = [f"{notes[s]:.3f}" if notes else "-" for s in ("min_mae", "avg_mae")]
        own = (written(averages(some, s).get(method), s) for s in scores)
        lines.append([method, *(cells if head else []), len(seeds), *own])
    return table(["method", *head, "seeds", *(NAMES[s] for s in scores)], lines)


def table_b(records, name, mechanism):
    """Make the table of the scores of a table of protocol B."""
    some = of(records, "B", name, mechanism)
    reported = REPORTED_B[name] if mechanism == "MAR" else {}
    head = ["MAE, in-sample (reported)", "RMSE, in-sample (reported)"]
    head = head if reported else []
    lines = [
        [method, *(f"{value:.4f}" for value in pair), "-", *["-"] * len(SCORES_B)]
        for method, pair in reported.items()
    ]
    for method in METHODS:
        seeds = seeds_of(some, method)
        if seeds:
            own = (written(averages(some, s).get(method), s) for s in SCORES_B)
            lines.append([method, *["-"] * len(head), len(seeds), *own])
    return table(["method", *head, "masks", *(NAMES[s] for s in SCORES_B)], lines)


def goals_b(records):
    """Compare ours with the figures that DiffPuter reports."""
    lines = []
    for name, reported in REPORTED_B.items():
        some = of(records, "B", name, "MAR")
        for i, score in enumerate(("mae_in", "rmse_in")):
            other = reported["DiffPuter"][i]
            own = averages(some, score)
            for method in OURS:
                if method in own:
                    ratio, value = own[method] / other, f"{own[method]:.4f}"
                    met = "met" if ratio <= 1 else "missed"
                    count = len(seeds_of(some, method))
                    line = [method, name, NAMES[score], count, value, f"{other:.4f}"]
                    lines.append([*line, f"{ratio:.3f}", met])
    head = ["method", "table", "score", "masks", "measured", "DiffPuter (reported)"]
    return table([*head, "ratio", ""], lines)


def losses(records):
    """Set the default beside each other method in protocol A, MCAR."""
    scores = "crps", "rmse", "mae_median", "min_mae", "energy"
    columns = {NAMES[score]: partial(of_seeds, records, score) for score in scores}
    return beside(list(METHODS), columns)


def of_seeds(records, score, method):
    """Return a score of a method by table and seed."""
    asked = {"protocol": "A", "mechanism": "MCAR", "method": method}
    return {
        (r["table"], r["seed"]): r[score]
        for r in records
        if score in r and asked.items() <= r.items()
    }


def versions(records):
    """List versions and remarks of the rivals."""
    found = {r["version"]: r.get("remarks", []) for r in records if "version" in r}
    names = [" ".join([v, *(f"({x})" for x in some)]) for v, some in found.items()]
    return f"Versions: {', '.join(sorted(names)) or 'none'}."


def page(results, notes):
    """Return the parts of the page."""
    records = results.records
    parts = [
        "# Two published protocols",
        made_by("protocols.py", f"Code of commit {results.commits()}."),
        *(notes, TEXT, *losses(records), "## Goals", GOALS_TEXT, goals_a(records)),
    ]
    for score in GOALS:
        parts += [f"### {NAMES[score]} by table", by_table(records, score)]
    parts += ["### Protocol B", GOALS_B_TEXT, goals_b(records)]
    for mechanism in MECHANISMS_A:
        for name in TABLES_A:
            if of(records, "A", name, mechanism):
                parts.append(f"## Protocol A: {name}, {mechanism}")
                parts.append(table_a(records, name, mechanism))
    for mechanism in MECHANISMS_B:
        for name in TABLES_B:
            if of(records, "B", name, mechanism):
                parts.append(f"## Protocol B: {name}, {mechanism}")
                parts.append(table_b(records, name, mechanism))
    parts += ["## Without an answer", MISSING_TEXT, unanswered(records)]
    return [*parts, "## Rivals", RIVALS_TEXT, versions(records)]


TABLES = {"A": TABLES_A, "B": TABLES_B}
MECHANISMS = {"A": MECHANISMS_A, "B": MECHANISMS_B}
QUICK = ["KNN(1)", "GaussianImputer"]
ASKED = {"A": IMPUTATIONS, "B": 20}  # draws


def cells(options):
    """List what is asked for, one case after the other."""
    for protocol in options.protocols:
        tables = [t for t in TABLES[protocol] if t in options.tables]
        some = [m for m in MECHANISMS[protocol] if m in options.mechanisms]
        ways = product(range(options.seeds), some, tables, options.methods)
        for seed, mechanism, name, method in ways:
            key = {"protocol": protocol, "table": name, "mechanism": mechanism}
            yield key | {"seed": seed, "method": method}


@lru_cache(1)
def case_of(protocol, *place):
    """Make a case."""
    return (case_b if protocol == "B" else case_a)(*place)


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    protocol, seed = key["protocol"], key["seed"]
    case = case_of(protocol, key["table"], key["mechanism"], seed)
    try:
        answer = METHODS[key["method"]](case, seed, ASKED[protocol])
    except Missing as reason:
        return {"missing": str(reason)}
    answer = answer._replace(
        points=observed_kept(case, answer.points),
        draws=observed_kept(case, answer.draws),
    )
    scores = SCORERS[protocol](case, answer)
    return scores | {"seconds": round(answer.seconds, 2)} | answer.notes


def observed_kept(case, tables):
    """Return filled tables with the observed cells as they were."""
    if tables is None:
        return None
    parts = zip(tables, case.masked, strict=True)
    return [np.where(np.isnan(masked), filled, masked) for filled, masked in parts]


def main():
    """Measure and report."""
    options = options_of(
        __doc__,
        {"protocols": ["A"], "tables": ["iris"], "seeds": 1, "methods": QUICK},
        results=None,
        protocols=[*TABLES],
        tables=[*TABLES_A, *TABLES_B],
        mechanisms=["MCAR", "MAR"],
        methods=[*METHODS],
        seeds=3,
        rivals_python=None,
        limit=SETTINGS["limit"],
        only_report=False,
    )
    SETTINGS.update(python=options.rivals_python, limit=options.limit)
    carry_out(cells, measured, page, options, __doc__, lacking)


if __name__ == "__main__":
    main()
