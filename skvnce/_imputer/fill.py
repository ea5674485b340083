"""Tables whose missing cells a fitted model fills or draws: the same for all models."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._core.numbers import check_count, check_share, least_draws
from skvnce._core.progress import step
from skvnce._core.warnings import warn_user
from skvnce._imputer.fitted import CellModel, Filled, in_turn, n_chains
from skvnce._imputer.related import Related, deduce, use_relations, warn_of_violations
from skvnce._tables.schema import Schema
from skvnce._tables.values import NO_LIMITS, Limits, ValidValues, half_sample_mode

# 32 MiB of float64
_CHUNK = 2**22  # maximum number of cells, over all chains, in a chunk of rows
_MANY = 0.05  # share of draws that are cut, from which on there is a warning
_FEW = 5  # draws that are cut, up to which there is none


class Predicted(NamedTuple):
    """Predictions of the missing cells of a table."""

    # (n_samples, n_features_in_), the table, with codes of categories, and its missing
    # cells filled
    filled: np.ndarray
    # (n_samples, n_categories), those of the categories of each column that has some; 1
    # and 0 in observed cells
    probabilities: dict


def fill(
    schema: Schema, model: CellModel, X: np.ndarray, limits: Limits = NO_LIMITS
) -> Predicted:
    """Fill the missing cells of a table by predictions."""
    missing, (X, [model], related) = np.isnan(X), _related(schema, X, [model], limits)
    filled, shares = with_constants(schema, X), certain(schema, X)
    for (rows, columns), nodes in incomplete_chunks(schema, X, n_chains(model)):
        ends = limits.of(rows[:, 0], columns[0])
        gone = np.isnan(nodes)  # before, as a model may fill in place
        cells, probabilities = model.fill(nodes, ends)
        _check_complete(schema, columns[0], cells)
        filled[rows, columns] = _converted(schema, model, nodes, cells, X.dtype)
        for node, levels in probabilities.items():
            gaps = gone[:, node]
            shares[columns[0, node]][rows[gaps, 0]] = levels[gaps]
    warn_of_violations(schema, related, missing, filled)
    return Predicted(limits.clipped(filled), shares)


def draw(
    schema: Schema,
    models: Sequence[CellModel],  # each is used equally often, in random order
    X: np.ndarray,  # (n_samples, n_features_in_)
    n_draws: int,
    limits: Limits = NO_LIMITS,  # of the missing cells of X
) -> np.ndarray:
    """Draw the missing cells of a table, with torch's global stream."""
    missing, (X, models, related) = np.isnan(X), _related(schema, X, models, limits)
    filled = np.repeat(with_constants(schema, X)[None], n_draws, 0)
    turns = in_turn(len(models), n_draws)
    chains = n_chains(models[0], n_draws)
    for (rows, columns), nodes in incomplete_chunks(schema, X, chains):
        ends = limits.of(rows[:, 0], columns[0])
        for turn in np.unique(turns):
            places = np.flatnonzero(turns == turn)
            cells = models[turn].draw(nodes, len(places), ends)
            _check_complete(schema, columns[0], cells)
            where = np.ix_(places, rows[:, 0], columns[0])
            filled[where] = _converted(schema, models[turn], nodes, cells, X.dtype)
    related = related and related.of_draws()
    warn_of_violations(schema, related, missing, filled[0])
    return returned(schema, limits.clipped(filled), X)


def _related(
    schema: Schema, X: np.ndarray, models: Sequence[CellModel], limits: Limits
) -> tuple[np.ndarray, list[CellModel], Related | None]:
    """Deduce cells from relations, and let models obey these; limits stand alone."""
    if limits:
        return X, models, None
    X, related = deduce(schema, X)
    return X, [use_relations(model, related) for model in models], related


def score(
    schema: Schema, model: CellModel | None, X: np.ndarray, *, with_errors: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compute log-densities of rows, and standard errors; each (n_samples,).

    Without a model, as all columns are constant, both are 0.
    """
    scores, errors = np.zeros((2, len(X)))
    if model is not None:
        for (rows, _), nodes in chunks(schema, X, n_chains(model)):
            nodes = schema.at_levels(nodes, schema.node_columns)
            densities = model.log_density(nodes, with_errors=with_errors)
            scores[rows[:, 0]], errors[rows[:, 0]] = densities
    return scores, errors


def _converted(
    schema: Schema, model: CellModel, nodes: np.ndarray, cells: np.ndarray, dtype: type
) -> np.ndarray:
    """Convert cells (..., n, n_node_columns) of rows to valid ones of a data type."""
    cells = schema.values.converted(cells, schema.node_columns, dtype)
    if not schema.group_columns:
        return cells
    # what other rows of a group say, even if it is beyond all rows of the fit
    determined = model.determined(nodes)
    return np.where(np.isnan(determined), cells, determined)


def warn_of_zeros(schema: Schema, X: np.ndarray, drawn: np.ndarray) -> None:
    """Warn of positive columns whose draws are often negative, and so set to 0."""
    places = {int(j): place for place, j in enumerate(schema.returned)}
    valid, least = schema.values, np.abs(schema.ends).min(0)
    # on a grid zeros are the next value, and not only what is beyond
    free = ~valid.codes & ~valid.integers & (valid.grid == 0) & (least > 0)
    for j in schema.model_columns[free[schema.model_columns]]:
        side = int(valid.high[j] == 0)
        gone = np.isnan(X[:, j])
        if valid.by_user[side, j] or valid.ranges[side, j] != 0 or not gone.any():
            continue
        zeros = drawn[:, gone, places[int(j)]] == 0
        share = zeros.mean()
        if share > _MANY and zeros.sum() > _FEW:
            sign, other = ("negative", "positive")[:: 1 - 2 * side]
            name = ("min_value", "max_value")[side]
            warn_user(
                f"{share:.0%} of the draws of {schema.label(j)} would be {sign} and "
                f"are set to 0, as all observed cells are {other}. Take logarithms of "
                f"the column, or pass {name} if it can be {sign}."
            )


def _check_complete(schema: Schema, columns: np.ndarray, cells: np.ndarray) -> None:
    """Reject cells (..., n_model_columns) that a model leaves missing."""
    lacking = np.isnan(cells).any(tuple(range(cells.ndim - 1)))
    if lacking.any():
        names = schema.labels(columns[lacking], 5)
        raise ValueError(
            f"The fitted model returns NaN for {names}. If it is your own, let its "
            "fill and draw return a number for each cell."
        )


def with_constants(schema: Schema, X: np.ndarray) -> np.ndarray:
    """Fill missing cells of constant columns, and those of others by a valid value."""
    values = np.clip(np.zeros(X.shape[1]), *schema.values.ranges)
    values[list(schema.constants)] = schema.constant_cells
    return np.where(np.isnan(X), values.astype(X.dtype), X)


def certain(schema: Schema, X: np.ndarray) -> dict:
    """Return the probabilities where cells are observed or constant, not empty."""
    if not schema.columns:
        return {}
    never = np.isnan(schema.ends).all(0)
    cells = schema.at_levels(with_constants(schema, X))
    return {
        place: np.eye(len(column.levels))[np.nan_to_num(cells[:, place]).astype(int)]
        for place, column in enumerate(schema.columns)
        if column.levels and not never[place]
    }


def returned(schema: Schema, filled: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Restore observed cells (..., n_samples, n_features), and select columns.

    Empty columns are kept or dropped; `filled` has values for them.
    """
    filled = np.where(np.isnan(X), filled, X)
    columns = schema.returned
    if len(columns) > len(schema.model_columns):  # all of which are kept
        empty = np.setdiff1d(columns, schema.model_columns)
        filled[..., empty] = np.nan_to_num(filled[..., empty])
    return filled[..., columns]


def chunks(schema: Schema, X: np.ndarray, n_chains: int = 1) -> Iterator:
    """Yield the indices and float64 values of the model's cells, in chunks of rows."""
    yield from _chunks(schema, X, np.arange(len(X)), n_chains, "scoring rows")


def incomplete_chunks(schema: Schema, X: np.ndarray, n_chains: int = 1) -> Iterator:
    """Yield chunks of the rows that have a missing cell of the model."""
    rows = np.flatnonzero(np.isnan(X[:, schema.model_columns]).any(1))
    yield from _chunks(schema, X, rows, n_chains, "filling rows")


def _chunks(
    schema: Schema, X: np.ndarray, rows: np.ndarray, n_chains: int, work: str
) -> Iterator:
    columns = schema.node_columns
    if not len(schema.model_columns):
        return
    parts = split(schema, X, max(1, _CHUNK // (len(columns) * n_chains)), rows)
    end, total = 0, sum(map(len, parts))
    for part in parts:
        end += len(part)
        with step(work, end, total, is_brief=True):
            cells = np.ix_(part, columns)
            yield cells, X[cells].astype(np.float64)


def split(
    schema: Schema, X: np.ndarray, size: int, rows: np.ndarray
) -> list[np.ndarray]:
    """Split rows into parts; with the other rows of groups, which are whole."""
    groups = schema.groups_of(X)
    members = np.flatnonzero(np.isin(groups, groups[rows]))
    rows = members[groups[members].argsort(kind="stable")]
    numbers = groups[rows]
    ends = np.arange(size, len(rows) + size, size).clip(max=len(rows))
    ends = np.unique(np.searchsorted(numbers, numbers[ends - 1], side="right"))
    return [rows[first:end] for first, end in pairwise([0, *ends])]


# ----------------------------------------
# How the distribution of a missing number becomes the one value that fills it.
#
# Means are those of `CellModel.fill`.  For the other strategies a model has a method
# ``points(nodes, levels, limits)``, which returns values (n_points, n,
# n_model_columns) of equal weight that represent the distribution of each missing
# cell, and the probabilities of categories as `CellModel.fill` returns them:
# quantiles at the levels where a model has them, or else draws, of any number.  The
# points are functions of each row alone, and cells of categories are not used.  An
# attribute ``n_points`` is the number of tables in memory meanwhile, if it is larger
# than that of the levels.


_N_LEVELS = 31  # quantiles, whose distances show the mode


class Strategy(NamedTuple):
    """A summary of points."""

    levels: np.ndarray  # (n_levels,), of the quantiles that it needs
    summary: Callable  # maps points (n_points, ...) to a value of each cell (...)

    def of(
        self, points: np.ndarray, values: ValidValues, columns: np.ndarray
    ) -> np.ndarray:
        """Summarise points (n_points, n, n_columns) of some columns by valid values."""
        # rounded first: the mode of repeated values is the most frequent one
        cells = self.summary(values.rounded(points, columns))
        # and afterwards, because the middle of two values need not be one
        return values.rounded(cells, columns)

    def fill(
        self,
        model: CellModel,
        nodes: np.ndarray,
        limits: Limits,
        values: ValidValues,
        columns: np.ndarray,
    ) -> Filled:
        """Fill missing cells by a model that has points; see `CellModel.fill`."""
        points, probabilities = model.points(nodes, self.levels, limits)
        cells = self.of(points, values, columns)
        for node, shares in probabilities.items():
            cells[:, node] = shares.argmax(1)
        if hasattr(model, "obeying"):  # relations of columns
            cells = model.obeying(nodes, cells, probabilities, limits)
        return cells, probabilities

    def n_chains(self, model: CellModel) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return max(n_chains(model), len(self.levels), getattr(model, "n_points", 1))


STRATEGIES = {
    "mean": None,  # models compute means without points
    "median": Strategy(np.array([0.5]), partial(np.median, axis=0)),
    "mode": Strategy((np.arange(_N_LEVELS) + 0.5) / _N_LEVELS, half_sample_mode),
}


# ----------------------------------------
# Cells of models as valid values of their columns, and marginal distributions.
#
# A column that a model does not predict has the distribution of its observed cells.


class Marginal(NamedTuple):
    """The distribution of the observed cells of a column."""

    best: float  # what predictions are: the mean, or the most frequent category
    values: np.ndarray  # (n,), the observed cells, increasing
    below: np.ndarray  # (n - 1,), cumulative weights; those of all cells add up to 1

    @classmethod
    def of(cls, column: np.ndarray, weights: np.ndarray, *, is_category: bool) -> Self:
        """Find the distribution of a column (n,) of rows with weights (n,)."""
        observed = ~np.isnan(column)
        order = np.argsort(column[observed], kind="stable")
        values, weight = column[observed][order], weights[observed][order]
        share = weight / weight.sum()
        best = share @ values
        if is_category:
            best = np.bincount(values.astype(int), share).argmax()
        # without the last sum, which rounding may put below 1 and a uniform number
        return cls(float(best), values, share.cumsum()[:-1])

    def probabilities(self, n_categories: int) -> np.ndarray:
        """Return the weights of the categories of a column; (n_categories,)."""
        share = np.diff(self.below, prepend=0.0, append=1.0)
        return np.bincount(self.values.astype(int), share, minlength=n_categories)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Find quantiles, linear between the middles of the weights; (n_levels,)."""
        below, up_to = np.append(0.0, self.below), np.append(self.below, 1.0)
        return np.interp(levels, (below + up_to) / 2, self.values)

    def draws(self, shape: tuple) -> np.ndarray:
        """Draw observed cells of a shape, with torch's global stream."""
        uniform = torch.rand(shape, dtype=torch.float64).numpy()
        return self.values[np.searchsorted(self.below, uniform, side="right")]


class ValidCells(NamedTuple):
    """A model whose cells are valid values of their columns."""

    model: CellModel
    values: ValidValues  # of all columns of the table
    columns: np.ndarray  # int (n_model_columns,), the columns of the model
    # by model column: what takes the place of the model.  Cells with limits are the
    # model's, as observed values may be outside of the limits
    marginals: dict
    strategy: str = "mean"  # by which numbers are filled, a key of `STRATEGIES`

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        strategy = STRATEGIES[self.strategy]
        if strategy and n_draws is None:
            return strategy.n_chains(self.model)
        return n_chains(self.model, n_draws)

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells; see `CellModel`."""
        cells, probabilities = self._predicted(nodes, limits)
        for node, marginal in self.marginals.items():
            best = self._best(node, is_number=node not in probabilities)
            cells[..., node] = limits.spare(cells, node, best)
            if node in probabilities:
                levels = probabilities[node]
                levels[:] = marginal.probabilities(levels.shape[1])
        return cells, probabilities

    def determined(self, nodes: np.ndarray) -> np.ndarray:
        """Fill cells that follow from others; see `GroupedNormal`."""
        return self.model.determined(nodes)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Represent the distributions of cells; see `skvnce._imputer.fill`."""
        points, probabilities = self.model.points(nodes, levels, limits)
        middles = (np.arange(len(points)) + 0.5) / len(points)
        for node, marginal in self.marginals.items():
            quantiles = marginal.quantiles(middles)[:, None]
            points[..., node] = limits.spare(points, node, quantiles)
        return self.values.rounded(points, self.columns), probabilities

    def _predicted(self, nodes: np.ndarray, limits: Limits) -> Filled:
        """Fill missing cells by the model."""
        strategy, valid = STRATEGIES[self.strategy], (self.values, self.columns)
        if strategy:
            return strategy.fill(self.model, nodes, limits, *valid)
        cells, probabilities = self.model.fill(nodes, limits)
        return self.values.clipped(cells, self.columns), probabilities

    def _best(self, node: int, *, is_number: bool) -> float:
        """Return the value that fills a column by its marginal distribution."""
        marginal, strategy = self.marginals[node], STRATEGIES[self.strategy]
        if strategy and is_number:
            points = marginal.quantiles(strategy.levels)[:, None]
            return strategy.of(points, self.values, self.columns[[node]])[0]
        return marginal.best

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        cells = self.model.draw(nodes, n_draws, limits)
        for node, marginal in self.marginals.items():
            drawn = marginal.draws(cells.shape[:-1])
            cells[..., node] = limits.spare(cells, node, drawn)
        # last, because draws from marginals need not be within the user's bounds
        return self.values.rounded(cells, self.columns)


# ----------------------------------------
# Quantiles of missing cells, from draws.
#
# If m draws of a cell and its true value come from the same distribution, the value
# is at most the k-th smallest draw with probability
#
# .. math:: P(y \le y_{(k)}) \ge k / (m + 1), \qquad (1)
#
# with equality if no values repeat.  Quantiles are therefore draws: values that the
# cell can have, without interpolation.
#
# References ---------- David and Nagaraja (2003), Order statistics.


_ROUNDING = 1e-9  # of levels, in ranks: 0.05 * 200 is below 10


def ranks_of_interval(level: float, n_draws: int) -> tuple[int, int]:
    """Find the ranks, from 0, of the draws that are the ends of an interval."""
    check_share(level, "level")
    check_count(n_draws, "n_draws")
    outside = (1 - level) / 2
    first = floor(outside * (n_draws + 1) + _ROUNDING)
    if not first:
        _reject(f"level={level!r}", outside, n_draws)
    return first - 1, n_draws - first


def ranks_of_quantiles(q: object, n_draws: int) -> list[int]:
    """Find the ranks, from 0, of the draws that are quantiles (n_quantiles,)."""
    check_count(n_draws, "n_draws")
    if not np.size(q):
        raise ValueError("q must have a number or more, got none.")
    ranks = []
    for share in np.ravel(q).tolist():
        check_share(share, "q")
        rank = ceil(share * (n_draws + 1) - _ROUNDING)
        if share * (n_draws + 1) < 1 - _ROUNDING or rank > n_draws:
            _reject(f"q={share!r}", min(share, 1 - share), n_draws)
        ranks.append(rank - 1)
    return ranks


def _reject(setting: str, share: float, n_draws: int) -> None:
    raise ValueError(
        f"{setting} needs n_draws of at least {least_draws(share)}, got "
        f"n_draws={n_draws}."
    )


def ordered_draws(
    draw: Callable,
    schema: Schema,
    X: np.ndarray,  # (n_samples, n_features_in_)
    ranks: Sequence[int],  # from 0 to n_draws - 1
    n_draws: int,
) -> np.ndarray:
    """Choose draws of these ranks for each missing cell of validated rows.

    `draw` maps indices of rows to `n_draws` tables of them.
    """
    ranks = list(ranks)
    ordered = np.repeat(X[None, :, schema.returned], len(ranks), 0)
    rows = np.flatnonzero(np.isnan(X).any(1))
    size = max(1, _CHUNK // (X.shape[1] * n_draws))
    for part in split(schema, X, size, rows):
        # a few ranks take less time than a sort
        ordered[:, part] = np.partition(draw(part), sorted(set(ranks)), axis=0)[ranks]
    return ordered


def columns_with_order(schema: Schema) -> np.ndarray:
    """Return which columns have quantiles: all but nominal and empty ones."""
    has_order = np.zeros(schema.n_columns, dtype=bool)
    has_order[schema.with_data] = True
    for place, column in enumerate(schema.columns or ()):
        has_order[place] &= column.kind != "nominal"
    return has_order
