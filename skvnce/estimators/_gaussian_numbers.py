"""The fit of `GaussianImputer` to tables of numbers."""

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._warnings import warn_user
from skvnce.algorithms.gaussian import copula
from skvnce.algorithms.gaussian.fit import Split, fit_copula
from skvnce.algorithms.gaussian.marginals import nonlinear_columns
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.estimators._callbacks import rounds_of_tuning
from skvnce.estimators._gaussian_online import start_online
from skvnce.estimators._misfit import HELD_OUT
from skvnce.estimators._tables import hold_out, row_folds

SHARES = [1.0, 0.1, 0.01]  # shrinkage, in rows per column, that "auto" chooses from
REMEDY = (
    'shrinkage="auto", fewer columns, or logarithms of skewed columns may help, and so '
    "may leaving min_value and max_value at None."
)


def fit_numbers(estimator, cells, tables, on_round):
    """Choose shrinkage and marginals on held-out cells, then fit to all cells.

    Parameters
    ----------
    estimator : GaussianImputer
        Whose attributes are set.
    cells : ModelCells
        Of the rows in memory.
    tables : sequence of Table, or None
        See `fit_copula`; None if the rows in memory are the table.
    on_round : callable
    """
    nodes, weights = cells.nodes, torch.from_numpy(cells.weights)
    if not nodes.shape[1]:
        _fit_constants(estimator, nodes)
        return
    auto = isinstance(estimator.shrinkage, str)
    shares = SHARES if auto else [estimator.shrinkage]
    strengths = [float(share) * nodes.shape[1] for share in shares]
    some, hidden = hold_out(nodes, weights, HELD_OUT)
    rows = Rows(estimator._units().scaled(nodes), weights)
    tables = [rows] if tables is None else tables
    found = fit_copula(
        rows,
        tables,
        Split(some, hidden, row_folds(nodes)),
        estimator._limits(),
        strengths,
        nonlinear=estimator.marginals == "auto",
        max_iter=estimator.max_iter,
        tol=estimator.tol,
        on_round=on_round,
    )
    estimator.n_tuning_iter_ = rounds_of_tuning()
    estimator.shrinkage_ = float(shares[strengths.index(found.strength)])
    _keep(estimator, found.copula)
    whole = float(tables[-1].total) if len(tables) > 1 else None
    estimator._keep_for_draws(found.scores, weights, found.strength, whole)
    start_online(estimator, found.em, found.copula.marginals, tables[-1].total)
    _report(estimator, found.em, float(tables[-1].total))
    _judge(estimator, cells, found.judged, hidden & some[:, None])


def _keep(estimator, model):
    """Set the attributes of the model, in the units of X."""
    estimator.mean_, estimator.covariance_ = estimator._units().moments(model.normal)
    width = len(estimator.scale_)
    estimator.nonlinear_columns_ = np.zeros(width, dtype=bool)
    if model.marginals is not None:
        estimator.nonlinear_columns_ = nonlinear_columns(model.marginals).numpy()
    estimator.calibrated_columns_ = np.zeros(width, dtype=bool)
    estimator.calibrated_columns_[model.calibration.columns.numpy()] = True
    parts = (model.normal, model.marginals, model.steps, model.calibration)
    arrays = [part and tuple(value.numpy() for value in part) for part in parts]
    estimator._normal, estimator._marginals = arrays[:2]
    estimator._steps, estimator._calibration = arrays[2:]


def _fit_constants(estimator, nodes):
    """Set the attributes of a model without columns, as all are constant."""
    none, square = np.zeros(0), np.zeros((0, 0))
    auto = isinstance(estimator.shrinkage, str)
    estimator.shrinkage_ = np.nan if auto else float(estimator.shrinkage)
    estimator.mean_, estimator.covariance_ = estimator._normal = none, square
    estimator.nonlinear_columns_ = estimator.calibrated_columns_ = none.astype(bool)
    estimator._marginals = estimator._calibration = estimator._training = None
    estimator._online = None
    estimator._steps, estimator._draws = (none.astype(int), square, square), []
    estimator.loss_curve_, estimator.n_iter_, estimator.n_tuning_iter_ = [], 0, 0
    estimator._check_held_out(nodes, None)


def _judge(estimator, cells, model, hidden):
    """Compare the fit without held-out cells with means, and report a misfit."""
    units = estimator._units()

    def predict(kept, rows):
        means = copula.cell_means(model, units.scaled(kept[rows]))
        return estimator._clipped(units.restored(means)), {}

    held_out = {"weights": cells.weights, "hidden": hidden.numpy()}
    estimator._check_held_out(cells.nodes, predict, **held_out)
    estimator._announce_misfit(REMEDY)


def _report(estimator, fit, total):
    estimator.loss_curve_ = [-objective / total for objective in fit.objectives]
    estimator.n_iter_ = fit.n_rounds
    if estimator.n_iter_ == estimator.max_iter and fit.change > estimator.tol:
        warn_user(
            f"EM stopped after max_iter={estimator.max_iter} rounds, but the mean or "
            f"covariance still changed by {fit.change:.2g} a round. Raise "
            f"max_iter, shrinkage or tol={estimator.tol:g}.",
            ConvergenceWarning,
        )


def collinear(estimator):
    """Explain a covariance matrix that cannot be factorised."""
    return (
        "A covariance matrix is not positive definite: some columns are collinear. "
        f"Drop some of them, or raise shrinkage={estimator.shrinkage!r}."
    )
