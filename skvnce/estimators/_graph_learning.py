"""The fit of a graph with a given L1 penalty."""

from skvnce._random import seeded
from skvnce.estimators._callbacks import CallbackSupportMixin, report_rounds
from skvnce.estimators._memory import check_fit
from skvnce.estimators._rounds import failures_named


class GraphLearning(CallbackSupportMixin):
    """Mixin of the graph learners that have the parameter `alpha`.

    Their `fit` calls `_fit_to`.  They read a table by `_validated` and `_read`, and
    `_fit_graph` fits the model and sets the attributes.
    """

    def _fit_to(self, X):
        """Check the parameters and the table, and learn the graph; returns self."""
        self._check_parameters()
        table = self._validated(X)
        check_fit(self, table.shape)
        data = self._read(table)
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        with self._threads(), seeded(self.random_state), failures_named(self._remedy()):
            if self.feature_indices_.size:
                self._fit_graph(data, on_round)
            else:
                self._keep_empty_graph()
        finish()
        return self

    def _effort(self, data):
        """Return how long EM goes on."""
        return {"max_iter": self.max_iter, "tol": self._tolerance(data)}

    def _tolerance(self, data):
        """Return the change of an edge strength at which EM stops."""
        return self.tol
