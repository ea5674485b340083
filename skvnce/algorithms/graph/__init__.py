"""Sparse graphs of non-negative tables with missing values: EM and its M-steps."""
