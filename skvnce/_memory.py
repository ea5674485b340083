"""Errors for fits that do not fit in memory, and for tables in parts."""

import math
import os
from pathlib import Path

import numpy as np
from scipy import sparse

from skvnce.tables.containers import reject_parts

# of versions 2 and 1 of control groups
_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

# Tables of the size of X, for NoisyOr of its missing cells and ones, that a fit has in
# memory together, at least.  From 40,000 to 120,000 rows of 10 columns the peak of
# short fits grows by 31 tables (VariationalAutoencoder, LAIRImputer), 14 (VGIImputer),
# 42 (VNCEEstimator), 23 (MixtureImputer) and 7 (NoisyOr).
_COPIES = {
    "ColumnImputer": 8,
    "CopulaGraphLearner": 8,
    "GaussianImputer": 4,
    "IncompleteFactorAnalysis": 4,
    "LAIRImputer": 8,
    "MixtureImputer": 8,
    "NoisyOr": 4,
    "TableImputer": 16,
    "TruncatedGaussianGraphLearner": 8,
    "VGIImputer": 6,
    "VNCEEstimator": 8,
    "VariationalAutoencoder": 8,
}
_N_MATRICES = 4  # covariance, precision, root, moments, or others of their size
_WITHOUT_PAIRS = {"NoisyOr", "VNCEEstimator"}
_PARTS = {"CopulaGraphLearner", "GaussianImputer", "IncompleteFactorAnalysis"}
_PARTS |= {"MixtureImputer", "TableImputer"}
_IN_PARTS = (
    "Fit to the table in parts: skvnce.options.Chunks.from_array(X), or a data "
    "frame of dask."
)
_SAMPLE = "Fit to a sample of the rows; transform takes all of them in parts."


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
            found = path.read_text().strip()
        except OSError:
            continue
        # version 2 says "max" if there is no limit
        if found.isdigit():
            limit = min(limit, int(found))
    return limit


def check_fit(cls: type, shape: tuple) -> None:
    """Raise an error if a fit to a table does not fit in memory.

    Parameters
    ----------
    cls : type
        The class of the estimator.
    shape : tuple of int
        Numbers of rows and columns.

    Raises
    ------
    MemoryError
    """
    n, d = shape
    name = _counted_name(cls)
    n_copies, n_matrices = _COPIES[name], _N_MATRICES * (name not in _WITHOUT_PAIRS)
    what = (
        f"The {n_copies} copies of a table of {n:,} rows and {d:,} columns that "
        f"{name}.fit makes"
    )
    if n_matrices:
        what += f", and {n_matrices} matrices of all pairs of columns,"
    n_bytes = 8.0 * d * (n_copies * n + n_matrices * d)
    check_memory(n_bytes, what, _IN_PARTS if name in _PARTS else _SAMPLE)


def check_given(cls: type, X: object) -> None:
    """Raise an error if a fit to a table does not fit in memory, before it is read.

    Parameters
    ----------
    cls : type
        The class of the estimator.
    X : array-like
        Tables without a shape, such as lists, pass: their shape is known once they have
        been read.

    Raises
    ------
    MemoryError
    """
    shape = getattr(X, "shape", ())
    # the shape of a sparse table says little about its memory
    if len(shape) != 2 or sparse.issparse(X):
        return
    if _counted_name(cls) in {None, "NoisyOr"}:  # copies have other sizes
        what = f"A byte for each cell of a table of {shape[0]:,} rows and "
        check_memory(1.0 * shape[0] * shape[1], f"{what}{shape[1]:,} columns", _SAMPLE)
    else:
        check_fit(cls, shape)


def _counted_name(cls: type) -> str:
    """Find the class whose copies are known; None if there is none."""
    # a user's subclass makes the copies of its parent
    names = [one.__name__ for one in cls.__mro__]
    return next((name for name in names if name in _COPIES), None)


def check_memory(n_bytes: float, what: str, remedy: str) -> None:
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


_READERS_OF_PARTS = (
    "GaussianImputer, CopulaGraphLearner, IncompleteFactorAnalysis and MixtureImputer"
)


def needs_memory(cls: type, X: object, *, reset: bool, name: str = "X") -> None:
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
    if reset and name == "X":
        check_given(cls, X)


def check_draws(n_draws: int, X: np.ndarray) -> None:
    """Raise an error if completed tables do not fit in memory: twice, at the end."""
    n, d = X.shape
    check_memory(
        2.0 * n_draws * X.nbytes,
        f"{n_draws:,} completed tables of {n:,} rows and {d:,} columns",
        "Call sample for parts of the rows or with a smaller n_draws, and use each "
        "before the next call.",
    )
