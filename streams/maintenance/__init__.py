"""Maintenance of a database: work that no request waits for."""
