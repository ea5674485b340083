"""The fit of `GaussianImputer` to tables of numbers."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._core.incomplete import Incomplete, Rows, Units
from skvnce._core.progress import rounds_of_tuning
from skvnce._core.random import seeded
from skvnce._core.runtime import one_thread
from skvnce._core.warnings import warn_user
from skvnce._imputer.held_out import HELD_OUT, hold_out, row_folds
from skvnce.gaussian import copula, em, online
from skvnce.gaussian.copula import Limits, fit_copula
from skvnce.gaussian.marginals import nonlinear_columns
from skvnce.gaussian.model import CopulaModel, normal_of
from skvnce.gaussian.posterior import posterior_draws
from skvnce.gaussian.tails import Ends

SHARES = [1.0, 0.1, 0.01]  # shrinkage, in rows per column, that "auto" chooses from
REMEDY = (
    'shrinkage="auto", fewer columns, or logarithms of skewed columns may help, and so '
    "may leaving min_value and max_value at None."
)


class Settings(NamedTuple):
    """The parameters of `GaussianImputer` that a fit to numbers uses."""

    shrinkage: float | str
    marginals: str
    max_iter: int
    tol: float


class NumbersFit(NamedTuple):
    """A fit to a table of numbers."""

    model: CopulaModel
    shrinkage: float  # in rows per column
    n_tuning_iter: int
    em: em.Fit
    total: float  # weight of all rows
    online: online.Online  # from which `partial_fit` goes on
    # scores, weights, strength of the prior and, if the rows are a sample, the weight
    # of all, from which the parameters are drawn
    training: tuple
    predict: Callable  # see `held_out_result`; predicts without the held-out cells
    hidden: np.ndarray  # bool (n, n_model_columns), the held-out cells

    def report(self):
        """List the public attributes of `GaussianImputer` that describe the fit."""
        return {
            "shrinkage_": self.shrinkage,
            "n_tuning_iter_": self.n_tuning_iter,
            "loss_curve_": [-value / self.total for value in self.em.objectives],
            "n_iter_": self.em.n_rounds,
            **of_copula(self.model),
        }


def of_model(model):
    """List mean and covariance in the units of X, as public attributes."""
    mean, covariance = model.moments(model.parameters())
    return {"mean_": mean, "covariance_": covariance}


def of_copula(model):
    """List the public attributes of `GaussianImputer` that describe a `CopulaModel`."""
    lines, calibration = model.model.marginals, model.model.calibration
    location, scale = model.units
    nonlinear, calibrated = np.zeros((2, len(scale)), dtype=bool)
    if lines is not None:
        nonlinear = nonlinear_columns(lines).numpy()
    if calibration is not None:
        calibrated[calibration.columns.numpy()] = True
    return of_model(model) | {
        "location_": location,
        "scale_": scale,
        "nonlinear_columns_": nonlinear,
        "calibrated_columns_": calibrated,
    }


def fit_numbers(cells, tables, schema, settings, on_round):
    """Choose shrinkage and marginals on held-out cells, then fit to all cells.

    `cells`, ModelCells: of the rows in memory, with at least one column; `tables`,
    sequence of Table, or None: see `fit_copula`; None if the rows in memory are the
    table; `on_round`, callable.  Returns NumbersFit.
    """
    nodes, weights = cells.nodes, torch.from_numpy(cells.weights)
    units, width = Units(cells.location, cells.scale), nodes.shape[1]
    auto = isinstance(settings.shrinkage, str)
    shares = SHARES if auto else [settings.shrinkage]
    strengths = [float(share) * width for share in shares]
    with_cells, hidden = hold_out(nodes, weights, HELD_OUT, schema.joined)
    rows, limits = Rows(units.scaled(nodes), weights), _limits(schema, units)
    if settings.marginals == "auto":
        limits = limits._replace(ends=_ends(schema, units))
    tables = [rows] if tables is None else tables
    fit = fit_copula(
        rows,
        tables,
        with_cells,
        hidden,
        row_folds(nodes),
        limits,
        strengths,
        nonlinear=settings.marginals == "auto",
        max_iter=settings.max_iter,
        tol=settings.tol,
        on_round=on_round,
    )

    def predict(visible, rows):
        means = copula.cell_means(fit.without_held_out, units.scaled(visible[rows]))
        return schema.values.clipped(units.restored(means), schema.model_columns), {}

    total = tables[-1].total
    of_all = float(total) if len(tables) > 1 else None
    return NumbersFit(
        model=CopulaModel(fit.copula._replace(bounds=limits.bounds), units),
        shrinkage=float(shares[strengths.index(fit.strength)]),
        n_tuning_iter=rounds_of_tuning(),
        em=fit.em,
        total=float(total),
        online=online.start(fit.em, fit.copula.marginals, total),
        training=(fit.scores, weights, fit.strength, of_all),
        predict=predict,
        hidden=(hidden & with_cells[:, None]).numpy(),
    )


def warn_unless_converged(fit, max_iter, tol):
    """Warn if EM needs more rounds."""
    if fit.n_rounds == max_iter and fit.change > tol:
        warn_user(
            f"EM stopped after max_iter={max_iter} rounds, but the mean or covariance "
            f"still changed by {fit.change:.2g} a round. Raise max_iter, shrinkage or "
            f"tol={tol:g}.",
            ConvergenceWarning,
        )


def collinear(shrinkage):
    """Explain a covariance matrix that cannot be factorised."""
    return (
        "A covariance matrix is not positive definite: some columns are collinear. "
        f"Drop some of them, or raise shrinkage={shrinkage!r}."
    )


def _limits(schema, units):
    """Return ranges, bounds and repeated values of scaled columns."""
    columns, values = schema.model_columns, schema.values
    scaled = (values.ranges[:, columns] - units.location) / units.scale
    by_user, bounds = values.by_user[:, columns], None
    if (by_user & np.isfinite(scaled)).any():
        far = np.array([[-np.inf], [np.inf]])
        # only the user's bounds truncate; learned ranges clip what is filled
        bounds = tuple(map(torch.from_numpy, np.where(by_user, scaled, far)))
    repeated = {
        j: torch.from_numpy((values.values[column] - location) / scale)
        for j, (column, location, scale) in enumerate(zip(columns, *units, strict=True))
        if column in values.values
    }
    return Limits(tuple(map(torch.from_numpy, scaled)), bounds, repeated)


def _ends(schema, units):
    """Return the ends of scaled columns of one sign; None without such a column."""
    columns = schema.model_columns
    signs = schema.values.signs(schema.ends)[columns]
    least = schema.values.least_sizes()[columns] / units.scale
    ends = Ends(*map(torch.from_numpy, (signs, -units.location / units.scale, least)))
    return ends if signs.any() else None


def draw_posterior(start, table, weights, strength, count, seed, total):
    """Draw mean and covariance from their posterior by data augmentation.

    `start`, tuple of ndarray: mean and covariance from which the chain starts; `table`
    (n, n_nodes): scores of rows; NaN marks missing cells; `weights` (n,); `strength`,
    float: of the prior, in rows; `count`, int: number of draws; `seed`, int; `total`,
    float or None: the weight of all rows, if these are a sample.  Returns list of tuple
    of ndarray: pairs of mean and covariance.
    """
    rows = Rows(Incomplete.from_array(table), torch.from_numpy(weights))
    with one_thread(), seeded(seed):
        draws = posterior_draws(normal_of(start), rows, total, strength, n_draws=count)
    return [tuple(part.numpy() for part in draw) for draw in draws]
