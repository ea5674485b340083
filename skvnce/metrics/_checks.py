"""Checks that several scores share."""

import numpy as np


def finite(values, name):
    """Return the values if all are finite."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} must be finite in the cells used, got "
            f"{(~np.isfinite(values)).sum()} NaN or infinite values; impute or leave "
            "them out first"
        )
    return values
