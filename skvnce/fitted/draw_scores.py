"""Scores of draws of held-out cells, by which models are compared."""

from collections.abc import Sequence

import numpy as np
import torch

from skvnce.fitted.base import CellModel
from skvnce.fitted.held_out_check import some_rows
from skvnce.tables.statistics import fair_scores

_DRAWS = 40  # the score is fair to any number; with 40 noise of draws hardly adds
_ROWS = 300  # in which cells are drawn; more are rarely needed for a decision


def draw_score(
    models: Sequence[CellModel],
    nodes: np.ndarray,  # (n, n_nodes), rows with the held-out cells
    hidden: np.ndarray,  # bool (n, n_nodes)
    scale: np.ndarray,  # (n_nodes,), standard deviations
    is_categorical: np.ndarray,  # bool (n_nodes,)
) -> float:
    """Score draws of held-out cells: the mean energy score of single cells.

    With m draws x_k of a cell of truth y, and distances d, it is

        sum_k d(x_k, y) / m - sum_kl d(x_k, x_l) / (2 m (m - 1)),                   (1)

    the fair score of Ferro (2014).  d is the distance of numbers in standard deviations
    of the column, for which eq. (1) is the continuous ranked probability score, and 1
    for different categories, for which it is half of the Brier score (Gneiting and
    Raftery 2007).

    `models`: fitted without the held-out cells; draws are of each equally often.
    Returns the mean over at most 300 rows, smaller is better; NaN without held-out
    cells.  Random numbers are of torch's global stream.
    """
    rows = some_rows(nodes, np.flatnonzero(hidden.any(1)), _ROWS)
    if not len(rows):
        return np.nan
    nodes, hidden = nodes[rows], hidden[rows]
    with torch.no_grad():
        kept, number = np.where(hidden, np.nan, nodes), _DRAWS // len(models)
        drawn = np.concatenate([one.draw(kept, number) for one in models])
    numbers, levels = hidden & ~is_categorical, hidden & is_categorical
    unit = np.broadcast_to(scale, nodes.shape)[numbers]
    of_numbers = fair_scores((drawn[:, numbers] - nodes[numbers]) / unit)
    drawn, truth = _indicators(drawn[:, levels], nodes[levels])
    total = of_numbers.sum() + fair_scores(drawn - truth).sum() / 2
    return float(total / hidden.sum())


def _indicators(draws: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code categories by indicators; the distance of different ones is then 2."""
    levels = np.arange(int(max(draws.max(initial=0), truth.max(initial=0))) + 1)
    found = draws[..., None] == levels, truth[..., None] == levels
    return found[0].astype(float), found[1].astype(float)
