"""Minimisation: Adam, L-BFGS and proximal gradients."""
