"""Categories that determine categories: each town lies in one county.

A latent normal variable, or a few latent classes, know of such a relation only that it
is close, so that their draws contradict it.  Where the rows show it often enough, and
no row contradicts it, it holds for missing cells, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from skvnce._imputer.fitted import CellModel, Filled, chains_of_model, points_of_model
from skvnce._tables.schema import Schema
from skvnce._tables.values import NO_LIMITS, Limits

_REPEATS = 100  # rows of a level that another row has shown: under 3 % are exceptions
_NATS = 20.0  # of evidence against independent columns, as a rare level needs more rows
_LEAST = 1e-12  # probability of a level, for sums that are positive
_FIRST_ROWS = 300  # enough to refute most pairs of columns


class Determined(NamedTuple):
    """A column of categories whose level another column determines."""

    by: int  # the column that determines
    column: int
    # int (n_levels_of_by,), the level of `column` for each of `by`; -1 where no row
    # shows it
    levels: np.ndarray

    def of(self, codes: np.ndarray) -> np.ndarray:
        """Return the levels of `column` for cells of `by`; -1 where unknown."""
        codes = np.nan_to_num(codes, nan=len(self.levels)).astype(int)
        return np.append(self.levels, -1)[codes.clip(max=len(self.levels))]

    def holds(self, nodes: np.ndarray) -> bool:
        """Return whether no row contradicts the relation."""
        level, cells = self.of(nodes[:, self.by]), nodes[:, self.column]
        return not ((level >= 0) & ~np.isnan(cells) & (level != cells)).any()


def determined_columns(schema: Schema, X: np.ndarray) -> tuple[tuple, ...]:
    """Find the columns of categories that others determine without an exception.

    `X` (n, n_features).  Returns the fields of `Determined`, whose columns are those of
    the model.  None with groups, whose effects have levels of their own.
    """
    if schema.group_columns:
        return ()
    nodes = _nodes(schema, X)
    columns = np.flatnonzero(schema.is_categorical).tolist()
    if schema.relations is not None:
        gone = np.isin(schema.model_columns, schema.relations.dropped)
        columns = [j for j in columns if not gone[j]]
    pairs = [(i, j) for i in columns for j in columns if i != j]
    # the first rows refute most pairs
    for rows in (nodes[:_FIRST_ROWS], nodes):
        relations = _of_pairs(rows, columns, pairs)
        pairs = [(relation.by, relation.column) for relation in relations]
    shown = [relation for relation in relations if _is_shown(nodes, relation)]
    # coarse ones first, so that in chains of them the last word is of the finest
    return tuple(map(tuple, sorted(shown, key=lambda relation: len(relation.levels))))


def still_determined(schema: Schema, X: np.ndarray) -> tuple[tuple, ...]:
    """List the relations of a schema that no new row contradicts."""
    nodes, pairs = _nodes(schema, X), schema.determined
    return tuple(fields for fields in pairs if Determined(*fields).holds(nodes))


def with_determined(schema: Schema, models: Sequence[CellModel]) -> list[CellModel]:
    """Let the relations of a schema hold in the cells of models."""
    if not schema.determined:
        return models
    relations = [Determined(*fields) for fields in schema.determined]
    return [WithDetermined(model, relations, schema.n_categories) for model in models]


def _nodes(schema, X):
    return X[:, schema.model_columns].astype(np.float64)


def _of_pairs(nodes, columns, pairs):
    """List the relations of pairs of columns that no row contradicts."""
    n_levels = {j: int(np.nanmax(nodes[:, j], initial=-1)) + 1 for j in columns}
    relations = []
    for by, column in pairs:
        both = nodes[~np.isnan(nodes[:, [by, column]]).any(1)][:, [by, column]]
        levels = np.full(n_levels[by], -1)
        levels[both[:, 0].astype(int)] = both[:, 1]
        relation = Determined(by, column, levels)
        if relation.holds(nodes):
            relations.append(relation)
    return relations


def _is_shown(nodes, relation):
    """Return whether rows repeat a relation so often that it is not by chance."""
    by, column, levels = relation
    cells = nodes[~np.isnan(nodes[:, [by, column]]).any(1), column].astype(int)
    counts = np.bincount(cells)
    repeats = counts - np.bincount(levels[levels >= 0], minlength=len(counts))
    shares = np.maximum(counts, 1) / max(len(cells), 1)
    return repeats.sum() >= _REPEATS and -repeats @ np.log(shares) >= _NATS


class WithDetermined(NamedTuple):
    """A model whose cells follow from others where columns determine columns."""

    model: CellModel
    relations: Sequence[Determined]
    n_categories: np.ndarray  # int (n_model_columns,)

    n_chains = chains_of_model
    n_points = property(points_of_model)

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells; see `CellModel`."""
        filled = self._with_determined_cells(nodes)
        cells, probabilities = self.model.fill(filled, limits)
        probabilities = self._given_others(filled, probabilities)
        for j in {relation.by for relation in self.relations}:
            missing = np.isnan(filled[:, j])
            cells[missing, j] = probabilities[j][missing].argmax(1)
        return cells, probabilities

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Represent the distributions of cells; see `skvnce._imputer.fill`."""
        filled = self._with_determined_cells(nodes)
        points, probabilities = self.model.points(filled, levels, limits)
        return points, self._given_others(filled, probabilities)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        filled = self._with_determined_cells(nodes)
        drawn = self.model.draw(filled, n_draws, limits)
        for by, column, _ in self.relations:
            missing = np.isnan(filled[:, by])
            rows = np.flatnonzero(missing & ~np.isnan(filled[:, column]))
            if len(rows):
                self._draw_again(drawn, filled, rows, by, limits)
        for relation in self.relations:
            missing = np.isnan(filled[:, [relation.by, relation.column]]).all(1)
            level = relation.of(drawn[:, missing, relation.by])
            cells = drawn[:, missing, relation.column]
            drawn[:, missing, relation.column] = np.where(level >= 0, level, cells)
        return drawn

    def _with_determined_cells(self, nodes):
        """Fill the missing cells that observed ones determine."""
        filled = nodes.copy()
        for relation in self.relations:
            level = relation.of(nodes[:, relation.by])
            missing = np.isnan(filled[:, relation.column]) & (level >= 0)
            filled[missing, relation.column] = level[missing]
        return filled

    def _given_others(self, filled, probabilities):
        """Set the probabilities of levels that contradict determined cells to zero."""
        probabilities = dict(probabilities)
        for j in {j for by, column, _ in self.relations for j in (by, column)}:
            size, observed = self.n_categories[j], ~np.isnan(filled[:, j])
            shares = np.zeros((len(filled), size))
            if not observed.all():  # else a model may have no probabilities
                shares[~observed] = probabilities[j][~observed]
            shares[observed] = np.eye(size)[filled[observed, j].astype(int)]
            probabilities[j] = shares
        for by, column, levels in self.relations:
            shares, cells = probabilities[by], filled[:, column]
            rows = np.flatnonzero(np.isnan(filled[:, by]) & ~np.isnan(cells))
            width = shares.shape[1]
            determined = np.append(levels, np.full(width - len(levels), -1))
            agree = (determined < 0) | (determined == cells[rows, None])
            agree[~agree.any(1)] = True  # nothing agrees with a level without a row
            agreeing = shares[rows] * agree + _LEAST * agree
            shares[rows] = agreeing / agreeing.sum(1, keepdims=True)
        return probabilities

    def _draw_again(self, drawn, filled, rows, by, limits):
        """Draw cells again that contradict the cells that they determine."""
        wrong = np.zeros(drawn[:, rows, by].shape, dtype=bool)
        for relation in self.relations:
            if relation.by == by:
                level = relation.of(drawn[:, rows, by])
                cells = filled[rows, relation.column]
                wrong |= (level >= 0) & (level != cells) & ~np.isnan(cells)
        rows, wrong = rows[wrong.any(0)], wrong[:, wrong.any(0)]
        if not len(rows):
            return
        shares = self.model.fill(filled[rows], limits.of(rows))[1]
        below = self._given_others(filled[rows], shares)[by].cumsum(1)[:, :-1]
        uniform = torch.rand(wrong.shape, dtype=torch.float64).numpy()
        new = (uniform[..., None] >= below).sum(-1)
        drawn[:, rows, by] = np.where(wrong, new, drawn[:, rows, by])
