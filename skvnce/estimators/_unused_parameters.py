"""Parameters that have no effect beside other parameters, or on a kind of table."""

import inspect
from numbers import Number

from skvnce._warnings import warn_user


def warn_of_unused(estimator, reasons):
    """Warn of parameters that are not at their default, and have no effect.

    `reasons` dict of str to str: why parameters have no effect, and what has.
    """
    known = inspect.signature(type(estimator)).parameters
    for name, reason in reasons.items():
        value, default = getattr(estimator, name), known[name].default
        # a comparison of arrays has no truth value
        same = isinstance(value, Number | str | tuple) and value == default
        if value is not default and not same:
            warn_user(f"{name}={value!r} has no effect: {reason}.")


def warn_of_unused_by_levels(estimator, schema):
    """Warn of parameters of numbers without effect on columns of categories.

    These are bounds of such columns, or of some that are passed through, and `strategy`
    if there are no others.
    """
    columns = schema.columns
    if not columns:
        return
    passed = schema.passed.tolist()
    levels = [j for j, column in enumerate(columns) if column.levels is not None]
    reasons = {
        "columns of categories have no bounds, but only observed levels": levels,
        "columns that are passed through are not filled": passed,
    }
    no_numbers = len(levels) + len(passed) == len(columns)
    if no_numbers:
        reason = "no column has numbers, and levels are filled by probability"
        warn_of_unused(estimator, {"strategy": reason})
    for name in ("min_value", "max_value"):
        given = getattr(estimator, name, None)
        if no_numbers and given is not None:
            warn_of_unused(estimator, {name: next(iter(reasons))})
        elif hasattr(given, "items"):  # a dict, or a Series
            places = [schema.index_of(key, name) for key in given.keys()]
            for reason, unfit in reasons.items():
                named = [schema.label(j) for j in places if j in unfit]
                if named:
                    warn_user(f"{name} of {', '.join(named)} has no effect: {reason}.")
