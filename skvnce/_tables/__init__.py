"""Tables: reading, kinds of columns, schema, limits and writing back."""
