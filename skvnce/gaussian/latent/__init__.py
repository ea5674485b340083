"""Latent normals of categories, limits and groups, by Gibbs sampling."""
