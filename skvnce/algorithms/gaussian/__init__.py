"""Normal distributions and Gaussian copulas of tables with missing values."""
