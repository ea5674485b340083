"""The fit of `GaussianImputer` to tables whose rows belong to groups."""

from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils import _safe_indexing

from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.progress import tell_round
from skvnce._core.random import normal_cdf
from skvnce._core.warnings import warn_user
from skvnce._imputer.held_out import occurrences, warn_or_raise
from skvnce._tables.schema import Schema, by_group, column_of_groups, columns_of_groups
from skvnce._tables.values import column_moments, distinct_rows
from skvnce.exceptions import TableWarning
from skvnce.gaussian import mixed_fit as mixed
from skvnce.gaussian.fit import Settings as OfNumbers
from skvnce.gaussian.fit import fit_numbers, of_model
from skvnce.gaussian.groups_model import GroupedNormal, Slopes, plain_effects
from skvnce.gaussian.latent import groups
from skvnce.gaussian.latent.columns import Latents, Marginal
from skvnce.gaussian.latent.gibbs import BURN_IN, Fit
from skvnce.gaussian.latent.groups import Levels
from skvnce.gaussian.marginals import nonlinear_columns, start
from skvnce.gaussian.mixed_fit import ROWS, is_numeric, kinds_of, of_chain, signs_of
from skvnce.gaussian.model import tensors

# ----------------------------------------
# What tables of groups, and the parameters that concern them, must be.


STREAM = (
    "partial_fit is not available with groups, as the rows of a group may come later. "
    "Use fit with all rows."
)


def check_rows(schema, fixed, X):
    """Check new rows of groups; `X` (n_samples, n_features)."""
    check_complete(schema, fixed.slopes, X[:, schema.model_columns])
    check_constant(schema, schema.model_columns[fixed.of_groups], X)


def check_shift(schema, fixed, shift):
    """Raise an error for shifts of columns of groups, and of those with slopes."""
    reasons = (
        "constant within groups: all rows of a group have one value",
        "whose slopes differ between groups: none of its cells is missing",
    )
    for columns, why in zip(fixed, reasons, strict=True):
        shifted = [j for j in columns if shift.columns[j]]
        if shifted:
            names = schema.labels(schema.model_columns[shifted])
            raise ValueError(f"shift has {names}, {why}. Leave it out.")


def check_where(schema, fixed, where):
    """Raise an error for masks and rules of columns with random slopes."""
    slopes = schema.model_columns[fixed.slopes]
    for key in where if isinstance(where, dict) else ():
        place = schema.index_of(key, "where")
        if place in slopes:
            raise ValueError(
                f"where has {schema.label(place)}, whose slopes differ between groups: "
                "none of its cells is missing. Leave it out."
            )


def check_limits(schema, columns, limits):
    """Raise an error for limits of columns that are constant within groups.

    `columns`, ndarray of int: indices of columns of the table that are constant within
    groups; `limits`, Limits.
    """
    columns = np.intersect1d(columns, limits.columns).astype(int)
    if len(columns):
        raise ValueError(
            f"lower and upper have limits of {schema.labels(columns)}, constant within "
            "groups: only cells of other columns can have some. Leave them out."
        )


def are_trivial(cells):
    """Return whether each group is one row, or whether there is only one."""
    return len(np.unique(cells.groups)) in (1, len(cells.groups))


def without_groups(table):
    """Forget trivial groups, and warn; `table`, TrainingTable."""
    schema, cells = table.schema, table.cells
    is_one = len(np.unique(cells.groups)) == 1
    why = "all rows are of one group" if is_one else "each group has one row"
    warn_user(
        f"groups has no effect: {why} in {schema.labels(schema.group_columns)}. The "
        "model is that of a table without groups.",
        TableWarning,
    )
    columns = [column._replace(is_group=False) for column in schema.columns]
    schema, cells = schema._replace(columns=columns), cells._replace(groups=None)
    return table._replace(schema=schema, cells=cells)


def warn_of_few(schema, model, cells):
    """Warn if there are no more groups than effects of each."""
    n_groups = len(np.unique(cells.groups))
    n_effects = model.levels.n_random + model.levels.groups.size
    if n_groups <= n_effects:
        warn_user(
            f"{schema.labels(schema.group_columns)} names {n_groups} groups, and each "
            f"has {n_effects} effects: the prior decides how they are correlated. Use "
            "fewer columns, or the column as a category instead of groups.",
            TableWarning,
        )


def check_constant(schema: Schema, columns, X):
    """Check that columns are constant within the groups of rows.

    `columns`, ndarray of int: indices of columns of the table; `X` (n_samples,
    n_features).  Raises `ValueError` if a group has two values.
    """
    for place in columns:
        rows = _differing(schema, X, place)
        if len(rows):
            raise ValueError(
                f"{schema.label(place)} was constant within groups at fit, and has "
                f"another value in row {rows[0]} than in an earlier row of its group. "
                "Correct the cell, or fit to rows in which it varies."
            )


def _differing(schema, X, place):
    """List the rows whose cell of a column differs from the first of their group."""
    [group] = schema.group_columns
    cells, numbers = X[:, place], X[:, group].astype(int)
    observed = np.flatnonzero(~np.isnan(cells))
    first = np.full(numbers.max(initial=0) + 1, np.nan)
    first[numbers[observed][::-1]] = cells[observed][::-1]
    return observed[cells[observed] != first[numbers[observed]]]


def slopes_of(schema: Schema, groups, nodes):
    """Find the columns whose slopes are random, and check them.

    `groups`, str, int or dict: see `GaussianImputer`; `nodes` (n, n_model_columns).
    Returns list of int: places among the columns of the model.
    """
    slopes = []
    for name in column_of_groups(groups).slopes:
        place = schema.index_of(name, "groups")
        label = schema.label(place)
        if slopes and place in schema.model_columns[slopes]:
            raise ValueError(f"groups has slopes of {label} twice. Leave one out.")
        if place not in schema.model_columns:
            raise ValueError(
                f"groups has slopes of {label}, which the model does not use: it is "
                "constant, empty, or passed through. Leave it out."
            )
        node = int(np.searchsorted(schema.model_columns, place))
        if not is_numeric(schema)[node]:
            raise ValueError(
                f"groups has slopes of {label}, which has categories, not "
                "numbers: let categorical_features call it 'numeric'."
            )
        slopes.append(node)
    check_complete(schema, slopes, nodes)
    design = np.column_stack([np.ones(len(nodes)), nodes[:, slopes]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        names = schema.labels(schema.model_columns[slopes])
        raise ValueError(
            f"groups has slopes of {names}, which are linear functions of each other. "
            "Leave some out."
        )
    return slopes


def named_constants(schema: Schema, groups):
    """List the columns of the table that a user calls constant within groups.

    `groups`, str, int or dict: see `GaussianImputer`.  Returns list of int.
    """
    names = column_of_groups(groups)
    constant = [schema.index_of(name, "groups") for name in names.constant]
    slopes = {schema.index_of(name, "groups") for name in names.slopes}
    for place in constant:
        label = schema.label(place)
        if place in slopes:
            raise ValueError(
                f"groups has both slopes of {label} and calls it constant within "
                "groups. Columns of slopes are not modelled: leave it out of one."
            )
        if place in schema.passed:
            raise ValueError(
                f"groups calls {label} constant, which the model does not use: it is "
                "passed through. Leave it out."
            )
    return constant


def check_named(schema: Schema, groups, table, X):
    """Check that columns that a user calls constant are constant within groups.

    `groups`, str, int or dict: see `GaussianImputer`; `table` (n_samples, n_features):
    that of the user; `X` (n_samples, n_features): as it has been read.
    """
    for place in named_constants(schema, groups):
        rows = _differing(schema, X, place)
        if len(rows):
            [group] = schema.group_columns
            names = np.asarray(_safe_indexing(table, group, axis=1))
            raise ValueError(
                f"groups calls {schema.label(place)} constant within groups, but it "
                f"varies within the group {names.tolist()[rows[0]]!r}. Correct its "
                "cells, or leave it out of groups."
            )


def check_complete(schema: Schema, slopes, nodes):
    """Check that columns of slopes have no missing cell."""
    for node in slopes:
        rows = np.flatnonzero(np.isnan(nodes[:, node]))
        if len(rows):
            label = schema.label(schema.model_columns[node])
            raise ValueError(
                f"groups has slopes of {label}, which is missing in row {rows[0]}. The "
                "slopes of a column need all of its cells: fill it before, or leave it "
                "out."
            )


# ----------------------------------------
# The latent variables of columns of tables whose rows belong to groups.


_FEWEST_ROWS = 20  # by which marginals are chosen; of fewer they are linear
_OFTEN = 0.2  # share of a value, such as 0, from which a column has steps
_BEYOND = 0.1  # share of a normal distribution that may be beyond an end of a column


def latents_of(cells, schema, settings):
    """Make the latent variables of columns; those of groups by one row of each."""
    groups = _groups_of(cells)
    if is_numeric(schema).all():
        marginals, tails = _choose_marginals(cells, groups, schema, settings)
        if settings.marginals == "auto":
            marginals = _with_signs(marginals, tails, cells, groups, schema, settings)
        return _latents(cells, schema, marginals)
    latents, latents_of_groups = (_latents(rows, schema) for rows in (cells, groups))
    for j in settings.of_groups:
        latents.marginals[j] = latents_of_groups.marginals[j]
    return latents


def _latents(cells, schema, marginals=None):
    kinds, sizes = kinds_of(schema), schema.n_categories.tolist()
    signs = signs_of(schema)
    data, weights = Incomplete.from_array(cells.nodes), torch.from_numpy(cells.weights)
    marginals = marginals or {}
    latents = Latents.of(data, weights, kinds, sizes, marginals)
    return latents.opened(data, kinds, marginals, signs)


def _groups_of(cells):
    """Return a row of each group; its only value may be in any of its rows."""
    first = np.unique(cells.groups, return_index=True)[1]
    rows, weights = by_group(np.fmax, cells.nodes, cells.groups), cells.weights[first]
    location, scale = column_moments(rows, weights)
    return cells._replace(nodes=rows, weights=weights, location=location, scale=scale)


def _choose_marginals(cells, groups, schema, settings):
    """Choose the marginals of numbers as for rows that do not belong together.

    Those of columns of groups are chosen by one row of each group.  Also returns the
    tails of the columns that these rows have.
    """
    linear = mixed.linear_marginals(cells)
    others = settings.slopes + settings.of_groups
    lines, tails = _nonlinear(cells, schema, settings, others)
    others = [j for j in linear if j not in settings.of_groups]
    lines_of_groups, tails_of_groups = _nonlinear(groups, schema, settings, others)
    return linear | lines | lines_of_groups, tails | tails_of_groups


def _with_signs(marginals, tails, cells, groups, schema, settings):
    """Let the marginals of columns of one sign keep it, by `tails` where there are any.

    These tails are fitted given the other columns, so that they hold where missing
    cells are selected.
    """
    signed = dict(marginals)
    for j, (sign, least) in enumerate(signs_of(schema)):
        nodes = (groups if j in settings.of_groups else cells).nodes[:, j]
        observed = torch.from_numpy(nodes[~np.isnan(nodes)])
        if sign and j in tails:
            signed[j] = marginals[j].with_tail(tails[j], sign, least)
        elif sign and len(observed) > 1 and observed.std() > 0:
            signed[j] = marginals[j].signed(observed, sign, least)
    return signed


def _nonlinear(cells, schema, settings, others):
    """Choose marginals that are not linear, but for `others`, and their tails.

    Both are dicts by column.
    """
    columns = [j for j in range(cells.nodes.shape[1]) if j not in others]
    location, scale = cells.location[columns], cells.scale[columns]
    lines, tails = {}, {}
    nodes = cells.nodes[:, columns]
    has_cell = (~np.isnan(nodes)).any(1)
    if settings.marginals == "normal" or has_cell.sum() < _FEWEST_ROWS:
        return lines, tails
    schema = schema._replace(model_columns=schema.model_columns[columns])
    options = OfNumbers("auto", "auto", 200, 5e-3)
    rows, weights = nodes[has_cell], cells.weights[has_cell]
    cells = cells._replace(nodes=rows, weights=weights, location=location, scale=scale)
    model = fit_numbers(cells, None, schema, options, lambda *_: False).model.model
    chosen = np.zeros(len(columns), dtype=bool)
    if model.marginals is not None:
        chosen = nonlinear_columns(model.marginals).numpy()
    data = Incomplete.from_array((rows - location) / scale)
    # errors of means do not show that draws are clipped to the valid values
    skewed = ~chosen & (_share_beyond(schema, location, scale) > _BEYOND)
    for use, pieces in (
        (chosen, model.marginals),
        (skewed, start(data, torch.from_numpy(weights))),
    ):
        for k in np.flatnonzero(use):
            knots, scores = location[k] + scale[k] * pieces.knots[k], pieces.scores[k]
            lines[columns[k]] = Marginal(knots, scores, scores)
    if model.tails is not None:
        tailed, *_, t, b = model.tails
        pairs = zip(tailed.tolist(), t.tolist(), b.tolist(), strict=True)
        tails = {columns[k]: (scale[k], *pair) for k, *pair in pairs if chosen[k]}
    for k in model.steps.columns.tolist() if model.steps is not None else ():
        observed = ~np.isnan(rows[:, k])
        values = rows[observed, k]
        # others are rounded to observed values, which loses less than steps
        if np.unique(values, return_counts=True)[1].max() >= _OFTEN * len(values):
            weight = torch.from_numpy(weights[observed])
            lines[columns[k]] = Marginal.of(torch.from_numpy(values), weight)
            tails.pop(columns[k], None)
    return lines, tails


def _share_beyond(schema, location, scale):
    """Return how much of a normal distribution is beyond an end of the valid values."""
    ranges = schema.values.ranges[:, schema.model_columns]
    low, high = torch.from_numpy((ranges - location) / scale)
    return torch.maximum(normal_cdf(low), normal_cdf(-high)).numpy()


# ----------------------------------------
# The fit of `GaussianImputer` to tables whose rows belong to groups.


_CHECKING = 0.25  # share of the sweeps that suffices for held-out cells
_FEWEST_DRAWS = 20  # of the parameters
# shares of small variances between groups move slowly, without harm to imputed cells
DRIFTING = 1.5  # R-hat above which `fit` warns


class Settings(NamedTuple):
    """The parameters of `GaussianImputer` that a fit to groups uses."""

    marginals: str
    # int, columns of the model: those with random slopes, and of the others those that
    # are constant within groups
    slopes: list
    of_groups: list
    n_draws: int  # number of draws of the parameters
    n_sweeps: int  # of the fit, and of the one without held-out cells
    n_sweeps_of_check: int

    @classmethod
    def of(cls, options, table):
        """Choose numbers of draws and sweeps, enough to draw the parameters.

        `options` has the parameters of `GaussianImputer`.
        """
        schema, cells = table.schema, table.cells
        n_draws = max(int(options.n_parameter_draws), _FEWEST_DRAWS)
        enough = ceil(n_draws / (1 - BURN_IN))
        shares = 1.0, _CHECKING
        rounds = (max(round(share * options.max_iter), enough) for share in shares)
        slopes = slopes_of(schema, options.groups, cells.nodes)
        constant = columns_of_groups(cells.nodes, cells.groups)
        named = np.isin(schema.model_columns, named_constants(schema, options.groups))
        of_groups = np.union1d(constant, np.flatnonzero(named)).astype(int).tolist()
        of_groups = [j for j in of_groups if j not in slopes]
        if len(of_groups) + len(slopes) == len(schema.model_columns):
            raise ValueError(
                "groups needs a column that varies within groups, and whose slopes are "
                "not random. For columns of groups alone, keep one row of each group "
                "and leave out groups."
            )
        places = schema.model_columns[of_groups]
        check_limits(schema, places, table.limits)
        return cls(options.marginals, slopes, of_groups, n_draws, *rounds)


WITHOUT_EFFECT = {
    "tol": "with groups, Gibbs sampling makes max_iter sweeps",
    "shrinkage": "with groups, the prior of Huang and Wand takes its place",
}


class GroupedFit(NamedTuple):
    """A fit by Gibbs sampling."""

    model: GroupedNormal  # with the average of the draws
    fit: Fit

    @property
    def draws(self):
        """The draws of the parameters, as arrays."""
        return list(map(plain_effects, self.fit.draws))

    def report(self, schema, cells, settings):
        """List the public attributes of `GaussianImputer` that describe the fit."""
        warn_of_few(schema, self.model, cells)
        model, fit, levels = self.model, self.fit, self.model.levels
        parameters = model.parameters()
        trace = np.stack(fit.trace)[:, :, levels.order()]
        # a line has three points
        lines = [line is not None and len(line.values) > 3 for line in model.marginals]
        shares = trace[len(fit.losses) - len(fit.estimates) :, 1]
        return {
            **of_model(model),
            **of_chain(schema, cells, fit, trace, levels.whole),
            "shrinkage_": np.nan,
            "n_tuning_iter_": settings.n_sweeps_of_check,
            "group_covariance_": model.between(parameters),
            "slope_covariance_": model.slopes_covariance(parameters),
            "intraclass_correlations_": shares.mean(0),
            "group_columns_": schema.model_columns[model.of_groups],
            "nonlinear_columns_": is_numeric(schema) & np.array(lines, dtype=bool),
        }


def warn_of_marginals(schema, marginal, on_misfit):
    """Warn of columns that the model predicts worse than their means do."""
    if marginal.any():
        message = (
            f"Held-out cells of {schema.labels(schema.model_columns[marginal])} are "
            "predicted worse than by their means, or the shares of their levels. Draws "
            "follow the model all the same, as means know no groups. Take logarithms "
            "of skewed columns, or leave out columns that depend on no other."
        )
        warn_or_raise([message], on_misfit)


def fit_groups(cells, schema, settings, on_round=tell_round):
    """Fit the model to rows; torch's global stream is used.

    `cells`, ModelCells; `on_round`, callable.  Returns GroupedFit.
    """
    rows = sample_groups(cells.groups)
    nodes, numbers = cells.nodes[rows], cells.groups[rows]
    weights, limits = cells.weights[rows], tensors(cells.limits, rows)
    of_groups = settings.of_groups
    latents = latents_of(cells, schema, settings)
    levels = Levels.of(latents, of_groups, settings.slopes)
    slopes = Slopes(
        settings.slopes, *column_moments(nodes[:, settings.slopes], weights)
    )
    kinds, units = kinds_of(schema), None
    if is_numeric(schema).all():
        columns = [j for j in range(len(kinds)) if j not in settings.slopes]
        units = Units(cells.location[columns], cells.scale[columns])
    bounds = bounds_of(schema)
    model = GroupedNormal(levels, of_groups, slopes, kinds, [], units, bounds)
    nodes, members, _ = model.read_rows(np.column_stack([nodes, numbers]))
    fit = groups.posterior_draws(
        members._replace(weights=weights),
        Incomplete.from_array(nodes),
        n_draws=settings.n_draws,
        n_sweeps=settings.n_sweeps,
        limits=limits,
        on_round=on_round,
    )
    model = model._replace(effects=[fit.average()])
    return GroupedFit(model, fit)


def bounds_of(schema):
    """Return the user's bounds of the columns of the model; None if there are none."""
    values, columns = schema.values, schema.model_columns
    by_user, ends = values.by_user[:, columns], values.ranges[:, columns]
    bounds = tuple(np.where(by_user, ends, [[-np.inf], [np.inf]]))
    return bounds if by_user.any() else None


def held_out_cells(cells, settings):
    """Choose the cells that are held out; not those that other cells determine.

    Equal rows of different groups do not hide the same cells: their groups differ.
    """
    rows = np.column_stack([cells.nodes, cells.groups])
    rows = np.column_stack([rows, occurrences(distinct_rows(rows)[1])])
    hidden = mixed.held_out_cells(cells._replace(nodes=rows))[:, :-2].copy()
    hidden[:, [*settings.of_groups, *settings.slopes]] = False
    return hidden


def predict_without(cells, schema, settings, visible, rows):
    """Fit to the `visible` cells, and predict the others of some rows.

    Returns `predictions`, tuple: see `GroupedNormal.fill`.
    """
    settings = settings._replace(n_sweeps=settings.n_sweeps_of_check)
    model = fit_groups(cells._replace(nodes=visible), schema, settings).model
    # of whole groups
    members = np.flatnonzero(np.isin(cells.groups, cells.groups[rows]))
    nodes = np.column_stack([visible, cells.groups])[members]
    filled, probabilities = model.fill(nodes, cells.limits.of(members))
    places = np.searchsorted(members, rows)
    return filled[places, :-1], {j: p[places] for j, p in probabilities.items()}


def sample_groups(numbers):
    """Choose groups at random, which have about `ROWS` rows; the rows of these."""
    if len(numbers) <= ROWS:
        return np.arange(len(numbers))
    sizes = np.bincount(numbers.astype(int))
    order = torch.randperm(len(sizes)).numpy()
    chosen = order[: max(2, np.searchsorted(sizes[order].cumsum(), ROWS))]
    return np.flatnonzero(np.isin(numbers, chosen))
