"""Where the rows of a large table come from: chunks, and collections of dask."""
