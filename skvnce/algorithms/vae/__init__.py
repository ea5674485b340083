"""Variational autoencoders of incomplete tables: training and sampling."""
