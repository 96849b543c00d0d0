"""Agreement of processes through the database."""
