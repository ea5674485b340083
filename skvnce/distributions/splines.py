"""What we take from zuko: monotone splines, and the maps of flows.

The import of zuko turns torch's checks of distributions off for the whole process; here
they are left as they were.
"""

from torch.distributions import Distribution

_checks = Distribution.__dict__["_validate_args"]

from zuko.flows.autoregressive import MaskedAutoregressiveTransform  # noqa: E402
from zuko.transforms import (  # noqa: E402
    ComposedTransform,
    LULinearTransform,
    MonotonicRQSTransform,
)

Distribution.set_default_validate_args(_checks)

__all__ = [
    "ComposedTransform",
    "LULinearTransform",
    "MaskedAutoregressiveTransform",
    "MonotonicRQSTransform",
]
