"""What weights of `ForestImputer` could reach, on the tables with goals of `mixed.py`.

    python benchmarks/mixed_weights.py [--seeds 3] [--tables adult titanic]
        [--output doc/benchmarks/mixed_weights.md]

The best weights are chosen by the scored cells themselves, as no user can.
"""

import argparse
import warnings
from itertools import product

import numpy as np
from _report import made_by, publish, table
from mixed_methods import BASE, METHODS, answer_of, of_estimator
from mixed_report import GOAL_TABLES
from mixed_scores import FEWEST, of_numbers
from mixed_tables import MECHANISMS, split
from threadpoolctl import threadpool_limits

from skvnce import ForestImputer, GaussianImputer

WEIGHTS = 0.0, 0.25, 0.5, 0.75, 1.0
SCORES = "rmse", "crps"
NOTES = """\
Means over columns of numbers, as ratios to draws of the marginal distributions;
geometric means over tables, mechanisms and seeds. A weight of 0 is `GaussianImputer`,
1 the forests alone. The last two lines choose among these weights by the scored cells:
they bound what a choice of weights can reach, and are optimistic, as the cells are few.
"""


def scores_of(case, answer):
    """Score the columns of numbers; (n_columns, 2)."""
    numbers = [
        j
        for j, kind in enumerate(case.kinds)
        if kind == "numeric" and case.hidden[:, j].sum() >= FEWEST
    ]
    found = [of_numbers(case, answer, j) for j in numbers]
    return np.array([[one[score] for score in SCORES] for one in found])


def ratios(name, mechanism, seed):
    """Score a table with each way to choose weights; a dict of arrays (2,)."""
    case = split(name, mechanism, seed)
    base = scores_of(case, METHODS[BASE](case, seed))
    if not len(base):
        return {}
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    imputer = ForestImputer(GaussianImputer(**options), random_state=seed)
    scored = [scores_of(case, of_estimator(imputer, case, seed))]
    for weight in WEIGHTS:
        imputer.weights_ = np.full_like(imputer.weights_, weight)
        scored.append(scores_of(case, answer_of(imputer, case, seed)))
    found = np.array([one.mean(0) for one in scored]) / base.mean(0)
    names = ["chosen by fit", *(f"weight {weight:g}" for weight in WEIGHTS)]
    best = np.array(scored[1:]).min(0).mean(0) / base.mean(0)
    return dict(zip(names, found, strict=True)) | {
        "best weight of the table": found[1:].min(0),
        "best weight of each column": best,
    }


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(GOAL_TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        cells = product(options.tables, MECHANISMS, range(options.seeds))
        found = [ratios(*cell) for cell in cells]
    found = [one for one in found if one]
    lines = []
    for name in found[0]:
        means = np.exp(np.mean([np.log(one[name]) for one in found], 0))
        lines.append([name, *(f"{value:.3f}" for value in means)])
    publish(
        [
            "# Weights of forests in mixed tables",
            made_by("mixed_weights.py", NOTES),
            table(["weights", "RMSE", "CRPS"], lines),
        ],
        options.output,
    )


if __name__ == "__main__":
    main()
