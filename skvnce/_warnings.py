"""Warnings that point at the user's line, at any depth of the call stack."""

import sys
import warnings
from types import FrameType

# contextlib and functools, because they call our contexts and decorated functions
_PASSED = frozenset({"skvnce", "sklearn", "joblib", "contextlib", "functools"})


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line outside skvnce and outside libraries that call it.

    This is the line that calls `fit`, also if a pipeline or a search makes the call.
    If there is none (in a thread that a library started), it is the outermost line.

    Parameters
    ----------
    message : str
    category : type of Warning, default=UserWarning
    """
    frame, level = sys._getframe(1), 2  # level 1 would be this function
    while _is_passed(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_passed(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED
