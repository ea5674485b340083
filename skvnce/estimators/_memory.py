"""Errors before a computation starts that cannot fit in memory."""

import math
import os
from pathlib import Path

_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

_N_MATRICES = 4  # covariance, precision, root, moments, or others of their size
IN_PARTS = (  # remedy of estimators that read tables in parts
    "Fit to the table in parts: skvnce.Chunks.from_array(X), or a data frame of dask."
)


def memory_limit():
    """Return the memory of the machine, or of its container, in bytes; inf if unknown.

    It is not the free memory: what is larger never fits.
    """
    try:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on all systems
        limit = math.inf
    for path in _CGROUPS:
        try:
            found = path.read_text().strip()
        except OSError:
            continue
        if found.isdigit():
            limit = min(limit, int(found))
    return limit


def check_fit(shape, n_copies, remedy):
    """Raise an error if a fit to a table does not fit in memory.

    Parameters
    ----------
    shape : tuple of int
        Numbers of rows and columns.
    n_copies : int
        Number of tables of this size that are in memory together, at least.
    remedy : str

    Raises
    ------
    MemoryError
    """
    n, d = shape
    check_memory(
        8.0 * d * (n_copies * n + _N_MATRICES * d),
        f"The {n_copies} copies of a table of {n:,} rows and {d:,} columns that a fit "
        f"makes, and {_N_MATRICES} matrices of all pairs of columns,",
        remedy,
    )


def check_memory(n_bytes, what, remedy):
    """Raise an error if some arrays are larger than the memory.

    Parameters
    ----------
    n_bytes : float
        Size of arrays that have to be in memory together.
    what : str
        What they are, with the numbers of rows and columns.
    remedy : str

    Raises
    ------
    MemoryError
    """
    limit = memory_limit()
    if n_bytes > limit:
        raise MemoryError(
            f"{what} need {n_bytes / 2**30:,.1f} GiB, and the memory is "
            f"{limit / 2**30:,.1f} GiB. {remedy}"
        )
