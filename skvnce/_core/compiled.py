"""Loops that numba compiles when they are first called; slow to import."""

from collections.abc import Callable

import numba


def compiled(**options: object) -> Callable:
    """Make a decorator that compiles; the code is kept on disk where that is possible.

    `**options`: of ``numba.njit``, besides those that all our loops have.
    """
    options = {"nogil": True, "error_model": "numpy", **options}

    def decorated(function: Callable) -> Callable:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # numba finds no folder for its cache
            return numba.njit(**options)(function)

    return decorated
