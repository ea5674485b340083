"""Objectives: pure functions of log-densities."""
