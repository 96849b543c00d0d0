"""MongoDB: reads, writes and transactions."""
