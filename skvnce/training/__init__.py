"""Solvers and loops; they know nothing of models."""
