"""A mixture of normals with latent classes: its exact conditional distributions.

Rows have numbers z and categories c, which are independent given the component:

    p(z, c) = sum_k pi_k N(z; mean_k, S_k) prod_j theta_kj[c_j]                      (1)
    p(k | observed)  proportional to  pi_k N(z_obs) prod_{j observed} theta_kj[c_j]  (2)

The product over components of eq. (2) and the conditional normals of `kernels` are the
distribution of the missing cells.
"""

from collections.abc import Sequence
from itertools import pairwise
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
        found = np.tile(np.log(self.weights), (len(codes), 1))
        for code, shares in zip(codes.T, self.classes, strict=True):
            known = np.column_stack([np.log(shares), np.zeros(len(shares))])
            found += known.T[code]  # the last row, of zeros, is that of -1
        return found


class Prepared(NamedTuple):
    """A mixture with what all rows share; see `prepare`."""

    mixture: Mixture
    precisions: np.ndarray  # (n_components, d, d), the inverses of the covariances
    log_dets: np.ndarray  # (n_components,), of the precisions

    @property
    def normals(self) -> tuple[np.ndarray, np.ndarray]:
        """What the loops over rows need."""
        return self.mixture.means, self.precisions


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
        """What the loops over rows need."""
        return self.x, self.observed, self.starts

    def restored(self, rows: np.ndarray) -> np.ndarray:
        """Undo the order of rows (..., n, width)."""
        found = np.empty_like(rows)
        found[..., self.order, :] = rows
        return found


def responsibilities(
    prepared: Prepared, data: Arranged, least: float = NONE
) -> tuple[np.ndarray, np.ndarray]:
    """Compute eq. (2) and log-densities of the observed cells.

    Returns `shares` (n, n_components): eq. (2), in the order of `data`; those below
    `least` are 0; `log_density` (n,).
    """
    from skvnce.mixture import kernels

    prior = prepared.mixture.log_weights(data.codes)
    nothing = np.zeros(len(prior)), prior  # weights of rows, of which no sum is needed
    rest = prepared.normals, prepared.log_dets, np.zeros(prior.shape, dtype=bool)
    return kernels.expectation(data.groups, *nothing, *rest, (-np.inf, least))[:2]


def conditional_means(
    mixture: Mixture,
    data: Arranged,
    points: Points,  # the functions
    shares: np.ndarray | None = None,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Compute means of functions of missing numbers, and probabilities of categories.

    `shares` (n, n_components): probabilities of the components, in the order of `data`;
    None is eq. (2).  Returns `means` (n, d): in the order of the table; arbitrary in
    observed cells; `probabilities` (n, n_categories).
    """
    from skvnce.mixture import kernels

    prepared = prepare(mixture)
    if shares is None:
        shares, _ = responsibilities(prepared, data)
    given = shares, prepared.normals, tuple(points)
    means = kernels.filled_rows(data.groups, *given)
    levels = [data.restored(shares @ one) for one in mixture.classes]
    return data.restored(means), levels


def conditional_moments(
    prepared: Prepared, data: Arranged
) -> tuple[np.ndarray, np.ndarray]:
    """Compute means and standard deviations of missing numbers in each component.

    Returns `means`, `deviations` (n_components, n, d): in the order of the table; 0 in
    observed cells.
    """
    (centres, precisions), n_components = prepared.normals, len(prepared.log_dets)
    means, deviations = np.zeros((2, n_components, *data.x.shape))
    for first, last in pairwise(data.starts):
        seen = np.flatnonzero(data.observed[first])
        hidden = np.flatnonzero(~data.observed[first])
        inverse = np.linalg.inv(precisions[:, hidden[:, None], hidden])
        gap = data.x[first:last, seen] - centres[:, None, seen]
        pull = gap @ precisions[:, seen[:, None], hidden]
        means[:, first:last, hidden] = centres[:, None, hidden] - pull @ inverse
        spread = np.sqrt(inverse.diagonal(axis1=1, axis2=2))
        deviations[:, first:last, hidden] = spread[:, None]
    return data.restored(means), data.restored(deviations)


def chosen(shares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Choose components (..., n) by shares (n, n_components), and uniform numbers."""
    found = (uniform[..., None] > shares.cumsum(1)).sum(-1)
    return np.minimum(found, (shares > 0).cumsum(1).argmax(1))  # of a sum below 1


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
    components = chosen(shares, uniform[:, data.order])
    rows = np.ascontiguousarray(noise[:, data.order])
    kernels.drawn_rows(data.groups, components, rows, prepared.normals)
    codes = np.tile(data.codes, (len(uniform), 1, 1))
    for j, levels in enumerate(mixture.classes):
        below = levels.cumsum(1)[:, :-1][components]
        new = (uniform_levels[j][:, data.order, None] > below).sum(-1)
        codes[..., j] = np.where(codes[..., j] < 0, new, codes[..., j])
    return data.restored(rows), data.restored(codes)


# ----------------------------------------
# Quantiles of missing numbers by averages of mixtures of normals.
#
# The distribution function of a cell x of a row is the average over members of
#
#     F(x) = sum_k p(k | observed) Phi((s(x) - mean_k) / deviation_k),               (1)
#
# with the scores s of the member, which increase, and the conditional normals of its
# components.  F increases.  Its quantile is between those of the components, and is
# found by steps that alternately halve this interval, and divide it by a line (regula
# falsi).


_STEPS = 20  # errors of F are then below 1e-6


class Given(NamedTuple):
    """The distributions of the missing numbers of rows by one mixture."""

    shares: np.ndarray  # (n, n_components), of the components
    means: np.ndarray  # (n_components, n, d), of scores
    deviations: np.ndarray  # (n_components, n, d)
    points: Points  # from scores to cells

    @classmethod
    def of(cls, mixture: Mixture, data: Arranged, points: Points) -> Self:
        """Compute those of rows."""
        prepared = prepare(mixture)
        shares = data.restored(responsibilities(prepared, data)[0])
        return cls(shares, *conditional_moments(prepared, data), points)

    def column(self, j: int, rows: np.ndarray) -> "Column":
        """Select the cells of a column in some rows, by their indices."""
        shares = self.shares[rows]
        owners, used = shares.nonzero()
        starts = np.searchsorted(owners, np.arange(len(shares)))
        moments = (part[used, rows[owners], j] for part in self[1:3])
        return Column(owners, starts, shares[owners, used], *moments, j, self.points)


class Column(NamedTuple):
    """The distributions of missing cells of one column by one mixture.

    Most components do not count in a row, and are left out.
    """

    # int (n_pairs,), the row of each pair of a row and a component, increasing
    owners: np.ndarray
    starts: np.ndarray  # int (n,), the first pair of each row
    shares: np.ndarray  # (n_pairs,)
    means: np.ndarray  # (n_pairs,)
    deviations: np.ndarray  # (n_pairs,)
    place: int  # of the column
    points: Points

    def below(self, cells: np.ndarray) -> np.ndarray:
        """Compute eq. (1) at cells (n_levels, n)."""
        scores = self.points.scores_of(self.place, cells)[:, self.owners]
        z = torch.from_numpy((scores - self.means) / self.deviations)
        found = torch.special.ndtr(z).numpy() * self.shares
        return np.add.reduceat(found, self.starts, axis=1)

    def ends(self, levels: np.ndarray) -> np.ndarray:
        """Find the outermost quantiles of components; (2, n_levels, n)."""
        z = torch.special.ndtri(torch.from_numpy(levels)).numpy()
        scores = self.means + z * self.deviations
        ends = [
            outermost.reduceat(scores, self.starts, axis=1)
            for outermost in (np.minimum, np.maximum)
        ]
        return np.interp(ends, *self.points.pair(self.place))


def quantiles(
    members: Sequence[Given], missing: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Find quantiles of missing numbers (n, d); (n_levels, n, d), 0 where observed."""
    found = np.zeros((len(levels), *missing.shape))
    for j, rows in enumerate(map(np.flatnonzero, missing.T)):
        if len(rows):
            columns = [one.column(j, rows) for one in members]
            found[:, rows, j] = _inverted(columns, levels[:, None])
    return found


def _inverted(columns: Sequence[Column], levels: np.ndarray) -> np.ndarray:
    """Find where the average of eq. (1) over members reaches levels; (n_levels, n)."""

    def shares(cells: np.ndarray) -> np.ndarray:
        return sum(one.below(cells) for one in columns) / len(columns)

    def divided(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Find the cells where a line reaches the levels."""
        width = (up_to - below).clip(np.finfo(float).tiny)
        return low + ((levels - below) / width).clip(0, 1) * (high - low)

    ends = np.array([one.ends(levels) for one in columns])
    low, high = ends[:, 0].min(0), ends[:, 1].max(0)
    below, up_to = shares(low), shares(high)
    for number in range(_STEPS):
        middle = divided(low, high) if number % 2 else low + (high - low) / 2
        share = shares(middle)
        is_less = share < levels
        low, high = np.where(is_less, [middle, high], [low, middle])
        below, up_to = np.where(is_less, [share, up_to], [below, share])
    return divided(low, high)
