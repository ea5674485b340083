"""Tables, properties of estimators and requirements that the checks share."""

import inspect
from functools import partial
from importlib import import_module
from unittest import SkipTest

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import ClassNamePrefixFeaturesOutMixin, clone
from sklearn.utils import get_tags


def optional(package):
    try:
        return import_module(package)
    except ImportError as error:
        raise SkipTest(f"this check needs the package {package}") from error


def is_positive(estimator):
    return get_tags(estimator).input_tags.positive_only


def imputes(estimator):
    """Return whether the columns of ``transform`` are those of its input."""
    return not isinstance(estimator, ClassNamePrefixFeaturesOutMixin)


def complete_table(estimator, n_rows=80, n_features=4):
    """Draw one common factor with loadings of both signs, its exp if non-negative."""
    rng = np.random.default_rng(0)
    x = np.resize([0.9, 0.9, -0.9], n_features) * rng.standard_normal((n_rows, 1))
    x += np.sqrt(1 - 0.9**2) * rng.standard_normal((n_rows, n_features))
    return np.exp(0.5 * x) if is_positive(estimator) else x + 2


def mcar(x):
    hidden = np.random.default_rng(1).random(x.shape) < 0.25
    # each column has an observed cell, also in small tables
    hidden[0] = False
    return np.where(hidden, np.nan, x)


def mar(x):
    """Hide cells of other columns more often if the first, never hidden, is large."""
    chance = 0.7 / (1 + np.exp(-2 * (x[:, :1] - x[:, 0].mean()) / x[:, 0].std()))
    hidden = np.random.default_rng(1).random(x.shape) < chance
    hidden[:, 0] = False
    return np.where(hidden, np.nan, x)


def incomplete_table(estimator, n_rows=80, n_features=4):
    return mcar(complete_table(estimator, n_rows, n_features))


def fit(estimator, x, **params):
    return clone(estimator).set_params(**params).fit(x)


def reproducible_calls(fitted, x):
    """Return the calls whose results must be reproducible, by method."""
    calls = {}
    for name in ("transform", "score", "score_samples"):
        if hasattr(fitted, name):
            calls[name] = partial(getattr(fitted, name), x)
    if draws_cells(fitted):
        calls["sample"] = partial(fitted.sample, x, n_draws=2, random_state=0)
    return calls


def require(condition, message):
    if not condition:
        raise AssertionError(message)


def require_close(actual, expected, message):
    # sums over other batches differ by rounding
    assert_allclose(actual, expected, rtol=1e-6, atol=1e-8, err_msg=message)


def require_same_answers(first, second, x, when):
    calls = reproducible_calls(second, x)
    for name, call in reproducible_calls(first, x).items():
        assert_array_equal(calls[name](), call(), err_msg=f"{name} differs {when}")


def require_filled(filled, x, method="transform"):
    """Require finite cells, and exact values of x wherever x is observed."""
    filled = np.asarray(filled)
    require(filled.shape[-2:] == x.shape, f"{method} has shape {filled.shape}")
    x = np.broadcast_to(x, filled.shape)
    observed = ~np.isnan(x)
    require(np.isfinite(filled).all(), f"{method} left cells that are not finite")
    message = f"{method} changed observed cells"
    assert_array_equal(filled[observed], x[observed], err_msg=message)


def require_sound(estimator, cells, x):
    """Require filled cells of an imputer, finite rows of another transformer."""
    if imputes(estimator):
        require_filled(cells, x)
    else:
        cells = np.asarray(cells)
        require(cells.shape[:-1] == x.shape[:1], f"transform has shape {cells.shape}")
        require(np.isfinite(cells).all(), "transform gave cells that are not finite")


def require_value_error(call, x, culprit, text=""):
    try:
        call(x)
    except ValueError as error:
        require(text in str(error), f"{culprit}: {text!r} is not in {error!r}")
    else:
        raise AssertionError(f"{culprit} raised no ValueError")


def draws_cells(estimator):
    """Return whether `sample` draws the missing cells of given rows, not new rows."""
    method = getattr(estimator, "sample", None)
    return method is not None and "n_draws" in inspect.signature(method).parameters
