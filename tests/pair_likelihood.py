"""Tables of two columns, and the correlation that maximises their likelihood."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

CUTS = {"number": (), "ordinal": (-1.0, -0.3, 0.3, 1.0), "binary": (0.3,)}
NODES, WIDTH = np.polynomial.legendre.leggauss(60)
FAR = 9.0


def read(z, kind):
    """Map latent variables (n,) to cells of a kind."""
    return np.exp(z) if kind == "number" else np.digitize(z, CUTS[kind]).astype(float)


def pair(kinds, r, n, missing, seed):
    """Draw a table of two columns."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    z[:, 1] = r * z[:, 0] + np.sqrt(1 - r**2) * z[:, 1]
    X = np.column_stack([read(*one) for one in zip(z.T, kinds, strict=True)])
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X


def bounds(cells, kind):
    """Return the bounds of the normal scores of observed cells; equal for numbers."""
    if kind == "number":
        scores = ndtri((rankdata(cells) - 0.5) / len(cells))
        return scores, scores
    shares = np.bincount(cells.astype(int), minlength=len(CUTS[kind]) + 1) / len(cells)
    ends = np.concatenate([[-FAR], ndtri(shares.cumsum()[:-1]), [FAR]])
    return ends[cells.astype(int)], ends[cells.astype(int) + 1]


def maximum_likelihood(X, kinds):
    """Maximise the likelihood of the correlation, given the marginals."""
    limits = []
    for cells, kind in zip(X.T, kinds, strict=True):
        ends = np.full((2, len(cells)), np.nan)
        seen = ~np.isnan(cells)
        ends[:, seen] = bounds(cells[seen], kind)
        limits.append(ends)
    both = ~np.isnan(X).any(1)
    first, second = (one[:, both] for one in limits)
    if kinds[0] != "number" and kinds[1] == "number":
        first, second = second, first
    cells, counts = np.unique(np.vstack([first, second]), axis=1, return_counts=True)

    def loss(r):
        return -(counts * log_likelihood(r, *cells)).sum()

    return minimize_scalar(loss, bounds=(-0.995, 0.995), method="bounded").x


def log_likelihood(r, a, b, low, high):
    """Compute that of cells, whose scores are between a and b, and low and high."""
    scale = np.sqrt(1 - r**2)
    if (low == high).all():  # both are numbers
        return -(((low - r * a) / scale) ** 2) / 2 - np.log(scale)
    half, middle = (b - a)[:, None] / 2, (a + b)[:, None] / 2
    z = middle + half * NODES  # a point if the first is a number
    inner = ndtr((high[:, None] - r * z) / scale) - ndtr((low[:, None] - r * z) / scale)
    weight = np.where(half > 0, half * np.exp(-(z**2) / 2), 1.0) * WIDTH
    return np.log(np.maximum((inner * weight).sum(1), 1e-300))
