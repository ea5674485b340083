"""Scores of recovered graphs, for `copula_graph.py`."""

import numpy as np

from skvnce.metrics import edge_auc


def score(found, truth):
    """Score a path and the graphs that are chosen from it."""
    counts = {rule: int(one.sum()) // 2 for rule, one in found.chosen.items()}
    return {
        "auc": edge_auc(truth, ranked(found.path)),
        "best_f1": max(f1(one > 0, truth) for one in found.path),
        "f1": {rule: f1(one, truth) for rule, one in found.chosen.items()},
        "edges": counts,
        "truth": int(truth.sum()) // 2,
    }


def ranked(path):
    """Rank pairs by the graph in which they enter, then by their strength there."""
    order = np.zeros(path.shape[1:])
    for place, strengths in enumerate(path[::-1]):
        most = max(strengths.max(), 1e-300)
        order = np.where(strengths > 0, place + 1 + strengths / most / 2, order)
    return order


def f1(edges, truth):
    """Compute the F1 of the edges."""
    pairs = np.triu_indices(len(truth), 1)
    edges, truth = edges[pairs], truth[pairs]
    return float(2 * (edges & truth).sum() / max(edges.sum() + truth.sum(), 1))
