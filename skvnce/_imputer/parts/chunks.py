"""Tables in chunks of rows, of which one at a time is in memory."""

import re
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.numbers import check_count

ROWS = 100_000  # default number of rows of a chunk
# rows from which shrinkage, marginals and calibration are chosen
MOST_ROWS = 100_000
MOST_CELLS = 2**25  # of these rows: 256 MiB


class Chunks:
    """A table as a sequence of chunks of rows, of which one at a time is in memory.

    `GaussianImputer.fit` reads the chunks once in each round of EM; `transform`,
    `sample` and `score_samples` return chunks that are computed when they are read.
    The fit does not depend on how the rows are divided into chunks.

    Parameters
    ----------
    chunks : sequence
        Of tables of equal columns, or of functions without arguments that return them.
        A function is called each time that its chunk is read, and must return the same
        table each time; `fit` compares rows, observed cells and their sum.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import GaussianImputer
    >>> from skvnce.options import Chunks
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 1)) + rng.normal(size=(600, 3))
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> chunks = Chunks([X[:200], X[200:500], X[500:]])
    >>> imputer = GaussianImputer(random_state=0).fit(chunks)
    >>> chunks
    Chunks(3 parts)
    >>> [len(filled) for filled in imputer.transform(chunks)]
    [200, 300, 100]
    >>> bool(np.allclose(imputer.mean_, GaussianImputer(random_state=0).fit(X).mean_))
    True
    """

    def __init__(self, chunks: Sequence[Any]) -> None:
        if not isinstance(chunks, Sequence):
            raise TypeError(
                "chunks must be a sequence, because EM reads it several times, got "
                f"{type(chunks).__name__}. Pass list(chunks), or a list of functions "
                "that return chunks."
            )
        if not len(chunks):
            raise ValueError("chunks is empty: nothing to learn.")
        self._chunks = chunks

    @classmethod
    def from_array(cls, X: ArrayLike, n_rows: int = ROWS) -> Self:
        """Make chunks of consecutive rows of an array, such as a memory-mapped one.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            The table.
        n_rows : int, default=100_000
            Number of rows of each chunk, except for the last one.

        Returns
        -------
        Chunks
        """
        check_count(n_rows, "n_rows")
        return cls(
            [
                partial(_slice, X, slice(first, first + n_rows))
                for first in range(0, len(X), n_rows)
            ]
        )

    @classmethod
    def from_parquet(
        cls, path: str | PathLike[str] | Sequence[str | PathLike[str]]
    ) -> Self:
        """Make chunks of the row groups of parquet files; needs pyarrow.

        Parameters
        ----------
        path : str or path-like, or list of these
            Files of equal columns; of a folder, its files ``*.parquet`` by name, with
            numbers in names in increasing order.

        Returns
        -------
        Chunks
            Of pandas data frames.

        Raises
        ------
        TypeError
            If `path` is no name.
        FileNotFoundError
            If there is no such file or folder.
        ValueError
            If `path` is empty, a folder has no such file, or a file cannot be read.
        """
        import pyarrow.parquet as pq

        paths = path if isinstance(path, list | tuple) else [path]
        readers = []
        for file in chain.from_iterable(map(_parquet_files, paths)):
            with _file_named(file):
                groups = range(pq.read_metadata(file).num_row_groups)
            readers += [partial(_row_group, file, group) for group in groups]
        return cls(readers)

    def __len__(self):
        """Return the number of chunks."""
        return len(self._chunks)

    def __repr__(self):
        """Say how many chunks there are, without reading one."""
        return "Chunks(1 part)" if len(self) == 1 else f"Chunks({len(self):,} parts)"

    def __getitem__(self, number):
        """Read a chunk, or make chunks of a slice of them."""
        if isinstance(number, slice):
            return type(self)(self._chunks[number])
        chunk = self._chunks[number]
        return chunk() if callable(chunk) else chunk

    def __iter__(self):
        """Read the chunks in turn."""
        return (self[number] for number in range(len(self)))

    def _numbered(self, function):
        """Apply a function of the number of a chunk and the chunk."""
        numbers = range(len(self))
        return type(self)([partial(_applied, function, self, k) for k in numbers])

    _numbers = _numbered  # of a function that returns a number for each row

    def _tables(self, function, names):
        """Apply a function of number and chunk that returns a table."""
        return self._numbered(function)

    def _head(self):
        """Return some rows, to learn the columns from."""
        return self[0]

    def _weights(self, sample_weight):
        """Check that there are weights for each chunk."""
        if sample_weight is None:
            return None
        if not isinstance(sample_weight, Chunks):
            raise TypeError(
                "sample_weight must be Chunks, with an array of weights for each chunk "
                f"of X, got {type(sample_weight).__name__}."
            )
        if len(sample_weight) != len(self):
            raise ValueError(
                f"sample_weight has {len(sample_weight)} chunks, and X has {len(self)}."
            )
        return sample_weight

    def _reduced(self, of, merge, weights=None):
        """Apply a function of number, chunk and weights to all, and merge in order."""
        parts = (of(k, x, weights and weights[k]) for k, x in enumerate(self))
        return reduce(merge, parts)


def _slice(X, rows):
    return np.asarray(X[rows])


def _parquet_files(path):
    if not isinstance(path, str | PathLike):
        raise TypeError(
            "path must be the name of a parquet file or a folder, or a list of these, "
            f"got {path!r}."
        )
    if not str(path):
        raise ValueError("path is empty: pass the name of a parquet file or a folder.")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"path is {str(path)!r}, but there is no such file.")
    if not path.is_dir():
        return [path]
    files = sorted(filter(Path.is_file, path.glob("*.parquet")), key=_numbered_name)
    if not files:
        raise ValueError(f"The folder {path} has no file *.parquet.")
    return files


def _numbered_name(path):
    """Split a name so that part.10 comes after part.2."""
    texts = re.split(r"(\d+)", path.name)
    texts[1::2] = map(int, texts[1::2])
    # the name decides between part.1 and part.01
    return texts, path.name


@contextmanager
def _file_named(path):
    """Name a file that cannot be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as a parquet file: {error}. Write it again, "
            "for example by to_parquet of a data frame, or leave it out."
        ) from error


def _row_group(path, group):
    import pyarrow.parquet as pq

    with _file_named(path):
        return pq.ParquetFile(path).read_row_group(group).to_pandas()


def _applied(function, chunks, number):
    return function(number, chunks[number])


def mean_of_rows(values):
    """Average numbers of rows, in an array or in parts of different sizes."""
    if isinstance(values, Chunks):
        # sums, because parts differ in size
        sums = np.array([(len(part), part.sum()) for part in values]).sum(0)
        return float(sums[1] / sums[0])
    mean = values.mean()
    return float(mean.compute() if hasattr(mean, "compute") else mean)  # of dask


def rows_in_memory(n_features):
    """Return the number of rows up to which a table in parts is gathered."""
    return min(MOST_ROWS, max(1, MOST_CELLS // n_features))


def is_large(X):
    """Return whether a table is too large to be tuned by all of its rows."""
    return len(X) > rows_in_memory(X.shape[1])
