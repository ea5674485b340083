"""Fits: functions of cells, a schema and settings that return models."""
