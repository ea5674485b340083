"""The fit of `GaussianImputer` to tables whose rows belong to groups."""

from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._progress import tell_round
from skvnce._units import Units
from skvnce._warnings import warn_user
from skvnce.algorithms.mixed import groups
from skvnce.algorithms.mixed.effects import Levels
from skvnce.algorithms.mixed.gibbs import BURN_IN
from skvnce.exceptions import TableWarning
from skvnce.fits import gaussian_mixed as mixed
from skvnce.fits.gaussian_mixed import (
    ROWS,
    is_numeric,
    kinds_of,
    of_chain,
)
from skvnce.fits.gaussian_numbers import of_model
from skvnce.fits.group_marginals import latents_of
from skvnce.fitted.grouped import (
    GroupedNormal,
    Slopes,
    equal_rows,
    occurrences,
    plain_effects,
)
from skvnce.fitted.held_out_check import warn_or_raise
from skvnce.fitted.normal import tensors
from skvnce.tables.column_kinds import column_of_groups
from skvnce.tables.groups import columns_of_groups
from skvnce.tables.schema import Schema
from skvnce.tables.statistics import column_moments

_SWEEPS = 2.0  # number of sweeps as a multiple of `max_iter`
_CHECKING = 0.5  # and without the held-out cells
_FEWEST_DRAWS = 20  # of the parameters


class Settings(NamedTuple):
    """The parameters of `GaussianImputer` that a fit to groups uses.

    Attributes
    ----------
    marginals : {"auto", "normal"}
    slopes, of_groups : list of int
        Columns of the model: those with random slopes, and of the others those that are
        constant within groups.
    n_draws : int
        Number of draws of the parameters.
    n_sweeps, n_sweeps_of_check : int
        Of the fit, and of the one without held-out cells.
    uses_draws : bool
        Whether `sample` uses draws of the parameters.
    """

    marginals: str
    slopes: list
    of_groups: list
    n_draws: int
    n_sweeps: int
    n_sweeps_of_check: int
    uses_draws: bool

    @classmethod
    def of(cls, options, cells, schema):
        """Choose numbers of draws and sweeps, enough to draw the parameters.

        `options` has the parameters of `GaussianImputer`.
        """
        n_draws = max(int(options.n_parameter_draws), _FEWEST_DRAWS)
        enough = ceil(n_draws / (1 - BURN_IN))
        shares = _SWEEPS, _CHECKING
        rounds = (max(round(share * options.max_iter), enough) for share in shares)
        slopes = slopes_of(schema, options.groups, cells.nodes)
        of_groups = columns_of_groups(cells.nodes, cells.groups)
        of_groups = [j for j in of_groups if j not in slopes]
        if len(of_groups) + len(slopes) == len(schema.model_columns):
            raise ValueError(
                "groups needs a column that varies within groups, and whose slopes are "
                "not random. For columns of groups alone, keep one row of each group "
                "and leave out groups."
            )
        stored = bool(options.n_parameter_draws)
        return cls(options.marginals, slopes, of_groups, n_draws, *rounds, stored)


WITHOUT_EFFECT = {
    "tol": "with groups, Gibbs sampling makes twice max_iter sweeps",
    "shrinkage": "with groups, the prior of Huang and Wand takes its place",
}


class GroupedFit(NamedTuple):
    """A fit by Gibbs sampling.

    Attributes
    ----------
    model : GroupedNormal
        With the average of the draws.
    fit : groups.Fit
    uses_draws : bool
    """

    model: GroupedNormal
    fit: groups.Fit
    uses_draws: bool

    def attributes(self, schema, cells, settings):
        """List what `GaussianImputer` says of the fit."""
        warn_of_few(schema, self.model, cells)
        model, fit, levels = self.model, self.fit, self.model.levels
        plain, trace = model.plain(), np.stack(fit.trace)[:, :, levels.order()]
        lines = [one is not None and len(one.values) > 3 for one in model.marginals]
        shares = trace[len(fit.losses) - len(fit.estimates) :, 1]
        draws = fit.draws if self.uses_draws else []
        return {
            **of_model(model),
            **of_chain(schema, cells, fit, trace, levels.whole),
            "_draws": [plain_effects(one) for one in draws],
            "_training": None,
            "shrinkage_": np.nan,
            "n_tuning_iter_": settings.n_sweeps_of_check,
            "group_covariance_": model.between(plain["normal"]),
            "slope_covariance_": model.slopes_covariance(plain["normal"]),
            "intraclass_correlations_": shares.mean(0),
            "group_columns_": schema.model_columns[model.of_groups],
            "nonlinear_columns_": is_numeric(schema) & np.array(lines, dtype=bool),
        }


def without_marginals(schema, marginal, on_misfit):
    """Keep the model of columns that it predicts worse than their means, and warn.

    Returns
    -------
    dict
        Attributes of `GaussianImputer`.
    """
    if marginal.any():
        message = (
            f"Held-out cells of {schema.labels(schema.model_columns[marginal])} are "
            "predicted worse than by their means, or the shares of their levels. Draws "
            "follow the model all the same, as means know no groups. Take logarithms "
            "of skewed columns, or leave out columns that depend on no other."
        )
        warn_or_raise([message], on_misfit)
    return {"marginal_columns_": np.zeros_like(marginal), "_marginals_of_columns": {}}


def reject_parts(groups):
    """Raise an error for a table in parts, whose groups may be in several."""
    if groups is not None:
        raise ValueError(
            "groups is not available for a table in parts, as the rows of a group may "
            "be in several. Fit to a table in memory, of whole groups if there are too "
            "many; then call the methods for one table of whole groups after the "
            "other, such as the computed partitions of ddf.shuffle(on=groups) of dask."
        )


def reject_stream(groups):
    """Raise an error for `partial_fit`, whose rows come one after the other."""
    if groups is not None:
        raise ValueError(
            "partial_fit is not available with groups, as the rows of a group may come "
            "later. Use fit with all rows."
        )


def check_rows(schema, plain, X):
    """Check new rows of groups.

    Parameters
    ----------
    schema : Schema
    plain : dict
        The fitted model as plain data.
    X : ndarray of shape (n_samples, n_features)
    """
    if schema.group is not None and "of_groups" in plain:
        check_complete(schema, plain["slopes"][0], X[:, schema.model_columns])
        check_constant(schema, schema.model_columns[plain["of_groups"]], X)


def check_shift(schema, plain, shift):
    """Raise an error for a shift of cells that are equal in all rows of a group."""
    found = [j for j in plain.get("of_groups", ()) if shift.columns[j]]
    if found:
        raise ValueError(
            f"shift has {schema.labels(schema.model_columns[found])}, constant within "
            "groups: all rows of a group have one value. Leave it out."
        )


def unless_trivial(schema, cells):
    """Forget groups, and warn, if each is one row, or if there is only one.

    Parameters
    ----------
    schema : Schema
    cells : ModelCells

    Returns
    -------
    schema : Schema
    cells : ModelCells
    """
    if cells.groups is None:
        return schema, cells
    n_groups, n = len(np.unique(cells.groups)), len(cells.groups)
    if 1 < n_groups < n:
        return schema, cells
    why = "all rows are of one group" if n_groups == 1 else "each group has one row"
    warn_user(
        f"groups has no effect: {why} in {schema.label(schema.group)}. The model is "
        "that of a table without groups.",
        TableWarning,
    )
    columns = [one._replace(is_group=False) for one in schema.columns]
    return schema._replace(columns=columns), cells._replace(groups=None)


def warn_of_few(schema, model, cells):
    """Warn if there are no more groups than effects of each."""
    n_groups = len(np.unique(cells.groups))
    n_effects = model.levels.n_random + model.levels.groups.size
    if n_groups <= n_effects:
        warn_user(
            f"{schema.label(schema.group)} names {n_groups} groups, and each has "
            f"{n_effects} effects: the prior decides how they are correlated. Use "
            "fewer columns, or the column as a category instead of groups.",
            TableWarning,
        )


def check_constant(schema: Schema, columns, X):
    """Check that columns are constant within the groups of rows.

    Parameters
    ----------
    schema : Schema
    columns : ndarray of int
        Indices of columns of the table.
    X : ndarray of shape (n_samples, n_features)

    Raises
    ------
    ValueError
        If a group has two values.
    """
    for place in columns:
        cells, numbers = X[:, place], X[:, schema.group]
        seen = np.flatnonzero(~np.isnan(cells))
        first = np.full(int(numbers.max()) + 1, np.nan)
        first[numbers[seen][::-1].astype(int)] = cells[seen][::-1]
        other = seen[cells[seen] != first[numbers[seen].astype(int)]]
        if len(other):
            raise ValueError(
                f"{schema.label(place)} was constant within groups at fit, and has "
                f"another value in row {other[0]} than in an earlier row of its group. "
                "Correct the cell, or fit to rows in which it varies."
            )


def slopes_of(schema: Schema, groups, nodes):
    """Find the columns whose slopes are random, and check them.

    Parameters
    ----------
    schema : Schema
    groups : str, int or dict
        See `GaussianImputer`.
    nodes : ndarray of shape (n, n_model_columns)

    Returns
    -------
    list of int
        Places among the columns of the model.
    """
    found = []
    for name in column_of_groups(groups)[1]:
        place = schema.index_of(name, "groups")
        label = schema.label(place)
        if found and place in schema.model_columns[found]:
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
        found.append(node)
    check_complete(schema, found, nodes)
    design = np.column_stack([np.ones(len(nodes)), nodes[:, found]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise ValueError(
            f"groups has slopes of {schema.labels(schema.model_columns[found])}, which "
            "are linear functions of each other. Leave some out."
        )
    return found


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


def fit_groups(cells, schema, settings, on_round=tell_round):
    """Fit the model to rows; torch's global stream is used.

    Parameters
    ----------
    cells : ModelCells
    schema : Schema
    settings : Settings
    on_round : callable

    Returns
    -------
    GroupedFit
    """
    nodes = cells.nodes
    rows = some_groups(cells.groups)
    own, numbers = nodes[rows], cells.groups[rows]
    weights, limits = cells.weights[rows], None
    if cells.limits is not None:
        limits = tensors(cells.limits.of_rows(rows))
    of_groups = settings.of_groups
    latents = latents_of(cells, schema, settings)
    levels = Levels.of(latents, of_groups, settings.slopes)
    slopes = Slopes(settings.slopes, *column_moments(own[:, settings.slopes], weights))
    kinds, units = kinds_of(schema), None
    if is_numeric(schema).all():
        kept = [j for j in range(len(kinds)) if j not in settings.slopes]
        units = Units(cells.location[kept], cells.scale[kept])
    bounds = bounds_of(schema)
    model = GroupedNormal(levels, of_groups, slopes, kinds, [], units, bounds)
    known, members, _ = model.known(np.column_stack([own, numbers]))
    fit = groups.posterior_draws(
        members._replace(weights=weights),
        Incomplete.from_array(known),
        n_draws=settings.n_draws,
        n_sweeps=settings.n_sweeps,
        limits=limits,
        on_round=on_round,
    )
    model = model._replace(effects=[fit.average()])
    return GroupedFit(model, fit, settings.uses_draws)


def bounds_of(schema):
    """Return the user's bounds of the columns of the model; None if there are none."""
    values, columns = schema.values, schema.model_columns
    given, ends = values.given[:, columns], values.ranges[:, columns]
    bounds = tuple(np.where(given, ends, [[-np.inf], [np.inf]]))
    return bounds if given.any() else None


def held_out(cells, settings):
    """Choose the cells that are held out; not those that other cells determine.

    Equal rows of different groups do not hide the same cells: their groups differ.

    Returns
    -------
    dict
        Options of `held_out_attributes`.
    """
    rows = np.column_stack([cells.nodes, cells.groups])
    rows = np.column_stack([rows, occurrences(equal_rows(rows))])
    hidden = mixed.held_out_cells(cells._replace(nodes=rows))[:, :-2].copy()
    hidden[:, [*settings.of_groups, *settings.slopes]] = False
    return {"weights": cells.weights, "scale": cells.scale, "hidden": hidden}


def predict_without(cells, schema, settings, kept, rows):
    """Fit to the cells that are `kept`, and predict the others of some rows.

    Returns
    -------
    predictions : tuple
        See `GroupedNormal.fill`.
    """
    settings = settings._replace(n_sweeps=settings.n_sweeps_of_check)
    found = fit_groups(cells._replace(nodes=kept), schema, settings)
    # of whole groups
    some = np.flatnonzero(np.isin(cells.groups, cells.groups[rows]))
    nodes = np.column_stack([kept, cells.groups])[some]
    limits = cells.limits and cells.limits.of_rows(some)
    filled, probabilities = found.model.fill(nodes, limits)
    places = np.searchsorted(some, rows)
    return filled[places, :-1], {j: one[places] for j, one in probabilities.items()}


def some_groups(numbers):
    """Choose groups at random, which have about `ROWS` rows; the rows of these."""
    if len(numbers) <= ROWS:
        return np.arange(len(numbers))
    sizes = np.bincount(numbers.astype(int))
    order = torch.randperm(len(sizes)).numpy()
    chosen = order[: max(2, np.searchsorted(sizes[order].cumsum(), ROWS))]
    return np.flatnonzero(np.isin(numbers, chosen))
