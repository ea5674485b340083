"""A fit of a model to a table: units, noise, the best of several starts, the scale."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.progress import OnRound, steps
from skvnce._core.training.adam import NotFinite
from skvnce.contrast import em, fit
from skvnce.contrast.fit import MOST_LOST, bound_gap
from skvnce.contrast.modules import normal_of_cells
from skvnce.contrast.noise import (
    ColumnSummary,
    FittedNoise,
    Marginals,
    Noise,
    Rescaled,
    draw_contrast,
    fit_noise,
)

# the default ratio of the estimators
REFERENCE_RATIO = 10  # number of rows of the reference noise for each row of data
_CHECKED = 2000  # maximum number of rows for the check of the scale by fresh noise


class TableFit(NamedTuple):
    """A fit to a table."""

    outcome: fit.Outcome  # from the best start
    data: Incomplete  # in the scale of the model
    units: Units
    summary: ColumnSummary  # of the columns in the scale of the model
    marginals: Marginals  # of the columns in the units of the user
    noise: FittedNoise

    @property
    def reference(self) -> Noise:
        """The product of the marginals, of rows in the scale of the model."""
        return Rescaled(self.marginals, *self.units.tensors())

    def accuracy(self) -> float:
        """Compute the accuracy of classifying data and noise, or neighbours."""
        found = self.outcome.evaluation
        if self.noise.distribution is None:
            return float((found.data > found.noise).double().mean())
        return float(found.accuracy())

    def scale_gap(self, settings: fit.Settings) -> float:
        """Compute the log-ratio of the integral, by fresh noise, to the scale."""
        noise = self.noise.distribution or self.reference
        found = self.outcome.fitted.evaluation(
            noise,
            self.data.take(slice(_CHECKED)),
            settings.noise_ratio,
            settings.n_draws,
        )
        return float(em.log_mean(found.noise))

    def bound_gap(self, n_draws: int) -> float:
        """Compute the loss of the bound at incomplete rows, in nats."""
        return bound_gap(self.outcome.fitted, self.data, n_draws)


def fit_table(
    settings: fit.Settings,
    nodes: np.ndarray,  # (n, features), with NaN; every row has an observed cell
    mean: np.ndarray,  # (features,)
    scale: np.ndarray,  # (features,)
    initial_normal: Callable[[Incomplete], Normal],
    on_round: OnRound,
) -> TableFit:
    """Fit from every start, and keep the best; raise an error only if all fail.

    `mean`, `scale`: of the observed cells. The default model has standardised columns.
    `initial_normal`: fits a normal distribution of rows, if the model or the noise
    needs one. Raises UnsuitableModel, UnsuitablePosterior, UnsuitableNoise, NotFinite.
    """
    inputs, prepared = _prepare(settings, nodes, mean, scale, initial_normal)
    found, failure, number = [], None, settings.n_init
    for _ in steps("start", range(number), number, has_parts=True):
        try:
            one = fit.fit_from_one_start(settings, inputs, on_round)
        except NotFinite as error:
            failure = error
            continue
        if one.evaluation.values.mean().isfinite():
            found.append(one)
        else:
            failure = NotFinite("the objective is not finite at the end")
    if not found:
        raise failure
    best = max(found, key=lambda one: float(one.evaluation.values.mean()))
    return _rescaled(TableFit(best, *prepared), settings)


def fit_with_enough_draws(
    fit_with: Callable[[fit.Settings], TableFit], settings: fit.Settings
) -> tuple[TableFit, fit.Settings]:
    """Fit, and again with more draws if these seem necessary and sufficient."""
    found = fit_with(settings)
    if settings.more_draws is None:
        return found, settings
    more = settings._replace(n_draws=settings.more_draws)
    lost, left = (found.bound_gap(one.n_draws) for one in (settings, more))
    if lost > MOST_LOST > left:
        with suppress(NotFinite):  # the fit with few draws stays, and warns
            return fit_with(more), more
    return found, settings


def _prepare(
    settings: fit.Settings,
    nodes: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    initial_normal: Callable[[Incomplete], Normal],
) -> tuple[fit.Inputs, tuple[Incomplete, Units, ColumnSummary, Marginals, FittedNoise]]:
    """Scale the columns and draw the noise; also return fields of `TableFit`."""
    summary = ColumnSummary.of(nodes, mean, scale)
    counts = torch.from_numpy((~np.isnan(nodes)).sum(0)).double()
    marginals, units = summary.marginals(counts), Units.none(len(mean))
    if settings.model is None:
        units, summary = Units(mean, scale), ColumnSummary.standard(len(mean))
    data = units.scaled(nodes)
    # model and noise may need it, for each start
    normal = cache(lambda: initial_normal(data))
    noise = fit_noise(settings.noise, marginals, units, normal)
    inputs = fit.Inputs(
        data,
        draw_contrast(noise.distribution, data, summary, settings.noise_ratio),
        summary,
        noise.distribution is not None,
        normal,
        _normals_of_cells(data, summary.floor),
    )
    return inputs, (data, units, summary, marginals, noise)


def _normals_of_cells(data: Incomplete, floor: Tensor) -> Callable[[Tensor], Normal]:
    """Return a function of the positive columns that runs EM once for all starts."""

    @cache
    def found(positive: tuple[bool, ...]) -> Normal:
        return normal_of_cells(data, torch.tensor(positive), floor)

    return lambda positive: found(tuple(positive.tolist()))


def _rescaled(found: TableFit, settings: fit.Settings) -> TableFit:
    """Fit the scale with the reference noise, if conditional noise has left it free."""
    fitted = found.outcome.fitted
    if found.noise.distribution is None and not hasattr(
        fitted.model.model, "log_scale"
    ):
        evaluation = fitted.evaluation(
            found.reference, found.data, REFERENCE_RATIO, settings.n_draws
        )
        fitted.model.rescale(em.fit_scale(evaluation.data, evaluation.noise))
    return found
