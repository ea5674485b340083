"""What all estimators of graphs share: the reading of a table, a fit, and the edges."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import step
from skvnce._core.random import seeded
from skvnce._imputer import callbacks
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.validation import read_table, warn_of_unused
from skvnce._tables.findings import check_non_negative
from skvnce.graphs.score_matching import probabilities_of_scores

_SEED = 0  # of draws that should be the same with and without a search for alpha
_OF_PAIRS = {"probability": "edge_probabilities_", "frequency": "edge_frequencies_"}


class GraphEstimator(callbacks.CallbackSupportMixin, Imputer):
    """Base class of estimators of a graph, by a penalty or by a search for one."""

    _is_for_filling = True  # parameters count as known in draws

    def edges(self) -> Any:
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
                **{
                    name: vars(self)[attribute][i, j]
                    for name, attribute in _OF_PAIRS.items()
                    if attribute in vars(self)
                },
            }
        )
        weakness = -table["association"].abs()
        # stable, so that equal edges keep the order of the columns
        return table.loc[weakness.sort_values(kind="stable").index].reset_index(
            drop=True
        )

    def to_networkx(self) -> Any:
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

    def _associations(self):
        """Return the partial correlations of the edges."""
        return self.associations_

    def _edge_columns(self, i, j):
        """Return further columns of `edges`, of the pairs (i, j)."""
        return {}

    def _stopping(self, data):
        """Return how long EM goes on."""
        return {"max_iter": self.max_iter, "tol": self.tol}

    def _validated(self, X):
        """Validate the table of a fit; see `read_table`."""
        warn_of_unused(self, self._without_effect())
        table, schema = read_table(self, X)
        if self._is_positive:
            check_non_negative(schema, table, type(self).__name__)
        return table, schema

    def _without_effect(self):
        """Return why parameters have no effect, by name."""
        return {}

    def _probabilities(self, fit, problem):
        """Estimate the probabilities of edges, by the fit before edges are chosen."""
        with step("estimating edge probabilities"), seeded(_SEED):
            scores, unsigned = self._edge_scores(fit, problem)
            probabilities = probabilities_of_scores(scores, unsigned)
        return {"edge_probabilities_": probabilities.numpy()}

    def _learn(self, table):
        """Learn the graph of a table that has been read, and publish it."""
        schema, cells = table.schema, table.cells
        on_round, finish = callbacks.report_rounds(self, self.max_iter, X=table.rows)
        with (
            self._threads(schema),
            seeded(self.random_state),
            callbacks.failures_named(self._remedy()),
        ):
            if len(schema.model_columns):
                data = Incomplete.from_array(cells.nodes)
                problem = self._problem(schema, data, cells.limits)
                rounds = {"on_round": on_round, **self._stopping(data)}
                first, fit = problem.fit(float(self.alpha), **rounds)
                model, report = self._learned(schema, fit, problem, data)
                report |= self._probabilities(first, problem)
                schema, checked = self._check_predictions(
                    table, problem, fit.theta, report
                )
                fitted = Fitted(schema, model, report | checked.report())
            else:
                fitted = self._empty_graph(schema)
        finish()
        return self._publish(fitted)
