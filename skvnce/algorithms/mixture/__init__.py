"""Mixtures of normals and of latent classes, fitted to incomplete rows by EM."""
