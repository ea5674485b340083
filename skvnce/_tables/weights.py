"""Weights of rows: frequencies, of which a row of weight k is k equal rows."""

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from skvnce._core.warnings import warn_user
from skvnce._tables.frames import readable

_MOST_OFF = 1.5  # ratio of the mean to 1: scales of draws are then off by 22 %
_MOST_COPIES = 100  # mean of counts, of tables of equal rows, that is not remarkable
_RANGE = 1e-15, 1e12  # of a weight that is not 0: float64 has 16 digits
_FEWEST = 0.01  # rows that all weights count as; draws know nothing then
_BY_MEAN = "sample_weight / numpy.mean(sample_weight)"

_SHAPE = 8.0  # Gamma shape of row weights: an eighth of the variance of the bootstrap
_LEAST = 1e-9  # least random weight, as a share of the weight: draws may underflow


def checked_weights(sample_weight: object, X: np.ndarray) -> np.ndarray:
    """Check the weights of the rows of a table; None means 1 for each row."""
    if sample_weight is not None:
        sample_weight = readable(sample_weight, "sample_weight")
    of_rows = {"dtype": np.float64, "ensure_non_negative": True}
    weights = _check_sample_weight(sample_weight, X, **of_rows)
    least, most = _RANGE
    beyond = (weights > most) | ((weights > 0) & (weights < least))
    if beyond.any():
        row = int(beyond.argmax())
        raise ValueError(
            f"sample_weight has {weights[row]:.4g} in row {row}. A weight must be 0, "
            f"or between {least:g} and {most:g}. Set negligible weights to 0, and "
            f"divide sampling weights by their mean: {_BY_MEAN}."
        )
    return weights


def check_scale(weights: np.ndarray, n_rows: int) -> None:
    """Check the sum of weights, and warn if they seem to need normalisation.

    Counts are whole numbers. Other weights have a mean near 1 if they are
    normalised; rows of weight 0 may have been counted then: `n_rows` is with these.
    """
    counted = weights[weights > 0]
    if not len(counted):
        return
    if counted.sum() < _FEWEST:
        raise ValueError(
            f"sample_weight adds up to {counted.sum():.4g}. A row of weight k counts "
            f"as k equal rows, and all together must count as {_FEWEST} rows. Divide "
            f"sampling weights by their mean: {_BY_MEAN}."
        )
    means = counted.mean(), counted.sum() / n_rows
    if (counted == np.round(counted)).all():
        unlikely = means[0] > _MOST_COPIES
    else:
        unlikely = all(not 1 / _MOST_OFF <= mean <= _MOST_OFF for mean in means)
    if unlikely:
        total = f"{weights.sum():,.{0 if weights.sum() >= 10 else 2}f}"
        warn_user(
            f"sample_weight has a mean of {means[0]:.4g}. A row of weight k counts as "
            f"k equal rows, so that the fit is that of a table of {total} rows, not of "
            f"{len(counted):,}, and draws of the parameters vary as for that. Divide "
            f"sampling weights by their mean: {_BY_MEAN}."
        )


def random_weights(
    rng: np.random.Generator,
    n: int,
    weights: np.ndarray | None = None,
    shape: float = _SHAPE,
) -> np.ndarray:
    """Draw the weights of n rows for one of several members.

    That of a row that counts k times is distributed as a sum of k weights.  Shape 1 is
    the Bayesian bootstrap (Rubin 1981).
    """
    if weights is None:
        return rng.gamma(shape, size=n)
    return np.maximum(rng.gamma(shape * weights), _LEAST * weights)


def weighted_rows(
    X: np.ndarray, sample_weight: object
) -> tuple[np.ndarray, np.ndarray | None]:
    """Check weights; return the rows of positive weight, and their weights or None."""
    if sample_weight is None:
        return X, None
    weights, kept = rows_with_data(X, sample_weight)
    check_scale(weights, len(X))
    kept = weights > 0
    return X[kept], weights[kept]


def rows_with_data(
    X: np.ndarray, sample_weight: object, known: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Check the weights, and select rows of positive weight with a known cell; bool.

    `known`: cells about which something is known; None means the observed ones.
    """
    weights = checked_weights(sample_weight, X)
    known = ~np.isnan(X) if known is None else known
    kept = (weights > 0) & known.any(1)
    if not kept.any():
        raise ValueError("No row of X has an observed cell and a positive weight.")
    return weights, kept
