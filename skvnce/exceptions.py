"""Warnings and errors of skvnce."""


class DivergenceError(ValueError, FloatingPointError):
    """A fit has diverged: numbers overflow, or Markov chains leave the data.

    The message names the parameter to change.  All estimators raise this class, so that
    a search over parameters can catch it.
    """


class MisfitWarning(UserWarning):
    """The fitted model cannot describe the data."""


class TableWarning(UserWarning):
    """Cells, levels or rows of a table probably mean something else."""
