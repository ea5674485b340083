import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch
from cases import SMALL
from sklearn.base import clone

from skvnce.gaussian import em

pytestmark = pytest.mark.usefixtures("short_training")
SCRIPT = Path(__file__).parents[1] / "thread_checks.py"


def alone(*names):
    """Run checks where there are two threads: the tests have one, see conftest.py."""
    limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    process = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, *names],
        capture_output=True,
        text=True,
        env=os.environ | dict.fromkeys(limits, "2"),
        timeout=280,
    )
    assert not process.returncode, process.stderr


@pytest.mark.slow
def test_small_matrices_take_one_thread():
    alone("limits", "estimators")


def at_once(function, n_threads=4):
    """Call a function by several threads, which change places at nearly every step."""
    barrier, before = Barrier(n_threads), sys.getswitchinterval()

    def call(_):
        barrier.wait(timeout=60)
        return function()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(call, range(n_threads)))
    finally:
        sys.setswitchinterval(before)


def fitted(estimator):
    table = np.random.default_rng(0).gamma(2.0, size=(20, 3))
    table[::4, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(table), table


@pytest.mark.quick(4)
@pytest.mark.parametrize("estimator", SMALL.values(), ids=SMALL)
def test_what_was_unpickled_serves_several_threads(estimator, monkeypatch):
    calls, load = [], torch.nn.Module.load_state_dict

    def counted(module, state):
        calls.append(1)
        return load(module, state)

    def answer(method, copy):
        return np.asarray(getattr(copy, method)(table))

    estimator, table = fitted(estimator)
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", counted)
    for method in ("transform", "score_samples"):
        if not hasattr(estimator, method):
            continue
        alone, shared = (pickle.loads(pickle.dumps(estimator)) for _ in range(2))
        expected, once = answer(method, alone), len(calls)
        for result in at_once(partial(answer, method, shared)):
            np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(answer(method, shared), expected)
        assert len(calls) == 2 * once
        calls.clear()


def test_parameters_are_drawn_once(monkeypatch):
    calls, draw = [], em.posterior_draws

    def counted(*args, **kwargs):
        calls.append(1)
        return draw(*args, **kwargs)

    estimator, table = fitted(SMALL["GaussianImputer"])
    text = pickle.dumps(estimator)
    expected = estimator.sample(table, 2, random_state=0)
    monkeypatch.setattr(em, "posterior_draws", counted)
    copy = pickle.loads(text)
    for result in at_once(lambda: copy.sample(table, 2, random_state=0)):
        np.testing.assert_array_equal(result, expected)
    assert len(calls) == 1
