"""Rivals of `wild.py` that draw 20 tables: their best guess is what these say together.

They get the levels of text as codes; of many levels the rarer ones share one, and names
of rows are filled by the most frequent one. R's mice needs `Rscript` with the packages
mice, nnet and rpart; miceforest 6.0.5 needs lightgbm 4.6.0.
"""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _mice import installed as has_mice
from _wild_tables import CATEGORY, NAME, kind_of
from mixed_rivals import execute
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

DRAWS, ROUNDS = 20, 5
LIMIT = 300  # seconds of CPU of R for a table
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
        execute([*command, str(DRAWS), str(seed + 1)], LIMIT)
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
    from _wild_methods import Coded

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
