"""Distributions, and normals by pattern of missing cells."""
