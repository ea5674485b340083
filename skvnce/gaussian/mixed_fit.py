"""The fit of `GaussianImputer` to tables with categories or with limits of cells."""

from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.progress import tell_round
from skvnce._core.warnings import warn_user
from skvnce._imputer.held_out import HELD_OUT, hold_out
from skvnce.exceptions import MisfitWarning
from skvnce.gaussian.fit import of_model
from skvnce.gaussian.latent import censored, gibbs
from skvnce.gaussian.latent.columns import NUMERIC, Latents
from skvnce.gaussian.latent.gibbs import BURN_IN, Fit
from skvnce.gaussian.latent.population import Population
from skvnce.gaussian.model import LatentNormal, tensors
from skvnce.metrics import split_r_hat

SHARE = 0.5  # shrinkage in rows per latent variable if it is "auto"
ROWS = 10_000  # the chains of the fit use about as many rows
_FEWEST_DRAWS = 20  # of the parameters, whose average is the estimate
_SWEEPS = 0.5  # number of sweeps as a share of `max_iter`
_DOUBTFUL = 0.12  # standard deviations of cells beyond a limit, of which `fit` warns
_CHECKING = 0.3  # and without the held-out cells
_AVERAGING = 1.25  # and those of the average that is the estimate


class Settings(NamedTuple):
    """The parameters of `GaussianImputer` that a fit by Gibbs sampling uses."""

    shrinkage: float  # in rows per latent variable
    marginals: str
    n_draws: int  # number of draws of the parameters
    n_sweeps: int  # of the fit, and of the one without held-out cells
    n_sweeps_of_check: int
    n_sweeps_of_average: int

    @classmethod
    def of(cls, shrinkage, marginals, n_parameter_draws, max_iter):
        """Choose numbers of draws and sweeps, enough to draw the parameters."""
        n_draws = max(int(n_parameter_draws), _FEWEST_DRAWS)
        # draws come from the sweeps after the burn-in
        enough = ceil(n_draws / (1 - BURN_IN))
        return cls(
            SHARE if isinstance(shrinkage, str) else float(shrinkage),
            marginals,
            n_draws,
            max(round(_SWEEPS * max_iter), min(max_iter, enough)),
            max(1, round(_CHECKING * max_iter)),
            round(_AVERAGING * max_iter),
        )


class MixedFit(NamedTuple):
    """A fit by Gibbs sampling."""

    model: LatentNormal  # with the average of the draws
    fit: Fit
    # by column of the model: how much cells beyond the limits depend on the shape of
    # their distribution, in standard deviations
    doubts: dict

    @property
    def draws(self):
        """The draws of the parameters, as arrays."""
        return [tuple(part.numpy() for part in normal) for normal in self.fit.draws]

    def report(self, schema, cells, marginals):
        """List the public attributes of `GaussianImputer` that describe the fit."""
        fit, numeric = self.fit, is_numeric(schema)
        is_normal = marginals == "normal" and numeric.all()
        return {
            **of_model(self.model),
            **of_chain(schema, cells, fit, np.stack(fit.trace), self.model.latents),
            "nonlinear_columns_": np.zeros_like(numeric) if is_normal else numeric,
        }


def of_chain(schema, cells, fit, trace, latents):
    """List the public attributes that describe a chain over latent variables.

    `cells`, ModelCells; `trace` (n_sweeps, 2, n_latents).
    """
    numeric, n_burn_in = is_numeric(schema), len(fit.losses) - len(fit.estimates)
    return {
        "calibrated_columns_": np.zeros(len(numeric), dtype=bool),
        "location_": np.where(numeric, cells.location, np.nan),
        "scale_": np.where(numeric, cells.scale, np.nan),
        "loss_curve_": fit.losses,
        "n_iter_": len(fit.losses),
        "n_burn_in_": n_burn_in,
        "trace_": trace,
        "r_hat_": r_hat_of(trace[n_burn_in:]),
        "latent_names_": np.array(latent_names(schema, latents), dtype=object),
    }


def kinds_of(schema):
    """List the kinds of the columns of the model."""
    columns = schema.columns
    if columns is None:
        return [NUMERIC] * len(schema.model_columns)
    return [columns[place].kind for place in schema.model_columns]


def is_numeric(schema):
    """Return which columns of the model are numbers; (n_model_columns,)."""
    return np.array([kind == NUMERIC for kind in kinds_of(schema)], dtype=bool)


def without_effect(are_levels):
    """Say which parameters have no effect on a fit by Gibbs sampling."""
    parameters = {"tol": "Gibbs sampling makes half of max_iter sweeps"}
    if are_levels.any():
        parameters["marginals"] = (
            "with categories, numbers always have their observed distribution; "
            "transform skewed columns before, or leave the categories out"
        )
    return parameters


def fit_mixed(cells, schema, settings, on_round=tell_round):
    """Fit the latent normal model to all cells; torch's global stream is used.

    `cells`, ModelCells; `on_round`, callable.  The estimate is that of
    `gibbs.stochastic_em`, or of the chain with 0 sweeps of it.  Returns MixedFit.
    """
    kinds, sizes = kinds_of(schema), schema.n_categories.tolist()
    limits = tensors(cells.limits)
    data, weights = Incomplete.from_array(cells.nodes), torch.from_numpy(cells.weights)
    # in tables with categories, numbers are never normal by assumption
    if settings.marginals == "normal" and not schema.is_categorical.any():
        marginals, doubts = linear_marginals(cells), {}
    else:
        marginals, doubts = marginals_of(schema, data, weights, cells.limits)
    latents = Latents.of(data, weights, kinds, sizes, marginals)
    latents, _ = Population.of(latents, data, weights, limits, marginals)
    latents = latents.opened(data, kinds, marginals, signs_of(schema))
    rows, weights = some_rows(weights)
    limits = tensors(cells.limits, rows.numpy())
    sample = latents, data.take(rows), weights, settings.shrinkage * latents.size
    options = {"n_draws": settings.n_draws, "limits": limits, "on_round": on_round}
    n_sweeps, n_averaged = settings.n_sweeps, settings.n_sweeps_of_average
    with np.errstate(invalid="ignore"):  # limits that are far away; NaN is an error
        fit = gibbs.posterior_draws(*sample, max_iter=n_sweeps, **options)
        normal = fit.average()
        # a callback has stopped a shorter chain
        if n_averaged and len(fit.losses) == n_sweeps:
            normal = gibbs.stochastic_em(*sample, normal, n_averaged, limits)
    units = Units(cells.location, cells.scale) if is_numeric(schema).all() else None
    return MixedFit(LatentNormal(latents, kinds, [normal], units), fit, doubts)


def predict_without(cells, schema, settings, visible, rows):
    """Fit to the `visible` cells, and predict the others of some rows.

    Returns `predictions`, tuple: see `LatentNormal.fill`; `n_sweeps`, int.
    """
    n_sweeps = settings.n_sweeps_of_check
    settings = settings._replace(n_sweeps=n_sweeps, n_sweeps_of_average=0)
    mixed = fit_mixed(cells._replace(nodes=visible), schema, settings)
    ends = cells.limits.of(rows)
    return mixed.model.fill(visible[rows], ends), len(mixed.fit.losses)


def held_out_cells(cells, joined=None):
    """Choose the cells that are held out; bool, (n, n_model_columns); `hold_out`."""
    weights = torch.from_numpy(cells.weights)
    hidden = hold_out(cells.nodes, weights, HELD_OUT, joined)[1].numpy()
    # whose observed cells are not typical
    hidden[:, list(cells.limits.columns)] = False
    return hidden


def linear_marginals(cells):
    """Make the marginals of columns of numbers that are normal, by column."""
    scales = enumerate(zip(cells.location, cells.scale, strict=True))
    return {j: censored.linear(*units) for j, units in scales}


def signs_of(schema):
    """List the signs that the columns of the model keep, and least sizes of cells."""
    values, columns = schema.values, schema.model_columns
    signs = values.signs(schema.ends)[columns].tolist()
    return list(zip(signs, values.least_sizes()[columns].tolist(), strict=True))


def marginals_of(schema, data, weights, limits):
    """Make the marginals of columns with limits.

    Also returns the doubts about their tails.
    """
    valid, signs, marginals, doubts = schema.values, signs_of(schema), {}, {}
    for j in limits.columns:
        place, observed = schema.model_columns[j], data.observed[:, j]
        lowest = float(valid.low[place]) if valid.by_user[0, place] else 0.0
        limited = limits.has_limit[:, j]
        marginals[j], doubts[j] = censored.censored(
            data.x[observed, j],
            weights[observed],
            tuple(torch.from_numpy(end[limited, j]) for end in limits),
            weights[torch.from_numpy(limited)],
            lowest,
            *signs[j],
        )
    return marginals, doubts


def warn_of_tails(schema, doubts):
    """Warn of columns whose shape beyond the limits is not known from the data."""
    names = schema.all_names
    doubtful = [j for j, doubt in doubts.items() if doubt > _DOUBTFUL]
    if doubtful:
        listed = ", ".join(repr(names[schema.model_columns[j]]) for j in doubtful)
        warn_user(
            f"The observed cells of {listed} do not tell the shape of the "
            "distribution beyond the limits, so that filled cells depend on an average "
            "of shapes, or they follow none of these. If you know the shape, say it: "
            "take logarithms of a lognormal column, set min_value where values begin "
            "above 0, or set marginals='normal' if all columns are normal.",
            MisfitWarning,
        )


def some_rows(weights):
    """Choose about `ROWS` rows at random, with probabilities in proportion to weights.

    Returns `chosen`, int (n_chosen,); `weights` (n_chosen,): with them, sums over the
    chosen rows estimate those over all rows, times the share of rows that were chosen.
    """
    n = len(weights)
    if n <= ROWS:
        return torch.arange(n), weights
    # systematic sampling with unequal probabilities follows
    chances = weights / weights.sum() * ROWS
    while (chances > 1).any():  # some rows are certain
        sure = chances >= 1
        rest = chances.where(~sure, 0.0)
        chances = torch.where(sure, 1.0, rest * (ROWS - sure.sum()) / rest.sum())
    # in random order, so that any two rows can be chosen together
    order = torch.randperm(n)
    ends = (chances[order].cumsum(0) + torch.rand(())).floor()
    chosen = order[ends.diff(prepend=torch.zeros(1)) > 0].sort().values
    # inverse probabilities, so that sums over the chosen rows are unbiased
    return chosen, weights[chosen] / chances[chosen] * (ROWS / n)


def r_hat_of(trace):
    """Compute the split R-hat of traces; NaN if they are too short."""
    # each half needs two values for a variance
    if len(trace) < 4:
        return np.full(trace.shape[1:], np.nan)
    return split_r_hat(trace[None])


def latent_names(schema, latents):
    """Name latent variables after their column, and their level if there are some."""
    names, columns = schema.all_names, schema.columns
    names_of_latents = []
    for place, size in zip(schema.model_columns, latents.n_levels, strict=True):
        levels = [f"={level}" for level in columns[place].levels] if size > 1 else [""]
        names_of_latents += [names[place] + level for level in levels[:size]]
    return names_of_latents
