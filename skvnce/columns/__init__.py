"""A model for each column: `ColumnImputer`, `ConstrainedImputer`."""
