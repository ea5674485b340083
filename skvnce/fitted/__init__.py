"""What fitted models can do: fill, draw and score rows of their columns."""
