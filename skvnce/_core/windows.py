"""Windows of similar predictions, from whose residuals cells are drawn."""

import numpy as np

_DIGITS = 9  # of predictions, relative to their largest; others are rounding errors


def sorted_predictions(predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort predictions (n,); returns their order, and them, of which many may be equal.

    Equal ones are in random order, as rows of a table are not.
    """
    rounded = np.round(predictions / (abs(predictions).max() or 1.0), _DIGITS)
    order = np.lexsort((np.random.default_rng(0).random(len(rounded)), rounded))
    return order, predictions[order]


def windows(
    predictions: np.ndarray, at: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find windows of sorted predictions: of `size` near `at`, and of all equal to it.

    Returns whether they are at the ends, not around `at`; where they begin, and end.
    """
    error = 10.0**-_DIGITS * abs(predictions[[0, -1]]).max()
    left = np.searchsorted(predictions, at - error)
    right = np.searchsorted(predictions, at + error, "right")
    middle = (left + right) // 2 - size // 2
    first = middle.clip(0, len(predictions) - size)
    return middle != first, np.minimum(first, left), np.maximum(first + size, right)
