"""Columns that are products of others, of which draws keep only linear relations."""

from collections.abc import Iterator

import numpy as np

from skvnce.tables.table import Table, listed

_MOST = 100  # columns of numbers that are searched, as time grows with their cube
_SCREENED = 20  # rows by which pairs of factors are chosen
_FEWEST = 20  # rows that show a product
_SAME = 1e-9  # relative difference of equal numbers
# the correlation of x**2 and x is 0.5 if the mean is 0.4 standard deviations
_EXPLAINED = 0.25  # share of the variance of the product that its factors explain


def products(table: Table) -> list[str]:
    """Find partly missing products of columns that are far from zero."""
    found = []
    for place, pair in _factors(table):
        if _explained(table.cells, place, pair) > _EXPLAINED:
            first, second = (table.names[one] for one in pair)
            found.append(f"{table.names[place]} is {first} times {second}")
    if not found:
        return []
    return [
        f"Products of columns that are not centred: {listed(found, '; ')}. They nearly "
        "repeat their factors, and an interaction, or the coefficient of a square, "
        "comes out too small after imputation. Subtract a number near the mean from "
        'each factor, and multiply then (how-to page "Estimate an interaction").'
    ]


def _factors(table: Table) -> Iterator[tuple[int, list[int]]]:
    """Yield the columns that are products, and the places of their two factors."""
    places = [
        place
        for place, column in enumerate(table.columns)
        if column.is_plain and table.ends[0, place] < table.ends[1, place]
    ]
    if len(places) > _MOST:
        return
    cells = table.cells[:, places].astype(float)
    partly = np.isnan(cells).any(0)
    for k in np.flatnonzero(partly):
        rows = np.flatnonzero(~np.isnan(cells[:, k]))
        if len(rows) < _FEWEST:
            continue
        for pair in _pairs(cells[rows], k):
            yield places[k], [places[one] for one in pair]
            break


def _pairs(cells: np.ndarray, k: int) -> Iterator[np.ndarray]:
    """Yield pairs of other columns whose products are column k in all rows."""
    screened = cells[np.linspace(0, len(cells) - 1, _SCREENED).astype(int)]
    # a product is missing wherever a factor is
    others = np.flatnonzero(~np.isnan(screened).any(0))
    others = others[others != k]
    left = screened[:, others]
    same = _equal(left[:, :, None] * left[:, None], screened[:, k, None, None]).all(0)
    for i, j in zip(*np.triu(same).nonzero(), strict=True):
        pair = others[[i, j]]
        own = cells[:, pair]
        if (own.std(0) > 0).all() and _equal(own.prod(1), cells[:, k]).all():
            yield pair


def _equal(product: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Compare numbers; NaN equals none."""
    return abs(product - cells) <= _SAME * np.maximum(abs(cells), 1e-300)


def _explained(cells: np.ndarray, place: int, pair: list[int]) -> float:
    """Return the share of the variance of a product that is linear in its factors."""
    rows = ~np.isnan(cells[:, place])
    design = cells[rows][:, pair].astype(float)
    design = np.column_stack([np.ones(len(design)), design - design.mean(0)])
    target = cells[rows, place].astype(float)
    left = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - left.var() / target.var())
