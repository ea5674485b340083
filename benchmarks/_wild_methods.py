"""Methods that `wild.py` compares: each has fit, transform, and sample if it draws.

All take a data frame of numbers and text with missing cells; `transform` and `sample`
get the table of `fit`.
"""

import importlib.util
import inspect
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _mice import installed as has_mice
from _wild_tables import CATEGORY, NAME, kind_of
from mixed_rivals import execute
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

DRAWS, ROUNDS = 20, 5
LEVELS = 30  # of a category; rarer ones are the most frequent of them
_SCRIPT = Path(__file__).with_name("_mixed_mice.R")


class Drawn:
    """A method that fills the table of `fit` by draws."""

    def __init__(self, draw, random_state=None):
        self.draw, self.random_state = draw, random_state

    def fit(self, X):
        """Draw tables."""
        self.draws = self.draw(X, self.random_state)
        return self

    def transform(self, X):
        """Fill means of draws, and the most frequent level among them."""
        filled = X.copy()
        for name in X:
            gaps, cells = X[name].isna(), [draw[name] for draw in self.draws]
            cells = pd.concat([column[gaps] for column in cells], axis=1)
            if not len(cells):
                continue
            number = pd.api.types.is_numeric_dtype(X[name])
            best = cells.mean(axis=1) if number else cells.mode(axis=1)[0]
            filled[name] = X[name].astype(best.dtype).fillna(best)
        return filled

    def sample(self, X, n_draws, random_state):
        """Return the draws."""
        return self.draws[:n_draws]


def common_levels(column):
    """Return the most frequent levels of a column, and the column with them alone."""
    levels = list(column.value_counts().index[: LEVELS + 1])
    known = column.isna() | column.isin(levels)
    return levels, column.where(known, levels[-1])


def coded(X):
    """Replace text by codes of levels; names of rows are left out."""
    kinds = {c: kind_of(X[c]) for c in X}
    table = X.drop(columns=[c for c, kind in kinds.items() if kind == NAME])
    levels = {}
    for name in [c for c in table if kinds[c] == CATEGORY]:
        levels[name], column = common_levels(table[name])
        codes = pd.Index(levels[name]).get_indexer(column)
        table[name] = np.where(table[name].isna(), np.nan, codes)
    return table.astype(float), levels


def decoded(cells, X, table, levels):
    """Fill a table by the cells (n, columns) of its coded form."""
    filled = X.copy()
    for j, name in enumerate(table):
        column = pd.Series(cells[:, j], index=X.index)
        if name in levels:
            codes = column.fillna(0).astype(int)
            column = pd.Series(np.array(levels[name], object)[codes], index=X.index)
        filled[name] = X[name].astype(column.dtype).fillna(column)
    for name in X.columns.difference(table.columns):
        filled[name] = X[name].fillna(X[name].mode()[0])
    return filled


def mice(X, seed, *, method):
    """Run R's mice: 20 imputations of five iterations."""
    table, levels = coded(X)
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        table.to_numpy().T.astype("<f8").tofile(folder / "table.bin")
        shape = *table.shape, len(table)
        (folder / "shape.txt").write_text(" ".join(map(str, shape)))
        kinds = {c: f"nominal {len(levels[c])}" for c in levels}
        lines = [kinds.get(c, "numeric 0") for c in table]
        (folder / "columns.txt").write_text("\n".join(lines) + "\n")
        command = ["Rscript", "--vanilla", str(_SCRIPT), str(folder), method]
        execute([*command, str(DRAWS), str(seed + 1)], LONG)
        cells = np.fromfile(folder / "draws.bin", "<f8")
    draws = cells.reshape(DRAWS, table.shape[1], len(table)).transpose(0, 2, 1)
    return [decoded(draw, X, table, levels) for draw in draws]


def miceforest(X, seed):
    """Run miceforest: 20 chains of five iterations of boosted trees.

    Categories are matched by "fast" where the default fails.
    """
    from miceforest import ImputationKernel

    table, levels = coded(X)
    frame = table.set_axis([f"c{j}" for j in range(table.shape[1])], axis=1)
    frame = frame.reset_index(drop=True)
    text = [f"c{j}" for j, name in enumerate(table) if name in levels]
    frame[text] = frame[text].astype("Int64").astype("category")

    def run(strategy):
        kernel = ImputationKernel(
            frame,
            num_datasets=DRAWS,
            mean_match_strategy=strategy,
            random_state=seed,
        )
        kernel.mice(ROUNDS, num_threads=1, verbose=False)
        return [kernel.complete_data(m).astype(float) for m in range(DRAWS)]

    try:
        draws = run("normal")
    except Exception:  # whatever it raises; that of the second run is reported
        gaps = [c for c in text if frame[c].isna().any()]
        draws = run(dict.fromkeys(gaps, "fast"))
    return [decoded(draw.to_numpy(), X, table, levels) for draw in draws]


def posterior(X, seed):
    """Draw from chained Bayesian ridge regressions of scikit-learn."""
    options = {"sample_posterior": True, "keep_empty_features": True}
    draws = []
    for m in range(DRAWS):
        model = IterativeImputer(random_state=seed * DRAWS + m, **options)
        draws.append(Coded(model).fit(X).transform(X))
    return draws


POSTERIOR = "IterativeImputer, 20 draws"
MICE = {f"R mice, {kind}": kind for kind in ("default", "cart")}
RIVALS = {POSTERIOR: posterior, "miceforest": miceforest}
RIVALS |= {name: partial(mice, method=kind) for name, kind in MICE.items()}
RIVALS = {name: partial(Drawn, draw) for name, draw in RIVALS.items()}


def lacking(name):
    """Say whether the software of a rival is not installed here."""
    if name in MICE:
        return not has_mice()
    return name == "miceforest" and find_spec("miceforest") is None


TREES = 50
LIMIT, LONG = 60, 300  # seconds of CPU; of rivals that take many times as long


class Marginal:
    """Fill means and most frequent values; draw observed cells of the column."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X):
        """Keep the table."""
        self.table = X
        return self

    def transform(self, X):
        """Fill means of numbers, the most frequent level of text."""
        numbers = X.select_dtypes("number").columns
        other = {c: X[c].mean() if c in numbers else X[c].mode()[0] for c in X}
        return X.fillna(other)

    def sample(self, X, n_draws, random_state):
        """Draw each missing cell from the observed ones of its column."""
        rng, draws = np.random.default_rng(random_state), []
        for _ in range(n_draws):
            draw = {c: X[c].to_numpy(copy=True) for c in X}
            for name, cells in draw.items():
                gaps = X[name].isna().to_numpy()
                cells[gaps] = rng.choice(cells[~gaps], gaps.sum())
            draws.append(pd.DataFrame(draw))
        return draws


class Coded:
    """An imputer of numbers, on a table whose text is indicators of levels.

    The most frequent level has none, as the others determine it: an imputer that fills
    columns in turn would fill each from the rest of the same cell, and stay where it
    starts. The level of a missing cell is that of the largest indicator, where that
    of the most frequent level is one minus the others.
    """

    def __init__(self, imputer, scaled=False):
        self.imputer, self.scaled = imputer, scaled

    def fit(self, X):
        """Encode the table, and fit."""
        self.imputer.fit(self._encoded(X))
        return self

    def transform(self, X):
        """Fill the encoded table, and decode it."""
        return self._decoded(self.imputer.transform(self._encoded(X)), X)

    def _encoded(self, X):
        self.text = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
        parts = [X.drop(columns=self.text).to_numpy(float)]
        self.levels = {}
        for name in self.text:
            levels, cells = common_levels(X[name])
            ones = (cells.to_numpy()[:, None] == np.array(levels[1:], object)) + 0.0
            ones[X[name].isna()] = np.nan
            self.levels[name] = levels
            parts.append(ones)
        encoded = np.concatenate(parts, 1)
        if not self.scaled:
            return encoded
        self.scaler = StandardScaler().fit(encoded)
        return self.scaler.transform(encoded)

    def _decoded(self, filled, X):
        if self.scaled:
            filled = self.scaler.inverse_transform(filled)
        result, start = X.copy(), X.shape[1] - len(self.text)
        numbers = [c for c in X if c not in self.text]
        for j, name in enumerate(numbers):
            result[name] = X[name].fillna(pd.Series(filled[:, j], index=X.index))
        for name, levels in self.levels.items():
            end = start + len(levels) - 1
            ones, start = filled[:, start:end], end
            ones = np.column_stack([1 - ones.sum(1), ones])
            best = pd.Series(np.array(levels, object)[ones.argmax(1)], index=X.index)
            result[name] = X[name].astype(object).fillna(best)
        return result


def iterative(random_state):
    """Chained Bayesian ridge regressions, as scikit-learn has them by default."""
    options = {"random_state": random_state, "keep_empty_features": True}
    return Coded(IterativeImputer(**options))


def neighbours(random_state):
    """Five nearest neighbours, on standardised columns."""
    return Coded(KNNImputer(keep_empty_features=True), scaled=True)


def forests(random_state):
    """Chained random forests of scikit-learn."""
    forest = RandomForestRegressor(TREES, random_state=random_state, n_jobs=1)
    options = {"random_state": random_state, "keep_empty_features": True}
    return Coded(IterativeImputer(forest, max_iter=ROUNDS, **options))


def of_skvnce(name, random_state):
    """Make an imputer of skvnce with its defaults."""
    import skvnce

    return getattr(skvnce, name)(random_state=random_state).set_output(
        transform="pandas"
    )


BASE, CLOCK = "mean and mode", "IterativeImputer"
OURS = "TableImputer", "GaussianImputer", "MixtureImputer", "ForestImputer"
FORESTS = "chained forests"
METHODS = {BASE: Marginal, CLOCK: iterative}
METHODS |= {name: partial(of_skvnce, name) for name in (*OURS, "ColumnImputer")}
METHODS |= {"KNNImputer": neighbours, FORESTS: forests} | RIVALS


def limit_of(name):
    """Return the seconds of CPU that a method has for a table."""
    return LONG if name in RIVALS or name == FORESTS else LIMIT


def absent(name):
    """Say whether a method is not installed here."""
    import skvnce

    ours = name in (*OURS, "ColumnImputer")
    return lacking(name) or (ours and not hasattr(skvnce, name))


def made(name, seed):
    """Make a method: one of the list, or FILE:CLASS."""
    if name in METHODS:
        return METHODS[name](random_state=seed)
    path, _, attribute = name.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    candidate = getattr(module, attribute)
    asked = inspect.signature(candidate).parameters
    return candidate(random_state=seed) if "random_state" in asked else candidate()
