"""The list of the checks of the NaN contract, and their run."""

import warnings
from functools import partial
from typing import Any
from unittest import SkipTest

from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning

from skvnce._core.warnings import warn_user
from skvnce.testing import _checks
from skvnce.testing._requirements import draws_cells, imputes, is_positive, require


def nan_checks(estimator: Any) -> Any:
    """List the checks of the NaN contract that apply to an estimator.

    Parameters
    ----------
    estimator : estimator instance
        Unfitted, with ``fit`` and ``transform``. Each check works on clones of it.

    Yields
    ------
    name : str
        Name of the check.
    check : callable
        Runs the check when called without arguments. It raises ``AssertionError``
        if the estimator fails, ``unittest.SkipTest`` if a package is missing.

    Notes
    -----
    The checks named ``parallel_*`` start worker processes: a script that runs them
    needs the guard ``if __name__ == "__main__":``. Warnings of category
    ``UserWarning``, such as those of convergence, are ignored inside the checks.
    """
    applies = {
        "support": is_positive(estimator),
        "score": hasattr(estimator, "score") or hasattr(estimator, "score_samples"),
        "sample": draws_cells(estimator),
        "accuracy": imputes(estimator),
    }
    for function, check in vars(_checks).items():
        name = function.removeprefix("check_")
        if name != function and applies.get(name.split("_")[0], True):
            yield name, partial(_run, name, check, estimator)


def check_nan_contract(estimator: Any) -> None:
    """Run every check of the NaN contract on an estimator.

    Parameters
    ----------
    estimator : estimator instance
        Unfitted, with ``fit`` and ``transform``.

    Raises
    ------
    AssertionError
        If any check fails; the message has one paragraph for each failure.

    Warns
    -----
    SkipTestWarning
        For each check that needs a package which is not installed.
    """
    failures = []
    for name, check in nan_checks(estimator):
        try:
            check()
        except SkipTest as skipped:
            warn_user(f"{name}: {skipped}", SkipTestWarning)
        except AssertionError as error:
            failures.append(str(error))
    require(not failures, "\n\n".join(failures))


def _run(name, check, estimator):
    """Run one check on a clone; errors name the estimator and the check."""
    unfitted = clone(estimator)
    if "random_state" in unfitted.get_params():
        # a check must pass or fail each time
        unfitted.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            check(unfitted)
        # before Exception, of which it is a subclass
        except SkipTest:
            raise
        except Exception as error:
            failed = isinstance(error, AssertionError)
            reason = str(error) if failed else f"raised {error!r}"
            message = f"{type(estimator).__name__}, check {name}: {reason}"
            raise AssertionError(message) from error
