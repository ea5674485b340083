"""Tables in parts, and tables that do not fit into memory."""
