"""Optimisers and training loops, independent of models."""
