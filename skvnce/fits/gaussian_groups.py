"""The fit of `GaussianImputer` to tables whose rows belong to groups."""

from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._progress import tell_round
from skvnce._units import Units
from skvnce.algorithms.mixed import groups
from skvnce.algorithms.mixed.chain import BURN_IN, Fit
from skvnce.algorithms.mixed.effects import Levels
from skvnce.fits import gaussian_mixed as mixed
from skvnce.fits.gaussian_mixed import (
    ROWS,
    is_numeric,
    kinds_of,
    of_chain,
)
from skvnce.fits.gaussian_numbers import of_model
from skvnce.fits.group_checks import named_constants, slopes_of, warn_of_few
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
from skvnce.tables.cell_limits import select_limits
from skvnce.tables.groups import columns_of_groups
from skvnce.tables.statistics import column_moments

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
    def of(cls, options, cells, schema):
        """Choose numbers of draws and sweeps, enough to draw the parameters.

        `options` has the parameters of `GaussianImputer`.
        """
        n_draws = max(int(options.n_parameter_draws), _FEWEST_DRAWS)
        enough = ceil(n_draws / (1 - BURN_IN))
        shares = 1.0, _CHECKING
        rounds = (max(round(share * options.max_iter), enough) for share in shares)
        slopes = slopes_of(schema, options.groups, cells.nodes)
        found = columns_of_groups(cells.nodes, cells.groups)
        named = np.isin(schema.model_columns, named_constants(schema, options.groups))
        of_groups = np.union1d(found, np.flatnonzero(named)).astype(int).tolist()
        of_groups = [j for j in of_groups if j not in slopes]
        if len(of_groups) + len(slopes) == len(schema.model_columns):
            raise ValueError(
                "groups needs a column that varies within groups, and whose slopes are "
                "not random. For columns of groups alone, keep one row of each group "
                "and leave out groups."
            )
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
        """List what `GaussianImputer` says of the fit."""
        warn_of_few(schema, self.model, cells)
        model, fit, levels = self.model, self.fit, self.model.levels
        parameters = model.parameters()
        trace = np.stack(fit.trace)[:, :, levels.order()]
        lines = [one is not None and len(one.values) > 3 for one in model.marginals]
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
    nodes = cells.nodes
    rows = some_groups(cells.groups)
    own, numbers = nodes[rows], cells.groups[rows]
    weights, limits = cells.weights[rows], tensors(cells.limits, rows)
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
    return GroupedFit(model, fit)


def bounds_of(schema):
    """Return the user's bounds of the columns of the model; None if there are none."""
    values, columns = schema.values, schema.model_columns
    given, ends = values.given[:, columns], values.ranges[:, columns]
    bounds = tuple(np.where(given, ends, [[-np.inf], [np.inf]]))
    return bounds if given.any() else None


def held_out(cells, settings):
    """Choose the cells that are held out; not those that other cells determine.

    Equal rows of different groups do not hide the same cells: their groups differ.

    Returns dict: options of `held_out_attributes`.
    """
    rows = np.column_stack([cells.nodes, cells.groups])
    rows = np.column_stack([rows, occurrences(equal_rows(rows))])
    hidden = mixed.held_out_cells(cells._replace(nodes=rows))[:, :-2].copy()
    hidden[:, [*settings.of_groups, *settings.slopes]] = False
    return {"weights": cells.weights, "scale": cells.scale, "hidden": hidden}


def predict_without(cells, schema, settings, kept, rows):
    """Fit to the cells that are `kept`, and predict the others of some rows.

    Returns `predictions`, tuple: see `GroupedNormal.fill`.
    """
    settings = settings._replace(n_sweeps=settings.n_sweeps_of_check)
    found = fit_groups(cells._replace(nodes=kept), schema, settings)
    # of whole groups
    some = np.flatnonzero(np.isin(cells.groups, cells.groups[rows]))
    nodes = np.column_stack([kept, cells.groups])[some]
    limits = select_limits(cells.limits, some)
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
