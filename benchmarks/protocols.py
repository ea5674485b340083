"""Three published protocols, whose authors print figures of rivals.

    python benchmarks/protocols.py [--results FILE] [--only-report] [--quick]
        [--protocols A B] [--tables concrete letter] [--mechanisms MCAR]
        [--methods GaussianImputer] [--seeds 3] [--output doc/benchmarks/protocols.md]

Protocol A is that of ForestDiffusion and UnmaskingTrees: 80 % of the rows, each cell
but the target's hidden with probability .2, five imputations of the same rows. The
target is a complete column. Masks by pyampute, at random (MAR) and not at random
(MNAR), are a second opinion. Protocol B is that of DiffPuter: numbers, 30 % hidden,
scored on the 70 % of the rows that are learned from and on the others. Protocol D is
that of HARPOON: the same tables, of which only the other rows are masked and filled, by
what is learned from complete rows, or from the masked rows alone. Each result is a line
of FILE; those that are there are not computed again.

R's mice needs `Rscript` with the packages mice, ranger and rpart; missForest needs
itself. The Python packages of others need the environment of `mixed_rivals`, and
HyperImpute one with numpy 1.26, pandas 2.2 and scikit-learn 1.5; each run is a process
that reads an .npz file and writes another (`_protocol_rivals.py`).
"""

from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _beside import beside
from _data import cpu_seconds
from _mice import Mice, installed, run_r
from _report import (
    Texts,
    geometric_mean,
    made_by,
    mean,
    notes_of,
    specs,
    table,
    unanswered,
)
from _runner import carry_out
from mixed_rivals import Missing, execute, has_package, interpreter
from protocol_tables import (
    FITS,
    IMPUTATIONS,
    MECHANISMS_A,
    MECHANISMS_B,
    MECHANISMS_D,
    SCORERS,
    TABLES_A,
    TABLES_B,
    Answer,
    case_a,
    case_b,
    case_d,
    dummies,
)
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

from skvnce import GaussianImputer, LAIRImputer, MixtureImputer, TableImputer

TEXTS, SPECS = Texts("protocols", globals()), specs("protocols")
NAMES, REPORTED_B = SPECS["names"], SPECS["reported_b"]
REPORTED_D = SPECS["reported_d"]
_METHODS = SPECS["reported_a"].pop("methods")
REPORTED_A = {  # of each table and method MinMAE, AvgMAE
    name: dict(zip(_METHODS, pairs, strict=True))
    for name, pairs in SPECS["reported_a"].items()
}


def goal_a(name):
    """Return the reported MinMAE that those of protocol A are compared with."""
    reported = REPORTED_A[name]
    return min(reported[method][0] for method in ("UnmaskingTrees", "miceforest"))


_SCRIPT = str(Path(__file__).with_name("_protocol_rivals.py"))


def exchange(learn, others, levels, *arguments):
    """Give tables to a run, and return the arrays that it writes."""
    with TemporaryDirectory() as folder:
        given, answer = Path(folder, "given.npz"), Path(folder, "answer.npz")
        np.savez(given, learn=learn, others=others, levels=levels)
        command = [interpreter(), _SCRIPT, given, answer, *arguments]
        execute([str(part) for part in command])
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
        if len(draws[0]) < n_draws:  # one table, as of a package that does not draw
            return Answer([part[0] for part in draws], None, float(seconds), notes)
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


def miss_forest(case, seed, n_draws):
    """Fill the rows of protocol A by R's missForest, which keeps no model of others."""
    if len(case.masked) > 1:
        raise Missing("fills only the rows that it learns from")
    x = case.masked[0]
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        x.T.astype("<f8").tofile(folder / "table.bin")
        for name, numbers in ("shape", x.shape), ("levels", levels_of(case)):
            (folder / f"{name}.txt").write_text(" ".join(map(str, numbers)))
        run_r(str(Path(__file__).with_name("_miss_forest.R")), str(folder), str(seed))
        filled = np.fromfile(folder / "filled.bin", "<f8").reshape(x.T.shape).T
        version, seconds = (folder / "notes.txt").read_text().split("\n")[:2]
    return Answer([filled], None, float(seconds), {"version": version})


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


PACKAGES = {
    "miceforest": "miceforest",
    "UnmaskingTrees": "utrees",
    "HyperImpute": "hyperimpute",
}
MICE = {f"mice {kind}": kind for kind in ("pmm", "cart", "rf")}
RIVALS = {
    "KNN(1)": Plain(lambda seed: KNNImputer(n_neighbors=1)),
    "IterativeImputer": Plain(lambda seed: IterativeImputer(random_state=seed)),
    "IterativeImputer, draws": iterative_draws,
    "IterativeImputer, forests": Plain(chained_forests),
    **{name: Chained(kind) for name, kind in MICE.items()},
    "missForest": miss_forest,
    **{name: Rival(module) for name, module in PACKAGES.items()},
    "ForestDiffusion": None,  # not run any more
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
    needs = dict.fromkeys(MICE, "mice") | {"missForest": "missForest"}
    r = [m for m in methods if not METHODS[m] or m in needs and not installed(needs[m])]
    return r + [
        method
        for method in methods
        if method in PACKAGES and not has_package(PACKAGES[method])
    ]


GOALS = {  # geometric mean of the ratios, worst table
    "avg_mae": (0.95, 1.10),
    "min_mae": (0.95, 0.95),
    "crps": (None, 1.02),
}
SCORES_A = (
    *("min_mae", "avg_mae", "avg_mae_draws", "mae_median", "crps", "rmse"),
    *("coverage", "energy", "w_train", "seconds"),
)
SCORES_B = "mae_in", "rmse_in", "mae_out", "rmse_out", "seconds"


class Place:
    """The records of a table under a mechanism, by method."""

    def __init__(self, results, protocol, name, mechanism):
        key = {"protocol": protocol, "table": name, "mechanism": mechanism}
        self.records = {m: results.of(**key, method=m) for m in METHODS}

    def seeds(self, method):
        """Return the seeds of a method that have scores."""
        return {r["seed"] for r in self.records[method] if "missing" not in r}

    def mean(self, method, score, seeds=None):
        """Return the mean of a score over seeds, or over some only; None without."""
        some = (r for r in self.records[method] if seeds is None or r["seed"] in seeds)
        return mean([*some], score)

    def cells(self, method, scores):
        """Write the number of seeds and the scores of a method."""
        return [len(self.seeds(method)), *(self.cell(method, s) for s in scores)]

    def cell(self, method, score):
        """Write the mean of a score of a method."""
        value = self.mean(method, score)
        digits = 4 if score != "seconds" else 0 if value and value >= 9.5 else 1
        return "-" if value is None else f"{value:.{digits}f}"

    def having(self, scores):
        """Return those of scores that some method has."""
        return [s for s in scores if any(self.cell(m, s) != "-" for m in METHODS)]


def ratios(places, method, score):
    """Return the ratios of a method to what its goal names, by table of protocol A.

    This is what was run on the same masks, on the seeds that both have: of the CRPS the
    best rival, of the AvgMAE missForest.  MinMAE is compared with reported figures.
    """
    found = {}
    for name, place in places.items():
        mine = place.mean(method, score)
        if mine is not None and score == "min_mae":
            found[name] = mine / goal_a(name)
        elif mine is not None:
            best = RIVALS.keys() - {method}
            pairs = []
            for rival in best if score == "crps" else ["missForest"]:
                common = place.seeds(rival) & place.seeds(method)
                both = [place.mean(m, score, common) for m in (method, rival)]
                if None not in both:
                    pairs.append(both[0] / both[1])
            if pairs:
                found[name] = max(pairs)
    return found


def goals_a(places):
    """Make the table of the goals of protocol A: all methods, ours evaluated."""
    lines = []
    for score, (most, most_of_worst) in GOALS.items():
        for method in METHODS:
            if found := ratios(places, method, score):
                worst, overall = (
                    max(found, key=found.get),
                    geometric_mean(found.values()),
                )
                good = found[worst] <= most_of_worst and (not most or overall <= most)
                verdict = ("met" if good else "missed") if method in OURS else ""
                cells = [method, NAMES[score], len(found), f"{overall:.3f}"]
                lines.append([*cells, f"{found[worst]:.3f} ({worst})", verdict])
    header = ["method", "score", "tables", "geometric mean", "worst table", ""]
    return table(header, lines)


def by_table(places, score):
    """Make the table of the ratios of ours by table."""
    found = {m: own for m in OURS if (own := ratios(places, m, score))}
    lines = [
        [name, *(f"{own[name]:.3f}" if name in own else "-" for own in found.values())]
        for name in TABLES_A
        if any(name in own for own in found.values())
    ]
    return table(["table", *found], lines)


def table_a(place, reported):
    """Make the table of the scores of a table of protocol A."""
    head = ["MinMAE (reported)", "AvgMAE (reported)"] if reported else []
    scores, lines = place.having(SCORES_A), []
    for method in METHODS:
        notes = [f"{value:.3f}" for value in reported.get(method, ())]
        if place.seeds(method) or notes:
            shown = (notes or ["-", "-"]) if head else []
            lines.append([method, *shown, *place.cells(method, scores)])
    for method in [m for m in reported if m not in METHODS]:
        notes = [f"{value:.3f}" for value in reported[method]]
        lines.append([method, *notes, 0, *["-"] * len(scores)])
    return table(["method", *head, "seeds", *(NAMES[s] for s in scores)], lines)


def table_b(place, reported):
    """Make the table of the scores of a table of protocol B."""
    head = ["MAE, in-sample (reported)", "RMSE, in-sample (reported)"]
    head = head if reported else []
    lines = [
        [method, *(f"{value:.4f}" for value in pair), "-", *["-"] * len(SCORES_B)]
        for method, pair in reported.items()
    ]
    for method in filter(place.seeds, METHODS):
        lines.append([method, *["-"] * len(head), *place.cells(method, SCORES_B)])
    return table(["method", *head, "masks", *(NAMES[s] for s in SCORES_B)], lines)


def goals_b(results):
    """Compare ours with the figures that DiffPuter reports."""
    lines = []
    for name, reported in REPORTED_B.items():
        place = Place(results, "B", name, "MAR")
        for other, score in zip(reported["DiffPuter"], SCORES_B, strict=False):
            for method in OURS:
                own = place.mean(method, score)
                if own is not None:
                    count, value = len(place.seeds(method)), f"{own:.4f}"
                    line = [method, name, NAMES[score], count, value, f"{other:.4f}"]
                    verdict = "met" if own / other <= 1 else "missed"
                    lines.append([*line, f"{own / other:.3f}", verdict])
    head = ["method", "table", "score", "masks", "measured", "DiffPuter (reported)"]
    return table([*head, "ratio", ""], lines)


def table_d(results, fit):
    """Make the table of the errors of protocol D by what is learned from."""
    names = REPORTED_D["methods"]
    some = names[1:] if fit == FITS[0] else names[:1]
    places = {
        (name, way): Place(results, "D", name, f"{way}, {fit}")
        for name, way in product(TABLES_B, MECHANISMS_D)
    }
    methods = [m for m in METHODS if any(one.seeds(m) for one in places.values())]
    lines = []
    for (name, way), place in places.items():
        notes = dict(zip(names, REPORTED_D[name][way], strict=True))
        cells = [f"{notes[other]:.3f}" for other in some]
        lines.append([name, way, *cells, *(place.cell(m, "mse") for m in methods)])
    head = [f"{other} (reported)" for other in some]
    return table(["table", "mask", *head, *methods], lines)


def losses(results):
    """Set the default beside each other method in protocol A, MCAR."""

    def scores(score, method):
        some = results.of(protocol="A", mechanism="MCAR", method=method)
        return {(r["table"], r["seed"]): r[score] for r in some if score in r}

    names = "crps", "rmse", "mae_median", "min_mae", "energy"
    columns = {NAMES[name]: partial(scores, name) for name in names}
    parts = beside(list(METHODS), columns, [m for m in OURS if OURS[m]])
    return [*parts, TEXTS("losses")] if parts else []


def versions(records):
    """List versions and remarks of the rivals."""
    found = {r["version"]: r.get("remarks", []) for r in records if "version" in r}
    names = [" ".join([v, *(f"({x})" for x in some)]) for v, some in found.items()]
    return f"Versions: {', '.join(sorted(names)) or 'none'}."


def page(results, options):
    """Return the parts of the page."""
    places = {name: Place(results, "A", name, "MCAR") for name in TABLES_A}
    parts = [
        "# Three published protocols",
        made_by("protocols.py", f"Code of commit {results.commits()}."),
        *(notes_of(__doc__), TEXTS("text"), *losses(results)),
        *("## Goals", TEXTS("goals"), goals_a(places)),
    ]
    for score in GOALS:
        parts += [f"### {NAMES[score]} by table", by_table(places, score)]
    parts += ["### Protocol B", TEXTS("goals b"), goals_b(results)]
    written = {
        "A": (table_a, "MCAR", REPORTED_A),
        "B": (table_b, "MAR", REPORTED_B),
    }
    for protocol, (write, of_reported, reported) in written.items():
        for mechanism, name in product(MECHANISMS[protocol], TABLES[protocol]):
            place = Place(results, protocol, name, mechanism)
            if any(place.records.values()):
                parts.append(f"## Protocol {protocol}: {name}, {mechanism}")
                beside_it = reported[name] if mechanism == of_reported else {}
                parts.append(write(place, beside_it))
    parts += ["## Protocol D", TEXTS("protocol d")]
    for fit in FITS:
        parts += [f"### Learned from {fit}", table_d(results, fit)]
    parts += ["## Without an answer", TEXTS("missing"), unanswered(results.records)]
    return [*parts, "## Rivals", TEXTS("rivals"), versions(results.records)]


TABLES = {"A": TABLES_A, "B": TABLES_B, "D": TABLES_B}
WAYS_D = [f"{way}, {fit}" for way, fit in product(MECHANISMS_D, FITS)]
MECHANISMS = {"A": MECHANISMS_A, "B": MECHANISMS_B, "D": WAYS_D}
ASKED = {"A": IMPUTATIONS, "B": 20, "D": 20}  # draws
CASES = {"A": case_a, "B": case_b, "D": case_d}


def cells(options):
    """List what is asked for, one case after the other."""
    for protocol in options.protocols:
        tables = [t for t in TABLES[protocol] if t in options.tables]
        some = [m for m in MECHANISMS[protocol] if m.split()[0] in options.mechanisms]
        ways = product(range(options.seeds), some, tables, options.methods)
        for seed, mechanism, name, method in ways:
            key = {"protocol": protocol, "table": name, "mechanism": mechanism}
            yield key | {"seed": seed, "method": method}


@lru_cache(1)
def case_of(protocol, *place):
    """Make a case."""
    return CASES[protocol](*place)


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
    methods = ["KNN(1)", "GaussianImputer"]
    carry_out(
        __doc__,
        cells,
        measured,
        page,
        {"protocols": ["A"], "tables": ["iris"], "seeds": 1, "methods": methods},
        lacking,
        protocols=[*TABLES],
        tables=[*TABLES_A, *TABLES_B],
        mechanisms=["MCAR", "MAR"],
        methods=[*METHODS],
        seeds=3,
    )


if __name__ == "__main__":
    main()
