"""Paths of penalties that are fitted to parts of the rows."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.graph.penalty_path import learn_path


class Resample(NamedTuple):
    """A learner that is fitted to parts of the rows, for a path of penalties.

    Attributes
    ----------
    learner : estimator
        Its attributes are those of the last fit.
    rows : ndarray of shape (n_samples, n_features)
        Validated.
    alphas : list of float
    """

    learner: BaseEstimator
    rows: np.ndarray
    alphas: list

    def scores(self, train, test, seed):
        """Compute the score of held-out rows for each alpha; (n_alphas,)."""
        learner = self.learner
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the final fit repeats relevant warnings
            cells = learner._read_rows(self.rows[train])
            if not learner.feature_indices_.size:  # all are constant in these rows
                # a model without columns has log-density 0
                return [0.0] * len(self.alphas)
            data = Incomplete.from_array(cells.nodes)
            problem, first, path = self._path(data, seed)
            scores = []
            for theta in path.thetas:
                fit = first._replace(theta=problem.estimate(first, theta))
                learner._keep(fit, problem, data)
                found, _ = learner._scored(self.rows[test])
                scores.append(float(found.mean()))
        return scores

    def edges(self, some, seed):
        """Return which edges each alpha keeps; (n_alphas, n_features, n_features)."""
        learner, d = self.learner, self.rows.shape[1]
        found = np.zeros((len(self.alphas), d, d), dtype=bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells = learner._read_rows(self.rows[some])
            if not learner.feature_indices_.size:  # all are constant in these rows
                return found
            data = Incomplete.from_array(cells.nodes)
            problem, _, path = self._path(data, seed)
        places = np.ix_(learner.feature_indices_, learner.feature_indices_)
        for links, theta in zip(found, path.thetas, strict=True):
            links[places] = problem.method.family.strengths(theta).numpy() != 0
        return found

    def _path(self, data, seed):
        """Fit all alphas to rows."""
        learner = self.learner
        with learner._threads(), seeded(seed):
            problem = learner._problem(data)
            return problem, *learn_path(problem, self.alphas, **learner._stopping(data))
