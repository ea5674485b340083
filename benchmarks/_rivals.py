"""The imputers that are compared; a line in `METHODS` adds one.

An entry makes, from a seed, an object with ``fit(X)`` on the training rows with NaN,
``transform(X)`` to a filled table, and, if it can draw, ``sample(X, n_draws=,
random_state=)`` to (n_draws, n, d).  One that leaves NaN is scored by the predictions
made from its table only.  One that cannot afford as many draws as the others says how
many it makes (``draws_at_most``).
"""

from functools import partial

import numpy as np
from _mice import Mice, installed
from _miwae import MIWAE
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skvnce import (
    ColumnImputer,
    GaussianImputer,
    LAIRImputer,
    MixtureImputer,
    TableImputer,
    VariationalAutoencoder,
    VGIImputer,
)

COMPLETE = "complete data"


class ScaledKNN:
    """Ten nearest rows, on columns scaled by their observed training cells."""

    def fit(self, X):
        """Scale and remember the rows."""
        self.scaler = StandardScaler()
        self.filler = make_pipeline(self.scaler, KNNImputer(n_neighbors=10)).fit(X)
        return self

    def transform(self, X):
        """Fill in the units of X."""
        filled = self.scaler.inverse_transform(self.filler.transform(X))
        return np.where(np.isnan(X), filled, X)


class ChainedDraws:
    """Posterior draws of chained Bayesian regressions: one chain, many transforms.

    ``transform`` is the mean of ``n_mean`` draws.
    """

    def __init__(self, seed, n_mean=1):
        self.seed, self.n_mean = seed, n_mean
        self.chain = IterativeImputer(sample_posterior=True, random_state=seed)

    def fit(self, X):
        """Run the chain."""
        self.chain.fit(X)
        return self

    def transform(self, X):
        """Fill by one draw, or by the mean of some."""
        return sum(self._draws(X, self.n_mean, self.seed)) / self.n_mean

    def sample(self, X, n_draws, random_state):
        """Draw tables."""
        return np.stack(list(self._draws(X, n_draws, random_state)))

    def _draws(self, X, n_draws, seed):
        # what a transform draws, it takes from this public attribute
        self.chain.random_state_ = np.random.RandomState(seed)
        return (self.chain.transform(X) for _ in range(n_draws))


class ChainedDrawsMean(ChainedDraws):
    """The mean of 100 such draws, a point filling."""

    sample = None

    def __init__(self, seed):
        super().__init__(seed, n_mean=100)


def extra_trees(seed):
    """Make chained extremely randomised trees."""
    trees = ExtraTreesRegressor(n_estimators=50, random_state=seed)
    return IterativeImputer(trees, random_state=seed)


def lair_of(algorithm):
    """Make the maker of a LAIRImputer whose autoencoder has another algorithm."""
    return lambda seed: LAIRImputer(
        VariationalAutoencoder(algorithm=algorithm), random_state=seed
    )


def vgi_of(model):
    """Make the maker of a VGIImputer of another model than its default."""
    return lambda seed: VGIImputer(model, random_state=seed)


def columns_of(regressor):
    """Make the maker of a ColumnImputer, one regressor the model of all columns."""
    return lambda seed: ColumnImputer(regressor=regressor, random_state=seed)


VGI_MODELS = {
    "VGI, flow": "flow",
    "VGI, factor analysis": "factor-analysis",
}
MICE = {f"mice {kind}": kind for kind in ("pmm", "norm", "cart", "rf")}
BOUNDS = {
    "MVAE": "mvae",
    "MissVAE": "miss-vae",
    "MissSVAE": "miss-svae",
    "MissIWAE": "miss-iwae",
    "MissSIWAE": "miss-siwae",
    "DeMissVAE": "demiss-vae",
    "VBGI-VAE": "vbgi-vae",
}
REMOVED = "ForestImputer", "ForestImputer, LAIR", "stack"  # only results are left
METHODS = {
    "mean": lambda seed: SimpleImputer(),
    "KNN": lambda seed: ScaledKNN(),
    "BR": lambda seed: IterativeImputer(random_state=seed),
    "BR draws": ChainedDraws,
    "BR mean of draws": ChainedDrawsMean,
    "ExtraTrees": extra_trees,
    **{name: partial(Mice, kind) for name, kind in MICE.items()},
    "MIWAE": lambda seed: MIWAE(random_state=seed),
    "TableImputer": lambda seed: TableImputer(random_state=seed),
    "GaussianImputer": lambda seed: GaussianImputer(),
    "Gaussian, normal marginals": lambda seed: GaussianImputer(marginals="normal"),
    "Gaussian, fixed parameters": lambda seed: GaussianImputer(n_parameter_draws=0),
    "LAIRImputer": lambda seed: LAIRImputer(random_state=seed),
    **{f"LAIR, {name}": lair_of(value) for name, value in BOUNDS.items()},
    "MixtureImputer": lambda seed: MixtureImputer(random_state=seed),
    **dict.fromkeys(REMOVED),
    "boosted columns": columns_of(HistGradientBoostingRegressor(random_state=0)),
    "linear columns": columns_of(RidgeCV()),
    "VGIImputer": lambda seed: VGIImputer(random_state=seed),
    **{name: vgi_of(model) for name, model in VGI_MODELS.items()},
    "raw NaN": lambda seed: FunctionTransformer(),
    COMPLETE: lambda seed: FunctionTransformer(),
}
# methods that take minutes a cell have fewer seeds than asked for
SEEDS_AT_MOST = {"ExtraTrees": 1, "MIWAE": 1, "boosted columns": 1}
SEEDS_AT_MOST |= dict.fromkeys(VGI_MODELS, 1)
SEEDS_AT_MOST |= {"mice cart": 1, "mice rf": 1}
SEEDS_AT_MOST |= {f"LAIR, {name}": 1 for name in BOUNDS}


def lacking(methods):
    """List the methods that cannot be run here."""
    return [m for m in methods if m in REMOVED or m in MICE and not installed()]
