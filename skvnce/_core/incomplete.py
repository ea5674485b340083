"""Tables with missing cells: masks, units and patterns."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from math import log, pi
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from skvnce._core.distributions.normal import (
    Covariances,
    FactoredNormal,
    Normal,
    cholesky,
)

# ----------------------------------------
# Tables with missing values: values and a boolean mask.


class Incomplete(NamedTuple):
    """A table with missing values."""

    # (n, features), the values, zero where missing. A zero does not mean that a value
    # is missing
    x: Tensor
    observed: Tensor  # bool (n, features), True where the value was observed

    @classmethod
    def from_array(cls, array: np.ndarray, dtype: torch.dtype = torch.float64) -> Self:
        """Copy an array in which NaN marks missing values."""
        # torch reads no arrays with negative strides
        x = torch.tensor(np.ascontiguousarray(array), dtype=dtype)
        observed = ~x.isnan()
        # zeros, because products with NaN are NaN, also those with a weight of 0
        return cls(x.where(observed, x.new_zeros(())), observed)

    def to_array(self) -> np.ndarray:
        """Return an array of double precision, with NaN where the value is missing."""
        x = self.x.where(self.observed, self.x.new_tensor(torch.nan))
        return x.cpu().numpy().astype(np.float64)

    def with_values(self, x: Tensor) -> Tensor:
        """Return `x` with the observed cells restored exactly."""
        return torch.where(self.observed, self.x, x)

    def on(self, device: torch.device) -> Self:
        """Return the table on a device."""
        return type(self)(self.x.to(device), self.observed.to(device))

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        return type(self)(self.x[rows], self.observed[rows])


# ----------------------------------------
# Location and scale of columns: from the units of the user to those of a model.


class Units(NamedTuple):
    """Location and scale of the columns of a model, as arrays (features,)."""

    location: np.ndarray
    scale: np.ndarray

    @classmethod
    def none(cls, width: int) -> Self:
        """Leave columns as they are."""
        return cls(np.zeros(width), np.ones(width))

    def scaled(self, nodes: np.ndarray) -> Incomplete:
        """Convert a table (n, features) with NaN, in the units of the user."""
        x = np.ascontiguousarray(nodes - self.location)
        # in place, as the next lines, to spare copies of a large table
        x /= self.scale
        x = torch.from_numpy(x)
        observed = ~x.isnan()
        return Incomplete(x.masked_fill_(~observed, 0.0), observed)

    def restored(self, x: Tensor) -> np.ndarray:
        """Convert rows (*batch, features) back."""
        return self.location + x.numpy() * self.scale

    def log_scales(self, nodes: np.ndarray) -> np.ndarray:
        """Sum log-scales over observed cells: what log-densities exceed; (n,)."""
        return np.where(np.isnan(nodes), 0.0, np.log(self.scale)).sum(1)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return copies of location and scale as tensors."""
        return torch.tensor(self.location), torch.tensor(self.scale)

    def moments(self, normal: Normal) -> tuple[np.ndarray, np.ndarray]:
        """Convert mean and covariance of a normal distribution of rows back."""
        square = np.outer(self.scale, self.scale)
        return self.restored(normal.mean), normal.covariance.numpy() * square


# ----------------------------------------
# Means and covariances of missing cells, with one inverse for each pattern of a table.
#
# Rows that miss the same columns share a block of `normal`, S_oo or P_mm, and its
# inverse.  So a table needs as many inverses as it has patterns.  Each row costs
# products with matrices of all columns, and one with the inverse of its pattern.
#
# Let c be a row minus the mean, in which the conditional means replace missing cells,
# and r its observed cells.  Then
#
#     r' S_oo^-1 r = c' P c                                                          (1)
#
# so that the quadratic forms of log-densities sum to the product of P with the sum of
# ``c c'``, which EM needs anyway.
#
# Small blocks are inverted by sweeps (Goodnight 1979), each for many patterns at once;
# larger ones by LAPACK.
#
# Goodnight (1979), A tutorial on the SWEEP operator, The American Statistician 33,
# 149-158.

_CELLS_AT_ONCE = 2**16  # maximum size of a group: 0.5 MiB fits into the cache
_WIDEST_SWEPT = 12  # width of blocks up to which sweeps are faster than LAPACK
# whole numbers are exact in single precision up to 2**24
_BITS = 24  # columns of a mask that a number of single precision describes


class Group(NamedTuple):
    """Rows of patterns with blocks of similar size."""

    rows: Tensor  # int64 (n,): their indices in the table
    x: Tensor  # (n, features): zero where missing
    observed: Tensor  # (n, features): 1 where observed, else 0
    pattern: Tensor  # int64 (n,): the pattern of each row, in increasing order
    # int64 (n_patterns, width): the columns of the block of each pattern.  Narrower
    # blocks are filled up with `features`
    block: Tensor
    n_observed: Tensor  # (n_patterns,)
    by_observed: bool  # whether blocks are S_oo; else they are P_mm

    def condition(self, normal: FactoredNormal) -> "Conditioned":
        """Compute the distributions of the missing cells."""
        residual = torch.addcmul(self.x, self.observed, normal.mean, value=-1)
        columns = self.of_rows(self.block)
        if self.by_observed:
            blocks = Blocks.of(normal.covariance, self.block)
            solved = self._solved(blocks, columns, residual)
            weights = self._put(torch.zeros_like(residual), columns, solved)
            filled = weights @ normal.covariance
            completed = torch.where(self.observed > 0, residual, filled)
            return Conditioned(self, completed, blocks, blocks.log_det)
        blocks = Blocks.of(normal.precision, self.block)
        solved = self._solved(blocks, columns, residual @ normal.precision)
        completed = self._put(residual, columns, solved.neg_())
        return Conditioned(self, completed, blocks, normal.log_det + blocks.log_det)

    def of_rows(self, values: Tensor) -> Tensor:
        """Look up values of patterns (n_patterns, ...) for each row; (n, ...)."""
        if len(values) == len(self.pattern):  # each row has its own
            return values
        return values.index_select(0, self.pattern)

    def of_patterns(self, weight: Tensor) -> Tensor:
        """Sum weights of rows (n,) over the rows of each pattern; (n_patterns,)."""
        return weight.new_zeros(len(self.block)).index_add_(0, self.pattern, weight)

    def first_rows(self) -> Tensor:
        """Return the place of the first row of each pattern; (n_patterns,)."""
        return torch.searchsorted(self.pattern, torch.arange(len(self.block)))

    def _solved(self, blocks: "Blocks", columns: Tensor, right: Tensor) -> Tensor:
        """Multiply the cells of the block of each row by its inverse; (n, width)."""
        if self._is_padded:
            right = pad(right, (0, 1))
        cells = right.gather(1, columns)[:, :, None]
        return torch.bmm(self.of_rows(blocks.by_pattern()), cells)[:, :, 0]

    def _put(self, x: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        """Put values (n, width) into columns of x (n, features), maybe in place."""
        if not self._is_padded:
            return x.scatter_(1, columns, values)
        wide = pad(x, (0, 1))
        return wide.scatter_(1, columns, values)[:, :-1]

    @property
    def _is_padded(self) -> bool:
        width = self.block.shape[1]
        return width > 0 and int(self.block[-1, -1]) == self.x.shape[1]


class Blocks(NamedTuple):
    """Inverses of blocks of a matrix."""

    inverse: Tensor  # (width, width, n)
    # int64 (width, width, n): their positions in a matrix with one more row and column,
    # for padding
    pairs: Tensor
    log_det: Tensor  # (n,)

    @classmethod
    def of(cls, matrix: Tensor, block: Tensor) -> Self:
        """Invert blocks (n, width) of a matrix; `features` stands for the identity."""
        if block.shape[1] <= _WIDEST_SWEPT:
            columns = block.T.contiguous()
            pairs = columns[:, None] * (len(matrix) + 1) + columns
            # with one more row and column, of zeros
            blocks = pad(matrix, (0, 1, 0, 1)).view(-1).take(pairs)
            # columns of the padding are those of the identity
            blocks.diagonal().add_(block == len(matrix))
            pivots = _sweep(blocks)
            # otherwise the matrix is singular up to rounding: `cholesky` adds jitter
            if (pivots > 0).all():
                return cls(blocks, pairs, pivots.log().sum(0))
        pairs = block[:, :, None] * (len(matrix) + 1) + block[:, None]
        if len(block) == 1 and int(block[0, -1]) < len(matrix):  # no copy of the matrix
            blocks = matrix[block[0][:, None], block[0]][None]
        else:
            blocks = pad(matrix, (0, 1, 0, 1)).view(-1).take(pairs)
        blocks.diagonal(dim1=1, dim2=2).add_(block == len(matrix))
        root = cholesky(blocks)
        log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        inverse = torch.cholesky_inverse(root).mT  # symmetric; now it is contiguous
        return cls(inverse.permute(1, 2, 0), pairs.permute(1, 2, 0), log_det)

    def by_pattern(self) -> Tensor:
        """Return the inverses; (n, width, width)."""
        return self.inverse.permute(2, 0, 1).contiguous()

    def add(self, total: Covariances, weight: Tensor, *, by_observed: bool) -> None:
        """Add inverses of weights (n,)."""
        terms, pairs = map(_flat, (self.inverse * weight, self.pairs))
        total.add(terms, pairs, weight.sum(), by_observed=by_observed)


class Conditioned(NamedTuple):
    """The rows of a group given their observed cells."""

    group: Group
    # (n, features): rows minus the mean, in which conditional means replace missing
    # cells
    completed: Tensor
    blocks: Blocks
    log_det: Tensor  # (n_patterns,): of S_oo

    def log_prob(self, normal: FactoredNormal) -> Tensor:
        """Compute log p(x_o) of each row by eq. (1); (n,)."""
        square = ((self.completed @ normal.precision) * self.completed).sum(1)
        return self.constants() - square / 2

    def constants(self) -> Tensor:
        """Compute log p(x_o) without its quadratic form; (n,)."""
        constant = self.log_det + log(2 * pi) * self.group.n_observed
        return self.group.of_rows(constant / -2)

    def add_covariances(self, total: Covariances, weight: Tensor) -> None:
        """Add the covariances of rows of weights (n,)."""
        group = self.group
        shares = group.of_patterns(weight)
        self.blocks.add(total, shares, by_observed=group.by_observed)

    def variance(self, normal: FactoredNormal) -> Tensor:
        """Compute the variance of each missing cell, 0 of others; (n, features)."""
        group, inverse = self.group, self.blocks.inverse
        if group.by_observed:
            S = pad(normal.covariance, (0, 0, 0, 1))[group.block]
            explained = (S * (self.blocks.by_pattern() @ S)).sum(1)
            # rounding may make a difference negative
            variance = (normal.covariance.diagonal() - explained).clamp_(min=0)
            return group.of_rows(variance).where(group.observed == 0, 0.0)
        variance = group.of_rows(inverse.diagonal().contiguous())
        columns = group.of_rows(group.block)
        return group._put(torch.zeros_like(self.completed), columns, variance)


def _flat(cells: Tensor) -> Tensor:
    """Flatten (width, width, n) in the order of memory, in which n is first or last."""
    return (cells if cells.is_contiguous() else cells.permute(2, 0, 1)).flatten()


def _sweep(blocks: Tensor) -> Tensor:
    """Invert matrices (width, width, n) in place; return their pivots (width, n)."""
    pivots = blocks.new_empty(len(blocks), blocks.shape[-1])
    for k, pivot in enumerate(pivots):
        # a copy, because the next lines overwrite the row
        row = blocks[k].clone()
        pivot.copy_(row[k])
        share = row / pivot
        blocks.addcmul_(row[:, None], share, value=-1)
        blocks[k] = share
        blocks[:, k] = share
        torch.reciprocal(pivot, out=blocks[k, k]).neg_()
    blocks.neg_()
    return pivots


def grouped(
    x: Tensor, observed: Tensor, *, kinds: int = 2, width: int | None = None
) -> list[Group]:
    """Group rows by pattern, and patterns by the size of their block.

    `kinds`: 1 for blocks of missing columns alone, 2 for the smaller block.
    `width`: of the matrices of a row, which bound the size of a group; None is that
    of its block.
    """
    masks, pattern = patterns(observed)
    d = observed.shape[1]
    by_observed = (~masks).sum(1) * 2 > d
    if kinds == 1:
        by_observed = torch.zeros_like(by_observed)
    inside = masks == by_observed[:, None]
    sizes = inside.sum(1)
    # sizes are at most d, so that the kinds stay apart
    order = (sizes + (d + 1) * by_observed).argsort(descending=True, stable=True)
    sizes, pattern = sizes[order], order.argsort()[pattern]
    pattern, rows = pattern.sort(stable=True)
    n_first = int(by_observed.sum())  # patterns by observed columns come first
    groups = []
    widths = sizes if width is None else torch.full_like(sizes, width)
    for cut in _cuts(pattern, widths, n_first, d):
        patterns_in_cut = order[pattern[cut.start] : pattern[cut.stop - 1] + 1]
        part = rows[cut]
        mask = observed.index_select(0, part)
        groups.append(
            Group(
                part,
                x.index_select(0, part).where(mask, 0.0),
                mask.to(x),
                pattern[cut] - pattern[cut.start],
                _columns(inside[patterns_in_cut]),
                masks[patterns_in_cut].sum(1).to(x),
                bool(by_observed[patterns_in_cut[0]]),
            )
        )
    return groups


def patterns(observed: Tensor) -> tuple[Tensor, Tensor]:
    """Find the different rows (n_patterns, features) of a mask, and each row's (n,)."""
    n, d = observed.shape
    pattern = torch.zeros(n, dtype=torch.long)
    for first in range(0, d, _BITS):
        part = observed[:, first : first + _BITS].float()
        number = (part @ 2.0 ** torch.arange(part.shape[1])).long()
        if first:
            number = number.unique(return_inverse=True)[1]
            # numbers are below n, so that different pairs stay different
            number = number + n * pattern
        pattern = number.unique(return_inverse=True)[1]
    first_rows = pattern.new_zeros(int(pattern.max()) + 1 if n else 0)
    first_rows[pattern] = torch.arange(n)
    return observed[first_rows], pattern


def _cuts(pattern: Tensor, widths: Tensor, n_first: int, d: int) -> list[slice]:
    """Cut sorted rows into slices of bounded size, with patterns of one kind."""
    slices, first = [], 0
    border = int(torch.searchsorted(pattern, n_first))
    while first < len(pattern):
        width = int(widths[pattern[first]])
        end = border if first < border else len(pattern)
        last = min(end, first + max(1, _CELLS_AT_ONCE // max(d, width**2)))
        slices.append(slice(first, last))
        first = last
    return slices


def _columns(inside: Tensor) -> Tensor:
    """List the columns in each row of a mask (n, features), then `features`."""
    n, d = inside.shape
    counts = inside.sum(1)
    rows, columns = inside.nonzero(as_tuple=True)
    place = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    lists = torch.full((n, int(counts.max())), d)
    lists[rows, place] = columns
    return lists


# ----------------------------------------
# Tables with fewer rows for which EM computes the same sums.
#
# EM for normal distributions uses rows of the same pattern of missing cells through
# their weight, mean and scatter only.  So k + 1 rows with the same weight, mean and
# scatter can replace all rows that observe the same k columns: with ``S = L L'`` the
# scatter, w the weight, and the columns of U the vertices of a simplex,
#
#     x_j = mean + sqrt((k + 1) / w) L u_j,  of weight w / (k + 1),                  (1)
#
# where ``U U' = I`` and ``U 1 = 0``.

# rows of one pattern may all have the weight zero
_LEAST = 1e-300  # weight of a pattern, as a divisor


def condensed(data: Incomplete, weights: Tensor) -> tuple[Incomplete, Tensor]:
    """Replace the rows of each pattern by k + 1, eq. (1), unless most would be left."""
    masks, pattern = patterns(data.observed)
    counts, enough = torch.bincount(pattern, minlength=len(masks)), masks.sum(1) + 1
    if 2 * torch.minimum(counts, enough).sum() > len(pattern):
        return data, weights
    many = counts > enough
    alone = ~many[pattern]
    shorter = [(data.x[alone], data.observed[alone], weights[alone])]
    order = pattern.argsort(stable=True)
    rows = order.split(counts.tolist())
    for number in many.nonzero()[:, 0].tolist():
        places, mask = rows[number], masks[number]
        shorter.append(_simplex(data.x[places], mask, weights[places]))
    x, observed, weights = map(torch.cat, zip(*shorter, strict=True))
    return Incomplete(x, observed), weights


def n_condensed(observed: Tensor) -> int:
    """Count the rows that are left of a table with this mask (n, features)."""
    masks, pattern = patterns(observed)
    counts = torch.bincount(pattern, minlength=len(masks))
    return int(torch.minimum(counts, masks.sum(1) + 1).sum())


def _simplex(x: Tensor, mask: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Replace rows of one pattern; return cells, mask and weights of the new rows."""
    cells, total = x[:, mask], weights.sum().clamp(min=_LEAST)
    k = cells.shape[1]
    mean = weights @ cells / total
    centred = cells - mean
    scatter = (centred * weights[:, None]).T @ centred
    # not Cholesky, because a scatter may be singular
    values, vectors = torch.linalg.eigh(scatter)
    # rounding may make eigenvalues of zero negative
    root = vectors * values.clamp(min=0).sqrt()
    rows = x.new_zeros(k + 1, len(mask))
    rows[:, mask] = mean + ((k + 1) / total).sqrt() * vertices(k).to(x) @ root.T
    return rows, mask.expand(k + 1, -1), (total / (k + 1)).expand(k + 1)


@cache
def vertices(k: int) -> Tensor:
    """List vertices of a simplex with orthonormal columns of sum 0; (k + 1, k).

    They are columns of a Householder reflection that maps the first axis to the
    diagonal.
    """
    normal = torch.full((k + 1,), -((k + 1) ** -0.5), dtype=torch.float64)
    normal[0] += 1.0
    square = normal @ normal
    reflection = torch.eye(k + 1, dtype=torch.float64)
    if k:
        reflection -= 2 / square * torch.outer(normal, normal)
    return reflection[:, 1:]


# ----------------------------------------
# Sums over the rows of a table, which is in memory or in parts.
#
# EM uses a table through sums over its rows only.  So each step is a function of
# `Rows` that returns tensors.  `Rows` in memory apply it to themselves, and `Parts`
# apply it to each part of a table and add the results, with any function that maps
# and reduces: a loop over chunks, or a cluster.  The results have the size of the
# parameters, not that of the table.

Sums = TypeVar("Sums", Tensor, tuple)
OfTable = Callable[[Incomplete], Incomplete]

_MOST_CELLS = 2**20  # of a condensed table in memory: 8 MiB


class Rows:
    """Rows in memory, and their weights.  `weights` (n,)."""

    def __init__(self, data: Incomplete, weights: Tensor) -> None:
        self.data, self.weights = data, weights

    @cached_property
    def groups(self) -> list[Group]:
        """Groups of rows by pattern, with blocks of similar size."""
        return grouped(*self.data)

    @cached_property
    def wide_groups(self) -> list[Group]:
        """Groups of rows by pattern, whose size does not depend on that of blocks."""
        return grouped(*self.data, width=1)

    @property
    def total(self) -> Tensor:
        """Sum of the weights."""
        return self.weights.sum()

    def summed(self, of: Callable[["Rows"], Sums]) -> Sums:
        """Compute sums over the rows."""
        return of(self)

    def mapped(self, change: OfTable) -> "Rows":
        """Change the values of observed cells."""
        return _Changed(self, change)

    def condensed(self) -> "Rows":
        """Make a table for which EM computes the same sums, see `condensed`."""
        return Rows(*condensed(self.data, self.weights))


class _Changed(Rows):
    """Rows whose cells are changed when they are used, group by group in the cache."""

    def __init__(self, rows: Rows, change: OfTable) -> None:
        self._rows, self._change, self.weights = rows, change, rows.weights

    @cached_property
    def data(self) -> Incomplete:
        """The changed cells."""
        return self._change(self._rows.data)

    @cached_property
    def groups(self) -> list[Group]:
        """The groups of the rows; values have no influence on patterns."""
        return [
            group._replace(x=self._change(Incomplete(group.x, group.observed > 0)).x)
            for group in self._rows.groups
        ]


class Table(Protocol):
    """Rows whose sums are computed: `Rows` or `Parts`."""

    @property
    def total(self) -> Tensor:
        """Sum of the weights."""

    def summed(self, of: Callable[[Rows], Sums]) -> Sums:
        """Compute sums over the rows; `of` is defined in a module, or a partial."""

    def mapped(self, change: OfTable) -> Self:
        """Change the cells of each row."""

    def condensed(self) -> "Table":
        """Make a table for which EM computes the same sums, maybe of fewer rows."""


class Parts(NamedTuple):
    """A table with one part at a time in memory."""

    # maps (of, merge) to ``merge(... merge(of(part 1), of(part 2)) ...)``, where the
    # parts are `Rows`, in any grouping that depends on the parts only
    reduce: Callable[[Callable[[Rows], Sums], Callable[[Sums, Sums], Sums]], Sums]
    total: Tensor  # (), sum of the weights
    changes: tuple[OfTable, ...] = ()  # applied to each part in turn
    # whether so few patterns of missing cells are expected that the condensed table
    # fits into memory
    few_patterns: bool = False

    def summed(self, of: Callable[[Rows], Sums]) -> Sums:
        """Compute sums over the rows."""
        return self.reduce(partial(_of_part, of, self.changes), added)

    def mapped(self, change: OfTable) -> Self:
        """Change the cells of each row, each time that it is read."""
        return self._replace(changes=(*self.changes, change))

    def condensed(self) -> Table:
        """Read the table once, if the result fits into memory; else return it."""
        if not self.few_patterns:
            return self
        of = partial(_of_part, _condensed_part, self.changes)
        shorter = self.reduce(of, _both_condensed)
        return self if shorter is None else shorter


def _of_part(
    of: Callable[[Rows], Sums], changes: tuple[OfTable, ...], part: Rows
) -> Sums:
    for change in changes:
        part = part.mapped(change)
    return of(part)


def _condensed_part(part: Rows) -> Rows | None:
    shorter = part.condensed()
    return shorter if shorter.data.x.numel() <= _MOST_CELLS else None


def _both_condensed(first: Rows | None, second: Rows | None) -> Rows | None:
    """Condense two condensed parts; None if one or both are too large."""
    if first is None or second is None:
        return None
    pairs = zip(
        (*first.data, first.weights), (*second.data, second.weights), strict=True
    )
    x, observed, weights = map(torch.cat, pairs)
    return _condensed_part(Rows(Incomplete(x, observed), weights))


def added(first: Sums, second: Sums) -> Sums:
    """Add tensors, or tuples of tensors, of the same shape."""
    if isinstance(first, Tensor):
        return first + second
    sums = [added(a, b) for a, b in zip(first, second, strict=True)]
    return type(first)(*sums) if hasattr(first, "_fields") else tuple(sums)
