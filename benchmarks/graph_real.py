"""Graphs of two real tables: gene expression, and soil chemistry with missing values.

    python benchmarks/graph_real.py [--tables tcga_brca_rnaseq kola_chorizon]
        [--output doc/benchmarks/graph_real.md]

``tcga_brca_rnaseq``: 353 genes of 445 tumours, log(1 + count), a tenth of the cells
hidden at random to be scored.  ``kola_chorizon``: element concentrations of 606 soil
samples, missing where below the detection limit.  Warnings of our fit are errors; each
table runs in a process of its own, so that peak memory is that of one table.
"""

import argparse
import resource
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import numpy as np
from _data import load
from _report import made_by, publish, table
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from skvnce import TruncatedGaussianGraphLearner
from skvnce.metrics import imputation_rmse
from skvnce.missingness import hide, mcar

_CODES = ["ID", "XCOO", "YCOO", "ELEV", "COUN", "ASP", "TOPC", "LITO"]
_NOT_ELEMENTS = ["wt_INAA", "SUM_XRF"]  # weight of the sample, sum of the oxides


def peak_mib():
    """Return the largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def fit(learner, X):
    """Fit with warnings as errors; (seconds, peak MiB, its growth) and the warning."""
    before, begin, warning = peak_mib(), time.perf_counter(), None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learner.fit(X)
    except Warning as raised:
        warning = raised
    seconds = time.perf_counter() - begin
    return (seconds, peak_mib(), peak_mib() - before), warning
