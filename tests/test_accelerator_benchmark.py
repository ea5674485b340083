"""The benchmark of accelerators, on a device that computes as the CPU does."""

from argparse import Namespace

import accelerator as study
import pytest
import torch
from fake_device import FAKE, FakeTensor, fake_device

from skvnce import _device

OPTIONS = Namespace(repetitions=3, rounds=1, seconds=60.0)
RUNS = [{"fit": 4.0, "sample": 6.0}, {"fit": 2.0, "sample": 8.0}]


@pytest.fixture
def small(monkeypatch):
    """Use few rows, columns and steps."""
    monkeypatch.setattr("skvnce.training.rounds.STEPS", 2)
    monkeypatch.setattr("skvnce.algorithms.vnce.fit._OF_PROPOSALS", 2)
    monkeypatch.setattr(study, "COLUMNS", 3)
    monkeypatch.setattr(study, "FEW", 40)


@pytest.fixture
def device(monkeypatch):
    """Let "cuda" be the fake device, and count how often it is waited for."""
    waits = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(_device, "_CUDA", FAKE)
    with fake_device():
        yield waits


def quick_or_slow(name):
    """Leave one in the default run; the others are slow."""
    quick = name == "VariationalAutoencoder"
    return name if quick else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*map(quick_or_slow, study.NAMES)])
def test_fits_and_draws_are_made_on_the_device_and_waited_for(name, small, device):
    before = FakeTensor.n_made
    found = []
    for method, seconds in study.measure(name, "cuda", 50, 1):
        assert seconds > 0
        assert FakeTensor.n_made > before, method
        before = FakeTensor.n_made
        found.append(method)
    assert (*found,) == study.METHODS
    assert len(device) == 3


def test_the_cpu_is_not_waited_for(small, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: pytest.fail("waited"))
    found = dict(study.measure("VNCEEstimator", "cpu", 50, 1))
    assert min(found.values()) > 0


def test_what_a_process_did_before_its_limit_is_kept(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\nprint('[\"fit\", 1.5]', flush=True)\n"
        "sys.exit(1) if 'fails' in sys.argv else time.sleep(60)\n"
    )
    monkeypatch.setattr(study, "__file__", str(script))
    found = study.in_new_process("slow", limit=2)
    assert found == {"fit": 1.5, "sample": "over 2 s"}
    found = study.in_new_process("fails", limit=60)
    assert found == {"fit": 1.5, "sample": "failed"}


def test_only_quick_runs_are_repeated(monkeypatch):
    runs = {"cpu": {"fit": 9.0, "sample": 2.0}, "cuda": {"fit": 1.0, "sample": 2.0}}
    monkeypatch.setattr(
        study, "in_new_process", lambda _, device, *__, limit: runs[device]
    )
    found = study.repeated(("VGIImputer", 50, 1), runs, 3, 60.0)
    assert {device: len(some) for device, some in found.items()} == {
        "cpu": 1,
        "cuda": 3,
    }


def test_the_page_compares_devices():
    cut = {"fit": 1.0, "sample": "over 60 s"}
    runs = {("LAIRImputer", 2000): {"cpu": RUNS, "cuda": [cut]}}
    page = "\n".join(study.report(runs, "Some GPU", OPTIONS))
    assert "Accelerator: Some GPU" in page
    assert study.NO_DEVICE not in page
    assert "| LAIRImputer | 2,000 | fit | 3 | 1 | 3.00 |" in page
    assert "| LAIRImputer | 2,000 | sample | 7 | over 60 s |  |" in page


def test_the_page_says_that_there_is_no_accelerator():
    parts = study.report({("LAIRImputer", 2000): {"cpu": RUNS}}, None, OPTIONS)
    assert parts[1] == study.NO_DEVICE
    assert study.COMMAND in parts[1]
    assert "CUDA" not in parts[-1]
    assert "| LAIRImputer | 2,000 | fit | 3 |" in parts[-1]
