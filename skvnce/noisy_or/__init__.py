"""Noisy-OR networks of binary tables: `NoisyOr`."""
