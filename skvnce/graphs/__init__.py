"""Sparse graphs of truncated normals and of copulas."""
