"""Three published protocols, whose authors print figures of rivals.

    python benchmarks/protocols.py [--results FILE] [--only-report] [--quick]
        [--only protocol=A table=concrete method=GaussianImputer mechanism=MCAR]
        [--output doc/benchmarks/protocols.md]

Protocol A is that of ForestDiffusion and UnmaskingTrees: 80 % of the rows, each cell
but the target's hidden with probability .2, five imputations of the same rows. The
target is a complete column. Masks by pyampute, at random (MAR) and not at random
(MNAR), are a second opinion. Protocol B is that of DiffPuter: numbers, 30 % hidden,
scored on the 70 % of the rows that are learned from and on the others. Protocol D is
that of HARPOON: the same tables, of which only the other rows are masked and filled, by
what is learned from complete rows, or from the masked rows alone. Each result is a line
of FILE; those that are there are not computed again.

Packages of others need what `_peers` says.
"""

from functools import lru_cache, partial
from itertools import product

import _cases
import numpy as np
from _beside import beside, scores_of
from _cases import Answer, by_imputer, by_peer, scored
from _data import cpu_seconds
from _peers import LIMIT, Missing, Peer
from _report import Texts, geometric_mean, grid, mean, specs, table
from _runner import main_of
from protocol_tables import (
    FITS,
    IMPUTATIONS,
    MECHANISMS,
    SCORERS,
    TABLES,
    WAYS,
    case_of,
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


ASKED = {"A": IMPUTATIONS, "B": 20, "D": 20}  # draws of peers


def rival(peer, *place):
    """Let a package of others fill all parts of a case."""
    case, n_draws = case_of(*place), ASKED[place[0]]
    if peer.package == "missForest" and len(case.masked) > 1:
        raise Missing("fills only the rows that it learns from")
    limit = None if peer.package in ("mice", "missForest") else LIMIT
    answer = by_peer(peer, case, n_draws, place[-1], limit=limit)
    if any("left missing" in remark for remark in answer.notes.get("remarks", ())):
        raise Missing("leaves cells missing")
    ends = np.cumsum([len(part) for part in case.masked])[:-1]
    draws = np.split(answer.draws, ends, axis=1)
    if len(draws[0]) < n_draws:  # one table, of a package that does not draw
        return answer._replace(points=[part[0] for part in draws], draws=None)
    return answer._replace(points=None, draws=draws)


DRAWS = 50  # of ours in protocol A
ROUNDS = 5  # of chained forests


def plain(make, *place):
    """Fill by an imputer of arrays of numbers, on scaled columns.

    Classes of three levels and more, which are complete, are columns of zeros and ones.
    """
    begin, case = cpu_seconds(), case_of(*place)
    tables = [dummies(part, case.nominal, first=1) for part in case.masked]
    scaler = StandardScaler().fit(tables[0])
    imputer = make(place[-1]).fit(scaler.transform(tables[0]))
    width, found = len(case.kinds) - len(case.nominal), [*map(np.copy, case.masked)]
    for part, x in zip(found, tables, strict=True):
        filled = scaler.inverse_transform(imputer.transform(scaler.transform(x)))
        part[:, :width] = filled[:, :width]
    return Answer(found, None, seconds=cpu_seconds() - begin)


def iterative_draws(*place):
    """Draw from the posterior of chained ridge regressions, a chain a draw."""
    begin, tables = cpu_seconds(), []
    for m in range(ASKED[place[0]]):
        options = {"sample_posterior": True, "random_state": 1000 * place[-1] + m}
        answer = plain(lambda _, options=options: IterativeImputer(**options), *place)
        tables.append(answer.points)
    draws = [np.stack(part) for part in zip(*tables, strict=True)]
    return Answer(None, draws, seconds=cpu_seconds() - begin)


def ours(make, *place, median=False):
    """Fill by an imputer of skvnce, or by medians of draws; draw in protocol A."""
    protocol = place[0]
    wanted = DRAWS if protocol == "A" else ASKED[protocol] if median else 0
    answer = filled(make, wanted, *place)
    if median:
        answer = answer._replace(points=[np.median(part, 0) for part in answer.draws])
    return answer if protocol == "A" else answer._replace(draws=None)


@lru_cache(1)  # the median needs no second fit where the means were filled just before
def filled(make, wanted, *place):
    """Fit an imputer, fill and draw."""
    case, seed = case_of(*place), place[-1]
    return by_imputer(make(seed), case, case.masked, wanted, seed)[1]


def default(seed):
    """Make the default imputer, which two methods share."""
    return TableImputer(random_state=seed)


def lair(seed):
    """Make an imputer of as many draws as are wanted."""
    return LAIRImputer(n_draws=DRAWS, random_state=seed)


def chained_forests(seed):
    """Make chained random forests, which chain as missForest does."""
    trees = RandomForestRegressor(50, random_state=seed)
    return IterativeImputer(trees, max_iter=ROUNDS, random_state=seed)


PEERS = {f"mice {kind}": Peer("mice", kind) for kind in ("pmm", "cart", "rf")} | {
    "missForest": Peer("missForest"),
    "miceforest": None,  # not run any more
    "UnmaskingTrees": Peer("utrees"),
    "HyperImpute": Peer("hyperimpute"),
}
RIVALS = {
    "KNN(1)": partial(plain, lambda seed: KNNImputer(n_neighbors=1)),
    "IterativeImputer": partial(
        plain, lambda seed: IterativeImputer(random_state=seed)
    ),
    "IterativeImputer, draws": iterative_draws,
    "IterativeImputer, forests": partial(plain, chained_forests),
    **{name: peer and partial(rival, peer) for name, peer in PEERS.items()},
    "ForestDiffusion": None,  # not run any more
}
OURS = {  # None: of ForestImputer, which was removed, only results are left
    "TableImputer": partial(ours, default),
    "TableImputer, median": partial(ours, default, median=True),
    "GaussianImputer": partial(ours, lambda seed: GaussianImputer(random_state=seed)),
    "MixtureImputer": partial(ours, lambda seed: MixtureImputer(random_state=seed)),
    "LAIRImputer": partial(ours, lair),
    **dict.fromkeys(["ForestImputer", "ForestImputer, median", "stack"]),
}
METHODS = RIVALS | OURS


lacking = partial(_cases.lacking, METHODS, PEERS)


GOALS = SPECS["goals"]
SCORES_A, SCORES_B = SPECS["scores"].values()


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
                worst = max(found, key=found.get)
                overall = geometric_mean(found.values())
                good = found[worst] <= most_of_worst and (not most or overall <= most)
                verdict = ("met" if good else "missed") if method in OURS else ""
                cells = [method, NAMES[score], len(found), f"{overall:.3f}"]
                lines.append([*cells, f"{found[worst]:.3f} ({worst})", verdict])
    header = ["method", "score", "tables", "geometric mean", "worst table", ""]
    return table(header, lines)


def by_table(places, score):
    """Make the table of the ratios of ours by table."""
    found = {m: own for m in OURS if (own := ratios(places, m, score))}

    def cell(name, method):
        return f"{found[method][name]:.3f}" if name in found[method] else "-"

    return grid("table", TABLES["A"], [*found], cell)


def table_a(place, reported):
    """Make the table of the scores of a table of protocol A."""
    head = ["MinMAE (reported)", "AvgMAE (reported)"] if reported else []
    scores, lines = place.having(SCORES_A), []
    for method in METHODS:
        notes = [f"{value:.3f}" for value in reported.get(method, ())]
        if place.seeds(method) or notes:
            shown = (notes or ["-", "-"]) if head else []
            lines.append([method, *shown, *place.cells(method, scores)])
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
        for name, way in product(TABLES["D"], WAYS)
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
    some = results.of(protocol="A", mechanism="MCAR")
    names = "crps", "rmse", "mae_median", "min_mae", "energy"
    columns = {
        NAMES[name]: partial(scores_of, some, score=name, place=["table"])
        for name in names
    }
    parts = beside(list(METHODS), columns, [m for m in OURS if OURS[m]])
    return [*parts, TEXTS("losses")] if parts else []


def peers(results):
    """List versions and remarks of the rivals."""
    some = [r for r in results.records if "version" in r]
    found = {r["version"]: r.get("remarks", []) for r in some}
    names = [" ".join([v, *(f"({x})" for x in some)]) for v, some in found.items()]
    return f"Versions: {', '.join(sorted(names)) or 'none'}."


def goals(results):
    """Write the tables of the goals of protocol A."""
    places = {name: Place(results, "A", name, "MCAR") for name in TABLES["A"]}
    yield goals_a(places)
    for score in GOALS:
        yield from (f"### {NAMES[score]} by table", by_table(places, score))


def scores(results):
    """Write the tables of protocols A and B."""
    written = {
        "A": (table_a, "MCAR", REPORTED_A),
        "B": (table_b, "MAR", REPORTED_B),
    }
    for protocol, (write, of_reported, reported) in written.items():
        for mechanism, name in product(MECHANISMS[protocol], TABLES[protocol]):
            place = Place(results, protocol, name, mechanism)
            if any(place.records.values()):
                yield f"## Protocol {protocol}: {name}, {mechanism}"
                yield write(place, reported[name] if mechanism == of_reported else {})


def protocol_d(results):
    """Write the tables of protocol D."""
    for fit in FITS:
        yield from (f"### Learned from {fit}", table_d(results, fit))


def possible(key):
    """Say whether a protocol has a table and a mechanism, of which masks are made."""
    protocol, mechanism = key["protocol"], key["mechanism"]
    there = mechanism in MECHANISMS[protocol] and key["table"] in TABLES[protocol]
    return there and not mechanism.startswith("pyampute")


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    place = [key[name] for name in ("protocol", "table", "mechanism", "seed")]
    case = case_of(*place)

    def score(answer):
        sides = (observed_kept(case, some) for some in (answer.points, answer.draws))
        return SCORERS[place[0]](case, Answer(*sides))

    return scored(partial(METHODS[key["method"]], *place), score)


def observed_kept(case, tables):
    """Return filled tables with the observed cells as they were."""
    if tables is None:
        return None
    parts = zip(tables, case.masked, strict=True)
    return [np.where(np.isnan(masked), filled, masked) for filled, masked in parts]


CASES = {
    "protocol": TABLES,
    "seed": range(3),
    "mechanism": dict.fromkeys(sum(map(list, MECHANISMS.values()), [])),
    "table": dict.fromkeys(sum(map(list, TABLES.values()), [])),
    "method": METHODS,
}
QUICK = {"protocol": ["A"], "table": ["iris"], "seed": [0], "mechanism": ["MCAR"]}
main = main_of(globals(), QUICK | {"method": ["KNN(1)", "GaussianImputer"]})
