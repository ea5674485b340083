"""Models of single columns given the other ones, which any regressor can be.

Cells of a regressor's column are drawn as its prediction plus a residual of a row whose
prediction was similar, so that the spread may depend on the prediction.  Residuals are
out of fold: those of the rows that a model was fitted to are too small.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from skvnce._core.random import row_keyed
from skvnce._core.windows import windows
from skvnce._imputer.fitted import CellModel, Filled, in_turn, n_chains
from skvnce._tables.values import NO_LIMITS, Limits

_LEAST = 1e-6  # probability of a level of which a classifier knows nothing
_NEAR = 20  # residuals from which a draw selects; with fewer, spreads are noisy
_QUANTILES = 99  # of regressors that predict quantiles


class ColumnModel(Protocol):
    """A model of a column given completed rows."""

    column: int  # its place among the columns of the joint model
    width: int  # number of levels of the column, or 1

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw the cells of the column by uniform numbers (n,), from completed rows.

        Returns cells (n,) and, if wanted, means or probabilities of levels (n, width).
        """
        ...


class Design(NamedTuple):
    """The predictors of a column, as a matrix that any regressor accepts."""

    columns: tuple[int, ...]  # places among the columns of the joint model
    # of the nominal ones with at least three levels, which become indicators; 0 for
    # others
    n_levels: tuple[int, ...]
    # the word column and the name of the column that is predicted, for errors
    label: str = "a column"
    sign: float = 0.0  # of all cells of that column, which draws keep; 0 for none

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        """Make the matrix (n, n_predictors) of completed rows (n, n_nodes)."""
        parts = [
            rows[:, [j]] if not n else (rows[:, [j]] == np.arange(n)).astype(float)
            for j, n in zip(self.columns, self.n_levels, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def call(self, model: Any, method: str, rows: np.ndarray, **options: Any) -> Any:
        """Let a fitted estimator predict completed rows; errors name the column."""
        try:
            return getattr(model, method)(self.matrix(rows), **options)
        except Warning:  # a filter makes an error of it
            raise
        except Exception as error:  # of any library; it is raised again
            raise failure(model, self.label, error) from error


def failure(model: Any, label: str, error: Exception, remedy: str = "") -> ValueError:
    """Make the error that names the estimator of a column that has failed."""
    said = str(error).rstrip() or type(error).__name__
    said += "" if said.endswith((".", "!", "?")) else "."
    return ValueError(
        f"{model!r} failed on {label}: {said} Pass another estimator for this column, "
        f"or None{remedy}."
    )


class Regression(NamedTuple):
    """A fitted regressor of a column; see `ColumnModel`."""

    column: int
    model: Any
    design: Design
    predictions: np.ndarray  # (n,), out of fold, increasing
    residuals: np.ndarray  # (n,), of the same rows
    width: int = 1

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw predictions plus residuals; see `ColumnModel`."""
        predicted = self.design.call(self.model, "predict", rows)
        means = np.ravel(predicted).astype(float)
        size = min(_NEAR, len(self.residuals))
        _, first, last = windows(self.predictions, means, size)
        picked = first + (uniform * (last - first)).astype(int)
        drawn = means + self.residuals[picked]
        sign = self.design.sign
        if sign:
            # the cells of the same rows, which have the sign, take their place
            cells = self.predictions + self.residuals
            drawn = np.where(sign * drawn > 0, drawn, cells[picked])
            total = np.append(0.0, cells.cumsum())
            near = (total[last] - total[first]) / (last - first)
            means = np.where(sign * means > 0, means, near)
        return drawn, means[:, None] if with_means else None


class Quantiles(NamedTuple):
    """A fitted regressor whose `predict` takes ``quantiles``; see `ColumnModel`."""

    column: int
    model: Any
    design: Design
    options: dict  # other arguments of `predict`
    width: int = 1

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw between predicted quantiles; see `ColumnModel`."""
        levels = np.arange(1, _QUANTILES + 1) / (_QUANTILES + 1)
        arguments = {"quantiles": levels.tolist(), **self.options}
        predicted = self.design.call(self.model, "predict", rows, **arguments)
        # a list of quantiles (TabPFN), or a row for each row
        table = (
            np.stack(predicted, 1)
            if isinstance(predicted, list | tuple)
            else np.asarray(predicted)
        )
        table = np.sort(table.astype(float), axis=1)  # quantiles may cross
        place = uniform * (_QUANTILES + 1) - 1
        low = np.clip(np.floor(place).astype(int), 0, _QUANTILES - 2)
        share = np.clip(place - low, 0.0, 1.0)
        at = np.arange(len(rows))
        drawn = table[at, low] * (1 - share) + table[at, low + 1] * share
        return drawn, table.mean(1)[:, None] if with_means else None


class Classification(NamedTuple):
    """A fitted classifier of a column; see `ColumnModel`."""

    column: int
    model: Any  # its classes are codes of levels
    design: Design
    width: int

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw levels by their probabilities; see `ColumnModel`."""
        shares = np.full((len(rows), self.width), _LEAST)
        predicted = self.design.call(self.model, "predict_proba", rows)
        shares[:, self.model.classes_.astype(int)] += predicted
        shares /= shares.sum(1, keepdims=True)
        # the last sum may be rounded to less than a uniform number
        drawn = (shares.cumsum(1)[:, :-1] <= uniform[:, None]).sum(1)
        return drawn.astype(float), shares if with_means else None


# ----------------------------------------
# Averages of fitted models, with weights for each column (linear pools).
#
# A draw of a table takes each column from one of the models, with its weights as the
# probabilities.  One uniform number chooses for all columns, so that columns of the
# same weights come from the same model, with the dependence that it has.


# a level of which one model is sure that it is impossible would have probability 0 in
# the geometric mean, whatever the others say
_FLOOR = 0.003  # least probability in a geometric mean


def average(
    filled: Sequence[np.ndarray], shares: Sequence[dict], weights: np.ndarray
) -> Filled:
    """Average predictions: numbers arithmetically, probabilities geometrically.

    The weights (n_models, n_nodes) of a column add up to one.
    """
    pairs = zip(filled, weights, strict=True)
    cells = sum(table * weight for table, weight in pairs)
    levels_of = pooled_shares(shares, weights)
    for node, levels in levels_of.items():
        cells[:, node] = levels.argmax(1)
    return cells, levels_of


def pooled_shares(shares: Sequence[dict], weights: np.ndarray) -> dict:
    """Average the probabilities of all columns of categories; see `average`."""
    return {
        node: geometric_mean(
            [probabilities[node] for probabilities in shares], weights[:, node]
        )
        for node in shares[0]
    }


def narrow(draws: np.ndarray, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Move draws (..., n_nodes) towards their means; see `skvnce.columns.fit`."""
    return means + spreads * (draws - means)


def geometric_mean(shares: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Average probabilities (n, n_levels) of several models geometrically."""
    logs = np.log(np.maximum(shares, _FLOOR))
    means = np.exp(np.tensordot(weights, logs, 1))
    return means / means.sum(1, keepdims=True)


class Pool(NamedTuple):
    """Several models of the same columns; see `CellModel`."""

    models: Sequence[CellModel]
    weights: np.ndarray  # (n_models, n_nodes), those of a column add up to one

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return max(n_chains(model, n_draws) for model in self.models)

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells by averages; see `CellModel`."""
        fillings = [model.fill(nodes.copy(), limits) for model in self.models]
        cells, shares = zip(*fillings, strict=True)
        return average(cells, shares, self.weights)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        tables = np.repeat(nodes[None], n_draws, axis=0)
        for draws, which in self.choose(n_draws):
            for model in np.unique(which):
                columns = np.flatnonzero(which == model)
                cells = self.models[model].draw(nodes.copy(), len(draws), limits)
                tables[np.ix_(draws, np.arange(len(nodes)), columns)] = cells[
                    ..., columns
                ]
        return tables

    def choose(self, n_draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Choose models (n_nodes,) of the columns of draws, and list these draws."""
        # stratified, so that the models have their shares of few draws, too
        places = torch.randperm(n_draws) + torch.rand(n_draws, dtype=torch.float64)
        uniform = places.numpy() / n_draws
        ends = self.weights.cumsum(0)[:-1]
        which = (ends <= uniform[:, None, None]).sum(1)
        kinds, group = np.unique(which, axis=0, return_inverse=True)
        group = group.ravel()
        return [(np.flatnonzero(group == i), kind) for i, kind in enumerate(kinds)]


class Turns(NamedTuple):
    """A fitted imputer, with draws of several models in turn; see `CellModel`."""

    filler: CellModel
    # each is used equally often, in random order; none if nothing is drawn
    drawers: Sequence[CellModel]

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return n_chains(self.filler if n_draws is None else self.drawers[0], n_draws)

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells; see `CellModel`."""
        cells, shares = self.filler.fill(nodes.copy(), limits)
        return _with_observed(cells, nodes), shares

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        turns = in_turn(len(self.drawers), n_draws)
        tables = np.empty((n_draws, *nodes.shape))
        for turn in np.unique(turns):
            places = np.flatnonzero(turns == turn)
            tables[places] = self.drawers[turn].draw(nodes.copy(), len(places), limits)
        return _with_observed(tables, nodes)


def _with_observed(cells, nodes):
    """Restore observed cells, which models may return with a rounding error."""
    return np.where(np.isnan(nodes), cells, nodes)


# ----------------------------------------
# A joint model whose cells some models of single columns predict and draw, too.
#
# In rows with several missing cells a column model sees draws of the others:
# predictions are averages over Gibbs chains, which start at the fillings of the joint
# model and draw the missing cells in turn.


class Chains(NamedTuple):
    """Lengths of the Gibbs chains that draw the other missing cells of a row."""

    n_chains: int
    n_burn_in: int  # sweeps before those that count
    n_sweeps: int  # sweeps that count


ALONE = Chains(1, 0, 1)


class ByColumns(NamedTuple):
    """A joint model averaged with models of columns; see `CellModel`."""

    joint: CellModel
    columns: Sequence[ColumnModel]  # in the order of a sweep
    weights: np.ndarray  # (n_nodes,), of the column models
    # (n_nodes,), factors of the deviations of draws from their means; 1 for categories
    spreads: np.ndarray
    chains: Chains  # of predictions
    n_sweeps: int  # of draws

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        predicts = n_draws is None or bool((self.spreads < 1).any())
        chains = self.chains.n_chains if predicts else 1
        return max(chains, n_chains(self.joint, n_draws))

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells by averages; see `CellModel`."""
        start, shares = self.joint.fill(nodes.copy(), limits)
        filled = start.copy()
        levels = {node: probabilities.copy() for node, probabilities in shares.items()}
        for node, rows, means in self._predictions(nodes, start):
            if node in levels:
                levels[node][rows] = means
            else:
                filled[rows, node] = means[:, 0]
        return average([start, filled], [shares, levels], self._both)

    @property
    def _both(self) -> np.ndarray:
        """Weights of the joint model and of the column models; (2, n_nodes)."""
        return np.stack([1 - self.weights, self.weights])

    def _predictions(self, nodes, start):
        """Predict by the column models; yields columns, rows and predictions."""
        missing = np.isnan(nodes)
        several = missing.sum(1) > 1
        # the chains of rows with one missing cell would be equal
        for rows, chains in ((several, self.chains), (~several, ALONE)):
            if not rows.any():
                continue
            for node, means in predict(
                self.columns,
                start[rows],
                missing[rows],
                chains,
                uniforms_of(nodes[rows]),
            ).items():
                yield node, np.flatnonzero(rows)[missing[rows, node]], means

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        drawn, missing = self.joint.draw(nodes.copy(), n_draws, limits), np.isnan(nodes)
        redraw(self.columns, drawn, missing, self.weights, self.n_sweeps)
        return self._narrow(drawn, nodes, limits)

    def _narrow(self, cells, nodes, limits):
        """Move draws of missing cells towards the means."""
        moves = np.isnan(nodes) & (self.spreads < 1)
        if not moves.any():
            return cells
        means, _ = self.fill(nodes, limits)
        return np.where(moves, narrow(cells, means, self.spreads), cells)


def predict(
    columns: Sequence[ColumnModel],  # in the order of a sweep
    start: np.ndarray,  # (n, n_nodes), filled rows, where the chains start
    missing: np.ndarray,  # (n, n_nodes), bool
    chains: Chains,
    uniforms: Callable,
) -> dict:
    """Average the predictions of columns over draws of the other missing cells.

    `uniforms`: maps the number of a sweep and a shape (n_chains, n, n_nodes) to uniform
    numbers. Result: for each column, means or probabilities of levels (n_missing,
    width) of the rows that miss it.
    """
    state = np.repeat(start[None], chains.n_chains, axis=0)
    means = {}
    for number in range(chains.n_burn_in + chains.n_sweeps):
        uniform, counts = uniforms(number, state.shape), number >= chains.n_burn_in
        for column in columns:
            j = column.column
            rows = np.flatnonzero(missing[:, j])
            if not len(rows):
                continue
            conditions = np.ascontiguousarray(
                state[:, rows].reshape(-1, state.shape[-1])
            )
            numbers = uniform[:, rows, j].ravel()
            drawn, cells = column.draw(conditions, numbers, with_means=counts)
            if counts:
                cells = cells.reshape(chains.n_chains, len(rows), -1).mean(0)
                means[j] = means.get(j, 0.0) + cells / chains.n_sweeps
            state[:, rows, j] = drawn.reshape(chains.n_chains, -1)
    return means


def redraw(
    columns: Sequence[ColumnModel],
    drawn: np.ndarray,  # (n_draws, n, n_nodes), completed tables; changed in place
    missing: np.ndarray,  # (n, n_nodes), bool
    weights: np.ndarray,  # (n_nodes,)
    n_sweeps: int,
) -> np.ndarray:  # (n_draws, n, n_nodes), bool
    """Draw some of the missing cells again, from the column models given the others.

    The others keep the draws of the joint model, so that a draw is one of the mixture
    of both.  `weights` are the probabilities of a cell, in all sweeps.
    """
    chosen = missing & (_uniforms(drawn.shape) < weights)
    for _ in range(n_sweeps):
        for column in columns:
            tables, rows = chosen[..., column.column].nonzero()
            if len(rows):
                conditions = drawn[tables, rows]
                cells, _ = column.draw(conditions, _uniforms(len(rows)))
                drawn[tables, rows, column.column] = cells
    return chosen


def uniforms_of(rows: np.ndarray) -> Callable:
    """Make uniform numbers that are functions of the rows."""
    numbers = row_keyed(rows, 0)

    def uniforms(number: int, shape: tuple) -> np.ndarray:
        return numbers(number, torch.empty(shape, dtype=torch.float64)).numpy()

    return uniforms


def _uniforms(shape: tuple | int) -> np.ndarray:
    """Draw uniform numbers with torch's global stream."""
    return torch.rand(shape, dtype=torch.float64).numpy()
