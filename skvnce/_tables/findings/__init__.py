"""What reports say of a table, and what a fit may warn of."""
