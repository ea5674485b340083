"""Distributions that torch lacks or that are inaccurate in our range."""
