"""Tables that obey the relations of their columns, see `skvnce.relations`.

Cells that follow from observed ones are computed before a model fills the others, and
filled cells are then changed until the relations hold: `deduce` and `WithRelations`.
"""

from collections.abc import Sequence
from itertools import chain, compress, permutations
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._core.warnings import warn_user
from skvnce._imputer.fitted import CellModel, chains_of_model, points_of_model
from skvnce._tables.schema import Schema
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce.exceptions import TableWarning
from skvnce.relations.closure import MOST_WRONG, closed, holds, suspects
from skvnce.relations.columns import Bounds, describe
from skvnce.relations.formulas import Checked, Formula, joined_columns
from skvnce.relations.lookups import Lookup, one_of_sets
from skvnce.relations.obeying import EXACT, Filled, obeyed, which_hold
from skvnce.relations.search import Relation, relations_of
from skvnce.relations.texts import say_the_same

_OF_DRAWS = "affine", "linear", "one-of", "lookup"
_LAST = 1 - 1e-9  # below 1: a drawn 1 wins over all zeros of a set
_DIGITS = 6  # of a skewness: those of copies are equal
_LEAST = 1e-9  # share of a column of zeros


class Follower(NamedTuple):
    """A column that is a function of another one."""

    column: int
    source: int
    checked: Checked


class Related(NamedTuple):
    """The relations of a table, for cells in which levels that are numbers are these.

    The indices are those of all columns of the table.
    """

    relations: tuple[Relation, ...]
    bounds: Bounds
    followers: tuple[Follower, ...]  # they are in no model
    # tuples of columns of which one is 1, which are one column of the model each
    sets: tuple[tuple[int, ...], ...]
    shares: np.ndarray  # (p,), the means of the columns
    gaps: np.ndarray  # bool (p,), whether the table has missing cells
    has_codes: np.ndarray  # bool (p,), whether cells stand for levels without order
    are_observed: bool = True  # whether no cell has been computed, see `deduce`

    @property
    def checked(self) -> list[Checked]:
        """The rules of the relations."""
        return [relation.checked for relation in self.relations]

    @property
    def formulas(self) -> list[Checked]:
        """The rules that are formulas."""
        return [rule for rule in self.checked if isinstance(rule.rule, Formula)]

    @property
    def of_formulas(self) -> list[int]:
        """The columns that formulas relate."""
        return sorted({j for formula in self.formulas for j in formula.columns})

    @property
    def twins(self) -> list[Lookup]:
        """Lookups by columns that these determine, too, such as names by codes."""
        rules = [checked.rule for checked in self.checked]
        lookups = [rule for rule in rules if isinstance(rule, Lookup)]
        pairs = {rule.columns: rule for rule in lookups if len(rule.columns) == 2}
        twins, gone = [], set(self.dropped)
        # levels come first: a model predicts one that is a key
        for key in sorted(
            {key for _, key in pairs}, key=lambda j: not self.has_codes[j]
        ):
            for column in {column for column, by in pairs if by == key} - gone - {key}:
                if key not in gone and (key, column) in pairs:
                    twins.append(pairs[column, key])
                    gone.add(column)
        return twins

    @property
    def names(self) -> list[Lookup]:
        """Lookups by sets of which one is 1, such as the names of its columns."""
        rules = [checked.rule for checked in self.checked]
        sets = {rule.columns for rule in rules if rule.is_set}
        return [rule for rule in rules if rule.columns[1:] in sets]

    @property
    def dropped(self) -> list[int]:
        """The columns that are not in the model as they are."""
        return [follower.column for follower in self.followers] + [*chain(*self.sets)]

    def joined(self, columns: np.ndarray) -> np.ndarray:
        """Give columns that relations connect one number; (n_columns,)."""
        return joined_columns(self.relations, len(self.gaps))[columns]

    def valid(self, X: np.ndarray) -> Self:
        """Leave out relations that more than 1 % of the rows of X (n, p) violate."""
        are = [holds(self.bounds, X, checked) for checked in self.checked]
        if all(are):
            return self
        gone = [str(self.relations[k]) for k in np.flatnonzero(~np.array(are))]
        warn_user(
            f"More than 1 % of the rows of X violate {'; '.join(gone)}, which held at "
            "fit. It is not used for this table."
        )
        return self._selected(are)

    def of_draws(self) -> Self:
        """Select the relations that draws obey.

        Products and powers of draws are those of the model (von Hippel 2009).
        """
        return self._selected(
            [
                relation.kind in _OF_DRAWS
                or (relation.kind == "function" and len(relation.solves) == 2)
                for relation in self.relations
            ]
        )

    def _selected(self, which):
        return self._replace(relations=tuple(compress(self.relations, which)))


def values_of(schema: Schema, cells: np.ndarray) -> np.ndarray:
    """Convert codes of levels that are numbers (..., p); float64."""
    cells = cells.astype(np.float64)
    for j, column in _levels_of_numbers(schema):
        cells[..., j] = column.numbers(cells[..., j])
    return cells


def codes_of(schema: Schema, values: np.ndarray) -> np.ndarray:
    """Convert numbers back (..., p); NaN where one is no level of a closed column."""
    cells = values.copy()
    for j, column in _levels_of_numbers(schema):
        cells[..., j] = column.codes(values[..., j])
        if not column.is_open:
            cells[..., j][~np.isin(values[..., j], column.levels)] = np.nan
    return cells


def _levels_of_numbers(schema):
    """List the columns whose levels are numbers that codes stand for."""
    columns = enumerate(schema.columns or ())
    return [(j, column) for j, column in columns if column.is_count]


# ----------------------------------------
# The fit


def with_relations(
    schema: Schema,
    table: np.ndarray,
    counted: np.ndarray,
    listed: object,
    in_model: Sequence[int] = (),
) -> Schema:
    """Find the relations of the rows of a table (n, n_features), of codes, that count.

    `listed`: "auto" or a list of relations, or of their texts; `in_model`: columns
    that are in the model even if they follow from another one. Raises `ValueError`: if
    a relation of a list does not hold.
    """
    X, columns = table[counted], schema.columns or [None] * schema.n_columns
    is_number = np.array(
        [
            column is None
            or column.is_count
            or column.levels == (False, True)
            or (column.kind == "numeric" and not column.is_time)
            for column in columns
        ]
    )
    names = [str(key) for key in schema.keys or schema.all_names]
    with np.errstate(all="ignore"):
        read = describe(values_of(schema, X), is_number, names)
        relations = _select_listed(relations_of(read), listed)
    if not relations:
        return schema
    checked = [relation.checked for relation in relations]
    bounds, shares = read.bounds, _means(read.cells)
    _warn_of_typos(schema, suspects(bounds, read.cells, checked), read.cells, counted)
    # a number that follows may be no level
    has_levels = np.array([bool(column and column.levels) for column in columns])
    with_levels = np.flatnonzero(has_levels).tolist()
    followers = _followers(checked, read.cells, {*with_levels, *in_model})
    linked = {j for follower in followers for j in (follower.column, follower.source)}
    related = Related(
        tuple(relations),
        bounds,
        followers,
        _sets(checked, linked.union(in_model), X.shape[1]),
        shares,
        np.isnan(X).any(0),
        ~is_number & has_levels,
    )
    return schema._replace(relations=related)


def warn_of_sets(schema: Schema, X: np.ndarray) -> None:
    """Warn of indicators of one category, of which filled rows may have none or two.

    For imputers that look for no relations.
    """
    columns = schema.columns or [None] * schema.n_columns
    are_indicators = (np.isnan(X) | (X == 0) | (X == 1)).all(0)
    places = [
        j
        for j in np.flatnonzero(are_indicators)
        if columns[j] is None or columns[j].levels in (None, (0, 1))
    ]
    if len(places) < 2:
        return
    cells, names = X[:, places], [str(j) for j in places]
    for checked in one_of_sets(describe(cells, np.ones(len(places), bool), names)):
        members = np.array(places)[sorted(checked.columns)]
        if np.isnan(X[:, members]).any():
            warn_user(
                f"Exactly one of {schema.labels(members, 5)} is 1 in each row; filled "
                'rows may have none, or several. Pass relations="auto", or one column '
                "of categories instead.",
                TableWarning,
            )


def exact_columns(schema: Schema, X: np.ndarray) -> set[int]:
    """List the columns of formulas whose numbers may be others than those observed.

    These are all but zeros and ones, and codes of levels that at most one 1 determines.
    """
    related, values, columns = schema.relations, values_of(schema, X), set()
    is_dummy = related.bounds.is_dummy
    for formula in related.formulas:
        places = np.array(formula.rule.columns)
        others, dummies = places[~is_dummy[places]], places[is_dummy[places]]
        if len(others) > 1 or (np.nansum(values[:, dummies], 1) > 1).any():
            columns |= set(others.tolist())
    return columns


def _warn_of_typos(schema, suspected, cells, counted):
    """Warn of cells that may be typos, as others follow from them."""
    if suspected:
        row, column, follower, is_used = suspected[0]
        number = np.flatnonzero(counted)[row]
        use = "" if is_used else ", but is imputed"
        more = f" {len(suspected) - 1} more cells are alike." * (len(suspected) > 1)
        warn_user(
            f"{schema.label(column)}, row {number}, is {cells[row, column]:g}, far "
            f"from all others, and the missing cell of {schema.label(follower)} "
            f"follows from it{use}. Correct the cell, or make it NaN, if it is a "
            f"typo.{more}"
        )


def _select_listed(relations, listed):
    """Select the relations that a list names."""
    if isinstance(listed, str):
        return relations
    texts, is_listed = list(map(str, relations)), np.zeros(len(relations), bool)
    for text in map(str, listed):
        same = np.array([say_the_same(text, other) for other in texts], dtype=bool)
        is_listed |= same
        if not same.any():
            raise ValueError(
                f"relations has {text!r}, which does not hold in the rows of X, or "
                "which too few of them show. ConstrainedImputer takes equations that "
                "you know. find_relations lists what holds: "
                f"{', '.join(texts) or 'nothing'}."
            )
    return list(compress(relations, is_listed))


def _means(cells):
    observed = ~np.isnan(cells)
    return np.nan_to_num(cells).sum(0) / np.maximum(observed.sum(0), 1)


def _followers(checked, cells, in_model):
    """Choose columns that leave the model: each is determined by another one.

    Of columns that are functions of each other the least skewed one stays.  A square
    leaves if it is nowhere observed without its root: its product with a slope is then
    one of the model, which bends draws of the root (Bartlett et al. 2015).
    """
    linked, missing = {}, np.isnan(cells)
    for relation in checked:
        rule = relation.rule
        is_pair = isinstance(rule, Formula) and len(rule.columns) == 2
        if not is_pair or rule.voids or relation.violations:
            continue
        for source, column in permutations(rule.columns):
            has_more = (missing[:, source] & ~missing[:, column]).any()
            # a square does not determine the sign
            solves = relation.solves
            if column in solves and (source in solves or not has_more):
                linked.setdefault(source, []).append((column, relation))
                linked.setdefault(column, [])
    skewness = {j: _skewness(cells[:, j]) for j in linked}
    followers, visited = [], set(in_model)
    for root in sorted(linked, key=lambda j: (j not in in_model, skewness[j], j)):
        queue = [root] if root in in_model or root not in visited else []
        visited.add(root)
        for source in queue:  # which grows
            for column, relation in linked[source]:
                if column not in visited:
                    visited.add(column)
                    queue.append(column)
                    followers.append(Follower(column, source, relation))
    return tuple(followers)


def _sets(checked, linked, p):
    """Choose sets that are one column of the model each, large ones first.

    Formulas may connect a set to one of them, such as a total of some of its columns.
    Its columns then follow from the other set by these: two levels might contradict.
    """
    formulas = [relation for relation in checked if isinstance(relation.rule, Formula)]
    number, sets, connected = joined_columns(formulas, p), [], set()
    rules = [formula.rule for formula in formulas]
    candidates = [rule.columns for rule in rules if rule.is_set]
    for columns in sorted(candidates, key=len, reverse=True):
        if not linked.intersection(columns) and number[columns[0]] not in connected:
            sets.append(columns)
            connected.add(number[columns[0]])
    return tuple(sets)


def _skewness(column):
    column = column[~np.isnan(column)]
    scaled = (column - column.mean()) / (column.std() or 1.0)
    return round(abs((scaled**3).mean()), _DIGITS)


# ----------------------------------------
# Cells that follow


def deduce(schema: Schema, X: np.ndarray) -> tuple[np.ndarray, Related | None]:
    """Compute the cells of rows (n, n_features) that follow from observed ones.

    Also returns the relations that hold in the rows, for the computed table.
    """
    if schema.relations is None or not len(X):
        return X, schema.relations
    values = values_of(schema, X)
    related = schema.relations.valid(values)
    cells = codes_of(schema, closed(related.bounds, values, related.checked))
    if schema.values is not None:
        ends, deviation = schema.values.ranges, related.bounds.deviation
        # the user's bounds win; beyond an end of the observed cells a computed cell is
        # off by its rounding, or right
        within = cells.clip(*ends)
        is_rounded = abs(cells - within) <= EXACT * deviation
        low, high = schema.values.by_user
        denied = low & (cells < ends[0]) | high & (cells > ends[1])
        cells = np.where(is_rounded, within, np.where(denied, np.nan, cells))
    cells = np.where(np.isnan(X), cells, X).astype(X.dtype)
    return cells, related._replace(are_observed=False)


def warn_of_violations(
    schema: Schema, related: Related | None, missing: np.ndarray, filled: np.ndarray
) -> None:
    """Warn of formulas that filled cells violate in more than 1 % of the rows."""
    if related is None or not missing.any():
        return
    formulas, values = related.formulas, values_of(schema, filled)
    names = [str(key) for key in schema.keys or schema.all_names]
    hold = which_hold(related.bounds, formulas, values, missing)
    for k in np.flatnonzero((~hold).mean(0) > MOST_WRONG):
        rows, places = np.flatnonzero(~hold[:, k]), np.array(formulas[k].columns)
        columns = places[missing[np.ix_(rows, places)].any(0)]
        warn_user(
            f"{len(rows) / len(missing):.2g} of the rows, such as row {rows[0]}, "
            f"violate {formulas[k].rule.text(names)} by filled cells of "
            f"{schema.labels(columns)}: what follows for these is far from all others, "
            "or beyond bounds. Correct other cells of the rows, or fit rows like these."
        )


def use_relations(model: CellModel, related: Related | None) -> CellModel:
    """Let a model, or that in a wrapper, use some relations instead of all."""
    if isinstance(model, WithRelations):
        return model._replace(schema=model.schema._replace(relations=related))
    if related is not None and hasattr(model, "model"):
        return model._replace(model=use_relations(model.model, related))
    return model


# ----------------------------------------
# Filled tables that obey formulas


class WithRelations(NamedTuple):
    """A model of rows in which relations hold."""

    model: CellModel
    schema: Schema

    n_chains = chains_of_model
    n_points = property(points_of_model)

    def fill(
        self, nodes: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells; see `CellModel`."""
        rows = Rows.of(self.schema, nodes, limits)
        cells, probabilities = self.model.fill(rows.levels, limits)
        return rows.filled(cells, probabilities), probabilities

    def obeying(
        self, nodes: np.ndarray, cells: np.ndarray, probabilities: dict, limits: Limits
    ) -> np.ndarray:
        """Change filled cells (n, n_nodes) until formulas and sets hold."""
        return Rows.of(self.schema, nodes, limits).filled(cells, probabilities)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Represent the distributions of cells; see `skvnce._imputer.fill`."""
        rows = Rows.of(self.schema, nodes, limits)
        points, probabilities = self.model.points(rows.levels, levels, limits)
        # quantiles obey no formula
        points = np.stack([rows.obeying((), cells, cells) for cells in points])
        for j in rows.followers:  # of a falling function; levels are symmetric
            points[..., j] = np.sort(points[..., j], 0)
        return points, probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        # some cells follow from shifted ones
        rows = Rows.of(self.schema, nodes, limits)
        drawn = self.model.draw(rows.levels, n_draws, limits)
        related = rows.related.of_draws()
        formulas, every = related.formulas, rows.related.formulas
        others = [formula for formula in every if formula not in formulas]
        shares = rows.related.shares[self.schema.node_columns].clip(_LEAST, 1)
        tables = []
        for table in drawn:
            # of several ones, or of none, one wins with a chance of its share
            keys = torch.rand(table.shape, dtype=torch.float64).numpy() ** (1 / shares)
            scores = table + _LAST * keys
            tables.append(rows.obeying(formulas, table, scores, related.twins, others))
        return np.stack(tables)


class WithSets(NamedTuple):
    """A model that has a column of levels in place of 0-1 columns that sum to 1.

    Its columns are those of the rows, and then one for each set.
    """

    model: CellModel
    sets: tuple[np.ndarray, ...]  # of columns of the rows
    is_level: np.ndarray  # bool (n_nodes,), whether columns have probabilities

    n_chains = chains_of_model
    n_points = property(points_of_model)

    def fill(
        self, nodes: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells; see `CellModel`."""
        wide = with_codes(nodes, self.sets)
        cells, probabilities = self.model.fill(wide, limits)
        for columns, shares in self._shares(wide, probabilities):
            cells[:, columns] = np.eye(len(columns))[shares.argmax(1)]
        return self._narrow(nodes, cells), probabilities

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Represent the distributions of cells; see `skvnce._imputer.fill`."""
        wide = with_codes(nodes, self.sets)
        points, probabilities = self.model.points(wide, levels, limits)
        ranks = (np.arange(len(points)) + 0.5) / len(points)
        ranks = levels if len(levels) == len(points) else ranks
        for columns, shares in self._shares(wide, probabilities):
            points[..., columns] = ranks[:, None, None] > 1 - shares
        return self._narrow(nodes, points), probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        wide = with_codes(nodes, self.sets)
        drawn = self.model.draw(wide, n_draws, limits)
        for k, columns in enumerate(self.sets, nodes.shape[1]):
            levels = drawn[..., k].astype(int)
            gone = np.isnan(nodes[:, columns])
            is_bad = ~gone[np.arange(len(nodes)), levels] & np.isnan(wide[:, k])
            rows = np.flatnonzero(is_bad.any(0))
            if len(rows):  # an observed 0
                probabilities = self.model.fill(wide[rows])[1]
                below = self._set_shares(wide[rows], probabilities, k).cumsum(1)[:, :-1]
                uniform = torch.rand(n_draws, len(rows), 1, dtype=torch.float64)
                new = (uniform.numpy() >= below).sum(-1)
                levels[:, rows] = np.where(is_bad[:, rows], new, levels[:, rows])
            drawn[..., columns] = np.eye(len(columns))[levels]
        return self._narrow(nodes, drawn)

    def _narrow(self, nodes, cells):
        return np.where(np.isnan(nodes), cells[..., : nodes.shape[1]], nodes)

    def _shares(self, wide, probabilities):
        """Move the probabilities of levels to those of the columns of sets.

        Returns sets, and the probabilities (n, n_columns) of their columns.
        """
        shares_of_sets = []
        for k, columns in enumerate(self.sets, len(self.is_level)):
            shares = self._set_shares(wide, probabilities, k)
            probabilities.pop(k, None)
            for j, share in zip(columns, shares.T, strict=True):
                if self.is_level[j]:
                    probabilities[j] = np.stack([1 - share, share], 1)
            shares_of_sets.append((columns, shares))
        return shares_of_sets

    def _set_shares(self, wide, probabilities, k):
        """Compute the probabilities of a set that agree with what is observed.

        `k`: the column of its levels.
        """
        columns = self.sets[k - len(self.is_level)]
        code, observed = wide[:, k], ~np.isnan(wide[:, k])
        shares = np.zeros((len(wide), len(columns)))
        weights = probabilities.get(k, shares) + _LEAST
        weights = np.where(np.isnan(wide[:, columns]), weights, 0)
        weights[~weights.any(1)] = 1.0  # all are 0, which contradicts the set
        weights = weights[~observed]
        shares[~observed] = weights / weights.sum(1, keepdims=True)
        shares[observed] = np.eye(len(columns))[code[observed].astype(int)]
        return shares


def places_of_sets(schema: Schema) -> tuple[np.ndarray, ...]:
    """Find the columns of sets among those of the model."""
    if schema.relations is None:
        return ()
    sets = schema.relations.sets
    return tuple(np.searchsorted(schema.model_columns, columns) for columns in sets)


def with_codes(nodes: np.ndarray, sets: Sequence[np.ndarray]) -> np.ndarray:
    """Append a column (n,) for each set: which of its columns is 1, or NaN."""
    codes = []
    for columns in sets:
        is_one = nodes[:, columns] == 1
        codes.append(np.where(is_one.any(1), is_one.argmax(1), np.nan))
    return np.column_stack([nodes, *codes])


class Rows(NamedTuple):
    """Rows of the columns of a model, and the relations that they obey."""

    schema: Schema
    related: Related
    nodes: np.ndarray  # (n, n_nodes), with the cells that follow
    free: np.ndarray  # bool (n, n_features), the cells that are missing
    ranges: np.ndarray  # (2, n, n_features), of filled cells

    @classmethod
    def of(cls, schema: Schema, nodes: np.ndarray, limits: Limits) -> Self:
        """Compute the cells that follow."""
        values = _values_of_nodes(schema, nodes)
        related = schema.relations
        cells = closed(
            related.bounds, values, related.checked, are_observed=related.are_observed
        )
        codes = codes_of(schema, cells)[:, schema.node_columns]
        free = np.zeros(values.shape, bool)
        free[:, schema.node_columns] = np.isnan(codes)
        nodes = np.where(np.isnan(nodes), codes, nodes)
        with np.errstate(all="ignore"):
            ranges = _ranges_of(schema)[:, None].repeat(len(nodes), 1)
        ends = ranges[..., schema.node_columns]
        ranges[..., schema.node_columns] = limits.within(*ends)
        return cls(schema, related, nodes, free, ranges)

    @property
    def levels(self) -> np.ndarray:
        """The cells of which the model knows, (n, n_nodes)."""
        return self.schema.at_levels(self.nodes, self.schema.node_columns)

    @property
    def followers(self) -> list[int]:
        """The followers, as columns of the model."""
        columns = [follower.column for follower in self.related.followers]
        return np.flatnonzero(np.isin(self.schema.node_columns, columns)).tolist()

    def filled(self, cells: np.ndarray, probabilities: dict) -> np.ndarray:
        """Change predicted cells (n, n_nodes) until all formulas and sets hold."""
        scores = cells.copy()
        for j, shares in probabilities.items():  # of sets of columns of two levels
            scores[:, j] = shares @ np.arange(shares.shape[1])
        return self.obeying(self.related.formulas, cells, scores, self.related.twins)

    def obeying(
        self,
        formulas: Sequence[Checked],
        cells: np.ndarray,
        scores: np.ndarray,
        twins: Sequence[Lookup] = (),
        of_one: Sequence[Checked] = (),
    ) -> np.ndarray:
        """Change filled cells (n, n_nodes) until formulas and lookups of twins hold.

        `scores` (n, n_nodes): in a set, the column of the highest one is 1.  `of_one`:
        formulas that hold where a single one of their cells is missing, which they know
        up to their rounding or its sign.
        """
        cells = np.where(np.isnan(self.nodes), cells, self.nodes)  # not as levels
        values, related = _values_of_nodes(self.schema, cells), self.related
        order = np.full(values.shape, np.nan)
        order[:, self.schema.node_columns] = scores
        with np.errstate(all="ignore"):
            # first, as cut cells would not obey
            values = np.where(self.free, values.clip(*self.ranges), values)
            _follow(related, values, self.free)
            loose = self.free.copy()
            for rule in twins:
                _look_up(rule, values, loose, related.has_codes)
            for formula in of_one:
                places = list(formula.rule.columns)
                alone = loose & (self.free[:, places].sum(1, keepdims=True) == 1)
                alone[:, related.dropped] = False
                filled = Filled(values, alone, self.ranges, order)
                values, _ = obeyed(related.bounds, [formula], filled)
                loose[:, places] &= ~alone[:, places]
            # followers, and sets, of which one column is 1 already, move if they must
            filled = Filled(values, loose, self.ranges, order)
            args = related.bounds, formulas
            values, hold = obeyed(*args, filled, related.dropped)
            rows = np.flatnonzero(~hold)
            if len(rows):  # no levels that rows have shown agree
                filled = filled._replace(ranges=self._wide_ranges()).of(rows, values)
                values[rows], _ = obeyed(*args, filled, related.dropped)
            _follow(related, values, self.free)
            for rule in related.names if formulas else ():
                rows = np.flatnonzero(self.free[:, rule.columns[0]])
                names = rule.solve(values[np.ix_(rows, rule.columns)])
                good = np.isfinite(names)
                values[rows[good], rule.columns[0]] = names[good]
        codes = codes_of(self.schema, values)[:, self.schema.node_columns]
        codes = np.where(np.isnan(codes), cells, codes)  # no level: as it was filled
        return np.where(np.isnan(self.nodes), codes, cells)

    def _wide_ranges(self):
        """Return ranges in which levels of open columns have no ends but their sign."""
        ranges = self.ranges.copy()
        for j, column in _levels_of_numbers(self.schema):
            if column.is_open:
                ranges[0, :, j] = 0.0 if column.levels[0] >= 0 else -np.inf
                ranges[1, :, j] = np.inf
        return ranges


def _values_of_nodes(schema, nodes):
    """Put cells of the model (n, n_nodes) into all columns, as values."""
    table = np.full((len(nodes), schema.n_columns), np.nan)
    table[:, schema.node_columns] = nodes
    return values_of(schema, table)


def _follow(related, values, free):
    """Compute columns that follow from others, in place."""
    bounds = related.bounds
    for column, source, checked in related.followers:
        rows = np.flatnonzero(free[:, column])
        if not len(rows):
            continue
        # filled cells of whole numbers are rounded at last: the column follows these
        whole = rows[free[rows, source] & (bounds.unit[source] >= 1)]
        values[whole, source] = np.rint(values[whole, source])
        places = list(checked.rule.columns)
        part, k = values[np.ix_(rows, places)], places.index(column)
        cells = checked.rule.solve(part, k)
        ends = bounds.low[source], bounds.high[source]
        part[:, 1 - k] = part[:, 1 - k].clip(*ends)  # where the function exists
        cells = np.where(np.isfinite(cells), cells, checked.rule.solve(part, k))
        # of logarithms of an observed zero nothing is known
        cells = np.where(np.isfinite(cells), cells, bounds.middle[column])
        values[rows, column] = bounds.snapped(cells, column)


def _look_up(rule, values, free, has_codes):
    """Look up cells of rows that lack both columns, in place.

    A number becomes the key that is nearest to it, unless another column has been
    looked up by it.
    """
    column, by = rule.columns
    rows = np.flatnonzero(free[:, column])
    keys, cells = np.array(rule.keys)[:, 0], values[rows, by]
    if not has_codes[by]:
        middles = (keys[1:] + keys[:-1]) / 2
        nearest = keys[np.searchsorted(middles, cells)]
        cells = values[rows, by] = np.where(free[rows, by], nearest, cells)
    levels = rule.solve(np.column_stack([cells, cells]))
    good = np.isfinite(levels)
    values[rows[good], column] = levels[good]
    free[np.ix_(rows[good], rule.columns)] = False


def _ranges_of(schema):
    """Return the ranges of columns (2, p); other levels have none."""
    if schema.values is None:
        ranges = np.array([[-np.inf], [np.inf]]).repeat(schema.n_columns, 1)
    else:
        ranges = schema.values.ranges.astype(np.float64)
    for j, column in enumerate(schema.columns or ()):
        if column.levels is not None:
            ranges[:, j] = -np.inf, np.inf
    for j, column in _levels_of_numbers(schema):
        ranges[:, j] = column.levels[0], column.levels[-1]
    for column, source, checked in reversed(schema.relations.followers):
        # where the follower would be beyond its range, the source is, too
        part = np.repeat(ranges[:, [column]], 2, 1)
        ends = checked.rule.solve(part, checked.rule.columns.index(source))
        if source in checked.solves and not np.isnan(ends).any():
            low, high = ranges[:, source]
            ranges[:, source] = max(ends.min(), low), min(ends.max(), high)
    return ranges
