"""The weight of generalised score matching for densities on x >= 0.

Hyvarinen (2007); Yu, Drton and Shojaie (2019), eq. (6).
"""

from collections.abc import Callable

from torch import Tensor

Weight = Callable[[Tensor], tuple[Tensor, Tensor]]  # x -> h(x) and its slope


def saturating_weight(x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the boundary weight h(x) = 1 - exp(-x) and its slope.

    It is 0 at the bound, so that the boundary terms of the integration by parts are
    zero, too, and it is bounded, which limits the influence of large values.  For
    columns scaled to unit standard deviation it finds more edges than min(x, cap) or
    x**2 (table in the user guide).
    """
    decay = (-x).exp()
    return 1 - decay, decay
