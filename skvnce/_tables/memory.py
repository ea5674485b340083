"""Errors for fits that do not fit in memory, and for tables in parts."""

import math
import os
from pathlib import Path

import numpy as np
from scipy import sparse

from skvnce._tables.frames import reject_parts

# of versions 2 and 1 of control groups
_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

_READERS_OF_PARTS = (
    "GaussianImputer, CopulaGraphLearner, IncompleteFactorAnalysis and MixtureImputer"
)
_SMALLER = (
    "Fit to a sample of the rows; transform takes all of them in parts. "
    f"{_READERS_OF_PARTS} are also fitted to tables in parts, such as "
    "skvnce.options.Chunks.from_array(X) or a data frame of dask."
)


def memory_limit() -> float:
    """Return the memory of the machine, or of its container, in bytes; inf if unknown.

    It is not the free memory: what is larger never fits.
    """
    try:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on all systems
        limit = math.inf
    for path in _CGROUPS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        # version 2 says "max" if there is no limit
        if text.isdigit():
            limit = min(limit, int(text))
    return limit


def check_fit(cls: type, shape: tuple, itemsize: int = 8) -> None:
    """Raise a MemoryError if a table of X is larger than the memory."""
    n, d = shape
    what = f"The {n:,.0f} rows and {d:,} columns that {cls.__name__}.fit reads"
    check_memory(float(itemsize) * n * d, what, _SMALLER)


def check_memory(n_bytes: float, what: str, remedy: str) -> None:
    """Raise a MemoryError if arrays, named in plural, are larger than the memory."""
    limit = memory_limit()
    if n_bytes > limit:
        raise MemoryError(
            f"{what} need {n_bytes / 2**30:,.1f} GiB, and the memory is "
            f"{limit / 2**30:,.1f} GiB. {remedy}"
        )


def needs_memory(cls: type, X: object, *, reset: bool, name: str = "X") -> None:
    """Raise an error if a method that reads all rows at once gets a table in parts.

    `reset` says that `fit` reads the table, whose memory is checked before it is
    copied.
    """
    owner = cls.__name__
    if not reset:
        reader = f"This method of {owner}"
        remedy = "call it for each part, such as {part}"
    elif hasattr(cls, "transform"):
        reader = f"{owner}.fit"
        remedy = (
            "fit to a sample of its rows, and call transform, which takes tables in "
            f"parts, for all of them. {_READERS_OF_PARTS} are fitted to tables in parts"
        )
    else:
        reader = f"{owner}.fit"
        remedy = "fit to a sample of its rows, and predict each part"
    reject_parts(X, name, reader, remedy)
    if getattr(X, "ndim", 2) > 2:  # here, so that it is not another that says so
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required by {owner}."
        )
    shape = getattr(X, "shape", ())  # of lists it is known once they have been read
    # the shape of a sparse table says little about its memory
    if reset and name == "X" and len(shape) == 2 and not sparse.issparse(X):
        check_fit(cls, shape, getattr(getattr(X, "dtype", None), "itemsize", 8))


def check_draws(n_draws: int, X: np.ndarray) -> None:
    """Raise an error if completed tables do not fit in memory: twice, at the end."""
    n, d = X.shape
    check_memory(
        2.0 * n_draws * X.nbytes,
        f"{n_draws:,} completed tables of {n:,} rows and {d:,} columns",
        "Call sample for parts of the rows or with a smaller n_draws, and use each "
        "before the next call.",
    )
