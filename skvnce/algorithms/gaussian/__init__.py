"""Normal distributions and Gaussian copulas of incomplete tables."""
