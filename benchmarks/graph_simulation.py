"""Simulated truncated Gaussians of which the graph is known.

Settings of Rhodes and Gutmann (2019), section 5 (``ring`` and ``hub``: d = 20, b = 0;
the diagonal is the largest absolute row sum + 0.1, which the paper leaves open) and of
Rhodes (2018), chapter 5 (``thesis``: d = 5, unit diagonal, b = K 1).  ``ring-mixed``
and ``hub-mixed`` give the edges random signs: all edges of both papers are positive,
which flatters estimates that are biased upwards.
"""

from typing import NamedTuple

import numpy as np
import torch
from plain_gibbs import gibbs, missing_cells

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import run_chain
from skvnce._core.random import seeded
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

GRAPHS = ("ring", "hub", "ring-mixed", "hub-mixed", "thesis")


class Simulated(NamedTuple):
    """A complete table, the truth behind it, and uniform numbers for its masks.

    Cells with ``order < rate`` are hidden, so that the masks of growing rates are
    nested.
    """

    precision: np.ndarray
    linear: np.ndarray
    X: np.ndarray
    order: np.ndarray

    def hide(self, rate):
        """Hide cells completely at random; rows that lose all of them are dropped."""
        X = np.where(self.order < rate, np.nan, self.X)
        return X[~np.isnan(X).all(1)]


def simulate(kind, seed, n_samples=1000, n_features=None):
    """Draw a graph and a table; ``n_features`` is that of the papers unless given."""
    rng = np.random.default_rng(seed)
    thesis = kind == "thesis"
    K = precision(kind, rng, n_features or (5 if thesis else 20))
    b = K @ np.ones(len(K)) if thesis else np.zeros(len(K))
    X = draw(K, b, n_samples, seed)
    return Simulated(K, b, X, rng.uniform(size=X.shape))


def precision(kind, rng, d):
    """Draw a precision matrix."""
    base, _, signs = kind.partition("-")
    A = ring(rng, d)
    if base == "hub":
        add_hubs(A, rng)
    if signs == "mixed":
        flips = np.triu(rng.choice([-1, 1], (d, d)), 1)
        A = A * (flips + flips.T)
    diagonal = 1.0 if base == "thesis" else np.abs(A).sum(1).max() + 0.1
    return A + diagonal * np.eye(d)


def ring(rng, d):
    """Link each feature with the next and the last with the first."""
    A, i = np.zeros((d, d)), np.arange(d)
    A[i, (i + 1) % d] = rng.uniform(0.3, 0.5, d)
    return np.maximum(A, A.T)


def add_hubs(A, rng):
    """Link d / 10 features with d / 4 - 2 more features each."""
    d = len(A)
    for hub in rng.choice(d, d // 10, replace=False):
        free = np.flatnonzero((A[hub] == 0) & (np.arange(d) != hub))
        for other in rng.choice(free, d // 4 - 2, replace=False):
            A[hub, other] = A[other, hub] = rng.uniform(0.3, 0.5)


def draw(K, b, n_samples, seed, n_sweeps=300):
    """Draw rows by Gibbs sampling, one chain each."""
    model = TruncatedGaussian(torch.tensor(K), torch.tensor(b))
    start = torch.ones(n_samples, len(K), dtype=torch.float64)
    data = Incomplete(start, torch.zeros_like(start, dtype=torch.bool))
    sampler = gibbs(model, missing_cells(data.observed))
    with seeded(seed):
        return run_chain(sampler, sampler.init(data, start), data, n_sweeps).x.numpy()
