"""Fit models of columns to a table that a joint model completes, and weight them.

A tenth of the rows is held out.  Joint models and column models that have not used them
draw their cells, and the scores of these draws choose the weights.  Then column models
are fitted anew to all rows, in a table that the chosen average has completed.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import KFold
from sklearn.utils.validation import has_fit_parameter

from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import steps
from skvnce._core.random import seeded
from skvnce._core.windows import sorted_predictions
from skvnce._imputer.fitted import CellModel
from skvnce._imputer.held_out import Keys, row_folds
from skvnce._tables.schema import Encoded, Schema
from skvnce._tables.values import constant_columns
from skvnce.columns.model import (
    ALONE,
    ByColumns,
    Classification,
    ColumnModel,
    Design,
    Pool,
    Quantiles,
    Regression,
    failure,
    narrow,
    redraw,
)
from skvnce.gaussian.marginals import repeated_values

# ----------------------------------------
# Learners of the model of one column from completed tables.


_PROBED = 50  # rows whose probabilities are looked at
_UNWEIGHTED = ", or leave out sample_weight, which its fit was given"
_FOLDS = 5  # whose residuals a column of numbers is drawn with


class Training(NamedTuple):
    """The rows from which the models of columns learn."""

    completed: np.ndarray  # (n_tables, n, n_nodes)
    nodes: np.ndarray  # (n, n_nodes), NaN marks missing cells
    weights: np.ndarray | None  # (n,), frequencies of the rows


class EstimatorLearner(NamedTuple):
    """Fits a regressor or a classifier to a column."""

    column: int
    model: Any
    design: Design
    n_levels: int
    max_samples: int

    def learn(self, training: Training, rng: np.random.Generator) -> ColumnModel:
        """Fit to the rows that have the cell, in one completed table after another."""
        rows, weights = self._rows(training, rng)
        turns = rng.permutation(np.arange(len(rows)) % len(training.completed))
        predictors = self.design.matrix(training.completed[turns, rows])
        target, model = training.nodes[rows, self.column], self._seeded(rng)
        try:
            return self._fit(model, predictors, target, weights, rows)
        except Warning:  # a filter makes an error of it
            raise
        except Exception as error:  # of any library; it is raised again
            remedy = "" if weights is None else _UNWEIGHTED
            raise failure(self.model, self.design.label, error, remedy) from error

    def _rows(self, training, rng):
        """Select rows; a model that takes no weights gets them in proportion."""
        cells = training.nodes[:, self.column]
        rows = np.flatnonzero(~np.isnan(cells))
        # one row of each level, which a sample of rows may lack
        least = np.unique(cells[rows], return_index=True)[1] if self.n_levels else []
        weights = None if training.weights is None else training.weights[rows]
        if len(rows) > self.max_samples:
            sample = rng.choice(len(rows), self.max_samples, replace=False)
            sample = np.union1d(sample, least).astype(int)
            rows, weights = rows[sample], None if weights is None else weights[sample]
            least = np.searchsorted(sample, least)
        if weights is not None and not takes_weights(self.model):
            share = weights / weights.sum()
            drawn = rng.choice(len(rows), len(rows), p=share)
            least = np.setdiff1d(least, drawn).astype(int)
            return rows[np.sort(np.concatenate([drawn, least]))], None
        return rows, weights

    def _seeded(self, rng):
        """Clone the estimator; those of other columns have other seeds."""
        model, seed = clone(self.model), int(rng.integers(2**31 - 1))
        parameters = model.get_params()
        seeds = [
            name for name in parameters if name.rsplit("__", 1)[-1] == "random_state"
        ]
        seeds = {name: seed for name in seeds if parameters[name] is None}
        return model.set_params(**seeds) if seeds else model

    def _fit(self, model, predictors, target, weights, rows):
        arguments = {} if weights is None else {"sample_weight": weights}
        if classifies(model):
            model.fit(predictors, target.astype(int), **arguments)
            shares = np.asarray(model.predict_proba(predictors[:_PROBED]))
            if shares.shape[1] != len(model.classes_) or not np.isfinite(shares).all():
                raise ValueError("predict_proba returns no probabilities of classes_.")
            return Classification(self.column, model, self.design, self.n_levels)
        options = options_of_quantiles(model)
        if options is not None:
            model.fit(predictors, target, **arguments)
            return Quantiles(self.column, model, self.design, options)
        predicted = _out_of_fold(model, predictors, target, arguments, rows)
        if not np.isfinite(predicted).all():
            raise ValueError("predict returns NaN or infinite numbers.")
        model.fit(predictors, target, **arguments)
        order, predictions = _sorted(predicted, weights)
        residuals = (target - predicted)[order]
        return Regression(self.column, model, self.design, predictions, residuals)


def _out_of_fold(model, predictors, target, arguments, rows):
    """Predict rows by clones that have not learned from them or their copies; (n,)."""
    different, group = np.unique(rows, return_inverse=True)
    folds = KFold(min(_FOLDS, len(different)), shuffle=True, random_state=0)
    predicted = np.empty(len(target))
    for _, out in folds.split(different):
        is_out = np.isin(group, out)
        rows_in = {name: values[~is_out] for name, values in arguments.items()}
        fold = clone(model).fit(predictors[~is_out], target[~is_out], **rows_in)
        predicted[is_out] = np.ravel(fold.predict(predictors[is_out]))
    return predicted


def _sorted(predictions, weights):
    """Sort rows by predictions; with weights, repeat them in proportion.

    Returns their order, and the predictions.
    """
    order, predictions = sorted_predictions(predictions)
    if weights is None:
        return order, predictions
    ends = weights[order].cumsum()
    places = (np.arange(len(order)) + 0.5) / len(order) * ends[-1]
    repeated = np.searchsorted(ends, places)
    return order[repeated], predictions[repeated]


def classifies(model: Any) -> bool:
    """Say whether a model is a classifier; one without tags has probabilities."""
    has_tags = hasattr(model, "__sklearn_tags__")
    return is_classifier(model) if has_tags else hasattr(model, "predict_proba")


def regresses(model: Any) -> bool:
    """Say whether a model is a regressor; one without tags has no probabilities."""
    has_tags = hasattr(model, "__sklearn_tags__")
    return is_regressor(model) if has_tags else not hasattr(model, "predict_proba")


def takes_weights(model: Any) -> bool:
    """Say whether a model takes weights, and so do all estimators that are its parts.

    Some meta-estimators have the argument, and fail, or ignore it in a part.
    """
    parts = [part for part in model.get_params().values() if hasattr(part, "predict")]
    return all(has_fit_parameter(part, "sample_weight") for part in (model, *parts))


def options_of_quantiles(model: Any) -> dict | None:
    """Return arguments by which `predict` returns quantiles, or None.

    Forests of quantile-forest have ``quantiles``, and TabPFN has ``output_type``, too.
    """
    # some have the method only once they are fitted
    parameters = _parameters(getattr(model, "predict", None))
    if "quantiles" not in parameters:
        return None
    return {"output_type": "quantiles"} if "output_type" in parameters else {}


def _parameters(function):
    try:
        return signature(function).parameters
    except (TypeError, ValueError):  # functions without a signature
        return {}


# ----------------------------------------
# Which columns the model of a column sees.


_LEAST = 0.1  # absolute correlation (van Buuren, Boshuizen and Knook 1999)
_FEWEST = 3  # rows from which a correlation is computed


def predictors_of(
    requested: Mapping | str | None,  # see `ColumnImputer`
    schema: Schema,
    nodes: np.ndarray,  # (n, n_nodes)
    nominal: Sequence[bool],  # length n_nodes
) -> np.ndarray:  # (n_nodes, n_nodes), bool
    """Return a matrix that says whether the model of a row sees a column."""
    matrix = np.ones((len(nominal), len(nominal)), dtype=bool)
    if isinstance(requested, str):
        matrix = find_associated(nodes, nominal)
    elif requested:
        columns = schema.model_columns
        for place, others in listed_predictors(requested, schema).items():
            matrix[columns == place] = np.isin(columns, others)
    np.fill_diagonal(matrix, val=False)
    return matrix


def listed_predictors(requested: Mapping, schema: Schema) -> dict[int, list[int]]:
    """List the columns that the models of some columns see, by indices of X."""
    listed = {}
    for key, others in requested.items():
        place = schema.index_of(key, "predictors")
        if others is None:
            continue
        if isinstance(others, str) or not isinstance(others, Iterable):
            raise TypeError(
                f"predictors[{key!r}] must be a list of columns or None, got "
                f"{others!r}."
            )
        listed[place] = [
            schema.index_of(name, f"predictors[{key!r}]") for name in others
        ]
    return listed


def find_associated(nodes: np.ndarray, nominal: Sequence[bool]) -> np.ndarray:
    """Find columns that are correlated with a column, or with its being observed.

    The correlation of a nominal column is the largest one of its indicators.
    """
    wide, owner = [], []
    for j, (column, has_levels) in enumerate(zip(nodes.T, nominal, strict=True)):
        levels = np.unique(column[~np.isnan(column)]) if has_levels else [None]
        for level in levels:
            indicator = column if level is None else np.where(column == level, 1.0, 0.0)
            wide.append(np.where(np.isnan(column), np.nan, indicator))
            owner.append(j)
    wide, observed = np.stack(wide, 1), (~np.isnan(nodes)).astype(float)
    strength = np.zeros((nodes.shape[1], nodes.shape[1]))
    np.maximum.at(strength, np.ix_(owner, owner), _correlations(wide, wide))
    everyone = np.arange(nodes.shape[1])
    np.maximum.at(strength, np.ix_(everyone, owner), _correlations(observed, wide))
    return strength >= _LEAST


def _correlations(targets, others):
    """Compute absolute correlations of columns, by the rows that observe both."""
    correlations = np.zeros((targets.shape[1], others.shape[1]))
    for j, target in enumerate(targets.T):
        for k, other in enumerate(others.T):
            both = ~np.isnan(target) & ~np.isnan(other)
            x, y = target[both], other[both]
            if len(x) >= _FEWEST and np.ptp(x) > 0 and np.ptp(y) > 0:
                correlations[j, k] = abs(np.corrcoef(x, y)[0, 1])
    return correlations


# ----------------------------------------
# Rows that are held out, and their cells that are predicted.
#
# A model that has seen the other cells of a row predicts its hidden cell better than
# that of a new row.  So whole rows are held out to compare models, and each of their
# cells is hidden once.


_PARTS = 10  # of which one is held out
_MASKS = 5  # of a row; a fifth of its cells is hidden at a time
_MOST = 400  # held-out rows


def hold_out_rows(nodes: np.ndarray) -> np.ndarray:  # (n,), bool
    """Choose about a tenth of the rows, by ranks, without which each column varies."""
    held_out = row_folds(nodes, _PARTS).numpy() == 0
    held_out[np.flatnonzero(held_out)[_MOST:]] = False
    rest = nodes[~held_out]
    for j in np.flatnonzero(np.isnan(rest).all(0) | constant_columns(rest)):
        held_out &= np.isnan(nodes[:, j])
    return held_out


def mask_cells(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hide each observed cell of rows (n, n_nodes) in one of five copies of them.

    Returns the copies that hide a cell, and whether a cell is hidden.
    """
    mask = (Keys.of(rows).uniform_cells(0) * _MASKS).astype(int)
    hidden = np.concatenate([(mask == i) & ~np.isnan(rows) for i in range(_MASKS)])
    has_hidden = hidden.any(1)
    return np.tile(rows, (_MASKS, 1))[has_hidden], hidden[has_hidden]


# ----------------------------------------
# Fits of imputers to some of the rows, and columns that other ones repeat.


# 5 % of the standard deviation
_LEFT = 0.0025  # share of the variance that a repeated number leaves open
_FEWEST_REPEATED = 20  # rows that show it


def find_repeated(nodes, is_number):  # (n_nodes,), bool
    """Find the columns of numbers that another column nearly determines."""
    observed = ~np.isnan(nodes)
    z = np.where(observed, nodes - np.nanmean(nodes, 0), 0.0) / np.nanstd(nodes, 0)
    both = observed.T.astype(float) @ observed
    n, first = np.maximum(both, 1), z.T @ observed  # sums of the first column of a pair
    covariance = z.T @ z / n - first * first.T / n**2
    variance = (z**2).T @ observed / n - (first / n) ** 2
    # multiplied out, because a variance may be 0
    close = covariance**2 > (1 - _LEFT) * variance * variance.T
    close &= (both >= _FEWEST_REPEATED) & (variance > 0) & (variance.T > 0)
    np.fill_diagonal(close, False)
    return (close & is_number[:, None] & is_number).any(1)


def refit(model, cells, weights, seed):
    """Fit a clone of an imputer to some of its rows, validated (n, n_features).

    `weights` (n,), or None.
    """
    other = clone(model)
    parameters = {"random_state": seed, "on_misfit": "ignore", "verbose": 0}
    accepted = other.get_params(deep=False)
    other.set_params(
        **{name: parameters[name] for name in parameters if name in accepted}
    )
    with warnings.catch_warnings():  # `model` has given them already
        warnings.simplefilter("ignore")
        arguments = {} if weights is None else {"sample_weight": weights}
        return other.fit(Encoded(cells, model._schema), **arguments)


# ----------------------------------------
# Weights of averages of models, chosen by draws of held-out cells.
#
# The draws of a pool of models with weights w have in a cell of truth y the fair
# energy score
#
#   sum_k w_k E d(X_k, y) - sum_kl w_k w_l E d(X_k, X_l) / 2,            (1)
#
# with draws X_k of model k, and d the distance of numbers in standard deviations (the
# continuous ranked probability score) or 1 for different categories (half of the
# Brier score).  It is a convex quadratic function of w.  Weights that few cells of a
# column have chosen are worse than those of all columns of its kind, and these worse
# than equal ones: both are added as if they were further cells.


_OF_KIND = 50  # cells that all columns of the kind count for
_EQUAL = 5  # cells that equal weights count for
_SHIFTS = 8  # pairings of the draws of two models


class Distances(NamedTuple):
    """Mean distances of the draws of K models in each held-out cell."""

    column: np.ndarray  # (n_cells,), int
    to_truth: np.ndarray  # (K, n_cells)
    apart: np.ndarray  # (K, K, n_cells)

    def of_columns(self, columns: Sequence[int]) -> "Distances":
        """Select the cells of some columns."""
        is_chosen = np.isin(self.column, columns)
        return Distances(
            self.column[is_chosen],
            self.to_truth[:, is_chosen],
            self.apart[..., is_chosen],
        )

    def of_first(self, size: int) -> "Distances":
        """Select the first models."""
        return Distances(self.column, self.to_truth[:size], self.apart[:size, :size])


def distances(
    draws: Sequence[np.ndarray],  # (n_draws, n, n_nodes), of each model
    nodes: np.ndarray,  # (n, n_nodes)
    hidden: np.ndarray,  # (n, n_nodes), bool
    scale: np.ndarray,  # (n_nodes,), standard deviations
    is_categorical: np.ndarray,  # (n_nodes,), bool
) -> Distances:
    """Compare draws with held-out cells, and with each other."""
    rows, column = hidden.nonzero()
    level, unit = is_categorical[column], scale[column]
    cells, truth = [table[:, rows, column] for table in draws], nodes[rows, column]

    def apart(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.where(level, first != second, abs(first - second) / unit)

    n_draws, size = len(cells[0]), len(cells)
    # no draw is paired with itself, which makes the score fair
    shifts = np.unique(np.linspace(1, n_draws - 1, _SHIFTS).astype(int))
    between = np.empty((size, size, len(rows)))
    for k in range(size):
        for m in range(k, size):
            pairs = [apart(cells[k], np.roll(cells[m], s, 0)).mean(0) for s in shifts]
            between[k, m] = between[m, k] = np.mean(pairs, axis=0)
    to_truth = np.stack([apart(drawn, truth).mean(0) for drawn in cells])
    return Distances(column, to_truth, between)


def weights_of(losses: Distances, is_categorical: np.ndarray) -> np.ndarray:
    """Choose weights (K, n_nodes), of sum 1 in each column, of models."""
    size, width = len(losses.to_truth), len(is_categorical)
    weights = np.full((size, width), 1 / size)
    for kind in np.unique(is_categorical):
        columns = np.flatnonzero(is_categorical == kind)
        of_kind = np.isin(losses.column, columns)
        if not of_kind.any():
            continue
        for j in columns:
            is_column = losses.column == j
            weights[:, j] = _best(*_objective(losses, is_column, of_kind))
    return weights


def _objective(losses, is_column, of_kind):
    """Add the cells of a column, those of its kind, and equal weights; d and G."""
    count = is_column.sum()
    linear, square = (
        values[..., is_column].sum(-1) + _OF_KIND * values[..., of_kind].mean(-1)
        for values in (losses.to_truth, losses.apart)
    )
    total = count + _OF_KIND
    # in the unit of the column's own errors, so that a clear difference reaches 0 or 1
    unit, size = linear.min() / total, len(linear)
    ridge = 2 * _EQUAL * unit
    # ridge |w - 1/K|^2 / 2, up to a constant
    return linear - ridge / size, square - ridge * np.eye(size)


def _best(linear, square):
    """Minimise linear' w - w' square w / 2 over the weights of an average."""
    size, unit = len(linear), abs(linear).max() or 1.0
    if size == 1:
        return np.ones(1)
    linear, square = linear / unit, square / unit
    result = minimize(
        lambda w: (linear @ w - w @ square @ w / 2, linear - square @ w),
        np.full(size, 1 / size),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
    )
    # zeros that rounding has moved would cost draws of a model
    weights = np.where(result.x < 1e-6, 0.0, result.x)
    return weights / weights.sum()


# ----------------------------------------
# Spread of the draws of an average of models, chosen by draws of held-out cells.
#
# A pool of models whose draws have the right spread draws too widely: the differences
# of the models' means come on top (Gneiting and Ranjan 2013, Combining predictive
# distributions, theorem 3.1).  So draws X of numbers are moved towards their mean m,
#
#   m + s (X - m),                                   (1)
#
# by a factor s of each column with which the share u of the draws below the truth has
# the variance of a uniform number:
#
#   mean (u - 1 / 2)^2 = 1 / 12 + sum_k w_k^2 / (6 n),                 (2)
#
# where the last term is the noise of u, from n draws of each model k of weight w_k.


# a pool is never narrower than its models, so a factor above one would mend these
_SPREADS = np.linspace(0.7, 1.0, 31)


class HeldOutDraws(NamedTuple):
    """Draws of models, and the truth."""

    draws: Sequence[np.ndarray]  # (n_draws, n, n_nodes), of each model
    nodes: np.ndarray  # (n, n_nodes)
    hidden: np.ndarray  # (n, n_nodes), bool, the cells that were drawn, and are known


def spreads_of(
    held_out: HeldOutDraws, weights: np.ndarray, is_continuous: np.ndarray
) -> np.ndarray:  # (n_nodes,)
    """Choose the factor of each column by eq. (2); 1 for those that are not continuous.

    With ties, u is not uniform.
    """
    spreads = np.ones(len(is_continuous))
    rows, column = (held_out.hidden & is_continuous).nonzero()
    if not len(rows):
        return spreads
    cells = np.stack([draws[:, rows, column] for draws in held_out.draws])
    truth, shares = held_out.nodes[rows, column], weights[:, column]
    means = (shares * cells.mean(1)).sum(0)
    noise = (shares**2).sum(0) / (6 * cells.shape[1])
    excess = np.empty((len(_SPREADS), len(rows)))
    for k, spread in enumerate(_SPREADS):
        share = (shares * (narrow(cells, means, spread) < truth).mean(1)).sum(0)
        excess[k] = (share - 0.5) ** 2 - 1 / 12 - noise
    of_kind = _OF_KIND * excess.mean(1)
    for j in np.flatnonzero(is_continuous):
        total = excess[:, column == j].sum(1) + of_kind
        spreads[j] = _SPREADS[abs(total).argmin()]
    return spreads


# ----------------------------------------
# Fit models of columns to a table that a joint model completes, and weight them.


_DRAWS = 30  # of held-out cells; the score is fair to any number
_SWEEPS = 2  # of the draws that complete the table


class Table(NamedTuple):
    """Rows of the joint model's columns."""

    nodes: np.ndarray  # (n, n_nodes), NaN marks missing cells
    weights: np.ndarray | None  # (n,)
    # (n,), bool, the rows that are held out; none if weights are known
    held_out: np.ndarray
    scale: np.ndarray  # (n_nodes,)
    is_categorical: np.ndarray  # (n_nodes,), bool


class FittedColumns(NamedTuple):
    """Models of columns and their weights."""

    columns: list[ColumnModel]  # in the order of a sweep
    weights: np.ndarray  # (n_nodes,), of the column models
    # (n_models, n_nodes), of the joint models among themselves
    joint_weights: np.ndarray
    # (n_nodes,), factors of the deviations of draws from their means
    spreads: np.ndarray


def fit_columns(
    table: Table,
    early: Sequence[CellModel],  # joint models, fitted without the held-out rows
    joint: Sequence[CellModel],  # and those fitted to all cells
    learners: Mapping[int, EstimatorLearner],  # of each column that gets a model
    weight: float | str,
    n_completions: int,  # number of completed tables that the final models learn from
    rng: np.random.Generator,
) -> FittedColumns:
    """Fit models of columns, and weigh them and the joint models."""
    width, n_joint = table.nodes.shape[1], len(joint)
    equal = np.full((n_joint, width), 1 / n_joint)
    rows = table.nodes[~table.held_out]
    order, without = _in_order(table.nodes, learners), {}
    if order:
        completed = _complete(Pool(early, equal), rows, 1, rng)
        weights = None if table.weights is None else table.weights[~table.held_out]
        without = _learn(learners, order, Training(completed, rows, weights), rng)
    of_all, draws = _choose(table, early, without, rng)
    of_column, of_joint = _weights(table, of_all, weight, order, equal)
    spreads = _spreads(table, draws, of_column, of_joint)
    used = [j for j in order if of_column[j] > 0]
    if not used:
        return FittedColumns([], of_column, of_joint, spreads)
    first = [without[j] for j in used]
    pool, ones = Pool(joint, of_joint), np.ones(width)
    model = ByColumns(pool, first, of_column, ones, ALONE, _SWEEPS)
    completed = _complete(model, table.nodes, n_completions, rng)
    training = Training(completed, table.nodes, table.weights)
    columns = list(_learn(learners, used, training, rng).values())
    return FittedColumns(columns, of_column, of_joint, spreads)


def _learn(learners, columns, training, rng):
    """Fit the models of some columns."""
    turns = steps("model of a column", columns, len(columns))
    return {j: learners[j].learn(training, rng) for j in turns}


def _weights(table, chosen, weight, order, equal):
    """Return the weights of column models, and of joint models among themselves."""
    width = table.nodes.shape[1]
    with_model = np.isin(np.arange(width), order)
    if chosen is None:
        chosen = np.concatenate([equal / 2, np.full((1, width), 0.5)])
    of_column = (
        chosen[-1].copy() if isinstance(weight, str) else np.full(width, float(weight))
    )
    # a residual is wider than what a column leaves open that this repeats
    same = find_repeated(table.nodes, ~table.is_categorical)
    if isinstance(weight, str):
        of_column[same] = 0.0
    of_column[~with_model] = 0.0
    rest = chosen[:-1].sum(0)
    of_joint = np.where(rest > 0, chosen[:-1] / np.where(rest > 0, rest, 1.0), equal)
    return of_column, of_joint


def _spreads(table, draws, of_column, of_joint):
    """Choose factors of the deviations of draws of numbers that do not repeat."""
    width = table.nodes.shape[1]
    if draws is None:
        return np.ones(width)
    repeat, _ = repeated_values(Incomplete.from_array(table.nodes))
    numbers = ~table.is_categorical & ~np.isin(np.arange(width), repeat)
    of_all = np.concatenate([(1 - of_column) * of_joint, of_column[None]])
    return spreads_of(draws, of_all[: len(draws.draws)], numbers)


def _in_order(nodes, learners):
    """List the columns that get a model, by their numbers of missing cells."""
    missing = np.isnan(nodes).sum(0)
    return sorted(learners, key=lambda j: missing[j])


def _complete(model, nodes, n_draws, rng):
    """Complete rows by draws; (n_draws, n, n_nodes)."""
    with seeded(int(rng.integers(2**31 - 1))), torch.no_grad():
        return model.draw(nodes, n_draws)


def _choose(table, joint, columns, rng):
    """Choose weights of models by held-out rows, and draws that choose their spread."""
    if not table.held_out.any():
        return None, None
    nodes, hidden = mask_cells(table.nodes[table.held_out])
    visible = np.where(hidden, np.nan, nodes)
    draws = [_complete(model, visible, _DRAWS, rng) for model in joint]
    if columns:
        # each model has its share of the rows that columns are drawn from
        mixed = np.stack([draws[k % len(draws)][k] for k in range(_DRAWS)])
        draws.append(_draw_each(columns, mixed, np.isnan(visible), rng))
    losses = distances(draws, nodes, hidden, table.scale, table.is_categorical)
    weights = np.zeros((len(joint) + 1, nodes.shape[1]))
    weights[:-1] = weights_of(losses.of_first(len(joint)), table.is_categorical)
    if columns:
        # cells of other columns, where nothing is compared, would hide a difference
        places = list(columns)
        of_columns = weights_of(losses.of_columns(places), table.is_categorical)
        weights[:, places] = of_columns[:, places]
    return weights, HeldOutDraws(draws, nodes, hidden)


def _draw_each(columns, mixed, missing, rng):
    """Draw each column given draws of the joint models of all others."""
    tables = mixed.copy()
    for j, column in columns.items():
        drawn, weights = mixed.copy(), np.zeros(mixed.shape[-1])
        weights[j] = 1.0
        with seeded(int(rng.integers(2**31 - 1))):
            redraw([column], drawn, missing, weights, 1)
        tables[..., j] = drawn[..., j]
    return tables
