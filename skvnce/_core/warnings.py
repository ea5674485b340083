"""Warnings that point at the user's line, at any depth of the call stack."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# contextlib and functools, because they call our contexts and decorated functions
_PASSED = frozenset({"skvnce", "sklearn", "joblib", "contextlib", "functools"})

_FOR_FILLING = "are for filling"


def warn_of_draws(name: str) -> None:
    """Warn that draws of an imputer are not for pooled estimates."""
    warn_user(
        f"Draws of {name} {_FOR_FILLING}: intervals of estimates that are pooled over "
        "them contain the truth too rarely. Use TableImputer for estimates with "
        "standard errors."
    )


@contextmanager
def without_pooling() -> Iterator[None]:
    """Leave out the warning of `warn_of_draws`, where no estimates are pooled."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f"Draws of .* {_FOR_FILLING}")
        yield


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line outside skvnce and outside libraries that call it.

    This is the line that calls `fit`, also if a pipeline or a search makes the call.
    If there is none (in a thread that a library started), it is the outermost line.
    """
    frame, level = sys._getframe(1), 2  # level 1 would be this function
    while _is_passed(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_passed(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED
