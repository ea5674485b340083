"""The recommended imputer: a normal distribution, and forests of its residuals."""
