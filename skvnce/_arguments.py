"""Checks of arguments that are numbers."""

import math
import numbers

import numpy as np


def is_finite(value: object) -> bool:
    """Return whether a number is finite, also as a float64."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer
        return False


def check_count(value: object, name: str) -> None:
    """Check that a value is an integer of at least 1."""
    # bool is a subclass of int, so that True would be a count of 1
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if not is_finite(value) or value < 1:
        raise ValueError(f"{name} must be finite and at least 1, got {value!r}.")


def check_bool(value: object, name: str) -> None:
    """Check that a value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a bool, got {value!r}.")
