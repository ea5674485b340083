"""The choice among graphs by how much their edges vary between random halves of rows.

The instability of a graph is the mean over pairs of ``2 f (1 - f)``, where f is the
share of halves that find the edge (Liu, Roeder and Wasserman 2010, Stability approach
to regularization selection).  As the penalty decreases, it exceeds a limit for the
first time where edges enter that not all halves find.  These authors stop there,
because graphs of noise become stable again only where they have nearly all edges.  If
most pairs are edges of about the same strength, however, they enter together, and the
sparse graphs vary, while denser ones hold the same edges in all halves.  So a denser
stable graph is accepted as long as its penalty leaves rows without any dependence
(columns permuted, each on its own) nearly without edges.
"""

import numpy as np

LIMIT = 0.1  # instability of an accepted graph
_NOISE = 0.05  # share of edges without dependence of an accepted denser graph
_FREQUENT = (
    0.9  # share of halves that find an edge which an empty graph should not miss
)


def instability(frequencies: np.ndarray) -> np.ndarray:
    """Compute that of each graph; (n_graphs, n_pairs) -> (n_graphs,)."""
    each = 2 * frequencies * (1 - frequencies)
    return each.mean(1) if each.shape[1] else np.zeros(len(each))


def noise_share(edges: np.ndarray) -> np.ndarray:
    """Compute the largest share of noise edges at this or a larger penalty."""
    share = edges.mean(1) if edges.shape[1] else np.zeros(len(edges))
    return np.maximum.accumulate(share)


def densest_stable(unstable: np.ndarray, noise: np.ndarray) -> int:
    """Return the place of the densest graph that is accepted, 0 if there is none."""
    stable = unstable <= LIMIT
    first = np.logical_and.accumulate(stable)
    return int(np.flatnonzero(stable & (first | (noise <= _NOISE))).max(initial=0))


def n_frequent(frequencies: np.ndarray, noise: np.ndarray) -> int:
    """Count pairs that most halves link where noise is nearly without edges."""
    often = frequencies[noise <= _NOISE] >= _FREQUENT
    return int(often.any(0).sum())


def permuted(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Permute each column on its own, and drop rows that are then entirely missing."""
    found = rng.permuted(rows, axis=0)
    return found[~np.isnan(found).all(1)]
