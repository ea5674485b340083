"""Methods that `protocols.py` compares; a line in `METHODS` adds one.

A method takes a `Case`, a seed and the number of draws that the protocol asks for, and
returns an `Answer`.
"""

import time
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
import pandas as pd
from _mice import Mice, installed
from mixed_rivals import Missing
from protocol_rivals import Rival, has_module
from protocol_scores import Answer
from protocol_tables import dummies
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

from skvnce import GaussianImputer, LAIRImputer, MixtureImputer, TableImputer

DRAWS = 50  # of ours in protocol A
ROUNDS = 5  # of chained forests


def seconds():
    """Return the CPU time of this process and of those that it waited for."""
    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Plain:
    """Imputers of arrays of numbers, on scaled columns; one filled table each.

    Classes of three levels and more, which are complete, are columns of zeros and ones.
    """

    def __init__(self, make):
        self.make = make

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        begin = seconds()
        tables = [coded(case, part) for part in case.masked]
        scaler = StandardScaler().fit(tables[0])
        imputer = self.make(seed).fit(scaler.transform(tables[0]))
        filled = (imputer.transform(scaler.transform(x)) for x in tables)
        found = [
            decoded(case, part, scaler.inverse_transform(x))
            for part, x in zip(case.masked, filled, strict=True)
        ]
        return Answer(found, None, seconds() - begin)


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
    begin, tables = seconds(), []
    for m in range(n_draws):
        options = {"sample_posterior": True, "random_state": 1000 * seed + m}
        plain = Plain(lambda _, options=options: IterativeImputer(**options))
        tables.append(plain(case, seed, 1).points)
    draws = [np.stack(part) for part in zip(*tables, strict=True)]
    return Answer(None, draws, seconds() - begin)


class Chained:
    """R's mice with one kind of model for all columns.

    It returns draws of the rows that it has not learned from, or else of those that it
    has; of two parts it therefore fills means of the draws.
    """

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        begin = seconds()
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
            return Answer(None, [draws], seconds() - begin, notes)
        points = [decoded(case, case.masked[0], model.transform(tables[0]))]
        return Answer([*points, draws.mean(0)], None, seconds() - begin, notes)


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
        begin, frames = seconds(), [frame(case, part) for part in case.masked]
        model = self.make(seed).set_output(transform="pandas").fit(frames[0])
        points = [as_codes(model.transform(part)) for part in frames]
        draws = [
            np.stack(
                [as_codes(one) for one in model.sample(part, wanted, random_state=seed)]
            )
            for part in frames
            if wanted
        ]
        return Answer(points, draws or None, seconds() - begin)


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
}
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
