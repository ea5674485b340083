"""The scikit-learn doors to the algorithms."""
