"""Errors for calls of methods without their table."""

import functools
import inspect

_TABLE = inspect.Parameter("X", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def names_table(method):
    """Decorate a method that requires X: a call without it names the estimator.

    Python would name the base class that has the method.
    """
    if _TABLE not in [*inspect.signature(method).parameters.values()][1:2]:
        return method
    name = method.__name__

    @functools.wraps(method)
    def named(self, *args, **kwargs):
        if not args and "X" not in kwargs:
            raise TypeError(f"{type(self).__name__}.{name} needs {_what(self, name)}")
        return method(self, *args, **kwargs)

    return named


def _what(owner, name):
    """Say what a method needs, and which other one does not."""
    if name != "sample" or not hasattr(owner, "sample_rows"):
        return "X, a table of rows and columns."
    return "X, the table whose missing cells it draws. sample_rows draws new rows."
