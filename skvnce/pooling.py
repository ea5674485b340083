r"""Rubin's rules: one estimate from the analyses of several completed tables.

With m estimates :math:`Q_l` and their variances :math:`U_l`,

.. math:: \bar Q = \tfrac1m \sum Q_l, \quad W = \tfrac1m \sum U_l, \quad
    B = \tfrac1{m-1} \sum (Q_l - \bar Q)^2, \quad T = W + (1 + \tfrac1m) B.  \qquad (1)

Intervals are those of Student's t with Rubin's degrees of freedom
:math:`(m-1)/\lambda^2`, :math:`\lambda = (1+1/m) B / T`, or those of Barnard and Rubin
if the complete table has few.

References
----------
Rubin (1987), Multiple imputation for nonresponse in surveys, chapter 3; Barnard and
Rubin (1999), Small-sample degrees of freedom with multiple imputation.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone

from skvnce._containers import readable


class Pooled(NamedTuple):
    """The result of `pool`; arrays of the shape of one estimate, or numbers.

    Attributes
    ----------
    estimate : ndarray or float
        The mean of the estimates.
    within, between, total : ndarray or float
        W, B and T of eq. (1): variances, or matrices if covariances were passed.
    dof : ndarray or float
        Degrees of freedom: Rubin's, infinite if the estimates are equal, or with
        `dof_complete` those of Barnard and Rubin, always finite.
    relative_increase : ndarray or float
        (1 + 1/m) B / W, the relative increase of the variance by missing values.
    missing_information : ndarray or float
        Fraction of missing information about each estimate, in [0, 1].
    """

    estimate: np.ndarray | float
    within: np.ndarray | float
    between: np.ndarray | float
    total: np.ndarray | float
    dof: np.ndarray | float
    relative_increase: np.ndarray | float
    missing_information: np.ndarray | float

    @property
    def standard_error(self):
        """Square roots of the total variances."""
        return np.sqrt(_diagonal(self.total, np.ndim(self.estimate)))

    def interval(self, level=0.95):
        """Compute confidence intervals.

        Parameters
        ----------
        level : float, default=0.95
            In (0, 1).

        Returns
        -------
        low, high : ndarray or float
        """
        if not isinstance(level, Real) or not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), got {level!r}.")
        half = student.ppf((1 + level) / 2, self.dof) * self.standard_error
        return self.estimate - half, self.estimate + half


def pool(estimates, variances, dof_complete=None):
    """Pool the estimates of several completed tables by Rubin's rules.

    Parameters
    ----------
    estimates : array-like of shape (n_draws,) or (n_draws, n_estimates)
        One estimate, or one vector of them, for each completed table; two or more.
    variances : array-like of the shape of estimates, or with one more axis
        Their squared standard errors, or covariance matrices of shape
        (n_draws, n_estimates, n_estimates).
    dof_complete : float, default=None
        Degrees of freedom of the analysis of a complete table (number of rows minus
        number of coefficients).  None uses Rubin's rule, for many degrees of freedom,
        instead of that of Barnard and Rubin.

    Returns
    -------
    Pooled

    Raises
    ------
    ValueError
        If there are fewer than two estimates, shapes do not match, values are not
        finite, variances are not positive or ``dof_complete`` is not positive.

    Examples
    --------
    >>> from skvnce.pooling import pool
    >>> pooled = pool([1.0, 1.2, 1.1], [0.04, 0.05, 0.03])
    >>> round(pooled.estimate, 3), round(pooled.total, 4), round(pooled.dof, 1)
    (1.1, 0.0533, 32.0)
    >>> [round(float(end), 3) for end in pooled.interval(0.95)]
    [0.63, 1.57]
    """
    Q, U = _checked(estimates, variances)
    if dof_complete is not None and not (
        isinstance(dof_complete, Real) and dof_complete > 0
    ):
        raise ValueError(f"dof_complete must be a number above 0, got {dof_complete!r}")
    m, ndim = len(Q), Q.ndim - 1
    mean, within = Q.mean(0), U.mean(0)
    residual = Q - mean
    if U.ndim > Q.ndim:
        between = residual.T @ residual / (m - 1)
    else:
        between = (residual**2).sum(0) / (m - 1)
    total = within + (1 + 1 / m) * between
    extra = (1 + 1 / m) * _diagonal(between, ndim)
    share = extra / _diagonal(total, ndim)
    increase = extra / _diagonal(within, ndim)
    dof = _degrees_of_freedom(m, share, dof_complete)
    missing = (increase + 2 / (dof + 3)) / (increase + 1)
    parts = (mean, within, between, total, dof, increase, missing)
    return Pooled(*(part if np.ndim(part) else float(part) for part in parts))


def fit_each(estimator, draws, y=None, **fit_params):
    """Fit a clone of an estimator to each completed table.

    Parameters
    ----------
    estimator : estimator of scikit-learn
    draws : list of n_draws tables, or array of shape (n_draws, n_samples, n_features)
        Completed tables, as ``sample`` returns them.
    y : array-like of shape (n_samples,), default=None
        The target, the same for all.
    **fit_params : dict
        Passed on to ``fit``.

    Returns
    -------
    list of estimators

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skvnce.pooling import fit_each
    >>> draws = np.random.default_rng(0).normal(size=(3, 20, 2))
    >>> models = fit_each(LinearRegression(), draws, draws[0].sum(1))
    >>> models[0].coef_.round(6)
    array([1., 1.])
    """
    if np.ndim(draws[0]) != 2:
        raise ValueError(
            "draws must be tables of shape (n_draws, n_samples, n_features), as "
            f"sample() returns them; one draw has {np.ndim(draws[0])} dimensions."
        )
    for table in draws:
        if np.ma.is_masked(table):
            raise ValueError("draws must be completed tables, but have masked cells.")
    return [clone(estimator).fit(table, y, **fit_params) for table in draws]


def _checked(estimates, variances):
    given = {"estimates": estimates, "variances": variances}
    Q, U = (
        np.asarray(readable(value, name), dtype=float) for name, value in given.items()
    )
    if Q.ndim not in (1, 2) or len(Q) < 2:
        raise ValueError(
            "estimates must have shape (n_draws,) or (n_draws, n_estimates), with two "
            f"draws or more, got {Q.shape}."
        )
    shapes = [Q.shape] + [(*Q.shape, Q.shape[-1])] * (Q.ndim == 2)
    if U.shape not in shapes:
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"variances must have shape {expected}, got {U.shape}.")
    if not np.isfinite(Q).all() or not np.isfinite(U).all():
        raise ValueError("estimates and variances must be finite.")
    if (np.diagonal(U, axis1=-2, axis2=-1) if U.ndim == 3 else U).min() <= 0:
        raise ValueError("variances must be positive: squared standard errors.")
    return Q, U


def _diagonal(matrix, ndim):
    """Return the variances of a variance or of a covariance matrix."""
    return np.diagonal(matrix) if np.ndim(matrix) > ndim else matrix


def _degrees_of_freedom(m, share, dof_complete):
    with np.errstate(divide="ignore"):
        rubin = (m - 1) / np.square(share)
    if dof_complete is None or np.isinf(dof_complete):
        return rubin
    observed = (dof_complete + 1) / (dof_complete + 3) * dof_complete * (1 - share)
    return 1 / (1 / rubin + 1 / observed)  # finite even if rubin is infinite
