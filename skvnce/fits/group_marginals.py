"""The latent variables of columns of tables whose rows belong to groups."""

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian.marginals import nonlinear_columns, start
from skvnce.algorithms.mixed import censored
from skvnce.algorithms.mixed.columns import Latents, Marginal
from skvnce.distributions.quantiles import normal_cdf
from skvnce.fits.gaussian_mixed import is_numeric, kinds_of
from skvnce.fits.gaussian_numbers import Settings as OfNumbers
from skvnce.fits.gaussian_numbers import fit_numbers
from skvnce.tables.groups import by_group
from skvnce.tables.statistics import column_moments

_FEWEST_ROWS = 20  # by which marginals are chosen; of fewer they are linear
_OFTEN = 0.2  # share of a value, such as 0, from which a column has steps
_BEYOND = 0.1  # share of a normal distribution that may be beyond an end of a column


def latents_of(cells, schema, settings):
    """Make the latent variables of columns; those of groups by one row of each."""
    kinds, sizes = kinds_of(schema), schema.n_categories.tolist()
    groups = _groups_of(cells)
    if is_numeric(schema).all():
        given = _given(cells, groups, schema, settings)
        return _latents(cells, kinds, sizes, given)
    latents, own = (_latents(one, kinds, sizes) for one in (cells, groups))
    for j in settings.of_groups:
        latents.marginals[j] = own.marginals[j]
    return latents


def _latents(cells, kinds, sizes, given=None):
    data, weights = Incomplete.from_array(cells.nodes), torch.from_numpy(cells.weights)
    given = given or {}
    latents = Latents.of(data, weights, kinds, sizes, given)
    return latents.opened(data, kinds, given)


def _groups_of(cells):
    """Return a row of each group; its only value may be in any of its rows."""
    first = np.unique(cells.groups, return_index=True)[1]
    rows, weights = by_group(np.fmax, cells.nodes, cells.groups), cells.weights[first]
    location, scale = column_moments(rows, weights)
    return cells._replace(nodes=rows, weights=weights, location=location, scale=scale)


def _given(cells, groups, schema, settings):
    """Choose the marginals of numbers as for rows that do not belong together.

    Those of columns of groups are chosen by one row of each group.
    """
    scales = enumerate(zip(cells.location, cells.scale, strict=True))
    found = {j: censored.linear(*one) for j, one in scales}
    found |= _nonlinear(cells, schema, settings, settings.slopes + settings.of_groups)
    if settings.of_groups:
        others = [j for j in found if j not in settings.of_groups]
        found |= _nonlinear(groups, schema, settings, others)
    return found


def _nonlinear(cells, schema, settings, others):
    """Choose marginals that are not linear, but for `others`; dict by column."""
    kept = [j for j in range(cells.nodes.shape[1]) if j not in others]
    location, scale = cells.location[kept], cells.scale[kept]
    lines = {}
    nodes = cells.nodes[:, kept]
    some = (~np.isnan(nodes)).any(1)
    if settings.marginals == "normal" or some.sum() < _FEWEST_ROWS:
        return lines
    schema = schema._replace(model_columns=schema.model_columns[kept])
    options = OfNumbers("auto", "auto", 200, 5e-3)
    rows, weights = nodes[some], cells.weights[some]
    own = cells._replace(nodes=rows, weights=weights, location=location, scale=scale)
    model = fit_numbers(own, None, schema, options, lambda *_: False).model.model
    chosen = np.zeros(len(kept), dtype=bool)
    if model.marginals is not None:
        chosen = nonlinear_columns(model.marginals).numpy()
    data = Incomplete.from_array((rows - location) / scale)
    # errors of means do not show that draws are clipped to the valid values
    skewed = ~chosen & (_share_beyond(schema, location, scale) > _BEYOND)
    for use, made in (
        (chosen, model.marginals),
        (skewed, start(data, torch.from_numpy(weights))),
    ):
        for k in np.flatnonzero(use):
            cells_of = location[k] + scale[k] * made.knots[k]
            lines[kept[k]] = Marginal(cells_of, made.scores[k], made.scores[k])
    for k in model.steps.columns.tolist() if model.steps is not None else ():
        seen = rows[:, k][~np.isnan(rows[:, k])]
        # others are rounded to observed values, which loses less than steps
        if np.unique(seen, return_counts=True)[1].max() >= _OFTEN * len(seen):
            weight = torch.from_numpy(weights[~np.isnan(rows[:, k])])
            lines[kept[k]] = Marginal.of(torch.from_numpy(seen), weight)
    return lines


def _share_beyond(schema, location, scale):
    """Return how much of a normal distribution is beyond an end of the valid values."""
    ranges = schema.values.ranges[:, schema.model_columns]
    low, high = torch.from_numpy((ranges - location) / scale)
    return torch.maximum(normal_cdf(low), normal_cdf(-high)).numpy()
