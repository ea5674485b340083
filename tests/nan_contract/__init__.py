"""The NaN contract: checks of how estimators treat tables with missing values.

scikit-learn's ``check_estimator`` hardly ever puts NaN into a table: an imputer that
imputes nothing passes it. The checks apply to every estimator with ``fit`` and
``transform`` on tables with NaN; those of ``score``, ``score_samples(X)`` and
``sample(X, n_draws=, random_state=)`` run if the estimator has these methods.
``sample`` returns a list of tables in the container of ``transform``. Data are
non-negative if the estimator's tag ``input_tags.positive_only`` is set. For
transformers with their own output columns (those with scikit-learn's
``ClassNamePrefixFeaturesOutMixin``) the checks require finite values, for imputers
filled cells.
"""

import warnings
from functools import partial
from unittest import SkipTest

from sklearn.base import clone

from nan_contract import checks
from nan_contract.requirements import draws_cells, imputes, is_positive


def nan_checks(estimator):
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
    for function, check in vars(checks).items():
        name = function.removeprefix("check_")
        if name != function and applies.get(name.split("_")[0], True):
            yield name, partial(_run, name, check, estimator)


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
