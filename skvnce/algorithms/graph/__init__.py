"""Sparse graphs of incomplete non-negative tables: stochastic EM and its M-steps."""
