"""The version, in exactly one place."""

__version__ = "0.1.0"
