"""Exact relations between the columns of an incomplete table."""
