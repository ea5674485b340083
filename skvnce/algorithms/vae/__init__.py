"""Variational autoencoders of tables with missing values: training and sampling."""
