"""Methods that only some models have, and errors that say why the others do not."""

from functools import update_wrapper
from types import MethodType

NO_DENSITY = "its model has no log-density of the observed cells."
NO_NEW_ROWS = (
    "it draws cells of rows of a table, by sample. GaussianImputer without groups, "
    "MixtureImputer and CopulaGraphLearner draw new rows; of your own density, draw "
    "them by the density itself."
)


def available_where(flag, why):
    """Decorate a method that an object has only where an attribute of it is true.

    scikit-learn's `available_if` gives no reason.

    `flag` str: the name of the attribute; `why` str: sentences of the error that say
    what the model lacks, and what has it.
    """
    return lambda method: _Available(method, flag, why)


class _Available:
    def __init__(self, method, flag, why):
        self._method, self._flag, self._why = method, flag, why
        update_wrapper(self, method)

    def __get__(self, owner, cls=None):
        if owner is None:
            return self._method
        if getattr(owner, self._flag):
            return MethodType(self._method, owner)
        name = self._method.__name__
        raise AttributeError(f"This {cls.__name__} has no {name}: {self._why}")
