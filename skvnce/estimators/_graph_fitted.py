"""What a fitted graph can do: fill and draw cells, score rows, list edges."""

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_keyed
from skvnce._random import seeded
from skvnce._threads import threads_for
from skvnce._torch_defaults import torch_defaults
from skvnce.algorithms.graph import prediction
from skvnce.algorithms.graph.chain_means import N_TABLES
from skvnce.estimators._base import CellSampler
from skvnce.estimators._by_parts import by_parts
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._graph_table import GraphTable
from skvnce.estimators._validation import check_non_negative
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.tables.statistics import into_dtype

_REPEATED = 8  # estimates of the score of a row of which its error is computed


class FittedGraph(GraphTable, CellSampler):
    """Base class of the estimators of a truncated Gaussian graph.

    Its methods use the fitted attributes and, of the parameters, only `n_steps` and
    `keep_empty_features` of `_settings`.
    """

    @by_parts
    @shows_progress
    def transform(self, X):
        """Fill missing cells by their conditional means given the observed cells.

        The result is a function of each row alone: a row has the same result in any
        table, up to rounding.  It is exact if one cell is missing or if truncation at
        zero has no effect.  Otherwise it is an average over `n_steps` sweeps
        whose noise is reduced by conditional means in closed form.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Non-negative; NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Observed cells are equal to those of X.
        """
        given, X = X, self._checked(X)
        filled = self._constants_filled(X)
        model, start = self.to_torch(), torch.from_numpy(self.location_)
        with self._threads():
            for cells, nodes in self._parts(X, only_incomplete=True, n_chains=N_TABLES):
                found = prediction.conditional_mean(
                    model,
                    Incomplete.from_array(nodes),
                    start,
                    row_keyed(nodes, 0),
                    burn_in=self._settings().n_steps // 2,
                    n_steps=self._settings().n_steps,
                ).numpy()
                found = self._clipped(self._fill_marginal(found))
                filled[cells] = into_dtype(found, X.dtype)
        return self._completed(filled, X, given)

    def _drawn_tables(self, X, n_draws, random_state):
        filled = np.repeat(self._constants_filled(X)[None], n_draws, 0)
        model, start = self.to_torch(), torch.from_numpy(self.location_)
        with self._threads(), seeded(random_state):
            for cells, nodes in self._parts(X, only_incomplete=True, n_chains=n_draws):
                found = prediction.draw(
                    model,
                    Incomplete.from_array(nodes),
                    start,
                    n_draws=n_draws,
                    n_steps=self._settings().n_steps + self._settings().n_steps // 2,
                ).numpy()
                found = self._rounded_to_valid(self._draw_marginal(found))
                filled[:, *cells] = into_dtype(found, X.dtype)
        return self._columns_out(filled, X)

    @by_parts
    @shows_progress
    def score_samples(self, X, return_std=False):
        """Compute a held-out log-score of each row, in nats.

        The columns are divided into five blocks.  Each block is hidden in turn, and its
        observed cells are scored by their log predictive density given the observed
        cells of the other blocks.  The score of a row is the sum of these, averaged
        over two partitions of the columns.  It needs no normalising constant, it is a
        proper score, and it is a function of the row alone (up to rounding).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Non-negative; NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return standard errors, which takes eight times as long.

        Returns
        -------
        score : ndarray of shape (n_samples,)
            0 for a row that is entirely missing, and if all columns are constant.
        std : ndarray of shape (n_samples,)
            Standard errors, from eight other estimates; 0 up to rounding for rows of
            which nothing is drawn.  They do not include the error of chains that are
            too short.  Only if `return_std` is True.
        """
        X = self._checked(X)
        scores = self._scored(X)
        if not return_std:
            return scores
        found = np.array([self._scored(X, 1 + i) for i in range(_REPEATED)])
        return scores, (found - found[0]).std(0, ddof=1)

    def _scored(self, X, number=0):
        """Estimate the scores; others with another number."""
        scores, first = np.zeros(len(X)), 1 + prediction.N_CHAINS * number
        model, start = self.to_torch(), torch.from_numpy(self.location_)
        with self._threads():
            for (rows, _), nodes in self._parts(X, n_chains=prediction.N_CHAINS):
                scores[rows[:, 0]] = prediction.log_predictive(
                    model,
                    Incomplete.from_array(nodes),
                    start,
                    lambda block, nodes=nodes: row_keyed(nodes, first + block),
                    burn_in=self._settings().n_steps // 2,
                    n_steps=self._settings().n_steps,
                )
        return scores

    def _associations(self):
        return -np.sign(self.precision_) * self.edge_strengths_

    def _edge_columns(self, i, j):
        return {"precision": self.precision_[i, j]}

    @torch_defaults()
    def to_torch(self):
        """Return the fitted model as a torch module, in the units of X.

        Returns
        -------
        skvnce.models.truncated_gaussian.TruncatedGaussian
            A copy in double precision, without gradients.
        """
        check_is_fitted(self)
        return TruncatedGaussian(
            torch.tensor(self.precision_),
            torch.tensor(self.linear_),
            torch.tensor(getattr(self, "log_scale_", 0.0), dtype=torch.float64),
        ).requires_grad_(False)

    def __sklearn_tags__(self):
        """Declare non-negative input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _checked(self, X):
        X = super()._checked(X)
        check_non_negative(self._schema, X, type(self).__name__)
        return X

    def _threads(self):
        return threads_for(len(self.feature_indices_))
