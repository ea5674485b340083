"""Two published protocols, whose authors print figures of rivals.

    python benchmarks/protocols.py [--results FILE] [--only-report] [--quick]
        [--protocols A B] [--tables concrete letter] [--mechanisms MCAR]
        [--methods GaussianImputer] [--seeds 3] [--rivals-python RIVALS/bin/python]
        [--limit 300] [--output doc/benchmarks/protocols.md]

Protocol A is that of ForestDiffusion and UnmaskingTrees: 80 % of the rows, each cell
but the target's hidden with probability .2, five imputations of the same rows. The
target is a complete column. Masks by pyampute, at random (MAR) and not at random
(MNAR), are a second opinion. Protocol B is that of DiffPuter: numbers, 30 % hidden,
scored on the 70 % of the rows that are learned from and on the others. Each result is
a line of FILE; those that are there are not computed again. protocol_rivals.py says
how to install the rivals.
"""

from functools import lru_cache
from itertools import product

import numpy as np
from _command import carry_out, options_of
from mixed_rivals import Missing
from protocol_methods import METHODS, lacking
from protocol_report import page
from protocol_rivals import SETTINGS
from protocol_scores import IMPUTATIONS, SCORERS
from protocol_tables import (
    MECHANISMS_A,
    MECHANISMS_B,
    TABLES_A,
    TABLES_B,
    case_a,
    case_b,
)

TABLES = {"A": TABLES_A, "B": TABLES_B}
MECHANISMS = {"A": MECHANISMS_A, "B": MECHANISMS_B}
QUICK = ["KNN(1)", "GaussianImputer"]
ASKED = {"A": IMPUTATIONS, "B": 20}  # draws


def cells(options):
    """List what is asked for, one case after the other."""
    for protocol in options.protocols:
        tables = [t for t in TABLES[protocol] if t in options.tables]
        some = [m for m in MECHANISMS[protocol] if m in options.mechanisms]
        ways = product(range(options.seeds), some, tables, options.methods)
        for seed, mechanism, name, method in ways:
            key = {"protocol": protocol, "table": name, "mechanism": mechanism}
            yield key | {"seed": seed, "method": method}


@lru_cache(1)
def case_of(protocol, *place):
    """Make a case."""
    return (case_b if protocol == "B" else case_a)(*place)


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    protocol, seed = key["protocol"], key["seed"]
    case = case_of(protocol, key["table"], key["mechanism"], seed)
    try:
        answer = METHODS[key["method"]](case, seed, ASKED[protocol])
    except Missing as reason:
        return {"missing": str(reason)}
    answer = answer._replace(
        points=observed_kept(case, answer.points),
        draws=observed_kept(case, answer.draws),
    )
    scores = SCORERS[protocol](case, answer)
    return scores | {"seconds": round(answer.seconds, 2)} | answer.notes


def observed_kept(case, tables):
    """Return filled tables with the observed cells as they were."""
    if tables is None:
        return None
    parts = zip(tables, case.masked, strict=True)
    return [np.where(np.isnan(masked), filled, masked) for filled, masked in parts]


def main():
    """Measure and report."""
    options = options_of(
        __doc__,
        {"protocols": ["A"], "tables": ["iris"], "seeds": 1, "methods": QUICK},
        results=None,
        protocols=[*TABLES],
        tables=[*TABLES_A, *TABLES_B],
        mechanisms=["MCAR", "MAR"],
        methods=[*METHODS],
        seeds=3,
        rivals_python=None,
        limit=SETTINGS["limit"],
        only_report=False,
    )
    SETTINGS.update(python=options.rivals_python, limit=options.limit)
    carry_out(cells, measured, page, options, __doc__, lacking)


if __name__ == "__main__":
    main()
