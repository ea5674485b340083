"""Log-likelihoods of nested models of statsmodels, for D3."""

from numbers import Real

import numpy as np
from scipy.optimize import minimize_scalar

from skvnce.pooling._models import parameters

_FIXED_SCALE = ("Binomial", "Poisson", "NegativeBinomial")  # families of GLM


def check_nested(full, reduced):
    """Return the number of constraints that lead from one model to the other."""
    if len(full) != len(reduced) or len(full) < 2:
        raise ValueError(
            "full and reduced must have one result for each of the same two or more "
            f"tables, got {len(full)} and {len(reduced)}."
        )
    for number, (a, b) in enumerate(zip(full, reduced, strict=True)):
        for result in (a, b):
            _check_likelihood(result)
        if not np.array_equal(a.model.endog, b.model.endog):
            raise ValueError(
                "full and reduced must be fitted to the same tables, in the same order,"
                f" but the outcomes of results {number} differ."
            )
        if _kind(a.model) != _kind(b.model):
            raise ValueError(
                "full and reduced must be models of the same kind, but results "
                f"{number} are {_kind(a.model)} and {_kind(b.model)}."
            )
        _check_terms(a.model, b.model)
    larger, smaller = (len(parameters(one)[0]) for one in (full, reduced))
    if larger <= smaller:
        raise ValueError(
            f"full must have more coefficients than reduced, got {larger} and "
            f"{smaller}: pass the larger model first."
        )
    return larger - smaller


def likelihoods(results):
    """Compute log-likelihoods at the own and at the pooled estimates.

    `results` list of n_draws results. Returns (2, n_draws): at the pooled estimates the
    maximum over the intercept, if there is one.
    """
    _, estimates, _ = parameters(results)
    pooled = estimates.mean(0)
    own = [
        _likelihood(one.model, at) for one, at in zip(results, estimates, strict=True)
    ]
    return np.array([own, [_profiled(one, pooled) for one in results]])


def _kind(model):
    """Name the class of a model, and the family and the link of a GLM."""
    family = getattr(model, "family", None)
    if family is None:
        return type(model).__name__
    parts = (type(one).__name__ for one in (model, family, family.link))
    return "{} ({}, {})".format(*parts)


def _check_terms(full, reduced):
    """Raise an error if terms of a model do not follow from those of a larger one."""
    X, Z = (np.asarray(getattr(model, "exog", None)) for model in (full, reduced))
    if X.ndim != 2 or Z.ndim != 2 or X.shape[1] < Z.shape[1]:
        return
    gap = Z - X @ np.linalg.lstsq(X, Z, rcond=None)[0]
    wrong = (np.abs(gap) > 1e-6 * np.abs(Z).max(0)).any(0)
    if wrong.any():
        names = getattr(reduced, "exog_names", None) or list(range(Z.shape[1]))
        raise ValueError(
            "reduced must be nested in full, fitted to the same tables, but its term "
            f"{names[int(wrong.argmax())]!r} does not follow from the terms of full."
        )


def _check_likelihood(result):
    """Raise an error if the likelihood cannot be evaluated at other coefficients."""
    params = getattr(result, "params", None)
    can = np.ndim(params) == 1 and not hasattr(result, "fe_params")
    if not can or not _has_likelihood(result, np.asarray(params)):
        raise TypeError(
            "likelihood_ratio_test takes results of statsmodels with a log-likelihood "
            f"of one vector of coefficients, got {type(result).__name__}: use "
            "wald_test or chi2_test."
        )


def _has_likelihood(result, params):
    """Return whether a likelihood can be computed, and is none with a free factor."""
    model = getattr(result, "model", None)
    if _family(model) in _FIXED_SCALE and model.scaletype is not None:
        return False
    try:
        return bool(np.isfinite([result.llf, _likelihood(model, params)]).all())
    except (NotImplementedError, TypeError, AttributeError):
        return False


def _family(model):
    """Name the family of a GLM, or return None for other models."""
    return type(model.family).__name__ if hasattr(model, "scaletype") else None


def _likelihood(model, params):
    """Compute the log-likelihood; the scale of a GLM is that of maximum likelihood."""
    scale = getattr(model, "scaletype", None)
    if _family(model) in (None, *_FIXED_SCALE) or isinstance(scale, Real):
        return float(model.loglike(params))
    start = np.log(model.estimate_scale(model.predict(params)))  # of Pearson residuals
    found = minimize_scalar(
        # logarithms keep the scale positive
        lambda log_scale: -float(model.loglike(params, scale=np.exp(log_scale))),
        bracket=(start - 0.5, start + 0.5),
        tol=1e-10,
    )
    return -found.fun


def _profiled(result, estimates):
    """Maximise the log-likelihood of one table over the intercept, if there is one."""
    model = result.model
    place = model.data.const_idx
    if place is None:
        return _likelihood(model, estimates)
    unit = np.eye(len(estimates))[place]
    error = float(np.asarray(result.bse)[place])
    found = minimize_scalar(
        lambda shift: -_likelihood(model, estimates + shift * unit),
        # the intercept moves by about its standard error
        bracket=(-error, error),
        tol=1e-10,
    )
    return -found.fun
