"""A paper's algorithm wired from the parts below: torch only, no scikit-learn."""
