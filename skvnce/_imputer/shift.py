r"""Draws of missing cells that differ from what their rows predict.

The missing values of some columns S may be lower, or more often of a level, than those
of similar rows in which they are observed (values missing not at random, MNAR).  In a
pattern-mixture model the user says by how much.  Let :math:`y_S` be the missing cells
of a row in S, :math:`y_T` its other missing cells, and p the fitted distribution given
the observed cells.  Levels are drawn with changed log-odds, numbers are moved,

.. math:: \tilde y_S \sim p(y_S \mid y_{obs}) \prod_{j} \exp(c_j(y_j)) / Z, \qquad
    y_j = \tilde y_j + \delta_j \sigma_j, \qquad (1)

and the other cells follow,

.. math:: y_T \sim p(y_T \mid y_{obs}, y_S). \qquad (2)

c is 0 for numbers, and :math:`\delta` is 0 for levels.  Eq. (1) is drawn by rejection.

References
----------
Little (1993), Pattern-mixture models for multivariate incomplete data; Carpenter and
Kenward (2013), Multiple imputation and its application, chapter 10.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np
import torch

from skvnce._core.numbers import on_grid
from skvnce._core.warnings import warn_user
from skvnce._imputer.fitted import CellModel, chains_of_model
from skvnce._tables.values import reject_limits

_LEAST_OF_SHIFT = 0.95  # of a stated shift, on average, below which users are warned
_STRONGEST = 6.0  # difference of log-odds, so that one of exp(6) draws is accepted


class Shift(NamedTuple):
    """How the missing cells of columns of the model differ from their prediction."""

    columns: np.ndarray  # bool (n_nodes,), the set S
    moves: dict  # of numbers
    log_odds: dict  # (n_levels,), c of eq. (1), minus its maximum
    # (2,), sum of the changes of the cells of each column in `moves`, in the units of
    # X, and the number of cells; draws add to them
    moved: dict


class Move(NamedTuple):
    """A change of the numbers of one column."""

    amount: float  # in the units of X
    # the valid values, increasing; None if there are others between them
    values: np.ndarray | None
    are_codes: bool  # whether cells are places among `values`
    low: float  # smallest and largest valid value
    high: float
    # step, 0 without any, and a place of the grid of valid values that are not listed
    grid: tuple[float, float]

    def moved(self, cells, uniform):
        """Add the amount to cells, within the valid values.

        Between two of these one is chosen at random, so that the mean is kept.
        """
        # clipped first, so that there are values on both sides
        cells = self._ends(cells)[1]
        if self.values is None:
            step, origin = self.grid
            if not step:
                return cells
            places = (cells - origin) / step
            whole = np.floor(places)
            whole += uniform < places - whole
            return on_grid(origin + whole * step, self.grid, self.low, self.high)
        last = len(self.values) - 2
        below = np.clip(np.searchsorted(self.values, cells, "right") - 1, 0, last)
        low, high = self.values[below], self.values[below + 1]
        chosen = below + (uniform * (high - low) < cells - low)
        return chosen if self.are_codes else self.values[chosen]

    def change(self, cells):
        """Return the sum of the changes of cells, and their number."""
        before, after = self._ends(cells)
        return np.array([(after - before).sum(), before.size])

    def _ends(self, cells):
        """Return cells in the units of X, and moved within their range."""
        if self.are_codes:  # computed ones may be no level
            cells = self.values[cells.astype(int).clip(0, len(self.values) - 1)]
        return cells, np.clip(cells + self.amount, self.low, self.high)


def check_combination(shift, reference, lower, upper):
    """Raise an error if draws are changed, and cells have limits."""
    if shift is not None or reference is not None:
        reject_limits(
            lower,
            upper,
            "lower and upper cannot be combined with shift or reference, which change "
            "the distribution of the missing cells. Leave one out.",
        )


def shift_of(schema, shift):
    """Check the parameter `shift` of `sample`, and convert it."""
    if not isinstance(shift, dict):
        raise TypeError(
            "shift must be a dict of columns to numbers, or to dicts of levels to "
            f"log-odds, got {shift!r}."
        )
    nodes = {place: j for j, place in enumerate(schema.model_columns.tolist())}
    columns, moves, log_odds = np.zeros(len(schema.node_columns), dtype=bool), {}, {}
    for key, value in shift.items():
        place = schema.index_of(key, "shift")
        if place in schema.passed:
            raise ValueError(
                f"shift has the column {key!r}, which is passed through: it is in no "
                "model, and its missing cells stay missing. Leave it out."
            )
        if place not in nodes:
            raise ValueError(
                f"shift has the column {key!r}, which is constant or entirely missing "
                "in the training rows. Leave it out."
            )
        node, (column, levels) = nodes[place], _levels_of(schema, place)
        columns[node] = True
        if isinstance(value, dict):
            log_odds[node] = _log_odds(key, value, levels)
        else:
            move = _checked_number(value, f"shift[{key!r}]")
            if levels is not None and not column.is_count:
                raise TypeError(
                    f"shift[{key!r}] must be a dict of levels to log-odds, as the "
                    f"column has categories, got {value!r}."
                )
            moves[node] = _move(schema, place, column, move)
    return Shift(columns, moves, log_odds, {node: np.zeros(2) for node in moves})


def warn_of_cuts(schema, shift, limit):
    """Warn of columns that move by much less than stated; `limit` maps them to why."""
    for node, (total, number) in shift.moved.items():
        amount, place = shift.moves[node].amount, schema.model_columns[node]
        mean = total / number if number else amount
        if abs(mean) < _LEAST_OF_SHIFT * abs(amount):
            spread = schema.spreads[place]
            warn_user(
                f"shift moves the missing cells of {schema.label(place)} by "
                f"{mean / spread:.2f} standard deviations on average, not by "
                f"{amount / spread:.2f}, as {limit(place)}"
            )


class Shifted(NamedTuple):
    """A model of cells whose draws are changed by eqs. (1) and (2)."""

    model: CellModel  # draws valid cells
    shift: Shift

    n_chains = chains_of_model

    def determined(self, nodes):
        """Fill cells that follow from others; see `GroupedNormal`."""
        return self.model.determined(nodes)

    def draw(self, nodes, n_draws, limits=None):
        """Draw missing cells; see `CellModel`."""
        first, then, after = torch.randint(2**62, (3,)).tolist()  # same for all shifts
        missing, shift = np.isnan(nodes), self.shift
        torch.manual_seed(first)
        # of all cells, so that those of a cell are the same for all shifts
        uniform = torch.rand(n_draws, *nodes.shape, dtype=torch.float64).numpy()
        drawn = _tilted(self.model, nodes, n_draws, shift.log_odds)
        for node, move in shift.moves.items():
            rows = missing[:, node]
            shift.moved[node] += move.change(drawn[:, rows, node])
            cells = move.moved(drawn[:, rows, node], uniform[:, rows, node])
            drawn[:, rows, node] = cells
        settled = ~missing | shift.columns
        follow = ~settled.all(1) & (missing & shift.columns).any(1)
        if follow.any():
            torch.manual_seed(then)
            rows = np.where(settled, drawn, np.nan)[:, follow]
            redrawn = self.model.draw(rows.reshape(-1, nodes.shape[1]), 1)[0]
            drawn[:, follow] = np.where(
                settled[follow], drawn[:, follow], redrawn.reshape(rows.shape)
            )
        # what follows must not depend on how many draws were rejected
        torch.manual_seed(after)
        return drawn


def _tilted(model, nodes, n_draws, log_odds):
    """Draw missing cells, and draw those again that are rejected; eq. (1)."""
    drawn = model.draw(nodes, n_draws)
    missing = np.isnan(nodes)
    rows = np.flatnonzero(missing[:, list(log_odds)].any(1))
    tables, rows = np.indices((n_draws, len(nodes)))[:, :, rows].reshape(2, -1)
    while len(rows):
        cells = drawn[tables, rows]
        total = np.zeros(len(rows))
        for node, odds in log_odds.items():
            gaps = missing[rows, node]
            places = cells[gaps, node].astype(int)  # computed ones may be no level
            total[gaps] += odds[places.clip(0, len(odds) - 1)]
        chance = torch.rand(len(rows), dtype=torch.float64).numpy()
        again = np.log(chance) >= total
        tables, rows = tables[again], rows[again]
        if len(rows):
            drawn[tables, rows] = model.draw(nodes[rows], 1)[0]
    return drawn


def _levels_of(schema, place):
    columns = schema.columns
    return (columns[place], columns[place].levels) if columns else (None, None)


def _checked_number(value, name):
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not np.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    return float(value)


def _log_odds(key, value, levels):
    """Convert a dict of levels to log-odds, of which the largest is 0."""
    if levels is None:
        raise TypeError(
            f"shift[{key!r}] must be a number of standard deviations, as the column "
            f"has numbers, got {value!r}."
        )
    changes = np.zeros(len(levels))
    for level, odds in value.items():
        if level not in levels:
            names = ", ".join(map(repr, levels))
            raise ValueError(
                f"shift[{key!r}] has the level {level!r}, which fit has not observed: "
                f"{names}."
            )
        changes[levels.index(level)] = _checked_number(
            odds, f"shift[{key!r}][{level!r}]"
        )
    if np.ptp(changes) > _STRONGEST:
        raise ValueError(
            f"shift[{key!r}] has log-odds that differ by {np.ptp(changes):g}, more "
            f"than {_STRONGEST:g}. Fill the cells by the level instead."
        )
    # at most 0, so that its exponential is a probability of acceptance
    return changes - changes.max()


def _move(schema, place, column, share):
    """Make the move of a column by a share of its standard deviation."""
    amount = share * schema.spreads[place]
    if column is not None and column.is_count:
        values = np.array(column.levels, dtype=np.float64)
        return Move(amount, values, True, values[0], values[-1], (0.0, 0.0))
    laws = schema.values
    values = laws.values[place] if laws.codes[place] else None
    grid = laws.grid_of(place)
    return Move(amount, values, False, *laws.ranges[:, place], grid)
