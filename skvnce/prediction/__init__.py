"""Predictions of a target from several completed tables."""
