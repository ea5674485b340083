"""Mixtures of normals: `MixtureImputer`."""
