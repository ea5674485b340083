"""Small data sets that come with the package, and simulated ones."""

from skvnce.datasets._nhanes import load_nhanes
from skvnce.datasets._noisy_or import make_binary_patterns

__all__ = ["load_nhanes", "make_binary_patterns"]
