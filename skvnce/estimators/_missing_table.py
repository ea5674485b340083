"""Errors for calls of methods without their table, or with unknown arguments."""

import functools
import inspect

_OF_LIMITS = (
    " Limits of cells are for GaussianImputer, MixtureImputer and CopulaGraphLearner."
)
_HINTS = {"lower": _OF_LIMITS, "upper": _OF_LIMITS}
_TABLE = inspect.Parameter("X", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def names_table(method):
    """Decorate a method that requires X: a call without it names the estimator.

    Python would name the base class that has the method.
    """
    if _TABLE not in [*inspect.signature(method).parameters.values()][1:2]:
        return method
    name = method.__name__

    known = inspect.signature(method).parameters
    takes_all = any(one.kind == one.VAR_KEYWORD for one in known.values())

    @functools.wraps(method)
    def named(self, *args, **kwargs):
        whose = f"{type(self).__name__}.{name}"
        if not args and "X" not in kwargs:
            raise TypeError(f"{whose} needs {_what(self, name)}")
        for other in () if takes_all else kwargs.keys() - known.keys():
            raise TypeError(f"{whose} takes no {other}.{_HINTS.get(other, '')}")
        return method(self, *args, **kwargs)

    return named


def _what(owner, name):
    """Say what a method needs, and which other one does not."""
    if name != "sample" or not hasattr(owner, "sample_rows"):
        return "X, a table of rows and columns."
    return "X, the table whose missing cells it draws. sample_rows draws new rows."
