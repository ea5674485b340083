"""Look-ups in tables with a row for each column of cells.

Cells have any shape (*batch, features), tables the shape (features, n).
"""

from torch import Tensor, searchsorted


def place(edges: Tensor, x: Tensor) -> Tensor:
    """Count the edges of its column below each cell; (*batch, features)."""
    columns = x.movedim(-1, 0)
    # torch warns of searches in and for tensors that are not contiguous
    flat = columns.reshape(len(edges), -1).contiguous()
    found = searchsorted(edges.contiguous(), flat)
    return found.view(columns.shape).movedim(0, -1)


def pick(table: Tensor, places: Tensor) -> Tensor:
    """Look up indices (*batch, features) in the rows of their columns."""
    columns = places.movedim(-1, 0)
    found = table.gather(1, columns.reshape(len(table), -1))
    return found.view(columns.shape).movedim(0, -1)


def nearest(values: Tensor, x: Tensor) -> Tensor:
    """Round cells to the nearest of the increasing values of their column."""
    return pick(values, place((values[:, 1:] + values[:, :-1]) / 2, x))
