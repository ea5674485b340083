"""A user's own autoencoder in LAIRImputer, against factor analysis in closed form."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch.distributions import Bernoulli, ContinuousBernoulli, Independent, Normal

from skvnce import LAIRImputer
from skvnce.options import LAIR, TorchVAE

MEAN, LOADINGS, SCALE = [0.5, -1.0, 0.3], [[1.0], [-0.8], [0.6]], [0.5, 0.4, 0.6]


class Decoder(nn.Module):
    """Factor analysis with one latent, in single precision."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(MEAN))
        self.line = nn.Linear(1, 3, bias=False)
        self.line.weight.data = torch.tensor(LOADINGS)
        self.register_buffer("scale", torch.tensor(SCALE))
        self.register_buffer("one", torch.ones(1))

    def prior(self):
        return Independent(Normal(0 * self.one, self.one), 1)

    def likelihood(self, z):
        return Normal(self.mean + self.line(z), self.scale)


class Encoder(nn.Module):
    """The exact posterior of complete rows, and a rough one of others."""

    def forward(self, x, observed):
        w, s = (torch.tensor(v).to(x) for v in (LOADINGS, SCALE))
        weight = (w[:, 0] / s**2 * observed).unsqueeze(-1)
        precision = 1 + weight.mT @ w if weight.dim() > 2 else 1 + (weight * w).sum()
        precision = precision.reshape(*x.shape[:-1], 1)
        loc = ((x - torch.tensor(MEAN).to(x)).unsqueeze(-2) @ weight)[..., 0]
        return Independent(Normal(loc / precision, precision.rsqrt()), 1)


class Wrong(Decoder):
    """A decoder of another width."""

    def likelihood(self, z):
        return Normal(self.line(z)[..., :2], 1.0)


def exact(X):
    """Fill cells by their conditional means, and compute log p(x_obs)."""
    mean, w = np.array(MEAN), np.array(LOADINGS)
    cov = w @ w.T + np.diag(np.square(SCALE))
    filled, scores = X.copy(), np.zeros(len(X))
    for row, x in enumerate(X):
        o = ~np.isnan(x)
        apart = np.linalg.solve(cov[np.ix_(o, o)], x[o] - mean[o])
        filled[row, ~o] = mean[~o] + cov[np.ix_(~o, o)] @ apart
        _, log_det = np.linalg.slogdet(2 * np.pi * cov[np.ix_(o, o)])
        scores[row] = -((x[o] - mean[o]) @ apart + log_det) / 2
    return filled, scores


@pytest.fixture
def X(rng):
    z = rng.normal(size=(60, 1))
    X = MEAN + z @ np.array(LOADINGS).T + SCALE * rng.normal(size=(60, 3))
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    X[np.isnan(X).all(1)] = 0.0
    return X


PRIOR = LAIR(n_replenish=20, replenish="prior")


@pytest.mark.quick(3)
@pytest.mark.parametrize("sampler", ["lair", PRIOR, "mwg", "ac-mwg"], ids=str)
def test_it_fills_by_conditional_means(X, sampler):
    own = TorchVAE(Decoder(), Encoder())
    options = {"sampler": sampler, "on_misfit": "ignore"}
    imputer = LAIRImputer(own, **options).fit(X)
    filled, scores = exact(X)
    missing = np.isnan(X)
    wide = np.clip(filled, *imputer.feature_ranges_)
    # 200 draws of standard deviation below 1.2: six standard errors, and their bias
    assert abs(imputer.transform(X) - wide)[missing].max() < 0.55
    assert abs(imputer.transform(X) - wide)[missing].mean() < 0.1
    np.testing.assert_allclose(imputer.score_samples(X), scores, atol=0.15)
    wrong = exact(np.where(missing, np.nan, -X))[0]  # control
    assert abs(imputer.transform(X) - wrong)[missing].max() > 0.55


def test_the_modules_are_copied(X):
    own = TorchVAE(Decoder(), Encoder(), n_importance_samples=16)
    imputer = LAIRImputer(own, n_steps=2, n_draws=8, on_misfit="ignore").fit(X)
    before = imputer.transform(X)
    assert own.model.mean.dtype == torch.float32
    assert own.model.mean.requires_grad
    with torch.no_grad():
        own.model.mean += 5.0
    np.testing.assert_array_equal(imputer.transform(X), before)
    result = imputer.to_torch()
    mean = result.likelihood(torch.zeros(1, 1, 1).double()).mean
    np.testing.assert_allclose(mean.squeeze(), MEAN, rtol=1e-6)
    result.module.mean.data.fill_(5.0)
    np.testing.assert_array_equal(imputer.transform(X), before)
    again = pickle.loads(pickle.dumps(imputer))
    np.testing.assert_array_equal(again.transform(X), before)
    other = clone(imputer).fit(X)  # with the changed module
    assert abs(other.transform(X) - before).max() > 0.5
    assert imputer.get_params()["model__n_importance_samples"] == 16


class Factors(nn.Module):
    """An encoder whose latents are not one event."""

    def forward(self, x, observed):
        return Normal(x[..., :1], 1.0)


class Means(Decoder):
    """A decoder that returns no distribution."""

    def likelihood(self, z):
        return self.line(z)


class Located(nn.Module):
    """An encoder that returns no distribution."""

    def forward(self, x, observed):
        return x[..., :1]


class Pixels(Decoder):
    """Binary cells."""

    def likelihood(self, z):
        return Bernoulli(logits=3 * self.line(z))


def test_cells_may_be_binary(X):
    binary = np.where(np.isnan(X), np.nan, X > 0)
    own = TorchVAE(Pixels(), Encoder())
    imputer = LAIRImputer(own, n_steps=2, n_draws=8, on_misfit="ignore").fit(binary)
    for table in imputer.sample(binary, 3, random_state=0):
        assert set(np.unique(table)) == {0.0, 1.0}
    assert (imputer.score_samples(binary) <= 0).all()


class Greys(Decoder):
    """Cells on the unit interval, of the continuous Bernoulli distribution."""

    def likelihood(self, z):
        return ContinuousBernoulli(logits=4 * self.line(z))


def test_cells_on_the_unit_interval_have_their_means(torch_seeded):
    """By the continuous Bernoulli distribution; a binary one has other means."""
    model = Greys()
    with torch.no_grad():
        X = model.likelihood(torch.randn(40, 1)).sample().double().numpy()
    X[:, 2] = np.where(np.arange(40) % 2, np.nan, X[:, 2])
    own = TorchVAE(model, Encoder())
    options = {"sampler": LAIR(4, 40, "prior"), "on_misfit": "ignore", "n_draws": 800}
    imputer = LAIRImputer(own, min_value=0, max_value=1, **options).fit(X)
    z = torch.linspace(-5, 5, 800).double().unsqueeze(-1)
    with torch.no_grad():
        cells = model.double().likelihood(z.unsqueeze(1))
        x = torch.tensor(np.nan_to_num(X))
        log_p = cells.log_prob(x)[..., :2].sum(-1) - z**2 / 2
        share = log_p.softmax(0).numpy()
    missing = np.isnan(X[:, 2])
    exact, wrong = (
        (share * v[..., 2].numpy()).sum(0) for v in (cells.mean, cells.probs)
    )
    filled = imputer.transform(X)[:, 2]
    # the error of 800 draws of standard deviation at most 0.3, six times
    assert abs(filled - exact)[missing].max() < 0.08
    assert abs(filled - wrong)[missing].max() > 0.12  # control


@pytest.mark.parametrize(
    ("model", "posterior", "error", "message"),
    [
        (Decoder, Encoder(), ValueError, "'model.model' parameter of LAIRImputer"),
        (Encoder(), Encoder(), TypeError, "Encoder has no method prior"),
        (Wrong(), Encoder(), ValueError, r"batch shape \(\*batch, 3\), one a column"),
        (Decoder(), Factors(), ValueError, r"event shape \(1,\)"),
        (Means(), Encoder(), TypeError, r"likelihood\(z\) must return .* got Tensor"),
        (Decoder(), Located(), TypeError, "posterior.* must return"),
    ],
)
def test_modules_are_checked(X, model, posterior, error, message):
    imputer = LAIRImputer(TorchVAE(model, posterior))
    with pytest.raises(error, match=message):
        imputer.fit(X)
    assert not hasattr(imputer, "estimators_")
