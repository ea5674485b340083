"""Methods that `wild.py` compares: each has fit, transform, and sample if it draws.

All take a data frame of numbers and text with missing cells; `transform` and `sample`
get the table of `fit`.
"""

import importlib.util
import inspect
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from _wild_rivals import RIVALS, common_levels, lacking
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

TREES, ROUNDS = 50, 5
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
