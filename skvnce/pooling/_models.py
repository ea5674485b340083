"""Estimates and covariances of fitted models, by name."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from skvnce._core.numbers import check_count
from skvnce._core.warnings import warn_user
from skvnce._tables.cells import is_missing
from skvnce._types import ByColumn, Seed
from skvnce.pooling._rules import Pooled, place_of, pool

_REMEDY = (
    "Fit a model of statsmodels by fit_each(function, draws), or compute variances and "
    "call pool."
)
_SHOWN = 5  # maximum number of results that a warning names


def pool_models(
    results: Sequence[Any],
    draws: Sequence[Any] | None = None,
    y: ArrayLike | None = None,
    *,
    dof_complete: float | Literal["auto"] | None = "auto",
) -> Pooled:
    """Pool the coefficients of models that were fitted to several completed tables.

    Parameters
    ----------
    results : list of n_draws fitted models
        Results of statsmodels, with ``params`` and ``cov_params()``: linear and
        generalised linear models, logit, probit, counts, and the fixed effects of mixed
        models. Or fitted `LinearRegression` or `LogisticRegression` without a penalty
        (``C=np.inf``), whose covariances are computed from ``draws`` and ``y``.
    draws : list of n_draws tables, default=None
        The tables that models of scikit-learn were fitted to; not used otherwise.
    y : array-like of shape (n_samples,), default=None
        Their target.
    dof_complete : float, "auto" or None, default="auto"
        As in `pool`. ``"auto"`` is the number of rows, or of events in regressions of
        survival times, minus the number of coefficients, as in ``mice::pool``; but at
        most the number of clusters minus one, where standard errors are those of
        clusters. With mixed models, pass it for coefficients of columns that are
        constant within groups: about the number of groups minus that of coefficients.

    Returns
    -------
    Pooled
        With covariance matrices and with ``names``: those of the columns of the
        design, and ``"Intercept"`` for scikit-learn. Printed as a table of
        coefficients; `Pooled.summary` returns it as a data frame, or with
        ``exponentiate=True`` odds and hazard ratios, and `wald_test` tests several.

    Raises
    ------
    TypeError
        If ``results`` are no list, or for results without covariances, such as
        penalised models. The bias of a penalty is not part of a variance.
    ValueError
        If a result is there twice, or if models have different outcomes, coefficients
        (a level is absent from some draws) or types of covariances (robust and ordinary
        ones), or models of scikit-learn do not maximise the likelihood of ``draws`` and
        ``y`` (another table, weights, too few iterations).

    Warns
    -----
    UserWarning
        If statsmodels has left out rows with missing values, so that the tables were
        not completed; or if two results have equal estimates and covariances, as fits
        to the same draw have. They may be equal, too, if no missing cell, or few cells
        of categories, enter the analysis, so that it is no error.
    ConvergenceWarning
        If fits of statsmodels have not converged; it names the results.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import statsmodels.formula.api as smf
    >>> from skvnce import GaussianImputer
    >>> from skvnce.pooling import fit_each, pool_models
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=100)
    >>> frame = pd.DataFrame({"x": x, "y": 1 + 2 * x + rng.normal(size=100)})
    >>> frame.loc[:30, "x"] = np.nan
    >>> imputer = GaussianImputer(random_state=0).set_output(transform="pandas")
    >>> draws = imputer.fit(frame).sample(frame, n_draws=10, random_state=0)
    >>> results = fit_each(lambda table: smf.ols("y ~ x", table).fit(), draws)
    >>> pool_models(results).summary()[["coef", "se", "df", "p"]].round(2)
               coef    se     df    p
    Intercept  0.89  0.13  29.22  0.0
    x          2.03  0.12  51.81  0.0
    """
    results = listed(results)
    if len(results) < 2:
        raise ValueError(
            f"results must be those of two draws or more, got {len(results)}."
        )
    if any(isinstance(result, BaseEstimator) for result in results):
        names, estimates, covariances, dof = _of_estimators(results, draws, y)
    else:
        _check_alike(results)
        names, estimates, covariances = parameters(results)
        warn_of_unconverged(results)
        dof = _residual_dof(results)
        y = getattr(getattr(results[0], "model", None), "endog", None)
    if isinstance(dof_complete, str):
        if dof_complete != "auto":
            raise ValueError(
                f"dof_complete must be a number, 'auto' or None, got {dof_complete!r}."
            )
        dof_complete = dof
    _warn_of_equal(estimates, covariances)
    pooled = pool(estimates, covariances, dof_complete, names)
    return pooled._replace(n_samples=None if y is None else len(y))


def listed(results, name="results"):
    """Return different fitted models as a list."""
    try:
        models = list(results)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a list of fitted models, one for each draw, got "
            f"{type(results).__name__}."
        ) from error
    _check_different(models, name)
    return models


def _check_alike(results):
    """Raise an error for models of different kinds; warn of lost rows."""
    models = [getattr(result, "model", None) for result in results]
    kinds = {
        "kind of model": [type(model).__name__ for model in models],
        "outcome": [str(getattr(model, "endog_names", None)) for model in models],
        "cov_type": [getattr(result, "cov_type", None) for result in results],
    }
    for what, of in kinds.items():
        for number, kind in enumerate(of):
            if kind != of[0]:
                raise ValueError(
                    f"The models must have the same {what}, but results 0 and {number} "
                    f"have {of[0]} and {kind}."
                )
    for number, model in enumerate(models):
        lost = getattr(getattr(model, "data", None), "missing_row_idx", None)
        if lost is not None and len(lost):
            warn_user(
                f"Result {number} is that of a table with missing values, of which "
                f"{len(lost)} rows were left out. Unless they are to be left out, pass "
                "draws, completed by sample of an imputer, to fit_each."
            )
            return


def _check_different(results, name):
    """Raise an error if a model is in the list twice."""
    for number, result in enumerate(results):
        first = next(k for k, other in enumerate(results) if other is result)
        if first < number:
            raise ValueError(
                f"{name}[{first}] and {name}[{number}] are the same object, so that "
                "there is no variance between draws. Fit a model to each draw, for "
                "example by fit_each(function, draws)."
            )


def _warn_of_equal(estimates, covariances):
    """Warn of equal results, such as several fits to the same draw."""
    cells = np.column_stack([estimates, covariances.reshape(len(estimates), -1)])
    _, first, place = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place.ravel()] < np.arange(len(cells)))
    if len(again):
        warn_user(
            f"results[{first[place.ravel()][again[0]]}] and results[{again[0]}] have "
            "equal estimates and covariances. If both are of the same draw, the "
            "variance between draws is too small: fit a model to each draw, for "
            "example by fit_each(function, draws). If no missing cell, or few cells of "
            "categories, enter the analysis, they may be equal."
        )


def warn_of_unconverged(results, name="results"):
    """Warn of fits whose optimiser has stopped before the maximum."""
    numbers = [str(k) for k, result in enumerate(results) if not _converged(result)]
    if numbers:
        more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
        warn_user(
            f"{name} {', '.join(numbers[:_SHOWN])}{more} of {len(results)} have not "
            "converged: their estimates and standard errors mean little. Raise maxiter "
            "of fit, try another method of it, or leave out terms, such as those that "
            "separate the outcome.",
            ConvergenceWarning,
        )


def _converged(result):
    """Return whether a result of statsmodels has converged; True if it does not say."""
    said = getattr(result, "mle_retvals", None) or {}
    return bool(said.get("converged", getattr(result, "converged", True)))


def parameters(results):
    """Return names, estimates and covariances of results of statsmodels."""
    read = [_of_result(result, number) for number, result in enumerate(results)]
    names = read[0][0]
    for number, (others, _, covariance) in enumerate(read):
        if others != names:
            only = sorted(set(names) ^ set(others))
            raise ValueError(
                "The models must have the same coefficients, but results 0 and "
                f"{number} differ in {only or 'their order'}. A level of a category "
                "may be absent from a draw: merge rare levels."
            )
        bad = ~(np.isfinite(covariance).all(1) & (np.diag(covariance) > 0))
        if bad.any():
            raise ValueError(
                f"The variance of {names[int(bad.argmax())]!r} in result {number} is "
                "not a positive number: its columns may be collinear, or separate the "
                "outcome. Leave out such terms."
            )
    _, estimates, covariances = zip(*read, strict=True)
    return names, np.array(estimates), np.array(covariances)


def _of_result(result, number):
    """Return names, estimates and covariance of one result of statsmodels."""
    if hasattr(result, "trimmed"):
        raise TypeError(
            f"{type(result).__name__} has a penalty, whose bias is not part of a "
            f"variance. {_REMEDY}"
        )
    if not (hasattr(result, "params") and hasattr(result, "cov_params")):
        raise TypeError(
            f"{type(result).__name__} has no params and cov_params(), and no standard "
            f"errors can be had. {_REMEDY}"
        )
    try:
        params, covariance = result.params, result.cov_params()
    except ValueError as error:
        raise ValueError(
            f"Result {number} has no covariances: {error}. The fit may not have "
            "converged; use other starting values, another method or fewer terms."
        ) from error
    names = getattr(params, "index", None)
    if np.ndim(params) == 2:  # a column for each level of the outcome
        labels = getattr(covariance, "index", ())
        # names of the covariance, whose rows are pairs of level and term
        names = [":".join(map(str, label)) for label in labels]
    # column by column, as the covariance is ordered
    estimate = np.asarray(params, dtype=float).ravel("F")
    covariance = np.asarray(covariance, dtype=float)
    if names is None:
        names = getattr(getattr(result, "model", None), "exog_names", None) or []
    if len(names) != len(estimate):
        names = [f"x{place}" for place in range(len(estimate))]
    if hasattr(result, "fe_params"):  # mixed models: fixed effects come first
        fixed = len(result.fe_params)
        return list(names)[:fixed], estimate[:fixed], covariance[:fixed, :fixed]
    return [str(name) for name in names], estimate, covariance


def _residual_dof(results):
    """Return the least residual degrees of freedom, or None if there are none."""
    counts = [_dof_of(result) for result in results]
    if all(isinstance(dof, Real) and 0 < dof < np.inf for dof in counts):
        return float(min(counts))
    return None


def _dof_of(result):
    """Return rows, or events, minus coefficients, or if fewer, clusters minus one."""
    model = getattr(result, "model", None)
    dof, events = getattr(result, "df_resid", None), getattr(model, "status", None)
    if events is not None:
        # a model may have more terms than events
        dof = max(float(np.sum(events)) - len(result.params), 1.0)
    clusters = _cluster_dof(result, model)
    return dof if clusters is None or dof is None else min(dof, clusters)


def _cluster_dof(result, model):
    """Return the clusters of robust standard errors minus one, or None."""
    # of generalised estimating equations, or of survival times
    labels = getattr(model, "group_labels", getattr(model, "groups", None))
    # variances of mixed models are not those of their groups
    is_by_group = labels is not None and not hasattr(result, "fe_params")
    default = len(np.unique(labels)) - 1 if is_by_group else None
    return getattr(result, "df_resid_inference", default)


def _of_estimators(models, draws, y):
    """Return names, estimates, covariances and residual degrees of freedom."""
    for model in models:
        _check_estimator(model)
    if draws is None or y is None:
        raise ValueError(
            "Models of scikit-learn do not keep standard errors: pass the tables and "
            "the target that they were fitted to, pool_models(models, draws, y)."
        )
    if len(draws) != len(models):
        raise ValueError(
            f"draws must have one table for each of {len(models)} models, got "
            f"{len(draws)}."
        )
    y = np.asarray(y)
    if any(map(is_missing, y.ravel().tolist())):
        raise ValueError("y has missing values: leave out these rows before the fit.")
    read = [
        _maximum(model, table, y, number)
        for number, (model, table) in enumerate(zip(models, draws, strict=True))
    ]
    names, estimates, covariances, dofs = zip(*read, strict=True)
    return names[0], np.array(estimates), np.array(covariances), dofs[0]


def _check_estimator(model):
    """Raise an error unless maximum likelihood gives covariances."""
    linear = isinstance(model, LinearRegression) and not model.positive
    plain = isinstance(model, LogisticRegression) and (
        model.penalty is None or np.isinf(model.C)
    )
    if not linear and not plain:
        remedy = "Set C=np.inf." if isinstance(model, LogisticRegression) else _REMEDY
        raise TypeError(
            "Variances are known of LinearRegression and of LogisticRegression without "
            f"a penalty, got {model!r}. {remedy}"
        )
    if not hasattr(model, "coef_"):
        raise ValueError(f"{model!r} is not fitted: call fit_each(model, draws, y).")
    if np.size(model.intercept_) != 1:
        raise TypeError(
            f"{type(model).__name__} with several outcomes or classes cannot be pooled "
            f"here. {_REMEDY}"
        )


def _maximum(model, table, y, number):
    """Return names, estimate, covariance, and dof of one model of scikit-learn."""
    X = np.asarray(table, dtype=float)
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    names = names or [f"x{column}" for column in range(X.shape[1])]
    estimate = np.ravel(model.coef_)
    if model.fit_intercept:
        X, names = np.column_stack([np.ones(len(X)), X]), ["Intercept", *names]
        estimate = np.append(model.intercept_, estimate)
    if X.shape != (len(y), len(estimate)):
        raise ValueError(
            f"draws and y must be those that model {number} was fitted to, with "
            f"{len(estimate)} coefficients, got shapes {np.shape(table)} and {y.shape}."
        )
    dof = len(y) - len(estimate)
    if dof <= 0 or np.linalg.matrix_rank(X) < X.shape[1]:
        raise ValueError(
            f"The columns of table {number} are collinear, or more than its rows: "
            "leave some out."
        )
    weights, residual, scale = _information(model, X @ estimate, y, dof)
    inverse = np.linalg.inv((X * weights[:, None]).T @ X)
    covariance = scale * inverse
    step = inverse @ (X.T @ residual)  # of Newton; 0 at the maximum of the likelihood
    # 1e-8 is for lines through all points, whose standard errors are 0
    if (np.abs(step) > 0.1 * np.sqrt(np.diag(covariance)) + 1e-8).any():
        raise ValueError(
            f"Model {number} does not maximise the likelihood of table {number}: pass "
            "the tables and y that it was fitted to, without weights, and raise "
            "max_iter or lower tol if it did not converge."
        )
    return names, estimate, covariance, float(dof)


def _information(model, predictor, y, dof):
    """Return weights of rows, their residuals, and the scale of the variance."""
    if isinstance(model, LogisticRegression):
        p = expit(predictor)
        return p * (1 - p), (y == model.classes_[1]) - p, 1.0
    residual = y - predictor
    return np.ones(len(y)), residual, residual @ residual / dof


# ----------------------------------------
# One analysis of each completed table.


def fit_each(
    estimator: Any,
    draws: ArrayLike | Sequence[Any],
    y: ArrayLike | None = None,
    **fit_params: Any,
) -> list[Any]:
    """Fit a clone of an estimator to each completed table, or call a function of it.

    Parameters
    ----------
    estimator : estimator of scikit-learn, or callable
        A function gets one table, then ``y`` unless it is None, then ``fit_params``,
        and returns a result, such as the results of a model of statsmodels.
    draws : list of n_draws tables, or array of shape (n_draws, n_samples, n_features)
        Completed tables, as ``sample`` returns them; data frames reach the estimator as
        they are.
    y : array-like of shape (n_samples,), default=None
        The target, the same for all.
    **fit_params : dict
        Passed on to ``fit`` or to the function.

    Returns
    -------
    list
        Of fitted estimators, or of what the function returned.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skvnce.pooling import fit_each
    >>> draws = np.random.default_rng(0).normal(size=(3, 20, 2))
    >>> models = fit_each(LinearRegression(), draws, draws[0].sum(1))
    >>> models[0].coef_.round(6)
    array([1., 1.])
    >>> import statsmodels.api as sm
    >>> results = fit_each(lambda table: sm.OLS(table[:, 0], table[:, 1]).fit(), draws)
    >>> results[0].params.shape
    (1,)
    """
    try:
        draws = list(draws)  # a generator gives its tables once
    except TypeError as error:
        raise TypeError(
            "draws must be a list of tables, as sample() returns them, got "
            f"{type(draws).__name__}."
        ) from error
    for table in draws:
        if np.ndim(table) != 2:
            raise ValueError(
                "draws must be tables of shape (n_draws, n_samples, n_features), as "
                f"sample() returns them; one draw has {np.ndim(table)} dimensions."
            )
        if np.ma.is_masked(table):
            raise ValueError("draws must be completed tables, but have masked cells.")
    analyse = _analysis(estimator)
    results = [_analyse(analyse, table, y, fit_params) for table in draws]
    if any(result is None for result in results):
        raise ValueError(
            "The function returned None for a table: let it return the result."
        )
    return results


def _analyse(analyse, table, y, fit_params):
    """Analyse one table; an error with an array names the way to data frames."""
    try:
        return analyse(table, y, **fit_params)
    except Exception as error:
        if isinstance(table, np.ndarray):
            error.add_note(
                "The analysis got an array. Draws are data frames after "
                'imputer.set_output(transform="pandas").'
            )
        raise


def _analysis(estimator):
    """Return the function that analyses one table."""
    # a class is callable, but is no estimator with its parameters
    if isinstance(estimator, type) or not (
        callable(estimator) or hasattr(estimator, "fit")
    ):
        raise TypeError(
            "estimator must be an estimator of scikit-learn, with its parameters, or a "
            f"function of one table, got {estimator!r}. For a model of statsmodels, "
            "pass a function: fit_each(lambda table: "
            "smf.ols('y ~ x', table).fit(), draws)."
        )
    if hasattr(estimator, "fit"):
        return lambda table, y, **options: clone(estimator).fit(table, y, **options)
    return lambda table, y, **options: estimator(
        table, *([] if y is None else [y]), **options
    )


# ----------------------------------------
# How an analysis depends on what is assumed of missing values.


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

    def summary(self, name: str | int | None = None, level: float = 0.95) -> Any:
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
            names = first.names or range(len(first.estimate))
            tables = [
                self.summary(place, level).assign(name=label)
                for place, label in enumerate(names)
            ]
            table = pd.concat(tables).sort_index(kind="stable").reset_index(drop=True)
            return table[["shift", "name", "coef", "se", "low", "high"]]
        parts = (
            (a.estimate, a.standard_error, *a.interval(level)) for a in self.pooled
        )
        rows = [[_select(part, first, name) for part in row] for row in parts]
        table = pd.DataFrame(rows, columns=["coef", "se", "low", "high"])
        table.insert(0, "shift", self.shifts)
        return table

    def tipping_point(
        self, name: str | int | None = None, level: float = 0.95, null: float = 0.0
    ) -> Any:
        """Find the first shift that changes whether an interval contains a value.

        Parameters
        ----------
        name : str or int, default=None
            As of `summary`.
        level : float, default=0.95
            As of `summary`.
        null : float, default=0.0
            For example the value of a coefficient without an effect.

        Returns
        -------
        dict or None
            The first of `shifts` whose interval contains `null` while that of the first
            one does not, or the other way round.  None if there is no such shift: then
            list stronger ones.
        """
        if not isinstance(null, Real) or not np.isfinite(null):
            raise ValueError(f"null must be a finite number, got {null!r}.")
        table = self.summary(name, level)
        inside = ((table["low"] <= null) & (null <= table["high"])).to_numpy()
        changed = np.flatnonzero(inside != inside[0])
        return self.shifts[changed[0]] if len(changed) else None


def sensitivity_curve(
    imputer: Any,
    X: ArrayLike,
    analyse: Callable[..., Any],
    shifts: Sequence[Any],
    n_draws: int = 20,
    random_state: Seed = None,
    *,
    reference: ArrayLike | None = None,
    where: ByColumn | Callable[..., Any] | None = None,
) -> SensitivityCurve:
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
        covariance matrix.  A Series of estimates has names for `summary`.
    shifts : list of dict
        Each as in `sample`, from the most plausible to the least, for example
        ``[{"income": -0.1 * k} for k in range(6)]``.  The first one is often ``{}``:
        missing at random.
    n_draws : int, default=20
        Number of completed tables for each shift; at least 2.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the draws.
    reference : array-like of shape (n_rows, n_features), default=None
        As in `sample`.
    where : array-like, dict or callable, default=None
        As in `sample`.

    Returns
    -------
    SensitivityCurve

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
    # here, as it loads torch, which pooling does not need
    from skvnce._core.random import seed_from

    seed, pooled, none = seed_from(random_state), [], _no_shift(shifts)
    for shift in shifts:
        assumptions = {"shift": none | shift, "reference": reference, "where": where}
        draws = imputer.sample(X, n_draws, seed, **assumptions)
        pooled.append(_pool_results(fit_each(analyse, draws)))
    return SensitivityCurve(shifts, pooled)


def _no_shift(shifts):
    """Return a shift of 0 of the columns of all shifts: the cells that follow them."""
    items = [item for shift in shifts for item in shift.items()]
    return {key: {} if isinstance(value, dict) else 0.0 for key, value in items}


def _pool_results(results):
    if all(isinstance(result, tuple | list) and len(result) == 2 for result in results):
        return pool(*map(list, zip(*results, strict=True)))  # with names of pandas
    if not hasattr(results[0], "params"):
        raise TypeError(
            "analyse must return the results of a model of statsmodels, or a pair of "
            f"an estimate and its squared standard error, got {results[0]!r}."
        )
    return pool_models(results)


def _select(part, pooled, name):
    """Select a coefficient of an estimate."""
    if np.ndim(pooled.estimate) == 0:
        if name is not None:
            raise ValueError(f"There is one estimate, without names; got {name!r}.")
        return float(part)
    return float(part[place_of(pooled, name, "name")])
