"""What a table is: containers, columns and their codes, and checks of what it means."""
