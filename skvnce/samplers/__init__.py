"""Samplers of missing values, as pure functions of their state."""
