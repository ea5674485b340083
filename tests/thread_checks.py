"""What is run in a process of its own, where threads are not limited from outside.

`tests/_core/test_threads.py` runs these functions by their names.
"""

import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from threadpoolctl import threadpool_info
from torch.utils._python_dispatch import TorchDispatchMode

from skvnce import IncompleteFactorAnalysis
from skvnce._core import runtime
from skvnce._core.runtime import one_thread

N_THREADS = 2


def threads_of(work):
    """Count the threads that compute: CPU time of the process over that of this one."""
    work()
    process, thread = time.process_time(), time.thread_time()
    while time.thread_time() - thread < 0.05:
        work()
    return (time.process_time() - process) / (time.thread_time() - thread)


def works():
    """Make one piece of work for each pool."""
    table = np.ones((300, 300)) + 300 * np.eye(300)
    matrix = torch.from_numpy(table)
    batch = matrix[:20, :20].repeat(2000, 1, 1)
    return {
        "numpy": lambda: table @ table,
        "product": lambda: matrix @ matrix,
        "eigh": lambda: torch.linalg.eigh(matrix),
        "batch": lambda: torch.linalg.cholesky(batch),
        "exp": lambda: matrix.exp(),
    }


def settings():
    """Read what the user may have set."""
    pools = sorted((one["filepath"], one["num_threads"]) for one in threadpool_info())
    return pools, torch.get_num_threads()


def check_limits():
    """One thread inside, and what was set before outside."""
    before = settings()
    assert before[1] == N_THREADS
    todo = works()
    assert threads_of(todo["product"]) > 1.3, "the measurement sees no second thread"
    with one_thread(), one_thread():
        time.sleep(0.2)  # threads of earlier work spin for a while
        found = {name: threads_of(work) for name, work in todo.items()}
        assert max(found.values()) < 1.15, found
        assert torch.get_num_threads() == 1
    assert settings() == before
    try:
        with one_thread():
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert settings() == before


def limits():
    """Limits in the first thread and in others."""
    check_limits()
    with ThreadPoolExecutor(1) as pool:  # torch sets a thread at its first operation
        pool.submit(check_limits).result()


class SeveralThreads(TorchDispatchMode):
    """Name the factorisations that run while torch has several threads."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        batched = "linalg" in str(func) or "cholesky" in str(func)
        if batched and torch.get_num_threads() > 1:
            self.found.add(str(func))
        return func(*args, **(kwargs or {}))


def estimators():
    """Small tables take one thread, wide ones all."""
    torch.set_num_threads(N_THREADS)
    table = table_of(100, 70)
    for smallest_wide, several in [(501, False), (70, True)]:
        runtime._SMALL = smallest_wide - 1
        with SeveralThreads() as several_threads:
            answers(IncompleteFactorAnalysis(n_components=1, max_iter=2), table)
        assert bool(several_threads.found) == several, several_threads.found


def table_of(n, d):
    rng = np.random.default_rng(0)
    table = rng.gamma(2.0, size=(n, d))
    table[rng.random(table.shape) < 0.2] = np.nan
    return table


def answers(estimator, X):
    """Call what computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X).transform(X)
        if hasattr(estimator, "score_samples"):
            estimator.score_samples(X)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
