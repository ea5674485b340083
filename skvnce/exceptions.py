"""Warnings and errors of skvnce."""


class MisfitWarning(UserWarning):
    """The data are beyond what the fitted model can describe."""
