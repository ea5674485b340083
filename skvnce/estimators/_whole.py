"""Errors for tables in parts where an estimator needs all rows in memory."""

from skvnce.estimators._memory import check_given
from skvnce.tables.containers import refuse_parts

_IN_PARTS = "GaussianImputer, CopulaGraphLearner and IncompleteFactorAnalysis"


def needs_memory(cls, X, *, reset, name="X"):
    """Raise an error if a method that reads all rows at once gets a table in parts.

    Parameters
    ----------
    cls : type
        The class of the estimator.
    X : array-like
    reset : bool
        Whether `fit` reads the table.
    name : str, default="X"
        The name of X in the error.

    Raises
    ------
    TypeError
        Names the estimator, and says what to do.
    ValueError
        If X has more than two dimensions.
    MemoryError
        If `fit` cannot fit in memory, before it copies the table.
    """
    owner = cls.__name__
    if not reset:
        reader = f"This method of {owner}"
        remedy = "call it for each part, such as {part}"
    elif hasattr(cls, "transform"):
        reader = f"{owner}.fit"
        remedy = (
            "fit to a sample of its rows, and call transform, which takes tables in "
            f"parts, for all of them. {_IN_PARTS} are fitted to tables in parts"
        )
    else:
        reader = f"{owner}.fit"
        remedy = "fit to a sample of its rows, and predict each part"
    refuse_parts(X, name, reader, remedy)
    if getattr(X, "ndim", 2) > 2:  # here, so that it is not another that says so
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required by {owner}."
        )
    if reset and name == "X":
        check_given(cls, X)
