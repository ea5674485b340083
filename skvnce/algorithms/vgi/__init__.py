"""Variational Gibbs inference of incomplete tables, and Monte Carlo EM."""
