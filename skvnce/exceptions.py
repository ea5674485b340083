"""Warnings and errors of skvnce."""


class MisfitWarning(UserWarning):
    """The fitted model cannot describe the data."""
