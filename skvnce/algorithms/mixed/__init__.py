"""Latent normal models of tables with numbers, grades and categories."""
