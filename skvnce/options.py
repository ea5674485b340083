"""Settings of estimators, and what they are built of.

These classes are no estimators: an object is passed to one, such as
``solver=Adam(batch_size=64)``.  Each name is imported at its first use, as those of
`skvnce` are.
"""

from skvnce import _lazy

__getattr__, __dir__, __all__ = _lazy.names_of_stub(__name__, "options.pyi")
