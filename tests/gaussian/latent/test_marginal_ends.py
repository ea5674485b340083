"""Scores at the ends of marginals, where sums of shares round."""

import numpy as np
import torch

from skvnce.gaussian.latent.columns import Marginal


def test_shares_that_round_above_one_have_scores():
    """The largest value, if several cells have it, had a score of NaN.

    `Caschool` then failed with "not positive definite", or had densities of NaN.
    """
    above = 0
    for n in range(100, 400, 7):
        cells = torch.cat([torch.arange(n).double(), torch.full((n // 10,), float(n))])
        found = Marginal.of(cells, torch.ones(len(cells)).double())
        assert not found.low.isnan().any() and not found.high.isnan().any()
        assert found.high[-1] > 7  # the score of one, but for rounding
        shares = np.bincount(cells.long()) / len(cells)
        above += float(torch.from_numpy(shares).cumsum(0)[-1]) > 1
    assert above > 5  # a control: such sums are common
