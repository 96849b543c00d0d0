"""First recording of a collection."""
