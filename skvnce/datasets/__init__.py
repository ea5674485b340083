"""Small real tables that travel with the package."""

from skvnce.datasets._nhanes import load_nhanes

__all__ = ["load_nhanes"]
