"""The fit of a graph with a given L1 penalty."""

import warnings

import numpy as np

from skvnce._random import seeded
from skvnce.algorithms.graph.penalty_path import learn_path
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
        check_fit(type(self), table.shape)
        data = self._read(table)
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        with self._threads(), seeded(self.random_state), failures_named(self._remedy()):
            if self.feature_indices_.size:
                self._fit_graph(data, on_round)
            else:
                self._set_empty_graph()
        finish()
        return self

    def _stopping(self, data):
        """Return how long EM goes on."""
        return {"max_iter": self.max_iter, "tol": self._tolerance(data)}

    def _tolerance(self, data):
        """Return the change of an edge strength at which EM stops."""
        return self.tol

    def _fit_path(self, data, alphas, seed):
        """Fit all alphas to validated rows."""
        with self._threads(), seeded(seed):
            problem = self._problem(data)
            return problem, *learn_path(problem, alphas, **self._stopping(data))

    def _fold_scores(self, X, train, test, alphas, seed):
        """Compute the score of held-out rows for each alpha; (n_alphas,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the final fit repeats relevant warnings
            data = self._read(X[train])
            if not self.feature_indices_.size:  # all columns are constant in these rows
                return [0.0] * len(alphas)
            problem, first, path = self._fit_path(data, alphas, seed)
            scores = []
            for theta in path.thetas:
                fit = first._replace(theta=problem.estimate(first, theta))
                self._keep(fit, problem, data)
                scores.append(float(self._scored(X[test]).mean()))
        return scores

    def _selected(self, X, rows, alphas, seed):
        """Return which edges each alpha keeps; (n_alphas, n_features, n_features)."""
        d = X.shape[1]
        found = np.zeros((len(alphas), d, d), dtype=bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = self._read(X[rows])
            if not self.feature_indices_.size:  # all columns are constant in these rows
                return found
            problem, _, path = self._fit_path(data, alphas, seed)
        places = np.ix_(self.feature_indices_, self.feature_indices_)
        for links, theta in zip(found, path.thetas, strict=True):
            links[places] = problem.method.family.strengths(theta).numpy() != 0
        return found
