"""Imputing tables of numbers, grades and categories.

    python benchmarks/mixed.py [--results FILE] [--only-report] [--quick]
        [--tables adult titanic] [--methods GaussianImputer] [--seeds 3]
        [--output doc/benchmarks/mixed.md]

Genuine holes stay; 30 % of the observed cells are hidden, completely at random (MCAR)
or by complete columns (MAR: logistic in a random 30 % of the complete columns, which
stay complete).  Methods learn from 70 % of the rows, and are scored on the hidden cells
of the others.  Each result is a line of FILE; those that are there are not computed
again.
"""

import time
from functools import cache
from itertools import product

from _command import carry_out, options_of
from mixed_methods import BASE, CLOCK, METHODS, REMOVED
from mixed_report import page
from mixed_rivals import Missing, lacking
from mixed_scores import score
from mixed_tables import MECHANISMS, TABLES, split

QUICK = [BASE, CLOCK, "GaussianImputer"]


def cells(options):
    """List what is asked for, one method after the other."""
    mechanisms = MECHANISMS[: 1 if options.quick else None]
    ways = product(range(options.seeds), mechanisms, options.methods, options.tables)
    for seed, mechanism, method, name in ways:
        key = {"table": name, "mechanism": mechanism, "seed": seed, "method": method}
        yield key


@cache
def clock(*place):
    """Time the method that all others are compared with, in the same run."""
    begin = time.process_time()
    METHODS[CLOCK](split(*place), place[-1])
    return round(time.process_time() - begin, 3)


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    method, place = key["method"], (key["table"], key["mechanism"], key["seed"])
    case, begin = split(*place), time.process_time()
    try:
        answer = METHODS[method](case, key["seed"])
    except Missing as reason:
        found = {"missing": str(reason)}
    else:
        seconds = time.process_time() - begin
        if answer.seconds is not None:
            seconds = answer.seconds
        found = score(case, answer) | {"seconds": round(seconds, 2)}
        found |= answer.notes or {}
    return found if method == CLOCK else found | {"clock": clock(*place)}


def left_out(methods):
    """List the methods that cannot be run here."""
    return [*lacking(methods), *(m for m in methods if m in REMOVED)]


def main():
    """Measure and report."""
    options = options_of(
        __doc__,
        {"tables": ["titanic"], "seeds": 1, "methods": QUICK},
        results=None,
        tables=[*TABLES],
        methods=[*METHODS],
        seeds=3,
        only_report=False,
    )
    carry_out(cells, measured, page, options, __doc__, left_out)


if __name__ == "__main__":
    main()
