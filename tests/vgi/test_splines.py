"""The splines are those of zuko, in values, inverses and gradients."""

import pytest
import torch

from skvnce._core.random import seeded
from skvnce.vgi.splines import MonotonicRQSTransform

Reference = MonotonicRQSTransform.__base__  # zuko itself is imported once, by `splines`


def outputs(kind, knots, x):
    """Evaluate a spline, its log-derivative, its inverse, and gradients of knots."""
    spline = kind(*knots, bound=4.0)
    y, log_slope = spline.call_and_ladj(x)
    total = (y + log_slope).sum()
    return [y, log_slope, spline.inv(y), *torch.autograd.grad(total, knots)]


@pytest.mark.parametrize("n_bins", [2, 4, 8, 20])
def test_splines_equal_those_of_zuko(n_bins, seed):
    with seeded(seed):
        knots = [
            torch.randn(50, 3, n).double().requires_grad_()
            for n in (n_bins, n_bins, n_bins - 1)
        ]
        x = 3 * torch.randn(50, 3).double()
    found = outputs(MonotonicRQSTransform, knots, x)
    torch.testing.assert_close(found, outputs(Reference, knots, x), rtol=0, atol=1e-8)
    torch.testing.assert_close(found[2], x, rtol=0, atol=1e-8)
    other = outputs(Reference, [knots[1], knots[0], knots[2]], x)  # a control
    assert (found[0] - other[0]).abs().max() > 0.1
