"""Data sets: bundled, read from a folder of the user, or simulated."""

from skvnce.datasets._boys import load_boys
from skvnce.datasets._frey_faces import load_frey_faces
from skvnce.datasets._nhanes import load_nhanes
from skvnce.datasets._noisy_or import make_binary_patterns
from skvnce.datasets._sachs import load_sachs
from skvnce.datasets._tcga import load_tcga_brca
from skvnce.datasets._titles import load_neurips_titles

__all__ = [
    "load_boys",
    "load_frey_faces",
    "load_neurips_titles",
    "load_nhanes",
    "load_sachs",
    "load_tcga_brca",
    "make_binary_patterns",
]
