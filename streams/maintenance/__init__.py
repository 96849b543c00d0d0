"""Work on a database that no request waits for."""
