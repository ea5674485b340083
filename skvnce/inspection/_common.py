"""Helpers of the displays: colours, axes, names, and checks of the estimator."""

from numbers import Integral

import numpy as np

RISE, FALL = "#2166ac", "#b2182b"  # blue and red for colour-blind readers
_NO_NAME = {"nan", "None", "NaT", "<NA>"}


def axes_or_new(ax, width, height):
    """Return the axes, or those of a new figure, its size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def sign_colours(values):
    """Return blue for each positive value and red for each other one."""
    return [RISE if value > 0 else FALL for value in values]


def sign_legend(ax, **where):
    """Add a legend of the two colours."""
    for colour, meaning in ((RISE, "rise together"), (FALL, "move apart")):
        ax.plot([], [], color=colour, label=meaning)
    ax.legend(frameon=False, **where)


def shown_name(name):
    """Return a name as text; a missing value gives an empty name."""
    text = str(name)
    # a text such as "nan" is a name
    return "unnamed" if text in _NO_NAME and not isinstance(name, str) else text


def fitted(estimator, *attributes):
    """Return attributes of a fitted estimator."""
    missing = [name for name in attributes if not hasattr(estimator, name)]
    if missing:
        raise ValueError(
            f"estimator must be fitted and have {', '.join(attributes)}, got "
            f"{type(estimator).__name__} without {', '.join(missing)}; fit it first, "
            "or pass one that has them"
        )
    return [getattr(estimator, name) for name in attributes]


def check_count(value, name):
    """Check that a value is a count."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")


def finite_numbers(values, name):
    """Return a finite array of floats."""
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numeric, got dtype {values.dtype}")
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity; remove it")
    return values
