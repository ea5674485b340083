"""Variational noise-contrastive estimation: `VNCEEstimator`."""
