"""Where training takes place, without a GPU; see `autoencoder/test_devices.py`."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from errors import refused

from skvnce import LAIRImputer, VariationalAutoencoder, VGIImputer, VNCEEstimator
from skvnce._core.random import global_stream, seeded
from skvnce._core.runtime import resolve_device
from skvnce._core.training.rounds import rows_of
from skvnce.options import LBFGS, Adam, IncompleteDensity


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 3))
    x[rng.random(x.shape) < 0.3] = np.nan
    return x[~np.isnan(x).all(1)]


def test_random_numbers_are_drawn_on_the_cpu():
    """So that they are the same on each device, and the stream moves on alike."""
    after = []
    for device in ("cpu", "meta"):
        with seeded(0):
            result = global_stream(0, torch.empty(5, 2, device=device))
            assert result.device.type == device
            (batch, *_) = rows_of(torch.ones(9), 4, device=torch.device(device))
            assert batch.device.type == device
            after.append(torch.rand(3))
    assert torch.equal(*after)


def test_the_name_of_a_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto", "device").type == "cpu"
    with pytest.raises(ValueError, match="solver.device='cuda', but torch finds no"):
        resolve_device("cuda", "solver.device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto", "device").type == "cuda"
    assert resolve_device("cuda", "device").type == "cuda"
    assert resolve_device("cpu", "device").type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_estimators_say_that_there_is_no_gpu():
    model = VariationalAutoencoder(solver=Adam(device="cuda"), random_state=0)
    density = IncompleteDensity(solver=Adam(device="cuda"))
    for estimator in (
        model,
        LAIRImputer(model, random_state=0),
        VGIImputer(density, random_state=0),
        VNCEEstimator(solver=Adam(device="cuda")),
        VNCEEstimator(solver=LBFGS(device="cuda")),
    ):
        refused(ValueError, "torch finds no CUDA device", estimator.fit, rows(0))


@pytest.mark.parametrize("name", ["tpu", None, "cuda:0"])
def test_wrong_devices_are_refused(name):
    for estimator, slot in (
        (VariationalAutoencoder(solver=Adam(device=name)), "solver"),
        (VNCEEstimator(solver=LBFGS(device=name)), "solver"),
        (VGIImputer(IncompleteDensity(solver=Adam(device=name))), "model.solver"),
    ):
        # scikit-learn lists the names in the order of a set
        match = rf"'{slot}\.device' parameter .*'auto'.*Got {name!r}"
        refused(ValueError, match, estimator.fit, rows(0))


@pytest.mark.slow
def test_training_does_not_import_the_compiler_of_torch():
    """It takes a second or more; `torch.optim` would."""
    code = """
import sys, time
import numpy as np
import torch
from skvnce import LAIRImputer, VariationalAutoencoder
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 1)) + rng.normal(size=(300, 3))
X[rng.random(X.shape) < 0.3] = np.nan
model = VariationalAutoencoder(max_iter=1)
times = [time.process_time()]
for _ in range(2):
    LAIRImputer(model, n_estimators=1, random_state=0, on_misfit="ignore").fit(X)
    times.append(time.process_time())
first, second = np.diff(times)
assert first - second < 1, (first, second)
assert "torch._dynamo" not in sys.modules
torch.optim.Adam([torch.zeros(1, requires_grad=True)])
assert "torch._dynamo" in sys.modules  # what this test would see
"""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not process.returncode, process.stderr
