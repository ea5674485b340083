"""Objects from zuko: monotone splines, and the transformations of flows.

The import of zuko turns off torch's checks of distributions for the whole process; this
module restores them.
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
