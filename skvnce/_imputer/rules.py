"""Which missing cells are filled: masks, and rules of the completed rows.

A rule, such as "cigarettes if smoker is yes", is applied to each completed table.
Cells for which it says no are emptied, and the rule is applied again, until nothing
changes: a cell may depend on one that has been emptied.  A row whose *observed* cells
contradict the rule is drawn again: its draws are those given that the rule holds.
Its prediction gets the most probable level of a column that agrees.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

import narwhals as nw
import numpy as np
from sklearn.utils import _safe_indexing

from skvnce._core.warnings import warn_user
from skvnce._tables.cells import is_frame, is_missing, without_marker
from skvnce._tables.output import in_frames, values_of
from skvnce._tables.schema import Schema
from skvnce._tables.values import columns_given

_TRIES = (16, 256)  # draws of a row until one agrees with its observed cells
_MOST_CHANGES = 100  # of single levels of a row that are tried
# 32 MiB of float64
_AT_ONCE = 2**22  # maximum number of cells that are drawn again together


class Rules(NamedTuple):
    """Rules that say which missing cells are filled."""

    schema: Schema
    # maps a completed table to masks of all columns, or of some
    function: Callable | None
    columns: dict  # of columns to functions that map a completed table to a mask
    # bool (n_samples, n_features), masks that do not depend on the completed table
    fixed: np.ndarray
    X: object  # (n_samples, n_features), as the user passed it
    # columns that are constant within groups, which do not change for single rows
    of_groups: Sequence = ()

    def evaluate(self, table, filled, rows):
        """Evaluate the rules for rows whose `filled` cells come from the table."""
        X, mask = _safe_indexing(self.X, rows), self.fixed[rows]
        shown = _shown(self.schema, table, filled, X)
        if self.function is not None:
            answers = _applied(self.function, shown, "where")
        else:
            answers = {
                key: _applied(rule, shown, f"where[{key!r}]")
                for key, rule in self.columns.items()
            }
        return _read(self.schema, answers, X, mask, is_rule=True)

    def settle(self, table, missing, rows):
        """Empty missing cells until the rules hold for the remaining ones.

        Returns which missing cells have a value, and which observed ones the rules
        deny; bool (n_rows, n_features).
        """
        columns, filled = self.schema.returned, missing
        while True:
            remaining = np.where((missing & ~filled)[:, columns], np.nan, table)
            allowed = self.evaluate(remaining, filled, rows)
            if not (filled & ~allowed).any():
                return filled, ~allowed & ~missing
            filled = filled & allowed

    def of_draws(self, drawn, missing, draw):
        """Apply the rules to draws, and draw rows again that contradict them.

        `draw` maps rows to draws, of which each has the parameters of the one in
        `drawn`. Returns draws, and which missing cells have a value.
        """
        every = np.arange(len(missing))
        settled = [self.settle(table, missing, every) for table in drawn]
        filled, denied = (np.array(part) for part in zip(*settled, strict=True))
        wrong = denied.any(2)
        # a few draws settle most rows, and many are made for the rest only
        for tries in _TRIES:
            rows = np.flatnonzero(wrong.any(0) & missing.any(1))
            n_parts = ceil(len(rows) * tries * drawn[:, 0].size / _AT_ONCE)
            for part in np.array_split(rows, n_parts) if n_parts else ():
                self._redraw((drawn, filled, wrong), missing, draw, part, tries)
        self._warn_of_denied(denied & wrong[..., None])
        return drawn, filled

    def _redraw(self, draws, missing, draw, rows, tries):
        """Replace rows of draws, in place, by the first new ones that agree."""
        # in random order, for the draws of other rows have used the same numbers
        long = np.random.default_rng(0).permutation(np.repeat(rows, tries))
        new = draw(long)
        for table, drawn, filled, wrong in zip(new, *draws, strict=True):
            places = np.flatnonzero(wrong[long])
            if not len(places):
                continue
            redrawn = long[places]
            settled, denied = self.settle(table[places], missing[redrawn], redrawn)
            good = np.flatnonzero(~denied.any(1))
            chosen = good[np.unique(redrawn[good], return_index=True)[1]]
            replaced = redrawn[chosen]
            drawn[replaced], filled[replaced] = table[places[chosen]], settled[chosen]
            wrong[replaced] = False

    def of_prediction(self, table, missing, probabilities):
        """Apply the rules to predictions, in place; return which cells stay filled.

        Where observed cells contradict them, one level changes: the change to the most
        probable level with which the row agrees.
        """
        filled, denied = self.settle(table, missing, np.arange(len(table)))
        rows = np.flatnonzero(denied.any(1) & missing.any(1))
        levels = {
            j: p[rows] for j, p in probabilities.items() if j not in self.of_groups
        }
        if len(rows) and levels:
            self._change_levels((table, filled, denied), missing, levels, rows)
        self._warn_of_denied(denied[None])
        return filled

    def _change_levels(self, state, missing, probabilities, rows):
        """Change a level of each row, in place, if it agrees with another one."""
        table, filled, denied = state
        returned = self.schema.returned
        codes = {
            place: table[rows, np.searchsorted(returned, place)].astype(int)
            for place in probabilities
        }
        changes = _changes(missing[rows], probabilities, codes)
        columns = np.searchsorted(returned, changes.columns)
        for change, gain in zip(changes.order.T, changes.ratios.T, strict=True):
            tried = np.flatnonzero(denied[rows].any(1) & (gain > 0))
            if not len(tried):
                break
            changed, new, chosen = rows[tried], table[rows[tried]], change[tried]
            new[np.arange(len(changed)), columns[chosen]] = changes.levels[chosen]
            settled, wrong = self.settle(new, missing[changed], changed)
            good = ~wrong.any(1)
            rows_changed = changed[good]
            table[rows_changed], filled[rows_changed] = new[good], settled[good]
            denied[rows_changed] = False

    def _warn_of_denied(self, denied):
        """Warn of observed cells, (n_draws, n_samples, n_features), that are denied."""
        rows, columns = np.nonzero(denied.any(0))
        if len(rows):
            warn_user(
                f"where denies observed cells of {len(np.unique(rows))} rows, whatever "
                "their missing cells were filled by: the first is "
                f"{self.schema.label(columns[0])}, row {rows[0]}. They stay as they "
                "are. Correct the rule or the cell."
            )


class Changes(NamedTuple):
    """Changes of single levels of rows."""

    columns: np.ndarray  # int (n_changes,)
    levels: np.ndarray  # int (n_changes,)
    # int (n_rows, n_changes), the changes, from the first to try to the last
    order: np.ndarray
    # (n_rows, n_changes), their probabilities over that of the present level; 0 if not
    # possible
    ratios: np.ndarray


def _changes(missing, probabilities, codes):
    """List changes of the levels `codes` of missing cells, the most probable first."""
    parts, columns, levels = [], [], []
    for place, shares in probabilities.items():
        current = codes[place][:, None]
        now = np.take_along_axis(shares, current, 1)
        ratios = shares / np.maximum(now, np.finfo(now.dtype).tiny)
        np.put_along_axis(ratios, current, 0, 1)
        parts.append(np.where(missing[:, [place]], ratios, 0))
        columns += [place] * shares.shape[1]
        levels += range(shares.shape[1])
    ratios = np.concatenate(parts, 1)
    order = np.argsort(-ratios, axis=1, kind="stable")[:, :_MOST_CHANGES]
    ratios = np.take_along_axis(ratios, order, 1)
    return Changes(np.array(columns), np.array(levels), order, ratios)


def without_rules(where):
    """Return masks; raises an error for functions of completed rows, see `mask_of`."""
    if isinstance(where, Rules):
        raise TypeError(
            "where must be masks here: its functions see completed rows, but a row of "
            "quantiles is not a completed row. Pass functions to sample."
        )
    return where


def draws_alone(schema, where, limits):
    """Say whether rows of groups may be drawn alone, given the effects; no limits."""
    if not schema.group_columns or not isinstance(where, Rules):
        return False
    if limits:
        raise ValueError(
            "lower and upper cannot be combined with functions of where if there are "
            "groups. Pass masks of where."
        )
    return True


def mask_of(schema, where, X, checked):
    """Check the parameter `where`, and convert it to a mask, `Rules` or None."""
    if where is None:
        return None
    mask = np.ones(checked.shape, dtype=bool)
    # a rule compares cells with values, to which a marker does not belong
    X, schema = without_marker(X, schema.marker), schema._replace(marker=np.nan)
    if callable(where):
        return Rules(schema, where, {}, mask, X)
    rules, masks = {}, where
    if isinstance(where, dict):
        rules = {key: value for key, value in where.items() if callable(value)}
        masks = {key: value for key, value in where.items() if key not in rules}
    mask = _read(schema, masks, X, mask)
    for key in rules:
        schema.index_of(key, "where")  # raises an error for unknown ones
    return Rules(schema, None, rules, mask, X) if rules else mask


def _read(schema, parameter, X, mask, *, is_rule=False):
    """Read masks into `mask` (n, n_features), in place."""
    for place, cells in columns_given(schema, parameter, X, len(mask), "where"):
        values = cells.tolist()
        if is_rule:  # comparisons with missing values
            values = [False if is_missing(value) else value for value in values]
        if not all(isinstance(value, bool | np.bool_) for value in values):
            raise TypeError(
                "where must have True and False only, but has other values in "
                f"{schema.label(place)}."
            )
        mask[:, place] = values
    return mask


def _applied(rule, table, name):
    """Call a rule; an error names its parameter."""
    try:
        answer = rule(table)
    except Exception as error:
        error.add_note(f"Raised by the function of {name}, called with some rows.")
        raise
    masks = answer if isinstance(answer, dict) else {None: answer}
    for key, mask in masks.items():
        if mask is None:
            owner = name if key is None else f"{name} for {key!r}"
            raise TypeError(
                f"The function of {owner} returned None. Let it return True or False "
                "for each row."
            )
    return answer


def _shown(schema, table, filled, X):
    """Show completed rows as a frame of the type of X, or as an array."""
    if not is_frame(X):
        return values_of(schema, table[None], filled, X)[0]
    frame = nw.from_native(X, eager_only=True)
    if not (frame.implementation.is_pandas() or frame.implementation.is_polars()):
        X = frame.to_pandas()
    places = schema.returned
    ends, filled = schema.ends[:, places], filled[:, places]
    return in_frames(X, schema.columns, places, table[None], filled, ends)[0]
