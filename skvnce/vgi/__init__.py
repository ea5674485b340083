"""Variational Gibbs inference: `VGIImputer`."""
