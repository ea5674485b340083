"""Distributions that torch lacks or gets wrong in our range."""
