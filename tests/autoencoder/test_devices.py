"""Estimators whose training and use are on a device; see `fake_device`."""

import pickle
from functools import partial

import cases
import numpy as np
import pandas as pd
import pytest
import torch
from energies import Bell, Factor, RestrictedBoltzmann
from errors import refused
from fake_device import FAKE, FakeTensor, fake_device
from sklearn.base import clone
from torch.distributions import Independent, Normal

import skvnce
from skvnce._core import runtime
from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder import column_scores as _scores
from skvnce.autoencoder.factor_analysis import fit_covariance
from skvnce.autoencoder.losses import WeightedBound
from skvnce.autoencoder.samplers import SAMPLERS
from skvnce.noisy_or.em import INFERENCES, Rows
from skvnce.options import LBFGS, MCEM, VGI, Adam, IncompleteDensity, TorchVAE

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning"),
]


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 3))
    x[:, 2] = x[:, 2].round()  # repeated values
    x[rng.random(x.shape) < 0.3] = np.nan
    return x[~np.isnan(x).all(1)]


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    """Shorten what no parameter shortens: starts, found on the CPU, and proposals."""
    monkeypatch.setattr(_scores, "fit_covariance", partial(fit_covariance, n_rounds=5))
    monkeypatch.setattr("skvnce.contrast.fit._PROPOSAL_ITER", 2)


@pytest.fixture
def device(monkeypatch):
    """Let "cuda" be the fake device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(runtime, "_CUDA", FAKE)
    with fake_device():
        yield


@pytest.fixture
def gradients(monkeypatch):
    """Count the calls of autograd, and of the gradient that is written out."""
    calls = []

    def counted(function):
        def called(*args, **kwargs):
            calls.append(function)
            return function(*args, **kwargs)

        return called

    for owner, name in (
        (torch.autograd, "backward"),
        (torch.autograd, "grad"),
        (WeightedBound, "differentiate"),
    ):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return calls


def solver(name, **fields):
    return Adam(batch_size=16, device=name, **fields)


def vae(name, algorithm="miwae"):
    return skvnce.VariationalAutoencoder(
        algorithm=algorithm,
        solver=solver(name),
        max_iter=1,
        n_importance_samples=8,
        random_state=0,
    )


def noisy_or(algorithm):
    network = {"hidden_layer_sizes": (4,)} if algorithm in ("acp", "avi") else {}

    def made(name):
        return skvnce.NoisyOr(
            2,
            algorithm=algorithm,
            **network,
            solver=solver(name),
            max_iter=5,
            random_state=0,
        )

    return made


def lair(sampler, name):
    return skvnce.LAIRImputer(
        vae(name), sampler=sampler, n_steps=2, n_draws=8, min_value=-9.0, random_state=0
    )


def vgi(name, model="factor-analysis", algorithm="vgi", on_misfit="ignore"):
    density = IncompleteDensity(
        model,
        algorithm=algorithm,
        solver=solver(name),
        max_iter=2,
        n_importance_samples=4,
    )
    return skvnce.VGIImputer(
        density,
        n_estimators=1,
        n_steps=2,
        n_draws=8,
        on_misfit=on_misfit,
        random_state=0,
    )


def vnce(name, model=None, solver="lbfgs", **parameters):
    parts = {"lbfgs": LBFGS(2, device=name), "adam": Adam(30, device=name)}
    return skvnce.VNCEEstimator(
        model,
        solver=parts[solver],
        max_iter=2,
        n_training_draws=2,
        noise_ratio=3,
        random_state=0,
        **parameters,
    )


def boltzmann(n_features):
    return RestrictedBoltzmann(n_features, 2)


class Squared(torch.nn.Module):
    """A density of the user."""

    def __init__(self, n_features):
        super().__init__()
        self.location = torch.nn.Parameter(torch.zeros(n_features))

    def log_prob(self, x):
        return -(x - self.location).square().sum(1) / 2


class StuckBell(Bell):
    def log_density(self, x):
        return super().log_density(x - torch.ones(3).to(x.dtype))


class StuckDensity(Squared):
    def log_prob(self, x):
        return -(x - self.location - torch.ones(3).to(x.dtype)).square().sum(1)


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("loadings", torch.tensor([[1.0, 2.0, -1.0]]))

    def prior(self):
        zero = torch.zeros_like(self.loadings[:, 0])
        return Independent(Normal(zero, 1 + zero), 1)

    def likelihood(self, z):
        return Normal(z @ self.loadings, 0.5)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        torch.nn.init.constant_(self.layer.weight, 0.2)

    def forward(self, x, observed):
        return Independent(Normal(self.layer(x.where(observed, 0.0)), 0.6), 1)


class Stuck(Encoder):
    """A part whose tensor torch cannot move."""

    def forward(self, x, observed):
        return Independent(Normal(self.layer(x), torch.ones(1)), 1)


def own(name, encoder=Encoder):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        part = TorchVAE(Decoder(), encoder(), n_importance_samples=8, device=name)
    return skvnce.LAIRImputer(
        part, n_steps=2, n_draws=8, random_state=0, on_misfit="ignore"
    )


ESTIMATORS = {
    "TorchVAE": own,
    **{
        f"VAE {algorithm}": partial(vae, algorithm=algorithm)
        for algorithm in ("miwae", "miss-svae", "miss-iwae", "demiss-vae", "vbgi-vae")
    },
    **{f"NoisyOr {name}": noisy_or(name) for name in INFERENCES},
    **{f"LAIR {sampler}": partial(lair, sampler) for sampler in SAMPLERS},
    "VNCE": vnce,
    "VNCE adam": partial(vnce, solver="adam"),
    "VNCE Bell": partial(vnce, model=Bell, n_init=2, on_misfit="ignore"),
    "VNCE Factor": partial(vnce, model=Factor),  # uses held-out cells
    "VNCE binary": partial(vnce, model=Factor, solver="adam"),
    "VNCE states": partial(vnce, model=boltzmann, solver="adam"),
    "VNCE bernoulli": partial(
        vnce, model=boltzmann, posterior="bernoulli", solver="adam"
    ),
    "VGI": partial(vgi, on_misfit="warn"),  # uses held-out cells
    **{
        f"VGI {model}": partial(vgi, model=model)
        for model in ("vae", "flow", "coupling-flow")
    },
    "VGI own": partial(vgi, model=Squared),
    "VGI mcem": partial(vgi, model="coupling-flow", algorithm=MCEM(n_steps=3)),
    **{
        f"VGI {kind} {network}": partial(
            vgi, algorithm=VGI(kind, network=network, n_selected=2, n_warm_up=1)
        )
        for kind, network in [
            ("mixture", "shared"),
            ("spline", "extended"),
            ("normal", "independent"),
        ]
    },
}
USES = {
    "transform": lambda model, X: model.transform(X),
    "score_samples": lambda model, X: model.score_samples(X),
    "objective": lambda model, X: np.array(model.objective(X)),
    "sample_latents": lambda model, X: model.sample_latents(X, 2, 0, as_array=True),
    "sample": lambda model, X: model.sample(X, 2, random_state=0, as_array=True),
    "sample_rows": lambda model, X: model.sample_rows(3, random_state=0),
    "inverse_transform": lambda model, X: model.inverse_transform(model.transform(X)),
}


def quick_or_slow(name):
    """Leave one estimator a class in the default run; the others are slow."""
    quick = name in ("TorchVAE", "VAE miwae", "VGI", "VNCE", "NoisyOr acp")
    return name if quick else pytest.param(name, marks=pytest.mark.slow)


def used(model, X):
    values = {
        name: use(model, X)
        for name, use in USES.items()
        if hasattr(model, name) and (name != "sample_latents" or model.n_components_)
    }
    assert values
    return values


def table(name, seed):
    """Make rows of numbers, with a positive column for VNCE, and a binary one."""
    X = rows(seed)
    if name.startswith("NoisyOr") or name in ("VNCE states", "VNCE bernoulli"):
        return np.where(np.isnan(X), X, X > 0)
    if name.startswith("VNCE "):
        X[:, 1] = abs(X[:, 1])
    if name == "VNCE binary":
        X[:, 2] = np.where(np.isnan(X[:, 2]), np.nan, X[:, 2] > 0)
    return X


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [quick_or_slow(name) for name in ESTIMATORS])
def test_fits_and_uses_are_those_of_the_cpu(
    name, seed, device, gradients, monkeypatch, short_training
):
    """And nothing stays behind, which the device would refuse; modules come back."""
    X, made = table(name, seed), ESTIMATORS[name]
    before, n_made = used(made("cpu").fit(X), X), FakeTensor.n_made
    gradients.clear()
    model = made("cuda").fit(X)
    assert bool(gradients) == (name != "TorchVAE")
    fitted = FakeTensor.n_made
    assert fitted > n_made
    after = used(model, X)
    assert FakeTensor.n_made > fitted
    for use, result in after.items():
        assert type(result) is np.ndarray
        np.testing.assert_allclose(result, before[use], rtol=1e-6, err_msg=use)
    if hasattr(model, "to_torch"):
        devices = {leaf.device.type for leaf in model.to_torch().parameters()}
        assert devices <= {"cpu"}  # the user's own module has no parameters here
    again = pickle.loads(pickle.dumps(model))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for use, result in used(again, X).items():  # on a machine without the device
        np.testing.assert_allclose(result, before[use], rtol=1e-6, err_msg=use)
    refused(ValueError, "torch finds no CUDA device", again.fit, X)


STUCK = {
    "TorchVAE": partial(own, encoder=Stuck),
    "VGI": partial(vgi, model=StuckDensity),
    "VNCE": partial(vnce, model=StuckBell, on_misfit="ignore"),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", STUCK)
def test_modules_with_tensors_of_the_cpu_are_named(name, seed, device, short_training):
    STUCK[name]("cpu").fit(rows(seed))
    with pytest.raises(ValueError, match=r"another device.* Register all tensors"):
        STUCK[name]("cuda").fit(rows(seed))


@pytest.mark.slow
def test_categories_stay_on_the_cpu(seed, device):
    X = pd.DataFrame(rows(seed), columns=list("abc"))
    X["c"] = X["c"].map(str).astype("category").where(X["c"].notna())
    with pytest.raises(ValueError, match=r"model\.solver\.device='cuda', but columns"):
        vgi("cuda", "vae").fit(X)
    n_made = FakeTensor.n_made
    vgi("auto", "vae").set_params(model__max_iter=0).fit(X).transform(X)
    assert FakeTensor.n_made == n_made


TRAINED = {type(make("cpu")) for make in ESTIMATORS.values()}
OTHERS = [one for one in cases.SMALL.values() if type(one) not in TRAINED]


@pytest.mark.quick(2)
@pytest.mark.parametrize("estimator", OTHERS, ids=lambda one: type(one).__name__)
def test_all_other_estimators_need_no_gradients(estimator, seed, device, gradients):
    n_made = FakeTensor.n_made
    clone(estimator).fit(abs(rows(seed, 100)))
    assert not gradients
    assert FakeTensor.n_made == n_made


@pytest.mark.slow
def test_the_device_refuses_cpu_tensors(seed, device, monkeypatch, short_training):
    """The control: tables that are not moved, in training and in use."""
    X = rows(seed)
    model, density, energy = (make("cuda").fit(X) for make in (vae, vgi, vnce))
    monkeypatch.setattr(Incomplete, "on", lambda self, device: self)
    for use in (
        model.transform,
        model.fit,
        density.transform,
        density.score_samples,
        density.fit,
        energy.transform,
        energy.score_samples,
    ):
        refused(RuntimeError, "of the CPU and of another device", use, X)
    binary = np.where(np.isnan(X), X, X > 0)
    causes = noisy_or("acp")("cuda").fit(binary)
    monkeypatch.setattr(Rows, "on_device", lambda self, device: self)
    for use in (causes.transform, causes.fit):
        refused(RuntimeError, "of the CPU and of another device", use, binary)
