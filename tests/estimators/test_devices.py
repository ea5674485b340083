"""Estimators whose training and use are on a device; see `fake_device`."""

import pickle

import numpy as np
import pytest
import torch
from fake_device import FAKE, FakeTensor, fake_device

from skvnce import Adam, LAIRImputer, VariationalAutoencoder, _device
from skvnce.algorithms.vae import autoencoder


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 3))
    x[:, 2] = x[:, 2].round()  # repeated values
    x[rng.random(x.shape) < 0.3] = np.nan
    return x[~np.isnan(x).all(1)]


@pytest.fixture
def device(monkeypatch):
    """Let "cuda" be the fake device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_device, "_CUDA", FAKE)
    with fake_device():
        yield


def solver(name, **fields):
    return Adam(batch_size=16, device=name, **fields)


def vae(name):
    return VariationalAutoencoder(
        solver=solver(name), max_iter=1, n_importance_samples=8, random_state=0
    )


ESTIMATORS = {
    "VAE": vae,
    "LAIR": lambda name: LAIRImputer(
        vae(name), n_steps=2, n_draws=8, min_value=-9.0, random_state=0
    ),
}
USES = {
    "transform": lambda model, X: model.transform(X),
    "score_samples": lambda model, X: model.score_samples(X),
    "sample": lambda model, X: model.sample(X, 2, random_state=0, as_array=True),
    "sample_rows": lambda model, X: model.sample_rows(3, random_state=0),
    "inverse_transform": lambda model, X: model.inverse_transform(model.transform(X)),
}


def used(model, X):
    return {
        name: use(model, X)
        for name, use in USES.items()
        if hasattr(model, name.split(".")[0])
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_fits_and_uses_are_those_of_the_cpu(name, seed, device, monkeypatch):
    """And nothing stays behind, which the device would refuse."""
    monkeypatch.setattr("skvnce.training.rounds.STEPS", 2)
    X, made = rows(seed), ESTIMATORS[name]
    before, n_made = used(made("cpu").fit(X), X), FakeTensor.n_made
    model = made("cuda").fit(X)
    fitted = FakeTensor.n_made
    assert fitted > n_made
    after = used(model, X)
    assert FakeTensor.n_made > fitted
    for use, found in after.items():
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, before[use], rtol=1e-6, err_msg=use)
    again = pickle.loads(pickle.dumps(model))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for use, found in used(again, X).items():  # on a machine without the device
        np.testing.assert_allclose(found, before[use], rtol=1e-6, err_msg=use)
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        again.fit(X)
