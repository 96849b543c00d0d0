"""Building blocks without I/O that every other package may use."""
