"""Objects from zuko: monotone splines, and the transformations of flows.

The import of zuko turns off torch's checks of distributions for the whole process; this
module restores them.
"""

from math import log

from torch import Tensor, nn
from torch.distributions import Distribution

_checks = Distribution.__dict__["_validate_args"]

from zuko.flows.autoregressive import MaskedAutoregressiveTransform  # noqa: E402
from zuko.transforms import ComposedTransform, LULinearTransform  # noqa: E402
from zuko.transforms import MonotonicRQSTransform as _Spline  # noqa: E402

Distribution.set_default_validate_args(_checks)

__all__ = [
    "ComposedTransform",
    "LULinearTransform",
    "MaskedAutoregressiveTransform",
    "MonotonicRQSTransform",
]


class MonotonicRQSTransform(_Spline):
    """A monotone rational-quadratic spline, the same as that of zuko.

    The softmax over the bins is computed along the first axis of a copy: torch is about
    ten times slower along a last axis of fewer than 16 numbers.
    """

    def __init__(
        self,
        widths: Tensor,  # (*batch, n_bins): unconstrained
        heights: Tensor,  # (*batch, n_bins)
        derivatives: Tensor,  # (*batch, n_bins - 1): unconstrained
        bound: float = 5.0,  # the spline is the identity outside of [-bound, bound]
        slope: float = 1e-3,  # the smallest slope
    ) -> None:
        super(_Spline, self).__init__()
        floor = abs(log(slope))
        self.horizontal = _knots(widths, bound, floor / 2)
        self.vertical = _knots(heights, bound, floor / 2)
        inner = derivatives / (1 + derivatives.abs() / floor)
        self.derivatives = nn.functional.pad(inner, (1, 1)).exp()


def _knots(raw: Tensor, bound: float, floor: float) -> Tensor:
    """Map unconstrained sizes of bins to knots in [-bound, bound]."""
    limited = raw / (1 + raw.abs() / floor)
    shares = limited.movedim(-1, 0).contiguous().softmax(0).movedim(0, -1)
    return bound * (2 * nn.functional.pad(shares.cumsum(-1), (1, 0)) - 1)
