"""Sums over the rows of a table, which is in memory or in parts.

EM uses a table through sums over its rows only.  So each step is a function of `Rows`
that returns tensors.  `Rows` in memory apply it to themselves, and `Parts` apply it to
each part of a table and add the results, with any function that maps and reduces: a
loop over chunks, or a cluster.  The results have the size of the parameters, not that
of the table.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian.condensed import condensed
from skvnce.distributions.patterns import Group, grouped

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
            group._replace(x=self._change(Incomplete(group.x, group.seen > 0)).x)
            for group in self._rows.groups
        ]


class Table(Protocol):
    """Rows of which sums are computed: `Rows` or `Parts`."""

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
    """A table of which one part at a time is in memory."""

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
        found = self.reduce(of, _both_condensed)
        return self if found is None else found


def _of_part(
    of: Callable[[Rows], Sums], changes: tuple[OfTable, ...], part: Rows
) -> Sums:
    for change in changes:
        part = part.mapped(change)
    return of(part)


def _condensed_part(part: Rows) -> Rows | None:
    found = part.condensed()
    return found if found.data.x.numel() <= _MOST_CELLS else None


def _both_condensed(one: Rows | None, other: Rows | None) -> Rows | None:
    """Condense two condensed parts; None if one or both are too large."""
    if one is None or other is None:
        return None
    pairs = zip((*one.data, one.weights), (*other.data, other.weights), strict=True)
    x, observed, weights = map(torch.cat, pairs)
    return _condensed_part(Rows(Incomplete(x, observed), weights))


def added(one: Sums, other: Sums) -> Sums:
    """Add tensors, or tuples of tensors, of the same shape."""
    if isinstance(one, Tensor):
        return one + other
    sums = [added(a, b) for a, b in zip(one, other, strict=True)]
    return type(one)(*sums) if hasattr(one, "_fields") else tuple(sums)
