"""Scores of the recovery of graphs."""

import numpy as np
from sklearn.metrics import roc_auc_score

from skvnce.metrics._numbers import finite
from skvnce.missingness import _table

_EDGE = 1e-5  # smaller true entries are rounding errors of a matrix inverse


def edge_auc(precision_true, strengths):
    """Area under the ROC curve of the recovery of edges.

    Parameters
    ----------
    precision_true : array-like of shape (n_features, n_features)
        The true precision matrix, or any matrix with the edges of the true graph: the
        pairs where its absolute value is above 1e-5.
    strengths : array-like of shape (n_features, n_features)
        Evidence for an edge, not negative, larger for more evidence: for instance
        selection frequencies, or the absolute values of an estimated precision matrix.

    Returns
    -------
    auc : float
        Probability that an edge has more strength than a pair without one, ties
        counted half: 1 is best, 0.5 is chance. Only the entries below the diagonal of
        both matrices are used.

    Raises
    ------
    ValueError
        If the matrices are not numeric, square, finite and of one shape, a strength is
        negative, or the true graph is empty or complete.

    Examples
    --------
    >>> from skvnce.metrics import edge_auc
    >>> true = [[1.0, -0.5, 0.0], [-0.5, 1.0, 0.2], [0.0, 0.2, 1.0]]
    >>> strengths = [[0.0, 0.9, 0.3], [0.9, 0.0, 0.1], [0.3, 0.1, 0.0]]
    >>> edge_auc(true, strengths)
    0.5
    """
    true = _table(precision_true, "precision_true")
    strengths = _table(strengths, "strengths")
    if true.shape != strengths.shape or true.shape[0] != true.shape[1]:
        raise ValueError(
            "precision_true and strengths must be square and of one shape, got "
            f"{true.shape} and {strengths.shape}; pass one row and column per feature"
        )
    pairs = np.tril_indices(len(true), -1)
    edge = np.abs(finite(true[pairs], "precision_true")) > _EDGE
    strength = finite(strengths[pairs], "strengths")
    if (strength < 0).any():
        raise ValueError(
            f"strengths must not be negative, got {strength.min()}; pass absolute "
            "values if the sign is that of a precision or a correlation"
        )
    if edge.all() or not edge.any():
        raise ValueError(
            f"precision_true must have both edges and pairs without one, got "
            f"{edge.sum()} edges among {edge.size} pairs; the AUC is undefined"
        )
    return float(roc_auc_score(edge, strength))
