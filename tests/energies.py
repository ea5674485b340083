"""Small models that tests pass to estimators; importable, so that pickles load."""

import torch
from torch import nn


class Bell(nn.Module):
    """``exp(-(x - m)' (D + w w') (x - m) / 2)``: a Gaussian that does not say so."""

    def __init__(self, n_features):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(n_features))
        self.log_diagonal = nn.Parameter(torch.zeros(n_features))
        self.link = nn.Parameter(torch.full((n_features,), 0.1))

    def log_density(self, x):
        residual = x - self.centre
        square = (residual.square() * self.log_diagonal.exp()).sum(1)
        return -(square + (residual @ self.link).square()) / 2


class Factor(nn.Module):
    """Factor analysis with one latent, without its normaliser."""

    n_components = 1

    def __init__(self, n_features):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(n_features))
        # small: at 0.5 some fits end where the sign of one loading is wrong
        self.loadings = nn.Parameter(torch.full((n_features,), 0.1))
        self.log_noise = nn.Parameter(torch.zeros(n_features))

    def log_density(self, x, z):
        residual = x - self.centre - z * self.loadings
        square = (residual.square() * (-self.log_noise).exp()).sum(1)
        return -(square + z.square().sum(1)) / 2


class Blob(nn.Module):
    """Two normals with independent columns: a density that is normalised."""

    def __init__(self, n_features):
        super().__init__()
        self.centres = nn.Parameter(
            torch.linspace(-1, 1, 2)[:, None].repeat(1, n_features)
        )
        self.log_scales = nn.Parameter(torch.zeros(2, n_features))
        self.logits = nn.Parameter(torch.zeros(2))

    def log_prob(self, x):
        parts = torch.distributions.Normal(self.centres, self.log_scales.exp())
        inside = parts.log_prob(x[:, None]).sum(-1)
        return torch.logsumexp(self.logits.log_softmax(0) + inside, -1)
