"""What is run in a process of its own, where threads are not limited from outside.

`tests/test_threads.py` runs these functions by their names.
"""

import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from threadpoolctl import threadpool_info
from torch.utils._python_dispatch import TorchDispatchMode

from skvnce import (
    GaussianImputer,
    IncompleteFactorAnalysis,
    VariationalAutoencoder,
    _forks,
    _threads,
)
from skvnce._forks import PROCESS
from skvnce._threads import one_thread

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
    """Limits in the first thread and in others, and where MKL cannot be found."""
    torch.set_num_threads(N_THREADS)  # from here on MKL does not follow OpenMP
    check_limits()
    with ThreadPoolExecutor(1) as pool:  # torch sets a thread at its first operation
        pool.submit(check_limits).result()
    _threads._mkl_limit = lambda: _threads._limit_of_process
    check_limits()


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
        _threads._SMALL = smallest_wide - 1
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


def fork(work, seconds=60):
    """Run work in a forked child, which an alarm ends where it hangs."""
    with warnings.catch_warnings():  # of forks among threads, since Python 3.12
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(seconds)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, "the child hangs (14) or fails"


def forks_after_fits():
    """A child fits by all estimators, after the parent used several threads."""
    from cases import ESTIMATORS

    torch.set_num_threads(N_THREADS)
    X, first = table_of(20, 3), {type(one): one for one in reversed(ESTIMATORS)}
    several = works()["exp"]
    assert threads_of(several) > 1.3
    before = settings()

    def work():
        assert settings() == before
        several()
        for estimator in first.values():
            answers(estimator, X)
        assert settings() == before

    assert len(first) >= 9
    fork(work)
    several()


def forks_during_fits():
    """A child fits while another thread of the parent does, and has the settings."""
    torch.set_num_threads(N_THREADS)
    X, stop = table_of(100, 4), threading.Event()
    stream, before = torch.get_rng_state(), settings()

    def fit_on():
        answers(VariationalAutoencoder(max_iter=3, hidden_layer_sizes=(8,)), X)
        if not stop.is_set():
            fit_on()

    def work():
        assert settings() == before
        assert torch.equal(torch.get_rng_state(), stream)
        answers(GaussianImputer(n_parameter_draws=0), X)
        assert settings() == before

    with ThreadPoolExecutor(1) as pool:
        fits = pool.submit(fit_on)
        try:
            for _ in range(3):
                time.sleep(0.1)
                fork(work)
        finally:
            stop.set()
        fits.result()


def forks_and_the_lock():
    """A fork waits for a step's end, not for the holder; a child finds a free lock."""
    leave, beginning = threading.Event(), time.monotonic()

    def take():
        with PROCESS:
            pass

    def hold(pause):
        with PROCESS.undone_in_child(lambda: undone.append(True)):
            inside.set()
            while not leave.wait(0.01):
                pause()

    def check_undone():
        take()
        assert undone == [True]

    for pause, patience in [(PROCESS.let_forks_pass, 1000), (lambda: None, 0.1)]:
        undone, inside = [], threading.Event()
        _forks._PATIENCE = patience
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(hold, pause)
            inside.wait()
            try:
                fork(check_undone)
                assert not held.done() and not undone
            finally:
                leave.set()
            held.result()
        leave.clear()
        take()
    with PROCESS:  # the holder itself
        fork(take)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(take).result()
    assert time.monotonic() - beginning < 30


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
