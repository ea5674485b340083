"""Samplers: pure moves of the missing values."""
