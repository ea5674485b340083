"""The edges of a fitted graph, as a table and as a graph of networkx.

The functions are methods of the graph learners, which assign them.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

_OF_PAIRS = {"probability": "edge_probabilities_", "frequency": "edge_frequencies_"}


def edges(self):
    """List the edges in a table, strongest first.

    Returns
    -------
    pandas.DataFrame
        With columns ``source``, ``target`` and ``association``: the partial
        correlation ``-K_ij / sqrt(K_ii K_jj)``, positive if both rise together
        given all others, and for edges of nominal columns a strength without a
        sign.  `TruncatedGaussianGraphLearner` adds ``precision`` (``K_ij`` in the
        units of X).  ``probability`` is the entry of ``edge_probabilities_``, and
        with ``selection="stability"`` ``frequency`` that of ``edge_frequencies_``.
    """
    check_is_fitted(self)
    # here, because pandas is optional
    import pandas as pd

    associations = self._associations()
    i, j = np.nonzero(np.triu(associations, 1))
    table = pd.DataFrame(
        {
            "source": self.nodes_[i],
            "target": self.nodes_[j],
            "association": associations[i, j],
            **self._edge_columns(i, j),
            **_columns_of_pairs(vars(self), i, j),
        }
    )
    weakness = -table["association"].abs()
    # stable, so that equal edges keep the order of the columns
    return table.loc[weakness.sort_values(kind="stable").index].reset_index(drop=True)


def to_networkx(self):
    """Return the graph; the ``weight`` of an edge is its association.

    Further columns of `edges` are further attributes of the edges.

    Returns
    -------
    networkx.Graph
    """
    check_is_fitted(self)
    # here, because networkx is optional
    import networkx as nx

    result = nx.Graph()
    result.add_nodes_from(self.nodes_.tolist())
    table = self.edges().rename(columns={"association": "weight"})
    for row in table.to_dict("records"):
        ends = row.pop("source"), row.pop("target")
        result.add_edge(*ends, **row)
    return result


def _columns_of_pairs(found, i, j):
    """Return what a fit has found about the pairs (i, j), by name."""
    return {
        name: found[attribute][i, j]
        for name, attribute in _OF_PAIRS.items()
        if attribute in found
    }
