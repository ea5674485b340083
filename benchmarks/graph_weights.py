"""The boundary weight h of generalised score matching: which one finds most edges.

    python benchmarks/graph_weights.py [--sets 10] [--output FILE]

Median |K| AUC of the simulations of `graph_simulation.py`, b = 0, ridge 0.15 and no L1
penalty for all weights, in columns scaled to unit root mean square.
"""

import argparse

import numpy as np
import torch
from _report import made_by, publish, table
from graph_simulation import simulate
from threadpoolctl import threadpool_limits

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.graph import em
from skvnce.algorithms.graph.score_matching import score_matching
from skvnce.metrics import edge_auc
from skvnce.objectives.score_matching import saturating_weight

WEIGHTS = {
    "1 - exp(-x)": saturating_weight,
    "log(1 + x)": lambda x: (x.log1p(), 1 / (1 + x)),
    "min(x, 1)": lambda x: (x.clamp(max=1), (x < 1).to(x)),
    "min(x, 2)": lambda x: (x.clamp(max=2), (x < 2).to(x)),
    "x": lambda x: (x, torch.ones_like(x)),
    "x squared": lambda x: (x.square(), 2 * x),
}
SETTINGS = [
    ("hub", 0.0),
    ("ring", 0.0),
    ("ring", 0.5),
    ("ring-mixed", 0.0),
    ("ring-mixed", 0.5),
]


def auc(data, missing, weight, seed):
    """Learn one graph with one weight."""
    incomplete = Incomplete.from_array(data.hide(missing))
    units = em.units_of(incomplete, fit_linear=False)
    scaled = Incomplete(incomplete.x / units.scale, incomplete.observed)
    method = score_matching(scaled, units.centre, fit_linear=False, weight=weight)
    none = torch.zeros(len(units.scale), len(units.scale), dtype=torch.float64)
    start = em.independence(scaled, units.centre, fit_linear=False)
    with seeded(seed):
        fit = em.learn_graph(
            method,
            start,
            em.Penalty(none, ridge=0.15),
            max_iter=100,
            tol=2e-3,
        )
    scale = torch.outer(units.scale, units.scale)
    return edge_auc(data.precision, (fit.theta.precision / scale).abs().numpy())


def main():
    """Run all weights and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--output")
    options = parser.parse_args()
    scores = {}
    with threadpool_limits(1):
        for kind in dict(SETTINGS):
            sets = [simulate(kind, seed) for seed in range(options.sets)]
            for name, weight in WEIGHTS.items():
                for missing in (m for k, m in SETTINGS if k == kind):
                    found = [auc(d, missing, weight, i) for i, d in enumerate(sets)]
                    scores[name, kind, missing] = np.median(found)
    rows = [
        [name, *(f"{scores[name, kind, missing]:.3f}" for kind, missing in SETTINGS)]
        for name in WEIGHTS
    ]
    header = ["weight", *(f"{kind}, {missing:.0%}" for kind, missing in SETTINGS)]
    notes = f"Median |K| AUC of sets 0 to {options.sets - 1}; b = 0, ridge 0.15."
    publish(
        ["# Boundary weights", made_by("graph_weights.py", notes), table(header, rows)],
        options.output,
    )


if __name__ == "__main__":
    main()
