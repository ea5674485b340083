"""Base class of imputers that draw cells from one or several fitted members."""

from functools import partial
from math import ceil

import numpy as np
from scipy.special import logsumexp
from sklearn.utils._param_validation import StrOptions

from skvnce._keyed import row_keyed
from skvnce._random import seed_from, seeded
from skvnce._threads import one_thread
from skvnce.algorithms.mixed.columns import NUMERIC
from skvnce.estimators._by_parts import by_parts
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._imputer import Imputer, Predicted
from skvnce.estimators._unused import warn_of_bounded_levels, warn_of_unused
from skvnce.estimators._validation import (
    BOUND,
    MISSING_VALUES,
    ON_MISFIT,
    RANDOM_STATE,
    integer_from,
)
from skvnce.estimators._weights import random_weights
from skvnce.estimators._where import mask_of
from skvnce.tables.model_columns import (
    observed_columns,
    warn_of_constants,
    warn_of_empty,
    without_constants,
)
from skvnce.tables.statistics import constant_columns, half_sample_mode
from skvnce.variational.base import global_stream

STRATEGIES = {
    "mean": partial(np.mean, axis=0),
    "median": partial(np.median, axis=0),
    "mode": half_sample_mode,
}

OF_MEMBERS = {  # constraints of the parameters that the imputers share
    "strategy": [StrOptions(set(STRATEGIES))],
    "n_steps": [integer_from(1)],
    "n_draws": [integer_from(1)],
    "min_value": BOUND,
    "max_value": BOUND,
    "missing_values": MISSING_VALUES,
    "keep_empty_features": ["boolean"],
    "add_indicator": ["boolean"],
    "on_misfit": ON_MISFIT,
    "random_state": RANDOM_STATE,
    "verbose": ["verbose"],
}

_SEVERAL, _ENOUGH = 4, 40  # maximum number of members; rows per column where 1 suffices
_REMEDY = "GaussianImputer may fill them better; logarithms of skewed columns may help."


class DrawnByMembers(Imputer):
    """Base class of imputers whose members are in `estimators_`.

    The imputers have the parameters `n_draws`, `strategy`, `min_value`, `max_value` and
    `on_misfit`.
    """

    @by_parts
    @shows_progress
    def transform(self, X, *, where=None):
        """Fill missing cells by the mean, median or mode of draws.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        where : array-like of bool of shape (n_samples, n_features), dict or \
                callable, default=None
            Which missing cells are filled; the others stay missing, for example
            answers that the form of a survey skips.  A data frame or a dict of columns
            to masks of shape (n_samples,) may leave out columns, which are filled.  If
            cells decide that may be missing themselves, pass a function, or a dict of
            columns to functions: it is called with completed rows, like X, and returns
            such masks.  None fills all missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Observed cells are equal to those of X.
        """
        given, X = X, self._checked(X)
        wanted = mask_of(self._schema, where, given, X)
        return self._completed(self._predicted(X), X, given, wanted)

    def _predicted(self, X):
        filled, certain = self._constants_filled(X), self._certain(X)
        with one_thread(), seeded(0):  # a sampler may not support numbers of the row
            parts = self._parts(X, only_incomplete=True, n_chains=self.n_draws)
            for (rows, places), nodes in parts:
                drawn, probabilities = self._drawn_by_all(nodes)
                possible = self._valid_only(drawn, X.dtype)
                summed = STRATEGIES[self.strategy](possible)
                for node, levels in self._fill_marginal_levels(probabilities).items():
                    summed[:, node] = levels.argmax(1)
                    missing = np.isnan(nodes[:, node])
                    certain[places[0, node]][rows[missing, 0]] = levels[missing]
                filled[rows, places] = self._fill_marginal(summed)
        return Predicted(filled, certain)

    def _drawn_by_all(self, nodes):
        """Draw cells of nodes from all members, and average probabilities of levels.

        Returns
        -------
        drawn : ndarray of shape (n_draws, n, n_nodes)
        probabilities : dict of int to ndarray of shape (n, n_levels)
            For each column of categories.
        """
        shares = np.array_split(np.arange(self.n_draws), len(self.estimators_))
        drawn, total = [], {}
        pairs = zip(self.estimators_, shares, strict=True)
        for number, (member, share) in enumerate(pairs):
            if not len(share):
                continue
            numbers = partial(of_rows, number)
            tables, found = self._summed(member, nodes, len(share), numbers)
            drawn.append(tables)
            for node, part in found.items():
                total[node] = total.get(node, 0) + part * len(share) / self.n_draws
        return np.concatenate(drawn), total

    def _with_one_draw(self):
        members = [[one] for one in self.estimators_]
        return self._copies_with("estimators_", members) or [self]

    def _sources(self, X, n_draws, is_joint=True):
        def draw(member, nodes, number):
            drawn = self._drawn(member, nodes, number, _of_stream)
            return self._valid_only(self._draw_marginal(drawn), X.dtype)

        return self.estimators_, draw

    @by_parts
    @shows_progress
    def score_samples(self, X, return_std=False):
        """Estimate the log-density of the observed cells of each row, in nats.

        The estimate is the logarithm of the average density of the models in
        `estimators_`, by importance sampling with the encoder or the fitted
        conditionals as proposal; it is too low on average.  Columns of rounded or
        binary values contribute log-probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return standard errors, estimated from the variance of the
            importance weights.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            In the units of X; 0 for a row that is entirely missing, and if all columns
            were constant at `fit`.
        std : ndarray of shape (n_samples,)
            Standard errors; only if `return_std` is True.
        """
        log_prob, error = self._scored(self._checked(X))
        return (log_prob, error) if return_std else log_prob

    def _scored(self, X):
        """Estimate the log of the members' average density, and its standard errors."""
        if not self.estimators_:
            return np.zeros(len(X)), np.zeros(len(X))
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
        """Draw cells that will be summarised; they may be dependent.

        Also returns probabilities of levels, a dict of nodes to (n, n_levels).
        """
        return self._drawn(member, nodes, n_draws, numbers), {}

    def _numbers(self, places):
        """Leave out the columns of categories."""
        columns = self._schema.columns
        return [j for j in places if not columns or columns[j].kind == NUMERIC]

    def _report_columns(self, X):
        """Warn of empty columns, and of those with cells far from the others."""
        warn_of_empty(self._schema, X, self._handling())
        numbers = self._numbers(observed_columns(self._schema, X))
        self._report_tails(X, numbers)

    def _reject_categories(self, reason):
        """Raise an error that names the columns of categories, if there are any."""
        names = [
            self._schema.label(place)
            for place, column in enumerate(self._schema.columns or ())
            if column.kind != NUMERIC
        ]
        if names:
            have = "has" if len(names) == 1 else "have"
            raise ValueError(f"{', '.join(names)} {have} categories, and {reason}")

    def _set_members(self, members, X):
        """Set the members and their columns; without members all are constant."""
        self.estimators_ = members
        if members:
            first = members[0]
            self.feature_indices_, self.constants_ = (
                first.feature_indices_,
                first.constants_,
            )
            warn_of_constants(self._schema, X, self._handling())
        else:
            schema = self._schema
            schema = schema._replace(model_columns=observed_columns(schema, X))
            schema = without_constants(schema, X, self._handling())
            self.feature_indices_ = schema.model_columns
            self.constants_ = schema.constants

    def _check_predictions(self, X, blind):
        """Check predictions of cells that the fit of the first member has not used.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        blind : list of Blind
            Of the first member; empty if no cells were held out.
        """
        if blind:
            member, nodes, hidden = blind[0]
        else:
            member, nodes = None, X[:, self.feature_indices_].astype(np.float64)
            hidden = np.zeros(nodes.shape, dtype=bool)

        def predict(kept, rows):
            with one_thread(), seeded(0):
                found, probabilities = self._rough_mean(member, kept[rows])
            return self._clipped(found), probabilities

        self._check_held_out(nodes, predict, hidden=hidden)
        self._report_misfit(_REMEDY)

    def _rough_mean(self, member, nodes):
        """Estimate means of cells of nodes, in the units of X, at low cost.

        Also returns probabilities of levels, a dict of nodes to (n, n_levels).
        """
        raise NotImplementedError

    def _fill_marginal(self, cells):
        """Fill marginal columns by the summary of observed values (`strategy`).

        Those of categories get their most frequent level.
        """
        levels = self._schema.is_categorical
        for column, (best, values, _) in self._marginals_of_columns.items():
            summary = best if levels[column] else STRATEGIES[self.strategy](values)
            cells[..., column] = summary
        return cells

    def _learn_bounded_values(self, X, frozen=None):
        """Determine the possible values of each column.

        If the only member was frozen, they are those of its training table, except for
        bounds that the user passes.
        """
        self._learn_values(X, self.min_value, self.max_value)
        warn_of_bounded_levels(self)
        columns = self._schema.columns
        if columns and all(column.levels is not None for column in columns):
            reason = "no column has numbers, and levels are filled by probability"
            warn_of_unused(self, {"strategy": reason})
        if frozen is not None:
            found = self._schema.values
            known = frozen._schema.values
            low, high = np.where(found.given, found.ranges, known.ranges)
            self._set_values(
                known._replace(low=low, high=np.maximum(low, high), given=found.given)
            )

    def _valid_only(self, drawn, dtype):
        """Round draws of the nodes (n_draws, n, n_nodes) to possible values."""
        ranges = within(self.feature_ranges_[:, self.feature_indices_], dtype)
        return np.clip(self._rounded_to_valid(drawn), *ranges)

    def _bounds_of_nodes(self):
        """Return the user's bounds, (2, n_nodes); infinite without a bound."""
        found = self._schema.values
        free = np.array([[-np.inf], [np.inf]])
        return np.where(found.given, found.ranges, free)[:, self.feature_indices_]

    def _columns_out(self, filled, X):
        low, high = within(self.feature_ranges_, filled.dtype)
        return super()._columns_out(np.clip(filled, low, high), X)

    def _checked(self, X):
        X = super()._checked(X)
        for member in self.estimators_:
            if not np.array_equal(member.feature_indices_, self.feature_indices_):
                raise ValueError(
                    "model was refitted to other columns after this imputer was "
                    "fitted. Fit the imputer again."
                )
        return X


def count_members(asked, X):
    """Return how many members a table of training rows is fitted by."""
    if isinstance(asked, str):
        return min(_SEVERAL, ceil(_ENOUGH * X.shape[1] / len(X)))
    return int(asked)


def seeds_and_weights(count, n, random_state):
    """Yield a seed and random weights of n rows for each member; no weights for one."""
    rng = np.random.default_rng(seed_from(random_state))
    for _ in range(count):
        seed = int(rng.integers(2**31))
        yield seed, random_weights(rng, n) if count > 1 else None


def is_constant(X):
    """Return whether no column of a table has two different observed values."""
    observed = X[:, ~np.isnan(X).all(0)].astype(np.float64)
    return bool(constant_columns(observed).all())


def within(ranges, dtype):
    """Round ranges (2, n) inwards to finite numbers of a dtype."""
    most = np.finfo(dtype).max
    low, high = np.clip(ranges, -most, most).astype(dtype)
    low = np.where(low < ranges[0], np.nextafter(low, most), low)
    high = np.where(high > ranges[1], np.nextafter(high, -most), high)
    return low, np.maximum(low, high)


def of_rows(number, rows):
    """Make uniform numbers as functions of the row, for one member."""
    return lambda purpose: row_keyed(rows, 16 * number + purpose)


def _of_stream(rows):
    """Take uniform numbers from torch's global stream."""
    return lambda purpose: global_stream
