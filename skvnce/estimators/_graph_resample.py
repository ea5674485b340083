"""Paths of penalties that are fitted to parts of the rows."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.graph.penalty_path import learn_path
from skvnce.fitted.fill import score
from skvnce.tables.schema import Schema


class Resample(NamedTuple):
    """Paths of penalties that the methods of a learner fit to parts of the rows."""

    learner: BaseEstimator  # its parameters are used
    schema: Schema  # of the rows, as they have been read
    rows: np.ndarray  # (n_samples, n_features), validated
    alphas: list

    def scores(self, train, test, seed):
        """Compute the score of held-out rows for each alpha; (n_alphas,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the final fit repeats relevant warnings
            schema, data = self._read(train)
            if not len(schema.model_columns):  # all are constant in these rows
                # a model without columns has log-density 0
                return [0.0] * len(self.alphas)
            problem, first, path = self._path(schema, data, seed)
            scores = []
            for theta in path.thetas:
                fit = first._replace(theta=problem.estimate(first, theta))
                scores.append(self._score(schema, fit, problem, data, self.rows[test]))
        return scores

    def edges(self, some, seed):
        """Return which edges each alpha keeps; (n_alphas, n_features, n_features)."""
        d = self.rows.shape[1]
        found = np.zeros((len(self.alphas), d, d), dtype=bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schema, data = self._read(some)
            if not len(schema.model_columns):  # all are constant in these rows
                return found
            problem, _, path = self._path(schema, data, seed)
        places = np.ix_(schema.model_columns, schema.model_columns)
        for links, theta in zip(found, path.thetas, strict=True):
            links[places] = problem.method.family.strengths(theta).numpy() != 0
        return found

    def _read(self, some):
        """Choose the columns of the model by some rows."""
        table = self.learner._training_table(self.schema, self.rows[some])
        return table.schema, Incomplete.from_array(table.cells.nodes)

    def _score(self, schema, fit, problem, data, rows):
        """Score rows by a fit."""
        learner = self.learner
        model = learner._model_of(schema, fit, problem, data)
        with learner._threads(schema):
            return float(score(schema, learner._cells_of(model), rows)[0].mean())

    def _path(self, schema, data, seed):
        """Fit all alphas to rows."""
        learner = self.learner
        with learner._threads(schema), seeded(seed):
            problem = learner._problem(schema, data)
            return problem, *learn_path(problem, self.alphas, **learner._stopping(data))
