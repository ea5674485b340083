"""Posteriors q(z | x) of the unobserved variables of rows: latents, missing cells."""
