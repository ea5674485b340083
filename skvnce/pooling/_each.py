"""One analysis of each completed table."""

import numpy as np
from sklearn.base import clone


def fit_each(estimator, draws, y=None, **fit_params):
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

    Raises
    ------
    ValueError
        If ``draws`` are no completed tables, or the function returns None.
    TypeError
        If ``estimator`` is neither an instance of an estimator nor a function.

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
    for table in draws:
        if np.ndim(table) != 2:
            raise ValueError(
                "draws must be tables of shape (n_draws, n_samples, n_features), as "
                f"sample() returns them; one draw has {np.ndim(table)} dimensions."
            )
        if np.ma.is_masked(table):
            raise ValueError("draws must be completed tables, but have masked cells.")
    analyse = _analysis(estimator)
    results = [_analysed(analyse, table, y, fit_params) for table in draws]
    if any(result is None for result in results):
        raise ValueError(
            "The function returned None for a table: let it return the result."
        )
    return results


def _analysed(analyse, table, y, fit_params):
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
    """Return what analyses one table."""
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
        return lambda table, y, **given: clone(estimator).fit(table, y, **given)
    return lambda table, y, **given: (
        estimator(table, **given) if y is None else estimator(table, y, **given)
    )
