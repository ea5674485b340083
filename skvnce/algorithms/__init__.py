"""Algorithms of papers, built from the lower layers; they do not use scikit-learn."""
