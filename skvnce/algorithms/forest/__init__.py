"""Loops over the trees of forests."""
