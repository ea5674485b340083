"""The imputers that are compared; a line in `METHODS` adds one.

An entry makes, from a seed, an object with ``fit(X)`` on the training rows with NaN,
``transform(X)`` to a filled table, and, if it can draw, ``sample(X, n_draws=,
random_state=)`` to (n_draws, n, d).  One that cannot afford as many draws as the
others says how many it makes (``draws_at_most``).
"""

from functools import partial

import _cases
import numpy as np
from _peers import Mice, Peer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import RidgeCV

import skvnce


class ChainedDraws:
    """Posterior draws of chained Bayesian regressions: one chain, many transforms."""

    def __init__(self, seed):
        self.seed = seed
        self.chain = IterativeImputer(sample_posterior=True, random_state=seed)

    def fit(self, X):
        """Run the chain."""
        self.chain.fit(X)
        return self

    def transform(self, X):
        """Fill by one draw."""
        return self.sample(X, 1, self.seed)[0]

    def sample(self, X, n_draws, random_state):
        """Draw tables."""
        # what a transform draws, it takes from this public attribute
        self.chain.random_state_ = np.random.RandomState(random_state)
        return np.stack([self.chain.transform(X) for _ in range(n_draws)])


def columns_of(regressor):
    """Make the maker of a ColumnImputer, one regressor the model of all columns."""
    return lambda seed: skvnce.ColumnImputer(regressor=regressor, random_state=seed)


MICE = {f"mice {kind}": Peer("mice", kind) for kind in ("pmm", "norm", "cart")}
REMOVED = "ForestImputer", "stack"  # only results are left
RIVALS = {
    "BR": lambda seed: IterativeImputer(random_state=seed),
    "BR draws": ChainedDraws,
    **{name: partial(Mice, peer) for name, peer in MICE.items()},
}
OURS = {
    "TableImputer": lambda seed: skvnce.TableImputer(random_state=seed),
    "GaussianImputer": lambda seed: skvnce.GaussianImputer(),
    "LAIRImputer": lambda seed: skvnce.LAIRImputer(random_state=seed),
    "MixtureImputer": lambda seed: skvnce.MixtureImputer(random_state=seed),
    **dict.fromkeys(REMOVED),
    "boosted columns": columns_of(HistGradientBoostingRegressor(random_state=0)),
    "linear columns": columns_of(RidgeCV()),
    "VGIImputer": lambda seed: skvnce.VGIImputer(random_state=seed),
}
METHODS = RIVALS | OURS
# methods that take minutes a cell have fewer seeds than asked for
SEEDS_AT_MOST = {"boosted columns": 1, "mice cart": 1}
lacking = partial(_cases.lacking, METHODS, MICE)
