"""Gaussian copula and latent normal: `GaussianImputer`."""
