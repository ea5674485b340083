"""The command line of a benchmark; see `_runner`."""

from _runner import Some, options_of

__all__ = ["Some", "options_of"]
