"""`partial_fit` of autoencoders: repeated fits, and then more training.

`skvnce.estimators._stream` repeats the fit while few rows are known.  In between, and
beyond the rows that can be kept, training goes on from the fitted modules, on batches
of the kept rows and of the new ones.  The kept rows are a random sample of the rows so
far and count for all of them, because networks that are trained on new rows alone
forget the old ones.  Cells of the new rows, which no training has used, are held out to
choose the number of rounds.
"""

from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from skvnce.estimators._members import random_weights
from skvnce.estimators._stream import Stream
from skvnce.estimators._tables import hold_out

_ENOUGH = 100  # minimum number of held-out cells that choose the number of rounds
_NOT_KEPT = "vbgi-vae"  # its network of missing cells is not kept after training


class Sample(NamedTuple):
    """Rows on which training goes on.

    Attributes
    ----------
    rows : ndarray of shape (n, n_features)
        Validated, the new ones last.
    weights : ndarray of shape (n,)
        Batches are drawn in proportion to these.
    hidden : Tensor of bool, of shape (n, n_nodes)
        Held-out cells of the new rows; none if all cells are used.
    share : float
        Share of the new rows in the total weight.
    """

    rows: np.ndarray
    weights: np.ndarray
    hidden: torch.Tensor
    share: float

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
    rng = np.random.default_rng([seed, len(X)])
    return stream._replace(n_new=len(stream.rows)).learned(rng)


def trained(members, stream, seed):
    """Train copies of members, unless there are too few new rows yet.

    Parameters
    ----------
    members : list of TrainedAutoencoder
    stream : Stream
    seed : int

    Returns
    -------
    members : list of TrainedAutoencoder
    stream : Stream
    """
    rng = np.random.default_rng([seed, stream.n_rows])
    if not members:
        return members, stream.learned(rng)
    sample = Sample.of(stream, members[0])
    judged = members[0]._solver()["validation_fraction"] > 0
    if judged and sample.hidden.sum() < _ENOUGH:
        return members, stream
    found = []
    for member in members:
        own = sample
        if len(members) > 1:
            factors = random_weights(rng, len(sample.rows))
            own = sample._replace(weights=sample.weights * factors)
        n_rounds = None
        if not judged:
            n_rounds = ceil(sample.share * member.max_iter)
        elif found:  # as many as the first one
            n_rounds = found[0].best_iter_
        found.append(member._continued(own, int(rng.integers(2**31)), n_rounds))
    return found, stream.learned(rng)
