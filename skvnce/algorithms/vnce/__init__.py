"""Variational noise-contrastive estimation of incomplete tables."""
