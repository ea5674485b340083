"""Variational Gibbs inference for tables with missing values, and Monte Carlo EM."""
