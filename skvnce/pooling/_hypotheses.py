r"""Tests of several coefficients at once: D1, D2 and D3.

With k constraints on m estimates, whose mean is :math:`\bar Q`, and the mean W and
the scatter B of their covariances under the constraints (eq. 1 of `_rules`),

.. math:: D_1 = \frac{(\bar Q - Q_0)^\top W^{-1} (\bar Q - Q_0)}{k (1 + r_1)}, \quad
    r_1 = (1 + \tfrac1m) \operatorname{tr}(B W^{-1}) / k.  \qquad (2)

From the statistics :math:`d_l` of m chi-squared tests with k degrees of freedom,

.. math:: D_2 = \frac{\bar d / k - \frac{m+1}{m-1} r_2}{1 + r_2}, \quad
    r_2 = (1 + \tfrac1m) \operatorname{var} \sqrt{d_l}.  \qquad (3)

With :math:`\bar d` the mean of the likelihood-ratio statistics at the estimates of each
table and :math:`\tilde d` their mean at the pooled estimates,

.. math:: D_3 = \frac{\tilde d}{k (1 + r_3)}, \quad
    r_3 = \frac{m+1}{k (m-1)} (\bar d - \tilde d).  \qquad (4)

References
----------
Li, Raghunathan and Rubin (1991) for (2); Li, Meng, Raghunathan and Rubin (1991) for
(3); Meng and Rubin (1992) for (4); Reiter (2007).
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, f

from skvnce._core.numbers import check_count
from skvnce._core.warnings import warn_user
from skvnce.pooling._models import listed, parameters, warn_of_unconverged
from skvnce.pooling._rules import Pooled, degrees_of_freedom, numbers, place_of

# ----------------------------------------
# Log-likelihoods of nested models of statsmodels, for D3.

# of the likelihood, besides terms and outcome; `weights` of a GLM are those of its fit
_OFFSETS_AND_WEIGHTS = ("offset", "exposure", "freq_weights", "var_weights", "weights")
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
        for name in _OFFSETS_AND_WEIGHTS[: 4 if _family(a.model) else 5]:
            parts = (getattr(result.model, name, None) for result in (a, b))
            if not np.array_equal(*parts):
                raise ValueError(
                    "full and reduced must be fitted to the same tables, with equal "
                    f"{name}, but those of results {number} differ."
                )
        _check_terms(a.model, b.model)
    larger, smaller = (len(parameters(results)[0]) for results in (full, reduced))
    if larger <= smaller:
        raise ValueError(
            f"full must have more coefficients than reduced, got {larger} and "
            f"{smaller}: pass the larger model first."
        )
    return larger - smaller


def likelihoods(results):
    """Compute log-likelihoods at the own and at the pooled estimates; (2, n_draws).

    At the pooled ones it is the maximum over the intercept, if there is one.
    """
    _, estimates, _ = parameters(results)
    pooled = estimates.mean(0)
    at_estimates = [
        _likelihood(result.model, at)
        for result, at in zip(results, estimates, strict=True)
    ]
    at_pooled = [_profiled(result, pooled) for result in results]
    return np.array([at_estimates, at_pooled])


def _kind(model):
    """Name the class of a model, and the family and the link of a GLM."""
    family = getattr(model, "family", None)
    if family is None:
        return type(model).__name__
    parts = (type(part).__name__ for part in (model, family, family.link))
    return "{} ({}, {})".format(*parts)


def _check_terms(full, reduced):
    """Raise an error if terms of a model do not follow from those of a larger one."""
    X, Z = (np.asarray(getattr(model, "exog", None)) for model in (full, reduced))
    if X.ndim != 2 or Z.ndim != 2 or X.shape[1] < Z.shape[1]:
        return
    X = X / np.maximum(np.abs(X).max(0), np.finfo(float).tiny)  # ranks depend on units
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
    """Return whether a result has a likelihood; a quasi-likelihood is not one."""
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
    optimum = minimize_scalar(
        # logarithms keep the scale positive
        lambda log_scale: -float(model.loglike(params, scale=np.exp(log_scale))),
        bracket=(start - 0.5, start + 0.5),
        tol=1e-10,
    )
    return -optimum.fun


def _profiled(result, estimates):
    """Maximise the log-likelihood of one table over the intercept, if there is one."""
    model = result.model
    place = model.data.const_idx
    if place is None:
        return _likelihood(model, estimates)
    unit = np.eye(len(estimates))[place]
    error = float(np.asarray(result.bse)[place])
    optimum = minimize_scalar(
        lambda shift: -_likelihood(model, estimates + shift * unit),
        # the intercept moves by about its standard error
        bracket=(-error, error),
        tol=1e-10,
    )
    return -optimum.fun


class PooledTest(NamedTuple):
    """The result of a test on several completed tables.

    Attributes
    ----------
    statistic : float
        Of an F distribution.
    dof_numerator : int
        Its first degrees of freedom: the number of constraints.
    dof_denominator : float
        Its second degrees of freedom; may be infinite.
    p_value : float
    relative_increase : float
        r of eqs. (2) to (4): the average relative increase of the variance by missing
        values.
    """

    statistic: float
    dof_numerator: int
    dof_denominator: float
    p_value: float
    relative_increase: float


def wald_test(pooled: Pooled, terms: ArrayLike, value: ArrayLike = 0.0) -> PooledTest:
    """Test several pooled coefficients at once: D1.

    Parameters
    ----------
    pooled : Pooled
        From `pool_models`, or from `pool` with covariance matrices.
    terms : list of str or int, or array of shape (n_constraints, n_estimates)
        Names or positions of the coefficients, or a matrix whose products with the
        coefficients are tested.
    value : float or array-like of shape (n_constraints,), default=0.0
        What they are under the hypothesis.

    Returns
    -------
    PooledTest
        Degrees of freedom are those of Reiter (2007), as in ``mice::D1``, or without
        ``pooled.dof_complete`` those of Li, Raghunathan and Rubin (1991). One
        constraint is tested by Student's t of ``pooled``: its p-value is that of
        ``summary()``.

    Warns
    -----
    UserWarning
        If there are too few draws, or too much is missing, for Reiter's expansion. The
        degrees of freedom are then its limit, 4, or less.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.pooling import pool, wald_test
    >>> estimates = [[1.0, 0.2], [1.4, 0.1], [1.1, 0.3], [1.2, 0.2]]
    >>> covariances = [0.1 * np.eye(2) + 0.02] * 4
    >>> pooled = pool(estimates, covariances, names=["age", "sex"])
    >>> test = wald_test(pooled, ["age", "sex"])
    >>> round(test.statistic, 3), round(test.dof_denominator, 1), round(test.p_value, 4)
    (4.755, 38.9, 0.0142)
    """
    L = _constraints(pooled, terms)
    mean, within, between = _with_covariances(pooled, L)
    k, m = len(L), pooled.n_draws
    # of variance 1, because ranks depend on the units of coefficients
    variances = np.einsum("ki,ij,kj->k", L, within, L)
    scale = np.sqrt(np.where(variances > 0, variances, 1))
    L = L / scale[:, None]
    W = L @ within @ L.T
    if np.linalg.matrix_rank(W, hermitian=True) < k:
        raise ValueError("terms must be independent, but some follow from others.")
    r = float((1 + 1 / m) * np.trace(np.linalg.solve(W, L @ between @ L.T)) / k)
    deviation = L @ mean - _hypothesis(value, k) / scale
    statistic = deviation @ np.linalg.solve(W, deviation) / (k * (1 + r))
    if k == 1:
        # of one constraint, F is the square of the t of `pool`
        dof = degrees_of_freedom(m, r / (1 + r), pooled.dof_complete)
    elif pooled.dof_complete is None or np.isinf(pooled.dof_complete):
        dof = _large_sample_dof(k, m, r)
    else:
        dof = _small_sample_dof(k, m, r, pooled.dof_complete)
    return _of_f(statistic, k, dof, r)


def chi2_test(statistics: ArrayLike, dof: int) -> PooledTest:
    """Combine chi-squared tests of several completed tables: D2.

    It needs nothing but the statistics, and has less power than `wald_test` and
    `likelihood_ratio_test`; Li et al. (1991) advise against it for final answers.

    Parameters
    ----------
    statistics : array-like of shape (n_draws,)
        Two or more.
    dof : int
        Degrees of freedom of each test.

    Returns
    -------
    PooledTest

    Examples
    --------
    >>> from skvnce.pooling import chi2_test
    >>> test = chi2_test([11.4, 13.7, 13.2, 6.8, 4.7], dof=2)
    >>> round(test.statistic, 3), round(test.p_value, 3)
    (2.681, 0.092)
    """
    d = numbers(statistics, "statistics")
    if d.ndim != 1 or len(d) < 2 or not (np.isfinite(d) & (d >= 0)).all():
        raise ValueError(
            "statistics must be a list of two or more finite numbers, none negative, "
            f"got {statistics!r}."
        )
    check_count(dof, "dof")
    k, m = int(dof), len(d)
    r = (1 + 1 / m) * np.sqrt(d).var(ddof=1)  # eq. (3)
    statistic = (d.mean() / k - (m + 1) / (m - 1) * r) / (1 + r)
    with np.errstate(divide="ignore"):
        # infinite if all statistics are equal
        denominator = k ** (-3 / m) * (m - 1) * np.square(1 + np.divide(1, r))
    return _of_f(statistic, k, denominator, r)


def likelihood_ratio_test(full: Sequence[Any], reduced: Sequence[Any]) -> PooledTest:
    """Compare two nested models that were fitted to several completed tables: D3.

    Parameters
    ----------
    full, reduced : list of n_draws results of statsmodels
        Of the larger and of the smaller model, fitted by maximum likelihood to the
        same tables, in the same order.

    Returns
    -------
    PooledTest

    Raises
    ------
    TypeError
        If results have no log-likelihood that can be evaluated at other coefficients,
        such as those of mixed models, quasi-likelihoods and scikit-learn.
    ValueError
        If there are fewer than two tables, the models are not of the same tables and of
        the same kind, ``full`` has no more coefficients than ``reduced``, or terms of
        ``reduced`` do not follow from those of ``full``.

    Warns
    -----
    ConvergenceWarning
        As `pool_models` does.

    Notes
    -----
    At the pooled estimates, the intercept and the scale (of linear models, and of
    generalised linear models that have one) are those of maximum likelihood in each
    table, as in ``mice::D3`` of linear models; Meng and Rubin (1992) pool these as
    well, which is the same to first order. The relative increase (4) is 0 where chance
    makes it negative.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import statsmodels.formula.api as smf
    >>> from skvnce.pooling import fit_each, likelihood_ratio_test
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(rng.normal(size=(30, 3)), columns=["x", "z", "y"])
    >>> draws = [table.assign(z=table["z"] + rng.normal(size=30)) for _ in range(5)]
    >>> full = fit_each(lambda t: smf.ols("y ~ x + z", t).fit(), draws)
    >>> reduced = fit_each(lambda t: smf.ols("y ~ 1", t).fit(), draws)
    >>> test = likelihood_ratio_test(full, reduced)
    >>> test.dof_numerator, bool(test.p_value > 0.05)
    (2, True)
    """
    full, reduced = listed(full, "full"), listed(reduced, "reduced")
    k, m = check_nested(full, reduced), len(full)
    warn_of_unconverged(full, "full")
    warn_of_unconverged(reduced, "reduced")
    at_own, at_pooled = (likelihoods(full) - likelihoods(reduced)).mean(1)
    r = max(2 * (m + 1) / (k * (m - 1)) * (at_own - at_pooled), 0.0)  # eq. (4)
    statistic = 2 * at_pooled / (k * (1 + r))
    return _of_f(statistic, k, _large_sample_dof(k, m, r), r)


def _constraints(pooled, terms):
    """Return the matrix of constraints, of shape (n_constraints, n_estimates)."""
    if not isinstance(pooled, Pooled):
        raise TypeError(
            "pooled must be a result of pool or pool_models, got "
            f"{type(pooled).__name__}."
        )
    p = np.size(pooled.estimate)
    if np.ndim(terms) == 2:
        L = np.asarray(terms)
        L = L.astype(float) if L.dtype.kind in "biuf" else np.full(L.shape, np.nan)
        if L.shape[1] != p or not len(L) or not np.isfinite(L).all():
            raise ValueError(
                f"terms must be a finite matrix with one column for each of the {p} "
                f"estimates, got shape {L.shape}."
            )
        return L
    listed = [terms] if np.ndim(terms) == 0 else list(terms)
    if not listed:
        raise ValueError("terms must name at least one coefficient, got none.")
    return np.eye(p)[[place_of(pooled, term, "terms") for term in listed]]


def _hypothesis(value, k):
    """Return the values of k constraints under the hypothesis, (k,)."""
    try:
        constants = np.broadcast_to(np.asarray(value, dtype=float), k)
    except (TypeError, ValueError):
        constants = np.array([np.nan])
    if not np.isfinite(constants).all():
        raise ValueError(
            f"value must be a finite number, or one for each of the {k} terms, got "
            f"{value!r}."
        )
    return constants


def _with_covariances(pooled, L):
    """Return the estimates with W and B as matrices."""
    if np.ndim(pooled.within) < 2:
        if np.count_nonzero(L.any(0)) > 1:
            raise ValueError(
                "Several terms need the covariances of their estimates, but pooled has "
                "variances only: pass covariance matrices to pool."
            )
        parts = (pooled.within, pooled.between)
        return np.atleast_1d(pooled.estimate), *map(np.diag, map(np.atleast_1d, parts))
    return pooled.estimate, pooled.within, pooled.between


def _large_sample_dof(k, m, r):
    """Degrees of freedom of Li, Raghunathan and Rubin (1991)."""
    t = k * (m - 1)
    with np.errstate(divide="ignore"):
        # r is 0 if all estimates are equal
        odds = float(np.divide(1, r))
    if t > 4:
        return 4 + (t - 4) * (1 + (1 - 2 / t) * odds) ** 2
    return t * (1 + 1 / k) * (1 + odds) ** 2 / 2


def _small_sample_dof(k, m, r, dof_complete):
    """Degrees of freedom of Reiter (2007), and their limit where they do not exist."""
    t = k * (m - 1)
    a = r * t / (t - 2) if t > 2 else np.inf
    v = (dof_complete + 1) / (dof_complete + 3) * dof_complete
    c1, c2 = v - 2 * (1 + a), v - 4 * (1 + a)
    if t <= 4 or c2 <= 0:
        warn_user(
            f"Reiter's degrees of freedom do not exist for {k} constraints, {m} draws, "
            f"dof_complete={dof_complete:g} and a variance that missing values make "
            f"{1 + r:.3g} times as large: the test uses 4 at most. Draw more tables."
        )
        return min(4.0, _large_sample_dof(k, m, r))
    inner = (
        (a / (1 + a)) ** 2 * c1 / c2
        + 8 * a**2 * c1 / ((1 + a) * c2**2)
        + 4 * a**2 / ((1 + a) * c2)
        + 4 * a**2 / (c1 * c2)
        + 16 * a**2 * c1 / c2**3
        + 8 * a**2 / c2**2
    )
    return 4 + 1 / (1 / c2 + inner / (t - 4))


def _of_f(statistic, k, dof, r):
    # scipy's F distribution is NaN for infinite degrees of freedom
    p = chi2.sf(k * statistic, k) if np.isinf(dof) else f.sf(statistic, k, dof)
    return PooledTest(float(statistic), k, float(dof), float(p), float(r))
