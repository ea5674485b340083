"""Imputers of this package and of scikit-learn, as the scores use them."""

from sklearn.base import clone

from skvnce._cells import is_frame


def fitted(imputer, table):
    """Fit a copy of an imputer, which returns data frames if it gets one."""
    imputer = clone(imputer)
    if is_frame(table) and hasattr(imputer, "set_output"):
        imputer.set_output(transform="pandas" if hasattr(table, "iloc") else "polars")
    return imputer.fit(table)


def drawn(imputer, table, n_draws, seed):
    """Draw completed tables, or return None if the imputer does not draw."""
    if not hasattr(imputer, "sample"):
        return None
    return imputer.sample(table, n_draws=n_draws, random_state=seed)


def check_imputer(imputer, name):
    """Raise an error for what is no imputer."""
    if isinstance(imputer, type) or not (
        hasattr(imputer, "fit") and hasattr(imputer, "transform")
    ):
        raise TypeError(
            f"{name} must be an estimator with fit and transform, with its parameters, "
            f"got {imputer!r}"
        )
