"""Data frames of dask, in partitions of rows.

A partition is read, and summed over, where the cluster has it; only sums, as large as
the parameters, travel.  They are merged in the order of the partitions, so that a
worker that is lost does not change the result.
"""

import os
from contextlib import nullcontext
from functools import partial, reduce

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.utils import clear_known_categories, has_known_categories

from skvnce._core.runtime import one_thread

# a tree of merges: no worker has the sums of all partitions at once
_MERGED = 8  # number of sums that are merged at once


class DaskTable:
    """A data frame of dask."""

    def __init__(self, frame):
        is_frame = hasattr(frame, "_meta") and hasattr(frame, "map_partitions")
        if not is_frame or frame.ndim != 2:
            raise TypeError(
                "X must be a data frame of dask, which has two dimensions, got "
                f"{type(frame).__name__}. Of an array, dask.dataframe.from_dask_array "
                "makes one."
            )
        self.frame, self.parts = frame, frame.to_delayed()

    def __len__(self):
        """Return the number of partitions."""
        return len(self.parts)

    def _head(self):
        """Return some rows, to learn the columns from."""
        # made up by dask from the data types, so that nothing is computed
        return self.frame._meta_nonempty

    def _tables(self, function, names):
        """Apply a function of number and partition that returns a table."""
        is_single = (self.frame._meta.dtypes == np.float32).all()
        empty = np.zeros(0, np.float32 if is_single else np.float64)
        meta = pd.DataFrame(
            dict.fromkeys(names, empty), index=self.frame._meta.index[:0]
        )
        return self._frame(partial(_frame_of, function, list(meta.columns)), meta)

    def _numbers(self, function):
        """Apply a function of number and partition that returns a number for a row."""
        meta = pd.Series(np.zeros(0), index=self.frame._meta.index[:0])
        return self._frame(partial(_series_of, function), meta)

    def _frame(self, function, meta):
        """Make a data frame, or a Series, of the results for the partitions."""
        # equal calls have equal keys, so that dask computes a part once
        function = dask.delayed(function, pure=True)
        parts = [function(number, part) for number, part in enumerate(self.parts)]
        return dd.from_delayed(parts, meta=meta, divisions=self.frame.divisions)

    def _as_meta(self, table):
        """Make a description of a data frame, without levels that X leaves open."""
        meta = self.frame._meta
        unknown = [
            name
            for name in table.columns
            if isinstance(meta[name].dtype, pd.CategoricalDtype)
            and not has_known_categories(meta[name])
        ]
        return clear_known_categories(table.iloc[:0].set_axis(meta.index[:0]), unknown)

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
        tasks = [task(pid, of, k, *pair) for k, pair in enumerate(pairs)]
        # without traversal, which looks for collections in all values
        return dask.compute(self._joined(tasks, merge), traverse=False)[0]

    def _joined(self, tasks, merge):
        """Merge results of partitions in their order."""
        join = dask.delayed(reduce, pure=False)
        while len(tasks) > 1:
            groups = range(0, len(tasks), _MERGED)
            tasks = [join(merge, tasks[k : k + _MERGED]) for k in groups]
        return tasks[0]


def _in_worker(pid, of, number, chunk, weights):
    # threads of the process that waits for the result must not wait for its lock
    with nullcontext() if os.getpid() == pid else one_thread():
        return of(number, chunk, weights)


def _frame_of(function, names, number, chunk):
    cells = np.asarray(function(number, chunk))
    return pd.DataFrame(cells, chunk.index, names)


def _series_of(function, number, chunk):
    return pd.Series(function(number, chunk), chunk.index)
