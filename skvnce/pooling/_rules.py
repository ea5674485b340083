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

from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from skvnce._core.numbers import check_bool, check_share
from skvnce._tables.frames import readable

if TYPE_CHECKING:
    from skvnce.pooling._tables import PooledTable

_LARGEST = 1e150  # of estimates, whose squares are summed
_MOST = 60  # maximum number of rows of a printed table
_PRINTED = ("coef", "se", "t", "df", "p", "low", "high")


class Pooled(NamedTuple):
    """The result of `pool`; arrays of the shape of one estimate, or numbers.

    Printed as a table of coefficients, of which `summary` has all digits.

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
    n_draws : int
        Number of estimates that were pooled, m.
    dof_complete : float or None
        Degrees of freedom of the analysis of a complete table, as given.
    names : tuple of str or None
        Names of the estimates, as given.
    n_samples : int or None
        Number of rows of the analyses; None from `pool`.
    """

    estimate: Any
    within: Any
    between: Any
    total: Any
    dof: Any
    relative_increase: Any
    missing_information: Any
    n_draws: int
    dof_complete: float | None = None
    names: tuple[str, ...] | None = None
    n_samples: int | None = None

    @property
    def standard_error(self) -> Any:
        """Square roots of the total variances."""
        return np.sqrt(_diagonal(self.total, np.ndim(self.estimate)))

    def interval(self, level: float = 0.95) -> Any:
        """Compute confidence intervals.

        Parameters
        ----------
        level : float, default=0.95
            In (0, 1).

        Returns
        -------
        low, high : ndarray or float
        """
        check_share(level, "level")
        half = student.ppf((1 + level) / 2, self.dof) * self.standard_error
        return self.estimate - half, self.estimate + half

    def p_value(self, value: ArrayLike = 0.0) -> Any:
        """Compute two-sided p-values of Student's t.

        Parameters
        ----------
        value : float or array-like of shape (n_estimates,), default=0.0
            The hypothesis.

        Returns
        -------
        ndarray or float
        """
        null = numbers(value, "value")
        if null.ndim and null.shape != np.shape(self.estimate):
            raise ValueError(
                "value must be a number, or one for each of the "
                f"{np.size(self.estimate)} estimates, got {value!r}."
            )
        t = (self.estimate - null) / self.standard_error
        return 2 * student.sf(np.abs(t), self.dof)

    def summary(self, level: float = 0.95, *, exponentiate: bool = False) -> Any:
        """Set the estimates in a table; needs pandas.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals, in (0, 1).
        exponentiate : bool, default=False
            Whether to show ratios instead of coefficients: odds ratios of a logistic
            regression, hazard ratios of a Cox regression, ratios of rates of a
            regression of counts.

        Returns
        -------
        pandas.DataFrame
            A row for each estimate, by name if there are names. Columns: ``coef``,
            ``se`` (standard error), ``t``, ``df`` (degrees of freedom), ``p`` (of the
            hypothesis that the estimate is 0), ``low`` and ``high`` (the interval),
            ``missing_information``. With `exponentiate` the first column is
            ``exp(coef)``, and ``low`` and ``high`` are ends of its interval; ``se`` is
            its standard error by the delta method, ``exp(coef)`` times that of the
            coefficient; ``t`` is that of the coefficient, and ``p`` of a ratio of 1.

        Examples
        --------
        >>> from skvnce.pooling import pool
        >>> pooled = pool([[0.6], [0.8], [0.7]], [[0.04]] * 3, names=["dose"])
        >>> columns = ["exp(coef)", "low", "high"]
        >>> pooled.summary(exponentiate=True)[columns].round(2)
              exp(coef)   low  high
        dose       2.01  1.26  3.22
        """
        import pandas as pd

        check_bool(exponentiate, "exponentiate")
        columns = self._columns(level)
        if exponentiate:
            with np.errstate(over="ignore"):  # a ratio may be infinite
                ratio = np.exp(columns.pop("coef"))
                ends = {name: np.exp(columns[name]) for name in ("low", "high")}
                ends["se"] = ratio * columns["se"]
                columns = {"exp(coef)": ratio, **columns, **ends}
        return pd.DataFrame(columns, index=self.names)

    def to_table(self, **options: Any) -> "PooledTable":
        """Set the estimates in a table for print, as `pooled_table` does.

        Parameters
        ----------
        **options : dict
            As of `pooled_table`, which takes several models.

        Returns
        -------
        PooledTable
        """
        from skvnce.pooling._tables import pooled_table

        return pooled_table(self, **options)

    def _columns(self, level=0.95):
        """Return the columns of `summary`."""
        low, high = self.interval(level)
        columns = {
            "coef": self.estimate,
            "se": self.standard_error,
            "t": self.estimate / self.standard_error,
            "df": self.dof,
            "p": self.p_value(),
            "low": low,
            "high": high,
            "missing_information": self.missing_information,
        }
        return {name: np.atleast_1d(values) for name, values in columns.items()}

    def __repr__(self):
        """Format the table of coefficients, with intervals of 95 %."""
        columns = self._columns()
        n = len(columns["coef"])
        names = self.names or [str(place) for place in range(n)]
        head = ["", *_PRINTED]
        rows = [
            [names[k], *(in_short(name, columns[name][k]) for name in _PRINTED)]
            for k in range(min(n, _MOST))
        ]
        widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in [head, *rows]
        ]
        if n > _MOST:
            lines.append(f"... and {n - _MOST} more: see summary()")
        count = "1 estimate" if n == 1 else f"{n} estimates"
        return "\n".join([f"Pooled: {count} of {self.n_draws} draws", *lines])

    __str__ = __repr__


def pool(
    estimates: ArrayLike,
    variances: ArrayLike,
    dof_complete: float | None = None,
    names: Sequence[str] | None = None,
) -> Pooled:
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
    names : sequence of n_estimates str, default=None
        For `Pooled.summary` and `wald_test`. None takes those of the columns of a data
        frame of estimates, or of the index of each Series in a list.

    Returns
    -------
    Pooled

    See Also
    --------
    pool_models : Takes fitted models of statsmodels or scikit-learn.

    Examples
    --------
    >>> from skvnce.pooling import pool
    >>> pooled = pool([1.0, 1.2, 1.1], [0.04, 0.05, 0.03])
    >>> round(pooled.estimate, 3), round(pooled.total, 4), round(pooled.dof, 1)
    (1.1, 0.0533, 32.0)
    >>> [round(float(end), 3) for end in pooled.interval(0.95)]
    [0.63, 1.57]
    >>> pool([[1.0, 9], [1.2, 7], [1.1, 8]], [[0.1, 2]] * 3, names=["age", "dose"])
    Pooled: 2 estimates of 3 draws
          coef      se      t     df      p     low   high
    age    1.1  0.3367  3.267  144.5  0.001  0.4346  1.765
    dose     8   1.826  4.382   12.5  <.001    4.04  11.96
    """
    labels = _common_labels(estimates, variances)
    Q, U = _checked(estimates, variances)
    is_number = isinstance(dof_complete, Real) and not isinstance(dof_complete, bool)
    if dof_complete is not None and not (is_number and dof_complete > 0):
        raise ValueError(f"dof_complete must be a number above 0, got {dof_complete!r}")
    names = _checked_names(labels if names is None else names, Q)
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
    dof = degrees_of_freedom(m, share, dof_complete)
    # Rubin's fraction of missing information, for finitely many draws
    missing = (increase + 2 / (dof + 3)) / (increase + 1)
    parts = (mean, within, between, total, dof, increase, missing)
    parts = (part if np.ndim(part) else float(part) for part in parts)
    return Pooled(*parts, m, dof_complete, names)


def _checked(estimates, variances):
    named = {"estimates": estimates, "variances": variances}
    Q, U = (numbers(readable(value, name), name) for name, value in named.items())
    if Q.ndim not in (1, 2) or len(Q) < 2 or not Q.size:
        raise ValueError(
            "estimates must have shape (n_draws,) or (n_draws, n_estimates), with two "
            f"draws or more, and an estimate or more, got {Q.shape}."
        )
    shapes = [Q.shape] + [(*Q.shape, Q.shape[-1])] * (Q.ndim == 2)
    if U.shape not in shapes:
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"variances must have shape {expected}, got {U.shape}.")
    if not np.isfinite(Q).all() or not np.isfinite(U).all():
        raise ValueError("estimates and variances must be finite.")
    if abs(Q).max() > _LARGEST:
        raise ValueError(
            f"estimates must be below {_LARGEST:g}, so that their variance is finite. "
            "Rescale them."
        )
    if (np.diagonal(U, axis1=-2, axis2=-1) if U.ndim == 3 else U).min() <= 0:
        raise ValueError("variances must be positive: squared standard errors.")
    if U.ndim == 3:
        _check_covariances(U)
    return Q, U


def numbers(value, name):
    """Convert to an array of floats; raise an error for dates and complex numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"cells of type {array.dtype}")
        return array.astype(float)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{name} must be numbers, with as many in each item: {error}"
        ) from error


def _common_labels(estimates, variances):
    """Return the names that data frames and Series of pandas have, or None."""
    labelled = [
        (f"{name}{place}", labels)
        for name, value in (("estimates", estimates), ("variances", variances))
        for place, labels in _labels(value)
    ]
    for name, labels in labelled:
        if labels != labelled[0][1]:
            raise ValueError(
                f"{labelled[0][0]} and {name} must have the same names in the same "
                f"order, got {labelled[0][1]} and {labels}."
            )
    is_named = labelled and any(isinstance(label, str) for label in labelled[0][1])
    return labelled[0][1] if is_named else None


def _labels(value):
    """Yield the names of the estimates of a table, or of each item of a list."""
    if hasattr(value, "columns"):
        yield "", list(value.columns)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            labels = getattr(item, "columns", None)
            if hasattr(item, "iloc") and labels is None:
                labels = item.index  # of a Series
            if labels is not None:
                yield f"[{number}]", list(labels)


def _check_covariances(U):
    """Raise an error unless matrices are covariances; (n_draws, p, p)."""
    deviation = np.sqrt(np.diagonal(U, axis1=1, axis2=2))
    # correlations, so that the tolerances do not depend on units
    scaled = U / deviation[:, :, None] / deviation[:, None, :]
    if np.abs(scaled - scaled.swapaxes(1, 2)).max() > 1e-6:
        raise ValueError("variances must be symmetric covariance matrices.")
    if np.linalg.eigvalsh(scaled).min() < -1e-6:
        raise ValueError(
            "variances must be positive semi-definite covariance matrices, got one "
            "with a correlation above 1."
        )


def _checked_names(names, Q):
    if names is None:
        return None
    expected = Q.shape[1] if Q.ndim == 2 else 1
    if isinstance(names, str) or len(names) != expected:
        raise ValueError(
            f"names must be a list of one name for each estimate, {expected}, got "
            f"{names!r}."
        )
    names = tuple(map(str, names))
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"names must differ, but {repeated[0]!r} is there twice. Rename a column."
        )
    return names


def place_of(pooled, term, parameter):
    """Return the position of an estimate, of its name or its position."""
    n, names = np.size(pooled.estimate), pooled.names or ()
    if isinstance(term, str) and term in names:
        return names.index(term)
    is_place = isinstance(term, Integral) and not isinstance(term, bool | np.bool_)
    if is_place and -n <= term < n:
        return int(term)
    described = f"names {list(names)}" if names else "no names"
    raise ValueError(
        f"{parameter} has {term!r}, no name or position of the {n} estimates, with "
        f"{described}."
    )


def in_short(name, value):
    """Format a number of a printed table."""
    if name != "p":
        return f"{value:.4g}"
    return "<.001" if value < 0.001 else f"{value:.3f}"


def _diagonal(matrix, ndim):
    """Return the variances of a variance or of a covariance matrix."""
    return np.diagonal(matrix) if np.ndim(matrix) > ndim else matrix


def degrees_of_freedom(m, share, dof_complete):
    with np.errstate(divide="ignore"):
        rubin = (m - 1) / np.square(share)
    if dof_complete is None or np.isinf(dof_complete):
        return rubin
    observed = (dof_complete + 1) / (dof_complete + 3) * dof_complete * (1 - share)
    return 1 / (1 / rubin + 1 / observed)  # finite even if rubin is infinite
