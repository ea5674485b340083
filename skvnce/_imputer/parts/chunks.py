"""Tables in chunks of rows, of which one at a time is in memory."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from unicodedata import decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.utils import clear_known_categories, has_known_categories

from skvnce._core.numbers import check_count
from skvnce._core.runtime import one_thread
from skvnce._tables.frames import is_of_dask

ROWS = 100_000  # default number of rows of a chunk


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
    Chunks(3 parts, 600 rows, 3 columns)
    >>> [len(filled) for filled in imputer.transform(chunks)]
    [200, 300, 100]
    >>> bool(np.allclose(imputer.mean_, GaussianImputer(random_state=0).fit(X).mean_))
    True
    """

    def __init__(self, chunks):
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
    def from_array(cls, X, n_rows=ROWS):
        """Make chunks of consecutive rows of an array, such as a memory-mapped one.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
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
    def from_parquet(cls, path, columns=None):
        """Make chunks of the row groups of parquet files; needs pyarrow.

        Parameters
        ----------
        path : str or path-like, or list of these
            Files of equal columns; of a folder, its files ``*.parquet`` by name, with
            numbers in names in increasing order.
        columns : list of str, default=None
            The columns to read; None reads all.

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
            If `path` is empty, a folder has no such file, or a file cannot be read or
            lacks one of `columns`.
        """
        import pyarrow.parquet as pq

        paths = path if isinstance(path, list | tuple) else [path]
        columns, found = columns if columns is None else list(columns), []
        for one in [file for part in paths for file in _parquet_files(part)]:
            with _file_named(one):
                metadata = pq.read_metadata(one)
            names = metadata.schema.to_arrow_schema().names
            lacking = [name for name in columns or () if name not in names]
            if lacking:
                raise ValueError(
                    f"columns has {lacking}, which {one} lacks. It has {names}."
                )
            groups = range(metadata.num_row_groups)
            found += [partial(_row_group, one, group, columns) for group in groups]
        return cls(found)

    def __len__(self):
        """Return the number of chunks."""
        return len(self._chunks)

    def __repr__(self):
        """Describe the sizes, as far as they are known without reading a chunk."""
        parts = "1 part" if len(self) == 1 else f"{len(self):,} parts"
        # reading an item of another sequence may compute it
        kept = self._chunks if isinstance(self._chunks, list | tuple) else [None]
        shapes = [_shape(one) for one in kept]
        if not all(shapes):
            return f"Chunks({parts})"
        n_rows, width = sum(shape[0] for shape in shapes), shapes[0][1:]
        columns = "".join(f", {count:,} columns" for count in width)
        return f"Chunks({parts}, {n_rows:,} rows{columns})"

    def __getitem__(self, number):
        """Read a chunk, or make chunks of a slice of them."""
        if isinstance(number, slice):
            return type(self)(self._chunks[number])
        chunk = self._chunks[number]
        return chunk() if callable(chunk) else chunk

    def __iter__(self):
        """Read the chunks in turn."""
        return (self[number] for number in range(len(self)))

    def map(self, function):
        """Apply a function to each chunk when it is read.

        Parameters
        ----------
        function : callable
            Maps a chunk to another one.

        Returns
        -------
        Chunks
        """
        return self._numbered(partial(_without_number, function))

    def _numbered(self, function):
        """Apply a function of the number of a chunk and the chunk."""
        numbers = range(len(self))
        return type(self)([partial(_applied, function, self, k) for k in numbers])

    def _tables(self, function, names):
        """Apply a function of number and chunk that returns a table."""
        return self._numbered(function)

    def _numbers(self, function):
        """Apply a function of number and chunk that returns a number for each row."""
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
        found = None
        for number, chunk in enumerate(self):
            value = of(number, chunk, weights and weights[number])
            found = value if number == 0 else merge(found, value)
        return found


def _slice(X, rows):
    return np.asarray(X[rows])


def _shape(chunk):
    """Return the shape of a chunk, or None if it must be read first."""
    if isinstance(chunk, partial) and chunk.func is _slice:
        X, rows = chunk.args
        n_rows = len(range(*rows.indices(len(X))))
        return (n_rows, *np.shape(X)[1:])
    shape = getattr(chunk, "shape", None)
    is_known = isinstance(shape, tuple) and len(shape) in (1, 2)
    return shape if is_known and all(isinstance(n, int) for n in shape) else None


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
    texts = re.split(r"(\d+)", path.name)  # digits of any script
    # without zeros in front, longer numbers are larger: `int` reads no very long ones
    digits = ["".join(str(decimal(one)) for one in text) for text in texts[1::2]]
    texts[1::2] = [(len(text), text) for text in (one.lstrip("0") for one in digits)]
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


def _row_group(path, group, columns):
    import pyarrow.parquet as pq

    with _file_named(path):
        return pq.ParquetFile(path).read_row_group(group, columns=columns).to_pandas()


def _without_number(function, number, chunk):
    return function(chunk)


def _applied(function, chunks, number):
    return function(number, chunks[number])


def mean_of_rows(found):
    """Average numbers of rows, in an array or in parts of different sizes."""
    if isinstance(found, Chunks):
        # sums, because parts differ in size
        sums = np.array([(len(part), part.sum()) for part in found]).sum(0)
        return float(sums[1] / sums[0])
    mean = found.mean()
    return float(mean.compute() if hasattr(mean, "compute") else mean)  # of dask


def in_parts(X):
    """Return a table in parts, `Chunks` or of dask, and None for a table in memory."""
    if isinstance(X, Chunks):
        return X
    if is_of_dask(X):
        pass

        return DaskTable.of(X)
    return None


# ----------------------------------------
# Tables of dask: data frames and arrays, in partitions of rows.
#
# A partition is read, and summed over, where the cluster has it; only sums, as large
# as the parameters, travel.  They are merged in the order of the partitions, so that
# a worker that is lost does not change the result.


# a tree of merges: no worker has the sums of all partitions at once
_MERGED = 8  # number of sums that are merged at once


class DaskTable:
    """A data frame or an array of dask.

    Parameters
    ----------
    collection : dask collection
        With the columns of a row in one partition.
    parts : list of dask.delayed.Delayed
    """

    def __init__(self, collection, parts):
        self.collection, self.parts = collection, parts

    @classmethod
    def of(cls, X):
        """Read a data frame or an array."""
        is_frame = hasattr(X, "_meta") and hasattr(X, "map_partitions")
        if is_frame and X.ndim == 2:
            return cls(X, X.to_delayed())
        if is_frame or getattr(X, "ndim", None) != 2:
            raise TypeError(
                "X must be a data frame or an array of dask with two dimensions, got "
                f"{type(X).__name__}."
            )
        # models need all columns of a row together
        X = X.rechunk({1: -1})
        return cls(X, X.to_delayed().ravel().tolist())

    def __len__(self):
        """Return the number of partitions."""
        return len(self.parts)

    @property
    def is_frame(self):
        """Whether it is a data frame."""
        return hasattr(self.collection, "map_partitions")

    def _head(self):
        """Return some rows, to learn the columns from."""
        if self.is_frame:
            # made up by dask from the data types, so that nothing is computed
            return self.collection._meta_nonempty
        return np.zeros((1, self.collection.shape[1]), self.collection.dtype)

    def _tables(self, function, names):
        """Apply a function of number and partition that returns a table."""
        if not self.is_frame:
            options = {"chunks": (self.collection.chunks[0], (len(names),))}
            options |= {"dtype": self._dtype(), "meta": np.zeros((0, 0))}
            return self.collection.map_blocks(_block, function, **options)
        meta = pd.DataFrame(
            {name: np.zeros(0, self._dtype()) for name in names},
            index=self.collection._meta.index[:0],
        )
        return self._frame(partial(_frame_of, function, list(meta.columns)), meta)

    def _numbers(self, function):
        """Apply a function of number and partition that returns a number for a row."""
        if not self.is_frame:
            options = {"drop_axis": 1, "dtype": np.float64, "meta": np.zeros(0)}
            return self.collection.map_blocks(_block, function, **options)
        index = self.collection._meta.index[:0]
        meta = pd.Series(np.zeros(0), index=index)
        return self._frame(partial(_series_of, function), meta)

    def _frame(self, function, meta):
        """Make a data frame, or a Series, of the results for the partitions."""
        # equal calls have equal keys, so that dask computes a part once
        function = dask.delayed(function, pure=True)
        parts = [function(number, part) for number, part in enumerate(self.parts)]
        divisions = self.collection.divisions
        return dd.from_delayed(parts, meta=meta, divisions=divisions)

    def _as_meta(self, table):
        """Make a description of a data frame, without levels that X leaves open."""
        own = self.collection._meta
        unknown = [
            name
            for name in table.columns
            if isinstance(own[name].dtype, pd.CategoricalDtype)
            and not has_known_categories(own[name])
        ]
        return clear_known_categories(table.iloc[:0].set_axis(own.index[:0]), unknown)

    def _dtype(self):
        """Return the data type of completed tables."""
        if not self.is_frame:
            is_single = self.collection.dtype == np.float32
        else:
            is_single = (self.collection._meta.dtypes == np.float32).all()
        return np.float32 if is_single else np.float64

    def _weights(self, sample_weight):
        """Read weights in the partitions of the table."""
        if sample_weight is None:
            return None
        if not dask.is_dask_collection(sample_weight):
            raise TypeError(
                "sample_weight must be a Series or an array of dask, in the partitions "
                f"of X, got {type(sample_weight).__name__}."
            )
        parts = np.ravel(sample_weight.to_delayed()).tolist()
        if len(parts) != len(self):
            raise ValueError(
                f"sample_weight has {len(parts)} partitions, and X has {len(self)}."
            )
        return parts

    def _reduced(self, of, merge, weights=None):
        """Apply a function of number, partition and weights, and merge in order."""
        weights = weights or [None] * len(self)
        task = dask.delayed(_in_worker, pure=False)
        of = dask.delayed(of, pure=False)  # is sent once
        pid = os.getpid()
        pairs = zip(self.parts, weights, strict=True)
        found = [task(pid, of, k, *pair) for k, pair in enumerate(pairs)]
        # without traversal, which looks for collections in all values
        return dask.compute(self._joined(found, merge), traverse=False)[0]

    def _has_cluster(self):
        """Return whether the workers of a client compute the parts."""
        # a client exists only if it has been imported
        module = sys.modules.get("distributed")
        try:
            return module is not None and bool(module.default_client())
        except ValueError:  # there is none
            return False

    def _on_workers(self, value):
        """Send a value to the workers, once."""
        [kept] = dask.persist(dask.delayed(value, pure=False, traverse=False))
        return kept

    def _advanced(self, of, merge, one, states):
        """Apply a function of a value, a number and a partition or its state to all.

        `of` Delayed: returns a new state and what is merged; see `_on_workers`; `merge`
        callable; `one` object: the value; `states` list of Delayed or None: what this
        method has returned for the last value; None for partitions. A state stays where
        it was computed, and is computed again if it is lost. Returns `states` list of
        Delayed; `merged` object.
        """
        task = dask.delayed(_advanced_in_worker, pure=False, nout=2)
        one = dask.delayed(one, pure=False, traverse=False)
        given = self.parts if states is None else states
        found = [task(os.getpid(), of, one, k, part) for k, part in enumerate(given)]
        found = dask.persist(*found)
        sums = self._joined([pair[1] for pair in found], merge)
        return [pair[0] for pair in found], dask.compute(sums, traverse=False)[0]

    def _joined(self, found, merge):
        """Merge results of partitions in their order."""
        join = dask.delayed(_merged, pure=False)
        while len(found) > 1:
            groups = range(0, len(found), _MERGED)
            found = [join(merge, found[k : k + _MERGED]) for k in groups]
        return found[0]


def _advanced_in_worker(pid, of, one, number, given):
    with nullcontext() if os.getpid() == pid else one_thread():
        return of(one, number, given)


def _in_worker(pid, of, number, chunk, weights):
    # threads of the process that waits for the result must not wait for its lock
    with nullcontext() if os.getpid() == pid else one_thread():
        return of(number, chunk, weights)


def _merged(merge, values):
    found = values[0]
    for value in values[1:]:
        found = merge(found, value)
    return found


def _block(chunk, function, block_info=None):
    number = block_info[0]["chunk-location"][0] if block_info else 0
    return function(number, chunk)


def _frame_of(function, names, number, chunk):
    cells = np.asarray(function(number, chunk))
    return pd.DataFrame(cells, chunk.index, names)


def _series_of(function, number, chunk):
    return pd.Series(function(number, chunk), chunk.index)
