"""A mixture of normals with latent classes: its exact conditional distributions.

Rows have numbers z and categories c, which are independent given the component:

    p(z, c) = sum_k pi_k N(z; mean_k, S_k) prod_j theta_kj[c_j]                      (1)
    p(k | observed)  proportional to  pi_k N(z_obs) prod_{j observed} theta_kj[c_j]  (2)

The product over components of eq. (2) and the conditional normals of `kernels` are the
distribution of the missing cells.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._core.incomplete import patterns
from skvnce.mixture.margins import Points

LEAST_SHARE = 1e-2  # responsibility of a row below which EM leaves a component out
NONE = 1e-6  # the same of predictions, whose error is of this order


class Mixture(NamedTuple):
    """Parameters of eq. (1)."""

    weights: np.ndarray  # (n_components,)
    means: np.ndarray  # (n_components, d)
    covariances: np.ndarray  # (n_components, d, d)
    # (n_components, n_categories), probabilities of the categories of each column of
    # them
    classes: tuple[np.ndarray, ...] = ()

    def log_weights(self, codes: np.ndarray) -> np.ndarray:
        """Compute the logarithms of the weights times theta of eq. (2).

        `codes`, int (n, n_categorical): -1 marks missing cells.  Returns (n,
        n_components).
        """
        log_weights = np.tile(np.log(self.weights), (len(codes), 1))
        for code, shares in zip(codes.T, self.classes, strict=True):
            log_shares = np.column_stack([np.log(shares), np.zeros(len(shares))])
            log_weights += log_shares.T[code]  # the last row, of zeros, is that of -1
        return log_weights


class Prepared(NamedTuple):
    """A mixture with what all rows share; see `prepare`."""

    mixture: Mixture
    precisions: np.ndarray  # (n_components, d, d), the inverses of the covariances
    log_dets: np.ndarray  # (n_components,), of the precisions

    @property
    def normals(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and precisions, as the loops over rows take them."""
        return self.mixture.means, self.precisions

    def expected(
        self,
        data: "Arranged",
        weights: np.ndarray,
        skipped: np.ndarray,
        limits: tuple[float, float],
    ) -> tuple[np.ndarray, ...]:
        """Compute expectations of rows; see `kernels.expectation`."""
        from skvnce.mixture import kernels

        prior = self.mixture.log_weights(data.codes)
        given = prior, self.normals, self.log_dets
        return kernels.expectation(data.groups, weights, *given, skipped, limits)


def prepare(mixture: Mixture) -> Prepared:
    """Invert the covariances."""
    precisions = np.linalg.inv(mixture.covariances)
    return Prepared(mixture, precisions, np.linalg.slogdet(precisions)[1])


class Arranged(NamedTuple):
    """Rows, sorted by the pattern of their missing numbers."""

    x: np.ndarray  # (n, d), 0 where missing
    observed: np.ndarray  # bool (n, d)
    # int (n_patterns + 1,), where the rows of each pattern begin, and the number of
    # rows
    starts: np.ndarray
    codes: np.ndarray  # int (n, n_categorical), -1 where missing
    order: np.ndarray  # int (n,), which row of the table each is

    @classmethod
    def of(cls, numbers: np.ndarray, codes: np.ndarray | None = None) -> Self:
        """Sort rows (n, d) of numbers, NaN where missing, and of codes."""
        observed = ~np.isnan(numbers)
        if codes is None:
            codes = np.zeros((len(numbers), 0), dtype=np.int64)
        pattern = patterns(torch.from_numpy(observed))[1].numpy()
        order = np.argsort(pattern, kind="stable")
        starts = np.concatenate([[0], np.bincount(pattern).cumsum()])
        x = np.where(observed, numbers, 0.0)[order]
        return cls(x, observed[order], starts, codes[order], order)

    @property
    def groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and their patterns, as the loops over rows take them."""
        return self.x, self.observed, self.starts

    def restored(self, rows: np.ndarray) -> np.ndarray:
        """Undo the order of rows (..., n, width)."""
        table = np.empty_like(rows)
        table[..., self.order, :] = rows
        return table


def responsibilities(
    prepared: Prepared, data: Arranged
) -> tuple[np.ndarray, np.ndarray]:
    """Compute eq. (2) and log-densities of the observed cells.

    Returns `shares` (n, n_components): eq. (2), in the order of `data`; those below
    1e-6 are 0; `log_density` (n,).
    """
    shape = len(data.x), len(prepared.log_dets)
    # without weights of rows, because no sum of rows is needed
    given = np.zeros(shape[0]), np.zeros(shape, dtype=bool), (-np.inf, NONE)
    return prepared.expected(data, *given)[:2]


def conditional_means(
    mixture: Mixture,
    data: Arranged,
    points: Points,  # the functions
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Compute means of functions of missing numbers, and probabilities of categories.

    Returns `means` (n, d): in the order of the table; arbitrary in
    observed cells; `probabilities` (n, n_categories).
    """
    from skvnce.mixture import kernels

    prepared = prepare(mixture)
    shares, _ = responsibilities(prepared, data)
    means = kernels.fill_rows(data.groups, shares, prepared.normals, tuple(points))
    levels = [data.restored(shares @ levels) for levels in mixture.classes]
    return data.restored(means), levels


def choose(shares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Choose components (..., n) by shares (n, n_components), and uniform numbers."""
    components = (uniform[..., None] > shares.cumsum(1)).sum(-1)
    return np.minimum(components, (shares > 0).cumsum(1).argmax(1))  # of a sum below 1


def draw(
    mixture: Mixture,
    data: Arranged,
    uniform: np.ndarray,
    noise: np.ndarray,  # (n_draws, n, d), standard normal numbers
    uniform_levels: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Draw missing cells from their joint distribution.

    `uniform` (n_draws, n): uniform numbers that choose the component, in the order of
    the table; `uniform_levels` (n_draws, n): uniform numbers for each column of
    categories.  Returns `numbers` (n_draws, n, d); `codes`, int (n_draws, n,
    n_categorical).
    """
    from skvnce.mixture import kernels

    prepared = prepare(mixture)
    shares, _ = responsibilities(prepared, data)
    components = choose(shares, uniform[:, data.order])
    rows = np.ascontiguousarray(noise[:, data.order])
    kernels.draw_rows(data.groups, components, rows, prepared.normals)
    codes = np.tile(data.codes, (len(uniform), 1, 1))
    for j, levels in enumerate(mixture.classes):
        below = levels.cumsum(1)[:, :-1][components]
        new = (uniform_levels[j][:, data.order, None] > below).sum(-1)
        codes[..., j] = np.where(codes[..., j] < 0, new, codes[..., j])
    return data.restored(rows), data.restored(codes)
