"""How an analysis depends on what is assumed of missing values."""

from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from skvnce._core.numbers import check_count
from skvnce._core.random import seed_from
from skvnce.pooling._models import fit_each, pool_models
from skvnce.pooling._rules import pool


class SensitivityCurve(NamedTuple):
    """The result of `sensitivity_curve`.

    Attributes
    ----------
    shifts : list of dict
        As passed.
    pooled : list of Pooled
        The pooled analysis of the draws of each shift.
    """

    shifts: list
    pooled: list

    def summary(self, name=None, level=0.95):
        """Show one coefficient, or all, under each of the shifts.

        Parameters
        ----------
        name : str or int, default=None
            Name of a coefficient, or its place.  None shows all.
        level : float, default=0.95
            Of the intervals, in (0, 1).

        Returns
        -------
        pandas.DataFrame
            One row for each shift, with the columns ``shift``, ``coef``, ``se``,
            ``low`` and ``high``.  If several coefficients are shown, there is a row for
            each of them, and a column ``name``.
        """
        import pandas as pd

        first = self.pooled[0]
        if name is None and np.ndim(first.estimate):
            every = range(len(first.estimate))
            tables = [
                self.summary(place, level).assign(name=_names_of(first)[place])
                for place in every
            ]
            found = pd.concat(tables).sort_index(kind="stable").reset_index(drop=True)
            return found[["shift", "name", "coef", "se", "low", "high"]]
        parts = [
            (one.estimate, one.standard_error, *one.interval(level))
            for one in self.pooled
        ]
        rows = [[_chosen(part, first, name) for part in row] for row in parts]
        found = pd.DataFrame(rows, columns=["coef", "se", "low", "high"])
        found.insert(0, "shift", self.shifts)
        return found

    def tipping_point(self, name=None, level=0.95, null=0.0):
        """Find the first shift that changes whether an interval contains a value.

        Parameters
        ----------
        name : str or int, default=None
            Name of a coefficient, or its place.  None if the analysis has one estimate.
        level : float, default=0.95
            Of the intervals, in (0, 1).
        null : float, default=0.0
            For example the value of a coefficient without an effect.

        Returns
        -------
        dict or None
            The first of `shifts` whose interval contains `null` while that of the first
            one does not, or the other way round.  None if all say the same: then list
            stronger shifts.
        """
        if not isinstance(null, Real) or not np.isfinite(null):
            raise ValueError(f"null must be a finite number, got {null!r}.")
        table = self.summary(name, level)
        inside = ((table["low"] <= null) & (null <= table["high"])).to_numpy()
        changed = np.flatnonzero(inside != inside[0])
        return self.shifts[changed[0]] if len(changed) else None


def sensitivity_curve(
    imputer,
    X,
    analyse,
    shifts,
    n_draws=20,
    random_state=None,
    *,
    reference=None,
    where=None,
):
    """Repeat an analysis under several assumptions on missing values.

    The draws of all shifts have the same random numbers, so that differences between
    shifts are less noisy than estimates. A column that only other shifts have is drawn
    as with a shift of 0.

    Parameters
    ----------
    imputer : fitted imputer
        With ``sample(X, shift=...)``.
    X : array-like of shape (n_samples, n_features)
        NaN marks missing cells.
    analyse : callable
        Maps a completed table to the results of a model of statsmodels, or to a pair of
        an estimate, or a vector of estimates, and its squared standard error, or the
        covariance matrix.
    shifts : list of dict
        Each as in `sample`, from the most plausible to the least, for example
        ``[{"income": -0.1 * k} for k in range(6)]``.  The first one is often ``{}``:
        missing at random.
    n_draws : int, default=20
        Number of completed tables for each shift; at least 2.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the draws.
    reference : array-like of shape (n_reference, n_features), default=None
        As in `sample`: rows whose distribution missing cells follow, before a shift.
    where : array-like of bool, dict or callable, default=None
        As in `sample`: which missing cells are filled.

    Returns
    -------
    SensitivityCurve

    Raises
    ------
    ValueError
        If there are no shifts, or fewer than two draws, or `sample` rejects a shift.
    TypeError
        If `imputer` does not draw, `analyse` is not callable or `shifts` are not dicts.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import GaussianImputer
    >>> from skvnce.pooling import sensitivity_curve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([1, 0], [[1, 0.7], [0.7, 1]], size=200)
    >>> X[:60, 0] = np.nan
    >>> imputer = GaussianImputer(random_state=0).fit(X)
    >>> curve = sensitivity_curve(
    ...     imputer,
    ...     X,
    ...     lambda table: (table[:, 0].mean(), table[:, 0].var() / len(table)),
    ...     [{}, {0: -2}, {0: -4}],
    ...     random_state=0,
    ... )
    >>> curve.tipping_point()
    {0: -4}
    """
    if not hasattr(imputer, "sample"):
        raise TypeError(
            f"imputer must have sample(X, shift=...), got {type(imputer).__name__}: "
            "pass a fitted imputer of this package."
        )
    if not callable(analyse):
        raise TypeError(f"analyse must be a function of a table, got {analyse!r}.")
    shifts = list(shifts) if isinstance(shifts, list | tuple) else shifts
    if not isinstance(shifts, list) or not all(isinstance(s, dict) for s in shifts):
        raise TypeError(
            f"shifts must be a list of dicts, as sample takes them, got {shifts!r}."
        )
    check_count(n_draws, "n_draws")
    if not shifts or n_draws < 2:
        raise ValueError(
            f"A curve needs a shift or more and two draws or more, got {len(shifts)} "
            f"and n_draws={n_draws!r}."
        )
    seed, pooled, none = seed_from(random_state), [], _no_shift(shifts)
    for shift in shifts:
        given = {"shift": none | shift, "reference": reference, "where": where}
        draws = imputer.sample(X, n_draws, seed, **given)
        pooled.append(_pooled(fit_each(analyse, draws)))
    return SensitivityCurve(shifts, pooled)


def _no_shift(shifts):
    """Return a shift of 0 of the columns of all shifts: the cells that follow them."""
    items = [item for shift in shifts for item in shift.items()]
    return {key: {} if isinstance(value, dict) else 0.0 for key, value in items}


def _pooled(results):
    if all(isinstance(one, tuple | list) and len(one) == 2 for one in results):
        return pool(*(np.array(part) for part in zip(*results, strict=True)))
    if not hasattr(results[0], "params"):
        raise TypeError(
            "analyse must return the results of a model of statsmodels, or a pair of "
            f"an estimate and its squared standard error, got {results[0]!r}."
        )
    return pool_models(results)


def _names_of(pooled):
    """Return the names of several coefficients, or their places."""
    return list(pooled.names or range(len(pooled.estimate)))


def _chosen(part, pooled, name):
    """Select a coefficient of an estimate."""
    if np.ndim(pooled.estimate) == 0:
        if name is not None:
            raise ValueError(f"There is one estimate, without names; got {name!r}.")
        return float(part)
    names = _names_of(pooled)
    if name in names:
        return float(part[names.index(name)])
    is_place = isinstance(name, Integral) and not isinstance(name, bool)
    if is_place and 0 <= name < len(names):
        return float(part[name])
    known = ", ".join(map(repr, names))
    raise ValueError(f"name must be one of {known}, got {name!r}.")
