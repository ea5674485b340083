"""Data sets: bundled, read from a folder of the user, or simulated."""

from skvnce.datasets._noisy_or import make_binary_patterns
from skvnce.datasets._tables import (
    load_boys,
    load_frey_faces,
    load_neurips_titles,
    load_nhanes,
    load_sachs,
    load_tcga_brca,
)

__all__ = [
    "load_boys",
    "load_frey_faces",
    "load_neurips_titles",
    "load_nhanes",
    "load_sachs",
    "load_tcga_brca",
    "make_binary_patterns",
]
