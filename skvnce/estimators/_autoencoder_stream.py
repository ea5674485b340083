"""`partial_fit` of autoencoders: repeated fits, and then more training.

`skvnce.estimators._stream` repeats the fit while few rows are known.  In between, and
beyond the rows that can be kept, training goes on from the fitted modules, on batches
of the kept rows and of the new ones.  The kept rows are a random sample of the rows so
far and count for all of them, because networks that are trained on new rows alone
forget the old ones.  Cells of the new rows, which no training has used, are held out to
choose the number of rounds.
"""

from copy import copy
from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import seed_from
from skvnce.algorithms.vae.losses import ALGORITHMS
from skvnce.algorithms.vae.rounds import Rounds
from skvnce.estimators._members import random_weights
from skvnce.estimators._stream import Stream, widen, widened
from skvnce.estimators._tables import hold_out
from skvnce.training.rounds import COOLING

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


def keep_first_rows(estimator, X):
    """Keep the rows of the first call of `partial_fit`, a validated table."""
    stream = Stream.of(X)
    rng = np.random.default_rng([seed_from(estimator.random_state), len(X)])
    estimator._stream = stream._replace(n_new=len(stream.rows)).learned(rng).stored()


def go_on(estimator, X, members, keep):
    """Learn from a validated table.

    Parameters
    ----------
    estimator : VariationalAutoencoder or LAIRImputer
        Fitted.
    X : ndarray of shape (n_samples, n_features)
    members : list of TrainedAutoencoder
    keep : callable
        Takes their trained copies, unless the fit of the estimator is repeated.
    """
    new = Stream.of(X)
    widened(estimator._schema, new.rows)  # raises an error for its rows
    if estimator._stream is None:  # after a call of `fit`, whose rows are not kept
        stream = new._replace(n_fitted=None, n_new=len(new.rows))
    else:
        stream = Stream(*estimator._stream).followed_by(new)
    if stream.is_due:
        estimator._stream = stream.refitted(estimator).stored()
        return
    rng = np.random.default_rng([seed_from(estimator.random_state), stream.n_rows])
    widen(estimator, new.rows)
    found, stream = _trained(members, stream, rng)
    keep(found)
    estimator._stream = stream.stored()


def _trained(members, stream, rng):
    """Train copies of members, unless there are too few new rows yet."""
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
        found.append(continued(member, own, int(rng.integers(2**31)), n_rounds))
    return found, stream.learned(rng)


def continued(member, sample, seed, n_rounds):
    """Copy a fitted autoencoder, and train the copy on rows.

    Parameters
    ----------
    member : TrainedAutoencoder
    sample : Sample
    seed : int
    n_rounds : int or None
        Number of rounds on all cells.  None chooses it by the held-out cells.

    Returns
    -------
    TrainedAutoencoder
    """
    member._check_algorithm()
    found = copy(member)
    nodes = sample.rows[:, member.feature_indices_].astype(np.float64)
    seen = ~np.isnan(nodes).all(1)
    if not seen.any():
        return found
    with member._trains(seed):
        rounds = _rounds_of(member, nodes[seen], sample.weights[seen])
        if n_rounds is None:
            hidden = sample.hidden[torch.from_numpy(seen)].to(rounds.data.x.device)
            best, losses, gains = _while_better(member, rounds, hidden)
        else:
            best, gains = n_rounds, []
            losses = rounds.on_all(best, min(COOLING, best), _never)
    found.best_iter_, found.validation_scores_ = best, gains
    found._keep_modules(rounds.auto)
    found.loss_curve_ = [*member.loss_curve_, *losses]
    found.n_iter_ = len(found.loss_curve_)
    return found


def _rounds_of(member, nodes, weights):
    """Make the training of a member's modules, on its device."""
    device = member._device()
    data, _ = member._cell_scores().scores(Incomplete.from_array(nodes))
    return Rounds(
        member._in_training().on(device),
        Incomplete(data.x.float(), data.observed).on(device),
        torch.from_numpy(weights),
        ALGORITHMS[member.algorithm],
        member._training(),
        member._architecture(),
    )


def _while_better(member, rounds, hidden):
    """Train while held-out cells are predicted better.

    The best averages of the parameters are kept.  Rounds on all cells would add the
    noise of a few steps; the held-out cells are among those of the kept rows later.
    """
    losses, gains = [], []

    def judged(n_round, loss, gain):
        losses.append(loss)
        gains.append(gain)
        return False

    limits = {
        "max_rounds": member.max_iter,
        "patience": member._solver()["n_iter_no_change"],
    }
    best = rounds.while_better(hidden, **limits, on_round=judged)
    return best, losses, gains


def _never(n_round, loss):
    return False
