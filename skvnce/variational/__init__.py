"""Posteriors q(z | x) of what a row hides: latent variables, missing cells, or both."""
