"""The fit of `GaussianImputer` to tables with categories or with limits of cells."""

from math import ceil

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import seed_from, seeded
from skvnce._warnings import warn_user
from skvnce.algorithms.mixed import censored, gibbs
from skvnce.algorithms.mixed.columns import NUMERIC, Latents, Marginal
from skvnce.algorithms.mixed.population import Population
from skvnce.distributions.normal import Normal
from skvnce.estimators._gaussian_rows import MixedRows
from skvnce.estimators._many_levels import (
    columns_of_many_levels,
    seconds_of_sweep,
    warn_of_many_levels,
)
from skvnce.estimators._misfit import HELD_OUT
from skvnce.estimators._tables import hold_out
from skvnce.estimators._unused import warn_of_bounded_levels, warn_of_unused
from skvnce.exceptions import MisfitWarning
from skvnce.metrics import split_r_hat

SHARE = 0.5  # shrinkage in rows per latent variable if it is "auto"
ROWS = 10_000  # the chains of the fit use about as many rows
_FEWEST_DRAWS = 20  # of the parameters, whose average is the estimate
_SWEEPS = 0.5  # number of sweeps as a share of `max_iter`
_DOUBTFUL = 0.12  # standard deviations of cells beyond a limit, of which `fit` warns
_CHECKING = 0.3  # and without the held-out cells


def kinds_of(schema):
    """List the kinds of the columns of the model."""
    columns = schema.columns
    if columns is None:
        return [NUMERIC] * len(schema.model_columns)
    return [columns[place].kind for place in schema.model_columns]


def number_of_sweeps(estimator):
    """Return the number of Gibbs sweeps of a fit, enough to draw the parameters."""
    enough = ceil(_number_of_draws(estimator) / (1 - gibbs.BURN_IN))
    return max(round(_SWEEPS * estimator.max_iter), min(estimator.max_iter, enough))


def _sweeps_of_check(estimator):
    return max(1, round(_CHECKING * estimator.max_iter))


def _warn_of_many_levels(estimator, cells, kinds, sizes):
    """Warn if there are so many levels that the sweeps of a fit take minutes."""
    names = estimator._schema.all_names[estimator.feature_indices_]
    many = columns_of_many_levels(names, kinds, sizes)
    if many:
        data, weights = (
            Incomplete.from_array(cells.nodes),
            torch.from_numpy(cells.weights),
        )
        latents, n = Latents.of(data, weights, kinds, sizes), min(len(weights), ROWS)
        seconds = seconds_of_sweep(latents, data, weights, n)
        checked = estimator.on_misfit != "ignore"
        sweeps = number_of_sweeps(estimator) + checked * _sweeps_of_check(estimator)
        warn_of_many_levels(type(estimator).__name__, many, n, sweeps * seconds)


def _number_of_draws(estimator):
    return max(int(estimator.n_parameter_draws), _FEWEST_DRAWS)


def _without_effect(are_levels):
    """Say which parameters have no effect on a fit by Gibbs sampling."""
    found = {"tol": "Gibbs sampling makes half of max_iter sweeps"}
    if are_levels.any():
        found["marginals"] = (
            "with categories, numbers always have their observed distribution; "
            "transform skewed columns before, or leave the categories out"
        )
    return found


def fit_mixed(estimator, cells, on_round):
    """Fit the latent normal model, and set the attributes of the estimator."""
    warn_of_unused(estimator, _without_effect(estimator._schema.is_categorical))
    warn_of_bounded_levels(estimator)
    kinds, sizes = kinds_of(estimator._schema), estimator._schema.n_categories.tolist()
    auto = isinstance(estimator.shrinkage, str)
    estimator.shrinkage_ = SHARE if auto else float(estimator.shrinkage)
    limits = cells.limits and cells.limits.tensors()

    def fitted(nodes, weights, max_iter, **options):
        data, weights = Incomplete.from_array(nodes), torch.from_numpy(weights)
        given, doubts = _marginals(estimator, data, weights, limits)
        latents = Latents.of(data, weights, kinds, sizes, given)
        latents, _ = Population.of(latents, data, weights, limits, given)
        strength = estimator.shrinkage_ * latents.size
        options |= {"n_draws": _number_of_draws(estimator), "max_iter": max_iter}
        rows, weights = some_rows(weights)
        options["limits"] = limits and tuple(end[rows] for end in limits)
        with np.errstate(invalid="ignore"):  # limits that are far away; NaN is an error
            fit = gibbs.posterior_draws(
                latents, data.take(rows), weights, strength, **options
            )
        return latents, fit, doubts

    def predict(kept, rows):
        sweeps = _sweeps_of_check(estimator)
        latents, fit, _ = fitted(kept, cells.weights, sweeps)
        estimator.n_tuning_iter_ = len(fit.losses)
        ends = cells.limits and cells.limits.of(rows, np.arange(len(kinds)))
        model = MixedRows(latents, kinds, [fit.average()])
        return model.predictions(kept[rows], ends)

    estimator.n_tuning_iter_ = 0
    _warn_of_many_levels(estimator, cells, kinds, sizes)
    with seeded(seed_from(estimator.random_state)):
        sweeps = number_of_sweeps(estimator)
        *found, doubts = fitted(cells.nodes, cells.weights, sweeps, on_round=on_round)
        _warn_of_tails(estimator._schema, doubts)
        _keep(estimator, *found, kinds)
        hidden = hold_out(cells.nodes, torch.from_numpy(cells.weights), HELD_OUT)[1]
        hidden = hidden.numpy()
        if cells.limits is not None:  # their observed cells are not typical
            hidden = hidden & ~cells.limits.known.any(0)
        estimator._check_held_out(
            cells.nodes, predict, weights=cells.weights, hidden=hidden
        )


def _marginals(estimator, data, weights, limits):
    """Make the marginals of columns with limits, or of all if they are normal.

    Also returns the doubts about the tails of columns with limits.
    In tables with categories, numbers are never normal by assumption.
    """
    if limits is None:
        return {}, {}
    if estimator.marginals == "normal" and not estimator._schema.is_categorical.any():
        scales = zip(estimator.location_, estimator.scale_, strict=True)
        return {j: censored.linear(*one) for j, one in enumerate(scales)}, {}
    possible, found, doubts = estimator._schema.values, {}, {}
    for j, (place, seen) in enumerate(
        zip(estimator.feature_indices_, data.observed.T, strict=True)
    ):
        lowest = float(possible.low[place]) if possible.given[0, place] else 0.0
        ends = [end[:, j] for end in limits]
        some = ends[0].isfinite() | ends[1].isfinite()
        if some.any():
            ends = ends[0][some], ends[1][some]
            known = data.x[seen, j], weights[seen]
            censoring = ends, weights[some], lowest
            found[j], doubts[j] = censored.censored(*known, *censoring)
    return found, doubts


def _warn_of_tails(schema, doubts):
    """Warn of columns whose shape beyond the limits is not known from the data."""
    names = schema.all_names
    found = [j for j, doubt in doubts.items() if doubt > _DOUBTFUL]
    if found:
        listed = ", ".join(repr(names[schema.model_columns[j]]) for j in found)
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

    Returns
    -------
    chosen : Tensor of int, of shape (n_chosen,)
    weights : Tensor of shape (n_chosen,)
        With them, sums over the chosen rows estimate those over all rows, times the
        share of rows that were chosen.
    """
    n = len(weights)
    if n <= ROWS:
        return torch.arange(n), weights
    chances = weights / weights.sum() * ROWS
    while (chances > 1).any():  # some rows are certain
        sure = chances >= 1
        rest = chances.where(~sure, 0.0)
        chances = torch.where(sure, 1.0, rest * (ROWS - sure.sum()) / rest.sum())
    order = torch.randperm(n)
    ends = (chances[order].cumsum(0) + torch.rand(())).floor()
    chosen = order[ends.diff(prepend=torch.zeros(1)) > 0].sort().values
    return chosen, weights[chosen] / chances[chosen] * (ROWS / n)


def _keep(estimator, latents, fit, kinds):
    """Set the attributes of the model."""
    normal, width = fit.average(), len(kinds)
    estimator._mixed, estimator._online = stored(latents, kinds), None
    estimator._normal = tuple(part.numpy() for part in normal)
    draws = fit.draws if estimator.n_parameter_draws else []
    estimator._draws = [tuple(part.numpy() for part in one) for one in draws]
    estimator._training = None
    numeric = np.array([kind == NUMERIC for kind in kinds])
    is_normal = estimator.marginals == "normal" and numeric.all()
    estimator.nonlinear_columns_ = np.zeros_like(numeric) if is_normal else numeric
    estimator.calibrated_columns_ = np.zeros(width, dtype=bool)
    estimator.location_ = np.where(numeric, estimator.location_, np.nan)
    estimator.scale_ = np.where(numeric, estimator.scale_, np.nan)
    estimator.mean_, estimator.covariance_ = estimator._rows([]).moments(normal)
    estimator.loss_curve_, estimator.n_iter_ = fit.losses, len(fit.losses)
    estimator.n_burn_in_ = len(fit.losses) - len(fit.estimates)
    estimator.trace_ = np.stack(fit.trace)
    estimator.r_hat_ = _r_hat(estimator.trace_[estimator.n_burn_in_ :])
    estimator.latent_names_ = np.array(
        _latent_names(estimator._schema, latents), dtype=object
    )


def forget_chain(estimator):
    """Delete the attributes of the Markov chain of an earlier fit."""
    for name in ("trace_", "r_hat_", "n_burn_in_", "latent_names_"):
        vars(estimator).pop(name, None)


def _r_hat(trace):
    if len(trace) < 4:
        return np.full(trace.shape[1:], np.nan)
    return split_r_hat(trace[None])


def _latent_names(schema, latents):
    """Name latent variables after their column, and their level if there are some."""
    names, columns = schema.all_names, schema.columns
    found = []
    for place, size in zip(schema.model_columns, latents.n_levels, strict=True):
        levels = [""] if size == 1 else [f"={one}" for one in columns[place].levels]
        found += [names[place] + level for level in levels]
    return found


def stored(latents, kinds):
    """Convert latents and the kinds of columns to plain values, for skops."""
    marginals = [m and tuple(part.numpy() for part in m) for m in latents.marginals]
    return kinds, marginals, list(latents.n_levels)


def mixed_rows(mixed, normals, units=None):
    """Make `MixedRows` of what `stored` returned, and of (mean, covariance) pairs."""
    kinds, marginals, n_levels = mixed
    marginals = [m and Marginal(*map(torch.from_numpy, m)) for m in marginals]
    first = np.cumsum([0, *n_levels[:-1]]).tolist()
    normals = [Normal(*map(torch.from_numpy, one)) for one in normals]
    return MixedRows(Latents(marginals, first, n_levels), kinds, normals, units)
