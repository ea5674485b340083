import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("thread_checks.py")


def alone(*names):
    """Run checks where nothing limits threads: the tests have one, see conftest.py."""
    limits = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, *names],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in limits},
        timeout=280,
    )
    assert not done.returncode, done.stderr


def test_small_matrices_take_one_thread():
    alone("limits", "estimators")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on Windows")
def test_forked_children_fit():
    alone("forks_and_the_lock", "forks_after_fits", "forks_during_fits")
