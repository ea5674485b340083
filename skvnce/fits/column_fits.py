"""Fit models of columns to a table that a joint model completes, and weight them.

A tenth of the rows is held out.  Joint models and column models that have not used them
draw their cells, and the scores of these draws choose the weights.  Then column models
are fitted anew to all rows, in a table that the chosen average has completed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._progress import steps
from skvnce._random import seeded
from skvnce.algorithms.gaussian.normal_scores import repeated_values
from skvnce.fits.column_learners import EstimatorLearner, Training
from skvnce.fits.draw_spread import HeldOutDraws, spreads_of
from skvnce.fits.held_out_rows import masked
from skvnce.fits.pool_weights import distances, weights_of
from skvnce.fits.refits import repeated
from skvnce.fitted.base import CellModel
from skvnce.fitted.by_columns import ALONE, ByColumns, redraw
from skvnce.fitted.column_models import ColumnModel
from skvnce.fitted.pools import Pool

_DRAWS = 30  # of held-out cells; the score is fair to any number
_SWEEPS = 2  # of the draws that complete the table


class Table(NamedTuple):
    """Rows of the joint model's columns."""

    nodes: np.ndarray  # (n, n_nodes), NaN marks missing cells
    weights: np.ndarray | None  # (n,)
    # (n,), bool, the rows that are held out; none if weights are known
    held: np.ndarray
    scale: np.ndarray  # (n_nodes,)
    is_categorical: np.ndarray  # (n_nodes,), bool


class Joint(NamedTuple):
    """Joint models of a table."""

    without: Sequence[CellModel]  # fitted without the held-out rows
    models: Sequence[CellModel]  # fitted to all cells


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
    joint: Joint,
    learners: Mapping[int, EstimatorLearner],  # of each column that gets a model
    weight: float | str,
    n_completions: int,  # number of completed tables that the final models learn from
    rng: np.random.Generator,
) -> FittedColumns:
    """Fit models of columns, and weigh them and the joint models.

    `weight`: "auto" or float, of the column models; ``"auto"`` lets held-out cells
    choose.
    """
    width, n_joint = table.nodes.shape[1], len(joint.models)
    equal = np.full((n_joint, width), 1 / n_joint)
    kept = table.nodes[~table.held]
    order, without = _in_order(table.nodes, learners), {}
    if order:
        completed = _completed(Pool(joint.without, equal), kept, 1, rng)
        weights = None if table.weights is None else table.weights[~table.held]
        training = Training(completed, kept, weights)
        without = {
            j: learners[j].learn(training, rng)
            for j in steps("model of a column", order, len(order))
        }
    of_all, found = _chosen(table, joint.without, without, rng)
    own, of_joint = _weights(table, of_all, weight, order, equal)
    spreads = _spreads(table, found, own, of_joint)
    used = [j for j in order if own[j] > 0]
    if not used:
        return FittedColumns([], own, of_joint, spreads)
    first = [without[j] for j in used]
    given = first, own, np.ones(width), ALONE, _SWEEPS
    model = ByColumns(Pool(joint.models, of_joint), *given)
    completed = _completed(model, table.nodes, n_completions, rng)
    training = Training(completed, table.nodes, table.weights)
    columns = [
        learners[j].learn(training, rng)
        for j in steps("model of a column", used, len(used))
    ]
    return FittedColumns(columns, own, of_joint, spreads)


def _weights(table, found, weight, order, equal):
    """Return the weights of column models, and of joint models among themselves."""
    width = table.nodes.shape[1]
    with_model = np.isin(np.arange(width), order)
    if found is None:
        found = np.concatenate([equal / 2, np.full((1, width), 0.5)])
    own = found[-1].copy() if isinstance(weight, str) else np.full(width, float(weight))
    # a residual is wider than what a column leaves open that this repeats
    same = repeated(table.nodes, table.is_categorical)
    if isinstance(weight, str):
        own[same] = 0.0
    own[~with_model] = 0.0
    rest = found[:-1].sum(0)
    of_joint = np.where(rest > 0, found[:-1] / np.where(rest > 0, rest, 1.0), equal)
    return own, of_joint


def _spreads(table, found, own, of_joint):
    """Choose factors of the deviations of draws of numbers that do not repeat."""
    width = table.nodes.shape[1]
    if found is None:
        return np.ones(width)
    repeat, _ = repeated_values(Incomplete.from_array(table.nodes))
    numbers = ~table.is_categorical & ~np.isin(np.arange(width), repeat)
    of_all = np.concatenate([(1 - own) * of_joint, own[None]])
    return spreads_of(found, of_all[: len(found.draws)], numbers)


def _in_order(nodes, learners):
    """List the columns that get a model, by their numbers of missing cells."""
    missing = np.isnan(nodes).sum(0)
    return sorted(learners, key=lambda j: missing[j])


def _completed(model, nodes, n_draws, rng):
    """Complete rows by draws; (n_draws, n, n_nodes)."""
    with seeded(int(rng.integers(2**31 - 1))), torch.no_grad():
        return model.draw(nodes, n_draws)


def _chosen(table, joint, columns, rng):
    """Choose weights (n_joint + 1, n_nodes) of joint models and models of columns.

    Returns the draws, too, which choose their spread; None without held-out rows.
    """
    if not table.held.any():
        return None, None
    held = masked(table.nodes[table.held])
    kept = np.where(held.hidden, np.nan, held.nodes)
    known = *held, table.scale, table.is_categorical
    draws = [_completed(one, kept, _DRAWS, rng) for one in joint]
    if columns:
        # each model has its share of the rows that columns are drawn from
        mixed = np.stack([draws[k % len(draws)][k] for k in range(_DRAWS)])
        draws.append(_drawn_alone(columns, mixed, np.isnan(kept), rng))
    found = distances(draws, *known)
    weights = np.zeros((len(joint) + 1, kept.shape[1]))
    weights[:-1] = weights_of(found.of_first(len(joint)), table.is_categorical)
    if columns:
        # cells of other columns, where nothing is compared, would hide a difference
        some = list(columns)
        own_weights = weights_of(found.of_columns(some), table.is_categorical)
        weights[:, some] = own_weights[:, some]
    return weights, HeldOutDraws(draws, *held)


def _drawn_alone(columns, mixed, missing, rng):
    """Draw each column given draws of the joint models of all others."""
    found = mixed.copy()
    for j, column in columns.items():
        some, one = mixed.copy(), np.zeros(mixed.shape[-1])
        one[j] = 1.0
        with seeded(int(rng.integers(2**31 - 1))):
            redraw([column], some, missing, one, 1)
        found[..., j] = some[..., j]
    return found
