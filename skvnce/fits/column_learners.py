"""What learns the model of one column from completed tables."""

from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import KFold
from sklearn.utils.validation import has_fit_parameter

from skvnce.fitted.column_models import (
    Classification,
    ColumnModel,
    Design,
    Quantiles,
    Regression,
    failed,
)

_PROBED = 50  # rows whose probabilities are looked at
_UNWEIGHTED = ", or leave out sample_weight, which its fit was given"
_FOLDS = 5  # whose residuals a column of numbers is drawn with


class Training(NamedTuple):
    """What a column is learned from."""

    completed: np.ndarray  # (n_tables, n, n_nodes)
    nodes: np.ndarray  # (n, n_nodes), NaN marks missing cells
    weights: np.ndarray | None  # (n,), frequencies of the rows


class EstimatorLearner(NamedTuple):
    """Fits a regressor or a classifier to a column."""

    column: int
    model: Any
    design: Design
    n_levels: int
    max_samples: int

    def learn(self, training: Training, rng: np.random.Generator) -> ColumnModel:
        """Fit to the rows that have the cell, in one completed table after another."""
        rows, weights = self._rows(training, rng)
        turns = rng.permutation(np.arange(len(rows)) % len(training.completed))
        predictors = self.design.matrix(training.completed[turns, rows])
        target, model = training.nodes[rows, self.column], self._seeded(rng)
        try:
            return self._fitted(model, predictors, target, weights, rows)
        except Warning:  # a filter makes an error of it
            raise
        except Exception as error:  # of any library; it is raised again
            remedy = "" if weights is None else _UNWEIGHTED
            raise failed(self.model, self.design.label, error, remedy) from error

    def _rows(self, training, rng):
        """Select rows; a model that takes no weights gets them in proportion."""
        cells = training.nodes[:, self.column]
        rows = np.flatnonzero(~np.isnan(cells))
        # one row of each level, which a sample of rows may lack
        least = np.unique(cells[rows], return_index=True)[1] if self.n_levels else []
        weights = None if training.weights is None else training.weights[rows]
        if len(rows) > self.max_samples:
            some = rng.choice(len(rows), self.max_samples, replace=False)
            some = np.union1d(some, least).astype(int)
            rows, weights = rows[some], None if weights is None else weights[some]
            least = np.searchsorted(some, least)
        if weights is not None and not takes_weights(self.model):
            share = weights / weights.sum()
            drawn = rng.choice(len(rows), len(rows), p=share)
            least = np.setdiff1d(least, drawn).astype(int)
            return rows[np.sort(np.concatenate([drawn, least]))], None
        return rows, weights

    def _seeded(self, rng):
        """Clone the estimator; those of other columns have other seeds."""
        model, seed = clone(self.model), int(rng.integers(2**31 - 1))
        known = model.get_params()
        seeds = [one for one in known if one.rsplit("__", 1)[-1] == "random_state"]
        seeds = {one: seed for one in seeds if known[one] is None}
        return model.set_params(**seeds) if seeds else model

    def _fitted(self, model, predictors, target, weights, rows):
        given = {} if weights is None else {"sample_weight": weights}
        known = self.column, model, self.design
        if classifies(model):
            model.fit(predictors, target.astype(int), **given)
            shares = np.asarray(model.predict_proba(predictors[:_PROBED]))
            if shares.shape[1] != len(model.classes_) or not np.isfinite(shares).all():
                raise ValueError("predict_proba returns no probabilities of classes_.")
            return Classification(*known, self.n_levels)
        options = options_of_quantiles(model)
        if options is not None:
            model.fit(predictors, target, **given)
            return Quantiles(*known, options)
        out = _out_of_fold(model, predictors, target, given, rows)
        if not np.isfinite(out).all():
            raise ValueError("predict returns NaN or infinite numbers.")
        model.fit(predictors, target, **given)
        order = _ordered(out, weights)
        return Regression(*known, out[order], (target - out)[order])


def _out_of_fold(model, predictors, target, given, rows):
    """Predict rows by clones that have not learned from them or their copies; (n,)."""
    different, group = np.unique(rows, return_inverse=True)
    folds = KFold(min(_FOLDS, len(different)), shuffle=True, random_state=0)
    found = np.empty(len(target))
    for _, out in folds.split(different):
        is_out = np.isin(group, out)
        kept, rest = np.flatnonzero(~is_out), np.flatnonzero(is_out)
        own = {name: values[kept] for name, values in given.items()}
        one = clone(model).fit(predictors[kept], target[kept], **own)
        found[rest] = np.ravel(one.predict(predictors[rest]))
    return found


def _ordered(predictions, weights):
    """Sort rows by predictions; with weights, repeat them in proportion."""
    order = np.argsort(predictions, kind="stable")
    if weights is None:
        return order
    ends = weights[order].cumsum()
    places = (np.arange(len(order)) + 0.5) / len(order) * ends[-1]
    return order[np.searchsorted(ends, places)]


def classifies(model: Any) -> bool:
    """Say whether a model is a classifier; one without tags has probabilities."""
    has_tags = hasattr(model, "__sklearn_tags__")
    return is_classifier(model) if has_tags else hasattr(model, "predict_proba")


def regresses(model: Any) -> bool:
    """Say whether a model is a regressor; one without tags has no probabilities."""
    has_tags = hasattr(model, "__sklearn_tags__")
    return is_regressor(model) if has_tags else not hasattr(model, "predict_proba")


def takes_weights(model: Any) -> bool:
    """Say whether a model takes weights, and so do all estimators that are its parts.

    Some meta-estimators have the argument, and fail, or ignore it in a part.
    """
    parts = [one for one in model.get_params().values() if hasattr(one, "predict")]
    return all(has_fit_parameter(one, "sample_weight") for one in (model, *parts))


def options_of_quantiles(model: Any) -> dict | None:
    """Return the arguments by which `predict` returns quantiles; None if it cannot.

    Such are regressors whose `predict` has the parameter ``quantiles``: forests of
    quantile-forest, and TabPFN, which has ``output_type``, too.
    """
    # some have the method only once they are fitted
    found = _parameters(getattr(model, "predict", None))
    if "quantiles" not in found:
        return None
    return {"output_type": "quantiles"} if "output_type" in found else {}


def _parameters(function):
    try:
        return signature(function).parameters
    except (TypeError, ValueError):  # functions without a signature
        return {}
