"""Warnings that point at the user's line, at whatever depth they are found."""

import sys
import warnings
from types import FrameType

_PASSED = frozenset({"skvnce", "sklearn", "joblib", "contextlib", "functools"})


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line outside of skvnce and of what may call it for the user.

    That is the line of the call of `fit`, also where a pipeline or a search makes the
    call.  Where there is none (a thread that a library started), the outermost line.

    Parameters
    ----------
    message : str
    category : type of Warning, default=UserWarning
    """
    frame, level = sys._getframe(1), 2  # 1 would be this function
    while _is_passed(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_passed(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED
