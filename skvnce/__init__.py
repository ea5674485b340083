"""Statistical models of tables with missing values, with a scikit-learn interface.

The names of ``__init__.pyi`` are public.  Each is imported at its first use, so that
``import skvnce`` is fast and does not load torch.
"""

from skvnce import _lazy

__getattr__, __dir__, __all__ = _lazy.names_of_stub(__name__, "__init__.pyi")
