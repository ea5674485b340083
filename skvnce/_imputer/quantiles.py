r"""Quantiles of missing cells, from draws.

If m draws of a cell and its true value come from the same distribution, the value is at
most the k-th smallest draw with probability

.. math:: P(y \le y_{(k)}) \ge k / (m + 1), \qquad (1)

with equality if no values repeat.  Quantiles are therefore draws: values that the cell
can have, without interpolation.

References
----------
David and Nagaraja (2003), Order statistics.
"""

from collections.abc import Callable, Sequence
from math import ceil, floor
from numbers import Real

import numpy as np

from skvnce._core.numbers import check_count
from skvnce._core.random import seed_from
from skvnce._imputer.fill import split
from skvnce._tables.limits import CellLimits
from skvnce._tables.schema import Schema

# 32 MiB of float64
_CHUNK = 2**22  # maximum number of cells, over all draws, in a chunk of rows
_ROUNDING = 1e-9  # of levels, in ranks: 0.05 * 200 is below 10


def check_share(value: object, name: str) -> None:
    """Check that a value is a number between 0 and 1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, exclusive, got {value!r}.")


def ranks_of_interval(level: float, n_draws: int) -> tuple[int, int]:
    """Find the ranks, from 0, of the draws that are the ends of an interval."""
    check_share(level, "level")
    check_count(n_draws, "n_draws")
    outside = (1 - level) / 2
    first = floor(outside * (n_draws + 1) + _ROUNDING)
    if not first:
        _reject(f"level={level!r}", outside, n_draws)
    return first - 1, n_draws - first


def ranks_of_quantiles(q: object, n_draws: int) -> list[int]:
    """Find the ranks, from 0, of the draws that are quantiles (n_quantiles,)."""
    check_count(n_draws, "n_draws")
    if not np.size(q):
        raise ValueError("q must have a number or more, got none.")
    ranks = []
    for share in np.ravel(q).tolist():
        check_share(share, "q")
        rank = ceil(share * (n_draws + 1) - _ROUNDING)
        if share * (n_draws + 1) < 1 - _ROUNDING or rank > n_draws:
            _reject(f"q={share!r}", min(share, 1 - share), n_draws)
        ranks.append(rank - 1)
    return ranks


def _reject(asked: str, share: float, n_draws: int) -> None:
    least = ceil(1 / share - _ROUNDING) - 1
    raise ValueError(
        f"{asked} needs n_draws of at least {least}, got n_draws={n_draws}."
    )


def ordered_draws(
    draw: Callable,
    schema: Schema,
    X: np.ndarray,  # (n_samples, n_features_in_)
    ranks: Sequence[int],
    n_draws: int,
    random_state: object,
    limits: CellLimits | None = None,
) -> np.ndarray:
    """Sort the draws of each missing cell of validated rows, and choose some.

    `draw`: maps rows, `random_state` and, if there are some, limits to tables of shape
    (n_draws, n, n_features_out); `ranks` int (n_ranks,): from 0 to n_draws - 1;
    `limits`: of the cells of X, for imputers that take them. Returns (n_ranks,
    n_samples, n_features_out).
    """
    columns = np.arange(X.shape[1])
    ranks, rng = list(ranks), np.random.default_rng(seed_from(random_state))
    found = np.repeat(X[None, :, schema.returned], len(ranks), 0)
    rows = np.flatnonzero(np.isnan(X).any(1))
    size = max(1, _CHUNK // (X.shape[1] * n_draws))
    for part in split(schema, X, size, rows):
        own = {} if limits is None else {"limits": limits.of(part, columns)}
        drawn = draw(X[part], random_state=rng, **own)
        # only some ranks are needed, which takes less than sorting
        found[:, part] = np.partition(drawn, sorted(set(ranks)), axis=0)[ranks]
    return found


def columns_with_order(schema: Schema) -> np.ndarray:
    """Return which columns have quantiles: all but nominal and empty ones."""
    known = np.zeros(schema.n_columns, dtype=bool)
    known[schema.with_data] = True
    for place, column in enumerate(schema.columns or ()):
        known[place] &= column.kind != "nominal"
    return known
