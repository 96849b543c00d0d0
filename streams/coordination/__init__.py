"""What processes agree on through the database."""
