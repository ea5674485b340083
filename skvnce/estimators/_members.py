"""What imputers share that draw cells from one fitted member or several."""

from functools import partial

import numpy as np
from scipy.special import logsumexp
from sklearn.base import TransformerMixin

from skvnce._random import row_keyed, seeded
from skvnce._threads import one_thread
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._tables import half_sample_mode, in_container_of
from skvnce.estimators._validation import check_number
from skvnce.variational.base import ambient

STRATEGIES = {
    "mean": partial(np.mean, axis=0),
    "median": partial(np.median, axis=0),
    "mode": half_sample_mode,
}


class DrawnByMembers(TransformerMixin):  # which lets set_output reach transform
    """Mixin of imputers with members in `estimators_`, and `n_draws` and `strategy`."""

    @shows_progress
    def transform(self, X):
        """Fill missing cells by the mean, median or mode of draws.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Observed cells as they are in X.
        """
        X = self._checked(X)
        filled = self._constants_filled(X)
        shares = np.array_split(np.arange(self.n_draws), len(self.estimators_))
        with one_thread(), seeded(0):  # samplers may not take numbers of the row
            parts = self._parts(X, only_incomplete=True, n_chains=self.n_draws)
            for cells, nodes in parts:
                drawn = [
                    self._summed(member, nodes, len(share), partial(_of_rows, number))
                    for number, (member, share) in enumerate(
                        zip(self.estimators_, shares, strict=True)
                    )
                    if len(share)
                ]
                filled[cells] = STRATEGIES[self.strategy](np.concatenate(drawn))
        return self._with_indicator(self._columns_out(filled, X), X)

    @shows_progress
    def sample(self, X, n_draws=1, random_state=None):
        """Draw the missing cells given the observed ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        n_draws : int, default=1
            Number of completed tables.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; None gives others at every call.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_features_out)
            Arrays, or data frames of the kind of X; observed cells as they are in X.
        """
        check_number(n_draws, "n_draws", low=1, integer=True)
        container, X = X, self._checked(X)
        draw = partial(self._drawn, numbers=_of_stream)
        members, kept = self.estimators_, self._columns_kept()
        tables = self._filled_in_turns(X, members, draw, n_draws, random_state)
        return [in_container_of(container, table, kept) for table in tables]

    @shows_progress
    def score_samples(self, X):
        """Estimate the log-density of the observed cells of each row, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
            Of the members' average density, see `VariationalAutoencoder`.
        """
        return self._scored(self._checked(X))[0]

    def _scored(self, X):
        """Estimate the members' average density; logs and standard errors of these."""
        found = np.array([member._scored(X) for member in self.estimators_])
        log_prob, error = found[:, 0], found[:, 1]
        total = logsumexp(log_prob, axis=0) - np.log(len(found))
        shares = np.exp(log_prob - total) / len(found)
        return total, np.sqrt(np.square(shares * error).sum(0))

    def _drawn(self, member, nodes, n_draws, numbers):
        """Draw cells of nodes, in the units of X; (n_draws, n, n_nodes).

        `numbers` maps rows and a purpose to uniform numbers.
        """
        raise NotImplementedError

    def _summed(self, member, nodes, n_draws, numbers):
        """Draw cells that are to be summed up; they may depend on each other."""
        return self._drawn(member, nodes, n_draws, numbers)

    def _checked(self, X):
        X = super()._checked(X)
        for member in self.estimators_:
            if not np.array_equal(member.node_indices_, self.node_indices_):
                raise ValueError(
                    "estimator was fitted anew, to other columns, since this imputer "
                    "was. Fit the imputer again."
                )
        return X


def _of_rows(number, rows):
    """Make uniform numbers that are functions of the row, for one member."""
    return lambda purpose: row_keyed(rows, 16 * number + purpose)


def _of_stream(rows):
    """Take uniform numbers from torch's stream."""
    return lambda purpose: ambient
