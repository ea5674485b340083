"""Rows of a stream that are kept, and the repeated fits of `partial_fit`.

A few rows do not show which marginals, how much shrinkage, or how many rounds are best.
So the first rows of a stream are kept, and the fit is repeated with all rows so far
when their number has doubled.  Beyond `MOST_KEPT` rows the choices are final:
`GaussianImputer` goes on by online EM.

Training of autoencoders goes on from the fitted modules between two fits, too, on
batches of the kept rows and of the new ones.  The kept rows are a random sample of the
rows so far and count for all of them, because networks that are trained on new rows
alone forget the old ones.  Cells of the new rows, which no training has used, are held
out to choose the number of rounds.
"""

from math import ceil
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._imputer.held_out import hold_out
from skvnce._imputer.parts.summary import rows_in_memory
from skvnce._tables.schema import Encoded
from skvnce._tables.values import ends_of
from skvnce._tables.weights import random_weights, rows_with_data

MOST_KEPT = 20_000  # rows of a stream by which its choices are made
_PART_KEPT = 5  # one of so many of the rows that a table in parts has in memory
_ENOUGH = 100  # minimum number of held-out cells that choose the number of rounds
_NOT_KEPT = "vbgi-vae"  # its network of missing cells is not kept after training


class Stream(NamedTuple):
    """What is kept of a stream, an attribute `_stream` of the estimator."""

    # (n_kept, n_features): as `incomplete_array` has returned them; each has an
    # observed cell
    rows: np.ndarray
    weights: np.ndarray  # (n_kept,): positive
    n_rows: int  # number of rows so far, those without a cell included
    # that number at the last fit; None if the fit is not to be repeated
    n_fitted: int | None
    # number of the last of the kept rows from which nothing has been learned yet
    n_new: int = 0

    @classmethod
    def of(cls, X, sample_weight=None):
        """Begin with a validated table, after a fit to it."""
        weights, kept = rows_with_data(X, sample_weight)
        return cls(X[kept], weights[kept], len(X), len(X))

    def followed_by(self, more: Self) -> Self:
        """Add new rows."""
        pairs = zip(self[:2], more[:2], strict=True)
        rows, weights = (np.concatenate(pair) for pair in pairs)
        n_rows, n_new = self.n_rows + more.n_rows, self.n_new + len(more.rows)
        return type(self)(rows, weights, n_rows, self.n_fitted, n_new)

    @classmethod
    def after(cls, stored: tuple | None, new: Self) -> Self:
        """Add new rows to what `stored` returned.

        None means that the rows before are not kept, after a call of `fit`.
        """
        if stored is None:
            return new._replace(n_fitted=None, n_new=len(new.rows))
        return cls(*stored).followed_by(new)

    @property
    def most(self):
        """The number of rows that are kept."""
        return min(MOST_KEPT, rows_in_memory(self.rows.shape[1]) // _PART_KEPT)

    @property
    def is_due(self):
        """Whether the fit is to be repeated."""
        known = self.n_fitted is not None
        return known and 2 * self.n_fitted <= self.n_rows <= self.most

    def refitted(self, estimator, **fit_params):
        """Repeat the fit of an estimator, and return what it keeps."""
        # ranges are those of all rows so far, and not those of the first table
        schema = estimator._schema._replace(ends=ends_of(self.rows))
        estimator.fit(Encoded(self.rows, schema), **fit_params)
        return self._replace(n_fitted=self.n_rows, n_new=0)

    def learned(self, rng):
        """Keep a random sample of all rows, if there are more than can be kept.

        Its weights are the numbers of rows that each stands for.
        """
        if len(self.rows) <= self.most:
            return self._replace(n_new=0)
        total, n_before = self.weights.sum(), len(self.rows) - self.n_new
        n_old = round(self.most * self.weights[:n_before].sum() / total)
        # if there are few new rows, the old ones fill their places
        n_old = min(n_before, max(n_old, self.most - self.n_new))
        old = rng.permutation(n_before)[:n_old]
        new = n_before + rng.permutation(self.n_new)[: self.most - n_old]
        chosen = np.concatenate([old, new])
        # equal, because rows are chosen in proportion to what they stand for
        weights = np.full(self.most, total / self.most)
        return self._replace(rows=self.rows[chosen], weights=weights, n_new=0)

    def stored(self):
        """Return a plain tuple with copies of the arrays, which skops can store."""
        return self.rows.copy(), self.weights.copy(), *self[2:]


def extended_values(schema, X):
    """Extend the ranges of the columns, and their repeated values, to new cells.

    Returns `found` (ValidValues); `ends` (2, n_features), smallest and largest observed
    cells.  Raises ValueError if new cells are outside the user's bounds.
    """
    known, old = schema.values, schema.ends
    new = ends_of(X)
    ends = np.stack([np.fmin(old[0], new[0]), np.fmax(old[1], new[1])])
    return known.extended(schema, X, old, ends), ends


class Sample(NamedTuple):
    """Rows on which training goes on."""

    rows: np.ndarray  # (n, n_features): validated, the new ones last
    weights: np.ndarray  # (n,): batches are drawn in proportion to these
    # bool (n, n_nodes): held-out cells of the new rows; none if all cells are used
    hidden: torch.Tensor
    share: float  # share of the new rows in the total weight

    @classmethod
    def of(cls, stream, member):
        """Select cells to hold out for a member."""
        nodes = stream.rows[:, member.feature_indices_].astype(np.float64)
        hidden = torch.zeros(nodes.shape, dtype=torch.bool)
        share = member._solver()["validation_fraction"]
        new = slice(len(nodes) - stream.n_new, None)
        if share and stream.n_new:
            own = torch.from_numpy(stream.weights[new])
            hidden[new] = hold_out(nodes[new], own, share)[1]
        part = stream.weights[new].sum() / stream.weights.sum()
        return cls(stream.rows, stream.weights, hidden, part)


def check_can_stream(algorithm):
    """Raise an error if an algorithm cannot go on from fitted modules."""
    if algorithm == _NOT_KEPT:
        raise ValueError(
            f"partial_fit cannot go on with algorithm={algorithm!r}, which does not "
            "keep its network of missing cells. Use another algorithm, or fit."
        )


def first_rows(X, seed):
    """Make the stream of the first call of `partial_fit`, a validated table."""
    stream = Stream.of(X)
    # with the number of rows, so that successive calls draw other numbers
    rng = np.random.default_rng([seed, len(X)])
    return stream._replace(n_new=len(stream.rows)).learned(rng)


def trained(members, stream, seed):
    """Train copies of members, unless there are too few new rows yet.

    `members` (list of VariationalAutoencoder), `stream` (Stream).  Returns `members`
    (list of VariationalAutoencoder); `stream` (Stream).
    """
    # as in `first_rows`
    rng = np.random.default_rng([seed, stream.n_rows])
    if not members:
        return members, stream.learned(rng)
    sample = Sample.of(stream, members[0])
    chooses = members[0]._solver()["validation_fraction"] > 0
    # few cells would choose the number of rounds by chance
    if chooses and sample.hidden.sum() < _ENOUGH:
        return members, stream
    found = []
    for member in members:
        own = sample
        if len(members) > 1:
            factors = random_weights(rng, len(sample.rows))
            own = sample._replace(weights=sample.weights * factors)
        n_rounds = None
        if not chooses:
            n_rounds = ceil(sample.share * member.max_iter)
        elif found:  # as many as the first one
            n_rounds = found[0].best_iter_
        found.append(member._continued(own, int(rng.integers(2**31)), n_rounds))
    return found, stream.learned(rng)
