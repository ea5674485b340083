"""Tables of several tests; misfits of tables."""

import warnings

import numpy as np
import torch
from scipy.sparse import csr_array

from skvnce.exceptions import MisfitWarning
from skvnce.missingness import mcar
from skvnce.noisy_or.estimator import torch_rows
from skvnce.table_imputer.normal import Prior


def cells_of(table):
    """List the cells of all rows, in double precision."""
    return torch_rows(csr_array(table)).cells(torch.arange(len(table)), torch.float64)


def misfits(estimator, X, **parameters):
    """Fit, and list what the fit says of a table that is beyond its model."""
    with warnings.catch_warnings(record=True, action="always") as found:
        estimator.fit(X, **parameters)
    return [str(w.message) for w in found if w.category is MisfitWarning]


def fills(imputer, X, n_draws, **options):
    """Return the filled table, and tables of draws."""
    return [imputer.transform(X, **options), *imputer.sample(X, n_draws, 0, **options)]


def normal_table(seed, n=200, d=4):
    """Make rows of one factor, and a mask of three tenths of their cells."""
    rng = np.random.default_rng(seed)
    full = 0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, d))
    return full, mcar(full, 0.3, random_state=seed)


def ring(seed, n=400):
    """Draw points of a ring, with a column that is their product."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    X = np.column_stack([np.cos(angle), np.sin(angle), np.sin(2 * angle)])
    return X + 0.05 * rng.normal(size=X.shape)


def covariance_of(d, seed, n=60):
    """Give the correlations of a table whose columns depend on each other."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 0.7 * rng.normal(size=(n, 1))
    return torch.tensor(np.corrcoef(x.T))


def independent(strength, X):
    """Make a prior of `TableImputer`'s normal distribution: independent columns."""
    return Prior(strength, np.eye(X.shape[-1]))
