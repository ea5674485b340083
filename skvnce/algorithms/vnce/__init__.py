"""Variational noise-contrastive estimation for tables with missing values."""
