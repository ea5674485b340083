"""MIWAE as its paper has it: a deep latent variable model for incomplete tables.

Mattei and Frellsen (2019), MIWAE: deep generative modelling and imputation of
incomplete data sets, ICML.  Encoder and decoder have two hidden layers of 128, the
encoder reads the row filled by zeros, cells are Student-t given 10 latents.  Training
maximises the importance-weighted bound of K = 20 latents (eq. 4 there); imputations are
self-normalised importance sums (eq. 12) and resampled draws of 1000.
"""

import numpy as np
import torch
from torch import nn
from torch.distributions import Independent, Normal, StudentT

HIDDEN, LATENTS, PARTICLES, BATCH, STEPS = 128, 10, 20, 64, 2000
SAMPLES, CHUNK = 1000, 32  # importance samples of a row, rows at once


def network(n_in, n_out):
    """Make a perceptron of two hidden layers."""
    sizes = [nn.Linear(n_in, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    return nn.Sequential(*sizes, nn.Linear(HIDDEN, n_out))


class MIWAE:
    """Fit, fill by importance-weighted means, draw by resampling."""

    def __init__(self, steps=STEPS, random_state=0):
        self.steps, self.random_state = steps, random_state

    def fit(self, X):
        """Train by Adam; columns should have standard deviations of about 1."""
        torch.manual_seed(self.random_state)
        x, observed = incomplete(X)
        d = x.shape[1]
        self.encoder, self.decoder = network(d, 2 * LATENTS), network(LATENTS, 3 * d)
        weights = [*self.encoder.parameters(), *self.decoder.parameters()]
        adam = torch.optim.Adam(weights, lr=1e-3)
        for _ in range(self.steps):
            rows = torch.randint(len(x), (BATCH,))
            log_weights, _ = self._weigh(x[rows], observed[rows], PARTICLES)
            adam.zero_grad()
            (-log_weights.logsumexp(0).mean()).backward()
            adam.step()
        return self

    @torch.no_grad()
    def transform(self, X):
        """Fill by weighted means of the decoder."""
        torch.manual_seed(self.random_state)
        x, observed = incomplete(X)
        means = []
        for i in range(0, len(x), CHUNK):
            part = slice(i, i + CHUNK)
            log_weights, cells = self._weigh(x[part], observed[part], SAMPLES)
            weights = log_weights.softmax(0)[..., None]
            means.append((weights * cells.base_dist.loc).sum(0))
        return np.where(observed.numpy(), X, torch.cat(means).double().numpy())

    @torch.no_grad()
    def sample(self, X, n_draws, random_state):
        """Draw cells of latents that are resampled by their weights."""
        torch.manual_seed(random_state)
        x, observed = incomplete(X)
        draws = []
        for i in range(0, len(x), CHUNK):
            part = slice(i, i + CHUNK)
            log_weights, cells = self._weigh(x[part], observed[part], SAMPLES)
            chosen = log_weights.softmax(0).T.multinomial(n_draws, replacement=True)
            rows = torch.arange(chosen.shape[0])
            draws.append(cells.base_dist.sample()[chosen.T, rows])
        return np.where(observed.numpy(), X, torch.cat(draws, 1).double().numpy())

    def _weigh(self, x, observed, n):
        """Draw n latents a row; log importance weights (n, rows), p(x | z)."""
        mean, std = self.encoder(x).chunk(2, -1)
        posterior = Independent(Normal(mean, positive(std)), 1)
        z = posterior.rsample((n,))
        prior = Independent(Normal(torch.zeros_like(mean), 1.0), 1)
        loc, scale, dof = self.decoder(z).chunk(3, -1)
        cells = Independent(StudentT(3 + positive(dof), loc, positive(scale)), 1)
        seen = (cells.base_dist.log_prob(x) * observed).sum(-1)
        return seen + prior.log_prob(z) - posterior.log_prob(z), cells


def positive(value):
    """Map to positive numbers, as the authors' notebook does."""
    return nn.functional.softplus(value) + 1e-3


def incomplete(X):
    """Fill by zeros; float32, and which cells are observed."""
    observed = ~np.isnan(X)
    filled = np.where(observed, X, 0.0).astype(np.float32)
    return torch.from_numpy(filled), torch.from_numpy(observed)
