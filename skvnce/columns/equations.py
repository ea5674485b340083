"""Equations of the user between the columns of a table; see `skvnce.relations`."""

from typing import NamedTuple

import numpy as np

from skvnce.relations.closure import closed
from skvnce.relations.columns import Bounds
from skvnce.relations.formulas import Checked
from skvnce.relations.obeying import EXACT, Filled, is_near, obeyed, which_hold


class Known(NamedTuple):
    """What the training rows of a table say about its columns."""

    bounds: Bounds  # with units of whole columns, and ends that allow all numbers
    ranges: np.ndarray  # (2, n_features), 0 at the ends of columns without both signs


class Equations(NamedTuple):
    """All equations of a table, and what its training rows say about their columns."""

    rules: list[Checked]  # the first column of each is a function of the others
    labels: list[str]  # of these columns
    bounds: Bounds  # see `Known`
    ranges: np.ndarray

    @property
    def used(self):
        """List the columns of all equations."""
        return sorted({j for one in self.rules for j in one.rule.columns})

    def deduced(self, table, rtol):
        """Fill the cells that follow from others of their row; (n, n_features).

        `rtol` is the largest relative error of an equation between observed cells.
        Raises ValueError if the cells of a row contradict an equation.
        """
        table = table.astype(np.float64)
        filled = closed(Bounds.none(table.shape[1]), table, self.rules)
        for label, one in zip(self.labels, self.rules, strict=True):
            self._check_solved(label, one.rule, table, filled, rtol)
        inside = self.snapped(filled.clip(*self.ranges), slice(None))
        filled = np.where(np.isnan(table), inside, table)
        for label, one in zip(self.labels, self.rules, strict=True):
            part = filled[:, one.rule.columns]
            rows = np.flatnonzero(~np.isnan(part).any(1))
            wrong = rows[~is_near(one.rule, part[rows], max(rtol, EXACT))]
            if len(wrong):
                row, part = wrong[0], part[wrong[:1]]
                raise ValueError(
                    f"Row {row} of X contradicts the equation of {label}: it has "
                    f"{part[0, 0]:g}, but its other columns give "
                    f"{one.rule.solve(part, 0)[0]:g}. Correct the row, mark a cell as "
                    "missing, or raise rtol if values are rounded."
                )
        return filled

    def enforced(self, tables, missing, fixed=()):
        """Move cells that were missing until the equations hold; tables are modified.

        Columns in `fixed` are moved only in rows where the others do not suffice.
        Raises ValueError if the equations of a row cannot be satisfied.
        """
        rows = np.flatnonzero(missing[:, self.used].any(1))
        values = tables[:, rows].reshape(-1, tables.shape[2]).astype(np.float64)
        free = np.tile(missing[rows], (len(tables), 1))
        ranges = self.ranges[:, None].repeat(len(values), 1)
        cells = Filled(values, free, ranges, values)
        values, hold = obeyed(self.bounds, self.rules, cells, fixed)
        left = np.flatnonzero(~hold)
        if len(left):
            name = rows[left[0] % len(rows)]
            self._reject(values[left[:1]], free[left[:1]], name)
        tables[:, rows] = values.reshape(len(tables), len(rows), tables.shape[2])
        return tables

    def _reject(self, row, free, name):
        """Raise an error for a row (1, n_features) whose equations do not hold."""
        holds = which_hold(self.bounds, self.rules, row, free)[0]
        for label, one, good in zip(self.labels, self.rules, holds, strict=True):
            if not one.rule.is_sum and not good:
                raise ValueError(
                    _is_nan(label, name)
                    if np.isnan(one.rule.solve(row[:, one.rule.columns], 0))[0]
                    else _has_no_solution(label, name)
                )
        raise ValueError(
            f"The equations of row {name} of X cannot be satisfied together by its "
            "missing cells, without a change of sign. Correct the row, or mark more of "
            "its cells as missing."
        )

    def _check_solved(self, label, rule, table, filled, rtol):
        """Raise an error for rows whose cells an equation does not give."""
        columns = list(rule.columns)
        new, part = np.isnan(table[:, columns]), filled[:, columns]
        unsolved = np.isnan(part)
        unsolved &= unsolved.sum(1, keepdims=True) == 1
        # cells of which any value satisfies the equation are left to the model
        usual = np.where(np.isnan(part), self.bounds.middle[columns], part)
        unsolved &= ~is_near(rule, usual, EXACT)[:, None]
        if unsolved[:, 0].any():
            raise ValueError(_is_nan(label, unsolved[:, 0].argmax()))
        slack = rtol * np.nan_to_num(abs(part)).max(1, keepdims=True)
        low, high = self.ranges[:, columns]
        outside = (part < low - slack) | (part > high + slack) | np.isinf(part)
        wrong = (unsolved | (new & outside)).any(1)
        if wrong.any():
            raise ValueError(_has_no_solution(label, wrong.argmax()))

    def snapped(self, cells, places):
        """Round cells (..., n_places) of whole columns that errors of floats move."""
        rounded = np.round(cells)
        # rounding of float32 exceeds EXACT
        error = max(EXACT, 8 * np.finfo(cells.dtype).eps)
        near = abs(cells - rounded) <= error * np.maximum(abs(rounded), 1.0)
        return np.where((self.bounds.unit[places] == 1) & near, rounded, cells)


def _is_nan(label, name):
    """Say that a derived column is NaN."""
    return (
        f"{label} is NaN in row {name} of X, by the function of derived. It must be a "
        "number for all values of its columns."
    )


def _has_no_solution(label, name):
    """Say that no value of a cell satisfies an equation."""
    return (
        f"The equation of {label} has no solution in row {name} of X, or one with a "
        "sign that no observed cell has. Correct the row, or mark more of its cells "
        "as missing."
    )
